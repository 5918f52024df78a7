//! Golden files, for the tests of every crate: included by its path, so that each compares with its own.

use std::path::Path;

/// Compares `text` with a file of the crate's `tests/golden`; with `FATHOM_BLESS=1` writes it.
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("FATHOM_BLESS").is_some() {
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; FATHOM_BLESS=1 writes it", path.display()));
    assert!(
        text == golden,
        "{name} has changed; look at the difference, then bless it with FATHOM_BLESS=1\n{text}"
    );
}
