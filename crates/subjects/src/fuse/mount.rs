//! [`Mount`]: a RefFS that is mounted, served by threads of this process.
//!
//! # Threads and descriptors
//!
//! A server in the same process as its clients has a trap: when such a process is killed, a client
//! thread that waits for an answer cannot die before the connection is aborted (request_wait_answer,
//! fs/fuse/dev.c), the connection is not aborted before its device is closed, and the device, in the
//! process's descriptor table, is not closed before all threads are dead. The process then hangs
//! for ever. So the serving threads have a descriptor table of their own (`unshare(CLONE_FILES)`),
//! which holds the device and nothing else. They never wait for a client, so they die at once, and
//! with them their table, the device, the connection, and the wait of the clients.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fathom_model::{Config, Volume};
use fuser::{Session, SessionACL};
use rustix::fs::{Mode, OFlags};

use super::attach::{self, Connection, Detached};
use super::control;
use super::error::MountError;
use super::options::Options;
use super::pickle;
use super::server::{Server, Shared};
use super::state::State;
use super::watchdog::Watchdog;

/// The key of the present state among the saved states in a file.
const PRESENT: u64 = u64::MAX;

/// The place of a mount.
#[derive(Debug)]
enum Place {
    /// A directory, watched over in case this process is killed.
    Point(PathBuf, Watchdog),
    /// No directory: the mount is reachable through this descriptor only, and gone with it.
    Detached(OwnedFd),
}

/// A mounted RefFS. Dropping it unmounts it: at once if nobody uses it, else the mount point becomes
/// free and the file system lives on until its last user has gone or this process ends.
#[derive(Debug)]
pub struct Mount {
    place: Option<Place>,
    shared: Arc<Shared>,
    options: Options,
    host: Option<JoinHandle<io::Result<()>>>,
}

impl Mount {
    /// Mounts a new, empty file system on the directory `point`.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn start(point: &Path, config: Config, options: Options) -> Result<Mount, MountError> {
        let shared = Arc::new(Shared::new(Volume::new(config)?));
        Mount::on_point(point, shared, options)
    }

    /// Mounts the file system that [`Mount::keep`] has written, with its saved states.
    pub(super) fn start_from(
        file: &Path,
        point: &Path,
        options: Options,
    ) -> Result<Mount, MountError> {
        let (mut images, numbers) = pickle::read(file).map_err(MountError::state)?;
        let wrong = |what: String| MountError::State(format!("{}: {what}", file.display()));
        let at = images.iter().position(|(key, _)| *key == PRESENT);
        let at = at.ok_or_else(|| wrong("it has saved states, but no file system".to_owned()))?;
        let (_, present) = images.swap_remove(at);
        // File handles name inodes by their numbers.
        let volume = match numbers {
            Some(numbers) => Volume::import_numbered(present, &numbers),
            None => Volume::import(present),
        };
        let shared = Arc::new(Shared::new(volume.map_err(wrong)?));
        let loaded = shared.state().add_snapshots(images);
        loaded.map_err(wrong)?;
        Mount::on_point(point, shared, options)
    }

    /// Writes the file system, which must be unmounted, and its saved states to a file.
    pub(super) fn keep(&self, file: &Path) -> Result<(), MountError> {
        write_all(&self.shared.state(), file)
    }

    /// Mounts a new, empty file system where nobody sees it. For root only.
    ///
    /// # Errors
    /// See [`MountError`].
    pub fn detached(config: Config, options: Options) -> Result<Mount, MountError> {
        let shared = Arc::new(Shared::new(Volume::new(config)?));
        Mount::nowhere(shared, options)
    }

    fn on_point(point: &Path, shared: Arc<Shared>, options: Options) -> Result<Mount, MountError> {
        let point = attach::check_point(point, &options)?;
        // Before the device is open, so that the watchdog cannot inherit it.
        let mut watchdog =
            Watchdog::start(&point).map_err(MountError::os("starting a watchdog"))?;
        let connection = match attach::attach(&point, &options) {
            Ok(connection) => connection,
            Err(error) => {
                watchdog.dismiss();
                return Err(error);
            }
        };
        let armed = watchdog.arm().map_err(MountError::os("starting a watchdog"));
        let served = armed.and_then(|()| Host::start(connection, &shared, &options));
        match served {
            Ok(host) => {
                let place = Some(Place::Point(point, watchdog));
                Ok(Mount { place, shared, options, host: Some(host) })
            }
            Err(error) => {
                // The mount never worked; the error that matters is the one we have.
                let _ = attach::detach(&point);
                watchdog.dismiss();
                Err(error)
            }
        }
    }

    fn nowhere(shared: Arc<Shared>, options: Options) -> Result<Mount, MountError> {
        let (connection, root) = attach::mount_detached(&options)?;
        let host = Host::start(connection, &shared, &options)?;
        Ok(Mount { place: Some(Place::Detached(root)), shared, options, host: Some(host) })
    }

    /// Opens the root directory.
    ///
    /// # Errors
    /// If the mount is gone.
    pub(crate) fn open_root(&self) -> Result<OwnedFd, MountError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match &self.place {
            Some(Place::Point(point, _)) => rustix::fs::open(point, flags, Mode::empty()),
            Some(Place::Detached(root)) => rustix::fs::openat(root, ".", flags, Mode::empty()),
            None => Err(rustix::io::Errno::NOTCONN),
        };
        opened.map_err(MountError::os("opening the root directory"))
    }

    /// Looks at the volume behind the mount, not through the kernel. What programs have stored into
    /// mapped pages and not synced is not in it yet.
    pub fn with_volume<T>(&self, look: impl FnOnce(&Volume) -> T) -> T {
        look(self.shared.state().volume())
    }

    /// Unmounts.
    ///
    /// # Errors
    /// If the kernel refuses for another reason than that the file system is in use; see the type.
    pub fn unmount(mut self) -> Result<(), MountError> {
        self.end().map(drop)
    }

    /// Unmounts and mounts again: everything that only the kernel remembered is forgotten. Nobody may
    /// use the file system.
    ///
    /// # Errors
    /// If it is in use, and for the reasons in [`MountError`]. The mount is then gone.
    pub fn remount(mut self) -> Result<Mount, MountError> {
        let point = match &self.place {
            Some(Place::Point(point, _)) => Some(point.clone()),
            _ => None,
        };
        self.end()?; // in use elsewhere or not: the second mount serves the same volume
        let (shared, options) = (self.shared.clone(), self.options.clone());
        match point {
            Some(point) => Mount::on_point(&point, shared, options),
            None => Mount::nowhere(shared, options),
        }
    }

    /// Whether the file system was unmounted by somebody else, or its server has failed.
    pub fn is_over(&self) -> bool {
        self.host.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Unmounts like [`Mount::unmount`]; the volume can still be looked at. Returns whether nobody
    /// uses the file system any more.
    pub(super) fn end(&mut self) -> Result<bool, MountError> {
        let detached = match self.place.take() {
            None => return Ok(true),
            Some(Place::Detached(root)) => {
                drop(root);
                Detached::Gone
            }
            Some(Place::Point(point, watchdog)) => {
                let detached = attach::detach(&point);
                watchdog.dismiss();
                detached?
            }
        };
        let host = self.host.take().expect("a mount in place has a host");
        if detached == Detached::InUse || !finishes(&host) {
            return Ok(false);
        }
        // The threads have seen the end of the connection. If they failed, that was reported to
        // every caller; if they panicked, on standard error.
        let _ = host.join();
        Ok(true)
    }

    /// Writes the file system as [`Mount::keep`] does, and answers no request from then on: for a
    /// file system that others still use when its server ends. What they are told is then true.
    pub(super) fn keep_and_stop(&self, file: &Path) -> Result<(), MountError> {
        let state = self.shared.state();
        let written = write_all(&state, file);
        // The lock stays taken until the process ends, and with it the connection.
        std::mem::forget(state);
        written
    }
}

/// Writes the present state and all saved ones to a file.
fn write_all(state: &State, file: &Path) -> Result<(), MountError> {
    let mut images = vec![(PRESENT, state.image(state.volume()))];
    let saved = state.snapshots(None).unwrap_or_default();
    images.extend(saved.iter().map(|(key, volume)| (*key, state.image(volume))));
    pickle::write(file, &images, Some(&state.volume().numbers())).map_err(MountError::state)
}

/// Time for the kernel to end a connection after an unmount. If another mount namespace has a copy of
/// the mount, as every container started meanwhile, it does not end.
const PATIENCE: Duration = Duration::from_secs(1);

fn finishes(host: &JoinHandle<io::Result<()>>) -> bool {
    let start = Instant::now();
    while !host.is_finished() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = self.end();
    }
}

/// The thread that owns the connection, and the threads it starts.
struct Host {
    shared: Arc<Shared>,
    options: Options,
    acl: SessionACL,
}

impl Host {
    /// Serves `connection` until it is unmounted.
    fn start(
        connection: Connection,
        shared: &Arc<Shared>,
        options: &Options,
    ) -> Result<JoinHandle<io::Result<()>>, MountError> {
        let acl = if connection.allow_other { SessionACL::All } else { SessionACL::Owner };
        let host = Host { shared: shared.clone(), options: options.clone(), acl };
        let number = connection.device.as_raw_fd();
        let (started, wait) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("reffs".to_owned())
            .spawn(move || host.run(number, &started))
            .map_err(MountError::os("starting a thread"))?;
        // The thread has a copy of the device as soon as it has said anything.
        let result = wait.recv().unwrap_or_else(|_| Err(io::Error::other("the server panicked")));
        drop(connection);
        result.map(|()| thread).map_err(MountError::os("talking to the kernel's FUSE driver"))
    }

    fn run(self, device: RawFd, started: &Sender<io::Result<()>>) -> io::Result<()> {
        let (session, worker) = match self.open_session(device) {
            Ok(parts) => parts,
            Err(error) => {
                let _ = started.send(Err(error));
                return Ok(());
            }
        };
        let _ = started.send(Ok(()));
        let result = session.run();
        // The server is gone and with it the worker's queue.
        let _ = worker.join();
        result
    }

    fn open_session(self, device: RawFd) -> io::Result<(Session<Server>, JoinHandle<()>)> {
        let device = keep_only(device)?;
        let (jobs, queue) = mpsc::channel();
        let server = Server { shared: self.shared.clone(), jobs, options: self.options.clone() };
        let mut config = fuser::Config::default();
        config.n_threads = Some(self.options.threads);
        let session = Session::from_fd(server, device, self.acl, config)?;
        let (notifier, shared) = (session.notifier(), self.shared);
        let worker = thread::Builder::new()
            .name("reffs-worker".to_owned())
            .spawn(move || control::work(&queue, &shared, &notifier))?;
        Ok((session, worker))
    }
}

/// Gives this thread a descriptor table of its own, with standard input, output and error and
/// `kept` in it, so that a killed process does not hang (the module documentation has the reasons).
fn keep_only(kept: RawFd) -> io::Result<OwnedFd> {
    const FIRST: u32 = 3;
    let check = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let number = kept as u32;
    // SAFETY: this thread owns no descriptor yet, and from `unshare` on the numbers here mean
    // descriptors that nobody else can reach: closing them takes nothing from anybody. `kept` was
    // open in the table that was copied, so its copy is open and owned by nobody.
    unsafe {
        check(libc::unshare(libc::CLONE_FILES))?;
        if number > FIRST {
            check(libc::close_range(FIRST, number - 1, 0))?;
        }
        check(libc::close_range(FIRST.max(number + 1), u32::MAX, 0))?;
        Ok(OwnedFd::from_raw_fd(kept))
    }
}
