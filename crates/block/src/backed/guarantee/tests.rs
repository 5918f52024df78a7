//! Profiles that are read, and those that are refused, with what the refusal says.

use super::*;

const OLD: &str = r#"
    names = { is = "operation", cite = "a" }
    data = { is = "close", cite = "b" }
    order = { is = "prefix", cite = "c" }
    survives = { is = ["linear", "torn"], cite = "d" }
    recovers = { is = true, cite = "e" }
    capacity_slack_bytes = { is = 0, cite = "f" }
"#;

const NEW: &str = r#"
    order = { is = "metadata_prefix", cite = "a" }
    data = { is = "ordered", cite = "b" }
    survives = { is = ["linear"], cite = "c" }
    recovers = { is = true, cite = "d" }
    capacity_slack_bytes = { is = 0, cite = "e" }
    blocks = { is = "data", cite = "k" }
    mtime = { is = "file", cite = "l" }
    reference = { is = "ext4", cite = "f" }

    [durable]
    fsync = { is = "metadata", cite = "g" }
    fdatasync = { is = "data", cite = "h" }
    fsync_dir = { is = "metadata", cite = "i" }
    rename_over = { is = "data", cite = "j" }
"#;

#[test]
fn a_claim_needs_its_citation() {
    let guarantee = Guarantee::parse(OLD).unwrap();
    assert_eq!(guarantee.survives.is, [Level::Linear, Level::Torn]);
    let error = Guarantee::parse(&OLD.replace(", cite = \"b\"", "")).unwrap_err();
    assert!(error.to_string().contains("missing field `cite`"), "{error}");
    let guarantee = Guarantee::parse(NEW).unwrap();
    assert_eq!(promised(&guarantee.durable.fsync), Makes::Metadata);
    assert_eq!(promised(&guarantee.durable.o_sync), Makes::Nothing, "silence promises nothing");
    let error = Guarantee::parse(&NEW.replace("\"h\"", "\"\"")).unwrap_err();
    assert_eq!(error.to_string(), "fdatasync does not say where that is promised: fill its cite");
}

#[test]
fn profiles_are_written_as_they_are_read() {
    let guarantee = Guarantee::parse(NEW).unwrap();
    let text = toml::to_string(&guarantee).unwrap();
    assert_eq!(Guarantee::parse(&text).unwrap(), guarantee);
}

#[test]
fn old_claims_that_contradict_each_other_are_refused() {
    let parse = |names: &str, data: &str, order: &str| {
        let text = OLD.replace("\"close\"", &format!("\"{data}\""));
        let text =
            text.replace("\"operation\", cite = \"a\"", &format!("\"{names}\", cite = \"a\""));
        Guarantee::parse(&text.replace("\"prefix\"", &format!("\"{order}\"")))
    };
    let mut sensible = Vec::new();
    for order in ["prefix", "none"] {
        for names in ["operation", "close", "sync"] {
            for data in ["operation", "close", "sync"] {
                match parse(names, data, order) {
                    Ok(guarantee) => sensible.push((names, data, order, guarantee.judging())),
                    Err(error) => assert!(error.to_string().contains("say "), "{error}"),
                }
            }
        }
    }
    assert_eq!(
        sensible,
        [
            ("operation", "operation", "prefix", Judging::Operations { held: false }),
            ("operation", "close", "prefix", Judging::Operations { held: true }),
            ("sync", "sync", "prefix", Judging::Syncs),
            ("sync", "sync", "none", Judging::Touched),
        ]
    );
    assert_eq!(
        parse("operation", "sync", "prefix").unwrap_err().to_string(),
        "names = \"operation\" with data = \"sync\" makes no sense: a file that is closed before \
         the sync would be a name whose data nobody waits for; say data = \"close\", or names = \
         \"sync\""
    );
}

#[test]
fn claims_that_contradict_each_other_are_refused() {
    let refused = |from: &str, to: &str| {
        assert!(NEW.contains(from), "{from}");
        Guarantee::parse(&NEW.replace(from, to)).unwrap_err().to_string()
    };
    let cases = [
        (
            "\"metadata_prefix\"",
            "\"none\"",
            "fsync = \"metadata\" makes no sense: without an order",
        ),
        ("\"ordered\"", "\"held\"", "data = \"held\" makes no sense: who holds data back"),
        ("fsync = { is = \"metadata\"", "fsync = { is = \"nothing\"", "fdatasync = \"data\" makes"),
        ("fsync = { is = \"metadata\"", "fsync = { is = \"entries\"", "only a directory has"),
        ("fsync_dir = { is = \"metadata\"", "fsync_dir = { is = \"file\"", "say \"entries\""),
        ("rename_over = { is = \"data\"", "rename_over = { is = \"file\"", "say \"data\""),
        ("rename_over = { is = \"data\"", "sync = { is = \"data\"", "say \"everything\""),
        ("rename_over = { is = \"data\"", "operation = { is = \"data\"", "or leave it out"),
        (
            "mtime = { is = \"file\"",
            "mtime = { is = \"data\"",
            "mtime = \"data\" makes no sense: blocks",
        ),
        ("blocks = { is = \"data\"", "blocks = { is = \"entries\"", "leave it out if no call"),
        ("cite = \"k\"", "cite = \"\"", "blocks does not say where"),
        ("rename_over", "renames", "unknown field `renames`"),
        ("reference", "names", "`names` belongs to the old format and `durable` to the new one"),
        ("\"ordered\"", "\"close\"", "unknown variant `close`, expected one of `ordered`"),
    ];
    for (from, to, says) in cases {
        let error = refused(from, to);
        assert!(error.contains(says), "{from} -> {to}: {error}");
    }
}
