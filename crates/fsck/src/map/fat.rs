//! The map of FAT12, FAT16 and FAT32.

use std::sync::{Arc, LazyLock};

use super::layout::{Layouts, Order};
use super::{Builder, Field, Kind, Map, MapError};

static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    Layouts::parse(include_str!("../../maps/fat.layout")).expect("the layout is tested")
});

/// Directories that are followed at most: loops end here.
const DIRECTORIES_MAX: usize = 1000;
/// Clusters of one chain that are followed at most.
const CHAIN_MAX: usize = 10_000;
/// Entries of the table of clusters that campaigns try.
const CLUSTERS_SAMPLED: u64 = 64;

/// The shape of a FAT file system.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Bits of an entry of the table: 12, 16 or 32.
    bits: u64,
    fat: u64,
    fat_bytes: u64,
    fats: u64,
    root: u64,
    root_entries: u64,
    root_cluster: u64,
    data: u64,
    cluster_bytes: u64,
    clusters: u64,
}

/// Whether an image has a boot sector of FAT.
pub(super) fn is_in(disk: &[u8]) -> bool {
    let word = |at: usize| {
        disk.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    let (sector, fats) = (word(11), disk.get(16).copied().unwrap_or(0));
    word(510) == 0xaa55
        && [512, 1024, 2048, 4096].contains(&sector)
        && (1..=2).contains(&fats)
        && disk.get(3..11) != Some(b"EXFAT   ")
        && disk.get(3..7) != Some(b"NTFS")
}

/// Maps a FAT image.
pub(super) fn walk(disk: &[u8]) -> Result<Map, MapError> {
    let mut out = Builder::new(disk, &LAYOUTS, "vfat");
    let shape = shape(&out).map_err(|what| MapError::Misfit { file_system: "vfat", what })?;
    out.map.block_bytes = shape.cluster_bytes;
    out.put("boot_sector", "boot", 0, None);
    let tail = if shape.bits == 32 { "boot_tail32" } else { "boot_tail16" };
    out.put(tail, "boot", 36, None);
    out.put("boot_signature", "boot", 510, None);
    if shape.bits == 32 {
        let place = out.get("boot_tail32", "bpb_fs_info", 36) * out.u16(11);
        out.put("fs_info", "fs_info", place, None);
    }
    table(&mut out, &shape);
    targets(&mut out, &shape);
    directories(&mut out, &shape);
    Ok(out.map)
}

fn shape(out: &Builder<'_>) -> Result<Shape, String> {
    let (sector, per_cluster) = (out.u16(11), out.u8(13));
    let (reserved, fats, root_entries) = (out.u16(14), out.u8(16), out.u16(17));
    let either = |small: u64, large: u64| if small != 0 { small } else { large };
    let total = either(out.u16(19), out.u32(32));
    let fat_sectors = either(out.u16(22), out.u32(36));
    if per_cluster == 0 || fat_sectors == 0 {
        return Err(format!("{per_cluster} sectors in a cluster, {fat_sectors} in a table"));
    }
    let root = (reserved + fats * fat_sectors) * sector;
    let data = root + (root_entries * 32).next_multiple_of(sector);
    let clusters = (total * sector).saturating_sub(data) / (per_cluster * sector);
    let bits = match (out.u16(22), clusters) {
        (0, _) => 32,
        (_, ..4085) => 12,
        _ => 16,
    };
    Ok(Shape {
        bits,
        fat: reserved * sector,
        fat_bytes: fat_sectors * sector,
        fats,
        root,
        root_entries,
        root_cluster: if bits == 32 { out.u32(44) } else { 0 },
        data,
        cluster_bytes: per_cluster * sector,
        clusters,
    })
}

/// The entry of a cluster in the first table.
fn next(out: &Builder<'_>, shape: &Shape, cluster: u64) -> u64 {
    match shape.bits {
        12 => {
            let pair = out.u16(shape.fat + cluster + cluster / 2);
            if cluster % 2 == 1 { pair >> 4 } else { pair & 0xfff }
        }
        16 => out.u16(shape.fat + 2 * cluster),
        _ => out.u32(shape.fat + 4 * cluster) & 0xfff_ffff,
    }
}

fn end_of_chain(shape: &Shape, entry: u64) -> bool {
    let last = [0xff8, 0xfff8, 0xfff_fff8];
    entry < 2
        || entry >= last[if shape.bits == 12 { 0 } else { shape.bits as usize / 16 }]
        || entry >= shape.clusters + 2
}

/// The tables of clusters: bytes of FAT12, entries of the others; those in use, and one that is not.
fn table(out: &mut Builder<'_>, shape: &Shape) {
    for copy in 0..shape.fats {
        let base = shape.fat + copy * shape.fat_bytes;
        let called: Arc<str> = Arc::from(format!("fat[{copy}]"));
        let (width, items) = match shape.bits {
            12 => (1, (shape.clusters + 2) * 3 / 2 + 1),
            16 => (2, shape.clusters + 2),
            _ => (4, shape.clusters + 2),
        };
        let (mut used, mut unused) = (0, 0);
        for index in 0..items.min(shape.fat_bytes / u64::from(width)) {
            let at = base + index * u64::from(width);
            let in_use = out.number(at, width, Order::Little) != 0;
            *(if in_use { &mut used } else { &mut unused }) += 1;
            if !in_use && unused > 1 && index + 1 != items {
                continue;
            }
            let sampled = used <= if copy == 0 { CLUSTERS_SAMPLED } else { 8 };
            let name = if shape.bits == 12 {
                format!("byte[{index}]")
            } else {
                format!("cluster[{index}]")
            };
            let (structure, name, order) = (called.clone(), name.into(), Order::Little);
            out.add(Field {
                structure,
                name,
                at,
                width,
                order,
                kind: Kind::Block,
                guard: None,
                sampled,
            });
        }
    }
}

fn targets(out: &mut Builder<'_>, shape: &Shape) {
    let last = shape.clusters + 1;
    let free = (2..=last).find(|cluster| next(out, shape, *cluster) == 0).unwrap_or(last);
    let marks = [0xff0, 0xff7, 0xff8, 0xfff].map(|mark| match shape.bits {
        12 => mark,
        16 => mark | 0xf000,
        _ => mark | 0xfff_f000,
    });
    let numbers = [
        ("nothing", 0),
        ("reserved cluster 1", 1),
        ("first cluster", 2),
        ("last cluster", last),
        ("cluster behind the last", last + 1),
        ("free cluster", free),
        ("reserved mark", marks[0]),
        ("bad cluster", marks[1]),
        ("end of chain", marks[2]),
        ("other end of chain", marks[3]),
    ];
    for (what, number) in numbers {
        out.target(Kind::Block, what, number);
    }
}

/// A place of a directory: first byte and how many entries.
type Part = (u64, u64);

fn parts(out: &Builder<'_>, shape: &Shape, first: u64) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut cluster = first;
    while !end_of_chain(shape, cluster) && parts.len() < CHAIN_MAX {
        parts.push((shape.data + (cluster - 2) * shape.cluster_bytes, shape.cluster_bytes / 32));
        cluster = next(out, shape, cluster);
    }
    parts
}

fn directories(out: &mut Builder<'_>, shape: &Shape) {
    let root = match shape.root_cluster {
        0 => vec![(shape.root, shape.root_entries)],
        cluster => parts(out, shape, cluster),
    };
    let mut todo = vec![("/".to_owned(), root)];
    let mut followed = 0;
    while let Some((path, parts)) = todo.pop() {
        followed += 1;
        if followed > DIRECTORIES_MAX {
            out.note("there are more directories than a walk follows".to_owned());
            return;
        }
        todo.extend(directory(out, shape, &path, &parts));
    }
}

/// Maps the entries of a directory; the directories in it come back.
fn directory(
    out: &mut Builder<'_>,
    shape: &Shape,
    path: &str,
    parts: &[Part],
) -> Vec<(String, Vec<Part>)> {
    let mut below = Vec::new();
    let places = parts.iter().flat_map(|(at, count)| (0..*count).map(move |index| at + 32 * index));
    for (index, at) in places.enumerate() {
        // Campaigns try the first ones: the many files of a directory are alike.
        out.sampled = index < 16;
        let first = out.u8(at);
        if first == 0 {
            let called = format!("entry[{at} end of \"{path}\"]");
            out.put_where("entry", &called, at, None, |part| part.at == 0);
            break;
        }
        if out.u8(at + 11) & 0x3f == 0x0f {
            out.put("long_entry", &format!("long_entry[{at} in \"{path}\"]"), at, None);
            continue;
        }
        let name = short_name(out.bytes(at, 11));
        let whole = format!("{}/{name}", path.trim_end_matches('/'));
        out.put("entry", &format!("entry[{at} \"{whole}\"]"), at, None);
        let cluster = out.u16(at + 26) | if shape.bits == 32 { out.u16(at + 20) << 16 } else { 0 };
        let is_directory = out.u8(at + 11) & 0x10 != 0;
        if cluster >= 2 {
            out.target(Kind::Block, if is_directory { "directory" } else { "file" }, cluster);
        }
        if is_directory && !name.starts_with('.') && first != 0xe5 && cluster >= 2 {
            let parts = self::parts(out, shape, cluster);
            below.push((whole, parts));
        }
    }
    out.sampled = true;
    below
}

fn short_name(bytes: &[u8]) -> String {
    let text = |part: &[u8]| String::from_utf8_lossy(part).trim_end().to_owned();
    match bytes {
        [name @ .., a, b, c] if [*a, *b, *c] != *b"   " => {
            format!("{}.{}", text(name), text(&[*a, *b, *c]))
        }
        [name @ .., _, _, _] => text(name),
        _ => String::new(),
    }
}
