//! What breakers tell the recorder of the `metrics` crate, with failure cases of kind N from the field:
//! metrics and reported state that were wrong. How calls are counted is in `metrics_calls.rs`; what needs
//! no feature, in `failure_metrics.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::float_cmp,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "panics are among what is tested, and a test may fail; counts are whole"
)]

mod harness;
mod scrape;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{BreakerConfig, Breakers, CircuitState};
use harness::*;
use metrics::{
    Counter as MetricsCounter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use metrics_util::MetricKindMask;
use scrape::{Exporter, Scrape};

fn open_gauges(scrape: &Scrape) -> f64 {
    scrape.sum("state", &[("state", "open")])
}

// Case 131: metrics stayed at the values of the first state.
#[actix::test]
async fn gauges_read_through_the_breaker() {
    let w = world(consecutive(1));
    let exporter = Exporter::new();
    let states = || exporter.scrape(&w.breakers).states("b");
    assert_eq!(states(), ["closed"]);
    w.trip().await;
    assert_eq!(states(), ["open"]);
    pass(BREAK + MS).await;
    assert_eq!(states(), ["open"], "R8: until somebody comes");
    let (answer, job) = latch();
    let probe = w.breaker.ask(&w.target, job);
    quiet().await;
    assert_eq!(states(), ["half_open"]);
    answer.send(Ok(1)).unwrap();
    probe.await.unwrap().unwrap();
    assert_eq!(states(), ["closed"]);

    let order = ForceOpen::new("x");
    w.breaker.force_open(order).await.unwrap().unwrap();
    assert_eq!(states(), ["forced_open"]);
    let order = ForceClosed::new("x");
    w.breaker.force_closed(order).await.unwrap().unwrap();
    assert_eq!(states(), ["forced_closed"]);
    let overrides = || exporter.scrape(&w.breakers).sum("overrides", &[]);
    assert_eq!(overrides(), 1.0);
    w.breaker.release().await.unwrap();
    assert_eq!((states(), overrides()), (vec!["closed".to_owned()], 0.0));
}

// Case 134: a gauge does not see what lies between two scrapes; the counters do.
#[actix::test]
async fn short_breaks_are_counted() {
    let w = world(consecutive(1).break_duration(100 * MS));
    let exporter = Exporter::new();
    let before = exporter.scrape(&w.breakers);
    assert_eq!(before.sum("transitions_total", &[]), 0.0);
    w.trip().await;
    pass(101 * MS).await;
    w.good().await;
    let after = exporter.scrape(&w.breakers);
    assert_eq!(after.states("b"), ["closed"]);
    for (from, to, cause) in [
        ("closed", "open", "tripped"),
        ("open", "half_open", "probe_due"),
        ("half_open", "closed", "recovered"),
    ] {
        let labels = [
            ("breaker", "b"),
            ("from", from),
            ("to", to),
            ("cause", cause),
        ];
        assert_eq!(after.sum("transitions_total", &labels), 1.0, "{labels:?}");
    }
    assert_eq!(after.sum("transitions_total", &[("to", "open")]), 1.0);
    // Told once.
    let again = exporter.scrape(&w.breakers);
    assert_eq!(again.sum("transitions_total", &[]), 3.0);
}

// Case 136: a member that was removed stayed tripped.
#[actix::test]
async fn gauges_of_removed_breakers_go_down() {
    pause();
    let breakers = Breakers::start();
    let exporter = Exporter::new();
    for name in ["a", "b", "c"] {
        let breaker = breakers.create(name, consecutive(1).build().unwrap());
        let failed = breaker.unwrap().call(async { Err::<(), _>(BAD) }).await;
        failed.unwrap_err();
    }
    assert_eq!(open_gauges(&exporter.scrape(&breakers)), 3.0);
    assert!(breakers.remove("b"));
    let scrape = exporter.scrape(&breakers);
    assert_eq!(open_gauges(&scrape), 2.0);
    assert!(scrape.states("b").is_empty());
    let failures = [("breaker", "b"), ("outcome", "failure")];
    assert_eq!(scrape.sum("calls_total", &failures), 1.0);
    assert!(breakers.remove("a") && breakers.remove("c"));
    assert_eq!(open_gauges(&exporter.scrape(&breakers)), 0.0);
}

// Case 136, of all at once: nobody tells of the breakers whose owner is gone.
#[actix::test]
async fn gauges_go_down_with_the_owner() {
    let w = world(consecutive(1));
    let exporter = PrometheusBuilder::new().build_recorder();
    let handle = exporter.handle();
    w.trip().await;
    metrics::with_local_recorder(&exporter, || {
        w.breakers.record_metrics();
        assert!(handle.render().contains(r#"state="open"} 1"#));
        drop(w);
    });
    assert!(handle.render().contains(r#"state="open"} 0"#));
}

// Case 137, as metrics show it: they look, and change nothing (R8).
#[actix::test]
async fn recording_takes_no_probe() {
    let w = world(consecutive(1));
    let (_recorder, told) = w.record().await;
    let exporter = Exporter::new();
    w.trip().await;
    pass(BREAK + MS).await;
    for _ in 0..10 {
        assert_eq!(exporter.scrape(&w.breakers).states("b"), ["open"]);
    }
    let snapshot = w.snapshot().await;
    assert_eq!(
        (snapshot.state, snapshot.probe_due),
        (CircuitState::Open, true)
    );
    w.good().await;
    pass(MS).await;
    assert_eq!(
        told.all()
            .iter()
            .filter(|event| event.to == CircuitState::HalfOpen)
            .count(),
        1
    );
}

#[actix::test]
async fn restarts_and_evictions_are_counted() {
    let trap = Trap::default();
    let builder = Breakers::builder().max_breakers(2);
    let w = world_of(
        builder.clock(Arc::new(trap.clone())),
        consecutive(1).break_duration(MS),
    );
    let exporter = Exporter::new();
    w.snapshot().await;
    trap.set();
    w.breaker.snapshot().await.unwrap_err();
    while w.breaker.snapshot().await.is_err() {}
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.sum("restarts_total", &[("breaker", "b")]), 1.0);
    assert_eq!(scrape.sum("evictions_total", &[]), 0.0);
    for name in ["c", "d", "e"] {
        drop(w.breakers.create(name, BreakerConfig::default()).unwrap());
    }
    assert_eq!(w.breakers.evictions(), 2);
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.sum("evictions_total", &[]), 2.0);
}

/// What came of a breaker that went is told, and one of its name goes on from there.
#[actix::test]
async fn counters_outlive_an_eviction() {
    pause();
    let breakers = Breakers::builder().max_breakers(1).start();
    let exporter = Exporter::new();
    let good = async |name: &str| {
        let breaker = breakers.create(name, BreakerConfig::default()).unwrap();
        breaker.call(async { Ok::<_, Oops>(()) }).await.unwrap();
    };
    let successes = |scrape: &Scrape, name| {
        scrape.sum("calls_total", &[("breaker", name), ("outcome", "success")])
    };
    good("a").await;
    exporter.record(&breakers);
    good("a").await;
    good("b").await;
    let scrape = exporter.scrape(&breakers);
    assert_eq!(
        (successes(&scrape, "a"), successes(&scrape, "b")),
        (2.0, 1.0)
    );
    assert!(scrape.states("a").is_empty());
    good("a").await;
    good("a").await;
    let scrape = exporter.scrape(&breakers);
    assert_eq!(
        (successes(&scrape, "a"), successes(&scrape, "b")),
        (4.0, 1.0)
    );
    assert_eq!(scrape.states("a"), ["closed"]);
}

/// An exporter with an idle timeout drops the series of a breaker that is gone, and no other.
#[actix::test]
async fn series_of_evicted_breakers_are_dropped_by_the_exporter() {
    let breakers = Breakers::builder().max_breakers(2).start();
    // Of the exporter's own clock, which cannot be moved; long enough that no busy machine lets it pass between two lines.
    let idle = Duration::from_millis(500);
    let builder = PrometheusBuilder::new().idle_timeout(MetricKindMask::ALL, Some(idle));
    let exporter = Exporter::of(builder);
    let _kept = breakers.create("kept", BreakerConfig::default()).unwrap();
    drop(breakers.create("old", BreakerConfig::default()).unwrap());
    exporter.scrape(&breakers);
    drop(breakers.create("new", BreakerConfig::default()).unwrap());
    let scrape = exporter.scrape(&breakers);
    assert_eq!(scrape.values("breaker").len(), 3);
    std::thread::sleep(2 * idle);
    let scrape = exporter.scrape(&breakers);
    assert_eq!(
        scrape.values("breaker"),
        ["kept", "new"].map(str::to_owned).into()
    );
    // All of theirs are there, those that never change too.
    assert_eq!(scrape.all("restarts_total", &[]).count(), 2);
    assert_eq!(scrape.all("calls_total", &[]).count(), 10);
}

/// Notes whose gauges it is told of.
#[derive(Default)]
struct Witness(Mutex<BTreeSet<String>>);

/// A gauge that nobody reads.
struct Unread;

impl GaugeFn for Unread {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, _: f64) {}
}

impl Recorder for Witness {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> MetricsCounter {
        MetricsCounter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let breaker = key.labels().find(|label| label.key() == "breaker");
        let name = breaker.unwrap().value().to_owned();
        self.0.lock().unwrap().insert(name);
        Gauge::from_arc(Arc::new(Unread))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

// R32: names come from outside.
#[actix::test]
async fn a_recording_tells_of_no_more_breakers_than_there_may_be() {
    let breakers = Breakers::builder().max_breakers(8).start();
    let told = || {
        let witness = Witness::default();
        metrics::with_local_recorder(&witness, || breakers.record_metrics());
        witness.0.into_inner().unwrap()
    };
    for name in 0..1_000 {
        drop(
            breakers
                .create(format!("host-{name}"), BreakerConfig::default())
                .unwrap(),
        );
        if name % 100 == 0 {
            // Those that are gone are told of once more.
            assert!(told().len() <= 16);
        }
    }
    told();
    assert_eq!(told().len(), 8);
}

/// A recorder that panics whenever it is asked.
struct Bomb(AtomicUsize);

impl Recorder for Bomb {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        panic!("trap in the recorder");
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> MetricsCounter {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("trap in the recorder");
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("trap in the recorder");
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("trap in the recorder");
    }
}

// Case 139: what is told decides nothing, not even a recorder that breaks. R27
#[actix::test]
async fn a_recorder_that_panics_is_felt_by_nobody() {
    let w = world(consecutive(2));
    let bomb = Bomb(AtomicUsize::new(0));
    let record = || metrics::with_local_recorder(&bomb, || w.breakers.record_metrics());
    record();
    w.trip().await;
    record();
    pass(BREAK + MS).await;
    record();
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    // Of each breaker it is told again the next time, and of the evictions.
    assert_eq!(bomb.0.load(Ordering::Relaxed), 6);
    let exporter = Exporter::new();
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.states("b"), ["closed"]);
    assert_eq!(scrape.sum("transitions_total", &[]), 3.0);
}

/// Asks for a recording while it is told of one.
struct Nested(Breakers);

impl Recorder for Nested {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> MetricsCounter {
        self.0.record_metrics();
        drop(self.0.create("made meanwhile", BreakerConfig::default()));
        MetricsCounter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[actix::test]
async fn a_recorder_may_use_the_breakers() {
    let w = world(consecutive(2));
    let nested = Nested(w.breakers.clone());
    metrics::with_local_recorder(&nested, || w.breakers.record_metrics());
    assert_eq!(w.breakers.names(), ["b", "made meanwhile"]);
}
