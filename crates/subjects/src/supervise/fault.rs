//! [`DyingSubject`]: the reference, and a death at a given operation. It exists to test the tester:
//! the ends of a process that a file system can cause cannot be had for the asking.

#![allow(unsafe_code, reason = "ends its own process; every block says why it is sound")]

use std::collections::BTreeSet;

use fathom_core::{
    Capability, FsPath, HarnessFault, Op, Outcome, PathState, RestoreMethod, Saved, Subject,
    Testbed, Tree,
};
use fathom_model::ModelSubject;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process gets a SIGSEGV.
    Segv,
    /// The process gets a SIGKILL.
    Kill,
    /// Only the thread ends, as after an oops of the kernel.
    Thread,
    /// Memory is used without end.
    Memory,
    /// The call never returns.
    Hang,
    /// The harness panics.
    Panic,
}

impl Death {
    /// Every death, with its name.
    pub const ALL: [(&'static str, Death); 6] = [
        ("dies-by-segv", Death::Segv),
        ("dies-by-kill", Death::Kill),
        ("dies-by-oops", Death::Thread),
        ("eats-memory", Death::Memory),
        ("hangs", Death::Hang),
        ("panics", Death::Panic),
    ];
}

/// See the module documentation.
pub struct DyingSubject {
    name: String,
    inner: ModelSubject,
    death: Death,
    /// Operations since the last reset that are executed before.
    after: u64,
    executed: u64,
}

impl DyingSubject {
    /// A subject called `test:NAME`, with NAME as in `dies-by-segv-after-50`; `None` if there is no
    /// such death.
    pub fn new(name: &str, inner: ModelSubject) -> Option<DyingSubject> {
        let (death, after) = DyingSubject::parse(name)?;
        Some(DyingSubject { name: format!("test:{name}"), inner, death, after, executed: 0 })
    }

    /// The meaning of a name.
    pub fn parse(name: &str) -> Option<(Death, u64)> {
        let (death, after) = name.rsplit_once("-after-")?;
        let (_, death) = Death::ALL.iter().find(|(known, _)| *known == death)?;
        Some((*death, after.parse().ok()?))
    }

    fn die(&self) {
        // SAFETY: each takes numbers only; what becomes of the process is the purpose.
        unsafe {
            match self.death {
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
            }
        }
    }
}

impl Subject for DyingSubject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.inner.capabilities()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        if self.executed == self.after {
            self.die();
        }
        self.executed += 1;
        self.inner.apply(op)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.inner.observe()
    }
}

impl Testbed for DyingSubject {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.executed = 0;
        self.inner.reset()
    }

    fn observe_paths(&mut self, paths: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
        self.inner.observe_paths(paths)
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        Vec::new()
    }

    fn forget(&mut self, _: Saved) {}
}
