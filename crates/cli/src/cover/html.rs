//! Coverage as one self-contained page: no script, no network, charts as inline SVG, and a layout that
//! reads on a phone.

use fathom_trace::report::{Report, ratio};

use super::chart::{bars, legend};
use super::export::{partition_names, place};
use crate::cover::text::share;
use crate::text::grouped;

/// Colours that stay apart for colour-blind readers (Okabe and Ito).
pub(super) const COLOURS: [&str; 7] =
    ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#555555"];

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.45 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem}\
h1{font-size:1.4rem}h2{font-size:1.15rem;margin:2rem 0 .3rem}h3{font-size:1rem;margin:1.2rem 0 .2rem}\
table{border-collapse:collapse;width:100%;font-size:.9rem}\
td,th{text-align:right;padding:.15rem .4rem;border-bottom:1px solid #8884}\
td:first-child,th:first-child{text-align:left}\
.wide{overflow-x:auto}svg{width:100%;height:auto;display:block}\
svg text{fill:currentColor;font:11px system-ui,sans-serif}\
summary{cursor:pointer;font-weight:600;margin:.6rem 0}.note{opacity:.7;font-size:.9rem}\
code{font-size:.9em;overflow-wrap:anywhere}li{margin:.3rem 0}";

/// Charts that are shown unfolded: the figures of the IOCov paper and their like.
const SHOWN: &[(&str, &str, &str)] = &[
    ("open", "flags", "Flags of open"),
    ("write", "count", "Bytes given to write"),
    ("write", "offset", "Offsets of write"),
    ("read", "count", "Bytes asked of read"),
    ("truncate", "length", "Sizes of truncate"),
    ("open", "output", "How open ended"),
    ("write", "output", "How write ended"),
];

/// A page of one report or of several side by side.
pub(crate) fn page(reports: &[(String, Report)]) -> String {
    let title = match reports {
        [(_, report)] => format!("Coverage of {}", report.title),
        _ => "Coverage side by side".to_owned(),
    };
    let mut body = format!("<h1>{}</h1>\n", escaped(&title));
    body.push_str(&summary(reports));
    if reports.len() > 1 {
        body.push_str(&legend(&names(reports)));
    }
    for (base, arg, title) in SHOWN {
        body.push_str(&format!("<h2>{title}</h2>\n{}", chart(reports, base, arg)));
    }
    for (name, report) in reports {
        body.push_str(&holes(name, report, reports.len() > 1));
    }
    body.push_str("<h2>All calls</h2>\n");
    body.push_str(&all_calls(reports));
    body.push_str(&limits(reports));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head>\n<body>\n{body}</body></html>\n",
        escaped(&title)
    )
}

pub(super) fn names(reports: &[(String, Report)]) -> Vec<&str> {
    reports.iter().map(|(name, _)| name.as_str()).collect()
}

fn summary(reports: &[(String, Report)]) -> String {
    let mut rows = String::new();
    for (name, report) in reports {
        let watched: Vec<String> =
            report.mounts.iter().map(|mount| format!("{} on {}", mount.kind, mount.path)).collect();
        let cells = [
            name.clone(),
            grouped(report.calls),
            format!("{} of {}", report.partitions_hit, report.partitions_total),
            share(report.partitions_hit, report.partitions_total),
            share(report.pairs_hit, report.pairs_total),
            format!("{} {}", report.tracer, watched.join(", ")),
        ];
        let cells: String =
            cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        rows.push_str(&format!("<tr>{cells}</tr>\n"));
    }
    format!(
        "<div class=\"wide\"><table><tr><th>run</th><th>calls</th><th>partitions</th>\
         <th>hit</th><th>pairs of flags</th><th>watched by</th></tr>\n{rows}</table></div>\n"
    )
}

fn chart(reports: &[(String, Report)], base: &str, arg: &str) -> String {
    let names = partition_names(reports, base, arg);
    let rows: Vec<(String, Vec<u64>)> = names
        .into_iter()
        .map(|name| {
            let id = format!("{base}.{arg}.{name}");
            let counts = reports.iter().map(|(_, report)| report.count(&id).unwrap_or(0));
            (name, counts.collect())
        })
        .collect();
    bars(&rows)
}

fn holes(name: &str, report: &Report, named: bool) -> String {
    if report.holes.is_empty() {
        return String::new();
    }
    let of = if named { format!(" of {}", escaped(name)) } else { String::new() };
    let items: String = report
        .holes
        .iter()
        .map(|hole| {
            let (words, add) = (escaped(&hole.words), escaped(&hole.add));
            format!("<li>{words}<br><span class=\"note\">add <code>{add}</code></span></li>\n")
        })
        .collect();
    format!("<h2>The largest holes{of}</h2>\n<ol>\n{items}</ol>\n")
}

fn all_calls(reports: &[(String, Report)]) -> String {
    let mut text = String::new();
    let Some((_, first)) = reports.first() else {
        return text;
    };
    for base in first.bases.keys() {
        let calls = reports.iter().filter_map(|(_, report)| report.bases.get(base));
        if calls.clone().all(|call| call.calls == 0) {
            continue;
        }
        let shares: Vec<String> = calls
            .map(|call| {
                let share = 100.0 * ratio(call.partitions_hit, call.partitions_total);
                format!("{} calls, {share:.0}%", grouped(call.calls))
            })
            .collect();
        let args = first.bases[base].args.keys().map(String::as_str).chain(["output"]);
        let charts: String = args
            .filter(|arg| reports.iter().any(|(_, r)| place(r, base, arg).is_some()))
            .map(|arg| format!("<h3>{base}.{arg}</h3>\n{}", chart(reports, base, arg)))
            .collect();
        text.push_str(&format!(
            "<details><summary>{base} <span class=\"note\">{}</span></summary>\n{charts}</details>\n",
            shares.join(" · ")
        ));
    }
    text
}

fn limits(reports: &[(String, Report)]) -> String {
    let mut text = String::from("<h2>What was not seen</h2>\n<ul>\n");
    for (name, report) in reports {
        text.push_str(&format!(
            "<li>{}: {} calls lost, {} of an unknown file system</li>\n",
            escaped(name),
            grouped(report.lost),
            grouped(report.unresolved)
        ));
        for limit in &report.limits {
            text.push_str(&format!("<li>{}: {}</li>\n", escaped(name), escaped(limit)));
        }
    }
    text + "</ul>\n"
}

/// Text as HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
