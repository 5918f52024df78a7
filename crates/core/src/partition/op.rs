//! The partitions that an executed operation exercises, as a tracer of system calls would see them.
//!
//! An operation counts for the call by which executors carry it out: `Stat` is `statx`, `Access` is
//! `faccessat2`, a mapped store is `mmap` and `msync`. [`Op::Identity`] and [`Op::Remount`] are no
//! calls on a file system and count for nothing. An operation does not say whether its slot is open:
//! a slot counts as bad where the call failed with `EBADF`.

use super::table::{Base, table};
use super::value::{Granularity, Value};
use super::{Hit, Place};
use crate::errno::Errno;
use crate::op::{Op, Target};
use crate::operand::{Naming, Operand, Traced};
use crate::outcome::{Outcome, Payload};

const MAP_SHARED: u64 = 1;
/// Mappings start at a multiple of it.
const PAGE_BYTES: i64 = 4096;

/// The partitions of an operation and its outcome, amounts by powers of two.
pub fn partitions_of(op: &Op, outcome: &Outcome) -> Vec<Hit> {
    partitions_at(op, outcome, Granularity::Powers)
}

/// The partitions of an operation and its outcome.
pub fn partitions_at(op: &Op, outcome: &Outcome, how: Granularity) -> Vec<Hit> {
    let mut seen = Seen { outcome, how, hits: Vec::new() };
    match op.traced() {
        Traced::Nothing => {}
        Traced::Call(name) => seen.call(name).operands(op).result(),
        Traced::Listing => listing(op, &mut seen),
        Traced::Piece => {
            let listed = outcome.result.map(|_| listed_bytes(outcome));
            seen.call("getdents").operands(op).result_of(listed);
        }
        Traced::Mapping { prot } => mapping(op, prot, &mut seen),
    }
    seen.hits
}

/// The arguments of `mmap` and `msync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// Where the mapping starts: at a page.
    pub start: i64,
    /// How long it is.
    pub length: u64,
    /// How many of its bytes are wanted.
    pub wanted: u64,
    /// How they are written back, if they are.
    pub sync: Option<u32>,
}

impl Mapped {
    /// The mapping that an operation makes for its offset and its length or data.
    pub fn of(op: &Op) -> Mapped {
        let (mut offset, mut mapped) = (0, Mapped::default());
        op.operands(|operand| match operand {
            Operand::Offset(at, _) => offset = *at,
            Operand::Length(len, _) => mapped.wanted = *len,
            Operand::Data(data, ..) => mapped.wanted = data.len,
            Operand::Flags(flags, _) => mapped.sync = Some(flags.get()),
            _ => {}
        });
        let lead = offset.rem_euclid(PAGE_BYTES);
        let length = mapped.wanted.saturating_add(lead as u64);
        Mapped { start: offset - lead, length, ..mapped }
    }
}

fn mapping(op: &Op, prot: u64, seen: &mut Seen<'_>) {
    let mapped = Mapped::of(op);
    let call = &mut seen.call("mmap");
    call.arg("addr", Value::Null).number("length", mapped.length);
    call.number("prot", prot).number("flags", MAP_SHARED);
    call.fd("fd").signed("offset", mapped.start).result();
    // Whether a failure was that of mmap or of msync is not recorded.
    if let Some(flags) = mapped.sync.filter(|_| seen.outcome.result.is_ok()) {
        let call = &mut seen.call("msync");
        call.address("addr").number("length", mapped.wanted).number("flags", flags.into()).result();
    }
}

/// What `getdents` returned in all: an outcome has the entries of all its calls, the kernel counts
/// their records (getdents(2): header of 19 bytes, name with NUL, aligned to 8), and the last call
/// returns 0.
pub fn listed_bytes(outcome: &Outcome) -> u64 {
    let record_bytes = |name: &[u8]| (19 + name.len() as u64 + 1).next_multiple_of(8);
    match &outcome.payload {
        Payload::Entries(all) => all.iter().map(|(name, _)| record_bytes(name.as_bytes())).sum(),
        _ => 0,
    }
}

fn listing(op: &Op, seen: &mut Seen<'_>) {
    let (listed, result) = (listed_bytes(seen.outcome), seen.outcome.result);
    let call = &mut seen.call("getdents");
    call.operands(op).result_of(result.map(|_| listed));
    if result.is_ok() && listed > 0 {
        call.result_of(Ok(0));
    }
}

/// The partitions found so far.
struct Seen<'a> {
    outcome: &'a Outcome,
    how: Granularity,
    hits: Vec<Hit>,
}

/// One call of an operation.
struct Call<'s, 'a> {
    name: &'static str,
    base: &'static Base,
    seen: &'s mut Seen<'a>,
}

impl<'a> Seen<'a> {
    fn call(&mut self, name: &str) -> Call<'_, 'a> {
        let (name, base) = table().base(name).expect("the names here are those of the table");
        Call { name, base, seen: self }
    }
}

impl Call<'_, '_> {
    fn operands(&mut self, op: &Op) -> &mut Self {
        op.operands(|operand| {
            self.operand(operand);
        });
        self
    }

    fn operand(&mut self, operand: Operand<'_>) -> &mut Self {
        match operand {
            Operand::Slot(_, Some(arg), _) => self.fd(arg),
            Operand::Path(path, Some(dir), arg, _) => self.here(dir).text(arg, path.as_bytes()),
            Operand::Path(text, None, arg, _)
            | Operand::Text(text, arg)
            | Operand::XattrName(text, arg) => self.text(arg, text.as_bytes()),
            Operand::Target(target, naming, _) => self.target(target, naming),
            Operand::Offset(value, arg)
            | Operand::Distance(value, arg)
            | Operand::SignedLength(value, arg) => self.signed(arg, *value),
            Operand::Position(value, arg) => self.optional(arg, *value),
            Operand::Length(value, arg) | Operand::IntLength(value, arg) => {
                self.number(arg, *value)
            }
            Operand::Data(data, address, arg) => self.address(address).number(arg, data.len),
            Operand::Flags(flags, arg) => self.number(arg, flags.get().into()),
            Operand::Number(value, arg) => self.number(arg, (*value).into()),
            Operand::Whence(whence, arg) => self.number(arg, *whence as u64),
            Operand::Mode(mode, Some(arg)) | Operand::Mask(mode, arg) => {
                self.number(arg, mode.0.into())
            }
            Operand::Owner(id, arg) => self.number(arg, id.unwrap_or(u32::MAX).into()),
            Operand::At(flags) if flags.counted => self.number("flags", flags.bits),
            Operand::Buffer(arg) => self.address(arg),
            Operand::Fixed(arg, value) => self.number(arg, value),
            Operand::Slot(_, None, _)
            | Operand::Mode(_, None)
            | Operand::At(_)
            | Operand::Device(_)
            | Operand::Back(_)
            | Operand::Id(..)
            | Operand::Groups(_)
            | Operand::Time(_) => self,
        }
    }

    fn target(&mut self, target: &Target, naming: Naming) -> &mut Self {
        match (target, naming) {
            (Target::Path(path) | Target::Link(path), Naming::Plain) => {
                self.text("path", path.as_bytes())
            }
            (Target::Path(path) | Target::Link(path), _) => {
                self.here("dirfd").text("path", path.as_bytes())
            }
            (Target::Slot(_), Naming::Plain | Naming::DirOrFd) => self.fd("fd"),
            (Target::Slot(_), Naming::DirOrNull) => self.fd("dirfd").arg("path", Value::Text(None)),
            (Target::Slot(_), Naming::DirOrEmpty) => self.fd("dirfd").text("path", b""),
        }
    }

    fn arg(&mut self, arg: &str, value: Value<'_>) -> &mut Self {
        let (arg, details) =
            self.base.args.get_key_value(arg).expect("the names here are those of the table");
        for partition in details.partitions(value, self.seen.how) {
            self.seen.hits.push(Hit { base: self.name, place: Place::Arg(arg), partition });
        }
        self
    }

    fn number(&mut self, arg: &str, value: u64) -> &mut Self {
        self.arg(arg, Value::Number(value))
    }

    fn signed(&mut self, arg: &str, value: i64) -> &mut Self {
        self.arg(arg, Value::Number(value as u64))
    }

    fn optional(&mut self, arg: &str, offset: Option<i64>) -> &mut Self {
        self.arg(arg, offset.map_or(Value::Null, |offset| Value::Number(offset as u64)))
    }

    fn text(&mut self, arg: &str, text: &[u8]) -> &mut Self {
        self.arg(arg, Value::Text(Some(text)))
    }

    fn address(&mut self, arg: &str) -> &mut Self {
        self.arg(arg, Value::Address)
    }

    fn here(&mut self, arg: &str) -> &mut Self {
        self.arg(arg, Value::CurrentDir)
    }

    fn fd(&mut self, arg: &str) -> &mut Self {
        let valid = self.seen.outcome.result != Err(Errno::EBADF);
        self.arg(arg, Value::Fd { valid })
    }

    fn result(&mut self) {
        self.result_of(self.seen.outcome.result);
    }

    fn result_of(&mut self, result: Result<u64, Errno>) {
        let partition = self.base.returns.partition(result);
        self.seen.hits.push(Hit { base: self.name, place: Place::Output, partition });
    }
}
