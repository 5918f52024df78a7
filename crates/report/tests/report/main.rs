//! The reports: their file, their text, their page.

mod checker;
mod file;
mod pages;
mod runs;
