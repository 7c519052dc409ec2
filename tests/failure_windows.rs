//! Failure cases from the field, kinds F, G (what needs no actor), H and I, with 133: counting, windows,
//! arithmetic of time and clocks that go backwards.
//!
//! Unless a test says otherwise: a run of two failures trips, the break is ten seconds, one probe at a
//! time, one success closes. "trip at 0" means that the deadline is 10.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "the numbers of the stories are small, and an overflow would fail the test"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use actix_circuit_breaker::circuit::{Circuit, CircuitState, Reason, Settlement};
use actix_circuit_breaker::{
    Backoff, BreakerConfig, BreakerConfigBuilder, Reply as _, SlowCall, Timestamp, TripPolicy,
    Window,
};
use common::{Story as _, at, break_lengths, circuit, cons, count, rate, secs, why};

use CircuitState::{Closed, HalfOpen, Open};

const DAY: f64 = 86_400.0;

// F. Successes, runs, and when the policy is evaluated.

/// A "consecutive" breaker tripped on failures with successes between them.
#[test]
fn any_success_ends_a_run() {
    // case 52, R17
    let mut circuit = circuit(cons(2));
    circuit.bad(at(0));
    circuit.good(at(1));
    circuit.bad(at(2));
    assert_eq!(circuit.state(), Closed);
    circuit.bad(at(3));
    assert_eq!(circuit.state(), Open);
}

/// With the time limit off, two errors thousands of successes apart opened the circuit.
#[test]
fn a_run_is_a_run_however_far_apart_and_not_a_list() {
    // case 53, R17, R18
    let mut circuit = circuit(cons(2));
    circuit.bad(at(0));
    for _ in 0..10_000 {
        circuit.good(at(1));
    }
    circuit.bad(at(1e6));
    assert_eq!(circuit.state(), Closed);
    circuit.bad(at(2e6));
    assert_eq!(circuit.state(), Open);
}

/// The success threshold behaved as 1, since its counter was not emptied between rounds.
#[test]
fn every_round_starts_with_no_successes() {
    // case 55, R1, R13
    let mut circuit = circuit(cons(2).successes_to_close(2));
    circuit.trip(at(0));
    circuit.good(at(10));
    circuit.bad(at(10));
    assert_eq!(circuit.state(), Open);
    circuit.good(at(20));
    assert_eq!(circuit.state(), HalfOpen);
    circuit.good(at(20));
    assert_eq!(circuit.state(), Closed);
}

/// A failure in probation was forgotten once three successes followed.
#[test]
fn the_first_failed_probe_opens_however_many_succeeded() {
    // case 56, R14
    let mut circuit = circuit(cons(2).successes_to_close(3));
    circuit.trip(at(0));
    circuit.good(at(10));
    circuit.bad(at(10));
    assert_eq!(circuit.state(), Open);
    assert_eq!(circuit.deadline(), Some(at(20)));
}

/// Failures never expired; one failure days later tripped.
#[test]
fn a_window_forgets_by_time() {
    // case 58, R18
    for settings in [
        rate(1.0, 2, Window::Time(secs(10))),
        count(2, secs(10)),
        BreakerConfig::builder().trip(TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: Some(secs(10)),
        }),
    ] {
        let mut circuit = circuit(settings);
        circuit.bad(at(0));
        circuit.bad(at(DAY));
        assert_eq!(circuit.state(), Closed);
        assert_eq!(circuit.snapshot(at(DAY)).failures, 1);
    }
}

/// After closing, the new window already held the trials, so that a small bump opened again.
#[test]
fn a_circuit_closes_with_an_empty_window() {
    // case 59, R13: half-open opens on the first failure here, so the trials are three successes.
    let mut circuit = circuit(rate(0.4, 4, Window::Calls(8)).successes_to_close(3));
    circuit.trip(at(0));
    for _ in 0..3 {
        circuit.good(at(10));
    }
    assert_eq!(circuit.state(), Closed);
    let snapshot = circuit.snapshot(at(10));
    assert_eq!((snapshot.samples, snapshot.failures), (0, 0));
    // Had the trials been kept, the first of these would be one of four samples, the second two of five.
    circuit.bad(at(10));
    circuit.bad(at(10));
    assert_eq!(circuit.state(), Closed);
}

/// The rate was checked on failures alone, so a success that filled the minimum did not look.
#[test]
fn a_success_that_fills_the_minimum_trips() {
    // case 61, R17
    let mut circuit = circuit(rate(0.5, 4, Window::Calls(4)));
    for _ in 0..3 {
        circuit.bad(at(0));
    }
    assert_eq!(circuit.state(), Closed);
    circuit.good(at(0));
    assert_eq!(circuit.state(), Open);
    let tripped = circuit.pop_transition().unwrap();
    assert_eq!(
        (tripped.evidence.failures, tripped.evidence.samples),
        (3, 4)
    );
}

// G. Call timeouts. That a timeout is an event of its own (62, 67, 68) needs the actor.

/// Timeouts were counted twice: by the recorder inside and by the handler outside.
#[test]
fn a_call_is_counted_once() {
    // case 64, R10: the permit is consumed, so a later reply has nothing to report with.
    let mut circuit = circuit(cons(4).call_timeout(secs(1)));
    for _ in 0..2 {
        let permit = circuit.admit(at(0));
        circuit.err(permit, at(1));
    }
    assert_eq!(circuit.snapshot(at(1)).failures, 2);
    assert_eq!(circuit.calls().failures, 2);
    assert_eq!(circuit.state(), Closed);
}

/// A client's timeout error was taken for a cancellation, and so not counted.
#[test]
fn a_timeout_that_is_a_reply_counts_and_a_caller_that_goes_away_does_not() {
    // case 65, R19
    let reply: Result<(), &str> = Err("upstream timeout");
    let mut answered = circuit(cons(2));
    for _ in 0..2 {
        let permit = answered.admit(at(0));
        answered.settle(permit, reply.outcome(), at(0));
    }
    assert_eq!(answered.state(), Open);

    let mut abandoned = circuit(cons(2));
    for _ in 0..2 {
        let permit = abandoned.admit(at(0));
        abandoned.reclaim(permit, at(0));
    }
    assert_eq!(abandoned.state(), Closed);
    assert_eq!(abandoned.snapshot(at(0)).failures, 0);
}

/// One early timeout opened the circuit: one of one is a hundred per cent.
#[test]
fn below_the_minimum_of_calls_no_rate_trips() {
    // case 70, R18
    let mut circuit = circuit(rate(0.5, 3, Window::Time(secs(60))));
    circuit.bad(at(0));
    assert_eq!(circuit.state(), Closed);
    circuit.bad(at(1));
    assert_eq!(circuit.state(), Closed);
    circuit.bad(at(2));
    assert_eq!(circuit.state(), Open);
}

// H. Window boundaries and the arithmetic of time.

/// An event exactly on the edge of a bucket was missing from the snapshot of that instant.
#[test]
fn one_function_maps_time_to_buckets() {
    // case 71, R18
    let mut on_the_edge = circuit(rate(1.0, 1, Window::Time(secs(10))));
    on_the_edge.bad(at(3_600));
    assert_eq!(on_the_edge.state(), Open);

    let mut ageing = circuit(rate(1.0, 2, Window::Time(secs(10))));
    ageing.bad(at(0));
    assert_eq!(ageing.snapshot(at(0)).failures, 1);
    assert_eq!(ageing.snapshot(at(9.999)).failures, 1);
    assert_eq!(ageing.snapshot(at(10)).failures, 0);
    // A bucket leaves as a whole, when its start is as old as the window.
    let mut late_in_its_bucket = circuit(rate(1.0, 2, Window::Time(secs(10))));
    late_in_its_bucket.bad(at(0.999_999));
    assert_eq!(late_in_its_bucket.snapshot(at(9.999_999)).failures, 1);
    assert_eq!(late_in_its_bucket.snapshot(at(10)).failures, 0);
}

/// The remaining time reported to callers was the elapsed one.
#[test]
fn retry_after_is_the_rest_of_the_break() {
    // case 74, R9
    let mut circuit = circuit(cons(2));
    circuit.trip(at(0));
    for (now, rest) in [
        (0.0, 10.0),
        (3.0, 7.0),
        (9.999, 0.001),
        (9.999_999, 0.000_001),
    ] {
        assert_eq!(
            why(circuit.reject(at(now))),
            (Reason::Open, Some(secs(rest)))
        );
    }
}

/// A panic soon after the machine's start: now minus a window longer than its uptime.
#[test]
fn a_window_longer_than_the_clock_has_run_is_no_fault() {
    // case 76, R3
    for settings in [
        count(3, secs(DAY)),
        rate(1.0, 3, Window::Time(secs(DAY))),
        cons(3),
    ] {
        let mut circuit = circuit(settings);
        circuit.bad(at(0.001));
        circuit.bad(at(1));
        assert_eq!(circuit.snapshot(at(1)).failures, 2);
        circuit.bad(at(2));
        assert_eq!(circuit.state(), Open);
    }
}

/// Zero stood for "never" on a freshly started machine.
#[test]
fn zero_is_an_instant_like_any_other() {
    // case 77
    let mut circuit = circuit(cons(2));
    circuit.trip(Timestamp::ZERO);
    assert_eq!(
        why(circuit.reject(Timestamp::ZERO)),
        (Reason::Open, Some(secs(10)))
    );
    assert!(circuit.admit(at(10)).is_probe());
}

/// A host took longer than designed to earn back trust: the multiplier ran one step beyond the cap.
#[test]
fn a_capped_break_does_not_grow_on_in_secret() {
    // case 79, R22
    let mut circuit = circuit(
        cons(2)
            .break_duration(secs(2))
            .backoff(Backoff::new(2.0, secs(7))),
    );
    assert_eq!(break_lengths(&mut circuit, 4), [2, 4, 7, 7, 7].map(secs));
    circuit.good(at(1_000));
    assert_eq!(circuit.state(), Closed);
    assert_eq!(break_lengths(&mut circuit, 1), [2, 4].map(secs));
}

/// Breaks did not grow when it was the rate that tripped.
#[test]
fn breaks_grow_whatever_policy_tripped() {
    // case 80, R22
    for settings in [
        rate(0.5, 10, Window::Time(secs(10))),
        rate(0.5, 10, Window::Calls(20)),
        count(3, secs(10)),
        cons(2),
    ] {
        let mut circuit = circuit(settings.backoff(Backoff::new(2.0, secs(60))));
        assert_eq!(break_lengths(&mut circuit, 3), [10, 20, 40, 60].map(secs));
    }
}

/// Short windows were coarse, those below a second impossible.
#[test]
fn a_window_may_be_a_fraction_of_a_second() {
    // case 82, R18
    let short = || rate(0.5, 2, Window::Time(secs(0.1)));
    let mut near = circuit(short());
    near.bad(at(0));
    near.bad(at(0.05));
    assert_eq!(near.state(), Open);
    let mut far = circuit(short());
    far.bad(at(0));
    far.bad(at(0.15));
    assert_eq!(far.state(), Closed);
}

// I. Clocks that go backwards, or the wrong clock.

/// After a step backwards of the clock old events outlived the window.
#[test]
fn an_older_instant_counts_as_the_newest_seen() {
    // case 83, R3
    let mut by_rate = circuit(rate(1.0, 3, Window::Time(secs(10))));
    by_rate.bad(at(100));
    by_rate.bad(at(40));
    assert_eq!(by_rate.record().newest(), at(100));
    assert_eq!(by_rate.snapshot(at(40)).failures, 2);
    by_rate.good(at(105));
    let snapshot = by_rate.snapshot(at(111));
    assert_eq!((snapshot.samples, snapshot.failures), (1, 0));

    let mut by_count = circuit(count(3, secs(10)));
    by_count.bad(at(100));
    by_count.bad(at(40));
    assert_eq!(by_count.snapshot(at(109.999)).failures, 2);
    assert_eq!(by_count.snapshot(at(110)).failures, 0);
}

/// A step forward of the wall clock skipped the break, one backward pinned it.
#[test]
fn the_pure_layer_reads_no_clock() {
    // case 85, R3: all time comes in as `now`, and `clock.rs` alone reads one.
    fn sources(directory: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(sources(&path));
            } else {
                found.push(path);
            }
        }
        found
    }
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut pure = sources(&src.join("circuit"));
    pure.extend(sources(&src.join("config")));
    for file in ["circuit.rs", "config.rs", "policy.rs", "outcome.rs"] {
        pure.push(src.join(file));
    }
    assert!(pure.len() > 10);
    for path in pure {
        let text = fs::read_to_string(&path).unwrap();
        for clock in ["::now(", "SystemTime", "Instant::", "elapsed("] {
            assert!(!text.contains(clock), "{} has {clock}", path.display());
        }
    }
}

/// A recovery time in the future, by skew, made the state read as recovering.
#[test]
fn a_record_from_another_clock_is_brought_to_the_present() {
    // case 145, as far as one process shows it; R3, R29
    let config = cons(2).build().unwrap();
    let mut ahead = Circuit::new(config.clone(), at(3_600));
    ahead.trip(at(3_600));
    let open = ahead.record().clone();
    let restored = Circuit::restore(config.clone(), open.clone(), at(0));
    assert_eq!(restored.state(), Open);
    let peek = restored.peek(at(0));
    assert_eq!(
        (peek.refusal, peek.retry_after),
        (Some(Reason::Open), Some(secs(10)))
    );
    assert!(restored.record().epoch() > open.epoch());
    assert_eq!(restored.record().newest(), at(0));

    let _lost_with_its_process = ahead.admit(at(3_610));
    let half_open = ahead.record().clone();
    let mut restored = Circuit::restore(config, half_open.clone(), at(0));
    assert_eq!(restored.state(), Open, "and due");
    assert!(restored.peek(at(0)).probe_due);
    let probe = restored.admit(at(0));
    assert!(probe.epoch() > half_open.epoch());
}

// 133. Totals.

/// A call as a plain list remembers it.
#[derive(Debug, Clone, Copy)]
struct Call {
    settled: Timestamp,
    failed: bool,
    slow: bool,
}

/// What a plain list says is in the window: samples, failures, slow calls.
type Count = fn(&[Call], Timestamp) -> (u64, u64, u64);

fn tally<'c>(calls: impl Iterator<Item = &'c Call>) -> (u64, u64, u64) {
    calls.fold((0, 0, 0), |(samples, failures, slow), call| {
        (
            samples + 1,
            failures + u64::from(call.failed),
            slow + u64::from(call.slow),
        )
    })
}

/// Ten buckets of a second, of which each leaves when its start is ten seconds old.
fn last_ten_seconds(calls: &[Call], now: Timestamp) -> (u64, u64, u64) {
    tally(calls.iter().filter(|call| {
        let start = call.settled.as_micros() / 1_000_000 * 1_000_000;
        now.as_micros() - start < 10_000_000
    }))
}

/// Three µs are ten buckets of one µs, since a bucket cannot be shorter.
fn last_three_micros(calls: &[Call], now: Timestamp) -> (u64, u64, u64) {
    tally(
        calls
            .iter()
            .filter(|call| now.as_micros() - call.settled.as_micros() < 3),
    )
}

fn last_fifty_calls(calls: &[Call], _now: Timestamp) -> (u64, u64, u64) {
    tally(calls.iter().skip(calls.len().saturating_sub(50)))
}

/// The exact window, of failures alone.
fn failures_of_ten_seconds(calls: &[Call], now: Timestamp) -> (u64, u64, u64) {
    let (_, failures, _) = tally(
        calls
            .iter()
            .filter(|call| now.as_micros() - call.settled.as_micros() < 10_000_000),
    );
    (failures, failures, 0)
}

/// The failures since the last success.
fn present_run(calls: &[Call], _now: Timestamp) -> (u64, u64, u64) {
    let (_, failures, _) = tally(calls.iter().rev().take_while(|call| call.failed));
    (failures, failures, 0)
}

/// Policies that never trip on these random calls, each with what its window should hold.
fn policies() -> Vec<(BreakerConfigBuilder, u64, Count)> {
    let slow = |policy: BreakerConfigBuilder, window, minimum_calls, duration| {
        policy.trip(TripPolicy::FailureRate {
            rate: 1.0,
            minimum_calls,
            window,
            slow_call: Some(SlowCall::new(duration, 1.0)),
        })
    };
    let base = BreakerConfig::builder;
    let second = secs(1);
    vec![
        (
            slow(base(), Window::Time(secs(10)), u32::MAX, second),
            1_000_000,
            last_ten_seconds,
        ),
        (
            slow(
                base(),
                Window::Time(Duration::from_micros(3)),
                u32::MAX,
                second,
            ),
            2,
            last_three_micros,
        ),
        (
            slow(base(), Window::Calls(50), 50, second),
            1_000_000,
            last_fifty_calls,
        ),
        (
            count(u32::MAX, secs(10)),
            1_000_000,
            failures_of_ten_seconds,
        ),
        (cons(u32::MAX), 1_000_000, present_run),
    ]
}

/// Negative counters, because one field was not emptied when a bucket was used again.
#[test]
fn totals_always_equal_the_calls_of_the_window() {
    // case 133
    for (which, (settings, pace, expected)) in policies().into_iter().enumerate() {
        let seed = 133 + u64::try_from(which).unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut circuit = circuit(settings);
        let mut list: Vec<Call> = Vec::new();
        let mut now = at(0);
        for step in 0..10_000 {
            // Mostly small steps, at times across the whole window, at times the clock is put back.
            now = now + Duration::from_micros(random.u64(0..=pace));
            if random.u32(0..200) == 0 {
                now = now + Duration::from_micros(pace * 12);
            }
            let shown = if random.u32(0..10) == 0 {
                Timestamp::from_micros(now.as_micros() / 2)
            } else {
                now
            };
            now = now.max(shown);
            let permit = circuit.admit(now);
            let slow = random.u32(0..10) == 0;
            if slow {
                now = now + secs(1);
            }
            match random.u32(0..10) {
                0 => {
                    // It says nothing, so it is nowhere.
                    circuit.ign(permit, now);
                }
                choice => {
                    let failed = choice < 5;
                    // A clock put back shows no less than was seen before.
                    let given = if slow { now } else { shown };
                    if failed {
                        assert_eq!(circuit.err(permit, given), Settlement::Counted);
                    } else {
                        assert_eq!(circuit.ok(permit, given), Settlement::Counted);
                    }
                    list.push(Call {
                        settled: now,
                        failed,
                        slow,
                    });
                }
            }
            // Look at the present and a little ahead; looking changes nothing.
            for look in [now, now + Duration::from_micros(random.u64(0..=pace * 3))] {
                let snapshot = circuit.snapshot(look);
                assert_eq!(
                    (snapshot.samples, snapshot.failures, snapshot.slow_calls),
                    expected(&list, look),
                    "policy {which}, seed {seed}, step {step}, at {look}"
                );
            }
            // The list need not know what no window can reach.
            if list.len() > 2_000 {
                list.drain(..1_000);
            }
        }
        assert_eq!(circuit.state(), Closed, "policy {which}");
        assert_eq!(circuit.moves(), []);
        let calls = circuit.calls();
        assert_eq!(calls.successes + calls.failures + calls.ignored, 10_000);
    }
}

/// What is kept does not grow with traffic.
#[test]
fn a_window_of_time_keeps_ten_buckets_whoever_looks() {
    // case 128, R18: pruned by writing, not by looking. The written record shows what is kept.
    let mut circuit = circuit(rate(1.0, 2, Window::Time(secs(10))));
    let mut most = 0;
    for second in 0..1_000 {
        for _ in 0..10 {
            circuit.good(at(second));
        }
        let written = serde_json::to_value(circuit.record()).unwrap();
        let buckets = written["phase"]["closed"]["buckets"]["buckets"]
            .as_array()
            .unwrap()
            .len();
        assert!(buckets <= 10, "{written}");
        most = most.max(buckets);
    }
    assert_eq!(most, 10);
}
