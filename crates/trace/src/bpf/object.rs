//! The compiled tracer: loading it, filling its maps, reading its counts.

use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};

use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, PerCpuHashMap, PerCpuValues, RingBuf};
use aya::programs::BtfTracePoint;
use aya::util::nr_cpus;
use aya::{Btf, Ebpf, EbpfLoader, Pod};
use aya_obj::btf::BtfKind;

use super::uring;
use crate::error::{Result, TraceError};
use crate::layout::{Call, SLOTS_MAX, Slot, SlotKind, Source, calls};
use crate::sample::{Sample, Samples};

/// Superblocks that can be watched at the same time.
pub(super) const TARGETS_MAX: usize = 8;

/// Bytes of a mount point whose remounts are followed, with NUL.
pub(super) const MOUNT_PATH_BYTES: usize = 1024;

/// The object file, aligned as ELF headers must be.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/cover.bpf.o"));

/// The configuration of the BPF programs: `struct config` of `bpf/cover.bpf.c`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Config {
    pub(super) targets: [u64; TARGETS_MAX],
    pub(super) table: u64,
    pub(super) cgroup: u64,
    pub(super) cgroup_level: u32,
    pub(super) shift: u32,
    pub(super) scope: u32,
    pub(super) tracer: u32,
    pub(super) record: u32,
    pub(super) flag_mounted: u32,
    pub(super) type_mask: u32,
    pub(super) type_symlink: u32,
    pub(super) targets_len: u32,
    pub(super) stream: u32,
    pub(super) flag_backing: u32,
    pub(super) unused: u32,
}

// SAFETY: integers without padding.
unsafe impl Pod for Config {}

/// One system call as the BPF programs know it: `struct call`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct KernelCall {
    index: u16,
    flags: u16,
    slots: u8,
    follow: u8,
    toggle_reg: u8,
    parent_from: u8,
    toggle_mask: u32,
    kind: [u8; SLOTS_MAX],
    reg: [u8; SLOTS_MAX],
    offset: [u8; SLOTS_MAX],
    bytes: [u8; SLOTS_MAX],
    known: u8,
    flags_reg: u8,
    unused: [u8; 2],
}

// SAFETY: integers without padding.
unsafe impl Pod for KernelCall {}

/// A mount point whose remounts are followed: `struct mount_path`.
#[derive(Clone, Copy)]
#[repr(C)]
struct MountPath([u8; MOUNT_PATH_BYTES]);

// SAFETY: bytes.
unsafe impl Pod for MountPath {}

/// The note of calibration on one dentry: `struct calibration`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Calibration {
    pub(super) pprev: u64,
    pub(super) hash_len: u64,
}

// SAFETY: integers without padding.
unsafe impl Pod for Calibration {}

// SAFETY: integers without padding (a test of `sample` says so).
unsafe impl Pod for Sample {}

/// The state of a watched thread: `struct task_state`. Only its first word is set from here.
#[repr(C, align(8))]
struct TaskState([u32; 48]);

/// A request of io_submit: `struct request`, in words. Requests are only counted from here.
type Request = [u64; 7];

/// A count that is not in the map of samples yet: `struct recent`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Recent {
    sample: Sample,
    count: u64,
}

// SAFETY: integers without padding.
unsafe impl Pod for Recent {}

/// The tracer's own counters: `enum counter`.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum Counter {
    Lost = 0,
    Restarted = 1,
    Foreign = 2,
    Guessed = 3,
    RecordLost = 4,
    LostRequests = 5,
    Unfetched = 6,
}

/// Programs and the tracepoints where they belong, in the order in which they are attached.
const PROGRAMS: &[(&str, &str)] = &[
    ("on_complete", "io_uring_complete"),
    ("on_submit", "io_uring_submit_req"),
    ("on_exit", "sys_exit"),
    ("on_enter", "sys_enter"),
    ("on_fork", "task_newtask"),
];

/// The instruction `call CAST`, which stands in the object for a function of the kernel whose
/// number only the running kernel knows (`as_type` of `bpf/kernel.h`).
const CAST: [u8; 8] = [0x85, 0, 0, 0, 0x48, 0x54, 0x41, 0x46];
/// The instruction `r0 = 0`: never executed, because the programs ask first.
const NO_CAST: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];
/// The opcode of `rN = HAS_CAST`: what `has_cast` of `bpf/kernel.h` returns.
const MOVE: u8 = 0xb7;
const HAS_CAST: u32 = 0x4641_5449;
/// The source register of a call that makes its number that of a kernel function.
const BPF_PSEUDO_KFUNC_CALL: u8 = 2;

/// The object with the number of `bpf_rdonly_cast`, if the kernel has that (Linux 6.2). The library does
/// not link functions of the kernel.
fn with_cast(number: Option<u32>) -> Vec<u8> {
    let mut bytes = OBJECT.0.to_vec();
    let call = number.map_or(NO_CAST, |number| {
        let mut call = CAST;
        call[1] = BPF_PSEUDO_KFUNC_CALL << 4;
        call[4..].copy_from_slice(&number.to_le_bytes());
        call
    });
    // Sections of instructions are aligned to them.
    for instruction in bytes.chunks_exact_mut(CAST.len()) {
        if *instruction == CAST {
            instruction.copy_from_slice(&call);
        } else if instruction[0] == MOVE && instruction[4..] == HAS_CAST.to_le_bytes() {
            instruction[4..].copy_from_slice(&u32::from(number.is_some()).to_le_bytes());
        }
    }
    bytes
}

/// The loaded tracer.
pub(super) struct Object {
    bpf: Ebpf,
    btf: Btf,
}

impl Object {
    /// Loads the object for the running kernel.
    pub(super) fn load() -> Result<Object> {
        let btf = Btf::from_sys_fs().map_err(|error| {
            failed("the kernel has no type information (CONFIG_DEBUG_INFO_BTF)", &error)
        })?;
        let cast = btf.id_by_type_name_kind("bpf_rdonly_cast", BtfKind::Func);
        Object::with(btf, cast.ok())
    }

    fn with(btf: Btf, cast: Option<u32>) -> Result<Object> {
        let bpf = EbpfLoader::new()
            .btf(Some(&btf))
            .allow_unsupported_maps()
            .load(&with_cast(cast))
            .map_err(|error| failed("cannot load", &error))?;
        let mut object = Object { bpf, btf };
        let mut map: Array<_, KernelCall> = object.array("calls")?;
        for (index, call) in calls().iter().enumerate() {
            let value = kernel_call(index as u16, call);
            map.set(call.nr, value, 0).map_err(|error| failed("cannot fill the table", &error))?;
        }
        let mut map: Array<_, uring::Operation> = object.array("operations")?;
        for (opcode, operation) in uring::operations() {
            map.set(opcode, operation, 0)
                .map_err(|error| failed("cannot fill the table", &error))?;
        }
        Ok(object)
    }

    /// Attaches one program.
    pub(super) fn attach(&mut self, program: &str, tracepoint: &str) -> Result<()> {
        let Object { bpf, btf } = self;
        let program: &mut BtfTracePoint = bpf
            .program_mut(program)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| TraceError::Bpf(format!("the object has no {program}")))?;
        program.load(tracepoint, btf).map_err(|error| failed(tracepoint, &error))?;
        program.attach().map_err(|error| failed(tracepoint, &error))?;
        Ok(())
    }

    /// Detaches and unloads one program.
    pub(super) fn detach(&mut self, program: &str) -> Result<()> {
        let program: &mut BtfTracePoint = self
            .bpf
            .program_mut(program)
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| TraceError::Bpf(format!("the object has no {program}")))?;
        program.unload().map_err(|error| failed("cannot detach", &error))
    }

    /// Attaches the tracer. Kernels without io_uring do not have its tracepoints.
    pub(super) fn attach_all(&mut self) -> Result<Vec<String>> {
        let mut limits = Vec::new();
        for (program, tracepoint) in PROGRAMS {
            match self.attach(program, tracepoint) {
                Err(error) if tracepoint.starts_with("io_uring") => {
                    limits.push(format!("operations of io_uring are not seen: {error}"));
                }
                result => result?,
            }
        }
        Ok(limits)
    }

    /// Detaches the tracer: nothing is counted any more, so what is read afterwards belongs together.
    pub(super) fn detach_all(&mut self) {
        for (program, _) in PROGRAMS {
            // One that was never attached (io_uring) cannot be detached either.
            let _ = self.detach(program);
        }
    }

    /// The configuration as the kernel has it now.
    pub(super) fn config(&mut self) -> Result<Config> {
        let map: Array<_, Config> = self.array("config")?;
        map.get(&0, 0).map_err(|error| failed("cannot read the configuration", &error))
    }

    /// Changes the configuration.
    pub(super) fn configure(&mut self, config: Config) -> Result<()> {
        let mut map: Array<_, Config> = self.array("config")?;
        map.set(0, config, 0).map_err(|error| failed("cannot configure", &error))
    }

    /// Tells where the watched mount points are, so that remounts can be followed.
    pub(super) fn set_mount_path(&mut self, index: usize, path: &[u8]) -> Result<()> {
        let mut text = [0; MOUNT_PATH_BYTES];
        text[..path.len()].copy_from_slice(path);
        let mut map: Array<_, MountPath> = self.array("mount_paths")?;
        map.set(index as u32, MountPath(text), 0)
            .map_err(|error| failed("cannot configure", &error))
    }

    /// Reads what the BPF programs noted during calibration.
    pub(super) fn calibrations(&mut self, number: u32) -> Result<Vec<Calibration>> {
        let map: Array<_, Calibration> = self.array("calibrations")?;
        let read = |index| map.get(&index, 0).map_err(|error| failed("cannot calibrate", &error));
        (0..number).map(read).collect()
    }

    /// Watches a thread, and whatever it starts.
    pub(super) fn watch_thread(&mut self, tid: i32, is_leader: bool) -> Result<()> {
        // PIDFD_THREAD is O_EXCL (pidfd_open(2), Linux 6.9).
        let flags = if is_leader { 0 } else { libc::O_EXCL };
        // SAFETY: integers only; the descriptor is closed below.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, flags) as i32 };
        if pidfd < 0 {
            return Err(TraceError::last(format!("cannot watch thread {tid}")));
        }
        let mut state = TaskState([0; 48]);
        state.0[0] = 1;
        let done = match self.bpf.map("tasks") {
            Some(Map::Unsupported(map)) => update(map, &pidfd, &state),
            _ => Err(TraceError::Bpf("the object has no storage of tasks".to_owned())),
        };
        // SAFETY: the descriptor was opened above.
        unsafe { libc::close(pidfd) };
        done
    }

    /// Reads all counts so far.
    pub(super) fn samples(&mut self) -> Result<Samples> {
        let map = self.bpf.map("samples").expect("the object has it");
        let map: PerCpuHashMap<_, Sample, u64> =
            map.try_into().map_err(|error| failed("cannot read the counts", &error))?;
        let mut samples = Samples::default();
        for entry in map.iter() {
            let (sample, counts) =
                entry.map_err(|error| failed("cannot read the counts", &error))?;
            samples.add(sample, counts.iter().sum());
        }
        for recent in self.recents()?.iter() {
            let recent = recent.map_err(|error| failed("cannot read the counts", &error))?;
            for Recent { sample, count } in recent.iter().filter(|recent| recent.count > 0) {
                samples.add(*sample, *count);
            }
        }
        Ok(samples)
    }

    fn recents(&mut self) -> Result<PerCpuArray<&mut MapData, Recent>> {
        let map = self.bpf.map_mut("recents").expect("the object has it");
        map.try_into().map_err(|error| failed("cannot read the counts", &error))
    }

    /// Resets all counts.
    pub(super) fn clear(&mut self) -> Result<()> {
        let wrong = |error: &dyn std::error::Error| failed("cannot clear the counts", error);
        let map = self.bpf.map_mut("samples").expect("the object has it");
        let mut map: PerCpuHashMap<_, Sample, u64> =
            map.try_into().map_err(|error| wrong(&error))?;
        let keys: Vec<Sample> = map.keys().flatten().collect();
        for key in keys {
            map.remove(&key).map_err(|error| wrong(&error))?;
        }
        let processors = nr_cpus().map_err(|(_, error)| wrong(&error))?;
        let mut recents = self.recents()?;
        for index in 0..recents.len() {
            let none = vec![Recent::default(); processors];
            let none = PerCpuValues::try_from(none).map_err(|error| wrong(&error))?;
            recents.set(index, none, 0).map_err(|error| wrong(&error))?;
        }
        Ok(())
    }

    /// Reads a counter of the tracer itself.
    pub(super) fn counter(&mut self, counter: Counter) -> Result<u64> {
        let map = self.bpf.map("counters").expect("the object has it");
        let map: PerCpuArray<_, u64> =
            map.try_into().map_err(|error| failed("cannot read a counter", &error))?;
        let counts = map
            .get(&(counter as u32), 0)
            .map_err(|error| failed("cannot read a counter", &error))?;
        Ok(counts.iter().sum())
    }

    /// Counts the operations of io_submit whose completion was not fetched.
    pub(super) fn blocks(&mut self) -> Result<u64> {
        let map = self.bpf.map("blocks").expect("the object has it");
        let map: HashMap<_, [u64; 2], Request> =
            map.try_into().map_err(|error| failed("cannot read the submissions", &error))?;
        Ok(map.keys().filter(|key| key.is_ok()).count() as u64)
    }

    /// The ring of recorded events.
    pub(super) fn take_events(&mut self) -> Result<RingBuf<MapData>> {
        self.ring("events")
    }

    /// The ring of calls whose paths are to be resolved.
    pub(super) fn take_stream(&mut self) -> Result<RingBuf<MapData>> {
        self.ring("stream")
    }

    fn ring(&mut self, name: &str) -> Result<RingBuf<MapData>> {
        let map = self.bpf.take_map(name);
        let map = map.ok_or_else(|| TraceError::Bpf(format!("the object has no {name}")))?;
        map.try_into().map_err(|error| failed("cannot read events", &error))
    }

    fn array<V: Pod>(&mut self, name: &str) -> Result<Array<&mut MapData, V>> {
        let map = self.bpf.map_mut(name);
        let map = map.ok_or_else(|| TraceError::Bpf(format!("the object has no map {name}")))?;
        map.try_into().map_err(|error| failed(name, &error))
    }
}

/// The error with all its causes: the last one says what the kernel refused.
fn failed(doing: &str, error: &dyn std::error::Error) -> TraceError {
    let mut text = format!("{doing}: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        // The log of the verifier is long and says nothing to users.
        let line = cause.to_string();
        text.push_str(&format!(": {}", line.lines().next().unwrap_or_default()));
        source = cause.source();
    }
    TraceError::Bpf(text)
}

/// Sets an entry by bpf(2), BPF_MAP_UPDATE_ELEM: for the kind of map that the library does not
/// know.
fn update<K, V>(map: &MapData, key: &K, value: &V) -> Result<()> {
    #[repr(C)]
    struct Attributes {
        map: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
    let attributes = Attributes {
        map: map.fd().as_fd().as_raw_fd() as u32,
        key: std::ptr::from_ref(key) as u64,
        value: std::ptr::from_ref(value) as u64,
        flags: 0,
    };
    // SAFETY: the kernel reads the key and the value, which are as long as the map says.
    let done = unsafe {
        let size = size_of::<Attributes>();
        libc::syscall(libc::SYS_bpf, BPF_MAP_UPDATE_ELEM, &raw const attributes, size)
    };
    if done != 0 {
        return Err(TraceError::last("cannot watch a task"));
    }
    Ok(())
}

/// Bits of `enum call_flags`.
mod flag {
    pub(super) const OPENS: u16 = 1;
    pub(super) const GLOBAL: u16 = 2;
    pub(super) const RANGE: u16 = 4;
    pub(super) const AMOUNT: u16 = 8;
    pub(super) const MOUNTS: u16 = 16;
    pub(super) const SYMLINK: u16 = 32;
    pub(super) const MMAP: u16 = 64;
    pub(super) const HOW: u16 = 128;
    pub(super) const OPEN_FLAGS: u16 = 256;
    pub(super) const PATHS: u16 = 512;
    pub(super) const SUBMITS: u16 = 1024;
    pub(super) const FETCHES: u16 = 2048;
    pub(super) const EXECUTES: u16 = 4096;
    pub(super) const PLAIN: u16 = 8192;
    pub(super) const HERE: u16 = 16384;
}

/// Whether a call has a descriptor first and then numbers in registers, and nothing special about it.
/// Registers are in the order of the slots.
fn is_plain(call: &Call) -> bool {
    use SlotKind::{
        Amount, Amount32, Bits, Fd, Id, Pointer, SignedAmount, SignedAmount32, Skip, WideBits,
    };
    let is_number = |slot: &Slot| {
        matches!(
            slot.kind,
            Amount
                | Amount32
                | Bits
                | Id
                | Pointer
                | SignedAmount
                | SignedAmount32
                | Skip
                | WideBits
        )
    };
    let in_place = |(index, slot): (usize, &Slot)| matches!(slot.source, Source::Register(register) if usize::from(register) == index);
    !call.opens
        && call.slots.first().is_some_and(|slot| slot.kind == Fd)
        && call.slots[1..].iter().all(is_number)
        && call.slots.iter().enumerate().all(in_place)
        && !matches!(call.name, "mmap" | "close_range" | "io_submit" | "io_getevents")
}

fn is_path(slot: &Slot) -> bool {
    matches!(slot.kind, SlotKind::Path | SlotKind::PathOrText)
}

/// Marks an argument that is in no register.
const NO_REGISTER: u8 = 0xff;

fn kernel_call(index: u16, call: &Call) -> KernelCall {
    let flags = [
        (flag::OPENS, call.opens),
        (flag::GLOBAL, call.global),
        (flag::RANGE, call.name == "close_range"),
        (flag::AMOUNT, call.family.returns.is_amount()),
        (flag::MOUNTS, matches!(call.name, "mount" | "umount2" | "move_mount" | "pivot_root")),
        (flag::SYMLINK, call.base == "symlink"),
        (flag::MMAP, call.name == "mmap"),
        (flag::HOW, call.name == "openat2"),
        (flag::OPEN_FLAGS, matches!(call.name, "open" | "openat")),
        (flag::PATHS, call.slots.iter().any(is_path)),
        (flag::SUBMITS, call.name == "io_submit"),
        (flag::FETCHES, call.base == "io_getevents"),
        (flag::EXECUTES, call.base == "execve"),
        (flag::PLAIN, is_plain(call)),
        (flag::HERE, call.here),
    ];
    let flags = flags.iter().filter(|(_, is)| *is).fold(0, |all, (flag, _)| all | flag);
    let register = |name: &str| {
        call.slots.iter().find_map(|slot| match slot.source {
            Source::Register(register) if slot.name == name => Some(register),
            _ => None,
        })
    };
    let (toggle_reg, toggle_mask) = call.follow.toggle.unwrap_or((NO_REGISTER, 0));
    let mut out = KernelCall {
        index,
        flags,
        slots: call.slots.len() as u8,
        follow: call.follow.by_default.into(),
        toggle_reg,
        parent_from: call.follow.parent_from,
        toggle_mask,
        known: 1,
        flags_reg: register("flags").unwrap_or(NO_REGISTER),
        ..KernelCall::default()
    };
    for (index, slot) in call.slots.iter().enumerate() {
        out.kind[index] = slot.kind as u8;
        (out.reg[index], out.offset[index], out.bytes[index]) = match slot.source {
            Source::Register(register) => (register, 0, 0),
            Source::Field { register, offset, bytes } => (register, offset, bytes),
        };
    }
    out
}

/// The layouts agree with the C structures: sizes and a few places of each.
const _: () = {
    assert!(size_of::<KernelCall>() == 56);
    assert!(offset_of!(KernelCall, kind) == 12);
    assert!(size_of::<Config>() == 128);
    assert!(size_of::<TaskState>() == 192);
    assert!(size_of::<Sample>() == 48);
    assert!(size_of::<Recent>() == 56);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The sources in the order of their names, as `cargo xtask bpf` digests them.
    fn sources() -> Vec<u8> {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
        let entries = std::fs::read_dir(dir).expect("the sources are beside the object");
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "h" || end == "c"));
        paths.sort();
        paths.iter().flat_map(|path| std::fs::read(path).expect("it is readable")).collect()
    }

    /// Kernels before 6.2 do not have the cast. The verifier must accept the programs without it too.
    #[test]
    fn the_programs_load_without_the_cast() {
        let counts = |bytes: &[u8]| {
            let instructions = || bytes.chunks_exact(8);
            let asks = |part: &&[u8]| part[0] == MOVE && part[4..] == HAS_CAST.to_le_bytes();
            (
                instructions().filter(|part| **part == CAST).count(),
                instructions().filter(asks).count(),
            )
        };
        assert!(counts(&OBJECT.0).0 > 10 && counts(&OBJECT.0).1 > 10);
        assert_eq!(counts(&with_cast(None)), (0, 0));
        assert_eq!(counts(&with_cast(Some(1))), (0, 0));
        // Where the tracer does not work at all there is nothing to compare with.
        if !Object::load().is_ok_and(|mut object| object.attach_all().is_ok()) {
            return;
        }
        let btf = Btf::from_sys_fs().expect("the kernel has type information");
        let mut object = Object::with(btf, None).expect("it loads");
        assert_eq!(object.attach_all().expect("it is accepted"), [""; 0]);
    }

    /// `cargo xtask bpf` writes the digest of the sources into the object.
    #[test]
    fn object_and_source_belong_together() {
        let digest = twox_hash::XxHash3_128::oneshot(&sources());
        let digest = format!("fathom-bpf-source:{digest:032x}");
        let found = OBJECT.0.windows(digest.len()).any(|part| part == digest.as_bytes());
        assert!(found, "the object is not made from these sources: run `cargo xtask bpf`");
    }
}
