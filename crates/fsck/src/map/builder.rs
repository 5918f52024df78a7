//! Puts structures of a layout onto an image.

use std::collections::HashMap;
use std::sync::Arc;

use super::guard::Guard;
use super::kind::Kind;
use super::layout::{Layouts, Order, Part};
use super::{Field, Map, Target};

/// A map in the making.
pub(crate) struct Builder<'a> {
    disk: &'a [u8],
    layouts: &'a Layouts,
    /// Place and width of what is mapped: a field that two ways lead to is there once.
    placed: HashMap<(u64, u8), ()>,
    /// Whether what is put from now on is tried by campaigns.
    pub(crate) sampled: bool,
    /// How many structures of each sort there were.
    sorts: HashMap<String, u64>,
    pub(crate) map: Map,
}

/// Numbers of one sort that lie one after the other.
pub(crate) struct Table<'a> {
    /// The structure that they are in.
    pub(crate) called: &'a str,
    /// The name of one of them.
    pub(crate) item: &'a str,
    pub(crate) base: u64,
    pub(crate) width: u8,
    pub(crate) order: Order,
    pub(crate) count: u64,
    pub(crate) kind: Kind,
    pub(crate) guard: Option<usize>,
}

/// Numbers of a table that campaigns try, besides the last and one that is zero.
const TABLE_SAMPLED: u64 = 2;

impl<'a> Builder<'a> {
    pub(crate) fn new(disk: &'a [u8], layouts: &'a Layouts, file_system: &str) -> Builder<'a> {
        let map = Map { file_system: file_system.to_owned(), ..Map::default() };
        Builder { disk, layouts, placed: HashMap::new(), sampled: true, sorts: HashMap::new(), map }
    }

    /// A number of the disk; 0 beyond its end.
    pub(crate) fn number(&self, at: u64, width: u8, order: Order) -> u64 {
        let nothing: Arc<str> = Arc::from("");
        let (structure, name) = (nothing.clone(), nothing);
        Field { structure, name, at, width, order, kind: Kind::Number, guard: None, sampled: false }
            .read(self.disk)
    }

    pub(crate) fn u8(&self, at: u64) -> u64 {
        self.number(at, 1, Order::Little)
    }

    pub(crate) fn u16(&self, at: u64) -> u64 {
        self.number(at, 2, Order::Little)
    }

    pub(crate) fn u32(&self, at: u64) -> u64 {
        self.number(at, 4, Order::Little)
    }

    pub(crate) fn u64(&self, at: u64) -> u64 {
        self.number(at, 8, Order::Little)
    }

    pub(crate) fn b64(&self, at: u64) -> u64 {
        self.number(at, 8, Order::Big)
    }

    /// Where the disk ends.
    pub(crate) fn end(&self) -> u64 {
        self.disk.len() as u64
    }

    pub(crate) fn b16(&self, at: u64) -> u64 {
        self.number(at, 2, Order::Big)
    }

    pub(crate) fn b32(&self, at: u64) -> u64 {
        self.number(at, 4, Order::Big)
    }

    pub(crate) fn bytes(&self, at: u64, length: u64) -> &'a [u8] {
        self.disk.get(at as usize..(at + length) as usize).unwrap_or_default()
    }

    /// The value of a field of a structure at a place.
    pub(crate) fn get(&self, structure: &str, name: &str, base: u64) -> u64 {
        let part = self.layouts.parts(structure).iter().find(|part| part.name == name);
        part.map_or(0, |part| self.number(base + part.at, part.width, part.order))
    }

    /// Adds a checksum; its number is what fields refer to.
    pub(crate) fn guard(&mut self, guard: Guard) -> usize {
        self.map.guards.push(guard);
        self.map.guards.len() - 1
    }

    /// Puts a whole structure at a place.
    pub(crate) fn put(&mut self, structure: &str, called: &str, base: u64, guard: Option<usize>) {
        self.put_where(structure, called, base, guard, |_| true);
    }

    /// Puts the fields of a structure that a condition holds for.
    pub(crate) fn put_where(
        &mut self,
        structure: &str,
        called: &str,
        base: u64,
        guard: Option<usize>,
        wanted: impl Fn(&Part) -> bool,
    ) {
        let called: Arc<str> = Arc::from(called);
        let layouts = self.layouts;
        for part in layouts.parts(structure).iter().filter(|part| wanted(part)) {
            let field = Field {
                structure: called.clone(),
                name: Arc::from(part.name.as_str()),
                at: base + part.at,
                width: part.width,
                order: part.order,
                kind: part.kind,
                guard,
                sampled: self.sampled,
            };
            self.add(field);
        }
    }

    /// Adds one field that is in no layout: an item of a table, a byte of a bitmap.
    pub(crate) fn add(&mut self, field: Field) {
        let inside = field.bytes().end <= self.disk.len() as u64;
        if inside && self.placed.insert((field.at, field.width), ()).is_none() {
            self.map.fields.push(field);
        }
    }

    /// Adds the bytes of a bitmap that have a bit in use, the first that has none, and those behind
    /// its last bit that must be set.
    pub(crate) fn bitmap(
        &mut self,
        called: &str,
        base: u64,
        bits: u64,
        guard: Option<usize>,
        end: u64,
    ) {
        let called: Arc<str> = Arc::from(called);
        let last = bits.div_ceil(8);
        let mut free_seen = 0;
        for index in 0..end.min(last + 1) {
            let value = self.u8(base + index);
            if value == 0 {
                free_seen += 1;
                if free_seen > 1 && index + 1 < last {
                    continue;
                }
            }
            let (structure, name) = (called.clone(), Arc::from(format!("byte[{index}]")));
            let (at, width, order) = (base + index, 1, Order::Little);
            let sampled = self.sampled;
            self.add(Field {
                structure,
                name,
                at,
                width,
                order,
                kind: Kind::Bitmap,
                guard,
                sampled,
            });
        }
    }

    /// Has the first few structures of a sort tried by campaigns, and no others.
    pub(crate) fn sample(&mut self, sort: &str, most: u64) {
        let seen = self.sorts.entry(sort.to_owned()).or_default();
        *seen += 1;
        self.sampled = *seen <= most;
    }

    /// Adds the numbers of a table that are not zero, and the first that is.
    pub(crate) fn table(&mut self, table: &Table<'_>) {
        let wanted = self.sampled;
        let structure: Arc<str> = Arc::from(table.called);
        let place = |index: u64| table.base + index * u64::from(table.width);
        let used: Vec<u64> = (0..table.count)
            .filter(|index| self.number(place(*index), table.width, table.order) != 0)
            .collect();
        let zero = (0..table.count).find(|index| used.binary_search(index).is_err());
        for (nth, index) in used.iter().copied().chain(zero).enumerate() {
            let ends = nth as u64 + 1 >= used.len() as u64;
            self.add(Field {
                structure: structure.clone(),
                name: Arc::from(format!("{}[{index}]", table.item)),
                at: place(index),
                width: table.width,
                order: table.order,
                kind: table.kind,
                guard: table.guard,
                sampled: wanted && (ends || (nth as u64) < TABLE_SAMPLED),
            });
        }
    }

    /// Remembers something that pointers may point to; one of each sort is enough.
    pub(crate) fn target(&mut self, kind: Kind, what: &str, number: u64) {
        if !self.map.targets.iter().any(|target| target.kind == kind && target.what == what) {
            self.map.targets.push(Target { what: what.to_owned(), kind, number });
        }
    }

    /// Says something about the walk.
    pub(crate) fn note(&mut self, text: String) {
        if self.map.notes.len() < 20 {
            self.map.notes.push(text);
        }
    }
}
