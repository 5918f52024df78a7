//! `fathom list`: what there is, what it needs, and whether this machine has it.

use anyhow::{Result, bail};
use fathom_designs::catalog;
use fathom_generate::Call;
use fathom_guest::Kernel;
use fathom_model::{Mutant, Quirks, Race};
use fathom_subjects::catalogue::{Disk, Mutants, Need, Offers, Purpose, Row};
use fathom_subjects::kernel::disks::Lie;
use fathom_subjects::kernel::version;
use fathom_subjects::library::faulty;
use fathom_subjects::nfs;
use serde_json::{Value, json};

use super::Ending;
use crate::args::ListWhat;
use crate::subjects::catalogue;
use crate::text::{print, print_json, table};

/// `kernel` is that of a guest, whose file systems are listed.
pub(crate) fn run(what: ListWhat, kernel: Option<&str>, json: bool) -> Result<Ending> {
    let kernel = kernel.map(fathom_guest::resolve).transpose()?;
    match what {
        ListWhat::Subjects => subjects(kernel.as_ref(), json)?,
        _ if kernel.is_some() => bail!("only subjects depend on the kernel of a guest"),
        ListWhat::Mutants => mutants(json)?,
        ListWhat::CrashMutants => crash_mutants(json)?,
        ListWhat::Designs => designs(json)?,
        ListWhat::Profiles => profiles(json)?,
        ListWhat::Ops => ops(json)?,
        ListWhat::Checkers => checkers(json)?,
        ListWhat::Disks => disks(json)?,
    }
    Ok(Ending::Clean)
}

fn subjects(kernel: Option<&Kernel>, json: bool) -> Result<()> {
    let rows = catalogue().rows();
    let missing = |row: &Row| -> Vec<String> {
        let needs = row.needs.iter();
        match kernel {
            None => needs.filter_map(Need::missing).collect(),
            Some(kernel) => needs.filter_map(|need| missing_in(kernel, need)).collect(),
        }
    };
    if json {
        let rows = rows.iter().map(|row| row_json(row, missing(row)));
        return print_json(&rows.collect::<Vec<_>>());
    }
    let place = if kernel.is_some() { "THERE" } else { "HERE" };
    let mut lines = vec![["SUBJECT", "FOR", "WHAT", "NEEDS", place].map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| row_cells(row, missing(row))));
    Ok(print(&table(&lines))?)
}

/// Refuses a subject of the list that a guest with this kernel cannot have, with the reasons.
///
/// # Errors
/// If something is missing.
pub(crate) fn refuse_missing(subject: &str, kernel: &Kernel) -> Result<()> {
    let rows = catalogue().rows();
    let Some(row) = rows.iter().find(|row| row.name == subject) else { return Ok(()) };
    let missing: Vec<String> =
        row.needs.iter().filter_map(|need| missing_in(kernel, need)).collect();
    if !missing.is_empty() {
        bail!(
            "{subject} cannot be had in a guest with Linux {}: {} (`fathom list --guest KERNEL` shows what \
             can)",
            kernel.release,
            missing.join(", ")
        );
    }
    Ok(())
}

/// What is missing in a guest with this kernel, whose root and programs are the host's.
fn missing_in(kernel: &Kernel, need: &Need) -> Option<String> {
    match need {
        Need::Root | Need::Guest | Need::KernelOfHost(..) => None,
        Need::Fuse if kernel.file_system("fuse").is_some() => None,
        Need::Fuse => Some("no FUSE in the kernel".to_owned()),
        Need::KernelType(fs_type) if kernel.file_system(fs_type).is_some() => None,
        Need::KernelType(fs_type) => Some(format!("no {fs_type} in the kernel")),
        Need::Kernel(min, _) => {
            let have = version(&kernel.release);
            (have < Some(*min)).then(|| format!("it is {}", kernel.release))
        }
        Need::Program { .. } | Need::Feature { .. } => need.missing(),
    }
}

/// The commands that there are.
const COMMANDS: [Purpose; 2] = [Purpose::Check, Purpose::Crash];

fn commands(offers: &Offers) -> Vec<&'static str> {
    let offered = |purpose: &Purpose| offers.lacks(*purpose).is_none();
    COMMANDS.into_iter().filter(offered).map(Purpose::name).collect()
}

fn row_cells(row: &Row, missing: Vec<String>) -> Vec<String> {
    let here = match missing {
        missing if missing.is_empty() => "yes".to_owned(),
        missing => format!("no: {}", missing.join(", ")),
    };
    let needs: Vec<String> = row.needs.iter().map(Need::text).collect();
    let needs = if needs.is_empty() { "-".to_owned() } else { needs.join(", ") };
    let commands = commands(&row.offers).join(", ");
    vec![row.name.clone(), commands, row.about.clone(), needs, here]
}

fn row_json(row: &Row, missing: Vec<String>) -> Value {
    let Offers { operations, restore_methods, capabilities, disk, checker, .. } = &row.offers;
    let lacks = COMMANDS.into_iter().filter_map(|purpose| {
        row.offers.lacks(purpose).map(|lacks| (purpose.name().to_owned(), Value::String(lacks)))
    });
    json!({
        "name": row.name,
        "description": row.about,
        "commands": commands(&row.offers),
        "lacks": lacks.collect::<serde_json::Map<_, _>>(),
        "offers": {
            "operations": Call::ALL
                .iter()
                .map(|call| call.name())
                .filter(|name| operations.contains(name))
                .collect::<Vec<_>>(),
            "restore": restore_methods.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "capabilities": capabilities,
            "disk": !matches!(disk, Disk::None(_)),
            "disk_recorded": *disk == Disk::Recorded,
            "checker": checker,
            "promises": row.offers.promises,
            "space": row.offers.space,
            "mutants": match row.offers.mutants {
                Mutants::None => Value::Null,
                Mutants::Reference => "mutants".into(),
                Mutants::Crash => "crash-mutants".into(),
            },
        },
        "needs": row.needs.iter().map(Need::text).collect::<Vec<_>>(),
        "missing": missing,
    })
}

fn checkers(json: bool) -> Result<()> {
    let all = fathom_fsck::Checker::all();
    let here = |checker: &fathom_fsck::Checker| match checker.path() {
        Ok(_) => checker.version_line(),
        Err(error) => format!("no: {error}"),
    };
    if json {
        let row = |checker: &fathom_fsck::Checker| {
            json!({
                "name": checker.name,
                "file_systems": checker.file_systems,
                "disks": checker.disks,
                "package": checker.package,
                "here": checker.path().is_ok(),
            })
        };
        return print_json(&all.iter().map(row).collect::<Vec<_>>());
    }
    let mut lines = vec![["CHECKER", "FOR", "PACKAGE", "HERE"].map(str::to_owned).to_vec()];
    lines.extend(all.iter().map(|checker| {
        let systems = checker.file_systems.join(", ");
        vec![checker.name.clone(), systems, checker.package.clone(), here(checker)]
    }));
    Ok(print(&table(&lines))?)
}

fn disks(json: bool) -> Result<()> {
    let names = fathom_fsck::Disk::names();
    if json {
        return print_json(&names);
    }
    Ok(print(&format!("{}\n", names.join("\n")))?)
}

fn mutants(json: bool) -> Result<()> {
    if json {
        let rows: Vec<Value> = Mutant::ALL
            .iter()
            .map(|mutant| {
                json!({
                    "name": mutant.name(),
                    "description": mutant.describe(),
                    "inspired_by": mutant.inspired_by(),
                })
            })
            .collect();
        return print_json(&rows);
    }
    let mut text = String::new();
    for mutant in Mutant::ALL {
        text.push_str(&format!(
            "{}\n    {}\n    inspired by: {}\n",
            mutant.name(),
            mutant.describe(),
            mutant.inspired_by()
        ));
    }
    for race in Race::ALL {
        text.push_str(&format!(
            "{}\n    {}\n    only with --callers\n",
            race.name(),
            race.describe()
        ));
    }
    for (name, about) in nfs::lies() {
        text.push_str(&format!("{name}\n    {about}\n    only with nfs: (docs/NFS.md)\n"));
    }
    Ok(print(&text)?)
}

fn designs(json: bool) -> Result<()> {
    let switches = |name: &str| catalog::switches(name).unwrap_or_default();
    if json {
        let row = |(name, about): &(&str, &str)| json!({"name": name, "description": about, "switches": switches(name)});
        return print_json(&catalog::DESIGNS.iter().map(row).collect::<Vec<_>>());
    }
    let mut lines = vec![["DESIGN", "SWITCHES", "WHAT"].map(str::to_owned).to_vec()];
    lines.extend(catalog::DESIGNS.iter().map(|(name, about)| {
        vec![(*name).to_owned(), switches(name).join(", "), (*about).to_owned()]
    }));
    Ok(print(&table(&lines))?)
}

fn crash_mutants(json: bool) -> Result<()> {
    let mutants = faulty::all();
    let lies = || Lie::all().map(|(name, about)| (name, format!("{about} (kernel file systems)")));
    if json {
        let row = |mutant: &faulty::Mutant| {
            json!({
                "name": mutant.name,
                "description": mutant.about,
                "class": mutant.class,
                "level": mutant.level,
                "subjects": "library",
            })
        };
        // What a lie shows, and how soon, depends on the file system above it.
        let lie = |(name, about): (&str, String)| {
            json!({
                "name": name,
                "description": about,
                "subjects": "kernel",
            })
        };
        let rows = mutants.iter().map(row).chain(lies().map(lie));
        return print_json(&rows.collect::<Vec<_>>());
    }
    let mut lines = vec![["MUTANT", "SHOWS", "LEVEL", "WHAT"].map(str::to_owned).to_vec()];
    lines.extend(mutants.iter().map(|mutant| {
        let words = [mutant.name, mutant.class, mutant.level.name(), mutant.about];
        words.map(str::to_owned).to_vec()
    }));
    lines.extend(
        lies().map(|(name, about)| vec![name.to_owned(), String::new(), String::new(), about]),
    );
    Ok(print(&table(&lines))?)
}

fn profiles(json: bool) -> Result<()> {
    let profiles: Vec<(&str, Quirks)> = Quirks::profile_names()
        .filter_map(|name| Quirks::profile(name).map(|quirks| (name, quirks)))
        .collect();
    if json {
        let rows: Vec<Value> =
            profiles.iter().map(|(name, quirks)| json!({"name": name, "quirks": quirks})).collect();
        return print_json(&rows);
    }
    let default = serde_json::to_value(Quirks::default())?;
    let mut text = String::from("Profiles and what is special about them (most: nothing).\n");
    for (name, quirks) in profiles {
        text.push_str(&format!("{name}\n"));
        let Value::Object(values) = serde_json::to_value(&quirks)? else { continue };
        for (field, value) in values.iter().filter(|(field, value)| default[field] != **value) {
            text.push_str(&format!("    {field} = {value}\n"));
        }
    }
    Ok(print(&text)?)
}

fn ops(json: bool) -> Result<()> {
    let config = fathom_generate::Config::default();
    let weight = |call: &Call| config.weights.get(call).copied().unwrap_or(0);
    if json {
        let rows: Vec<Value> = Call::ALL
            .iter()
            .map(|call| json!({"name": call.name(), "weight": weight(call)}))
            .collect();
        return print_json(&rows);
    }
    let mut lines = vec![["OPERATION", "WEIGHT"].map(str::to_owned).to_vec()];
    lines.extend(
        Call::ALL.iter().map(|call| vec![call.name().to_owned(), weight(call).to_string()]),
    );
    Ok(print(&table(&lines))?)
}
