//! Symmetry of files: states that differ only in which file is which get the same key.
//!
//! Files are sorted by what is known of each; inodes that share a block stay together. Files that
//! look the same keep their order, so some symmetric states may be told apart: that costs states,
//! never soundness.

use super::layout::{Disk, Kind};
use super::{FILES_MAX, Layout, Mapping, State};

/// The facts about one file by which files are sorted.
type Record = ([u8; 12], u8, u8);

/// Computes a state that is the same for most states of an orbit.
pub(super) fn canonical(mapping: &Mapping, state: &State) -> State {
    let layout = &mapping.layout;
    let places = order(layout, &std::array::from_fn(|file| record(layout, state, file)));
    if places == std::array::from_fn(|file| file as u8) && is_sorted(&state.threads) {
        return *state;
    }
    let mut out = *state;
    for (disk, from) in [
        (&mut out.memory, &state.memory),
        (&mut out.cache, &state.cache),
        (&mut out.media, &state.media),
    ] {
        rename(layout, disk, from, &places);
    }
    for (file, place) in places.iter().enumerate().take(layout.files()) {
        out.expected[usize::from(*place)] = state.expected[file];
    }
    for thread in out.threads.iter_mut().filter(|thread| !thread.is_idle()) {
        thread.file = places[usize::from(thread.file)];
    }
    out.threads.sort_unstable();
    out
}

fn is_sorted<T: Ord>(items: &[T]) -> bool {
    items.is_sorted()
}

fn record(layout: &Layout, state: &State, file: usize) -> Record {
    if file >= layout.files() {
        return ([u8::MAX; 12], u8::MAX, u8::MAX);
    }
    let mut inodes = [0; 12];
    for (index, disk) in [&state.memory, &state.cache, &state.media].into_iter().enumerate() {
        let inode = layout.inode(disk, file);
        inodes[index * 4..index * 4 + inode.len()].copy_from_slice(inode);
    }
    let work = state.threads.iter().position(|thread| thread.operates_on(file as u8));
    // Threads are symmetric too: their own order must not count here.
    (inodes, state.expected[file], u8::from(work.is_some()))
}

/// Computes the new place of each file.
fn order(layout: &Layout, records: &[Record; FILES_MAX]) -> [u8; FILES_MAX] {
    let mut files: [usize; FILES_MAX] = std::array::from_fn(|file| file);
    let count = layout.files();
    match layout.kind() {
        Kind::Index => files[..count].sort_by_key(|file| records[*file]),
        Kind::Link => {
            let pairs = count / 2;
            for pair in files[..pairs * 2].chunks_exact_mut(2) {
                pair.sort_by_key(|file| records[*file]);
            }
            if pairs == 2 {
                let key = |pair: &[usize]| (records[pair[0]], records[pair[1]]);
                if key(&files[2..4]) < key(&files[..2]) {
                    files.rotate_left(2);
                }
            }
        }
    }
    let mut places = [0; FILES_MAX];
    files.iter().enumerate().for_each(|(place, file)| places[*file] = place as u8);
    places
}

/// Moves the inodes of a disk and renames the contents.
fn rename(layout: &Layout, disk: &mut Disk, from: &Disk, places: &[u8; FILES_MAX]) {
    for (file, place) in places.iter().enumerate().take(layout.files()) {
        let inode = layout.inode(from, file);
        layout.inode_mut(disk, usize::from(*place)).copy_from_slice(inode);
    }
    for data in 0..layout.data_blocks() as u8 {
        let block = layout.data_block(data);
        if let Some((file, place)) = Layout::content_of(from.block(block)) {
            *disk.block_mut(block) = Layout::content(places[usize::from(file)], place);
        }
    }
}
