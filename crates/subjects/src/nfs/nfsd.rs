//! [`Nfsd`]: the kernel's server, told what to do through its own files.
//!
//! Usually daemons of nfs-utils stand between an administrator and the kernel. What they do for one export
//! is a few lines: the kernel asks who a client is (`auth.unix.ip`), what is exported to it (`nfsd.export`)
//! and which directory a file handle means (`nfsd.fh`), and takes the answers before it asks
//! (fs/nfsd/export.c, net/sunrpc/svcauth_unix.c). Clients that hold something are noted in a directory
//! (fs/nfsd/nfs4recover.c), so that they can reclaim it after a restart.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::server::PORT;
use super::services::{Services, services};
use super::setup::{NfsSetup, NfsVersion};
use super::{Place, SETTLED, tell};
use crate::error::SubjectError;

/// How the client is known to the server.
const DOMAIN: &str = "fathom";
/// The last second that the kernel takes for the end of an entry.
const FOR_EVER: &str = "2147483647";
/// Users and groups without a name.
const NOBODY: &str = "65534";
/// Seconds after which clients that are not heard of lose what they hold, and for which nobody gets anything
/// new after a restart. Short, so that no call waits for longer than a call may.
const LEASE_SECONDS: &str = "10";
/// The same for the lock manager of version 3 (fs/lockd/svc.c): unless told, it grants nothing new for 50
/// seconds after its start, which is longer than a call may take.
const LOCK_GRACE: &str = "/proc/sys/fs/nfs/nlm_grace_period";
/// Ends that time (fs/lockd/procfs.c).
const LOCK_GRACE_END: &str = "/proc/fs/lockd/nlm_end_grace";
/// Longest handle of version 3.
const HANDLE_BYTES_MAX: usize = 64;
/// Threads of the server.
const THREADS: &str = "4";

/// Flags of an export (include/uapi/linux/nfsd/export.h): any port of the client, no checks of directories
/// above, a number of its own. Not: squashing root, answering before something is stable.
const EXPORT_FLAGS: u32 = 0x0002 | 0x0400 | 0x2000;
/// That number: 0, the root of NFS 4.
const FSID: &str = "0";
/// The same as part of a handle: `FSID_NUM` and four bytes.
const FSID_IN_HANDLES: &str = "1 \\x00000000";

/// See the module documentation. Stopped when dropped.
pub(super) struct Nfsd {
    /// Where its files are mounted.
    files: PathBuf,
    recovery: PathBuf,
    /// What is exported.
    path: PathBuf,
    /// Of version 3.
    services: Option<&'static Services>,
}

impl Nfsd {
    /// Starts the server and exports a directory.
    pub(super) fn start(
        place: &Place,
        setup: &NfsSetup,
        path: &Path,
    ) -> Result<Nfsd, SubjectError> {
        let (files, recovery) = (place.dir("nfsd")?, place.dir("recovery")?);
        mount("nfsd", &files, "nfsd", MountFlags::empty(), None).map_err(|errno| {
            SubjectError::Nfs(format!(
                "this kernel has no NFS server (mounting nfsd: {errno}): take one with CONFIG_NFSD, \
                 as `fathom guest build 6.12` makes it"
            ))
        })?;
        // A lease is a promise that nobody changes a file, and we do.
        tell("/proc/sys/fs/leases-enable", "0")?;
        let server = Nfsd {
            files,
            recovery,
            path: path.to_owned(),
            services: match setup.version {
                NfsVersion::V3 => Some(services()?),
                _ => None,
            },
        };
        server.up()?;
        // Nobody has anything to reclaim. Without it the first minute and a half would be spent waiting.
        server.end_grace()?;
        server.export()?;
        Ok(server)
    }

    /// Ends the time in which clients may only reclaim what they had.
    pub(super) fn end_grace(&self) -> Result<(), SubjectError> {
        let file = self.files.join("v4_end_grace");
        match fs::write(&file, "Y") {
            // It is over.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            told => told.map_err(SubjectError::io("write", &file))?,
        }
        // The kernel only begins to end it (fs/nfsd/nfs4state.c `laundromat_main()`).
        std::thread::sleep(SETTLED);
        match self.services {
            Some(_) => tell(LOCK_GRACE_END, "Y"),
            None => Ok(()),
        }
    }

    fn tell(&self, file: &str, text: &str) -> Result<(), SubjectError> {
        tell(self.files.join(file), text)
    }

    fn up(&self) -> Result<(), SubjectError> {
        self.tell("nfsv4recoverydir", &self.recovery.display().to_string())?;
        self.tell("nfsv4leasetime", LEASE_SECONDS)?;
        self.tell("nfsv4gracetime", LEASE_SECONDS)?;
        // Version 3 needs more than the kernel: a port mapper and a service for mounting.
        let versions = if self.services.is_some() { "+3" } else { "-3" };
        self.tell("versions", versions)?;
        if self.services.is_some() {
            tell(LOCK_GRACE, LEASE_SECONDS)?;
        }
        self.tell("portlist", &format!("tcp {PORT}"))?;
        self.tell("threads", THREADS)
    }

    /// Exports the directory to the clients of this machine.
    pub(super) fn export(&self) -> Result<(), SubjectError> {
        let path = self.path.display();
        let answers = [
            ("auth.unix.ip", format!("nfsd 127.0.0.1 {FOR_EVER} {DOMAIN}")),
            ("auth.unix.ip", format!("nfsd 127.0.0.2 {FOR_EVER} {DOMAIN}")),
            (
                "nfsd.export",
                format!("{DOMAIN} {path} {FOR_EVER} {EXPORT_FLAGS} {NOBODY} {NOBODY} {FSID}"),
            ),
            ("nfsd.fh", format!("{DOMAIN} {FSID_IN_HANDLES} {FOR_EVER} {path}")),
        ];
        for (question, answer) in answers {
            tell(channel(question), &answer)?;
        }
        if let Some(services) = self.services {
            let handle = self.handle(&path.to_string());
            services
                .set_handle(handle.map_err(SubjectError::io("ask", "the server for a handle"))?);
        }
        Ok(())
    }

    /// The file handle of an exported directory (fs/nfsd/nfsctl.c `write_filehandle`): asked and answered
    /// in one transaction, in hexadecimal digits.
    fn handle(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut file =
            File::options().read(true).write(true).open(self.files.join("filehandle"))?;
        file.write_all(format!("{DOMAIN} {path} {HANDLE_BYTES_MAX}\n").as_bytes())?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let digits = text.trim().trim_start_matches("\\x");
        let digit = |at| digits.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let handle: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(digit).collect();
        handle.ok_or_else(|| io::Error::other(format!("{text:?} is no handle")))
    }

    /// Takes the export away: whoever asks is told at once that there is nothing. The kernel must not be left without an
    /// answer (by emptying its caches): it then waits for a daemon that might still come, and drops what is asked
    /// meanwhile (net/sunrpc/cache.c `cache_listeners_exist()`), which a client can wait for without end.
    pub(super) fn unexport(&self) -> Result<(), SubjectError> {
        let path = self.path.display();
        tell(channel("nfsd.fh"), &format!("{DOMAIN} {FSID_IN_HANDLES} {FOR_EVER} "))?;
        tell(channel("nfsd.export"), &format!("{DOMAIN} {path} {FOR_EVER}"))
    }

    /// Stops it and starts it again. Clients may reclaim what they had, for a while, unless it was killed:
    /// then it has forgotten who they were. Something is done while it does not run.
    pub(super) fn restart(
        &self,
        killed: bool,
        meanwhile: impl FnOnce() -> Result<(), SubjectError>,
    ) -> Result<(), SubjectError> {
        self.down()?;
        if killed {
            for entry in fs::read_dir(&self.recovery).into_iter().flatten().flatten() {
                // What stays is known.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        meanwhile()?;
        self.up()?;
        self.export()
    }

    /// Takes everything from all clients (fs/nfsd/nfs4state.c `client_ctl_write`); in version 3 that is the locks
    /// that were asked for at the first address (fs/nfsd/nfsctl.c `write_unlock_ip`).
    pub(super) fn expire_clients(&self) -> Result<(), SubjectError> {
        if self.services.is_some() {
            return self.tell("unlock_ip", "127.0.0.1");
        }
        let clients = fs::read_dir(self.files.join("clients"));
        for client in clients.into_iter().flatten().flatten() {
            // One that goes by itself meanwhile is gone, too.
            let _ = tell(client.path().join("ctl"), "expire");
        }
        Ok(())
    }

    /// Stops it: clients wait until it is there again.
    fn down(&self) -> Result<(), SubjectError> {
        self.tell("threads", "0")
    }
}

/// Where the kernel takes answers to one of its questions.
fn channel(question: &str) -> String {
    format!("/proc/net/rpc/{question}/channel")
}

impl Drop for Nfsd {
    fn drop(&mut self) {
        // A guest ends soon.
        let _ = self.down();
        let _ = unmount(&self.files, UnmountFlags::DETACH);
    }
}
