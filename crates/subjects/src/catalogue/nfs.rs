//! `nfs:BACKEND`, `nfs:reffs:MUTANT`: a file system behind NFS, with server and client in one guest; what was
//! asked for beyond it is part of the name: `nfs:ext4 --nfs=4.1 --server=ganesha`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fathom_block::BlockBacked;
use fathom_core::{Capability, RestoreMethod, Testbed};
use fathom_model::{Config, Mutant};

use super::kernel::KernelFileSystems;
use super::profile::running_kernel;
use super::reference::{References, parse_mutant};
use super::{
    Asked, CatalogueError, Disk, Entry, Family, Mutants, Need, Offers, Operations, Purpose, Row,
    split_off,
};
use crate::Recipe;
use crate::nfs::{Behind, NfsSetup, NfsSubject, NfsVersion, ProxyLie, ServerKind, ServerLie, lies};
use crate::sys::{View, in_guest};

const PREFIX: &str = "nfs:";
const VERSION: &str = " --nfs=";
const SERVER: &str = " --server=";
const CLIENTS: &str = " --clients=";
const LOSSY: &str = " --lossy";
const SPACE: &str = " --space=";

/// The reference behind the server.
const REFFS: &str = "reffs";
/// The kernel's file systems that have been behind a server.
const KERNEL: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];
/// What Ganesha keeps in its own memory.
const MEMORY: &str = "memory";
/// Most clients of one server.
const CLIENTS_MAX: usize = 2;

/// `nfs:BACKEND`
pub(super) struct NetworkFileSystems;

#[derive(Clone)]
struct Network {
    /// What is behind the server, as it is typed.
    behind: String,
    mutant: Option<Mutant>,
    /// What stands between client and server.
    proxy: Option<ProxyLie>,
    /// What goes wrong when something happens to the server.
    server_lie: Option<ServerLie>,
    version: NfsVersion,
    server: ServerKind,
    clients: usize,
    lossy: bool,
    space_bytes: Option<u64>,
}

fn offers(behind: &str) -> Offers {
    let is_reference = behind == REFFS;
    let methods = is_reference.then_some(RestoreMethod::Ioctl);
    Offers {
        operations: Operations::All,
        restore_methods: methods.into_iter().collect(),
        capabilities: BTreeSet::from([
            Capability::Devices,
            Capability::Identity,
            Capability::Remount,
        ]),
        disk: Disk::None("the power of a server is that of the file system behind it"),
        checker: None,
        promises: false,
        space: is_reference,
        network: true,
        mutants: Mutants::Reference,
    }
}

/// Who serves it if nothing is said.
fn server_of(behind: &str) -> ServerKind {
    if behind == MEMORY { ServerKind::Ganesha } else { ServerKind::default() }
}

impl Family for NetworkFileSystems {
    fn rows(&self) -> Vec<Row> {
        let row = |behind: &str| Row {
            name: format!("{PREFIX}{behind}"),
            about: format!("{behind} behind NFS, in a guest (--nfs, --server, --clients)"),
            offers: offers(behind),
            needs: vec![Need::Guest],
        };
        [REFFS].into_iter().chain(KERNEL).chain([MEMORY]).map(row).collect()
    }

    fn parse(&self, text: &str) -> Result<Option<Arc<dyn Entry>>, CatalogueError> {
        let Some(text) = text.strip_prefix(PREFIX) else {
            return if text == "nfs" { self.parse(PREFIX) } else { Ok(None) };
        };
        let refused = |text: String| CatalogueError::Refused(text);
        let (text, space) = split_off(text, SPACE);
        let (text, lossy) = split_off(text, LOSSY);
        let (text, clients) = split_off(text, CLIENTS);
        let (text, server) = split_off(text, SERVER);
        let (text, version) = split_off(text, VERSION);
        let (behind, mutant) = split_off(text, ":");
        if ![REFFS, MEMORY].contains(&behind) && !KERNEL.contains(&behind) {
            return Err(refused(format!(
                "{behind:?} cannot be behind NFS: write nfs: with {REFFS}, {} or {MEMORY}",
                KERNEL.join(", ")
            )));
        }
        let number =
            |text: &str| text.parse::<u64>().map_err(|_| refused(format!("{text:?} is no number")));
        let plain = Network {
            behind: behind.to_owned(),
            mutant: None,
            proxy: None,
            server_lie: None,
            version: NfsVersion::default(),
            server: ServerKind::default(),
            clients: 1,
            lossy: false,
            space_bytes: None,
        };
        let clients = clients.map(number).transpose()?.map(|clients| clients as usize);
        let space_bytes = space.map(number).transpose()?;
        let lossy = lossy.is_some();
        let asked =
            Asked { mutant, nfs: version, server, clients, lossy, space_bytes, ..Asked::default() };
        Ok(Some(Arc::new(plain.asked(&asked)?)))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.behind)?;
        if let Some(mutant) = self.mutant {
            write!(f, ":{}", mutant.name())?;
        }
        if let Some(lie) = self.proxy {
            write!(f, ":{}", lie.name())?;
        }
        if let Some(lie) = self.server_lie {
            write!(f, ":{}", lie.name())?;
        }
        if self.version != NfsVersion::default() {
            write!(f, "{VERSION}{}", self.version)?;
        }
        if self.server != server_of(&self.behind) {
            write!(f, "{SERVER}{}", self.server)?;
        }
        if self.clients != 1 {
            write!(f, "{CLIENTS}{}", self.clients)?;
        }
        if self.lossy {
            f.write_str(LOSSY)?;
        }
        self.space_bytes.map_or(Ok(()), |bytes| write!(f, "{SPACE}{bytes}"))
    }
}

impl Network {
    fn asked(&self, asked: &Asked<'_>) -> Result<Network, CatalogueError> {
        let refused = |text: String| CatalogueError::Refused(text);
        let mut network = self.clone();
        if asked.mkfs.or(asked.mount).is_some() {
            return Err(refused(format!(
                "{self} is made by its recipe: --mkfs-opts and --mount-opts are for kernel file systems"
            )));
        }
        if let Some(version) = asked.nfs {
            network.version = version.parse().map_err(refused)?;
        }
        if let Some(server) = asked.server {
            network.server = server.parse().map_err(refused)?;
        }
        if network.behind == MEMORY && network.server == ServerKind::Kernel {
            network.server = match asked.server {
                None => ServerKind::Ganesha,
                Some(_) => {
                    let text = "nfs:memory is Ganesha's own memory: leave --server kernel out";
                    return Err(refused(text.to_owned()));
                }
            };
        }
        network.clients = asked.clients.unwrap_or(network.clients);
        if !(1..=CLIENTS_MAX).contains(&network.clients) {
            let text = format!("--clients {} is not possible: give 1 or 2", network.clients);
            return Err(refused(text));
        }
        network.lossy |= asked.lossy;
        if let Some(name) = asked.mutant {
            network.go_wrong(name)?;
        }
        network.space_bytes = asked.space_bytes.or(network.space_bytes);
        Ok(network)
    }

    /// Takes over what is to go wrong: a lie of a proxy, one of the server, or a mutant of the reference.
    fn go_wrong(&mut self, name: &str) -> Result<(), CatalogueError> {
        let refused = |text: String| CatalogueError::Refused(text);
        if let Ok(lie) = name.parse::<ServerLie>() {
            let has_clients = lie != ServerLie::ForgetLocks || self.clients == 2;
            if self.server != ServerKind::Kernel || !has_clients {
                let clients = if has_clients { "" } else { " and --clients 2" };
                return Err(refused(format!("{name} needs --server kernel{clients}")));
            }
            if lie == ServerLie::ForgetStable && self.behind != REFFS {
                return Err(refused(format!(
                    "{name} takes the file system behind the server back, which {PREFIX}{REFFS} alone can do"
                )));
            }
            self.server_lie = Some(lie);
            return Ok(());
        }
        match name.parse::<ProxyLie>() {
            Ok(lie) if self.version == NfsVersion::V3 => self.proxy = Some(lie),
            Ok(_) => {
                return Err(refused(format!("the proxy of {name} speaks NFS 3: add --nfs 3")));
            }
            Err(()) if self.behind == REFFS => self.mutant = Some(parse_mutant(name)?),
            Err(()) => {
                let lies: Vec<_> = lies().map(|(name, _)| name).collect();
                return Err(refused(format!(
                    "{name} is no lie of a server or a proxy ({}), and only {PREFIX}{REFFS} has mutants",
                    lies.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// The file system behind the server, as a subject of its own.
    fn backend(&self) -> Result<Arc<dyn Entry>, CatalogueError> {
        let entry = match self.behind.as_str() {
            REFFS => References.parse(REFFS)?,
            MEMORY => References.parse("model")?,
            behind => KernelFileSystems.parse(behind)?,
        };
        entry.ok_or_else(|| CatalogueError::Refused(format!("no recipe makes {}", self.behind)))
    }

    fn setup(&self, reference: &Config) -> Result<NfsSetup, CatalogueError> {
        if !in_guest() {
            return Err(CatalogueError::Refused(format!(
                "{self} runs in a guest alone, since a server belongs to a whole machine: add --guest \
                 KERNEL (docs/NFS.md)"
            )));
        }
        let behind = match Recipe::named(&self.behind) {
            Some(recipe) => Behind::Kernel(Box::new(recipe)),
            None if self.behind == MEMORY => Behind::Memory,
            None => Behind::Reffs { config: Box::new(reference.clone()), mutant: self.mutant },
        };
        let Network { server, version, clients, proxy, server_lie, lossy, .. } = *self;
        Ok(NfsSetup { behind, server, version, clients, proxy, server_lie, lossy })
    }

    /// What this version of NFS makes of a file system.
    fn layered(&self, mut config: Config) -> Result<Config, CatalogueError> {
        let mut layers = vec![self.version.layer()];
        match self.server {
            ServerKind::Ganesha => layers.push("nfs-ganesha".to_owned()),
            ServerKind::Kernel if self.behind == REFFS => layers.push("nfs-over-fuse".to_owned()),
            ServerKind::Kernel => {}
        }
        if self.behind == MEMORY {
            layers.push("nfs-memory".to_owned());
        }
        if self.clients > 1 {
            layers.push("nfs-two-clients".to_owned());
        }
        for layer in layers {
            let layered = config.quirks.with_layer(&layer, running_kernel());
            let unknown = || CatalogueError::UnknownProfile { name: layer, hint: String::new() };
            config.quirks = layered.ok_or_else(unknown)?;
        }
        if let Some(bytes) = self.space_bytes {
            config.blocks = (bytes / u64::from(config.block_bytes)).max(1);
        }
        Ok(config)
    }
}

impl Entry for Network {
    fn offers(&self) -> Offers {
        offers(&self.behind)
    }

    fn with(&self, asked: &Asked<'_>) -> Result<Arc<dyn Entry>, CatalogueError> {
        Ok(Arc::new(self.asked(asked)?))
    }

    /// That of the file system behind the server.
    fn profile(&self) -> Result<String, CatalogueError> {
        self.backend()?.profile()
    }

    fn reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        // Before anything is made.
        self.setup(&Config::default())?;
        self.layered(self.backend()?.reference(profile)?)
    }

    fn planned_reference(&self, profile: &str) -> Result<Config, CatalogueError> {
        self.layered(self.backend()?.planned_reference(profile)?)
    }

    fn testbed(&self, reference: &Config, view: View) -> Result<Box<dyn Testbed>, CatalogueError> {
        let made = NfsSubject::new(&self.to_string(), self.setup(reference)?, view);
        Ok(Box::new(made?))
    }

    fn block_backed(&self) -> Result<Box<dyn BlockBacked>, CatalogueError> {
        Err(super::not_offered(self, Purpose::Crash))
    }
}
