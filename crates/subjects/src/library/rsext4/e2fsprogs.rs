//! The programs of e2fsprogs: they make the image and give the second opinion.

use std::io::{self, Write};
use std::process::{Command, Output};

use fathom_block::{Erased, Geometry, Image};
use fathom_core::HarnessFault;
use tempfile::NamedTempFile;

use super::BLOCK_BYTES;
use super::device::NOW_SECONDS;

/// Root's programs, which the PATH of an ordinary user does not have.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// From this exit code of e2fsck(8) on, it did not do its work: 8 operational error, 16 usage, 32
/// cancelled, 128 shared library.
const E2FSCK_DID_NOT_RUN: i32 = 8;

/// Everything that mkfs.ext4 would take from the clock or from chance is fixed, nothing is left to a
/// later initialisation, and no blocks are reserved.
const OPTIONS: &str = "-q -F -I 256 -m 0 -N 64 -U 2f6b9d1e-8c3a-4b57-9e40-6a1d2c3b4e50 -E \
    hash_seed=2f6b9d1e-8c3a-4b57-9e40-6a1d2c3b4e5f,nodiscard,lazy_itable_init=0,lazy_journal_init=0";

/// Files and directories beside the root: of the 64 inodes of `OPTIONS` the first 10 are reserved, and one
/// is `lost+found`.
pub(super) const FILES_MAX: u64 = 64 - 10 - 1;

/// An empty ext4.
pub(super) fn format(geometry: &Geometry) -> Result<Image, HarnessFault> {
    let fault = |error: &dyn ToString| HarnessFault::new("formatting ext4", error.to_string());
    let file = NamedTempFile::new().map_err(|error| fault(&error))?;
    file.as_file().set_len(geometry.size_bytes as u64).map_err(|error| fault(&error))?;
    let mut command = program("mkfs.ext4");
    command.env("E2FSPROGS_FAKE_TIME", NOW_SECONDS.to_string());
    command.args(OPTIONS.split_whitespace()).args(["-b", &BLOCK_BYTES.to_string()]);
    let output = command.arg(file.path()).output().map_err(|error| fault(&absent(&error)))?;
    if !output.status.success() {
        return Err(fault(&format!("mkfs.ext4: {}", text(&output))));
    }
    let bytes = std::fs::read(file.path()).map_err(|error| fault(&error))?;
    Ok(Image::from_bytes(&bytes, Erased::Zeros))
}

/// What e2fsck complains of; `None` if it is content or not installed.
pub(super) fn check(image: &Image) -> Result<Option<String>, HarnessFault> {
    let fault = |error: &dyn ToString| HarnessFault::new("asking e2fsck", error.to_string());
    let mut file = NamedTempFile::new().map_err(|error| fault(&error))?;
    file.write_all(&image.to_vec()).map_err(|error| fault(&error))?;
    let output = match program("e2fsck").arg("-fn").arg(file.path()).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        output => output.map_err(|error| fault(&error))?,
    };
    let said = text(&output);
    // An image whose superblock cannot be used ends with 8 as well.
    let about_image = |code| code < E2FSCK_DID_NOT_RUN || said.contains("uperblock");
    match output.status.code() {
        Some(0) => Ok(None),
        Some(code) if about_image(code) => {
            Ok(Some(complaints(&said, &file.path().to_string_lossy())))
        }
        _ => Err(fault(&said)),
    }
}

fn program(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:{SBIN}"));
    command
}

fn absent(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "mkfs.ext4 is not installed: it is in the Debian package e2fsprogs".to_owned()
        }
        _ => format!("mkfs.ext4: {error}"),
    }
}

fn text(output: &Output) -> String {
    let bytes = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// The lines that tell what is wrong: without the progress of the passes, the summary, the version, and
/// the name of the temporary file, which differs from run to run.
fn complaints(text: &str, file: &str) -> String {
    let noise = |line: &str| {
        line.is_empty()
            || line.starts_with("Pass ")
            || line.starts_with("e2fsck ")
            || line.contains(" files (")
    };
    let lines = text.lines().map(str::trim).filter(|line| !noise(line));
    lines.map(|line| line.replace(file, "image")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use fathom_core::plain::DIR_MODE;
    use fathom_core::{Errno, Op, Payload, Subject, Target};

    use super::*;
    use crate::library::rsext4::DEFAULT_GEOMETRY;
    use crate::library::testbed::LibrarySubject;

    #[test]
    fn images_are_the_same_each_time_and_e2fsck_sees_what_is_wrong_with_one() {
        if program("mkfs.ext4").arg("-V").output().is_err() {
            return println!("SKIP e2fsprogs: mkfs.ext4 is not installed");
        }
        let mut image = format(&DEFAULT_GEOMETRY).unwrap();
        assert_eq!(image, format(&DEFAULT_GEOMETRY).unwrap());
        assert_eq!(check(&image).unwrap(), None);
        // The free blocks in the descriptor of the only group (offset 12 of block 2), not its checksum.
        image.write(2048 + 12, &[7]);
        let complaint = check(&image).unwrap().unwrap();
        assert!(complaint.contains("checksum") && !complaint.contains("Pass "), "{complaint}");
        let blank = check(&DEFAULT_GEOMETRY.blank_image()).unwrap().unwrap();
        assert!(blank.contains("Bad magic number") && blank.contains("open image"), "{blank}");
    }

    /// Inodes that are used up are told: an `ENOSPC` then is no lie.
    #[test]
    fn the_inodes_of_rsext4_are_counted() {
        if program("mkfs.ext4").arg("-V").output().is_err() {
            return println!("SKIP the_inodes_of_rsext4_are_counted: mkfs.ext4 is not installed");
        }
        let backed = crate::library::rsext4::open(None).expect("it is built in");
        let files_max = backed.files_max().expect("ext4 has so many inodes");
        let mut subject = LibrarySubject::new("rsext4".to_owned(), backed, true).expect("made");
        let mut made = 0;
        let refused = loop {
            let path = format!("d{made}");
            let op = Op::Mkdir { path: path.as_str().into(), mode: DIR_MODE };
            match subject.apply(&op).expect("no fault").result {
                Ok(_) => made += 1,
                Err(errno) => break errno,
            }
        };
        assert_eq!((made, refused), (files_max, Errno::ENOSPC));
        let answer =
            subject.apply(&Op::Statfs { target: Target::Path(".".into()) }).expect("no fault");
        let Payload::Statfs(statfs) = answer.payload else { panic!("{answer}") };
        assert_eq!((statfs.files, statfs.files_free), (files_max, 0));
    }
}
