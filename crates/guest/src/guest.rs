//! [`Guest`]: a running guest, as its supervisor sees it.

#![allow(unsafe_code, reason = "starts a process; every block says why it is sound")]

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::boot::{Boot, KEEPER};
use crate::error::{GuestError, Result};
use crate::init::{BOOTED, CommandEnd};
use crate::keeper::{KernelStatus, file};
use crate::private::PrivateDirectory;

/// How often a waiting caller looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A keeper that was asked to end its guest may take so long.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// A tick of the times in proc(5): USER_HZ is 100 on every architecture that Linux runs on as a guest.
const TICK_MILLIS: u64 = 10;

/// A place with less than that is full.
const SPACE_LEFT: u64 = 1 << 20;

/// What to tell somebody whose guest got no further mapping of the host: see
/// [`crate::report::is_out_of_mappings`].
pub fn out_of_mappings() -> String {
    let limit = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    format!(
        "the host refused a process of the guest a further mapping of memory: its memory is limited, or it \
         has vm.max_map_count ({}) of them; as root: sysctl -w vm.max_map_count=1048576",
        limit.trim()
    )
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestEnd {
    /// The command ended, and the guest halted.
    Code(i32),
    /// A signal of the guest's kernel ended the command, and the guest halted.
    Signal(i32),
    /// The guest could not run the command.
    Refused(String),
    /// The kernel ended before the command did: the console has its last words.
    Died(KernelStatus),
}

/// A running guest. It ends with this value.
#[derive(Debug)]
pub struct Guest {
    keeper: Child,
    private: PrivateDirectory,
    /// Bytes of the two outputs that were passed on.
    passed: [u64; 2],
    started: Instant,
}

impl Guest {
    /// Boots a guest.
    ///
    /// # Errors
    /// If there is no room for its memory, or its keeper cannot be started.
    pub fn start(boot: &Boot) -> Result<Guest> {
        Guest::start_with(boot, &[])
    }

    /// Boots a guest that finds these files, by name and contents, in [`crate::boot::MESSAGES`].
    ///
    /// # Errors
    /// As for [`Guest::start`].
    pub fn start_with(boot: &Boot, messages: &[(String, Vec<u8>)]) -> Result<Guest> {
        let private = PrivateDirectory::new(u64::from(boot.memory_mib) << 20)?;
        let dir = private.path();
        write_json(&dir.join(file::KEEPER_PLAN), &boot.keeper_plan(dir)?)?;
        write_json(&dir.join(file::INIT_PLAN), &boot.init_plan())?;
        for (name, text) in messages {
            fs::write(dir.join(name), text).map_err(GuestError::io(name))?;
        }
        let parent = std::process::id() as libc::pid_t;
        let mut command = Command::new(&boot.program);
        command
            .arg(KEEPER)
            .arg(dir)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Signals of the terminal are for us alone.
            .process_group(0);
        // SAFETY: between fork and exec only system calls on a copied value.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                match libc::getppid() == parent {
                    true => Ok(()),
                    false => Err(io::Error::other("nobody waits for the guest")),
                }
            });
        }
        let what = || format!("starting {}", boot.program.display());
        let keeper = command.spawn().map_err(GuestError::io(what()))?;
        Ok(Guest { keeper, private, passed: [0; 2], started: Instant::now() })
    }

    /// The private directory on the host; the guest sees it as [`crate::boot::MESSAGES`].
    pub fn directory(&self) -> &Path {
        self.private.path()
    }

    /// The number of the keeper's process.
    pub fn id(&self) -> u32 {
        self.keeper.id()
    }

    /// How long it has been there.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The number of the kernel's process, once there is one.
    pub fn kernel_process(&self) -> Option<u32> {
        fs::read_to_string(self.directory().join(file::PROCESS)).ok()?.trim().parse().ok()
    }

    /// Processor time that the kernel's process has taken.
    pub fn processor_time(&self) -> Duration {
        let ticks = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.kernel_process()?)).ok()?;
            // proc(5): utime and stime are fields 14 and 15, the name in parentheses is the second.
            let fields = stat.rsplit_once(") ")?.1.split(' ').skip(11).take(2);
            fields.map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()
        };
        Duration::from_millis(ticks().unwrap_or(0) * TICK_MILLIS)
    }

    /// The guest's memory: a file that outlives the guest as long as it is open. `None` while there
    /// is none yet.
    pub fn memory(&self) -> Option<File> {
        let files = PathBuf::from(format!("/proc/{}/fd", self.kernel_process()?));
        // It has no name any more, or never had one.
        let is_memory = |path: &Path| {
            let target = fs::read_link(path).unwrap_or_default();
            target.starts_with(self.directory()) && target.to_string_lossy().ends_with("(deleted)")
        };
        let mut entries = fs::read_dir(&files).ok()?.flatten().map(|entry| entry.path());
        let path = entries.find(|path| is_memory(path))?;
        File::options().read(true).write(true).open(path).ok()
    }

    /// What the kernel has said so far.
    pub fn console(&self) -> String {
        let bytes = fs::read(self.directory().join(file::CONSOLE)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }

    /// What the kernel has said since the command began; all of it if it never did.
    pub fn console_since_boot(&self) -> String {
        let text = self.console();
        match text.split_once(BOOTED) {
            Some((_, after)) => after.trim_start().to_owned(),
            None => text,
        }
    }

    /// Whether its memory, and what its console says, had no room on the host.
    pub fn is_without_space(&self) -> bool {
        let place = rustix::fs::statvfs(self.directory());
        let is_full =
            place.is_ok_and(|place| place.f_bavail.saturating_mul(place.f_frsize) < SPACE_LEFT);
        is_full || crate::report::is_without_space(&self.console())
    }

    /// Whether the command has begun.
    pub fn is_booted(&self) -> bool {
        self.console().contains(BOOTED)
    }

    /// Copies what the command has printed since the last call.
    ///
    /// # Errors
    /// If nobody reads it.
    pub fn pass_on<'a>(
        &mut self,
        out: &'a mut dyn Write,
        err: &'a mut dyn Write,
    ) -> io::Result<()> {
        let targets = [(file::STDOUT, out), (file::STDERR, err)];
        for ((name, target), passed) in targets.into_iter().zip(&mut self.passed) {
            let Ok(mut output) = File::open(self.private.path().join(name)) else { continue };
            output.seek(SeekFrom::Start(*passed))?;
            let mut text = Vec::new();
            output.read_to_end(&mut text)?;
            *passed += text.len() as u64;
            if !text.is_empty() {
                target.write_all(&text)?;
                target.flush()?;
            }
        }
        Ok(())
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// If the keeper was lost.
    pub fn try_wait(&mut self) -> Result<Option<GuestEnd>> {
        match self.keeper.try_wait().map_err(GuestError::io("waiting for a guest"))? {
            Some(_) => self.ended().map(Some),
            None => Ok(None),
        }
    }

    /// Waits for the end, not longer than `within`.
    ///
    /// # Errors
    /// If the keeper was lost.
    pub fn wait(&mut self, within: Duration) -> Result<Option<GuestEnd>> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(end) = self.try_wait()? {
                return Ok(Some(end));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// How the keeper says that it ended.
    fn ended(&self) -> Result<GuestEnd> {
        let read = |name: &str| fs::read(self.directory().join(name)).ok();
        let status: Option<KernelStatus> =
            read(file::STATUS).and_then(|text| serde_json::from_slice(&text).ok());
        let Some(status) = status else {
            return Err(GuestError::KeeperLost);
        };
        if let Some(error) = status.error {
            return Err(GuestError::Keeper { error });
        }
        let end: Option<CommandEnd> =
            read(file::ENDED).and_then(|text| serde_json::from_slice(&text).ok());
        Ok(match end {
            Some(CommandEnd { error: Some(error), .. }) => GuestEnd::Refused(error),
            Some(CommandEnd { code: Some(code), .. }) => GuestEnd::Code(code),
            Some(CommandEnd { signal: Some(signal), .. }) => GuestEnd::Signal(signal),
            _ => GuestEnd::Died(status),
        })
    }

    /// How many random bytes each call of the kernel wanted; known once it has ended.
    pub fn random_calls(&self) -> Vec<u64> {
        let text = fs::read(self.directory().join(file::STATUS)).unwrap_or_default();
        serde_json::from_slice::<KernelStatus>(&text)
            .map_or(Vec::new(), |status| status.random_calls)
    }

    /// Ends the guest now.
    pub fn kill(&mut self) {
        if let Some(pid) =
            i32::try_from(self.keeper.id()).ok().and_then(rustix::process::Pid::from_raw)
            && matches!(self.keeper.try_wait(), Ok(None))
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + ENDED_WITHIN;
        while matches!(self.keeper.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.keeper.kill();
                let _ = self.keeper.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The columns and rows of a terminal; `None` if it is none.
pub fn terminal_size(output: &impl AsRawFd) -> Option<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: fills a local variable.
    let done = unsafe { libc::ioctl(output.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (done == 0).then_some((size.ws_col, size.ws_row))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(value).map_err(io::Error::from);
    let written = text.and_then(|text| fs::write(path, text));
    written.map_err(GuestError::io(path.display().to_string()))
}
