//! [`Ganesha`]: NFS-Ganesha from its Debian packages, as a process with a configuration of ours.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fathom_core::HarnessFault;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, kill_process};

use super::server::PORT;
use super::services::{self, services};
use super::setup::{Behind, NfsSetup, NfsVersion};
use super::{Place, SubjectError};

const PROGRAM: &str = "/usr/bin/ganesha.nfsd";
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu/ganesha";

/// Directories of the system that it writes to. In a guest the files of the host can only be read.
const WRITTEN: [&str; 2] = ["/run", "/var/lib/nfs"];

/// Where programs ask for the port mapper of their own machine.
const PORT_MAPPER: &str = "/run/rpcbind.sock";

/// Seconds after which clients that are not heard of lose what they hold, and for which nobody gets anything
/// new after a start, as with the kernel's server.
const LEASE_SECONDS: u32 = 10;
/// What the back end in memory keeps of every file; it makes the rest up (FSAL_MEM/mem_handle.c `mem_read2`).
/// The largest value that it takes.
const MEMORY_FILE_BYTES: u32 = 0x0020_0000;
/// How long it may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The last lines of its log that are told.
const TOLD_LINES: usize = 5;

/// A running process. Killed when dropped.
pub(super) struct Ganesha {
    process: Child,
    place: PathBuf,
}

impl Ganesha {
    pub(super) fn start(
        place: &Place,
        setup: &NfsSetup,
        path: &Path,
    ) -> Result<Ganesha, SubjectError> {
        let library = match setup.behind {
            Behind::Memory => ("MEM", "libfsalmem.so", "nfs-ganesha-mem"),
            _ => ("VFS", "libfsalvfs.so", "nfs-ganesha-vfs"),
        };
        let packages = [
            (PathBuf::from(PROGRAM), "nfs-ganesha"),
            (Path::new(LIBRARIES).join(library.1), library.2),
        ];
        if let Some((_, package)) = packages.iter().find(|(file, _)| !file.exists()) {
            return Err(SubjectError::Nfs(format!(
                "Ganesha is not installed: it is in the Debian packages nfs-ganesha, nfs-ganesha-vfs and \
                 nfs-ganesha-mem ({package} is missing)"
            )));
        }
        for dir in WRITTEN {
            mount("tmpfs", dir, "tmpfs", MountFlags::empty(), None)
                .map_err(|errno| SubjectError::io("mount on", dir)(errno.into()))?;
        }
        let made = ["/run/ganesha", "/var/lib/nfs/ganesha"].map(fs::create_dir_all);
        made.into_iter().collect::<Result<(), _>>().map_err(SubjectError::io("make", "/run"))?;
        if setup.version == NfsVersion::V3 {
            services()?.listen_locally(PORT_MAPPER)?;
        }
        let place = place.dir("ganesha")?;
        let text = configuration(setup, library.0, path, &place);
        let file = place.join("ganesha.conf");
        fs::write(&file, text).map_err(SubjectError::io("write", &file))?;
        let process = spawn(&place)?;
        let mut server = Ganesha { process, place };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), SubjectError> {
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).is_err() {
            if let Some(said) = self.last_words() {
                return Err(SubjectError::Nfs(format!("Ganesha ended: {said}")));
            }
            if start.elapsed() > PATIENCE {
                return Err(SubjectError::Nfs(format!("Ganesha does not answer: {}", self.said())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    pub(super) fn restart(&mut self, killed: bool) -> Result<(), SubjectError> {
        if killed {
            // It may have ended by itself.
            let _ = self.process.kill();
        } else if let Some(pid) = Pid::from_raw(self.process.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        self.wait_until_ended()?;
        self.process = spawn(&self.place)?;
        self.wait_until_ready()
    }

    /// Kills it, does something, and starts it again.
    pub(super) fn restart_around(
        &mut self,
        meanwhile: impl FnOnce() -> Result<(), HarnessFault>,
    ) -> Result<(), HarnessFault> {
        // It may have ended by itself.
        let _ = self.process.kill();
        self.wait_until_ended()?;
        meanwhile()?;
        self.process = spawn(&self.place)?;
        Ok(self.wait_until_ready()?)
    }

    /// Starts it again if it has ended by itself, which was told: clients would wait for it for ever.
    pub(super) fn ensure_running(&mut self) -> Result<(), SubjectError> {
        if self.last_words().is_none() {
            return Ok(());
        }
        self.process = spawn(&self.place)?;
        self.wait_until_ready()
    }

    /// Waits until nobody can reclaim anything any more; it cannot be told to.
    pub(super) fn await_end_of_grace(&self) {
        std::thread::sleep(Duration::from_secs(u64::from(LEASE_SECONDS)));
    }

    fn wait_until_ended(&mut self) -> Result<(), SubjectError> {
        let start = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) {
            if start.elapsed() > PATIENCE {
                // Whoever waits for it waits for ever: it may itself wait in the kernel.
                let _ = self.process.kill();
                return Err(SubjectError::Nfs(format!("Ganesha does not end: {}", self.said())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    pub(super) fn last_words(&mut self) -> Option<String> {
        match self.process.try_wait() {
            Ok(None) => None,
            _ => Some(self.said()),
        }
    }

    /// The last lines of its log.
    fn said(&self) -> String {
        let log = fs::read_to_string(self.place.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TOLD_LINES)..].join("; ")
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // What it served is about to go, too.
        let _ = self.process.kill();
        let _ = self.wait_until_ended();
        for dir in WRITTEN {
            let _ = rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn spawn(place: &Path) -> Result<Child, SubjectError> {
    Command::new(PROGRAM)
        .args(["-F", "-N", "NIV_EVENT", "-f"])
        .arg(place.join("ganesha.conf"))
        .arg("-L")
        .arg(place.join("log"))
        .arg("-p")
        .arg(place.join("pid"))
        .process_group(0)
        // Operations are executed in the export. A server that starts there would be the last to use its own
        // client, and wait for itself when it ends: DESTROY_SESSION of NFS 4.1 (fs/nfs/nfs4client.c
        // `nfs41_shutdown_client()`).
        .current_dir("/")
        // Operations may be those of another user, who stays the real one when we act for ourselves, and access(2),
        // by which it looks for its log, goes by the real one: it would end without a word.
        .uid(0)
        .gid(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(SubjectError::io("start", PROGRAM))
}

/// ganesha-core-config(8), ganesha-cache-config(8), ganesha-export-config(8): one export, which is believed
/// only as long as nobody else could have changed it, that is, not at all.
fn configuration(setup: &NfsSetup, library: &str, path: &Path, place: &Path) -> String {
    let protocol = if setup.version == NfsVersion::V3 { 3 } else { 4 };
    let (path, place, mount_port) = (path.display(), place.display(), services::PORT_OF_MOUNTS);
    format!(
        "NFS_CORE_PARAM {{ Protocols = {protocol}; NFS_Port = {PORT}; MNT_Port = {mount_port}; \
         Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; mount_path_pseudo = true; }}\n\
         NFSV4 {{ RecoveryRoot = {place}; Grace_Period = {LEASE_SECONDS}; Lease_Lifetime = {LEASE_SECONDS}; \
         Minor_Versions = 0,1,2; Only_Numeric_Owners = true; Delegations = false; }}\n\
         MEM {{ Inode_Size = {MEMORY_FILE_BYTES}; }}\n\
         EXPORT {{ Export_Id = 1; Path = {path}; Pseudo = /; Access_Type = RW; \
         Squash = No_Root_Squash; SecType = sys; Protocols = {protocol}; Transports = TCP; \
         Attr_Expiration_Time = 0; FSAL {{ Name = {library}; }} }}\n"
    )
}
