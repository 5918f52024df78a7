//! What `/proc` and `/sys` say of a process that does not end, and of what it holds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Names of our own helpers, which clean up after a death and end by themselves.
const HELPERS: [&str; 3] = ["fathom-guard", "reffs-watchdog", crate::kernel::DISK_PROCESS_NAME];

/// The fields of `/proc/PID/stat` after the name: the state comes first, then the parent.
fn stat(process: &Path) -> Option<(char, u32)> {
    let text = fs::read_to_string(process.join("stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

fn numbered(dir: &str) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// All living descendants of a process, children before their children.
pub fn descendants(process: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for child in numbered("/proc") {
        if let Some((state, parent)) = stat(Path::new(&format!("/proc/{child}")))
            && state != 'Z'
        {
            children.entry(parent).or_default().push(child);
        }
    }
    let mut found = vec![process];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        found.extend(children.remove(parent).unwrap_or_default());
        next += 1;
    }
    found.split_off(1)
}

/// Whether a process is one of our own helpers.
pub(super) fn is_helper(process: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    HELPERS.contains(&name.trim())
}

/// Memory that a process occupies, in bytes.
pub fn resident_bytes(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The variable with the memory that whoever started this process lets it have, in bytes: a swarm its task.
const MEMORY_MAX: &str = "FATHOM_MEMORY_MAX_BYTES";

/// Where control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// Memory that could be used now without swapping, in bytes (proc_meminfo(5)); less if a control
/// group of ours has less, or whoever started us allows less.
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let allowed = std::env::var(MEMORY_MAX).ok().and_then(|text| text.parse().ok());
    let limits = group_limit(Path::new(GROUPS), &own).into_iter().chain(allowed);
    limits.chain([kib * 1024]).min()
}

/// The least that a control group of a process, or one above it, leaves it (cgroups(7)); `own` is its
/// `/proc/PID/cgroup`. A container sees its own group in the place of the root, and a path from outside.
fn group_limit(root: &Path, own: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (places, file): (&[&str], _) = match controllers {
            "" => (&["", "unified"], "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (&["memory"], "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            for place in places {
                let text = fs::read_to_string(root.join(place).join(group).join(file));
                limits.extend(text.ok().and_then(|text| text.trim().parse::<u64>().ok()));
            }
        }
    }
    limits.into_iter().min()
}

/// Whether a thread of a process is gone, or only waits to be collected, while the process is there.
pub fn thread_is_gone(process: u32, thread: u32) -> bool {
    let task = format!("/proc/{process}/task/{thread}");
    let gone = match stat(Path::new(&task)) {
        Some((state, _)) => matches!(state, 'Z' | 'X'),
        None => true,
    };
    gone && stat(Path::new(&format!("/proc/{process}"))).is_some_and(|(state, _)| state != 'Z')
}

/// The threads of a process that wait in the kernel, and what the process holds: one line each.
pub fn describe(process: u32) -> Vec<String> {
    let mut lines = Vec::new();
    let mut threads = numbered(&format!("/proc/{process}/task"));
    threads.sort_unstable();
    for thread in threads {
        let task = format!("/proc/{process}/task/{thread}");
        let Some((state, _)) = stat(Path::new(&task)) else { continue };
        if state == 'S' {
            continue;
        }
        let read = |name: &str| fs::read_to_string(format!("{task}/{name}")).unwrap_or_default();
        let place = read("wchan");
        let stack: Vec<String> = read("stack").lines().map(function_of).collect();
        let place = match (stack.is_empty(), place.as_str()) {
            (false, _) => format!(" in {}", stack.join(" < ")),
            (true, "0" | "") => String::new(),
            (true, place) => format!(" in {place}"),
        };
        lines.push(format!("process {process}, thread {thread}, state {state}{place}"));
    }
    lines.extend(held(process));
    lines
}

/// `[<0>] name+0x1/0x2` without what differs from run to run.
fn function_of(line: &str) -> String {
    let name = line.rsplit(' ').next().unwrap_or_default();
    name.split('+').next().unwrap_or_default().to_owned()
}

/// Loop devices and FUSE connections that a process has open, and its FUSE mounts.
fn held(process: u32) -> Vec<String> {
    let mut held = Vec::new();
    for number in numbered(&format!("/proc/{process}/fd")) {
        let Ok(file) = fs::read_link(format!("/proc/{process}/fd/{number}")) else { continue };
        let file = file.to_string_lossy().into_owned();
        if file.starts_with("/dev/loop") && file != "/dev/loop-control" || file == "/dev/fuse" {
            held.push(format!("process {process} holds {file}"));
        }
    }
    held.sort();
    held.dedup();
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_a_descendant_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(descendants(std::process::id()).contains(&child.id()));
        assert!(!is_helper(child.id()));
        assert!(resident_bytes(child.id()).is_some());
        assert!(!thread_is_gone(child.id(), child.id()));
        assert!(thread_is_gone(child.id(), u32::MAX));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants(std::process::id()).contains(&child.id()));
        assert!(available_bytes().is_some());
    }

    #[test]
    fn the_least_limit_of_the_own_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let limit = |group: &str, file: &str, bytes: &str| {
            let group = root.path().join(group);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join(file), format!("{bytes}\n")).unwrap();
        };
        let own = |text: &str| group_limit(root.path(), text);
        assert_eq!(own("0::/\n"), None);
        // Version 1: the root has a number that no machine has.
        limit("memory", "memory.limit_in_bytes", "9223372036854771712");
        limit("memory/job", "memory.limit_in_bytes", "700000000");
        limit("memory/job/task", "memory.limit_in_bytes", "200000000");
        limit("memory/other", "memory.limit_in_bytes", "1000");
        let both = "4:memory:/job/task\n3:cpuset:/other\n1:cpu,cpuacct:/\n0::/\n";
        assert_eq!(own(both), Some(200_000_000));
        assert_eq!(own("4:memory:/job/task/below\n"), Some(200_000_000));
        // Version 2, where a group may have no limit of its own.
        limit("slice", "memory.max", "300000000");
        limit("slice/task", "memory.max", "max");
        assert_eq!(own("0::/slice/task\n"), Some(300_000_000));
        // In a container the path is that of outside, and the root is the own group.
        limit("", "memory.max", "500000000");
        assert_eq!(own("0::/kubepods/pod1/task\n"), Some(500_000_000));
    }

    #[test]
    fn stacks_are_shown_without_addresses() {
        assert_eq!(function_of("[<0>] request_wait_answer+0x13b/0x240"), "request_wait_answer");
    }
}
