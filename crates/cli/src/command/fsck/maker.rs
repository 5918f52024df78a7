//! [`GuestMaker`]: test disks that a kernel fills are made in a guest.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use fathom_fsck::DiskMaker;
use fathom_guest::{Boot, Guest, GuestEnd, Kernel, report};

use crate::command::guest::run::best_kernel;

/// The variable that names a kernel for tests and for making disks.
const KERNEL: &str = "FATHOM_GUEST_KERNEL";
/// The time that a disk may take to be made, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(240);
/// Where the guest's random bytes come from: the same disk every time.
const SEED: u64 = 1;

/// Makes disks in guests of the kernel that FATHOM_GUEST_KERNEL names, or of the best that is here.
pub(crate) struct GuestMaker;

/// The kernel for disks and for looking at them.
pub(crate) fn kernel() -> Result<Kernel, String> {
    let kernel = match std::env::var(KERNEL) {
        Ok(name) => fathom_guest::resolve(&name).map_err(anyhow::Error::from),
        Err(_) => best_kernel(),
    };
    let next = "name a kernel with FATHOM_GUEST_KERNEL, or build one: fathom guest build 6.12";
    kernel.map_err(|error| format!("{error:#}; {next}"))
}

impl DiskMaker for GuestMaker {
    fn make(&self, script: &Path, image: &Path) -> Result<(), String> {
        let kernel = kernel()?;
        let command = vec![OsString::from("sh"), script.into(), image.into()];
        let text = |error: fathom_guest::GuestError| error.to_string();
        let mut boot = Boot::new(&kernel, SEED, command).map_err(text)?;
        boot.writable.extend(image.parent().map(Path::to_owned));
        let mut guest = Guest::start(&boot).map_err(text)?;
        let end = guest.wait(DEADLINE).map_err(text)?;
        if end.is_none() {
            guest.kill();
        }
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        guest.pass_on(&mut stdout, &mut stderr).map_err(|error| error.to_string())?;
        let said = [stdout, stderr].concat();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        match end {
            Some(GuestEnd::Code(0)) => Ok(()),
            Some(GuestEnd::Code(code)) => {
                Err(format!("the script ended with {code} on {}: {said}", kernel.release))
            }
            None => Err(format!("no end after {} s: {said}", DEADLINE.as_secs())),
            Some(_) => {
                let died = report::read(&guest.console_since_boot());
                let how = died.map_or_else(|| said.clone(), |report| report.title);
                Err(format!("the guest of {} died: {how}", kernel.release))
            }
        }
    }
}
