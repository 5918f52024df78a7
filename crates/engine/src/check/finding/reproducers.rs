//! The programs beside a finding that prove it without Fathom.

use fathom_core::Trace;
use fathom_core::export::{self, Assert};

/// `repro.c` and `repro.sh`, each with its text: exit code 1 where the bug is, 0 where it is not.
pub(super) fn reproducers(minimal: &Trace) -> [(&'static str, String); 2] {
    [
        ("repro.c", export::c::program(minimal, Assert::Expected)),
        ("repro.sh", export::shell::script(minimal, Assert::Expected)),
    ]
    .map(|(name, program)| {
        (name, program.unwrap_or_else(|error| format!("not possible: {error}\n")))
    })
}
