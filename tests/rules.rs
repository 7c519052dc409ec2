//! Every rule has a test: `tests/README.md` names the files that hold each, and they name the rule.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The rules of the circuit.
const RULES: std::ops::RangeInclusive<u32> = 1..=37;

/// The rows of the table in `tests/README.md`: a rule and the files that hold it.
fn table(readme: &str) -> BTreeMap<u32, Vec<String>> {
    readme
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| R")?.split('|').map(str::trim);
            let rule = cells.next()?.parse().ok()?;
            let files = cells.nth(1)?;
            let files = files.split(", ").map(|file| file.trim_matches('`').into());
            Some((rule, files.collect()))
        })
        .collect()
}

/// Whether a comment of a test file names the rule, as `// R14` or in a list.
fn names(source: &str, rule: u32) -> bool {
    let name = format!("R{rule}");
    source.lines().any(|line| {
        line.split_once("//").is_some_and(|(_, comment)| {
            comment
                .split(|c: char| !c.is_ascii_alphanumeric())
                .any(|word| word == name)
        })
    })
}

/// What is wrong with a table, given the sources of the test files.
fn faults(readme: &str, source: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let table = table(readme);
    let mut faults = Vec::new();
    for rule in RULES {
        let Some(files) = table.get(&rule) else {
            faults.push(format!("R{rule} has no row"));
            continue;
        };
        for file in files {
            match source(file) {
                None => faults.push(format!("R{rule}: there is no {file}")),
                Some(source) if !names(&source, rule) => {
                    faults.push(format!("R{rule}: {file} does not name it"));
                }
                Some(_) => {}
            }
        }
    }
    faults
}

#[test]
fn every_rule_is_held_by_a_test_that_names_it() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let readme = fs::read_to_string(tests.join("README.md")).unwrap();
    let faults = faults(&readme, |file| fs::read_to_string(tests.join(file)).ok());
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_rule_without_a_row_a_file_or_a_mention_is_found() {
    let readme = "| R1 | the record | `a.rs` |\n| R2 | one step | `b.rs`, `c.rs` |";
    let found = faults(readme, |file| match file {
        "a.rs" => Some("// R1, R12\nfn test() {}".to_owned()),
        "b.rs" => Some("let r2 = \"R2\"; // R20 holds".to_owned()),
        _ => None,
    });
    assert_eq!(
        found[..3],
        [
            "R2: b.rs does not name it",
            "R2: there is no c.rs",
            "R3 has no row"
        ]
    );
}
