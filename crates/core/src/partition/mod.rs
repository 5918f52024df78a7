//! Partitions: classes of the inputs and outputs of the system calls, which coverage counts.
//!
//! Every argument and every result of a call falls into a small number of classes in which a file
//! system can be expected to behave alike: a flag is set, a length lies between two powers of two, a
//! call fails with a certain error. [`table`] has the calls and the kinds of their arguments (data:
//! `data/syscalls.json`), [`value`] gives the partitions of a value, [`amount`]
//! shortens amounts without leaving their partitions, [`op`] those of an executed
//! [`Op`](crate::Op), [`pair`] those of two flags at once, and [`Coverage`] counts them and names the
//! holes.

pub mod amount;
pub mod coverage;
pub mod op;
pub mod pair;
pub mod table;
pub mod value;

pub use coverage::{Coverage, Tally};
pub use op::partitions_of;
pub use pair::{Pair, all_pairs};
pub use table::{Arg, ArgKind, Base, Returns, Syscall, Table, table};
pub use value::{Granularity, Partition, Value};

/// The place in a call where a partition was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// An argument.
    Arg(&'static str),
    /// The result.
    Output,
}

/// One partition of one place of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hit {
    /// The call, by the name of its family: `open` for `open`, `openat`, `openat2` and `creat`.
    pub base: &'static str,
    /// The argument or the result.
    pub place: Place,
    /// The class of values.
    pub partition: Partition,
}

impl std::fmt::Display for Hit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place {
            Place::Arg(name) => write!(f, "{}.{name} {}", self.base, self.partition),
            Place::Output => write!(f, "{} = {}", self.base, self.partition),
        }
    }
}
