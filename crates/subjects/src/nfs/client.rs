//! [`Client`]: a mount of the export, in no directory.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::system::sethostname;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::proxy;
use super::server::PORT;
use super::services;
use super::setup::{NfsSetup, NfsVersion, ServerKind};
use crate::error::SubjectError;
use crate::kernel::attach;

/// One client. Unmounted when it and everything that is open in it is dropped.
pub(super) struct Client {
    mount: OwnedFd,
}

impl Client {
    /// Mounts the export once for every client.
    pub(super) fn mount_all(setup: &NfsSetup) -> Result<Vec<Client>, SubjectError> {
        (0..setup.clients).map(|number| Client::attach(setup, number)).collect()
    }

    /// Every client beyond the first is another machine to the server: it has another name, and finds the
    /// server at another address, without which the kernel would take it for the same client.
    fn attach(setup: &NfsSetup, number: usize) -> Result<Client, SubjectError> {
        if number == 0 {
            return Client::attach_here(setup, "127.0.0.1");
        }
        let failed = |errno: Errno| SubjectError::io("be", "another machine")(errno.into());
        let attach = || {
            // SAFETY: the namespace of names belongs to this thread, which ends.
            unsafe { unshare_unsafe(UnshareFlags::NEWUTS) }.map_err(failed)?;
            sethostname(format!("client{number}").as_bytes()).map_err(failed)?;
            Client::attach_here(setup, &format!("127.0.0.{}", number + 1))
        };
        std::thread::scope(|scope| {
            let ended = || SubjectError::Nfs("a thread that mounts ended".to_owned());
            scope.spawn(attach).join().unwrap_or_else(|_| Err(ended()))
        })
    }

    fn attach_here(setup: &NfsSetup, address: &str) -> Result<Client, SubjectError> {
        let port = if setup.proxy.is_some() { proxy::PORT } else { PORT };
        let mut options = vec![
            format!("vers={}", setup.version),
            format!("addr={address}"),
            "clientaddr=127.0.0.1".to_owned(),
            format!("port={port}"),
            "proto=tcp".to_owned(),
            "sec=sys".to_owned(),
            "hard".to_owned(),
            // A mount of its own: what another one remembers of the server must not show here.
            "nosharecache".to_owned(),
        ];
        if setup.clients > 1 {
            // A name that a client remembers may lead to a file that another client has replaced. Close-to-open
            // is about files: nfs(5), "Directory entry caching".
            options.push("lookupcache=none".to_owned());
        }
        if setup.version == NfsVersion::V3 {
            let port = match setup.server {
                ServerKind::Kernel => services::PORT,
                ServerKind::Ganesha => services::PORT_OF_MOUNTS,
            };
            options.extend(
                ["mountvers=3", "mountproto=tcp", "mountaddr=127.0.0.1"].map(str::to_owned),
            );
            options.push(format!("mountport={port}"));
        }
        let mount = attach("nfs", &[("source", format!("{address}:/"))], &options);
        Ok(Client { mount: mount.map_err(|error| next_step(error, setup))? })
    }

    /// The mount.
    pub(super) fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }

    /// Its root, as the root of an executor.
    pub(super) fn root(&self) -> Result<OwnedFd, SubjectError> {
        self.mount.try_clone().map_err(SubjectError::io("share", "a mount"))
    }
}

/// Says what to do if the version was refused: by the server (RFC 8881, section 15.1.5.4, or an answer of RPC that names
/// others), or by the client itself.
fn next_step(error: SubjectError, setup: &NfsSetup) -> SubjectError {
    match &error {
        SubjectError::Mount { source, .. }
            if source.raw_os_error() == Some(Errno::PROTONOSUPPORT.raw_os_error()) =>
        {
            SubjectError::Nfs(format!(
                "{} does not speak NFS {}: give another version with --nfs (3, 4.0, 4.1 or 4.2), or a kernel \
                 whose server and client have it, as `fathom guest build 6.12` makes it ({error})",
                match setup.server {
                    ServerKind::Kernel => "the kernel's server",
                    ServerKind::Ganesha => "Ganesha",
                },
                setup.version
            ))
        }
        _ => error,
    }
}
