//! The map of exFAT.

use std::sync::LazyLock;

use super::builder::Table;
use super::guard::{Algorithm, Guard, Piece, Store};
use super::layout::{Layouts, Order};
use super::{Builder, Kind, Map, MapError};

static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    Layouts::parse(include_str!("../../maps/exfat.layout")).expect("the layout is tested")
});

/// Sectors of a boot region, the last of them the checksum.
const BOOT_SECTORS: u64 = 12;
/// Sectors of it with extended boot code.
const EXTENDED: u64 = 8;
/// Directories that are followed at most: loops end here.
const DIRECTORIES_MAX: usize = 1000;
/// Clusters of one chain that are followed at most.
const CHAIN_MAX: u64 = 10_000;
/// Entry sets of a directory that campaigns try.
const SETS_SAMPLED: u64 = 6;
/// Bytes of a directory entry.
const ENTRY: u64 = 32;
/// The flag of a stream whose clusters lie one after the other and are not in the table.
const NO_CHAIN: u64 = 2;

#[derive(Clone, Copy, Debug)]
struct Shape {
    sector_bytes: u64,
    cluster_bytes: u64,
    clusters: u64,
    fat: u64,
    heap: u64,
    root: u64,
}

/// Whether an image has a boot sector of exFAT.
pub(super) fn is_in(disk: &[u8]) -> bool {
    disk.get(3..11) == Some(b"EXFAT   ")
}

/// Maps an image.
pub(super) fn walk(disk: &[u8]) -> Result<Map, MapError> {
    let mut out = Builder::new(disk, &LAYOUTS, "exfat");
    let misfit = |what: String| MapError::Misfit { file_system: "exfat", what };
    let shape = shape(&out).map_err(misfit)?;
    out.map.block_bytes = shape.cluster_bytes;
    boot_region(&mut out, "boot", 0, shape.sector_bytes);
    out.sampled = false;
    let backup = BOOT_SECTORS * shape.sector_bytes;
    boot_region(&mut out, "backup_boot", backup, shape.sector_bytes);
    out.sampled = true;
    out.table(&Table {
        called: "fat",
        item: "cluster",
        base: shape.fat,
        width: 4,
        order: Order::Little,
        count: shape.clusters + 2,
        kind: Kind::Block,
        guard: None,
    });
    targets(&mut out, &shape);
    let mut todo = vec![("/".to_owned(), chain(&out, &shape, shape.root, None))];
    for _ in 0..DIRECTORIES_MAX {
        let Some((path, clusters)) = todo.pop() else { break };
        todo.extend(directory(&mut out, &shape, &path, &clusters));
    }
    Ok(out.map)
}

fn shape(out: &Builder<'_>) -> Result<Shape, String> {
    let get = |field: &str| out.get("boot_sector", field, 0);
    let (sector, cluster) = (get("bytes_per_sector_shift"), get("sectors_per_cluster_shift"));
    if !(9..=12).contains(&sector) || sector + cluster > 25 {
        return Err(format!("sectors of 2^{sector} bytes, clusters of 2^{cluster} sectors"));
    }
    let sector_bytes = 1 << sector;
    let heap = get("cluster_heap_offset") * sector_bytes;
    if heap > out.end() {
        return Err(format!("the clusters begin at byte {heap}, behind the end"));
    }
    Ok(Shape {
        sector_bytes,
        cluster_bytes: sector_bytes << cluster,
        clusters: get("cluster_count").min((out.end() - heap) / (sector_bytes << cluster)),
        fat: get("fat_offset") * sector_bytes,
        heap,
        root: get("first_cluster_of_root"),
    })
}

fn boot_region(out: &mut Builder<'_>, called: &str, base: u64, sector: u64) {
    let sum = base + (BOOT_SECTORS - 1) * sector;
    // Flags and the share in use change without a new sum: they are left out of it.
    let pieces = vec![
        Piece::Range(base, 106),
        Piece::Range(base + 108, 4),
        Piece::Range(base + 113, sum - base - 113),
    ];
    let stores = (0..sector / 4).map(|index| Store::whole(sum + 4 * index, Order::Little));
    let guard = out.guard(Guard {
        algorithm: Algorithm::Turned32,
        pieces,
        stores: stores.collect(),
        next: None,
    });
    let summed = |name: &str| name != "volume_flags" && name != "percent_in_use";
    out.put_where("boot_sector", called, base, Some(guard), |part| summed(&part.name));
    out.put_where("boot_sector", called, base, None, |part| !summed(&part.name));
    let chosen = out.sampled;
    for index in 1..=EXTENDED {
        out.sampled = chosen && index == 1;
        let at = base + index * sector;
        let name = format!("{called}.extended[{index}]");
        out.put_where("extended_boot_sector", &name, at, Some(guard), |part| {
            part.name != "extended_boot_signature"
        });
        // The signature is at the end of the sector, whatever its size.
        let place = at + sector - 512;
        out.put_where("extended_boot_sector", &name, place, Some(guard), |part| {
            part.name == "extended_boot_signature"
        });
    }
    out.sampled = chosen;
    out.put("oem_parameters", &format!("{called}.oem"), base + 9 * sector, Some(guard));
    out.put("checksum_sector", &format!("{called}.sum"), sum, Some(guard));
}

fn targets(out: &mut Builder<'_>, shape: &Shape) {
    let last = shape.clusters + 1;
    let free = (2..=last).find(|cluster| out.u32(shape.fat + 4 * cluster) == 0).unwrap_or(last);
    let numbers = [
        ("nothing", 0),
        ("reserved cluster 1", 1),
        ("first cluster", 2),
        ("last cluster", last),
        ("cluster behind the last", last + 1),
        ("free cluster", free),
        ("root", shape.root),
        ("bad cluster", 0xffff_fff7),
        ("reserved mark", 0xffff_fff8),
        ("end of chain", 0xffff_ffff),
    ];
    for (what, number) in numbers {
        out.target(Kind::Block, what, number);
    }
}

/// The clusters of a chain; of so many bytes one after the other if it is not in the table.
fn chain(out: &Builder<'_>, shape: &Shape, first: u64, together: Option<u64>) -> Vec<u64> {
    let inside = |cluster: u64| (2..shape.clusters + 2).contains(&cluster);
    if let Some(bytes) = together {
        let count = bytes.div_ceil(shape.cluster_bytes).min(CHAIN_MAX);
        return (first..first.saturating_add(count)).filter(|cluster| inside(*cluster)).collect();
    }
    let mut clusters = Vec::new();
    let mut cluster = first;
    while inside(cluster) && (clusters.len() as u64) < CHAIN_MAX {
        clusters.push(cluster);
        cluster = out.u32(shape.fat + 4 * cluster);
    }
    clusters
}

fn place(shape: &Shape, cluster: u64) -> u64 {
    shape.heap + (cluster - 2) * shape.cluster_bytes
}

/// Maps the entries of a directory; the directories in it come back.
fn directory(
    out: &mut Builder<'_>,
    shape: &Shape,
    path: &str,
    clusters: &[u64],
) -> Vec<(String, Vec<u64>)> {
    let per_cluster = shape.cluster_bytes / ENTRY;
    let places: Vec<u64> = clusters
        .iter()
        .flat_map(|cluster| (0..per_cluster).map(|index| place(shape, *cluster) + ENTRY * index))
        .collect();
    let mut below = Vec::new();
    let (mut index, mut sets) = (0, 0);
    while let Some(at) = places.get(index).copied() {
        out.sampled = sets < SETS_SAMPLED;
        let count = match out.u8(at) {
            0 => {
                out.put("other_entry", &format!("entry[{at} end of \"{path}\"]"), at, None);
                break;
            }
            0x85 => {
                sets += 1;
                let set = places[index..].iter().take(out.u8(at + 1) as usize + 1);
                let set: Vec<u64> = set.copied().collect();
                below.extend(entry_set(out, shape, path, &set));
                set.len()
            }
            _ => {
                single(out, shape, at, path);
                1
            }
        };
        index += count;
    }
    out.sampled = true;
    below
}

/// The entries of the root directory that name no file.
fn single(out: &mut Builder<'_>, shape: &Shape, at: u64, path: &str) {
    let (first, bytes) = (out.u32(at + 20), out.u64(at + 24));
    match out.u8(at) {
        0x81 => {
            out.put("bitmap_entry", "bitmap_entry", at, None);
            out.target(Kind::Block, "bitmap", first);
            if first >= 2 {
                let end = bytes.min(shape.cluster_bytes * CHAIN_MAX);
                out.bitmap("bitmap", place(shape, first), shape.clusters, None, end);
            }
        }
        0x82 => {
            let mut guard = None;
            if first >= 2 && bytes < shape.cluster_bytes * CHAIN_MAX {
                out.target(Kind::Block, "upcase table", first);
                guard = Some(upcase(out, shape, at, bytes));
            }
            out.put("upcase_entry", "upcase_entry", at, None);
            if let (Some(guard), true) = (guard, first >= 2) {
                out.table(&Table {
                    called: "upcase",
                    item: "character",
                    base: place(shape, first),
                    width: 2,
                    order: Order::Little,
                    count: (bytes / 2).min(64),
                    kind: Kind::Number,
                    guard: Some(guard),
                });
            }
        }
        0x83 => out.put("label_entry", "label_entry", at, None),
        _ => out.put("other_entry", &format!("entry[{at} in \"{path}\"]"), at, None),
    }
}

fn upcase(out: &mut Builder<'_>, shape: &Shape, at: u64, bytes: u64) -> usize {
    let clusters = chain(out, shape, out.u32(at + 20), None);
    let mut left = bytes;
    let mut pieces = Vec::new();
    for cluster in clusters {
        let length = left.min(shape.cluster_bytes);
        pieces.push(Piece::Range(place(shape, cluster), length));
        left -= length;
    }
    let stores = vec![Store::whole(at + 4, Order::Little)];
    out.guard(Guard { algorithm: Algorithm::Turned32, pieces, stores, next: None })
}

/// Maps a file entry with the entries behind it that belong to it, under one checksum.
fn entry_set(
    out: &mut Builder<'_>,
    shape: &Shape,
    path: &str,
    set: &[u64],
) -> Option<(String, Vec<u64>)> {
    let at = *set.first()?;
    let mut pieces = vec![Piece::Range(at, 2), Piece::Range(at + 4, ENTRY - 4)];
    pieces.extend(set[1..].iter().map(|place| Piece::Range(*place, ENTRY)));
    let stores = vec![Store { at: at + 2, width: 2, shift: 0, order: Order::Little }];
    let guard = out.guard(Guard { algorithm: Algorithm::Turned16, pieces, stores, next: None });
    let name = name_of(out, set);
    let whole = format!("{}/{name}", path.trim_end_matches('/'));
    out.put("file", &format!("file[{at} \"{whole}\"]"), at, Some(guard));
    let is_directory = out.u16(at + 4) & 0x10 != 0;
    let mut found = None;
    for place in &set[1..] {
        let (structure, called) = match out.u8(*place) {
            0xc0 => ("stream", format!("stream[{place} \"{whole}\"]")),
            0xc1 => ("name", format!("name[{place} \"{whole}\"]")),
            _ => ("other_entry", format!("entry[{place} \"{whole}\"]")),
        };
        out.put(structure, &called, *place, Some(guard));
        if structure == "stream" {
            let (first, bytes) = (out.u32(place + 20), out.u64(place + 24));
            let together = (out.u8(place + 1) & NO_CHAIN != 0).then_some(bytes);
            if first >= 2 {
                out.target(Kind::Block, if is_directory { "directory" } else { "file" }, first);
            }
            found = Some(chain(out, shape, first, together));
        }
    }
    found.filter(|_| is_directory).map(|clusters| (whole, clusters))
}

/// The name in the entries of a set.
fn name_of(out: &Builder<'_>, set: &[u64]) -> String {
    let names = set.iter().filter(|place| out.u8(**place) == 0xc1);
    let units = names.flat_map(|place| (0..15).map(move |index| place + 2 + 2 * index));
    let units: Vec<u16> =
        units.map(|at| out.u16(at) as u16).take_while(|unit| *unit != 0).collect();
    String::from_utf16_lossy(&units)
}
