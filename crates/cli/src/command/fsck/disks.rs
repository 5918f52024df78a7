//! `fathom fsck map`, `set` and `disk`: disks without a campaign.

use std::fs;

use anyhow::{Context, Result};
use fathom_fsck::Case;
use fathom_fsck::map::{Field, Map, show};
use serde_json::json;

use super::args::{DiskArgs, MapArgs, SetArgs};
use super::open_disk;
use crate::command::Ending;
use crate::text::{print, print_json, say};

/// Shows a disk field by field.
pub(super) fn map(args: &MapArgs, json: bool) -> Result<Ending> {
    let disk = open_disk(&args.image)?;
    let map = Map::of(&disk.bytes).with_context(|| disk.name.clone())?;
    let wanted = |field: &Field| {
        args.filter.as_ref().is_none_or(|filter| field.to_string().contains(filter.as_str()))
    };
    for note in &map.notes {
        say!("{}: {note}", disk.name);
    }
    if json {
        let fields: Vec<_> = map
            .fields
            .iter()
            .filter(|field| wanted(field))
            .map(|field| {
                json!({
                    "field": field.to_string(),
                    "at": field.at,
                    "width": field.width,
                    "kind": field.kind,
                    "value": field.read(&disk.bytes),
                })
            })
            .collect();
        print_json(&json!({"file_system": map.file_system, "notes": map.notes, "fields": fields}))?;
    } else {
        print(&show(&map, &disk.bytes, wanted))?;
    }
    Ok(Ending::Clean)
}

/// Writes corruptions of a disk.
pub(super) fn set(args: &SetArgs, json: bool) -> Result<Ending> {
    let disk = open_disk(&args.image)?;
    let mut bytes = (*disk.bytes).clone();
    let mut cases = Vec::new();
    for what in &args.what {
        let map = Map::of(&disk.bytes).with_context(|| disk.name.clone())?;
        let case = Case::parse(what, &map, &bytes, !args.wrong_checksum)?;
        case.apply(&mut bytes);
        cases.push(case);
    }
    fs::write(&args.output, &bytes)
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    if json {
        print_json(&cases)?;
    } else {
        for case in &cases {
            let places: Vec<String> = case
                .writes
                .iter()
                .map(|(at, bytes)| format!("{} bytes at {at}", bytes.len()))
                .collect();
            print(&format!("{}: {}\n", case.text(), places.join(", ")))?;
        }
    }
    Ok(Ending::Clean)
}

/// Makes a test disk, or prints the script that does.
pub(super) fn disk(args: &DiskArgs, json: bool) -> Result<Ending> {
    let disk = fathom_fsck::Disk::named(&args.name, &super::GuestMaker)?;
    match &args.output {
        Some(output) => {
            fs::write(output, &*disk.bytes)
                .with_context(|| format!("cannot write {}", output.display()))?;
            if json {
                print_json(&json!({"disk": disk.name, "bytes": disk.bytes.len()}))?;
            }
        }
        None => print(disk.script.as_deref().unwrap_or("# it is made without a script\n"))?,
    }
    Ok(Ending::Clean)
}
