//! [`Server`]: who exports the store.

use std::os::fd::BorrowedFd;
use std::path::Path;

use fathom_core::HarnessFault;
use fathom_core::flags::ServerEvents;
use rustix::fs::{AtFlags, StatxFlags};

use super::ganesha::Ganesha;
use super::nfsd::Nfsd;
use super::setup::{NfsSetup, NfsVersion, ServerKind};
use super::store::Store;
use super::trail::Trail;
use super::{Forgotten, Place, SETTLED, SubjectError, forget_caches};

/// The port of the server, in the network of the guest.
pub(super) const PORT: u16 = 2049;

/// A running server. Stopped when dropped.
pub(super) enum Server {
    Kernel(Nfsd),
    Ganesha(Ganesha),
}

/// What is done while a server or its export is away.
pub(super) struct Absence<'a> {
    /// The root of a client.
    pub(super) ask: BorrowedFd<'a>,
    /// The store goes back while a killed server does not run: a lie.
    pub(super) goes_back: Option<(&'a mut Trail, &'a mut Store)>,
    /// The export is not taken away: a lie.
    pub(super) is_export_kept: bool,
    /// How many calls were served from an export that was away.
    pub(super) served: u64,
}

impl Absence<'_> {
    fn go_back(&mut self) -> Result<(), SubjectError> {
        let Some((trail, store)) = &mut self.goes_back else { return Ok(()) };
        // As wherever a store becomes another one.
        forget_caches(Forgotten::Names, SETTLED)?;
        store.restore(trail.before())?;
        trail.went_back(store);
        Ok(())
    }

    /// Asks the server, past what the client remembers. Which refusal it is differs from version to version; that it
    /// comes at all is for the deadline of the operation to see. The root alone is asked for: a file that a server
    /// once denied (`ESTALE`) stays unusable for whoever has it open (fs/nfs/inode.c `nfs_set_inode_stale()`).
    fn ask_for_export(&mut self) {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let answer = rustix::fs::statx(self.ask, "", flags, StatxFlags::BASIC_STATS);
        self.served += u64::from(answer.is_ok());
    }
}

impl Server {
    /// Starts the server and exports a directory.
    pub(super) fn start(
        place: &Place,
        setup: &NfsSetup,
        path: &Path,
    ) -> Result<Server, SubjectError> {
        Ok(match setup.server {
            ServerKind::Kernel => Server::Kernel(Nfsd::start(place, setup, path)?),
            ServerKind::Ganesha => Server::Ganesha(Ganesha::start(place, setup, path)?),
        })
    }

    /// Brings it back if it has ended by itself.
    pub(super) fn ensure_running(&mut self) -> Result<(), SubjectError> {
        match self {
            Server::Kernel(_) => Ok(()),
            Server::Ganesha(server) => server.ensure_running(),
        }
    }

    /// Ends the time after a start in which clients may only reclaim what they had.
    pub(super) fn end_grace(&self) -> Result<(), SubjectError> {
        match self {
            Server::Kernel(server) => server.end_grace(),
            Server::Ganesha(server) => {
                server.await_end_of_grace();
                Ok(())
            }
        }
    }

    /// Whether it believes what it remembers of the store although that is another one now.
    pub(super) fn remembers(&self) -> bool {
        matches!(self, Server::Ganesha(_))
    }

    /// Whether locks are tried. Not with NFS 3 of Ganesha, whose lock manager would have to share the port mapper
    /// of the guest with that of the client.
    pub(super) fn locks(&self, setup: &NfsSetup) -> bool {
        matches!(self, Server::Kernel(_)) || setup.version != NfsVersion::V3
    }

    /// Lets something happen to it, until it is over.
    pub(super) fn suffer(
        &mut self,
        events: ServerEvents,
        absence: &mut Absence<'_>,
    ) -> Result<(), SubjectError> {
        let ends = ServerEvents::SERVER_STOP | ServerEvents::SERVER_KILL;
        if events.contains(ServerEvents::SERVER_KILL) {
            self.restart(true, || absence.go_back())?;
        } else if events.intersects(ends) {
            self.restart(false, || Ok(()))?;
        }
        if events.contains(ServerEvents::EXPORT_REMOVE) {
            self.export_again(absence)?;
        }
        if events.contains(ServerEvents::CLIENT_EXPIRE) {
            self.expire_clients()?;
        }
        Ok(())
    }

    /// Ends it and starts it again; killed, it loses what it knew of its clients.
    fn restart(
        &mut self,
        killed: bool,
        meanwhile: impl FnOnce() -> Result<(), SubjectError>,
    ) -> Result<(), SubjectError> {
        match self {
            Server::Kernel(server) => server.restart(killed, meanwhile),
            Server::Ganesha(server) => server.restart(killed),
        }
    }

    /// Does something while it does not run, after which it knows nothing of its store. Only for one that is a
    /// process: the kernel's server believes nothing of what it remembers.
    pub(super) fn restart_around(
        &mut self,
        meanwhile: impl FnOnce() -> Result<(), HarnessFault>,
    ) -> Result<(), HarnessFault> {
        match self {
            Server::Kernel(_) => meanwhile(),
            Server::Ganesha(server) => server.restart_around(meanwhile),
        }
    }

    /// Takes the export away, lets a client ask for it, and brings it back.
    fn export_again(&mut self, absence: &mut Absence<'_>) -> Result<(), SubjectError> {
        match self {
            Server::Kernel(server) => {
                if !absence.is_export_kept {
                    server.unexport()?;
                }
                absence.ask_for_export();
                server.export()
            }
            // Without a session bus it cannot be told to export nothing: it ends and starts again.
            Server::Ganesha(server) => server.restart(false),
        }
    }

    /// Forgets what clients hold, as if they had not been heard of for too long.
    fn expire_clients(&mut self) -> Result<(), SubjectError> {
        match self {
            Server::Kernel(server) => server.expire_clients(),
            Server::Ganesha(_) => Ok(()),
        }
    }

    /// If it has ended by itself: what it said last.
    pub(super) fn last_words(&mut self) -> Option<String> {
        match self {
            Server::Kernel(_) => None,
            Server::Ganesha(server) => server.last_words(),
        }
    }
}
