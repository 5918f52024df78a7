//! Coverage for other programs: CSV, and the nested JSON of IOCov.

use fathom_core::Errno;
use fathom_record::coverage::{PlaceReport, Report};
use serde_json::{Map, Value, json};

/// One line per partition, one column of counts per report.
pub fn csv(reports: &[(String, Report)]) -> String {
    let names: Vec<String> = reports.iter().map(|(name, _)| quoted(name)).collect();
    let mut text = format!("call,argument,kind,partition,{},note\n", names.join(","));
    let Some((_, first)) = reports.first() else {
        return text;
    };
    for (base, call) in &first.bases {
        let places = call.args.iter().map(|(arg, place)| (arg.as_str(), place));
        for (arg, place) in places.chain([("output", &call.output)]) {
            for name in partition_names(reports, base, arg) {
                let id = format!("{base}.{arg}.{name}");
                let counts: Vec<String> = reports
                    .iter()
                    .map(|(_, report)| report.count(&id).unwrap_or(0).to_string())
                    .collect();
                let bucket = place.partitions.iter().find(|bucket| bucket.name == name);
                let note = match bucket {
                    Some(bucket) if bucket.unreachable.is_some() => "unreachable",
                    Some(bucket) if !bucket.undocumented => "",
                    _ => "undocumented",
                };
                text.push_str(&format!(
                    "{base},{arg},{},{},{},{note}\n",
                    place.kind,
                    quoted(&name),
                    counts.join(",")
                ));
            }
        }
    }
    text
}

/// The partitions of a place in any of the reports, in their order.
pub(crate) fn partition_names(reports: &[(String, Report)], base: &str, arg: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (_, report) in reports {
        let place = place(report, base, arg);
        for bucket in place.into_iter().flat_map(|place| &place.partitions) {
            if !names.contains(&bucket.name) {
                names.push(bucket.name.clone());
            }
        }
    }
    names
}

/// An argument of a call, or its `output`.
pub(crate) fn place<'a>(report: &'a Report, base: &str, arg: &str) -> Option<&'a PlaceReport> {
    let call = report.bases.get(base)?;
    if arg == "output" { Some(&call.output) } else { call.args.get(arg) }
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// `{"input": {call: {argument: {value: count}}}, "output": {call: {value: count}}}`: amounts by the
/// power of two from which their interval starts, errors as negative numbers, flags by name.
pub fn iocov(report: &Report) -> Value {
    let mut input = Map::new();
    let mut output = Map::new();
    for (base, call) in report.bases.iter().filter(|(_, call)| call.calls > 0) {
        let counted = ["bitmask", "numeric", "categorical"];
        let args: Map<String, Value> = call
            .args
            .iter()
            .filter(|(_, place)| counted.contains(&place.kind.as_str()))
            .map(|(arg, place)| (arg.clone(), counts(place)))
            .collect();
        input.insert(base.clone(), Value::Object(args));
        output.insert(base.clone(), counts(&call.output));
    }
    json!({ "input": input, "output": output })
}

fn counts(place: &PlaceReport) -> Value {
    let counted = place.partitions.iter().map(|bucket| (iocov_key(&bucket.name), bucket.count));
    Value::Object(counted.map(|(key, count)| (key, count.into())).collect())
}

fn iocov_key(name: &str) -> String {
    let power = name.strip_prefix("[2^").and_then(|rest| rest.split_once(','));
    let power = power.and_then(|(power, _)| power.parse::<u32>().ok());
    match (power, name.parse::<Errno>()) {
        (Some(power), _) => (1u128 << power).to_string(),
        (None, Ok(errno)) => format!("-{}", errno.0),
        (None, Err(_)) if name == "success" => "0".to_owned(),
        (None, Err(_)) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_iocov_are_numbers_and_names() {
        assert_eq!(iocov_key("[2^12,2^13)"), "4096");
        assert_eq!(iocov_key("ENOENT"), "-2");
        assert_eq!(iocov_key("O_APPEND"), "O_APPEND");
        assert_eq!(iocov_key("success"), "0");
    }

    #[test]
    fn intervals_are_quoted() {
        assert_eq!(quoted("[2^1,2^2)"), "\"[2^1,2^2)\"");
        assert_eq!(quoted("EIO"), "EIO");
    }
}
