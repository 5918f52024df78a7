//! [`NfsSetup`]: which store, which server, which version of the protocol.

use std::fmt;
use std::str::FromStr;

use fathom_model::{Config, Mutant};

use super::proxy::ProxyLie;

use crate::Recipe;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum NfsVersion {
    /// RFC 1813.
    V3,
    /// RFC 7530.
    V40,
    /// RFC 8881.
    V41,
    /// RFC 7862.
    #[default]
    V42,
}

impl NfsVersion {
    /// All of them.
    pub const ALL: [NfsVersion; 4] =
        [NfsVersion::V3, NfsVersion::V40, NfsVersion::V41, NfsVersion::V42];

    /// As mount options and the command line have it.
    pub fn name(self) -> &'static str {
        match self {
            NfsVersion::V3 => "3",
            NfsVersion::V40 => "4.0",
            NfsVersion::V41 => "4.1",
            NfsVersion::V42 => "4.2",
        }
    }

    /// The profile that says what this version changes.
    pub fn layer(self) -> String {
        format!("nfs-{}", self.name())
    }
}

impl fmt::Display for NfsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for NfsVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<NfsVersion, String> {
        let found = NfsVersion::ALL.into_iter().find(|version| version.name() == text);
        found.ok_or_else(|| match text {
            "2" => "no server speaks NFS 2 any more: use 3, 4.0, 4.1 or 4.2".to_owned(),
            "4" => "which NFS 4: use 4.0, 4.1 or 4.2".to_owned(),
            _ => format!("{text:?} is no version of NFS: use 3, 4.0, 4.1 or 4.2"),
        })
    }
}

/// Who serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerKind {
    /// The kernel's own server.
    #[default]
    Kernel,
    /// NFS-Ganesha, in user space.
    Ganesha,
}

impl ServerKind {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            ServerKind::Kernel => "kernel",
            ServerKind::Ganesha => "ganesha",
        }
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ServerKind {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerKind, String> {
        let known = [ServerKind::Kernel, ServerKind::Ganesha];
        let found = known.into_iter().find(|server| server.name() == text);
        found.ok_or_else(|| format!("{text:?} is no server: use kernel or ganesha"))
    }
}

/// A way in which a server breaks its word when something happens to it, which must be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerLie {
    /// The kernel's server forgets what a client holds while another one tries to lock.
    ForgetLocks,
    /// A server that is killed loses what the last operation before did.
    ForgetStable,
    /// What is no longer exported is served.
    KeepExport,
}

impl ServerLie {
    /// All of them.
    pub(crate) const ALL: [ServerLie; 3] =
        [ServerLie::ForgetLocks, ServerLie::ForgetStable, ServerLie::KeepExport];

    /// As the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ServerLie::ForgetLocks => "forget-locks",
            ServerLie::ForgetStable => "forget-stable",
            ServerLie::KeepExport => "keep-export",
        }
    }

    /// What it does, and with what.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            ServerLie::ForgetLocks => {
                "the server forgets locks while another client tries for them (--clients 2)"
            }
            ServerLie::ForgetStable => {
                "a server that is killed has lost what the last operation before did, which it had \
                 acknowledged as stable (nfs:reffs)"
            }
            ServerLie::KeepExport => "an export that was removed is still served",
        }
    }
}

impl FromStr for ServerLie {
    type Err = ();

    fn from_str(text: &str) -> Result<ServerLie, ()> {
        ServerLie::ALL.into_iter().find(|lie| lie.name() == text).ok_or(())
    }
}

/// What is behind the server.
#[derive(Clone, Debug)]
pub enum Behind {
    /// The reference, served through FUSE by a process of its own.
    Reffs {
        /// Its capacity.
        config: Box<Config>,
        /// A bug to switch on.
        mutant: Option<Mutant>,
    },
    /// A file system of the kernel.
    Kernel(Box<Recipe>),
    /// What Ganesha keeps in its own memory.
    Memory,
}

/// All that has to be known to set up NFS.
#[derive(Clone, Debug)]
pub struct NfsSetup {
    /// What is exported.
    pub behind: Behind,
    /// Who exports it.
    pub server: ServerKind,
    /// In which version.
    pub version: NfsVersion,
    /// How many clients mount it.
    pub clients: usize,
    /// What stands in between.
    pub(crate) proxy: Option<ProxyLie>,
    /// What goes wrong when something happens to the server.
    pub(crate) server_lie: Option<ServerLie>,
    /// Whether packets are lost and delayed.
    pub lossy: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_servers_are_read_or_refused_with_what_there_is() {
        for version in NfsVersion::ALL {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for text in ["2", "4", "4.3", "x"] {
            let error = text.parse::<NfsVersion>().unwrap_err();
            assert!(error.contains("4.0, 4.1 or 4.2"), "{error}");
        }
        assert_eq!("ganesha".parse(), Ok(ServerKind::Ganesha));
        assert!("samba".parse::<ServerKind>().unwrap_err().contains("kernel or ganesha"));
    }
}
