//! A path as people read it: who did what, which block was written, what the device holds.

use std::fmt::Write as _;

use super::check::Fault;
use super::layout::{Kind, NONE};
use super::{Action, Disk, Layout, Mapping, State};

impl Mapping {
    /// One line for a step.
    pub fn tell_step(&self, before: &State, action: &Action, after: &State) -> String {
        let mut line = match *action {
            Action::Begin { thread, operation, file } => {
                format!("thread {thread}: {operation:?} file {file}: ").to_lowercase()
            }
            Action::Continue { thread } => format!("thread {thread}: "),
            Action::Crash => return self.tell_crash(after),
        };
        let written = (0..self.layout.blocks())
            .find(|block| before.cache.block(*block) != after.cache.block(*block));
        match written {
            Some(block) => {
                let _ = write!(line, "writes block {block}, {}", self.place(block));
            }
            None if self.finished(action, after) => {
                line.push_str(if self.cache { "FLUSH, returns" } else { "returns" });
            }
            None if before.memory != after.memory => line.push_str("changes the tables in memory"),
            None => line.push_str("writes a block as it was"),
        }
        line
    }

    fn finished(&self, action: &Action, after: &State) -> bool {
        match action {
            Action::Begin { thread, .. } | Action::Continue { thread } => {
                after.threads[*thread].is_idle()
            }
            Action::Crash => false,
        }
    }

    fn tell_crash(&self, after: &State) -> String {
        let found: Vec<&str> =
            Fault::ALL.into_iter().filter(|fault| after.faults.has(*fault)).map(found).collect();
        match found.is_empty() {
            true => "POWER FAILURE; the checker is content, mount".to_owned(),
            false => format!("POWER FAILURE; the checker finds {}", found.join(" and ")),
        }
    }

    /// What a block is for.
    fn place(&self, block: usize) -> String {
        let layout = &self.layout;
        match layout.as_data(block) {
            Some(data) => format!("data {data}"),
            None => match (0..layout.files()).find(|file| layout.inode_block(*file) == block) {
                Some(file) if layout.inodes_per_block() == 2 => {
                    format!("inodes {file} and {}", file + 1)
                }
                Some(file) => format!("inode {file}"),
                None => "allocation table".to_owned(),
            },
        }
    }

    /// The device as a drawing: every file with its blocks, then every block that is in use.
    pub fn draw(&self, disk: &Disk) -> String {
        let layout = &self.layout;
        let mut out = String::new();
        for file in (0..layout.files()).filter(|file| layout.exists(disk, *file)) {
            let extent = layout.extent(disk, file);
            let chain: Vec<String> =
                extent.blocks().iter().map(|data| format!("[{data}]")).collect();
            let arrow = if layout.kind() == Kind::Link { " -> " } else { " " };
            let _ = write!(
                out,
                "  file {file}, {} blocks: {}",
                layout.len(disk, file),
                chain.join(arrow)
            );
            if extent.indirect != NONE {
                let _ = write!(out, ", indirect [{}]", extent.indirect);
            }
            out.push('\n');
        }
        for data in 0..layout.data_blocks() as u8 {
            let owners: Vec<String> = (0..layout.files())
                .filter(|file| layout.extent(disk, *file).mask() & (1 << data) != 0)
                .map(|file| format!("file {file}"))
                .collect();
            let allocated = layout.is_allocated(disk, data);
            if !allocated && owners.is_empty() {
                continue;
            }
            let state = if allocated { "allocated" } else { "FREE" };
            let owner = if owners.is_empty() {
                "of no file".to_owned()
            } else {
                "of ".to_owned() + &owners.join(" AND of ")
            };
            let holds = match Layout::content_of(disk.block(layout.data_block(data))) {
                Some((file, place)) => format!("block {place} of file {file}"),
                None => "nothing written".to_owned(),
            };
            let _ = writeln!(out, "  [{data}] {state}, {owner}, holds {holds}");
        }
        out
    }
}

fn found(fault: Fault) -> &'static str {
    match fault {
        Fault::Dead => "a dead block (allocated, of no file; freed)",
        Fault::Lost => "a lost block (of a file, not allocated)",
        Fault::Double => "a double pointer (one block of two files)",
        Fault::Content => "a content error (a file without what was written)",
    }
}
