//! `cargo xtask campaign isolation`: what a task that goes wrong does to the others.
//!
//! Two neighbours execute a fixed number of operations while other tasks go wrong beside them, one after the
//! other. Their rate is compared with that beside well-behaved tasks. *Plain* is the same commands by hand,
//! *limits* is a swarm, *guests* is a swarm whose tasks have kernels of their own. So that a fault without limits
//! hits nobody else, the machine of local runs is a control group with little memory; where the kernel crashes, it
//! is a guest.
//!
//! What cannot be measured is said at once: a coordinator that ends without having run anything, tasks that fail for
//! another reason than the fault, a fault that never happened while the neighbours ran.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::shell;

/// Seconds that the neighbours take with half a processor each.
const SECONDS: f64 = 12.0;

/// Comparisons of the same tasks that differ by more than this part say that the machine had other work.
const QUIET_SPREAD: f64 = 0.1;

/// Time for the neighbours beside a fault; who is not there by then does not come.
const PATIENCE: Duration = Duration::from_secs(150);

/// Time for the first task to begin: a cluster that has no room for it would never begin it.
const BEGIN_WITHIN: Duration = Duration::from_secs(90);

/// Lines of a coordinator that are told when it fails.
const LAST_LINES: usize = 3;

/// Where the controller of memory of version 1 is.
const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";

/// The memory of the machine, without and with guests.
const MACHINE_BYTES: u64 = 1 << 30;
const MACHINE_OF_GUESTS_BYTES: u64 = 3 << 30;

/// Faults with their names in the table.
const FAULTS: [(&str, &str); 3] = [
    ("memory hog", "check test:eats-memory-after-200"),
    ("file in memory", "check test:fills-a-memory-file-after-200"),
    ("kernel crash", "check test:crashes-the-kernel-after-200"),
];

/// What runs beside the neighbours when nothing goes wrong.
const QUIET: &str = "check model --strategy walk";

/// Names the directory of a cluster of Kubernetes.
const CLUSTER: &str = "FATHOM_CLUSTER";

/// Where tasks run.
#[derive(Clone, Debug, PartialEq)]
enum Engine {
    Local,
    Slurm,
    /// The directory of a cluster that `cluster.sh start` has made.
    Kubernetes(PathBuf),
}

/// What keeps tasks apart.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Between {
    Plain,
    Limits,
    Guests,
}

struct Bench {
    program: PathBuf,
    kernel: Option<String>,
    dir: PathBuf,
    runs: std::cell::Cell<u32>,
}

impl Engine {
    fn name(&self) -> &'static str {
        match self {
            Engine::Local => "local",
            Engine::Slurm => "slurm",
            Engine::Kubernetes(_) => "kubernetes",
        }
    }
}

impl Between {
    fn name(self) -> &'static str {
        match self {
            Between::Plain => "plain",
            Between::Limits => "limits",
            Between::Guests => "guests",
        }
    }
}

/// Measures the table; `FATHOM_GUEST_KERNEL` for guests, `SLURM_CONF` for Slurm, `FATHOM_CLUSTER` (the directory of
/// `crates/swarm/kubernetes/cluster.sh`) for Kubernetes. With `only` (`local`, `guests`, `slurm-limits`) a part of
/// it, so that no part needs the machine for long. `FATHOM_ISOLATION_PAIRS` (3) comparisons for each fault.
pub(crate) fn run(program: &Path, only: &[String]) -> Result<()> {
    let absolute = |path: &Path, what: &str| {
        fs::canonicalize(path).with_context(|| format!("{what}: {}", path.display()))
    };
    let told = |name: &str| {
        std::env::var_os(name).map(|path| absolute(Path::new(&path), name)).transpose()
    };
    // Tasks run in other directories, those of a cluster on other nodes.
    let program = absolute(program, "the program")?;
    let kernel = told("FATHOM_GUEST_KERNEL")?.map(|path| path.display().to_string());
    let dir = std::env::temp_dir().join(format!("fathom-isolation-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let bench = Bench { program, kernel, dir, runs: std::cell::Cell::new(0) };
    let mut engines = vec![Engine::Local];
    if std::env::var_os("SLURM_CONF").is_some() {
        engines.push(Engine::Slurm);
    }
    engines.extend(told(CLUSTER)?.map(Engine::Kubernetes));
    bench.columns(&engines, only)
}

/// Features that the program needs for what is measured.
pub(crate) fn features() -> &'static [&'static str] {
    if std::env::var_os(CLUSTER).is_some() { &["kubernetes"] } else { &[] }
}

impl Bench {
    /// All that is wanted of the table.
    fn columns(&self, engines: &[Engine], only: &[String]) -> Result<()> {
        let is_wanted = |engine: &Engine, between: Between| {
            let names =
                [engine.name(), between.name(), &format!("{}-{}", engine.name(), between.name())];
            only.is_empty() || only.iter().any(|only| names.contains(&only.as_str()))
        };
        let mut has_image = false;
        println!(
            "the rate of two tasks beside others that go wrong, relative to that beside others that do not"
        );
        let mut rows = Vec::new();
        for engine in engines {
            for between in [Between::Plain, Between::Limits, Between::Guests] {
                let is_there = match between {
                    Between::Plain => *engine == Engine::Local,
                    Between::Limits => true,
                    Between::Guests => self.kernel.is_some(),
                };
                if !is_there || !is_wanted(engine, between) {
                    continue;
                }
                match engine {
                    Engine::Local => machine_can_be_made(machine_bytes(between))?,
                    Engine::Kubernetes(cluster) if !has_image => {
                        self.give_image(cluster)?;
                        has_image = true;
                    }
                    _ => {}
                }
                rows.extend(self.column(engine, between)?);
            }
        }
        if rows.is_empty() {
            bail!("nothing of the table was asked for: {}", only.join(" "));
        }
        println!("{}", Value::Array(rows));
        // After a failure it stays for whoever explains it.
        let _ = fs::remove_dir_all(&self.dir);
        Ok(())
    }

    /// All faults for one engine and one kind of isolation.
    fn column(&self, engine: &Engine, between: Between) -> Result<Vec<Value>> {
        let ops = self.calibrate(between)?;
        let mut rows = Vec::new();
        for (name, fault) in FAULTS {
            let crashes_the_machine = name == "kernel crash" && between != Between::Guests;
            let rate = match crashes_the_machine {
                true if *engine == Engine::Local => self.in_a_guest(between, fault)?,
                // It would be this machine.
                true => continue,
                false => Some(self.rate(engine, between, fault, ops)?),
            };
            let told = rate.map_or("not measured".to_owned(), |rate| format!("{rate:.2}"));
            let (engine, between) = (engine.name(), between.name());
            println!("{engine:10} {between:7} {name:15} {told}");
            rows.push(json!({"engine": engine, "between": between, "fault": name, "rate": rate}));
        }
        Ok(rows)
    }

    /// The rate of the neighbours beside a fault: the median of pairs, each with its own comparison next to it in
    /// time, because the machine may have other work.
    fn rate(&self, engine: &Engine, between: Between, fault: &str, ops: u64) -> Result<f64> {
        let (mut rates, mut comparisons) = (Vec::new(), Vec::new());
        for pair in 0..pairs() {
            // What comes second does not profit from the order in half of them.
            let (quiet, beside) = if pair % 2 == 0 {
                let quiet = self.seconds(engine, between, QUIET, ops)?;
                (quiet, self.seconds(engine, between, fault, ops)?)
            } else {
                let beside = self.seconds(engine, between, fault, ops)?;
                (self.seconds(engine, between, QUIET, ops)?, beside)
            };
            let both = quiet.iter().zip(&beside);
            let of_each = both.map(|(quiet, beside)| {
                quiet.zip(*beside).map_or(0.0, |(quiet, beside)| quiet / beside)
            });
            rates.push(of_each.sum::<f64>() / quiet.len() as f64);
            comparisons.push(quiet.iter().flatten().sum::<f64>());
            println!("  pair {}: {quiet:.2?} s, beside the fault {beside:.2?} s", pair + 1);
        }
        rates.sort_by(f64::total_cmp);
        comparisons.sort_by(f64::total_cmp);
        let (least, most) = (comparisons[0], comparisons[comparisons.len() - 1]);
        if most > least * (1.0 + QUIET_SPREAD) {
            println!("  the machine was not quiet: {least:.2} to {most:.2} s without a fault");
        }
        Ok(rates[rates.len() / 2])
    }

    fn guest(&self, between: Between) -> Option<&str> {
        self.kernel.as_deref().filter(|_| between == Between::Guests)
    }

    /// Operations that take about [`SECONDS`] with half a processor.
    fn calibrate(&self, between: Between) -> Result<u64> {
        let mut command = Command::new(&self.program);
        command.args(QUIET.split(' ')).args(["--budget", "4s", "--seed", "1", "--json", "--out"]);
        command.arg(self.next("calibration"));
        if let Some(kernel) = self.guest(between) {
            command.args(["--guest", kernel]);
        }
        let text = shell::output(&mut command)?;
        let value: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
        let rate = value["ops"].as_f64().context("no operations")? / 4.0;
        let share = if between == Between::Plain { 1.0 } else { 0.5 };
        Ok((rate * share * SECONDS) as u64)
    }

    fn next(&self, name: &str) -> PathBuf {
        self.runs.set(self.runs.get() + 1);
        self.dir.join(format!("{name}-{}", self.runs.get()))
    }

    /// The seconds of the two neighbours; none for one that does not come to its end.
    fn seconds(
        &self,
        engine: &Engine,
        between: Between,
        beside: &str,
        ops: u64,
    ) -> Result<Vec<Option<f64>>> {
        let neighbours = format!("{QUIET} --ops {ops}");
        if between == Between::Plain {
            return self.by_hand(&neighbours, beside);
        }
        let mut first = self.swarm(engine, between, &neighbours, 2, 2)?;
        let others = self.swarm(engine, between, &format!("{beside} --ops 1000000000"), 60, 1);
        let mut others = others.inspect_err(|_| first.end_at_once())?;
        let waited = wait_for(&mut first, &mut others);
        let (seconds, happened) = (first.neighbours(), others.attempts());
        others.stop(&self.program)?;
        first.stop(&self.program)?;
        waited?;
        match happened.is_empty() {
            true => println!("    nothing is known to have run beside it: {}", others.last_words()),
            false => println!("    beside it: {}", tally(&happened)),
        }
        if beside == QUIET && seconds.contains(&None) {
            bail!("without any fault a neighbour did not come to its end: {}", first.last_words());
        }
        Ok(seconds)
    }

    /// Starts a swarm of tasks that do not end by themselves if they go wrong.
    fn swarm(
        &self,
        engine: &Engine,
        between: Between,
        command: &str,
        tasks: u32,
        at_once: u32,
    ) -> Result<Swarm> {
        let out = self.next("swarm");
        let memory = if between == Between::Guests { "700M" } else { "200M" };
        let kernel = match (self.guest(between), engine) {
            (None, _) => String::new(),
            (Some(_), Engine::Kubernetes(_)) => "kernels = [\"/usr/lib/fathom/kernel\"]".to_owned(),
            (Some(kernel), _) => format!("kernels = [\"{kernel}\"]"),
        };
        let text = format!(
            "tasks = {tasks}\n[limits]\ncpus = 0.5\nmemory = \"{memory}\"\nretries = 3\n\
             at_once = {at_once}\ntime = \"10m\"\n[[campaign]]\ncommand = \"{command}\"\n{kernel}\n\
             [kubernetes]\npull_policy = \"Never\"\nimage = \"isolation:1\"\n"
        );
        let plan = out.with_extension("toml");
        fs::write(&plan, text)?;
        let mut swarm = match engine {
            Engine::Local => in_machine(&self.program, machine_bytes(between)),
            Engine::Slurm => Command::new(&self.program),
            Engine::Kubernetes(cluster) => {
                let mut run = Command::new(cluster_script());
                run.arg("run").arg(cluster).arg(&self.program);
                run
            }
        };
        swarm.arg("swarm").arg(&plan).args(["--on", engine.name(), "--out"]).arg(&out);
        let log = fs::File::create(out.with_extension("log"))?;
        swarm.stdout(log.try_clone()?).stderr(log);
        Ok(Swarm { out, coordinator: swarm.spawn()? })
    }

    /// The same without a swarm: processes of one machine.
    fn by_hand(&self, neighbours: &str, beside: &str) -> Result<Vec<Option<f64>>> {
        let start = |words: &str, seed: u32| -> Result<Child> {
            let mut command = in_machine(&self.program, MACHINE_BYTES);
            command.args(words.split(' ')).args(["--seed", &seed.to_string(), "--out"]);
            command.arg(self.next("hand")).stdout(Stdio::null()).stderr(Stdio::null());
            Ok(command.spawn()?)
        };
        let began = Instant::now();
        let mut running = [start(neighbours, 1)?, start(neighbours, 2)?];
        let mut seconds = [None; 2];
        let mut over = [false; 2];
        let mut other = start(&format!("{beside} --ops 1000000000"), 3)?;
        while over.contains(&false) && began.elapsed() < PATIENCE {
            for (index, child) in running.iter_mut().enumerate() {
                if over[index] {
                    continue;
                }
                if let Some(status) = child.try_wait()? {
                    over[index] = true;
                    seconds[index] = status.success().then(|| began.elapsed().as_secs_f64());
                }
            }
            if other.try_wait()?.is_some() {
                other = start(&format!("{beside} --ops 1000000000"), 3)?;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        for child in running.iter_mut().chain([&mut other]) {
            // It may be over.
            let _ = child.kill();
            child.wait()?;
        }
        Ok(seconds.to_vec())
    }

    /// A crash of the kernel that all tasks share, which is that of a guest: whether the neighbours come to their
    /// ends.
    fn in_a_guest(&self, between: Between, fault: &str) -> Result<Option<f64>> {
        let Some(kernel) = &self.kernel else { return Ok(None) };
        let out = self.next("machine");
        fs::create_dir_all(&out)?;
        let (program, at) = (self.program.display(), out.display());
        let script = match between {
            Between::Limits => {
                let plan = out.join("plan.toml");
                let text = format!(
                    "tasks = 3\n[limits]\nmemory = \"100M\"\nat_once = 3\nretries = 0\n\
                     [[campaign]]\ncommand = \"{QUIET} --ops 300000\"\nshare = 2\n\
                     [[campaign]]\ncommand = \"{fault} --ops 1000\"\n"
                );
                fs::write(&plan, text)?;
                format!("{program} swarm {} --out {at}/swarm", plan.display())
            }
            _ => format!(
                "for seed in 1 2; do {program} {QUIET} --ops 300000 --seed $seed --out {at}/$seed & done; \
                 {program} {fault} --ops 1000 --seed 3 --out {at}/3; wait"
            ),
        };
        let mut guest = Command::new(&self.program);
        guest.args(["guest", "run", kernel, "--memory", "600", "--deadline", "100s", "--writable"]);
        guest.arg(&out).args(["--", "sh", "-c", &script]);
        let output = guest.output()?;
        let complete = count_complete(&out);
        if complete == 0 && !has_run(&out) {
            bail!("nothing ran in the guest: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(Some(complete as f64 / 2.0))
    }

    /// Gives the nodes of a cluster an image with the program and the kernel.
    fn give_image(&self, cluster: &Path) -> Result<()> {
        let archive = self.dir.join("isolation.tar");
        let mut image = Command::new(&self.program);
        image.args(["swarm", "image", "--tag", "isolation:1", "-o"]).arg(&archive);
        if let Some(kernel) = &self.kernel {
            image.args(["--kernel", kernel]);
        }
        shell::run(image.stdout(Stdio::null()))?;
        shell::run(Command::new(cluster_script()).arg("image").arg(cluster).arg(&archive))
    }
}

/// Pairs of a row: an odd number, so that there is one in the middle.
fn pairs() -> usize {
    let told = std::env::var("FATHOM_ISOLATION_PAIRS").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(3).max(1)
}

fn cluster_script() -> PathBuf {
    shell::root().join("crates/swarm/kubernetes/cluster.sh")
}

fn machine_bytes(between: Between) -> u64 {
    if between == Between::Guests { MACHINE_OF_GUESTS_BYTES } else { MACHINE_BYTES }
}

/// The control group that plays the machine.
fn machine_group(bytes: u64) -> PathBuf {
    Path::new(MEMORY_GROUPS).join(format!("fathom-machine-{}", bytes >> 20))
}

/// Says what is missing for a machine that is a control group.
fn machine_can_be_made(bytes: u64) -> Result<()> {
    if !Path::new(MEMORY_GROUPS).join("memory.limit_in_bytes").exists() {
        bail!(
            "local rows run in a control group of version 1 that plays the machine, and there is no \
             {MEMORY_GROUPS}/memory.limit_in_bytes: boot with systemd.unified_cgroup_hierarchy=0, or \
             `mount -t cgroup -o memory none {MEMORY_GROUPS}`; --only slurm or --only kubernetes do without"
        );
    }
    let group = machine_group(bytes);
    fs::create_dir_all(&group)
        .and_then(|()| fs::write(group.join("memory.limit_in_bytes"), bytes.to_string()))
        .with_context(|| {
            format!("local rows need the rights of root to make the group {}", group.display())
        })
}

/// A program in a control group that plays the machine. The group stays: it is empty when its members are gone.
fn in_machine(program: &Path, bytes: u64) -> Command {
    let group = machine_group(bytes);
    let group = group.display();
    let enter = format!(
        "mkdir -p {group} && echo {bytes} > {group}/memory.limit_in_bytes && \
         echo $$ > {group}/cgroup.procs && exec \"$@\""
    );
    let mut command = Command::new("sh");
    command.args(["-c", &enter, "sh"]).arg(program);
    command
}

/// Run directories below this one.
fn runs(out: &Path) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in fs::read_dir(out).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(runs(&entry.path()));
        } else if entry.file_name() == "run.json" {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            found.extend(serde_json::from_str::<Value>(&text));
        }
    }
    found
}

fn has_run(out: &Path) -> bool {
    !runs(out).is_empty()
}

fn count_complete(out: &Path) -> usize {
    let is_neighbour = |run: &&Value| run["subject"] == "model" && run["complete"] == true;
    runs(out).iter().filter(is_neighbour).count()
}

/// Waits for the neighbours, or for something that says that this is in vain.
fn wait_for(first: &mut Swarm, others: &mut Swarm) -> Result<()> {
    let began = Instant::now();
    while first.neighbours().iter().any(Option::is_none) {
        first.must_work(1)?;
        // Of the fault itself a task may fail once.
        others.must_work(3)?;
        if began.elapsed() > BEGIN_WITHIN && first.attempts().is_empty() {
            bail!("no task has begun after {BEGIN_WITHIN:?}: {}", first.last_words());
        }
        if first.is_over()? || began.elapsed() > PATIENCE {
            // The fault has ended them: that is a result.
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// A swarm that runs.
struct Swarm {
    out: PathBuf,
    coordinator: Child,
}

impl Swarm {
    /// The seconds of its tasks, all attempts of each together; none for one that is not done.
    fn neighbours(&self) -> Vec<Option<f64>> {
        let tasks = fs::read_dir(self.out.join("tasks")).into_iter().flatten().flatten();
        let mut seconds: Vec<Option<f64>> = tasks.map(|task| done_after(&task.path())).collect();
        seconds.resize(2, None);
        seconds
    }

    /// The ends of all attempts that have begun; none of one that runs.
    fn attempts(&self) -> Vec<Option<Value>> {
        let tasks = fs::read_dir(self.out.join("tasks")).into_iter().flatten().flatten();
        let attempts =
            tasks.flat_map(|task| fs::read_dir(task.path()).into_iter().flatten().flatten());
        let begun = attempts.map(|attempt| attempt.path()).filter(|attempt| {
            ["runner.json", "ended.json"].iter().any(|name| attempt.join(name).exists())
        });
        let ended = |attempt: PathBuf| {
            let text = fs::read_to_string(attempt.join("ended.json")).ok()?;
            serde_json::from_str(&text).ok()
        };
        begun.map(ended).collect()
    }

    fn is_over(&mut self) -> Result<bool> {
        Ok(self.coordinator.try_wait()?.is_some())
    }

    /// Fails with what went wrong if that is not what is measured: a coordinator that could not begin, tasks that
    /// could not be run, so many of them and nothing else.
    fn must_work(&mut self, failures_max: usize) -> Result<()> {
        let is_over = self.is_over()?;
        let ended: Vec<Value> = self.attempts().into_iter().flatten().collect();
        let failures = ended.iter().filter(|ended| ended["reason"] == "failed").count();
        if failures >= failures_max && failures == ended.len() {
            bail!("tasks fail: {}; see {}", ended[0]["told"], self.out.display());
        }
        if is_over && ended.is_empty() {
            bail!("the coordinator ended before its tasks: {}", self.last_words());
        }
        Ok(())
    }

    /// What the coordinator said last.
    fn last_words(&self) -> String {
        let log = self.out.with_extension("log");
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("; ");
        format!("{last} ({})", log.display())
    }

    fn end_at_once(&mut self) {
        // It may be over; whoever calls has something worse to tell.
        let _ = self.coordinator.kill();
        let _ = self.coordinator.wait();
    }

    fn stop(&mut self, program: &Path) -> Result<()> {
        let mut stop = Command::new(program);
        stop.args(["swarm", "stop", "--out"]).arg(&self.out);
        // It may be over.
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let began = Instant::now();
        while self.coordinator.try_wait()?.is_none() {
            if began.elapsed() > Duration::from_secs(60) {
                self.coordinator.kill()?;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

/// How attempts ended, in words.
fn tally(attempts: &[Option<Value>]) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for attempt in attempts {
        let reason = attempt.as_ref().and_then(|ended| ended["reason"].as_str());
        *counts.entry(reason.unwrap_or("running").to_owned()).or_insert(0_u32) += 1;
    }
    let words = counts.iter().map(|(reason, count)| format!("{count} {reason}"));
    words.collect::<Vec<_>>().join(", ")
}

/// The seconds until a task was done.
fn done_after(task: &Path) -> Option<f64> {
    let (mut seconds, mut done) = (0.0, false);
    for attempt in fs::read_dir(task).ok()?.flatten() {
        let Ok(text) = fs::read_to_string(attempt.path().join("ended.json")) else { continue };
        let ended: Value = serde_json::from_str(&text).ok()?;
        seconds += ended["seconds"].as_f64()?;
        done |= ended["reason"] == "done";
    }
    done.then_some(seconds)
}
