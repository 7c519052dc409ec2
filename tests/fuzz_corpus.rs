//! Replays the corpus of the fuzz targets, so that what fuzzing has found stays found.
//! To look for more: `cargo fuzz run config`, `cargo fuzz run record` and `cargo fuzz run exported`.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that cannot read its files has to fail"
)]

#[path = "../fuzz/checks.rs"]
mod checks;

use std::fs;
use std::path::Path;

/// Runs a check over every file of a corpus, and over every file cut short; returns how many whole
/// files were accepted.
fn replay(corpus: &str, check: fn(&[u8]) -> bool) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(corpus);
    let mut accepted = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        for end in 0..bytes.len() {
            check(&bytes[..end]);
        }
        accepted += usize::from(check(&bytes));
    }
    accepted
}

#[test]
fn settings_from_anywhere_are_refused_or_work() {
    assert!(replay("config", checks::config) >= 8);
}

#[test]
fn records_from_anywhere_are_refused_or_work() {
    assert!(replay("record", checks::record) >= 13);
}

#[test]
fn exports_from_anywhere_are_read_and_what_is_good_is_taken_over() {
    assert!(replay("exported", checks::exported) >= 9);
}
