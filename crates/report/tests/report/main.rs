//! The reports: their file, their text, their page.

mod checker;
mod file;
#[path = "../../../core/tests/common/golden.rs"]
mod golden;
mod pages;
mod runs;
