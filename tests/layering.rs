//! Which module may name which, and what the pure layer may not name at all; read from the sources.
//! The direction is the one of DESIGN.md: guide and admin, then
//! supervisor, then family, then health, then breaker, actor and message, then gate, event,
//! error and store, then circuit, then config, policy, outcome, random and clock.
//!
//! It looks at words, not at meanings: comments, strings and characters are taken out first, then every
//! `crate::…` and `super::…` path is followed to the top-level module it names.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Every top-level module, from the one that may name all to those that stand alone. Modules of one layer
/// may name each other in one direction; those of a layer marked `Free`, in both.
const LAYERS: [(&[&str], Siblings); 9] = [
    (&["guide", "admin"], Siblings::OneWay),
    (&["supervisor"], Siblings::OneWay),
    (&["family"], Siblings::OneWay),
    (&["health"], Siblings::OneWay),
    (&["breaker", "actor", "message"], Siblings::Free),
    (
        &["gate", "event", "error", "store", "report", "telemetry"],
        Siblings::OneWay,
    ),
    (&["circuit", "hold"], Siblings::OneWay),
    (
        &["config", "policy", "outcome", "random", "clock"],
        Siblings::OneWay,
    ),
    (&["caught"], Siblings::OneWay),
];

#[derive(Clone, Copy, PartialEq)]
enum Siblings {
    Free,
    OneWay,
}

/// The top-level modules that are pure; of `clock`, only the file `clock/timestamp.rs` is.
const PURE: [&str; 6] = ["circuit", "config", "policy", "outcome", "random", "caught"];

/// What the pure layer does not name: the runtime, time, threads, locks, atomics, telemetry.
const IMPURE: [&str; 25] = [
    "actix",
    "actix_rt",
    "tokio",
    "futures",
    "futures_core",
    "futures_util",
    "tracing",
    "metrics",
    "log",
    "atomic",
    "Mutex",
    "RwLock",
    "OnceLock",
    "OnceCell",
    "LazyLock",
    "Condvar",
    "mpsc",
    "Instant",
    "SystemTime",
    "SystemClock",
    "ManualClock",
    "Clock",
    "thread",
    "thread_local",
    "async",
];

/// Takes out comments (nested ones too), strings (raw ones too) and characters.
fn strip(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::new();
    let mut i = 0;
    while i < chars.len() {
        let word_before = i > 0 && (at(i - 1).is_alphanumeric() || at(i - 1) == '_');
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            ('/', '*') => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 || i >= chars.len() {
                        break;
                    }
                }
                out.push(' ');
            }
            ('r', '"' | '#') if !word_before || (at(i - 1) == 'b') => {
                let hashes = chars[i + 1..].iter().take_while(|c| **c == '#').count();
                if at(i + 1 + hashes) != '"' {
                    out.push('r'); // a raw identifier
                    i += 1;
                    continue;
                }
                i += hashes + 2;
                let closes =
                    |i: usize| at(i) == '"' && (1..=hashes).all(|more| at(i + more) == '#');
                while i < chars.len() && !closes(i) {
                    i += 1;
                }
                i += hashes + 1;
                out.push(' ');
            }
            ('"', _) => {
                i += 1;
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i += 1;
                out.push(' ');
            }
            ('\'', '\\') => {
                i += 3;
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
                out.push(' ');
            }
            ('\'', _) if at(i + 2) == '\'' => {
                i += 3;
                out.push(' ');
            }
            (c, _) => {
                out.push(c);
                i += 1;
            }
        }
    }
    out
}

/// Words, `::`, and single signs.
fn tokens(source: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut joins = false;
    for c in strip(source).chars() {
        let word = c.is_alphanumeric() || c == '_';
        match tokens.last_mut() {
            Some(last) if joins && word => last.push(c),
            Some(last) if joins && c == ':' && last == ":" => last.push(c),
            _ if c.is_whitespace() => {}
            _ => tokens.push(c.to_string()),
        }
        let last = tokens.last().map_or("", String::as_str);
        joins = !c.is_whitespace() && (word || last == ":");
    }
    tokens
}

/// The names that can follow a path's beginning: one, or those of a group.
fn heads(tokens: &[String], mut i: usize) -> Vec<Vec<String>> {
    if tokens.get(i).is_some_and(|token| token == "{") {
        let mut all = Vec::new();
        let mut depth = 0;
        let mut begins = false;
        while let Some(token) = tokens.get(i) {
            match token.as_str() {
                "{" => {
                    depth += 1;
                    begins = depth == 1;
                }
                "}" => depth -= 1,
                "," => begins = depth == 1,
                _ if begins => {
                    all.extend(heads(tokens, i));
                    begins = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
            i += 1;
        }
        return all;
    }
    let mut path = Vec::new();
    while let Some(name) = tokens.get(i) {
        path.push(name.clone());
        if tokens.get(i + 1).is_none_or(|token| token != "::") {
            break;
        }
        i += 2;
        if tokens.get(i).is_some_and(|token| token == "{") {
            return heads(tokens, i)
                .into_iter()
                .map(|rest| [path.clone(), rest].concat())
                .collect();
        }
    }
    vec![path]
}

/// The module a file is, as a path from the root: `circuit/window.rs` is `["circuit", "window"]`.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/')
        .filter(|name| *name != "lib")
        .map(str::to_owned)
        .collect()
}

/// The first names of all paths that start at the root of the crate, however they are written.
fn named(file: &str, source: &str) -> BTreeSet<String> {
    let tokens = tokens(source);
    let is = |i: usize, what: &str| tokens.get(i).is_some_and(|token| token == what);
    let mut module = module_of(file);
    let mut depth = 0;
    // Where inline modules end.
    let mut inline: Vec<usize> = Vec::new();
    let mut named = BTreeSet::new();
    for (i, token) in tokens.iter().enumerate() {
        let continues = i > 0 && is(i - 1, "::");
        match token.as_str() {
            "{" => {
                depth += 1;
                if i >= 2 && is(i - 2, "mod") {
                    module.push(tokens[i - 1].clone());
                    inline.push(depth);
                }
            }
            "}" => {
                if inline.last() == Some(&depth) {
                    inline.pop();
                    module.pop();
                }
                depth -= 1;
            }
            "crate" if !continues && is(i + 1, "::") => {
                named.extend(
                    heads(&tokens, i + 2)
                        .into_iter()
                        .filter_map(|path| path.first().cloned()),
                );
            }
            "super" if !continues && is(i + 1, "::") => {
                for path in heads(&tokens, i) {
                    let ups = path.iter().take_while(|name| *name == "super").count();
                    if ups >= module.len() {
                        named.extend(path.get(ups).cloned());
                    }
                }
            }
            _ => {}
        }
    }
    named
}

fn layer(module: &str) -> Option<usize> {
    LAYERS
        .iter()
        .position(|(modules, _)| modules.contains(&module))
}

fn is_pure(file: &str) -> bool {
    file == "clock/timestamp.rs" || PURE.contains(&module_of(file)[0].as_str())
}

/// All that is wrong with the sources, each a pair of a path below `src/` and a text.
fn violations<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, source) in sources {
        if file == "lib.rs" {
            continue; // re-exports alone; its modules are seen as files
        }
        let module = module_of(file)[0].clone();
        let Some(here) = layer(&module) else {
            wrong.push(format!(
                "src/{file}: the module `{module}` has no place; put it into LAYERS in tests/layering.rs"
            ));
            continue;
        };
        if is_pure(file) {
            for name in tokens(source) {
                if IMPURE.contains(&name.as_str()) || name.starts_with("Atomic") {
                    wrong.push(format!("src/{file}: the pure layer names `{name}`"));
                }
            }
        }
        for name in named(file, source) {
            let Some(there) = layer(&name) else {
                wrong.push(format!(
                    "src/{file}: names `crate::{name}`, which is no module with a place; name the \
                     module an item lives in, or put the module into LAYERS in tests/layering.rs"
                ));
                continue;
            };
            if name == module {
                continue;
            }
            if there < here {
                wrong.push(format!(
                    "src/{file}: `{module}` names `{name}`, which is above it"
                ));
            } else if there == here && LAYERS[here].1 == Siblings::OneWay {
                edges.entry(module.clone()).or_default().insert(name);
            }
        }
    }
    for from in edges.keys() {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&String> = edges[from].iter().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module) {
                next.extend(edges.get(module).into_iter().flatten());
            }
        }
        if reached.contains(from) {
            wrong.push(format!(
                "`{from}` and modules beside it name each other in a circle"
            ));
        }
    }
    wrong
}

fn read(directory: &Path, prefix: &str, into: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).expect("src is there") {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            read(&entry.path(), &format!("{name}/"), into);
        } else if Path::new(&name)
            .extension()
            .is_some_and(|extension| extension == "rs")
        {
            into.push((name, fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

fn sources() -> Vec<(String, String)> {
    let mut sources = Vec::new();
    read(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        "",
        &mut sources,
    );
    sources.sort();
    sources
}

#[test]
fn modules_name_only_what_is_below_them_and_the_pure_layer_stays_pure() {
    let sources = sources();
    let wrong = violations(
        sources
            .iter()
            .map(|(file, source)| (file.as_str(), source.as_str())),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_scan_sees_the_paths_that_are_there() {
    let sources = sources();
    let of = |file: &str| {
        let (_, source) = sources.iter().find(|(name, _)| name == file).expect(file);
        named(file, source)
    };
    assert!(of("circuit.rs").contains("config"));
    assert!(of("circuit/window.rs").contains("policy"));
    assert!(of("config.rs").contains("clock"));
    assert!(of("config/text.rs").contains("policy"));
    assert!(sources.iter().any(|(file, _)| file == "clock/timestamp.rs"));
}

// That it can fail.

/// The violations of one file.
fn wrong(file: &str, source: &str) -> Vec<String> {
    violations([(file, source)])
}

#[track_caller]
fn refused(file: &str, source: &str, because: &str) {
    let wrong = wrong(file, source);
    assert!(
        wrong.iter().any(|violation| violation.contains(because)),
        "{file}: {source}\nexpected: {because}\nfound: {wrong:?}"
    );
}

#[track_caller]
fn accepted(file: &str, source: &str) {
    assert_eq!(
        wrong(file, source),
        Vec::<String>::new(),
        "{file}: {source}"
    );
}

#[test]
fn an_import_upwards_is_found_however_it_is_written() {
    let above = "names `actor`, which is above it";
    refused("circuit.rs", "use crate::actor::BreakerActor;", above);
    refused("circuit.rs", "use crate :: actor;", above);
    refused("circuit.rs", "use crate::{clock::Timestamp, actor};", above);
    refused(
        "circuit.rs",
        "use crate::{clock::{Timestamp, micros}, actor::{self, A}};",
        above,
    );
    refused("circuit.rs", "use super::actor::A;", above);
    refused("circuit.rs", "use super::{config, actor::A};", above);
    refused("circuit.rs", "fn f() { crate::actor::go(); }", above);
    refused("circuit/window.rs", "use super::super::actor;", above);
    refused(
        "circuit/window.rs",
        "use super::{super::actor, state};",
        above,
    );
    refused(
        "circuit/window.rs",
        "type A = Vec<super::super::actor::A>;",
        above,
    );
    refused(
        "circuit.rs",
        "mod tests { use super::super::actor; }",
        above,
    );
    refused(
        "gate.rs",
        "use crate::breaker::Breaker;",
        "names `breaker`, which is above it",
    );
    refused(
        "config.rs",
        "use crate::circuit::Circuit;",
        "names `circuit`, which is above it",
    );
    refused(
        "clock.rs",
        "use crate::error::Rejected;",
        "names `error`, which is above it",
    );
    refused(
        "random.rs",
        "use crate::gate::Gate;",
        "names `gate`, which is above it",
    );
    refused("store/redis.rs", "use crate::actor::A;", above);
    refused(
        "breaker/ask.rs",
        "use crate::supervisor::Breakers;",
        "names `supervisor`",
    );
    refused("message.rs", "use super::supervisor;", "names `supervisor`");
}

#[test]
fn an_import_downwards_or_within_a_module_is_accepted() {
    accepted(
        "supervisor.rs",
        "use crate::{actor, breaker, message, gate, circuit, clock};",
    );
    accepted(
        "supervisor/backoff.rs",
        "use super::Breakers; use crate::config::BreakerConfig;",
    );
    accepted("breaker.rs", "use crate::{actor, message};");
    accepted(
        "breaker/ask.rs",
        "use super::super::actor; use super::guard;",
    );
    accepted(
        "actor.rs",
        "use crate::{breaker, message, gate, event, error};",
    );
    accepted("event.rs", "use crate::circuit::{Cause, CircuitState};");
    accepted(
        "circuit/window.rs",
        "use super::actor; use crate::clock::micros;",
    );
    accepted("circuit.rs", "mod tests { use super::actor; }");
    accepted(
        "circuit.rs",
        "mod tests { mod more { } use super::actor; } ",
    );
    accepted(
        "lib.rs",
        "mod anything; pub use anything::A; use tokio as _;",
    );
    accepted("outcome.rs", "pub(crate) struct A; pub(super) fn f() {}");
}

#[test]
fn a_new_module_has_to_be_placed() {
    refused(
        "shard.rs",
        "",
        "the module `shard` has no place; put it into LAYERS",
    );
    refused("ring/shard.rs", "", "the module `ring` has no place");
    refused(
        "actor.rs",
        "use crate::shard::Shard;",
        "names `crate::shard`",
    );
}

#[test]
fn a_re_export_hides_no_direction() {
    refused(
        "gate.rs",
        "use crate::Breaker;",
        "name the module an item lives in",
    );
    refused(
        "gate.rs",
        "use super::Breaker;",
        "name the module an item lives in",
    );
}

#[test]
fn modules_beside_each_other_name_each_other_in_one_direction_unless_they_are_free() {
    let circle = |files: [(&str, &str); 2]| violations(files);
    let gate = ("gate.rs", "use crate::error::Rejected;");
    assert!(circle([gate, ("error.rs", "use crate::clock::Clock;")]).is_empty());
    let wrong = circle([gate, ("error.rs", "use crate::gate::Gate;")]);
    assert!(wrong[0].contains("in a circle"), "{wrong:?}");
    let wrong = violations([
        ("config.rs", "use crate::policy::P;"),
        ("policy.rs", "use crate::clock::C;"),
        ("clock/timestamp.rs", "use crate::config::C;"),
    ]);
    assert!(wrong[0].contains("in a circle"), "{wrong:?}");
    let free = circle([
        ("actor.rs", "use crate::message::M;"),
        ("message.rs", "use crate::actor::A;"),
    ]);
    assert!(free.is_empty());
}

#[test]
fn the_pure_layer_names_no_runtime_lock_clock_or_telemetry() {
    for source in [
        "use actix::prelude::*;",
        "fn f() { tokio::spawn(g()); }",
        "use futures::Stream;",
        "use futures_core::Stream;",
        "use std::sync::atomic::AtomicU64;",
        "use std::sync::{Arc, atomic};",
        "static X: AtomicBool = AtomicBool::new(false);",
        "use std::sync::Mutex;",
        "struct A { b: std::sync::RwLock<u8> }",
        "static X: std::sync::OnceLock<u8> = std::sync::OnceLock::new();",
        "use std::time::{Duration, Instant};",
        "fn f() { std::time::SystemTime::now(); }",
        "use crate::clock::SystemClock;",
        "use crate::clock::Clock;",
        "fn f() { tracing::warn!(\"x\"); }",
        // Case 139
        "fn f() { metrics::counter!(\"x\").increment(1); }",
        "fn f() { std::thread::yield_now(); }",
        "thread_local! {}",
        "async fn f() {}",
    ] {
        for file in [
            "circuit.rs",
            "circuit/window.rs",
            "config.rs",
            "config/text.rs",
            "policy.rs",
            "outcome.rs",
            "random.rs",
            "clock/timestamp.rs",
        ] {
            refused(file, source, "the pure layer names");
        }
        let impure = wrong("clock.rs", source);
        assert!(
            !impure
                .iter()
                .any(|violation| violation.contains("pure layer")),
            "{impure:?}"
        );
    }
}

#[test]
fn comments_and_strings_may_mention_anything() {
    accepted(
        "circuit.rs",
        "//! See crate::actor and tokio.\n/// [`Breaker`](crate::Breaker)\nfn f() {}",
    );
    accepted(
        "circuit.rs",
        "/* tokio /* crate::actor */ Instant */ fn f() {}",
    );
    accepted(
        "circuit.rs",
        "const A: &str = \"crate::actor \\\" tokio\"; const B: char = '\"';",
    );
    accepted(
        "circuit.rs",
        "const A: &str = r#\"tokio \" crate::actor\"#; const B: char = '\\'';",
    );
    accepted(
        "circuit.rs",
        "fn f<'a>(a: &'a str) -> &'a str { a } // tokio",
    );
    accepted(
        "circuit.rs",
        "struct ThreadRandom; enum E { Instants, Clocks } let instants = 1;",
    );
    // What comes after them counts.
    refused(
        "circuit.rs",
        "/* a /* b */ c */ use tokio::time;",
        "names `tokio`",
    );
    refused(
        "circuit.rs",
        "const A: &str = \"\\\\\"; use tokio::time;",
        "names `tokio`",
    );
    refused(
        "circuit.rs",
        "const A: &str = r#\"\"\"#; use tokio::time;",
        "names `tokio`",
    );
    refused(
        "circuit.rs",
        "const A: char = '\\\\'; const B: char = '\"'; use tokio as t;",
        "names `tokio`",
    );
    refused(
        "circuit.rs",
        "fn f<'a>(a: &'a u8) { tokio::spawn(a) }",
        "names `tokio`",
    );
    refused("circuit.rs", "use r#tokio::time;", "names `tokio`");
}
