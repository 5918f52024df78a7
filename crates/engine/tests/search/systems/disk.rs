//! A disk whose sectors are rewritten, each a few times: large states, and a hash of all of it.
//!
//! With s sectors and v versions of each: vˢ states and s·(v - 1)·vˢ⁻¹ steps.

use fathom_engine::search::{Property, System, key_of};

/// Sectors of the disk.
const SECTORS: usize = 8;

/// Bytes of a sector.
const SECTOR_BYTES: usize = 64;

/// The contents of the disk: every byte of a sector is its version.
pub(crate) type Sectors = [[u8; SECTOR_BYTES]; SECTORS];

#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) versions: u8,
}

impl Disk {
    pub(crate) fn states(&self) -> u64 {
        u64::from(self.versions).pow(SECTORS as u32)
    }

    pub(crate) fn transitions(&self) -> u64 {
        self.states() / u64::from(self.versions) * u64::from(self.versions - 1) * SECTORS as u64
    }

    pub(crate) fn start() -> Sectors {
        [[0; SECTOR_BYTES]; SECTORS]
    }

    pub(crate) fn sectors() -> impl Iterator<Item = u8> {
        0..SECTORS as u8
    }

    /// Writes the next version of a sector.
    pub(crate) fn write(&self, disk: &Sectors, sector: u8) -> Option<Sectors> {
        let version = disk[usize::from(sector)][0] + 1;
        (version < self.versions).then(|| {
            let mut disk = *disk;
            disk[usize::from(sector)] = [version; SECTOR_BYTES];
            disk
        })
    }

    /// No sector is torn.
    pub(crate) fn whole(disk: &Sectors) -> bool {
        disk.iter().all(|sector| sector[0] == sector[SECTOR_BYTES - 1])
    }
}

impl System for Disk {
    type State = Sectors;
    type Action = u8;

    fn init(&self) -> Vec<Sectors> {
        vec![Disk::start()]
    }

    fn actions(&self, _: &Sectors, actions: &mut Vec<u8>) {
        actions.extend(Disk::sectors());
    }

    fn next(&self, disk: &Sectors, sector: &u8) -> Option<Sectors> {
        self.write(disk, *sector)
    }

    fn key(&self, disk: &Sectors) -> u128 {
        key_of(disk)
    }

    fn properties(&self) -> Vec<Property<Disk>> {
        vec![Property::<Self>::always("whole", |_, disk| Disk::whole(disk))]
    }
}
