//! What breakers tell, as the Prometheus exporter renders it.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};

use actix_circuit_breaker::Breakers;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

/// A recorder that is asked here alone.
pub(crate) struct Exporter(PrometheusRecorder);

/// One line: a name, labels and a value.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// All lines of one scrape.
#[derive(Debug, Clone)]
pub(crate) struct Scrape(pub(crate) Vec<Series>);

impl Exporter {
    pub(crate) fn new() -> Self {
        let buckets = [0.001, 0.01, 0.1, 1.0];
        let builder = PrometheusBuilder::new().set_buckets(&buckets).unwrap();
        Self::of(builder)
    }

    pub(crate) fn of(builder: PrometheusBuilder) -> Self {
        Self(builder.build_recorder())
    }

    /// Has the breakers tell.
    pub(crate) fn record(&self, breakers: &Breakers) {
        metrics::with_local_recorder(&self.0, || breakers.record_metrics());
    }

    pub(crate) fn render(&self) -> Scrape {
        let text = self.0.handle().render();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.filter(|line| !line.is_empty());
        Scrape(lines.map(series).collect())
    }

    /// Has the breakers tell, and reads it.
    pub(crate) fn scrape(&self, breakers: &Breakers) -> Scrape {
        self.record(breakers);
        self.render()
    }
}

fn series(line: &str) -> Series {
    let (key, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
    let labels = labels.strip_suffix('}').unwrap();
    let pairs = labels.split(',').filter(|pair| !pair.is_empty());
    let labels = pairs.map(|pair| {
        let (label, value) = pair.split_once('=').unwrap();
        (label.to_owned(), value.trim_matches('"').to_owned())
    });
    Series {
        name: name.to_owned(),
        labels: labels.collect(),
        value: value.parse().unwrap(),
    }
}

impl Scrape {
    /// The lines of a metric that have these labels.
    pub(crate) fn all<'s>(
        &'s self,
        name: &'s str,
        labels: &'s [(&str, &str)],
    ) -> impl Iterator<Item = &'s Series> {
        let name = format!("circuit_breaker_{name}");
        self.0.iter().filter(move |series| {
            let has = |(label, value): &(&str, &str)| {
                series.labels.get(*label).is_some_and(|is| is == value)
            };
            series.name == name && labels.iter().all(has)
        })
    }

    /// The sum of the lines of a metric that have these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.all(name, labels).map(|series| series.value).sum()
    }

    /// The states of a breaker that are 1.
    pub(crate) fn states(&self, breaker: &str) -> Vec<String> {
        let labels = [("breaker", breaker)];
        let all: Vec<_> = self.all("state", &labels).collect();
        assert!(all.iter().all(|series| [0.0, 1.0].contains(&series.value)));
        let ones = all.into_iter().filter(|series| series.value > 0.0);
        ones.map(|series| series.labels["state"].clone()).collect()
    }

    /// How calls of a breaker ended: successes, failures, ignored, late, timeouts.
    pub(crate) fn outcomes(&self, breaker: &str) -> [f64; 5] {
        ["success", "failure", "ignored", "late", "timeout"].map(|outcome| {
            let labels = [("breaker", breaker), ("outcome", outcome)];
            self.sum("calls_total", &labels)
        })
    }

    /// The values that a label has.
    pub(crate) fn values(&self, label: &str) -> BTreeSet<String> {
        let values = self.0.iter().filter_map(|series| series.labels.get(label));
        values.cloned().collect()
    }
}
