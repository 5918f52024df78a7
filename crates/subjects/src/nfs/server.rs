//! [`Server`]: who exports the store.

use std::path::Path;

use fathom_core::HarnessFault;
use fathom_core::flags::ServerEvents;

use super::ganesha::Ganesha;
use super::nfsd::Nfsd;
use super::setup::{NfsSetup, NfsVersion, ServerKind};
use super::{Place, SubjectError};

/// The port of the server, in the network of the guest.
pub(super) const PORT: u16 = 2049;

/// A running server. Stopped when dropped.
pub(super) enum Server {
    Kernel(Nfsd),
    Ganesha(Ganesha),
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
    pub(super) fn suffer(&mut self, events: ServerEvents) -> Result<(), SubjectError> {
        let ends = ServerEvents::SERVER_STOP | ServerEvents::SERVER_KILL;
        if events.intersects(ends) {
            self.restart(events.contains(ServerEvents::SERVER_KILL))?;
        }
        if events.contains(ServerEvents::EXPORT_REMOVE) {
            self.export_again()?;
        }
        if events.contains(ServerEvents::CLIENT_EXPIRE) {
            self.expire_clients()?;
        }
        Ok(())
    }

    /// Ends it and starts it again; killed, it loses what it knew of its clients.
    fn restart(&mut self, killed: bool) -> Result<(), SubjectError> {
        match self {
            Server::Kernel(server) => server.restart(killed),
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

    /// Takes the export away and brings it back.
    fn export_again(&mut self) -> Result<(), SubjectError> {
        match self {
            Server::Kernel(server) => server.unexport().and_then(|()| server.export()),
            // It reads its configuration again, in which the export is gone, and then back.
            Server::Ganesha(server) => server.export_again(),
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
