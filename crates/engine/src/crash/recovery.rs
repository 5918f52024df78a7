//! What becomes of an image after the power came back: does it mount, can everything be read, is
//! recovery itself safe, can the file system be used.
//!
//! Nothing here depends on what should be there: one image is recovered once, however many workloads
//! lead to it.

use std::ops::ControlFlow;

use fathom_block::{BlockBacked, Bounds, Image, Level, Mounted, Window};
use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::plain::{DIR_MODE, FILE_MODE};
use fathom_core::{Digest, Errno, FsPath, HarnessFault, Kind, Op, Pattern, Tree};
use serde::{Deserialize, Serialize};

use super::config::CrashConfig;
use super::judge::Class;
use super::session::{SubjectFailure, guarded, mount};

/// Something that no crash may cause, whatever was promised about the contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    /// What kind.
    pub class: Class,
    /// What exactly.
    pub what: String,
}

impl Defect {
    fn new(class: Class, what: impl Into<String>) -> Defect {
        Defect { class, what: what.into() }
    }
}

/// What became of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// What is visible after mounting.
    pub tree: Digest,
    /// Bytes that one file could take before the disk was full; `None` if that was not tried.
    pub capacity_bytes: Option<u64>,
    /// Whether recovery wrote to the device.
    pub wrote: bool,
    /// The first thing that went wrong.
    pub defect: Option<Defect>,
}

/// What is done with an image.
#[derive(Clone, Copy, Debug)]
pub struct Treatment {
    /// Use it.
    pub probe: bool,
    /// Ask an independent checker.
    pub fsck: bool,
    /// Tear the writes of recovery too, rather than only stop between them.
    pub torn: bool,
}

impl Treatment {
    /// As the settings say, with the power failures of a run.
    pub fn new(config: &CrashConfig, levels: &[Level]) -> Treatment {
        Treatment { probe: config.probe, fsck: config.fsck, torn: levels.contains(&Level::Torn) }
    }
}

/// The tree that a mount of the image shows.
///
/// # Errors
/// If it does not mount, or the subject panics.
pub fn visible(subject: &dyn BlockBacked, image: &Image) -> Result<Tree, SubjectFailure> {
    guarded(|| Ok(mount(subject, image)?.observe()))
}

/// The tree after the part of recovery that the file system postpones.
///
/// # Errors
/// If it does not mount or recover, or the subject panics.
pub fn repaired(subject: &dyn BlockBacked, image: &Image) -> Result<Tree, SubjectFailure> {
    guarded(|| {
        let mut mounted = mount(subject, image)?;
        mounted.recover().map_err(SubjectFailure::Mount)?;
        Ok(mounted.observe())
    })
}

/// Mounts, looks, mounts again in other ways, and uses an image.
///
/// # Errors
/// Only if an independent checker could not be asked.
pub fn recover(
    subject: &dyn BlockBacked,
    image: &Image,
    treatment: Treatment,
) -> Result<Recovered, HarnessFault> {
    let mut recovered =
        Recovered { tree: Digest::default(), capacity_bytes: None, wrote: false, defect: None };
    let mut fault = None;
    let result = guarded(|| {
        let tree = mount(subject, image)?.observe();
        recovered.tree = tree.digest();
        let outcome = examine(subject, image, &tree, treatment, &mut recovered);
        recovered.defect = outcome.unwrap_or_else(|harness| {
            fault = Some(harness);
            None
        });
        Ok(())
    });
    if let Some(fault) = fault {
        return Err(fault);
    }
    match result {
        Ok(()) => {}
        Err(SubjectFailure::Mount(errno)) => {
            let what = format!("mount fails with {errno}");
            recovered.defect = Some(Defect::new(Class::Unmountable, what));
        }
        Err(SubjectFailure::Panic(message)) => {
            let what = format!("panics: {}", first_line(&message));
            recovered.defect = Some(Defect::new(Class::Unmountable, what));
        }
    }
    Ok(recovered)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Something that is wrong, or that broke while looking.
enum Stop {
    Defect(Defect),
    SubjectFailure(SubjectFailure),
}

impl Stop {
    fn defect(class: Class, what: impl Into<String>) -> Stop {
        Stop::Defect(Defect::new(class, what))
    }
}

impl From<Defect> for Stop {
    fn from(defect: Defect) -> Stop {
        Stop::Defect(defect)
    }
}

impl From<SubjectFailure> for Stop {
    fn from(broke: SubjectFailure) -> Stop {
        Stop::SubjectFailure(broke)
    }
}

fn examine(
    subject: &dyn BlockBacked,
    image: &Image,
    tree: &Tree,
    treatment: Treatment,
    recovered: &mut Recovered,
) -> Result<Option<Defect>, HarnessFault> {
    if let Some(defect) = unreadable(tree) {
        return Ok(Some(defect));
    }
    let used = guarded(|| Ok(use_again(subject, image, tree, treatment, recovered)));
    match used.unwrap_or_else(|broke| Err(Stop::SubjectFailure(broke))) {
        Err(Stop::Defect(defect)) => Ok(Some(defect)),
        Err(Stop::SubjectFailure(SubjectFailure::Mount(errno))) => {
            let what = format!("mounts once, then fails with {errno}");
            Ok(Some(Defect::new(Class::NotIdempotent, what)))
        }
        Err(Stop::SubjectFailure(SubjectFailure::Panic(message))) => {
            let what = format!("panics when used: {}", first_line(&message));
            Ok(Some(Defect::new(Class::NotUsable, what)))
        }
        Ok(unmounted) if treatment.fsck => {
            let complaint = subject.fsck(&unmounted)?;
            Ok(complaint.map(|complaint| Defect::new(Class::Rejected, complaint)))
        }
        Ok(_) => Ok(None),
    }
}

/// Mounts the image a second time, recovers it and works with it; returns it after a clean unmount.
fn use_again(
    subject: &dyn BlockBacked,
    image: &Image,
    tree: &Tree,
    treatment: Treatment,
    recovered: &mut Recovered,
) -> Result<Image, Stop> {
    let digest = tree.digest();
    let mut mounted = mount(subject, image)?;
    if mounted.observe().digest() != digest {
        let what = "the same image mounted twice shows two trees";
        return Err(Stop::defect(Class::NonDeterministic, what));
    }
    if let Err(errno) = mounted.recover() {
        return Err(Stop::defect(Class::NotUsable, format!("recovery fails with {errno}")));
    }
    let recovered_at = mounted.position();
    recovered.wrote = recovered_at > 0;
    if recovered.wrote && mounted.observe().digest() != digest {
        let what = "recovery changes the visible tree";
        return Err(Stop::defect(Class::NotIdempotent, what));
    }
    let (outcome, device) = mounted.unmount();
    if let Err(errno) = outcome.result {
        return Err(Stop::defect(Class::NotUsable, format!("unmount fails with {errno}")));
    }
    let unmounted = device.image().clone();
    if recovered.wrote {
        let atomic_bytes = subject.geometry().atomic_bytes;
        let window = Window::new(image, device.log(), atomic_bytes).between(0, recovered_at);
        repeatable(subject, &window, digest, treatment.torn)?;
    }
    // What was never written to is the image that was mounted twice already.
    let changed = device.position() > 0;
    if treatment.probe {
        let mounted = mount(subject, &unmounted)?;
        recovered.capacity_bytes = Some(usable(subject, mounted, tree, changed)?);
    } else if changed && mount(subject, &unmounted)?.observe().digest() != digest {
        return Err(Stop::defect(Class::NotIdempotent, REMOUNTED));
    }
    Ok(unmounted)
}

const REMOUNTED: &str = "after recovery and a clean remount another tree is visible";

/// The first entry that cannot be looked at.
fn unreadable(tree: &Tree) -> Option<Defect> {
    tree.entries.iter().find_map(|(path, entry)| {
        let broken = entry.broken.as_ref()?;
        let what = format!("{}({path:?}) fails with {}", broken.call, broken.errno);
        Some(Defect::new(Class::Unreadable, what))
    })
}

/// Recovery may be interrupted anywhere and repeated: the same tree must be visible.
fn repeatable(
    subject: &dyn BlockBacked,
    window: &Window<'_>,
    digest: Digest,
    torn: bool,
) -> Result<(), Defect> {
    let mut wrong = None;
    let levels: &[Level] = if torn { &[Level::Linear, Level::Torn] } else { &[Level::Linear] };
    for level in levels {
        let _ = level.enumerator(&Bounds::default()).visit(window, &mut |_, image| {
            match mount(subject, image).map(|mut mounted| mounted.observe().digest()) {
                Ok(again) if again == digest => return ControlFlow::Continue(()),
                Ok(_) => wrong = Some("recovery, interrupted and repeated, gives another tree"),
                Err(_) => wrong = Some("recovery, interrupted, leaves what cannot be mounted"),
            }
            ControlFlow::Break(())
        });
    }
    wrong.map_or(Ok(()), |what| Err(Defect::new(Class::NotIdempotent, what)))
}

/// Creates, writes, renames and deletes in every directory, fills the disk, frees it, fills it again.
/// Returns how many bytes fitted.
fn usable(
    subject: &dyn BlockBacked,
    mut mounted: Box<dyn Mounted>,
    tree: &Tree,
    look_first: bool,
) -> Result<u64, Stop> {
    let digest = tree.digest();
    if look_first && mounted.observe().digest() != digest {
        return Err(Stop::defect(Class::NotIdempotent, REMOUNTED));
    }
    for (dir, entry) in &tree.entries {
        if entry.kind == Kind::Dir {
            use_directory(&mut *mounted, dir)?;
        }
    }
    let chunk_bytes = subject.geometry().erase_bytes.max(MIN_CHUNK_BYTES) as u64;
    let first = fill(&mut *mounted, chunk_bytes, FILL_BYTES_MAX)?;
    // Freed space must be there again: nearly as much must fit at once.
    let slack_bytes = subject.guarantee().capacity_slack_bytes.is;
    let again = first.saturating_sub(slack_bytes);
    if again > 0 && fill(&mut *mounted, again, again)? < again {
        let what = format!("{first} bytes fit, then not even {again}: freed space is gone");
        return Err(Stop::defect(Class::Leak, what));
    }
    let found = mounted.observe();
    if found.digest() != digest {
        let difference = tree.differences(&found).into_iter().next();
        let what = difference.map_or_else(String::new, |difference| difference.to_string());
        let what = format!("files made and removed again leave another tree: {what}");
        return Err(Stop::defect(Class::NotUsable, what));
    }
    Ok(first)
}

/// Names that no workload uses.
const PROBE_NAMES: [&[u8]; 2] = [b"fathom0", b"fathom1"];

/// Runs operations until one fails. No space is no fault: the rest is left out.
fn attempt(mounted: &mut dyn Mounted, ops: &[Op]) -> Result<(), Defect> {
    for op in ops {
        match mounted.apply(op).result {
            Ok(_) => {}
            Err(Errno::ENOSPC) => return Ok(()),
            Err(errno) => {
                return Err(Defect::new(Class::NotUsable, format!("{op} fails with {errno}")));
            }
        }
    }
    Ok(())
}

fn use_directory(mounted: &mut dyn Mounted, dir: &FsPath) -> Result<(), Defect> {
    let [one, other] = PROBE_NAMES.map(|name| dir.join(name));
    let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
    let made = mounted.apply(&Op::Open { slot: 0, path: one.clone(), flags, mode: FILE_MODE });
    match made.result {
        Ok(_) => {}
        Err(Errno::ENOSPC) => return Ok(()),
        Err(errno) => {
            let what = format!("a file in {dir:?} cannot be made: {errno}");
            return Err(Defect::new(Class::NotUsable, what));
        }
    }
    let data = Pattern { seed: 1, len: 10 };
    attempt(mounted, &[Op::Pwrite { slot: 0, offset: 0, data }, Op::Fsync { slot: 0 }])?;
    attempt(mounted, &[Op::Close { slot: 0 }])?;
    let flags = RenameFlags::empty();
    let rename = Op::Rename { from: one.clone(), to: other.clone(), flags };
    match mounted.apply(&rename).result {
        Ok(_) => attempt(mounted, &[Op::Unlink { path: other }])?,
        Err(Errno::ENOSPC) => attempt(mounted, &[Op::Unlink { path: one.clone() }])?,
        Err(errno) => {
            return Err(Defect::new(Class::NotUsable, format!("{rename} fails with {errno}")));
        }
    }
    let mkdir = Op::Mkdir { path: one.clone(), mode: DIR_MODE };
    attempt(mounted, &[mkdir, Op::Rmdir { path: one }])
}

/// Disks larger than this are not filled completely.
const FILL_BYTES_MAX: u64 = 1 << 20;

/// The disk is filled in blocks, but not in tiny ones.
const MIN_CHUNK_BYTES: usize = 256;

/// Writes a file in chunks until the disk is full or it has `bytes_max`, and removes it; returns how
/// much fitted.
fn fill(mounted: &mut dyn Mounted, chunk_bytes: u64, bytes_max: u64) -> Result<u64, Defect> {
    let path = FsPath::from(".").join(PROBE_NAMES[0]);
    let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
    let open = Op::Open { slot: 0, path: path.clone(), flags, mode: FILE_MODE };
    let fails = |op: &Op, errno| {
        Err(Defect::new(Class::NotUsable, format!("filling the disk: {op} fails with {errno}")))
    };
    match mounted.apply(&open).result {
        Ok(_) => {}
        Err(Errno::ENOSPC) => return Ok(0),
        Err(errno) => return fails(&open, errno),
    }
    let mut at = 0;
    while at < bytes_max {
        let data = Pattern { seed: at, len: chunk_bytes };
        let write = Op::Pwrite { slot: 0, offset: at as i64, data };
        match mounted.apply(&write).result {
            Ok(0) | Err(Errno::ENOSPC) => break,
            Ok(count) => at += count,
            Err(errno) => return fails(&write, errno),
        }
    }
    let close = Op::Close { slot: 0 };
    match mounted.apply(&close).result {
        Ok(_) | Err(Errno::ENOSPC) => {}
        Err(errno) => return fails(&close, errno),
    }
    let unlink = Op::Unlink { path };
    match mounted.apply(&unlink).result {
        Ok(_) => Ok(at),
        Err(errno) => fails(&unlink, errno),
    }
}
