//! NFS: server and client in one guest, over its loopback network ([ADR 39]).
//!
//! Three parts, each behind the next: a [`Store`] is the file system that is exported, a server exports it
//! (the kernel's, told what to do through its own files, without any daemon, or Ganesha), and clients mount
//! the export. What operations see is the first client.
//!
//! The kernel's server belongs to a whole machine, so all of this is for guests, which have nobody else.
//!
//! # Going back
//!
//! Nothing is unmounted. The kernel is told to forget names and attributes that it does not need
//! (`/proc/sys/vm/drop_caches`), then a store becomes what it was behind the back of server and client: RefFS by
//! its ioctl, others by removing everything. Each client asks once more for its root. Delegations would
//! let a client believe what it has without asking, so leases are switched off.
//!
//! [ADR 39]: ../../../../docs/adr/0039-nfs-in-one-guest.md

mod client;
mod ganesha;
mod locks;
mod lossy;
mod nfsd;
mod proxy;
mod server;
mod services;
mod setup;
mod store;
mod trail;
mod xdr;

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fathom_core::flags::ServerEvents;
use fathom_core::{Capability, FsBytes, HarnessFault, Outcome, RestoreMethod, Saved};
use rustix::fs::{AtFlags, StatxFlags};

use crate::error::SubjectError;
use crate::host::{Backend, HostSubject};
use crate::sys::View;
use client::Client;
use locks::Sides;
use server::{Absence, Server};
use store::Store;
use trail::Trail;

pub(crate) use proxy::ProxyLie;
pub(crate) use setup::ServerLie;
pub use setup::{Behind, NfsSetup, NfsVersion, ServerKind};

/// All lies about NFS: how `--mutant` calls them, and what they do.
pub fn lies() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_servers = ServerLie::ALL.into_iter().map(|lie| (lie.name(), lie.describe()));
    let of_proxies = ProxyLie::ALL.into_iter().map(|lie| (lie.name(), lie.describe()));
    of_servers.chain(of_proxies)
}

/// Where everything is, in the memory of the guest.
const PLACE: &str = "/dev/shm/fathom-nfs";

/// What the names begin with under which a client keeps open files that were removed
/// (fs/nfs/unlink.c `SILLYNAME_PREFIX`).
const SILLY_BEGINNING: &str = ".nfs";

/// Attributes that are access control lists in another form (fs/nfs/nfs4proc.c).
const HIDDEN_XATTRS: [&str; 3] = ["system.nfs4_acl", "system.nfs4_dacl", "system.nfs4_sacl"];

/// On a clock that stands still while something is done, the shortest sleep is a wait for all of it.
const SETTLED: Duration = Duration::from_millis(1);

/// The time that passes after every operation where clients tell versions of a directory apart by its time of
/// change: with NFS 3, and with Ganesha, whose change attribute it is (FSAL/fsal_convert.c). The kernel takes it
/// from a clock of a coarser grain (`CONFIG_HZ` 100): two changes within that would look like one.
const TICK: Duration = Duration::from_millis(20);

/// What the kernel is told to forget, of what is not in use.
#[derive(Clone, Copy)]
enum Forgotten {
    /// Names and inodes; pages of files go with their inodes.
    Names,
    /// Pages, unless they are yet to be written; not names, so that what stands for a file of a server still has to
    /// lead to it.
    Pages,
}

impl Forgotten {
    /// As the file of the kernel has it: Documentation/admin-guide/sysctl/vm.rst, `drop_caches`.
    fn as_told(self) -> &'static str {
        match self {
            Forgotten::Names => "2",
            Forgotten::Pages => "1",
        }
    }
}

/// Whether a server runs in this process: a guest has one.
static RUNS: AtomicBool = AtomicBool::new(false);

/// A file system behind NFS as a subject; see the module documentation.
pub type NfsSubject = HostSubject<NfsBackend>;

/// Client, server and store.
pub struct NfsBackend {
    name: String,
    setup: NfsSetup,
    /// Unmounted first.
    clients: Vec<Client>,
    server: Server,
    store: Store,
    key_next: u64,
    /// Whether something has happened to the server since its clients were mounted.
    disturbed: bool,
    /// Answers to locks that cannot be, until they are asked for.
    wrong_locks: Vec<String>,
    /// If a killed server goes back to something.
    trail: Option<Trail>,
    _place: Place,
}

/// The directory of everything; removed when all of it has gone.
struct Place(PathBuf);

impl Place {
    fn make() -> Result<Place, SubjectError> {
        if RUNS.swap(true, Ordering::SeqCst) {
            let text = "there is one server in a guest already: compare with something else";
            return Err(SubjectError::Nfs(text.to_owned()));
        }
        let place = Place(PathBuf::from(PLACE));
        fs::create_dir_all(&place.0).map_err(SubjectError::io("make", PLACE))?;
        Ok(place)
    }

    /// A directory in it.
    fn dir(&self, name: &str) -> Result<PathBuf, SubjectError> {
        let path = self.0.join(name);
        fs::create_dir_all(&path).map_err(SubjectError::io("make", &path))?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is still mounted stays; a guest ends soon.
        let _ = fs::remove_dir_all(&self.0);
        RUNS.store(false, Ordering::SeqCst);
    }
}

impl NfsSubject {
    /// Makes the store, exports it and mounts the export.
    ///
    /// # Errors
    /// Outside of a guest, or if the kernel has no server or no client.
    pub fn new(name: &str, setup: NfsSetup, view: View) -> Result<NfsSubject, SubjectError> {
        let place = Place::make()?;
        let store = Store::make(&setup.behind, &place.dir("export")?)?;
        let server = Server::start(&place, &setup, store.path())?;
        if let Some(lie) = setup.proxy {
            proxy::start(lie)?;
        }
        if setup.lossy {
            lossy::make_lossy()?;
        }
        let clients = Client::mount_all(&setup)?;
        if matches!(setup.behind, Behind::Memory) {
            let failed = SubjectError::io("make", locks::LOCKED_FILE);
            locks::make_file(clients[0].mount()).map_err(failed)?;
        }
        let forgets_stable = setup.server_lie == Some(ServerLie::ForgetStable);
        let backend = NfsBackend {
            name: name.to_owned(),
            setup,
            clients,
            server,
            store,
            key_next: store::START + 1,
            disturbed: false,
            wrong_locks: Vec::new(),
            trail: forgets_stable.then(Trail::new),
            _place: place,
        };
        let root = backend.root()?;
        let mut view = view;
        view.hidden_beginnings.push(FsBytes::from(SILLY_BEGINNING));
        view.hidden_xattrs.extend(HIDDEN_XATTRS.map(FsBytes::from));
        Ok(HostSubject::with_root(backend, root, view)?)
    }
}

impl NfsBackend {
    /// The root of the client that operations use.
    fn root(&self) -> Result<OwnedFd, SubjectError> {
        self.clients[0].root()
    }

    /// Makes client and server forget what they know, after everything that was begun has ended: the store is
    /// about to become another one, or is to be looked at as it is.
    fn forget_caches(&self, what: Forgotten) -> Result<(), SubjectError> {
        forget_caches(what, self.pause())
    }

    /// Removes everything as a client does, so that the server knows of it. One that cannot reach some of its
    /// files any more (Ganesha: sockets and devices that were made before it was started again) does not
    /// remove them either: it is ended while the store becomes empty, and started again.
    fn empty_through_client(&mut self) -> Result<(), HarnessFault> {
        match store::make_empty(self.clients[0].mount()) {
            Ok(()) => Ok(()),
            Err(error) if matches!(self.setup.behind, Behind::Memory) => Err(error.into()),
            Err(_) => {
                let store = &mut self.store;
                self.server.restart_around(|| store.reset())?;
                self.settle();
                Ok(())
            }
        }
    }

    fn mount_again(&mut self) -> Result<(), SubjectError> {
        self.clients.clear();
        self.clients = Client::mount_all(&self.setup)?;
        Ok(())
    }

    /// Makes client and server strangers to each other again. What a server has noted of its clients (whether they
    /// may reclaim locks, for example) outlives the operations that made it so: a replay of others would find it.
    fn begin_with_new_clients(&mut self) -> Result<(), SubjectError> {
        self.server.end_grace()?;
        self.mount_again()?;
        self.disturbed = false;
        Ok(())
    }

    /// Lets the clients ask for their roots, the only thing that they still know.
    fn ask_for_roots(&self) -> Result<(), SubjectError> {
        proxy::begin_again();
        for client in &self.clients {
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
            rustix::fs::statx(client.mount(), "", flags, StatxFlags::BASIC_STATS)
                .map_err(|errno| SubjectError::io("look at", "the export")(errno.into()))?;
        }
        Ok(())
    }

    /// Lets everything end that was begun: the removal of hidden names after a file was closed.
    fn settle(&self) {
        std::thread::sleep(self.pause());
    }

    fn pause(&self) -> Duration {
        if self.goes_by_time() { TICK } else { SETTLED }
    }

    /// Whether a client learns from times alone that something has changed without it: [`TICK`].
    fn goes_by_time(&self) -> bool {
        let by_others = self.setup.version == NfsVersion::V3 && self.clients.len() > 1;
        by_others || self.server.remembers()
    }
}

impl Backend for NfsBackend {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut capabilities = BTreeSet::from([Capability::Devices]);
        // What Ganesha has in its own memory ends with it.
        if !matches!(self.setup.behind, Behind::Memory) {
            capabilities.insert(Capability::Server);
        }
        capabilities
    }

    fn reset(&mut self) -> Result<OwnedFd, HarnessFault> {
        self.server.ensure_running()?;
        if !self.root_stays() {
            self.begin_with_new_clients()?;
        }
        self.forget_caches(Forgotten::Names)?;
        match self.server.remembers() && !self.store.saves_itself() {
            true => self.empty_through_client()?,
            false => self.store.reset()?,
        }
        if let Some(trail) = &mut self.trail {
            trail.begin_again(&mut self.store);
        }
        self.ask_for_roots()?;
        Ok(self.root()?)
    }

    fn why_no_remount(&self) -> Option<&'static str> {
        None
    }

    /// The client unmounts and mounts; the server does not notice.
    fn remount(&mut self) -> Result<OwnedFd, HarnessFault> {
        self.server.ensure_running()?;
        self.mount_again()?;
        Ok(self.root()?)
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        if self.store.saves_itself() { vec![RestoreMethod::Ioctl] } else { Vec::new() }
    }

    fn save_mounted(&mut self) -> Result<Saved, HarnessFault> {
        let key = self.key_next;
        self.settle();
        self.store.save(key)?;
        self.key_next += 1;
        if let Some(trail) = &mut self.trail {
            trail.note_saved(key);
        }
        Ok(Saved(key))
    }

    fn root_stays(&self) -> bool {
        // What a proxy has told them is no longer a lie about the same store, but they believe it.
        let lied_to = self.setup.proxy.is_some_and(|lie| lie != ProxyLie::None);
        !self.disturbed && !lied_to
    }

    fn restore(&mut self, saved: Saved) -> Result<Option<OwnedFd>, HarnessFault> {
        let root_stays = self.root_stays();
        if !root_stays {
            self.begin_with_new_clients()?;
        }
        self.forget_caches(Forgotten::Names)?;
        self.store.restore(saved.0)?;
        if let Some(trail) = &mut self.trail {
            trail.note_restored(&mut self.store, saved.0);
        }
        self.ask_for_roots()?;
        if root_stays { Ok(None) } else { Ok(Some(self.root()?)) }
    }

    fn forget(&mut self, saved: Saved) {
        match &mut self.trail {
            Some(trail) => trail.forget(&mut self.store, saved.0),
            None => self.store.forget(saved.0),
        }
    }

    fn other_root(&self) -> Result<Option<OwnedFd>, HarnessFault> {
        Ok(self.clients.get(1).map(Client::root).transpose()?)
    }

    fn disturb(&mut self, events: ServerEvents) -> Result<Outcome, HarnessFault> {
        self.disturbed = true;
        let served = self.let_happen(events)?;
        if self.asks_server_afterwards() {
            // What is looked at next is what the server has, not what clients remember. What is open stays open.
            self.forget_caches(Forgotten::Pages)?;
        }
        Ok(Outcome::ok(served))
    }

    /// Of Ganesha clients are not made to forget: what it cannot answer any more after it was killed (sockets and
    /// devices) shows when they ask with what they remember.
    fn asks_server_afterwards(&self) -> bool {
        matches!(self.server, Server::Kernel(_))
    }

    fn after_operation(&mut self) {
        if self.goes_by_time() {
            std::thread::sleep(TICK);
        }
    }

    fn remembers_operations(&self) -> bool {
        self.trail.is_some()
    }

    fn remember_operation(&mut self) -> Result<(), HarnessFault> {
        self.settle();
        let Some(trail) = &mut self.trail else { return Ok(()) };
        trail.advance(&mut self.store, self.key_next)?;
        self.key_next += 1;
        Ok(())
    }

    fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        self.store.complaints()
    }

    fn wrong_locks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.wrong_locks)
    }

    fn has_ended(&mut self) -> bool {
        self.store.has_ended() || self.server.last_words().is_some()
    }

    fn last_words(&mut self) -> Option<String> {
        if let Some(said) = self.server.last_words() {
            return Some(said);
        }
        self.store.has_ended().then(|| "the reference behind the server has ended".to_owned())
    }
}

impl NfsBackend {
    /// Lets something happen to the server; returns how many calls were served from an export that was away.
    fn let_happen(&mut self, events: ServerEvents) -> Result<u64, HarnessFault> {
        let others = events - ServerEvents::LOCK_ROUND;
        let lie = self.setup.server_lie;
        let mut absence = Absence {
            ask: self.clients[0].mount(),
            goes_back: match &mut self.trail {
                Some(trail) => Some((trail, &mut self.store)),
                None => None,
            },
            is_export_kept: lie == Some(ServerLie::KeepExport),
            served: 0,
        };
        if !events.contains(ServerEvents::LOCK_ROUND) || !self.server.locks(&self.setup) {
            self.server.suffer(others, &mut absence)?;
            return Ok(absence.served);
        }
        let (first, last) = (&self.clients[0], &self.clients[self.clients.len() - 1]);
        let sides = Sides {
            first: first.mount(),
            second: last.mount(),
            same_client: self.clients.len() == 1,
        };
        self.wrong_locks.extend(sides.round()?);
        let happens = match lie {
            Some(ServerLie::ForgetLocks) => ServerEvents::CLIENT_EXPIRE,
            _ => others,
        };
        // A client that is not heard of for the time of its lease loses what it holds (RFC 8881, section 8.4.2), and
        // where packets are lost that may be so: nothing is held meanwhile.
        if self.setup.lossy {
            self.server.suffer(happens, &mut absence)?;
        } else if !happens.is_empty() {
            let server = &mut self.server;
            let happen = || server.suffer(happens, &mut absence);
            self.wrong_locks.extend(sides.round_around(happen)?);
        }
        Ok(absence.served)
    }
}

/// Makes the kernel forget what is not in use, after everything that was begun has ended, for which `pause` is enough.
fn forget_caches(what: Forgotten, pause: Duration) -> Result<(), SubjectError> {
    const DROP: &str = "/proc/sys/vm/drop_caches";
    std::thread::sleep(pause);
    fs::write(DROP, what.as_told()).map_err(SubjectError::io("write", DROP))?;
    // The server's threads close the files that it had kept open (fs/nfsd/filecache.c `nfsd_file_lru_scan()`).
    // Whoever removes a directory waits for names in it that are just being forgotten by asking again and again
    // (fs/dcache.c `shrink_dcache_parent()`): on a clock that stands still meanwhile, for ever.
    std::thread::sleep(pause);
    Ok(())
}

/// Writes a line to a file of the kernel, in one call.
fn tell(path: impl AsRef<Path>, text: &str) -> Result<(), SubjectError> {
    use std::io::Write;
    let path = path.as_ref();
    let written = fs::File::options().write(true).open(path);
    let written = written.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
    written.map_err(SubjectError::io("write", path))
}
