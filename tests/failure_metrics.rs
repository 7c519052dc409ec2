//! Failure cases from the field, kind N, as far as they need no metrics: what breakers show of themselves, and
//! that nothing that is shown decides. It runs with the feature `metrics` and without. 133 is in
//! `failure_windows.rs`, 137 on the circuit in `failure_outcomes.rs`, the rest in `metrics.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "panics are failed tests, and random ones print their seed"
)]

mod harness;

use std::time::Duration;

use actix_circuit_breaker::circuit::{self, Circuit};
use actix_circuit_breaker::message::ForceOpen;
use actix_circuit_breaker::{
    AskError, Breaker, BreakerConfigBuilder, Breakers, CircuitState, Clock, Outcome, Permit, Window,
};
use harness::*;

// Case 136: a member that was removed stayed tripped.
#[actix::test]
async fn removed_breakers_are_not_shown() {
    let breakers = Breakers::start();
    for name in ["a", "b", "c"] {
        let breaker = breakers.create(name, consecutive(1).build().unwrap());
        let failed = breaker.unwrap().call(async { Err::<(), _>(BAD) }).await;
        failed.unwrap_err();
    }
    let open = async || {
        let all = breakers.snapshots().await;
        all.iter()
            .filter(|shown| shown.state == CircuitState::Open)
            .count()
    };
    assert_eq!(open().await, 3);
    assert!(breakers.remove("b"));
    assert_eq!(open().await, 2);
    assert!(breakers.remove("a") && breakers.remove("c"));
    assert_eq!(open().await, 0);
}

// Case 137: the state was read as open for ever until somebody made a call. R8
#[actix::test]
async fn a_break_that_is_over_shows_that_a_probe_is_due() {
    let w = world(consecutive(2));
    let (_recorder, told) = w.record().await;
    w.trip().await;
    pass(BREAK + 2 * SECOND).await;
    for _ in 0..3 {
        let shown = w.snapshot().await;
        assert_eq!((shown.state, shown.probe_due), (CircuitState::Open, true));
        assert_eq!(shown.retry_after, None);
        assert_eq!(w.state(), CircuitState::Open);
    }
    w.good().await;
    pass(MS).await;
    let entered = |event: &&actix_circuit_breaker::StateChanged| event.to == CircuitState::HalfOpen;
    assert_eq!(told.all().iter().filter(entered).count(), 1);
}

/// Has everything told that can be told.
fn tell(breakers: &Breakers) {
    #[cfg(feature = "metrics")]
    {
        let exporter = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&exporter, || breakers.record_metrics());
    }
    #[cfg(not(feature = "metrics"))]
    let _ = breakers;
}

/// Takes a permit without waiting: on paused time the actor answers at once.
async fn acquire(breaker: &Breaker) -> Result<Permit, Option<Duration>> {
    match breaker.acquire().await {
        Ok(permit) => Ok(permit),
        Err(AskError::Rejected(rejected)) => Err(rejected.retry_after()),
        Err(error) => panic!("{error}"),
    }
}

/// Plays one tape to a breaker and to a circuit that nobody can look into, and compares every decision.
async fn decides_as_its_circuit(settings: BreakerConfigBuilder, seed: u64, told: bool) {
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (clock, w) = manual(settings.clone());
    let mut alone = Circuit::new(settings.build().unwrap(), clock.now());
    let mut permits: Vec<(Permit, circuit::Permit)> = Vec::new();
    for step in 0..2_000 {
        clock.advance(Duration::from_millis(random.u64(..400)));
        let now = clock.now();
        match random.u32(..100) {
            0 => {
                let order = ForceOpen::new("x").ttl(SECOND);
                w.breaker.force_open(order).await.unwrap().unwrap();
                alone.force_open(Some(SECOND), "x", now).unwrap();
            }
            1 => {
                w.breaker.reset().await.unwrap();
                alone.reset(now);
            }
            2..50 => {
                let decided = acquire(&w.breaker).await;
                match (decided, alone.try_acquire(now)) {
                    (Ok(ours), Ok(its)) => {
                        assert_eq!(ours.is_probe(), its.is_probe(), "step {step}");
                        permits.push((ours, its));
                    }
                    (Err(ours), Err(its)) => {
                        assert_eq!(ours, its.retry_after(), "step {step}");
                    }
                    (ours, its) => panic!("step {step}: {ours:?} and {its:?}"),
                }
            }
            choice if !permits.is_empty() => {
                let (ours, its) = permits.swap_remove(random.usize(..permits.len()));
                let outcome = match choice % 8 {
                    0..3 => Outcome::Failure,
                    3 => Outcome::Ignored,
                    _ => Outcome::Success,
                };
                match outcome {
                    Outcome::Success => ours.success().await,
                    Outcome::Failure => ours.failure().await,
                    _ => ours.ignore().await,
                }
                alone.settle(its, outcome, now);
            }
            _ => {}
        }
        assert_eq!(w.snapshot().await.state, alone.snapshot(now).state);
        if told {
            tell(&w.breakers);
        }
    }
    let (shown, its) = (w.snapshot().await, alone.snapshot(clock.now()));
    assert_eq!(
        (shown.until, shown.failures, shown.samples, shown.attempt),
        (its.until, its.failures, its.samples, its.attempt)
    );
    assert!(
        shown.calls.rejected > 0 && shown.calls.late > 0,
        "too tame a tape"
    );
}

// Case 139: a limit was ignored because a statistic was filtered out. Decisions are those of a circuit by itself,
// with metrics and without.
#[actix::test]
async fn decisions_do_not_depend_on_what_is_told() {
    let settings = [
        consecutive(2).break_duration(2 * SECOND),
        count(3, 5 * SECOND).break_duration(SECOND).max_probes(2),
        rate(0.5, 4, Window::Calls(20)).break_duration(SECOND),
        rate(0.5, 4, Window::Time(10 * SECOND)).break_duration(SECOND),
    ];
    for (seed, settings) in (139..).zip(settings) {
        decides_as_its_circuit(settings.clone(), seed, false).await;
        decides_as_its_circuit(settings, seed, true).await;
    }
}
