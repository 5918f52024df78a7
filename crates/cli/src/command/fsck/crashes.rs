//! The third corruption model: disks that a power failure leaves. A kernel executes workloads that once showed
//! bugs, in a guest; of what it wrote one write of those in flight is lost, or one is torn.

use std::collections::HashSet;
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use fathom_block::disks::{End, Recording, Workload};
use fathom_block::{Bounds, CrashPoint, DiskFileSystem, Image, Level, Record, Window};
use fathom_core::Op;
use fathom_fsck::{Case, Checker, Disk};
use fathom_generate::known;

use super::maker::kernel;
use crate::text::say;
use crate::worker_guest::GuestDisks;

/// Where the guest's random bytes come from: the same writes every time.
const SEED: u64 = 1;
/// Crash states of each level that are taken of one workload: evenly spaced ones if there are more.
const STATES_MAX: usize = 150;
/// The unit in which crash states are compared with the disk before.
const SECTOR: usize = 512;

/// A disk, and what power failures during so many workloads leave of it.
pub(super) fn cases(checker: &Checker, workloads: usize, out: &Path) -> Result<(Disk, Vec<Case>)> {
    let kernel = kernel().map_err(|why| anyhow!("--crashes needs a guest: {why}"))?;
    let Some(file_system) = checker.file_systems.last() else {
        bail!("{} is for no file system", checker.name);
    };
    let disks = GuestDisks::new(&kernel.path.display().to_string(), SEED, file_system)?;
    let base = disks.format()?;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    // Findings name it: it must be there when they are replayed.
    let path = fs::canonicalize(out)?.join("before-the-crash.img");
    fs::write(&path, base.to_vec()).with_context(|| path.display().to_string())?;
    let is_plain = |ops: &[Op]| !ops.iter().any(|op| matches!(op, Op::Remount));
    let known = known::all().into_iter().filter(|known| is_plain(&known.ops));
    let mut all = Vec::new();
    let mut seen = HashSet::new();
    for known in known.take(workloads) {
        let ops: Vec<&Op> = known.ops.iter().collect();
        let workload = Workload { ops: &ops, end: End::PowerOff, look: false };
        match disks.record(&base, &workload)? {
            Ok(recording) => {
                let atomic_bytes = disks.geometry().atomic_bytes;
                states(known.name, &base, &recording, atomic_bytes, &mut |name, writes| {
                    if seen.insert(writes.clone()) {
                        all.push(Case::crashed(name, writes));
                    }
                })?;
            }
            Err(failure) => say!("fathom: {} is left out: {failure:?}", known.name),
        }
    }
    if all.is_empty() {
        bail!("{file_system} writes nothing in these workloads: no power failure leaves anything");
    }
    Ok((Disk::before_crash(&path)?, all))
}

/// Shows the crash states of one recording: a name, and what differs from the disk before.
fn states(
    workload: &str,
    base: &Image,
    recording: &Recording,
    atomic_bytes: usize,
    take: &mut dyn FnMut(String, Vec<(u64, Vec<u8>)>),
) -> Result<()> {
    let from = recording.marks.first().copied().unwrap_or(0);
    let window = Window::new(base, &recording.log, atomic_bytes).between(from, recording.log.len());
    let regions: Vec<Range<usize>> =
        recording.log.events().filter_map(|event| event.region()).collect();
    for level in [Level::Lost, Level::Torn] {
        let mut points: Vec<CrashPoint> = Vec::new();
        let _ = level.enumerator(&Bounds::default()).visit(&window, &mut |point, _| {
            points.push(point.clone());
            ControlFlow::Continue(())
        });
        let step = points.len().div_ceil(STATES_MAX).max(1);
        for point in points.iter().step_by(step) {
            let image = window.rebuild(point)?;
            let writes = differences(base, &image, &regions);
            if !writes.is_empty() {
                take(format!("crash[{workload} {point}]"), writes);
            }
        }
    }
    Ok(())
}

/// The sectors of some regions that differ, neighbours as one.
fn differences(base: &Image, image: &Image, regions: &[Range<usize>]) -> Vec<(u64, Vec<u8>)> {
    let mut sectors: Vec<usize> = regions
        .iter()
        .flat_map(|region| region.start / SECTOR..region.end.div_ceil(SECTOR))
        .collect();
    sectors.sort_unstable();
    sectors.dedup();
    let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
    let (mut before, mut after) = ([0; SECTOR], [0; SECTOR]);
    for at in sectors.into_iter().map(|sector| sector * SECTOR) {
        if at + SECTOR > base.size() {
            continue;
        }
        base.read(at, &mut before);
        image.read(at, &mut after);
        if before == after {
            continue;
        }
        match out.last_mut() {
            Some((start, bytes)) if *start as usize + bytes.len() == at => bytes.extend(after),
            _ => out.push((at as u64, after.to_vec())),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use fathom_block::{Erased, Event, WriteLog};

    use super::*;

    #[test]
    fn a_lost_and_a_torn_write_are_cases() {
        let base = Image::from_bytes(&[0; 8192], Erased::Zeros);
        let mut log = WriteLog::new();
        let (one, two) = ([1; 1024], [2; 512]);
        log.push(Event::Write { at: 0, data: &one, fua: false, metadata: false });
        log.push(Event::Write { at: 4096, data: &two, fua: false, metadata: false });
        log.push(Event::Flush);
        let (outcomes, accounts) = (Vec::new(), Vec::new());
        let recording =
            Recording { outcomes, log, marks: vec![0], unmounted: None, tree: None, accounts };
        let mut found = Vec::new();
        states("w", &base, &recording, 512, &mut |name, writes| found.push((name, writes)))
            .unwrap();
        let has = |level: &str, writes: &[(u64, Vec<u8>)]| {
            found.iter().any(|(name, found)| name.contains(level) && found == writes)
        };
        // The first write is lost and the second arrived; half of the first arrived.
        assert!(has("lost", &[(4096, vec![2; 512])]), "{found:?}");
        assert!(has("torn", &[(0, vec![1; 512])]), "{found:?}");
    }
}
