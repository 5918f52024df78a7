//! The checker of unmounted volumes, which also repairs them (the study's algorithm 5).
//!
//! It believes the nodes that NAT leads to and walks them from the root. What two files claim stays
//! with the first of them, names that lead nowhere are taken away, nodes that no name leads to are
//! freed, and SIT is made again from what is left.

use fathom_block::Recorder;
use fathom_core::Errno;

use super::Logfs;
use super::layout::{
    Dentries, FOUR, INDIRECT, Kind, MAIN, NODES, NONE, Node, ROOT, SEGMENTS, UNWRITTEN, data_block,
    dentries_of, dentry_block, main_block,
};
use super::memory::{Head, LOGS, Log, Memory, Set, members};
use super::operation::address;

impl Logfs {
    /// Checks a volume that is not mounted. Returns what was wrong, a line each, all of it repaired;
    /// a volume without faults is not written to (except as mounting does).
    ///
    /// # Errors
    /// If it cannot be mounted, or if there is no room for the repair.
    pub fn repair(&self, disk: &mut Recorder) -> Result<Vec<String>, Errno> {
        let memory = self.load(disk)?;
        let mut fsck = Fsck {
            design: self,
            disk: disk.clone(),
            memory,
            nodes: 0,
            blocks: [false; MAIN],
            wrong: Vec::new(),
        };
        fsck.keep_everything()?;
        fsck.root();
        fsck.inode(ROOT)?;
        fsck.free_the_rest();
        if !fsck.wrong.is_empty() {
            self.checkpoint(&mut fsck.memory, &mut fsck.disk);
            *disk = fsck.disk;
        }
        Ok(fsck.wrong)
    }
}

struct Fsck<'a> {
    design: &'a Logfs,
    disk: Recorder,
    memory: Memory,
    /// Nodes and blocks that a file has claimed.
    nodes: Set,
    blocks: [bool; MAIN],
    wrong: Vec<String>,
}

impl Fsck<'_> {
    /// Marks every block that a node names as valid, and begins the logs in new segments: repairs
    /// overwrite nothing that SIT takes for free and a node still names.
    fn keep_everything(&mut self) -> Result<(), Errno> {
        let believed = self.memory.sit;
        for nid in 0..NODES {
            let (node, address) = (self.memory.nodes[nid], self.memory.nat[nid]);
            for block in node.blocks().iter().copied().chain([address]) {
                if usize::from(block) < MAIN && !self.memory.is_valid(block) {
                    self.wrong
                        .push(format!("block {block} is of node {nid} and SIT calls it free"));
                }
                self.memory.validate(block);
            }
        }
        self.memory.list_free_segments();
        if self.memory.free_count < LOGS {
            return Err(Errno::ENOSPC);
        }
        let memory = &mut self.memory;
        memory.heads = std::array::from_fn(|_| Head { segment: memory.take_segment(), next: 0 });
        memory.sit_dirty = if memory.sit == believed { 0 } else { Set::MAX };
        Ok(())
    }

    fn root(&mut self) {
        if self.memory.node(ROOT).kind != Kind::Dir {
            self.wrong.push("the root directory is lost".to_owned());
            self.memory.make_root();
        }
    }

    /// Claims a file or a directory that was not claimed before, and everything below it.
    fn inode(&mut self, inode: u8) -> Result<(), Errno> {
        self.node(inode);
        self.children(inode, inode);
        if let Some(&indirect) = self.memory.node(inode).children().get(INDIRECT - 2)
            && indirect != NONE
        {
            self.children(indirect, inode);
        }
        for place in 0..self.memory.node(inode).len.into() {
            self.block(inode, place)?;
        }
        Ok(())
    }

    /// Claims a node; writes it again if another one has its block.
    fn node(&mut self, nid: u8) {
        self.nodes |= 1 << nid;
        let address = self.memory.nat[usize::from(nid)];
        if usize::from(address) < MAIN
            && std::mem::replace(&mut self.blocks[usize::from(address)], true)
        {
            self.wrong.push(format!("node {nid} is in block {address}, which is used twice"));
            self.memory.nat[usize::from(nid)] = UNWRITTEN;
            self.memory.change(nid);
        }
    }

    /// Claims the nodes that a node names.
    fn children(&mut self, nid: u8, inode: u8) {
        let node = *self.memory.node(nid);
        for entry in node.blocks_count()..FOUR {
            let child = node.entries[entry];
            if child == NONE {
                continue;
            }
            let expected = match node.kind {
                Kind::Indirect => Kind::Index,
                _ if entry == INDIRECT => Kind::Indirect,
                _ => Kind::Index,
            };
            let there = self.memory.nodes.get(usize::from(child));
            if there.is_none_or(|there| there.kind != expected || there.ino != inode)
                || self.nodes & (1 << child) != 0
            {
                self.wrong.push(format!("node {nid} names node {child}, which is not its own"));
                self.memory.change(nid).entries[entry] = NONE;
            } else {
                self.node(child);
            }
        }
    }

    /// Claims a block of a file or a directory; if it is lost, a blank one takes its place.
    fn block(&mut self, inode: u8, place: usize) -> Result<(), Errno> {
        let is_dir = self.memory.node(inode).kind == Kind::Dir;
        let address = address(&self.memory, inode, place);
        let names = dentries_of(&self.memory.read(&self.disk, main_block(address)));
        let claimed = self.blocks.get_mut(usize::from(address));
        let lost = claimed.is_none_or(|claimed| std::mem::replace(claimed, true))
            || (is_dir && names.is_none());
        if lost {
            self.wrong.push(format!("block {place} of inode {inode} is lost (it was {address})"));
            let (log, content) = match is_dir {
                true => (Log::Dentries, dentry_block(&Dentries::default())),
                false => (Log::Data, data_block(0)),
            };
            if let Some((nid, entry)) = self.memory.slot(inode, place) {
                // Another file may have it.
                self.memory.change(nid).entries[entry] = NONE;
            }
            let (memory, disk) = (&mut self.memory, &mut self.disk);
            self.design.write_block(memory, disk, log, (inode, place), content)?;
            // It may have new nodes.
            self.nodes |= self.memory.nodes_of(inode);
            return Ok(());
        }
        let names = names.filter(|_| is_dir).unwrap_or_default();
        for (entry, (name, nid)) in
            names.into_iter().enumerate().filter(|(_, (name, _))| *name != 0)
        {
            let there = self.memory.nodes.get(usize::from(nid));
            if there.is_some_and(|there| matches!(there.kind, Kind::File | Kind::Dir))
                && self.nodes & (1 << nid) == 0
            {
                self.inode(nid)?;
                continue;
            }
            let name = char::from(name);
            self.wrong
                .push(format!("{name:?} in directory {inode} leads to node {nid}, which is lost"));
            let (memory, disk) = (&mut self.memory, &mut self.disk);
            self.design.set_entry(memory, disk, inode, (place, entry), (0, 0))?;
        }
        Ok(())
    }

    /// Frees the nodes and blocks that nobody has claimed.
    fn free_the_rest(&mut self) {
        for nid in 1..NODES as u8 {
            if self.nodes & (1 << nid) == 0 && self.memory.nat[usize::from(nid)] != NONE {
                self.wrong.push(format!("node {nid} is allocated and of no file"));
                self.memory.nat[usize::from(nid)] = NONE;
                self.memory.nat_dirty |= 1 << nid;
                self.memory.nodes[usize::from(nid)] = Node::FREE;
                self.memory.dirty &= !(1 << nid);
            }
        }
        let mut sit = [0; SEGMENTS];
        for nid in 0..NODES {
            let node = self.memory.nodes[nid];
            for block in node.blocks().iter().chain([&self.memory.nat[nid]]) {
                if usize::from(*block) < MAIN {
                    sit[usize::from(*block) / FOUR] |= 1 << (usize::from(*block) % FOUR);
                }
            }
        }
        for (segment, (was, is)) in self.memory.sit.into_iter().zip(sit).enumerate() {
            for place in members((was & !is).into()) {
                let block = segment as u8 * FOUR as u8 + place;
                self.wrong.push(format!("block {block} is valid and of no file"));
            }
        }
        self.memory.sit = sit;
        self.memory.sit_dirty = Set::MAX;
        self.memory.find_owners();
    }
}

#[cfg(test)]
mod tests {
    use fathom_block::{Image, Window};

    use super::super::Switch;
    use super::super::check::INVARIANTS;
    use super::super::operation;
    use super::*;
    use crate::volume::{Design as _, Path};

    /// Builds the images that a power failure can leave of a workload that fills and empties the
    /// journals.
    fn images(design: &Logfs) -> Vec<Image> {
        let geometry = design.geometry();
        let mut disk = Recorder::new(geometry.blank_image(), geometry).expect("a device");
        design.mkfs(&mut disk);
        let base = disk.image().clone();
        disk.restart(base.clone()).expect("its own image");
        let mut memory = design.load(&mut disk).expect("it was just made");
        let path = |name| Path::ROOT.join(name).expect("not deep");
        for name in *b"ab" {
            design.create_node(&mut memory, &mut disk, path(name), false).expect("room");
            design.write_file(&mut memory, &mut disk, path(name), 0, &[name; 7]).expect("room");
        }
        design.checkpoint(&mut memory, &mut disk);
        design.remove_node(&mut memory, &mut disk, path(b'a')).expect("it is there");
        design.create_node(&mut memory, &mut disk, path(b'd'), true).expect("room");
        design.checkpoint(&mut memory, &mut disk);
        design.write_file(&mut memory, &mut disk, path(b'b'), 0, &[9; 8]).expect("room");
        design.checkpoint(&mut memory, &mut disk);
        let window = Window::new(&base, disk.log(), geometry.atomic_bytes);
        (0..=disk.position()).map(|position| window.image_at(position)).collect()
    }

    /// Whether the invariants hold and everything can be read.
    fn is_sound(design: &Logfs, disk: &mut Recorder) -> bool {
        let memory = design.load(disk).expect("it mounts");
        INVARIANTS.iter().all(|invariant| (invariant.check)(design, &memory, disk).is_ok())
            && operation::read(&memory, disk).is_ok()
    }

    /// Counts images, those with faults, and those that are sound after the repair; a second repair
    /// must find nothing.
    fn census(switches: Vec<Switch>) -> (usize, usize, usize) {
        let design = Logfs { switches, ..Logfs::default() };
        let (mut faulty, mut repaired) = (0, 0);
        let images = images(&design);
        for image in &images {
            let device = Recorder::new(image.clone(), design.geometry()).expect("its own image");
            let mut disk = device.clone();
            let wrong = design.repair(&mut disk).expect("it mounts");
            assert_eq!(wrong.is_empty(), is_sound(&design, &mut device.clone()), "{wrong:?}");
            faulty += usize::from(!wrong.is_empty());
            let again = design.repair(&mut disk).expect("it mounts");
            assert_eq!(again, Vec::<String>::new(), "after {wrong:?}");
            repaired += usize::from(is_sound(&design, &mut disk));
        }
        (images.len(), faulty, repaired)
    }

    #[test]
    fn it_complains_of_what_the_invariants_forbid_and_of_nothing_else() {
        assert_eq!(census(vec![]), (85, 0, 85));
        let (images, faulty, repaired) = census(vec![Switch::NoVersions]);
        assert!(faulty > 0, "one copy of NAT and SIT is not enough");
        assert_eq!((images, repaired), (85, 85));
    }
}
