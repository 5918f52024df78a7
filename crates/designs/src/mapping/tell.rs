//! Tells a path as people read it: the operations, the blocks that were written, the contents of
//! the device.

use fathom_engine::search::Trace;

use super::check::Fault;
use super::layout::{Kind, NONE};
use super::{Action, Disk, Layout, Mapping, State};
use crate::story::{Block, ExplainedSystem, Step, Story, Write};

impl ExplainedSystem for Mapping {
    fn story(&self, trace: &Trace<Mapping>, property: &str) -> Story {
        let mut story = Story::default();
        let (mut earlier, mut before) = (&trace.start, &trace.start);
        for (action, after) in &trace.steps {
            if *action == Action::Crash && self.cache {
                lose_since_flush(&mut story.steps);
            }
            story.steps.push(self.tell_step(before, action, after));
            (earlier, before) = (before, after);
        }
        let broken: Vec<&str> = Fault::ALL
            .into_iter()
            .filter(|fault| trace.end().faults.has(*fault))
            .map(Fault::name)
            .collect();
        story.what = match trace.steps.last() {
            Some((Action::Crash, _)) => format!("broken: {}", broken.join(", ")),
            _ => format!("broken without any power failure: {property}"),
        };
        let crashed = matches!(trace.steps.last(), Some((Action::Crash, _)));
        let left = if crashed { &earlier.media } else { &trace.end().cache };
        let disks = [&earlier.cache, left, if crashed { &trace.end().media } else { left }];
        story.blocks = self.blocks(disks, &story.steps);
        story
    }

    fn is_critical(&self, property: &str) -> bool {
        !Fault::ALL.iter().any(|fault| fault.name() == property && !fault.is_critical())
    }
}

/// Marks everything since the last FLUSH as lost, as a power failure does.
fn lose_since_flush(steps: &mut [Step]) {
    let writes = steps.iter_mut().rev().flat_map(|step| step.writes.iter_mut().rev());
    for write in writes {
        match write {
            Write::Block { arrived, .. } => *arrived = false,
            Write::Flush => return,
        }
    }
}

impl Mapping {
    fn tell_step(&self, before: &State, action: &Action, after: &State) -> Step {
        let mut step = Step::default();
        let (thread, mut what) = match *action {
            Action::Begin { thread, operation, file } => {
                (thread, format!("thread {thread}: {operation:?} file {file}").to_lowercase())
            }
            Action::Continue { thread } => (thread, format!("thread {thread}")),
            Action::Crash => return self.tell_crash(after),
        };
        let written = (0..self.layout.blocks())
            .find(|block| before.cache.block(*block) != after.cache.block(*block));
        match written {
            Some(block) => {
                what.push_str(&format!(", {}", self.place(block)));
                step.writes.push(Write::Block { block, arrived: true });
            }
            None if after.threads[thread].is_idle() => {
                what.push_str(" returns");
                step.writes.extend(self.cache.then_some(Write::Flush));
            }
            None if before.memory != after.memory => what.push_str(" changes the tables in memory"),
            None => what.push_str(" writes a block as it was"),
        }
        Step { what, ..step }
    }

    fn tell_crash(&self, after: &State) -> Step {
        let found: Vec<&str> =
            Fault::ALL.into_iter().filter(|fault| after.faults.has(*fault)).map(found).collect();
        let recovered = match found.is_empty() {
            true => "the checker is content".to_owned(),
            false => format!("the checker finds {}", found.join(" and ")),
        };
        let crash = match self.cache {
            true => "and what was written since the last FLUSH is lost",
            false => "between two writes",
        };
        Step { crash: Some(crash.to_owned()), recovered, ..Step::default() }
    }

    /// Names the purpose of a block.
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

    /// Describes the blocks that were written, or that a table mentions in the end.
    fn blocks(&self, disks: [&Disk; 3], steps: &[Step]) -> Vec<Block> {
        let layout = &self.layout;
        let is_written = |number: usize| {
            let writes = steps.iter().flat_map(|step| &step.writes);
            writes
                .into_iter()
                .any(|write| matches!(write, Write::Block { block, .. } if *block == number))
        };
        let is_mentioned = |number: usize| {
            let mentioned = layout.allocated(disks[2]) | layout.referenced(disks[2]);
            layout.as_data(number).is_some_and(|data| mentioned & (1 << data) != 0)
        };
        let block = |number: usize| {
            let [before, left, after] = disks.map(|disk| self.holds(disk, number));
            Block { number, label: self.place(number), before, left, after }
        };
        let involved = |number: &usize| is_written(*number) || is_mentioned(*number);
        (0..layout.blocks()).filter(involved).map(block).collect()
    }

    /// Describes the contents of a block.
    fn holds(&self, disk: &Disk, block: usize) -> String {
        let layout = &self.layout;
        if let Some(data) = layout.as_data(block) {
            return self.data(disk, data);
        }
        let here = |file: &usize| layout.inode_block(*file) == block;
        let files = (0..layout.files()).filter(here);
        let files: Vec<String> = files.map(|file| self.file(disk, file)).collect();
        if !files.is_empty() {
            return files.join("; ");
        }
        let here = |data: &u8| layout.allocation_block(*data) == block;
        let used = (0..layout.data_blocks() as u8).filter(here);
        let used = used.filter(|data| layout.is_allocated(disk, *data));
        let used: Vec<String> = used.map(|data| data.to_string()).collect();
        if used.is_empty() { "all free".to_owned() } else { format!("in use: {}", used.join(" ")) }
    }

    fn file(&self, disk: &Disk, file: usize) -> String {
        let layout = &self.layout;
        if !layout.exists(disk, file) {
            return format!("no file {file}");
        }
        let extent = layout.extent(disk, file);
        let chain: Vec<String> = extent.blocks().iter().map(|data| format!("[{data}]")).collect();
        let arrow = if layout.kind() == Kind::Link { " -> " } else { " " };
        let mut text =
            format!("file {file}, {} blocks: {}", layout.len(disk, file), chain.join(arrow));
        if extent.indirect != NONE {
            text.push_str(&format!(", indirect [{}]", extent.indirect));
        }
        text
    }

    fn data(&self, disk: &Disk, data: u8) -> String {
        let layout = &self.layout;
        let owners: Vec<String> = (0..layout.files())
            .filter(|file| layout.extent(disk, *file).mask() & (1 << data) != 0)
            .map(|file| format!("file {file}"))
            .collect();
        let allocated = layout.is_allocated(disk, data);
        let state = if allocated { "allocated" } else { "FREE" };
        let owner = match owners.is_empty() {
            true => "of no file".to_owned(),
            false => "of ".to_owned() + &owners.join(" AND of "),
        };
        let holds = match Layout::content_of(disk.block(layout.data_block(data))) {
            Some((file, place)) => format!("block {place} of file {file}"),
            None => "nothing written".to_owned(),
        };
        format!("{state}, {owner}, holds {holds}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::list;

    #[test]
    fn a_power_failure_undoes_everything_since_the_last_flush_of_any_thread() {
        let step = |writes: &[Write]| Step { writes: writes.to_vec(), ..Step::default() };
        let block = |block| Write::Block { block, arrived: true };
        let mut steps = [
            step(&[block(0)]),
            step(&[block(1), Write::Flush]),
            step(&[block(2)]),
            step(&[block(0)]),
        ];
        lose_since_flush(&mut steps);
        assert_eq!(steps.map(|step| list(&step.writes)), ["0", "1 FLUSH", "2✗", "0✗"]);
    }
}
