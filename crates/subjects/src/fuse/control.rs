//! The server's side of the snapshot ioctls.
//!
//! SAVE, DROP and LIST are answered at once. What takes time, opens files or makes the kernel write
//! back pages is a [`Job`] for a thread of its own: while it waits for the kernel, the kernel may be
//! waiting for answers to other requests, which the serving threads go on to give.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use fathom_core::Errno;
use fuser::{INodeNo, Notifier, ReplyIoctl, Request};

use super::convert::errno;
use super::pickle;
use super::server::{Server, Shared};
use super::snapshot::{
    LIST_KEYS_MAX, PICKLE_ALL, RESTORE_DISCARD, file_call, number, text, word, words,
};
use super::state::Told;

/// Work for [`work`], with the reply that its answer goes to.
#[derive(Debug)]
pub(super) enum Job {
    Restore {
        key: u64,
        discard: bool,
        /// Whether the kernel believes what it was told of names and attributes.
        remembered: bool,
        reply: ReplyIoctl,
    },
    Pickle {
        key: Option<u64>,
        path: PathBuf,
        reply: ReplyIoctl,
    },
    Load {
        path: PathBuf,
        reply: ReplyIoctl,
    },
}

/// Answers an ioctl.
pub(super) fn answer(server: &Server, req: &Request, cmd: u32, argument: &[u8], reply: ReplyIoctl) {
    use number::{DROP, LIST, LOAD, PICKLE, RESTORE, SAVE};
    if ![SAVE, RESTORE, DROP, LIST, PICKLE, LOAD].contains(&cmd) {
        return reply.error(errno(Errno::ENOTTY));
    }
    if req.uid() != 0 && req.uid() != server.shared.owner_uid {
        return reply.error(errno(Errno::EPERM));
    }
    let Some(key) = word(argument, 0) else { return reply.error(errno(Errno::EINVAL)) };
    let flags = word(argument, 1).unwrap_or(0);
    match cmd {
        SAVE => answer_done(reply, server.shared.state().save(key)),
        DROP => answer_done(reply, server.shared.state().drop_snapshot(key)),
        RESTORE => restore(server, key, flags & RESTORE_DISCARD != 0, reply),
        LIST => list(server, key, reply),
        PICKLE => {
            let key = (flags & PICKLE_ALL == 0).then_some(key);
            with_path(server, argument, reply, |path, reply| Job::Pickle { key, path, reply });
        }
        _ => with_path(server, argument, reply, |path, reply| Job::Load { path, reply }),
    }
}

fn answer_done(reply: ReplyIoctl, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ioctl(0, &[]),
        Err(e) => reply.error(errno(e)),
    }
}

fn restore(server: &Server, key: u64, discard: bool, reply: ReplyIoctl) {
    let remembered = !server.options.remembered.is_zero();
    let mut state = server.shared.state();
    if state.inodes_with_pages().is_empty() && !remembered {
        // The kernel holds nothing that it will not ask for again: no need to wait for it.
        let result = state.restore(key, discard);
        drop(state);
        return answer_done(reply, result);
    }
    drop(state);
    enqueue(server, Job::Restore { key, discard, remembered, reply });
}

fn list(server: &Server, start: u64, reply: ReplyIoctl) {
    let keys: Vec<u64> = server.shared.state().keys_from(start).take(LIST_KEYS_MAX).collect();
    let mut answer = words(&[keys.len() as u64]);
    answer.extend_from_slice(&words(&keys));
    reply.ioctl(0, &answer);
}

fn with_path(
    server: &Server,
    argument: &[u8],
    reply: ReplyIoctl,
    job: impl FnOnce(PathBuf, ReplyIoctl) -> Job,
) {
    match text(argument).map(|path| Path::new(OsStr::from_bytes(path.to_bytes()))) {
        // Relative to what? The server's working directory is not the caller's.
        Some(path) if path.is_absolute() => enqueue(server, job(path.to_owned(), reply)),
        _ => reply.error(errno(Errno::EINVAL)),
    }
}

fn enqueue(server: &Server, job: Job) {
    // Without the worker (it has panicked) the job is dropped, and its reply with it: EIO.
    let _ = server.jobs.send(job);
}

/// Does jobs until the session is over.
pub(super) fn work(jobs: &Receiver<Job>, shared: &Arc<Shared>, notifier: &Notifier) {
    for job in jobs {
        match job {
            Job::Restore { key, discard, remembered, reply } => {
                // First what programs have stored into mapped pages, so that it is written to the
                // state it belongs to and not over the restored one.
                invalidate_pages(shared, notifier);
                let told = if remembered { shared.state().told() } else { Told::default() };
                invalidate_told(&told, notifier);
                let result = shared.state().restore(key, discard);
                // Then the pages that were read meanwhile, so that the next access sees the
                // restored state.
                invalidate_pages(shared, notifier);
                invalidate_told(&told, notifier);
                answer_done(reply, result);
            }
            Job::Pickle { key, path, reply } => answer_pickle(shared, key, &path, reply),
            Job::Load { path, reply } => answer_load(shared, &path, reply),
        }
    }
}

/// Makes the kernel write back and drop the pages of every open file. Must not be called with the
/// state locked: writing back sends requests.
fn invalidate_pages(shared: &Shared, notifier: &Notifier) {
    let inodes = shared.state().inodes_with_pages();
    for ino in inodes {
        // From 0, without end. An inode that the kernel has dropped meanwhile needs nothing.
        let _ = notifier.inval_inode(INodeNo(ino), 0, 0);
    }
}

/// Makes the kernel ask again for names, attributes and contents that it knows of the state that is left.
fn invalidate_told(told: &Told, notifier: &Notifier) {
    // What the kernel has forgotten meanwhile needs nothing.
    for (dir, name) in &told.names {
        let _ = notifier.inval_entry(INodeNo(*dir), OsStr::from_bytes(name.as_bytes()));
    }
    for ino in &told.inodes {
        let _ = notifier.inval_inode(INodeNo(*ino), 0, 0);
    }
}

fn answer_pickle(shared: &Shared, key: Option<u64>, path: &Path, reply: ReplyIoctl) {
    let snapshots = match shared.state().snapshots(key) {
        Ok(snapshots) => snapshots,
        Err(e) => return reply.error(errno(e)),
    };
    // One after the other, so that nobody waits for all of them.
    let images: Vec<_> =
        snapshots.iter().map(|(key, volume)| (*key, shared.state().image(volume))).collect();
    match pickle::write(path, &images, None) {
        Ok(()) => reply.ioctl(0, &file_call(images.len() as u64, 0, b"")),
        Err(error) => answer_message(reply, &error.to_string()),
    }
}

fn answer_load(shared: &Shared, path: &Path, reply: ReplyIoctl) {
    let loaded = match pickle::read(path) {
        Ok((loaded, _)) => loaded,
        Err(error) => return answer_message(reply, &error.to_string()),
    };
    let count = loaded.len() as u64;
    match shared.state().add_snapshots(loaded) {
        Ok(()) => reply.ioctl(0, &file_call(count, 0, b"")),
        Err(what) => answer_message(reply, &format!("cannot load {}: {what}", path.display())),
    }
}

/// Answers with a failure and a message: a negative result still copies the answer to the caller
/// (fuse_do_ioctl, fs/fuse/ioctl.c).
fn answer_message(reply: ReplyIoctl, message: &str) {
    reply.ioctl(-i32::from(Errno::EIO.0), &file_call(0, 0, message.as_bytes()));
}
