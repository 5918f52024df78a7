//! `fathom list`: what there is, what it needs, and whether this machine has it.

use std::path::Path;

use anyhow::Result;
use fathom_designs::catalog;
use fathom_engine::generate::Call;
use fathom_model::{Mutant, Quirks};
use fathom_subjects::Recipe;
use fathom_subjects::library::{self, faulty};
use serde::Serialize;
use serde_json::{Value, json};

use super::Ending;
use crate::args::ListWhat;
use crate::text::{print, print_json, table};

pub(crate) fn run(what: ListWhat, json: bool) -> Result<Ending> {
    match what {
        ListWhat::Subjects => subjects(json)?,
        ListWhat::Mutants => mutants(json)?,
        ListWhat::CrashMutants => crash_mutants(json)?,
        ListWhat::Designs => designs(json)?,
        ListWhat::Profiles => profiles(json)?,
        ListWhat::Ops => ops(json)?,
    }
    Ok(Ending::Clean)
}

#[derive(Serialize)]
struct Row {
    name: String,
    description: String,
    needs: Vec<String>,
    /// Empty if the subject can be used here.
    missing: Vec<String>,
}

fn subjects(json: bool) -> Result<()> {
    let mut rows = vec![
        row("dir:PATH", "any directory", vec![]),
        row("fuse:COMMAND", "what a program serves on {mnt}", vec![Need::Root, Need::Fuse]),
        row("model", "the reference itself (with --mutant: a liar)", vec![]),
        row("reffs", "the reference served through FUSE", vec![Need::Fuse]),
    ];
    for recipe in Recipe::all() {
        rows.push(kernel_row(&recipe));
    }
    for known in library::all() {
        let needs = vec![Need::Feature(known.feature, known.is_built_in(), known.needs)];
        rows.push(row(known.name, &format!("{} (crash)", known.about), needs));
    }
    if json {
        return print_json(&rows);
    }
    let cells = |row: &Row| {
        let here = match row.missing.is_empty() {
            true => "yes".to_owned(),
            false => format!("no: {}", row.missing.join(", ")),
        };
        let needs = if row.needs.is_empty() { "-".to_owned() } else { row.needs.join(", ") };
        vec![row.name.clone(), row.description.clone(), needs, here]
    };
    let mut lines = vec![["SUBJECT", "WHAT", "NEEDS", "HERE"].map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(cells));
    Ok(print(&table(&lines))?)
}

fn kernel_row(recipe: &Recipe) -> Row {
    let types = recipe.fs_types();
    let mut needs = vec![Need::Root];
    needs.extend(types.iter().map(|fs_type| Need::Kernel((*fs_type).to_owned())));
    needs.extend(recipe.layer.as_ref().map(|layer| Need::KernelVersion(layer.kernel_min)));
    if let Some(format) = &recipe.format {
        needs.push(Need::Program(format.command[0].clone(), format.package.clone()));
    }
    let description = match recipe.image_bytes >> 20 {
        0 => recipe.about.clone(),
        mib => format!("{}, {mib} MiB in memory", recipe.about),
    };
    row(&recipe.name, &description, needs)
}

/// What a subject needs of the machine.
enum Need {
    Root,
    Fuse,
    /// A file system of the kernel.
    Kernel(String),
    /// A kernel of at least this version.
    KernelVersion((u32, u32)),
    /// A program and its Debian package.
    Program(String, String),
    /// A cargo feature, whether it is built in, and what building it needs.
    Feature(&'static str, bool, &'static str),
}

fn row(name: &str, description: &str, needs: Vec<Need>) -> Row {
    Row {
        name: name.to_owned(),
        description: description.to_owned(),
        needs: needs.iter().map(Need::text).collect(),
        missing: needs.iter().filter_map(Need::missing).collect(),
    }
}

impl Need {
    fn text(&self) -> String {
        match self {
            Need::Root => "root".to_owned(),
            Need::Fuse => "/dev/fuse".to_owned(),
            Need::Kernel(fs_type) => format!("{fs_type} in the kernel"),
            Need::KernelVersion((major, minor)) => format!("Linux {major}.{minor}"),
            Need::Program(_, package) => package.clone(),
            Need::Feature(feature, _, "") => format!("feature {feature}"),
            Need::Feature(feature, _, needs) => format!("feature {feature}, {needs}"),
        }
    }

    fn missing(&self) -> Option<String> {
        let (there, what) = match self {
            Need::Root => (is_root(), "not root".to_owned()),
            Need::Fuse => (Path::new("/dev/fuse").exists(), "no /dev/fuse".to_owned()),
            Need::Kernel(fs_type) => (kernel_has(fs_type), format!("no {fs_type} in the kernel")),
            Need::KernelVersion(min) => {
                let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
                let release = release.unwrap_or_default();
                let have = fathom_subjects::kernel::version(&release);
                (have.is_none_or(|have| have >= *min), format!("this is {}", release.trim()))
            }
            Need::Program(program, package) => {
                (in_path(program), format!("no {program} (package {package})"))
            }
            Need::Feature(feature, built_in, _) => {
                (*built_in, format!("build with --features {feature}"))
            }
        };
        (!there).then_some(what)
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

/// /proc/filesystems lists what is built in or loaded (proc(5)).
fn kernel_has(fs_type: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some(fs_type))
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where formatting programs are, even if the user's PATH leaves it out.
    let system = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(system).any(|dir| dir.join(program).is_file())
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
    if json {
        let row = |mutant: &faulty::Mutant| {
            json!({
                "name": mutant.name,
                "description": mutant.about,
                "class": mutant.class,
                "level": mutant.level,
            })
        };
        return print_json(&mutants.iter().map(row).collect::<Vec<_>>());
    }
    let mut lines = vec![["MUTANT", "SHOWS", "LEVEL", "WHAT"].map(str::to_owned).to_vec()];
    lines.extend(mutants.iter().map(|mutant| {
        let words = [mutant.name, mutant.class, mutant.level.name(), mutant.about];
        words.map(str::to_owned).to_vec()
    }));
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
    let config = fathom_engine::Config::default();
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
