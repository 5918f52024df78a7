//! `cargo xtask campaign diversity`: do diverse tasks cover more? Eight tasks of the same time each, with one seed,
//! with seeds of their own, and with everything varied; the states and partitions that the first one, two, … of
//! them reach together are drawn into `docs/swarm/diversity.svg`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shell;

/// Tasks of each plan.
const TASKS: usize = 8;

/// The plans: a name, what a campaign has beside its command.
const PLANS: [(&str, &str); 3] = [
    ("the same seed", "seeds = [1]"),
    ("seeds only", ""),
    (
        "everything varied",
        "vary = { strategy = [\"tour\", \"dfs\", \"walk\"], inputs = [\"default\", \"random\"] }",
    ),
];

const COLOURS: [&str; 3] = ["#d62728", "#1f77b4", "#2ca02c"];

/// What the first tasks of a plan reach together.
struct Curve {
    name: &'static str,
    states: Vec<f64>,
    partitions: Vec<f64>,
}

/// Measures and draws; `FATHOM_DIVERSITY_SECONDS` (20) for each task.
pub(crate) fn run(program: &Path) -> Result<()> {
    let seconds = std::env::var("FATHOM_DIVERSITY_SECONDS").unwrap_or_else(|_| "20".to_owned());
    let dir = std::env::temp_dir().join(format!("fathom-diversity-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let mut curves = Vec::new();
    for (index, (name, more)) in PLANS.iter().enumerate() {
        let out = dir.join(index.to_string());
        let plan = out.with_extension("toml");
        let text = format!(
            "tasks = {TASKS}\n[limits]\ncpus = 1\nmemory = \"2G\"\n[[campaign]]\n\
             command = \"check model --budget {seconds}s\"\n{more}\n"
        );
        fs::write(&plan, text)?;
        let mut swarm = Command::new(program);
        swarm.arg("swarm").arg(&plan).arg("--out").arg(&out).stdout(Stdio::null());
        shell::run(&mut swarm)?;
        let curve = curve(program, name, &out)?;
        let last = |values: &[f64]| values.last().copied().unwrap_or(0.0);
        println!(
            "{name:18} {:>9.0} states, {:>5.0} partitions",
            last(&curve.states),
            last(&curve.partitions)
        );
        curves.push(curve);
    }
    let drawing = shell::root().join("docs/swarm/diversity.svg");
    fs::create_dir_all(drawing.parent().context("a folder")?)?;
    fs::write(&drawing, draw(&curves, &seconds))?;
    let value = |curve: &Curve| json!({"plan": curve.name, "states": curve.states, "partitions": curve.partitions});
    println!("{}", Value::Array(curves.iter().map(value).collect()));
    // After a failure it stays for whoever explains it.
    let _ = fs::remove_dir_all(&dir);
    Ok(())
}

/// Unites the first task, the first two, and so on.
fn curve(program: &Path, name: &'static str, out: &Path) -> Result<Curve> {
    let tasks = fs::read_dir(out.join("tasks"))?;
    let mut tasks: Vec<_> = tasks.flatten().map(|task| task.path()).collect();
    // Their names begin with their numbers.
    tasks.sort();
    let mut curve = Curve { name, states: Vec::new(), partitions: Vec::new() };
    for count in 1..=tasks.len() {
        let united = out.with_extension(format!("united-{count}"));
        let mut merge = Command::new(program);
        merge.args(["swarm", "merge"]).args(&tasks[..count]).arg("--out").arg(&united);
        let text = shell::output(merge.arg("--json"))?;
        let value: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
        curve.states.push(value["states"].as_f64().context("no states")?);
        curve.partitions.push(value["partitions_hit"].as_f64().context("no partitions")?);
    }
    Ok(curve)
}

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 180.0;
const MARGIN: f64 = 50.0;

/// What a panel shows of a curve.
type Values = fn(&Curve) -> &[f64];

/// Two panels: states and partitions over the number of tasks.
fn draw(curves: &[Curve], seconds: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        2.0 * (WIDTH + MARGIN) + MARGIN,
        HEIGHT + 2.2 * MARGIN,
    );
    let panels: [(&str, Values); 2] =
        [("states", |curve| &curve.states), ("partitions", |curve| &curve.partitions)];
    for (panel, (what, values)) in panels.into_iter().enumerate() {
        let left = MARGIN + panel as f64 * (WIDTH + MARGIN);
        let most = curves.iter().flat_map(values).copied().fold(1.0, f64::max);
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{MARGIN}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" \
             stroke=\"#999\"/>\n<text x=\"{left}\" y=\"{}\">{what} (top: {most:.0}) of 1 to {TASKS} tasks of \
             {seconds} s</text>",
            MARGIN - 8.0,
        );
        for (curve, colour) in curves.iter().zip(COLOURS) {
            let points: Vec<String> = values(curve)
                .iter()
                .enumerate()
                .map(|(index, value)| {
                    let x = left + WIDTH * index as f64 / (TASKS - 1) as f64;
                    format!("{x:.1},{:.1}", MARGIN + HEIGHT * (1.0 - value / most))
                })
                .collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                points.join(" ")
            );
        }
    }
    for (at, (curve, colour)) in curves.iter().zip(COLOURS).enumerate() {
        let (x, y) = (MARGIN + at as f64 * 160.0, HEIGHT + 1.7 * MARGIN);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{}</text>", curve.name);
    }
    svg + "</svg>\n"
}
