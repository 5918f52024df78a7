//! Keeps a process and everything that it starts within limits: by control groups where this process may
//! make them, otherwise by watching.
//!
//! A group bounds memory (files in memory included) and processors in the kernel; without one the resident
//! memory of the processes is watched, which does not see files in memory, and the processors are a set of
//! cores. Disk and time are watched in any case: a limit for the size of files would
//! also hit the memory that a supervisor and its worker share.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use crate::plan::Limits;

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";

/// The period of the quota of processors, in microseconds.
const CPU_PERIOD: u64 = 100_000;

/// Control groups of one task. They go when it is over.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Version 1: one per controller; version 2: one.
    memory: Option<Group>,
    cpu: Option<Group>,
}

#[derive(Debug)]
struct Group {
    path: PathBuf,
    /// The group that this process comes from.
    home: PathBuf,
    unified: bool,
}

impl Groups {
    /// Makes the groups that this process may make.
    pub(crate) fn make(name: &str, limits: &Limits) -> Groups {
        let quota = (limits.cpus * CPU_PERIOD as f64).max(1000.0) as u64;
        if let Some(group) = Group::unified(name) {
            let both = group.set("memory.max", limits.memory) && {
                // Swap would only hide a leak for a while; there may be none.
                group.set("memory.swap.max", 0);
                fs::write(group.path.join("cpu.max"), format!("{quota} {CPU_PERIOD}")).is_ok()
            };
            return if both {
                Groups { memory: Some(group), cpu: None }
            } else {
                Groups::default()
            };
        }
        let memory = Group::of("memory", name).filter(|group| {
            let kept = group.set("memory.limit_in_bytes", limits.memory);
            group.set("memory.memsw.limit_in_bytes", limits.memory);
            kept
        });
        let cpu = Group::of("cpu", name).filter(|group| {
            group.set("cpu.cfs_period_us", CPU_PERIOD) && group.set("cpu.cfs_quota_us", quota)
        });
        Groups { memory, cpu }
    }

    /// What keeps the limits, in words.
    pub(crate) fn describe(&self) -> &'static str {
        match (&self.memory, &self.cpu) {
            (Some(group), _) if group.unified => "control groups",
            (Some(_), Some(_)) => "control groups",
            (Some(_), None) => "a control group of memory; a set of cores",
            _ => "watching; a set of cores",
        }
    }

    pub(crate) fn bound_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub(crate) fn bound_cpus(&self) -> bool {
        self.cpu.is_some() || self.memory.as_ref().is_some_and(|group| group.unified)
    }

    /// Makes this process, and what it starts from now on, a member.
    pub(crate) fn enter(&self) -> bool {
        let entered = self.all().all(|group| move_self(&group.path));
        if !entered {
            self.leave();
        }
        entered
    }

    /// Takes this process back to where it came from.
    pub(crate) fn leave(&self) {
        for group in self.all() {
            // Where it came from is still there.
            let _ = move_self(&group.home);
        }
    }

    fn all(&self) -> impl Iterator<Item = &Group> {
        self.memory.iter().chain(&self.cpu)
    }

    /// Whether the kernel had to end something because the memory was used up.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let Some(group) = &self.memory else { return false };
        let name = if group.unified { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(group.path.join(name)).unwrap_or_default();
        oom_kills(&text) > 0
    }

    /// The most memory that was used.
    pub(crate) fn memory_peak(&self) -> Option<u64> {
        let group = self.memory.as_ref()?;
        let name = if group.unified { "memory.peak" } else { "memory.max_usage_in_bytes" };
        fs::read_to_string(group.path.join(name)).ok()?.trim().parse().ok()
    }

    /// Ends every member.
    pub(crate) fn kill(&self) {
        for group in self.all() {
            let members = fs::read_to_string(group.path.join("cgroup.procs")).unwrap_or_default();
            for pid in
                members.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw)
            {
                // It may have ended by itself.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// How often the kernel ended something because the memory of the container that this process is the first one
/// of was used up.
pub(crate) fn kills_in_container() -> u64 {
    if std::process::id() != 1 {
        return 0;
    }
    // A container sees its own group in the place of the root.
    let texts = ["memory.events", "memory/memory.oom_control"]
        .map(|name| fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_default());
    texts.iter().map(|text| oom_kills(text)).max().unwrap_or(0)
}

/// The number of processes that were ended because the memory of a group was used up.
fn oom_kills(text: &str) -> u64 {
    let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    kills.and_then(|kills| kills.trim().parse().ok()).unwrap_or(0)
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in self.memory.iter().chain(&self.cpu) {
            // The last member may take a moment to go.
            for _ in 0..50 {
                if fs::remove_dir(&group.path).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

impl Group {
    /// A group of version 2 with both controllers, if there is such a thing.
    fn unified(name: &str) -> Option<Group> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
        let home = Path::new(ROOT).join(own);
        let has = fs::read_to_string(home.join("cgroup.subtree_control")).ok()?;
        let has_both = has.split(' ').any(|name| name == "memory") && has.contains("cpu");
        has_both.then(|| Group::make(home, name, true)).flatten()
    }

    /// A group of version 1.
    fn of(controller: &str, name: &str) -> Option<Group> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
            controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
        })?;
        Group::make(Path::new(ROOT).join(controller).join(own), name, false)
    }

    fn make(home: PathBuf, name: &str, unified: bool) -> Option<Group> {
        let path = home.join(name);
        fs::create_dir(&path).ok()?;
        Some(Group { path, home, unified })
    }

    fn set(&self, name: &str, value: u64) -> bool {
        fs::write(self.path.join(name), value.to_string()).is_ok()
    }
}

fn move_self(group: &Path) -> bool {
    fs::write(group.join("cgroup.procs"), "0").is_ok()
}

/// Gives a process a set of cores, others for each task.
pub(crate) fn bound_cores(pid: Pid, cpus: f64, number: u64) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = (cpus.ceil() as usize).clamp(1, cores);
    let mut set = rustix::thread::CpuSet::new();
    (0..wanted).for_each(|core| set.set((number as usize * wanted + core) % cores));
    let _ = rustix::thread::sched_setaffinity(Some(pid), &set);
}

/// The resident memory of a process and of all that descend from it.
pub(crate) fn resident_bytes(root: u32) -> u64 {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let number = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse().ok()
        };
        processes.push((pid, number("PPid:").unwrap_or(0) as u32, number("VmRSS:").unwrap_or(0)));
    }
    let mut family = vec![root];
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        family.extend(processes.iter().filter(|(_, of, _)| *of == parent).map(|(pid, ..)| *pid));
        at += 1;
    }
    let own = processes.iter().filter(|(pid, ..)| family.contains(pid));
    own.map(|(.., kib)| kib << 10).sum()
}

/// The bytes of all files below a directory.
pub(crate) fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
            Ok(meta) => std::os::unix::fs::MetadataExt::blocks(&meta) * 512,
            Err(_) => 0,
        })
        .sum()
}
