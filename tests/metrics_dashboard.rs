//! The Grafana dashboard beside the example names only metrics, labels and values that there are, and every
//! metric there is; the documentation's table likewise.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test"
)]

mod harness;
mod scrape;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use actix_circuit_breaker::message::ForceOpen;
use actix_circuit_breaker::{Breakers, MemoryStore};
use harness::*;
use scrape::{Exporter, Scrape};
use serde_json::Value;

/// Labels and their values.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// The metrics that are told, with all labels they have, after something of everything has happened.
async fn told() -> BTreeMap<String, Labels> {
    pause();
    let store = MemoryStore::new();
    let w = world_of(Breakers::builder().store(store), consecutive(1));
    let exporter = Exporter::new();
    let hosts = w.breakers.family("hosts", consecutive(1).build().unwrap());
    let hosts = hosts.unwrap();
    hosts
        .call("a", async { Err::<(), _>(BAD) })
        .await
        .unwrap_err();
    w.good().await;
    w.trip().await;
    pass(BREAK + MS).await;
    w.good().await;
    let order = ForceOpen::new("x");
    w.breaker.force_open(order).await.unwrap().unwrap();
    let Scrape(all) = exporter.scrape(&w.breakers);
    let mut told = BTreeMap::<_, Labels>::new();
    for series in all {
        let labels = told.entry(series.name).or_default();
        for (label, value) in series.labels {
            labels.entry(label).or_default().insert(value);
        }
    }
    told
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// All texts under `key`, wherever they are.
fn texts(value: &Value, key: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == key => into.push(text.clone()),
                    _ => texts(value, key, into),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, into)),
        _ => {}
    }
}

/// The words of the form of a metric's name.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_part(c))
        .filter(|word| word.starts_with("circuit_breaker_"))
        .map(str::to_owned)
        .collect()
}

/// What an expression asks of each metric: label, and value or pattern.
fn selectors(expr: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut found = Vec::new();
    for (at, _) in expr.match_indices("circuit_breaker_") {
        let rest = &expr[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let mut matchers = Vec::new();
        if let Some(rest) = rest.strip_prefix('{') {
            let (inside, _) = rest.split_once('}').unwrap();
            for matcher in inside.split(',') {
                let (label, value) = matcher.split_once('=').unwrap();
                let value = value.trim_matches(['~', '"']).to_owned();
                matchers.push((label.trim_end_matches('!').to_owned(), value));
            }
        }
        found.push((name.to_owned(), matchers));
    }
    found
}

/// The labels that an expression groups by.
fn groups(expr: &str) -> BTreeSet<String> {
    let lists = expr.split("by (").skip(1);
    let lists = lists.map(|rest| rest.split_once(')').unwrap().0);
    lists
        .flat_map(|list| list.split(',').map(|label| label.trim().to_owned()))
        .collect()
}

#[actix::test]
async fn the_dashboard_names_what_there_is() {
    let told = told().await;
    let dashboard: Value = serde_json::from_str(&read("examples/metrics-dashboard.json")).unwrap();
    let mut exprs = Vec::new();
    texts(&dashboard, "expr", &mut exprs);
    texts(&dashboard, "definition", &mut exprs);
    assert!(exprs.len() > 12, "{exprs:?}");
    let mut used = BTreeSet::new();
    for expr in &exprs {
        for (name, matchers) in selectors(expr) {
            let labels = told
                .get(&name)
                .unwrap_or_else(|| panic!("{name} in {expr}"));
            for (label, value) in matchers {
                let values = labels.get(&label);
                let values = values.unwrap_or_else(|| panic!("{label} of {name} in {expr}"));
                if value != "$breaker" {
                    let known = |value: &str| values.contains(value);
                    assert!(value.split('|').all(known), "{label}: {value} in {expr}");
                }
            }
            for label in groups(expr) {
                assert!(labels.contains_key(&label), "{label} of {name} in {expr}");
            }
            used.insert(name);
        }
    }
    // What a histogram is made of beside its buckets is not needed.
    let parts = ["_seconds_sum", "_seconds_count"];
    let missing = told.keys().filter(|name| !used.contains(*name));
    let missing: Vec<_> = missing
        .filter(|name| !parts.iter().any(|part| name.ends_with(part)))
        .collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
    // Each legend names labels that its expression leaves.
    let Value::Array(panels) = &dashboard["panels"] else {
        panic!("a dashboard without panels")
    };
    for target in panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
    {
        let (expr, legend) = (&target["expr"], &target["legendFormat"]);
        let left = groups(expr.as_str().unwrap());
        for label in legend.as_str().unwrap().split("{{").skip(1) {
            let (label, _) = label.split_once("}}").unwrap();
            assert!(left.contains(label), "{label} of {expr}");
        }
    }
}

#[actix::test]
async fn the_documentation_names_what_there_is() {
    let histogram = "circuit_breaker_call_duration_seconds";
    let told = told().await;
    let told: BTreeSet<_> = told
        .keys()
        .map(|name| {
            if name.starts_with(histogram) {
                histogram
            } else {
                name
            }
        })
        .map(str::to_owned)
        .collect();
    assert_eq!(names(&read("src/telemetry/names.rs")), told);
    assert_eq!(names(&read("src/supervisor/metrics.rs")), told);
}
