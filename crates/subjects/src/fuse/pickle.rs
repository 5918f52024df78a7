//! Writes saved states to a file and reads them back.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic `FATHOMPK` |
//! | 4 | version, little endian |
//! | 8 | length of the payload, little endian |
//! | 16 | XXH3-128 of the payload, little endian |
//! | … | payload: zstd of the postcard encoding of a list of (key, [`VolumeImage`]), and of the [`InodeNumbers`] of a file system that was mounted |
//!
//! A file appears complete or not at all: it is written under another name, synced and renamed. It
//! is read completely and checked in every respect before anybody sees a part of it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fathom_core::Digest;
use fathom_model::{InodeNumbers, VolumeImage};

const MAGIC: [u8; 8] = *b"FATHOMPK";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8 + 4 + 8 + 16;

/// Domain of the checksum, which keeps it apart from other uses of the hash.
const DOMAIN: u64 = u64::from_le_bytes(MAGIC);

/// Compression level: zstd's default, three times as fast as 9 for a few percent of size.
const COMPRESSION_LEVEL: i32 = 3;

/// The reason why saved states could not be written or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum PickleError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} does not contain snapshots: it does not begin with FATHOMPK")]
    NotAPickle { path: PathBuf },
    #[error(
        "{path} is of version {found}, this program knows versions up to {VERSION}: use a newer fathom"
    )]
    Newer { path: PathBuf, found: u32 },
    #[error("{path} has {found_bytes} bytes instead of {bytes}: it was cut short or appended to")]
    Length { path: PathBuf, bytes: u64, found_bytes: u64 },
    #[error("{path} is damaged: its checksum is wrong")]
    Damaged { path: PathBuf },
    #[error("{path} is damaged or was made by a different build: {message}")]
    Invalid { path: PathBuf, message: String },
}

/// Writes saved states to `path`.
pub(super) fn write(
    path: &Path,
    images: &[(u64, VolumeImage)],
    numbers: Option<&InodeNumbers>,
) -> Result<(), PickleError> {
    let failed = |what| move |source| PickleError::Io { what, path: path.to_owned(), source };
    let invalid = |error: postcard::Error| PickleError::Invalid {
        path: path.to_owned(),
        message: error.to_string(),
    };
    let mut plain = postcard::to_stdvec(images).map_err(invalid)?;
    if let Some(numbers) = numbers {
        plain = postcard::to_extend(numbers, plain).map_err(invalid)?;
    }
    let payload = zstd::encode_all(&plain[..], COMPRESSION_LEVEL).map_err(failed("compress"))?;

    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed("make a file beside"))?;
    let header = header(&payload);
    let written = file.write_all(&header).and_then(|()| file.write_all(&payload));
    written.and_then(|()| file.as_file().sync_all()).map_err(failed("write"))?;
    file.persist(path).map_err(|error| failed("rename a file to")(error.error))?;
    Ok(())
}

/// What a file holds: saved states, each with its key, and the numbers of inodes of what was mounted.
pub(super) type Pickle = (Vec<(u64, VolumeImage)>, Option<InodeNumbers>);

/// Reads saved states from `path`. What they say of themselves is still to be checked by
/// [`fathom_model::Volume::adopt`].
pub(super) fn read(path: &Path) -> Result<Pickle, PickleError> {
    let bytes = fs::read(path).map_err(|source| PickleError::Io {
        what: "read",
        path: path.to_owned(),
        source,
    })?;
    let payload = checked_payload(path, &bytes)?;
    let invalid = |message: String| PickleError::Invalid { path: path.to_owned(), message };
    let plain = zstd::decode_all(payload).map_err(|error| invalid(error.to_string()))?;
    let (images, rest) =
        postcard::take_from_bytes(&plain).map_err(|error| invalid(error.to_string()))?;
    // Files of earlier versions have no numbers.
    let numbers = (!rest.is_empty()).then(|| postcard::from_bytes(rest)).transpose();
    Ok((images, numbers.map_err(|error| invalid(error.to_string()))?))
}

fn header(payload: &[u8]) -> Vec<u8> {
    let checksum = Digest::of(DOMAIN, payload).0.to_le_bytes();
    let bytes = (payload.len() as u64).to_le_bytes();
    [&MAGIC[..], &VERSION.to_le_bytes(), &bytes, &checksum].concat()
}

fn checked_payload<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a [u8], PickleError> {
    let path = || path.to_owned();
    if !bytes.starts_with(&MAGIC) {
        return Err(PickleError::NotAPickle { path: path() });
    }
    let Some((head, payload)) = bytes.split_at_checked(HEADER_BYTES) else {
        let (bytes, found_bytes) = (HEADER_BYTES as u64, bytes.len() as u64);
        return Err(PickleError::Length { path: path(), bytes, found_bytes });
    };
    let version = u32::from_le_bytes(head[8..12].try_into().expect("4 bytes"));
    if version > VERSION {
        return Err(PickleError::Newer { path: path(), found: version });
    }
    let want = u64::from_le_bytes(head[12..20].try_into().expect("8 bytes"));
    if want != payload.len() as u64 {
        let (bytes, found_bytes) = (want.saturating_add(HEADER_BYTES as u64), bytes.len() as u64);
        return Err(PickleError::Length { path: path(), bytes, found_bytes });
    }
    if version != VERSION || head != header(payload) {
        return Err(PickleError::Damaged { path: path() });
    }
    Ok(payload)
}
