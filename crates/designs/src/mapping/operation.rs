//! The operations, step by step. A step makes at most one write.

use super::layout::{Kind, NONE};
use serde::{Deserialize, Serialize};

use super::{ABSENT, Layout, Mapping, Order, State};

/// An operation of a thread on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Makes the file, with one block allocated and none written.
    Create,
    /// Writes one block at the end of the file.
    Append,
    /// Removes the file.
    Delete,
}

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 3] = [Operation::Create, Operation::Append, Operation::Delete];

    /// Whether the operation is possible: whether the file is there (or not), and whether there is
    /// room.
    pub(super) fn is_possible(self, mapping: &Mapping, state: &State, file: u8) -> bool {
        let (layout, expected) = (&mapping.layout, state.expected[usize::from(file)]);
        match self {
            Operation::Create => {
                expected == ABSENT && layout.find_free(&state.memory, NONE) != NONE
            }
            Operation::Append => {
                expected != ABSENT
                    && expected < layout.len_max()
                    && Need::of(layout, state, file, expected).is_some()
            }
            Operation::Delete => expected != ABSENT,
        }
    }
}

/// The blocks that an append still has to allocate.
#[derive(Clone, Copy)]
struct Need {
    /// The data block: a new one, or the one that is already there.
    data: u8,
    data_is_new: bool,
    /// The indirect block, or [`NONE`] if the place needs none.
    indirect: u8,
    indirect_is_new: bool,
}

impl Need {
    /// Finds the blocks; none if there is no room.
    fn of(layout: &Layout, state: &State, file: u8, place: u8) -> Option<Need> {
        let extent = layout.extent(&state.memory, usize::from(file));
        let there = extent.at(place);
        let data_is_new = there == NONE;
        let data = if data_is_new { layout.find_free(&state.memory, NONE) } else { there };
        let needs_indirect = layout.kind() == Kind::Index && place >= 2;
        let indirect_is_new = needs_indirect && extent.indirect == NONE;
        let indirect = match (needs_indirect, indirect_is_new) {
            (false, _) => NONE,
            (true, true) => layout.find_free(&state.memory, data),
            (true, false) => extent.indirect,
        };
        let room = data != NONE && (!needs_indirect || indirect != NONE);
        room.then_some(Need { data, data_is_new, indirect, indirect_is_new })
    }
}

/// The progress of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Thread {
    /// The operation in progress: 0 if idle, otherwise one more than its index.
    operation: u8,
    pub(super) file: u8,
    step: u8,
    /// The data block it fills.
    data: u8,
    /// The data block before that in a chain, or the indirect block.
    link: u8,
    /// Blocks still to be written (naive) or data blocks still to be freed (safe).
    pending: u16,
    /// Whether `data` was allocated by this operation.
    is_new: bool,
}

impl Thread {
    pub(super) fn begin(operation: Operation, file: u8) -> Thread {
        let (data, link) = (NONE, NONE);
        Thread { operation: 1 + operation as u8, file, data, link, ..Thread::default() }
    }

    pub(super) fn bytes(&self) -> [u8; 8] {
        let [low, high] = self.pending.to_le_bytes();
        let Thread { operation, file, step, data, link, is_new, .. } = *self;
        [operation, file, step, data, link, low, high, u8::from(is_new)]
    }

    pub(super) fn is_idle(&self) -> bool {
        self.operation == 0
    }

    pub(super) fn operation(&self) -> Option<Operation> {
        self.operation.checked_sub(1).map(|index| Operation::ALL[usize::from(index)])
    }

    pub(super) fn operates_on(&self, file: u8) -> bool {
        !self.is_idle() && self.file == file
    }
}

/// Takes one step of a thread that is not idle.
pub(super) fn step(mapping: &Mapping, state: &mut State, thread: usize) {
    let operation = state.threads[thread].operation().expect("a thread at work");
    match mapping.order {
        Order::Naive => naive(mapping, state, thread, operation),
        Order::Safe => safe(mapping, state, thread, operation),
    }
}

/// Takes one step of the naive order: first changes everything in memory, then writes the changed
/// blocks, by place.
fn naive(mapping: &Mapping, state: &mut State, index: usize, operation: Operation) {
    if state.threads[index].step == 0 {
        let before = state.memory;
        let file = state.threads[index].file;
        match operation {
            Operation::Create => create_in_memory(mapping, state, file),
            Operation::Append => append_in_memory(mapping, state, file),
            Operation::Delete => delete_in_memory(mapping, state, file),
        }
        let changed = |block: &usize| before.block(*block) != state.memory.block(*block);
        let blocks = (0..mapping.layout.blocks()).filter(changed);
        state.threads[index].pending = blocks.fold(0, |mask, block| mask | 1 << block);
        state.threads[index].step = 1;
        return;
    }
    let pending = state.threads[index].pending;
    if pending == 0 {
        return finish(mapping, state, index, operation);
    }
    let block = match operation {
        Operation::Delete => 15 - pending.leading_zeros(),
        _ => pending.trailing_zeros(),
    };
    state.threads[index].pending &= !(1 << block);
    mapping.write(state, block as usize);
}

fn create_in_memory(mapping: &Mapping, state: &mut State, file: u8) {
    let layout = &mapping.layout;
    let data = layout.find_free(&state.memory, NONE);
    layout.allocate(&mut state.memory, data);
    set_new_inode(layout, state, file, data);
}

/// Makes an inode of length 0 that names its first block.
fn set_new_inode(layout: &Layout, state: &mut State, file: u8, data: u8) {
    let inode = layout.inode_mut(&mut state.memory, usize::from(file));
    inode.fill(NONE);
    (inode[0], inode[1]) = (0, data);
}

fn append_in_memory(mapping: &Mapping, state: &mut State, file: u8) {
    let layout = &mapping.layout;
    let place = state.expected[usize::from(file)];
    // The room was there when the operation was chosen, and memory changes only in first steps.
    let need = Need::of(layout, state, file, place).expect("room");
    let last = layout.extent(&state.memory, usize::from(file)).at(place.wrapping_sub(1));
    if need.data_is_new {
        layout.allocate(&mut state.memory, need.data);
    }
    if need.indirect_is_new {
        layout.allocate(&mut state.memory, need.indirect);
    }
    *state.memory.block_mut(layout.data_block(need.data)) = Layout::content(file, place);
    point_at(layout, state, file, place, &need, last);
    layout.inode_mut(&mut state.memory, usize::from(file))[0] = place + 1;
}

/// Makes the chain or the tables name a new block, except for the length of the file.
fn point_at(layout: &Layout, state: &mut State, file: u8, place: u8, need: &Need, last: u8) {
    match layout.kind() {
        Kind::Link if need.data_is_new && last != NONE => {
            layout.set_link(&mut state.memory, last, need.data);
        }
        Kind::Link => {}
        Kind::Index if need.indirect == NONE => {
            let inode = layout.inode_mut(&mut state.memory, usize::from(file));
            inode[1 + usize::from(place)] = need.data;
        }
        Kind::Index => {
            let table = state.memory.block_mut(layout.data_block(need.indirect));
            if need.indirect_is_new {
                table.fill(NONE);
            }
            table[usize::from(place) - 2] = need.data;
            layout.inode_mut(&mut state.memory, usize::from(file))[3] = need.indirect;
        }
    }
}

fn delete_in_memory(mapping: &Mapping, state: &mut State, file: u8) {
    let layout = &mapping.layout;
    let mask = layout.extent(&state.memory, usize::from(file)).mask();
    for data in (0..layout.data_blocks() as u8).filter(|data| mask & (1 << data) != 0) {
        layout.free(&mut state.memory, data);
    }
    layout.inode_mut(&mut state.memory, usize::from(file)).fill(NONE);
}

/// Flushes, and ends the operation.
fn finish(mapping: &Mapping, state: &mut State, index: usize, operation: Operation) {
    let file = usize::from(state.threads[index].file);
    state.media = state.cache;
    state.threads[index] = Thread::default();
    state.expected[file] = match operation {
        Operation::Create => 0,
        Operation::Append => state.expected[file] + 1,
        Operation::Delete => ABSENT,
    };
    if operation == Operation::Delete {
        mapping.forget_free_blocks(state);
    }
}

/// Takes one step of the safe order: one block at a time; steps without a write are skipped.
fn safe(mapping: &Mapping, state: &mut State, index: usize, operation: Operation) {
    loop {
        let step = state.threads[index].step;
        state.threads[index].step += 1;
        let written = match operation {
            Operation::Create => safe_create(mapping, state, index, step),
            Operation::Append => safe_append(mapping, state, index, step),
            Operation::Delete => safe_delete(mapping, state, index, step),
        };
        match written {
            Step::Wrote(block) => return mapping.write(state, block),
            Step::Nothing => {}
            Step::Done => return finish(mapping, state, index, operation),
        }
    }
}

/// The result of a step of the safe order in memory: which block is to be written.
enum Step {
    Wrote(usize),
    Nothing,
    Done,
}

fn safe_create(mapping: &Mapping, state: &mut State, index: usize, step: u8) -> Step {
    let layout = &mapping.layout;
    let Thread { file, data, .. } = state.threads[index];
    match step {
        0 => {
            let data = layout.find_free(&state.memory, NONE);
            layout.allocate(&mut state.memory, data);
            state.threads[index].data = data;
            Step::Wrote(layout.allocation_block(data))
        }
        1 => {
            set_new_inode(layout, state, file, data);
            Step::Wrote(layout.inode_block(usize::from(file)))
        }
        _ => Step::Done,
    }
}

fn safe_append(mapping: &Mapping, state: &mut State, index: usize, step: u8) -> Step {
    let layout = &mapping.layout;
    let Thread { file, data, link, is_new, pending, .. } = state.threads[index];
    let place = state.expected[usize::from(file)];
    let need = Need { data, data_is_new: is_new, indirect: link, indirect_is_new: pending != 0 };
    match step {
        0 => safe_allocate(layout, state, index, place),
        1 => {
            *state.memory.block_mut(layout.data_block(data)) = Layout::content(file, place);
            Step::Wrote(layout.data_block(data))
        }
        2 => match layout.kind() {
            Kind::Link if is_new => {
                layout.set_link(&mut state.memory, link, data);
                Step::Wrote(layout.allocation_block(link))
            }
            Kind::Index if link != NONE && (is_new || pending != 0) => {
                let table = state.memory.block_mut(layout.data_block(link));
                if pending != 0 {
                    table.fill(NONE);
                }
                table[usize::from(place) - 2] = data;
                Step::Wrote(layout.data_block(link))
            }
            _ => Step::Nothing,
        },
        3 => {
            if layout.kind() == Kind::Index && is_new {
                let need = Need { indirect_is_new: false, ..need };
                point_at(layout, state, file, place, &need, NONE);
            }
            layout.inode_mut(&mut state.memory, usize::from(file))[0] = place + 1;
            Step::Wrote(layout.inode_block(usize::from(file)))
        }
        _ => Step::Done,
    }
}

/// Marks what an append needs as allocated. Link-type: one block; index-type: the indirect block
/// with it, since both bits are in the same block.
fn safe_allocate(layout: &Layout, state: &mut State, index: usize, place: u8) -> Step {
    let file = state.threads[index].file;
    // Another thread may have taken the last block since the operation was chosen: not between two
    // steps, because choosing is part of this one.
    let need = Need::of(layout, state, file, place).expect("room");
    let last = layout.extent(&state.memory, usize::from(file)).at(place.wrapping_sub(1));
    let thread = &mut state.threads[index];
    thread.data = need.data;
    thread.is_new = need.data_is_new;
    thread.link = if layout.kind() == Kind::Link { last } else { need.indirect };
    thread.pending = u16::from(need.indirect_is_new);
    for (data, is_new) in [(need.data, need.data_is_new), (need.indirect, need.indirect_is_new)] {
        if is_new {
            layout.allocate(&mut state.memory, data);
        }
    }
    match need.data_is_new || need.indirect_is_new {
        true => Step::Wrote(layout.allocation_block(need.data)),
        false => Step::Nothing,
    }
}

fn safe_delete(mapping: &Mapping, state: &mut State, index: usize, step: u8) -> Step {
    let layout = &mapping.layout;
    let Thread { file, pending, .. } = state.threads[index];
    if step == 0 {
        let mask = layout.extent(&state.memory, usize::from(file)).mask();
        state.threads[index].pending = mask;
        layout.inode_mut(&mut state.memory, usize::from(file)).fill(NONE);
        return Step::Wrote(layout.inode_block(usize::from(file)));
    }
    if pending == 0 {
        return Step::Done;
    }
    let block = layout.allocation_block(pending.trailing_zeros() as u8);
    let here = |data: &u8| pending & (1 << data) != 0 && layout.allocation_block(*data) == block;
    for data in (0..layout.data_blocks() as u8).filter(here) {
        layout.free(&mut state.memory, data);
        state.threads[index].pending &= !(1 << data);
    }
    // The number of steps depends on the chain: stay here until everything is free.
    state.threads[index].step = 1;
    Step::Wrote(block)
}
