//! [`DyingSubject`] and [`DyingLibrary`]: the reference, or a library file system, and a death at a given
//! operation. They exist to test the tester: the ends of a process that a file system can cause cannot
//! be had for the asking.

#![allow(unsafe_code, reason = "ends its own process; every block says why it is sound")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fathom_block::{BlockBacked, Geometry, Guarantee, Image, MountFailure, Mounted, Recorder};
use fathom_core::{
    Caller, Errno, HarnessFault, Op, Outcome, RestoreMethod, Subject, Testbed, Tree, Wrapper,
};
use fathom_model::ModelSubject;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// The process gets a SIGSEGV.
    Segv,
    /// The process gets a SIGKILL.
    Kill,
    /// Only the thread ends, as after an oops of the kernel.
    Thread,
    /// Memory is used without end.
    Memory,
    /// A file in memory grows without end: pages that belong to no process.
    MemoryFile,
    /// The call never returns.
    Hang,
    /// The harness panics.
    Panic,
    /// The kernel panics; only that of a guest.
    Kernel,
    /// No death: two threads race, and if they meet in a bad moment the answer is `EIO`.
    Race,
    /// Memory is used page by page with holes between, until the host of a guest gives no further mapping.
    Mappings,
}

impl Death {
    /// Every death, with its name.
    const ALL: [(&'static str, Death); 10] = [
        ("dies-by-segv", Death::Segv),
        ("dies-by-kill", Death::Kill),
        ("dies-by-oops", Death::Thread),
        ("eats-memory", Death::Memory),
        ("fills-a-memory-file", Death::MemoryFile),
        ("hangs", Death::Hang),
        ("panics", Death::Panic),
        ("crashes-the-kernel", Death::Kernel),
        ("loses-a-race", Death::Race),
        ("scatters-memory", Death::Mappings),
    ];

    /// Dies, or says whether the operation is to fail.
    fn happen(self) -> bool {
        match self {
            Death::Race => return race_is_lost(),
            Death::Mappings => scatter_memory(),
            Death::MemoryFile => fill_memory_file(),
            _ => {}
        }
        // SAFETY: each takes numbers only; what becomes of the process is the purpose.
        unsafe {
            match self {
                Death::Segv => {
                    // The handler of the runtime takes the first one for a full stack.
                    libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                    libc::raise(libc::SIGSEGV);
                }
                Death::Kill => {
                    libc::raise(libc::SIGKILL);
                }
                Death::Thread => {
                    libc::syscall(libc::SYS_exit, libc::SIGSEGV);
                }
                Death::Memory => {
                    let mut eaten = Vec::new();
                    loop {
                        eaten.push(vec![1u8; 16 << 20]);
                        std::hint::black_box(&eaten);
                    }
                }
                Death::Hang => loop {
                    std::thread::park();
                },
                Death::Panic => panic!("asked for"),
                Death::Kernel => {
                    let is_guest = std::env::var_os("FATHOM_IN_GUEST").is_some();
                    assert!(is_guest, "this would end the host: give --guest");
                    // If that fails the operation is executed, and the test notices.
                    let _ = std::fs::write("/proc/sysrq-trigger", "c");
                }
                Death::Race | Death::Mappings | Death::MemoryFile => {}
            }
        }
        false
    }
}

/// Writes to a file in memory until something ends this process, which also frees the file: it has no name.
fn fill_memory_file() {
    let Ok(file) = rustix::fs::memfd_create("fathom-fault", rustix::fs::MemfdFlags::CLOEXEC) else {
        return;
    };
    let (mut file, piece) = (std::fs::File::from(file), vec![1u8; 1 << 20]);
    // A machine without limits has no end either: what cannot be written is tried again.
    loop {
        if std::io::Write::write_all(&mut file, &piece).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The two threads of a race each wait so many steps at most before they begin.
const RACE_STEPS: u64 = 64;

/// A step of their waiting.
const RACE_STEP_MICROS: u64 = 300;

/// The first thread sleeps so long between the two halves of its work: as short as a sleep can be, so that
/// the other one seldom comes in between. (If it only gave its processor away, that would be for milliseconds
/// where many want it.)
const RACE_GAP: Duration = Duration::from_nanos(1);

/// Pieces of memory that are used in part, and their size: together more pages than Linux lets a process
/// have mappings (vm.max_map_count, 65530 by default).
const SCATTERED_PIECES: usize = 4;
const SCATTERED_BYTES: usize = 200 << 20;

/// Uses every second page of some memory. A page of a guest's process is a mapping of the process that runs
/// it on the host, if its neighbours are not used.
fn scatter_memory() {
    const PAGE_BYTES: usize = 4096;
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    for _ in 0..SCATTERED_PIECES {
        let mut piece = vec![0u8; SCATTERED_BYTES];
        piece.iter_mut().step_by(2 * PAGE_BYTES).for_each(|byte| *byte = 1);
        pieces.push(std::hint::black_box(piece));
    }
}

/// Whether the second thread looks in the moment in which the first has done half of its work. Both wait
/// for a while first, as threads that wait for a disk do.
fn race_is_lost() -> bool {
    let pause = || {
        // The keys are random, and new in every thread.
        let random = RandomState::new().build_hasher().finish();
        std::thread::sleep(Duration::from_micros(random % RACE_STEPS * RACE_STEP_MICROS));
    };
    let (data, mark) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pause();
            data.store(true, Ordering::SeqCst);
            std::thread::sleep(RACE_GAP);
            mark.store(true, Ordering::SeqCst);
        });
        let second = scope.spawn(|| {
            pause();
            data.load(Ordering::SeqCst) && !mark.load(Ordering::SeqCst)
        });
        second.join().unwrap_or(false)
    })
}

/// When a death happens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Moment {
    /// When so many operations were executed since the file system was empty (or mounted).
    After(u64),
    /// At the first operation of this name.
    On(String),
}

/// A death with its moment, written `dies-by-segv-after-50` or `hangs-on-rename`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    death: Death,
    moment: Moment,
}

impl Fate {
    /// The meaning of a name, if there is such a death.
    pub(crate) fn parse(name: &str) -> Option<Fate> {
        let named = |death: &str| Death::ALL.iter().find(|(known, _)| *known == death);
        if let Some((death, after)) = name.rsplit_once("-after-") {
            let moment = Moment::After(after.parse().ok()?);
            return Some(Fate { death: named(death)?.1, moment });
        }
        let (death, on) = name.rsplit_once("-on-")?;
        Some(Fate { death: named(death)?.1, moment: Moment::On(on.to_owned()) })
    }

    /// Dies if an operation is the one, after so many others; otherwise says whether it is to fail.
    fn meet(&self, op: &Op, executed: u64) -> bool {
        let due = match &self.moment {
            Moment::After(after) => executed == *after,
            Moment::On(name) => op.name() == name,
        };
        due && self.death.happen()
    }
}

/// The reference, which dies.
pub(crate) struct DyingSubject {
    name: String,
    inner: ModelSubject,
    fate: Fate,
    /// Operations since the last reset.
    executed: u64,
}

impl DyingSubject {
    pub(crate) fn new(name: String, fate: Fate, inner: ModelSubject) -> DyingSubject {
        DyingSubject { name, inner, fate, executed: 0 }
    }
}

/// A library file system, which dies.
pub(crate) struct DyingLibrary {
    name: String,
    inner: Box<dyn BlockBacked>,
    fate: Fate,
}

impl DyingLibrary {
    pub(crate) fn new(name: String, fate: Fate, inner: Box<dyn BlockBacked>) -> DyingLibrary {
        DyingLibrary { name, inner, fate }
    }
}

/// One mount of it.
struct DyingMount {
    inner: Box<dyn Mounted>,
    fate: Fate,
    /// Operations since it was mounted.
    executed: u64,
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl BlockBacked for DyingLibrary {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        self.inner.version()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.inner.guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.inner.format()
    }

    fn mount(&self, device: Recorder) -> Result<Box<dyn Mounted>, Box<MountFailure>> {
        let inner = self.inner.mount(device)?;
        Ok(Box::new(DyingMount { inner, fate: self.fate.clone(), executed: 0 }))
    }

    fn files_max(&self) -> Option<u64> {
        self.inner.files_max()
    }

    fn has_checker(&self) -> bool {
        self.inner.has_checker()
    }

    fn fsck(&self, image: &Image) -> Result<Option<String>, HarnessFault> {
        self.inner.fsck(image)
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl Mounted for DyingMount {
    fn apply(&mut self, op: &Op) -> Outcome {
        let fails = self.fate.meet(op, self.executed);
        self.executed += 1;
        if fails { Outcome::err(Errno::EIO) } else { self.inner.apply(op) }
    }

    fn recover(&mut self) -> Result<(), Errno> {
        self.inner.recover()
    }

    fn observe(&mut self) -> Tree {
        self.inner.observe()
    }

    fn position(&self) -> usize {
        self.inner.position()
    }

    fn look_at_device(&self, look: &mut dyn FnMut(&Recorder)) {
        self.inner.look_at_device(look);
    }

    fn unmount(self: Box<Self>) -> (Outcome, Recorder) {
        self.inner.unmount()
    }

    fn power_off(self: Box<Self>) -> Recorder {
        self.inner.power_off()
    }
}

impl Wrapper for DyingSubject {
    type Inner = ModelSubject;

    fn inner(&self) -> &ModelSubject {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut ModelSubject {
        &mut self.inner
    }

    fn wrapped_name(&self) -> String {
        self.name.clone()
    }

    fn execute(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        let fails = self.fate.meet(op, self.executed);
        self.executed += 1;
        if fails { Ok(Outcome::err(Errno::EIO)) } else { self.inner.apply_as(caller, op) }
    }

    fn start_again(&mut self) -> Result<(), HarnessFault> {
        self.executed = 0;
        self.inner.reset()
    }

    /// None: the number of operations does not go back.
    fn ways_back(&self) -> Vec<RestoreMethod> {
        Vec::new()
    }
}
