//! Single rules of the circuit that need a story or a number of their own.
//! Every (state, input) pair is in `circuit_table.rs`, random sequences are in `circuit_model.rs`.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test, and the numbers are small"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use actix_circuit_breaker::circuit::{
    Cause, Circuit, Lifetime, Panicked, Permit, Record, Settlement,
};
use actix_circuit_breaker::{
    Backoff, BreakerConfig, BreakerConfigBuilder, CircuitState, Outcome, RandomSource, SlowCall,
    ThreadRandom, Timestamp, TripPolicy, TripRule, Window,
};

const START: Timestamp = Timestamp::from_micros(0);

/// So many milliseconds after the start.
fn ms(millis: u64) -> Timestamp {
    START + Duration::from_millis(millis)
}

fn rate(rate: f64, minimum_calls: u32, window: Window, slow_call: Option<SlowCall>) -> TripPolicy {
    TripPolicy::FailureRate {
        rate,
        minimum_calls,
        window,
        slow_call,
    }
}

fn run(failures: u32) -> TripPolicy {
    TripPolicy::ConsecutiveFailures {
        failures,
        within: None,
    }
}

fn builder(trip: TripPolicy) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(trip)
        .break_duration(Duration::from_secs(10))
}

fn circuit(trip: TripPolicy) -> Circuit {
    Circuit::new(builder(trip).build().unwrap(), START)
}

fn acquire(circuit: &mut Circuit, now: Timestamp) -> Permit {
    circuit.try_acquire(now).expect("admitted")
}

fn call(circuit: &mut Circuit, outcome: Outcome, now: Timestamp) {
    let permit = acquire(circuit, now);
    assert_eq!(circuit.settle(permit, outcome, now), Settlement::Counted);
}

fn fail(circuit: &mut Circuit, now: Timestamp) {
    call(circuit, Outcome::Failure, now);
}

fn succeed(circuit: &mut Circuit, now: Timestamp) {
    call(circuit, Outcome::Success, now);
}

fn failures(circuit: &Circuit, now: Timestamp) -> u64 {
    circuit.snapshot(now).failures
}

// R18
#[test]
fn a_slow_success_of_a_probe_is_a_failure() {
    let slow = Some(SlowCall::new(Duration::from_millis(100), 1.0));
    let trip = rate(1.0, 1, Window::Calls(1), slow);
    for (elapsed, state) in [(99, CircuitState::Closed), (100, CircuitState::Open)] {
        let mut circuit = circuit(trip.clone());
        fail(&mut circuit, ms(0));
        let probe = acquire(&mut circuit, ms(10_000));
        circuit.settle(probe, Outcome::Success, ms(10_000 + elapsed));
        assert_eq!(circuit.record().state(), state, "{elapsed} ms");
    }
}

// R18: ten buckets, their width rounded up; a bucket leaves when its start is as old as the span.
#[test]
fn a_window_of_time_counts_in_tenths_rounded_up() {
    // 15 µs: buckets of 2 µs, so what came at 1 is in the bucket of 0, which leaves at 15.
    let trip = rate(1.0, 9, Window::Time(Duration::from_micros(15)), None);
    let mut circuit = circuit(trip);
    fail(&mut circuit, Timestamp::from_micros(1));
    fail(&mut circuit, Timestamp::from_micros(2));
    assert_eq!(failures(&circuit, Timestamp::from_micros(14)), 2);
    assert_eq!(failures(&circuit, Timestamp::from_micros(15)), 1);
    assert_eq!(failures(&circuit, Timestamp::from_micros(16)), 1);
    assert_eq!(failures(&circuit, Timestamp::from_micros(17)), 0);
}

// R18, FAILURE_CASES 71
#[test]
fn a_failure_on_a_bucket_boundary_counts_at_once() {
    let mut circuit = circuit(rate(1.0, 1, Window::Time(Duration::from_secs(10)), None));
    fail(&mut circuit, ms(3_600_000));
    assert_eq!(circuit.record().state(), CircuitState::Open);
}

// R17, FAILURE_CASES 61
#[test]
fn a_success_that_fills_the_minimum_trips() {
    let mut circuit = circuit(rate(0.5, 4, Window::Calls(4), None));
    for _ in 0..3 {
        fail(&mut circuit, ms(0));
    }
    assert_eq!(circuit.record().state(), CircuitState::Closed);
    succeed(&mut circuit, ms(0));
    let tripped = circuit.pop_transition().unwrap();
    assert_eq!(tripped.cause, Cause::Tripped);
    let evidence = tripped.evidence;
    assert_eq!((evidence.failures, evidence.samples), (3, 4));
}

// R17
#[test]
fn ageing_alone_never_trips() {
    let mut circuit = circuit(rate(1.0, 2, Window::Time(Duration::from_secs(10)), None));
    succeed(&mut circuit, ms(0));
    fail(&mut circuit, ms(5_000));
    fail(&mut circuit, ms(5_000));
    // The success is out, the rate is 1; nothing happens until a sample comes.
    circuit.advance(ms(10_000));
    assert_eq!(circuit.record().state(), CircuitState::Closed);
    assert_eq!(circuit.snapshot(ms(10_000)).samples, 2);
    fail(&mut circuit, ms(10_000));
    assert_eq!(circuit.record().state(), CircuitState::Open);
}

// R18, FAILURE_CASES 53
#[test]
fn the_distance_in_time_of_a_run_does_not_matter_unless_it_says_so() {
    let mut circuit = circuit(run(2));
    fail(&mut circuit, ms(0));
    fail(&mut circuit, ms(1_000_000_000));
    assert_eq!(circuit.record().state(), CircuitState::Open);

    let within = Some(Duration::from_secs(10));
    let trip = TripPolicy::ConsecutiveFailures {
        failures: 2,
        within,
    };
    let mut circuit = self::circuit(trip);
    fail(&mut circuit, ms(0));
    fail(&mut circuit, ms(10_000));
    assert_eq!(
        circuit.record().state(),
        CircuitState::Closed,
        "R4: as old as the span is out"
    );
    fail(&mut circuit, ms(19_999));
    assert_eq!(circuit.record().state(), CircuitState::Open);
}

/// Records how many failures it was shown; trips or panics when told to.
#[derive(Default)]
struct Rule {
    shown: AtomicUsize,
    trips: AtomicBool,
    panics: AtomicBool,
}

impl TripRule for Rule {
    fn trips(&self, failures: &[Timestamp], _now: Timestamp) -> bool {
        assert!(failures.is_sorted());
        self.shown.store(failures.len(), Ordering::SeqCst);
        assert!(!self.panics.load(Ordering::SeqCst), "as told");
        self.trips.load(Ordering::SeqCst)
    }

    fn lookback(&self) -> Duration {
        Duration::from_secs(60)
    }
}

// R18
#[test]
fn a_custom_rule_sees_its_newest_hundred_failures_within_its_lookback() {
    let rule = Arc::new(Rule::default());
    let mut circuit = circuit(TripPolicy::Custom(rule.clone()));
    for count in 1..=101 {
        fail(&mut circuit, ms(count));
        let expected = usize::try_from(count).unwrap().min(100);
        assert_eq!(rule.shown.load(Ordering::SeqCst), expected);
    }
    // Of 2..=101 those up to 50 are as old as the lookback, and the present one comes on top.
    fail(&mut circuit, ms(60_050));
    assert_eq!(rule.shown.load(Ordering::SeqCst), 52);
    // It is asked after failures alone.
    rule.trips.store(true, Ordering::SeqCst);
    succeed(&mut circuit, ms(60_050));
    assert_eq!(circuit.record().state(), CircuitState::Closed);
    fail(&mut circuit, ms(60_050));
    assert_eq!(circuit.record().state(), CircuitState::Open);
}

// R18
#[test]
fn a_custom_rule_keeps_its_failures_over_a_success_unless_it_says_otherwise() {
    let mut circuit = circuit(TripPolicy::Custom(Arc::new(Rule::default())));
    fail(&mut circuit, ms(0));
    succeed(&mut circuit, ms(0));
    assert_eq!(failures(&circuit, ms(0)), 1);
}

// R18, R27
#[test]
fn a_custom_rule_that_panics_does_not_trip_and_is_reported() {
    let rule = Arc::new(Rule::default());
    let mut circuit = circuit(TripPolicy::Custom(rule.clone()));
    rule.panics.store(true, Ordering::SeqCst);
    fail(&mut circuit, ms(0));
    assert_eq!(circuit.record().state(), CircuitState::Closed);
    assert_eq!(circuit.pop_panicked(), Some(Panicked::TripRule));
    assert_eq!(circuit.pop_panicked(), None);
    assert_eq!(failures(&circuit, ms(0)), 1, "the failure counts");
    rule.panics.store(false, Ordering::SeqCst);
    rule.trips.store(true, Ordering::SeqCst);
    fail(&mut circuit, ms(0));
    assert_eq!(circuit.record().state(), CircuitState::Open);
}

// R22: or all that opened together would probe together.
#[test]
fn the_default_random_source_spreads_its_numbers() {
    let numbers: Vec<f64> = (0..1_000)
        .map(|_| ThreadRandom::default().uniform())
        .collect();
    for tenth in 0..10 {
        let (low, high) = (f64::from(tenth) / 10.0, f64::from(tenth + 1) / 10.0);
        assert!(numbers.iter().any(|number| (low..high).contains(number)));
    }
}

// R22, R27
#[test]
fn a_random_source_that_panics_does_not_lengthen_the_break_and_is_reported() {
    let config = builder(run(1)).jitter(1.0).build().unwrap();
    let source = || -> f64 { panic!("as told") };
    let mut circuit = Circuit::with_random(config, Arc::new(source), START);
    fail(&mut circuit, ms(0));
    assert_eq!(circuit.next_deadline(), Some(ms(10_000)));
    assert_eq!(circuit.pop_panicked(), Some(Panicked::RandomSource));
}

// R22: it may have a state of its own, so its answers must not be spent.
#[test]
fn a_random_source_is_asked_once_for_each_break_and_only_under_jitter() {
    let asked = Arc::new(AtomicUsize::new(0));
    for (jitter, expected) in [(0.0, 0), (0.5, 2)] {
        asked.store(0, Ordering::SeqCst);
        let config = builder(run(1)).jitter(jitter).build().unwrap();
        let count = Arc::clone(&asked);
        let source = move || {
            count.fetch_add(1, Ordering::SeqCst);
            0.0
        };
        let mut circuit = Circuit::with_random(config, Arc::new(source), START);
        fail(&mut circuit, ms(0));
        fail(&mut circuit, ms(10_000));
        succeed(&mut circuit, ms(20_000));
        assert_eq!(asked.load(Ordering::SeqCst), expected);
    }
}

// R22, FAILURE_CASES 79, 80
#[test]
fn breaks_grow_by_the_factor_up_to_the_maximum_and_start_anew_after_a_recovery() {
    for trip in [run(1), rate(1.0, 1, Window::Calls(1), None)] {
        let config = BreakerConfig::builder()
            .trip(trip)
            .call_timeout(Duration::from_millis(100))
            .break_duration(Duration::from_secs(2))
            .backoff(Backoff::new(2.0, Duration::from_secs(7)))
            .build()
            .unwrap();
        let mut circuit = Circuit::new(config, START);
        let mut now = START;
        for length in [2, 4, 7, 7, 7] {
            fail(&mut circuit, now);
            let deadline = circuit.next_deadline().unwrap();
            assert_eq!(deadline.since(now), Duration::from_secs(length));
            now = deadline;
        }
        succeed(&mut circuit, now);
        fail(&mut circuit, now);
        assert_eq!(
            circuit.next_deadline().unwrap().since(now),
            Duration::from_secs(2)
        );
        assert_eq!(circuit.record().attempt(), 0);
    }
}

// R22: no overflow however often probes fail
#[test]
fn a_break_after_very_many_failed_rounds_is_the_longest() {
    let longest = Duration::from_secs(20);
    let backoff = Backoff::new(f64::MAX, longest);
    let mut circuit = Circuit::new(builder(run(1)).backoff(backoff).build().unwrap(), START);
    let mut now = START;
    for _ in 0..2_000 {
        fail(&mut circuit, now);
        now = circuit.next_deadline().unwrap();
    }
    fail(&mut circuit, now);
    assert_eq!(circuit.next_deadline().unwrap().since(now), longest);
}

/// What another process makes of the circuit's record.
fn restored(circuit: &Circuit, now: Timestamp) -> Circuit {
    let text = serde_json::to_string(circuit.record()).unwrap();
    let record: Record = serde_json::from_str(&text).unwrap();
    Circuit::restore(circuit.config().clone(), record, now)
}

// R29: failure times later than now become now, so they age from now on.
#[test]
fn failures_from_the_future_age_from_the_restore_on() {
    let within = Duration::from_secs(10);
    for trip in [
        TripPolicy::FailureCount {
            failures: 5,
            within,
            reset_on_success: false,
        },
        TripPolicy::ConsecutiveFailures {
            failures: 5,
            within: Some(within),
        },
        rate(1.0, 5, Window::Time(within), None),
        TripPolicy::Custom(Arc::new(Rule::default())),
    ] {
        let lookback = if matches!(trip, TripPolicy::Custom(_)) {
            60_000
        } else {
            10_000
        };
        let mut circuit = circuit(trip.clone());
        fail(&mut circuit, ms(500_000));
        fail(&mut circuit, ms(501_000));
        let there = restored(&circuit, ms(100_000));
        assert_eq!(there.record().newest(), ms(100_000));
        assert_eq!(failures(&there, ms(100_000)), 2, "{trip:?}");
        assert_eq!(failures(&there, ms(100_000 + lookback - 1)), 2, "{trip:?}");
        assert_eq!(failures(&there, ms(100_000 + lookback)), 0, "{trip:?}");
    }
}

// R29: a record from elsewhere may have waited a long time.
#[test]
fn failures_that_are_out_of_the_window_at_the_restore_are_forgotten() {
    let within = Duration::from_secs(10);
    let mut circuit = circuit(TripPolicy::FailureCount {
        failures: 2,
        within,
        reset_on_success: false,
    });
    fail(&mut circuit, ms(0));
    let mut there = restored(&circuit, ms(10_000));
    assert_eq!(there.lifetime(ms(10_000)), Lifetime::None);
    fail(&mut there, ms(10_000));
    assert_eq!(there.record().state(), CircuitState::Closed);
}

// R3, R29: restoring does not move the newest instant, so a clock that was ahead then costs no failure.
#[test]
fn a_failure_too_old_at_the_restore_counts_again_when_the_clock_steps_back() {
    let within = Duration::from_secs(10);
    for trip in [
        TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: Some(within),
        },
        rate(1.0, 2, Window::Time(within), None),
    ] {
        let mut circuit = circuit(trip);
        fail(&mut circuit, ms(0));
        let mut there = restored(&circuit, ms(10_000));
        assert_eq!(failures(&there, ms(10_000)), 0);
        assert_eq!(failures(&there, ms(9_999)), 1);
        fail(&mut there, ms(9_999));
        assert_eq!(there.record().state(), CircuitState::Open);
    }
}

// R3, R22
#[test]
fn a_restored_break_is_no_longer_than_the_longest_with_jitter_and_backoff() {
    let build = |jitter| {
        let backoff = Backoff::new(2.0, Duration::from_secs(40));
        builder(run(1))
            .backoff(backoff)
            .jitter(jitter)
            .build()
            .unwrap()
    };
    let mut circuit = Circuit::new(build(0.0), ms(1_000_000));
    fail(&mut circuit, ms(1_000_000));
    for (jitter, longest) in [(0.0, 40_000), (0.5, 60_000)] {
        let there = Circuit::restore(build(jitter), circuit.record().clone(), ms(0));
        assert_eq!(there.next_deadline(), Some(ms(longest)));
    }
}

// R29: the owner of a record may have other settings by now.
#[test]
fn a_window_of_another_kind_of_policy_is_dropped_at_the_restore() {
    let mut circuit = circuit(run(3));
    fail(&mut circuit, ms(0));
    let other = builder(rate(1.0, 1, Window::Calls(1), None))
        .build()
        .unwrap();
    let there = Circuit::restore(other, circuit.record().clone(), ms(0));
    assert_eq!(there.snapshot(ms(0)).samples, 0);
    assert_eq!(there.lifetime(ms(0)), Lifetime::None);
}

// R18, R29: of the failures that a count remembers, a custom rule takes over the newest hundred.
#[test]
fn a_custom_rule_takes_over_no_more_than_a_hundred_failures() {
    let mut circuit = circuit(TripPolicy::FailureCount {
        failures: 1_000,
        within: Duration::from_secs(60),
        reset_on_success: false,
    });
    for count in 1..=150 {
        fail(&mut circuit, ms(count));
    }
    let custom = builder(TripPolicy::Custom(Arc::new(Rule::default())));
    let custom = custom.build().unwrap();
    let there = Circuit::restore(custom, circuit.record().clone(), ms(150));
    assert_eq!(failures(&there, ms(150)), 100);
    // Those up to 50 were left behind.
    assert_eq!(failures(&there, ms(60_050)), 100);
    assert_eq!(failures(&there, ms(60_051)), 99);
}

// R29: and one that trips earlier than the present run is long waits for one failure more.
#[test]
fn a_run_of_failures_goes_on_after_the_restore() {
    for (failed, limit, expected) in [(1, 3, 1), (2, 3, 2), (2, 2, 1)] {
        let mut circuit = circuit(run(3));
        for _ in 0..failed {
            fail(&mut circuit, ms(0));
        }
        let config = builder(run(limit)).build().unwrap();
        let mut there = Circuit::restore(config, circuit.record().clone(), ms(1));
        assert_eq!(failures(&there, ms(1)), expected);
        for _ in expected..u64::from(limit) {
            assert_eq!(there.record().state(), CircuitState::Closed);
            fail(&mut there, ms(1));
        }
        assert_eq!(there.record().state(), CircuitState::Open);
    }
}

// R29: under a smaller window of calls, what falls out of it is forgotten to the very call.
#[test]
fn a_smaller_window_of_calls_takes_over_the_newest_calls_alone() {
    for (failed, expected) in [(1, 0), (2, 0), (3, 1), (5, 1)] {
        let mut circuit = circuit(rate(1.0, 5, Window::Calls(5), None));
        for count in 1..=5 {
            if count == failed {
                fail(&mut circuit, ms(count));
            } else {
                succeed(&mut circuit, ms(count));
            }
        }
        let smaller = builder(rate(1.0, 1, Window::Calls(3), None))
            .build()
            .unwrap();
        let there = Circuit::restore(smaller, circuit.record().clone(), ms(5));
        let shown = there.snapshot(ms(5));
        assert_eq!((shown.failures, shown.samples), (expected, 3), "{failed}");
    }
}

// R29: a bucket that holds no call is nothing to remember.
#[test]
fn an_empty_bucket_is_dropped_at_the_restore() {
    let mut circuit = circuit(rate(1.0, 5, Window::Time(Duration::from_secs(10)), None));
    fail(&mut circuit, ms(0));
    let text = serde_json::to_string(circuit.record()).unwrap();
    let emptied = text.replace(r#""samples":1"#, r#""samples":0"#);
    assert_ne!(text, emptied);
    let record: Record = serde_json::from_str(&emptied).unwrap();
    let there = Circuit::restore(circuit.config().clone(), record, ms(0));
    let text = serde_json::to_string(there.record()).unwrap();
    assert!(!text.contains("samples"), "{text}");
}

// R11, FAILURE_CASES 37: a probe of an earlier round
#[test]
fn a_probe_of_an_earlier_round_moves_nothing_in_a_later_one() {
    let config = builder(run(1))
        .max_probes(2)
        .successes_to_close(2)
        .build()
        .unwrap();
    let mut circuit = Circuit::new(config, START);
    fail(&mut circuit, ms(0));
    let early = acquire(&mut circuit, ms(10_000));
    fail(&mut circuit, ms(11_000));
    let first = acquire(&mut circuit, ms(21_000));
    let second = acquire(&mut circuit, ms(21_000));
    assert_eq!(
        circuit.settle(early, Outcome::Success, ms(22_000)),
        Settlement::Late
    );
    let shown = circuit.snapshot(ms(22_000));
    assert_eq!(
        (shown.probes_in_flight, shown.successes, shown.calls.late),
        (2, 0, 1)
    );
    assert!(circuit.try_acquire(ms(22_000)).is_err());
    circuit.settle(first, Outcome::Success, ms(22_000));
    assert_eq!(circuit.record().state(), CircuitState::HalfOpen);
    circuit.settle(second, Outcome::Success, ms(22_000));
    assert_eq!(circuit.record().state(), CircuitState::Closed);
}

// R16
#[test]
fn a_longer_call_gets_a_longer_lease() {
    let config = builder(run(1))
        .call_timeout(Duration::from_secs(2))
        .build()
        .unwrap();
    assert_eq!(config.probe_timeout(), Duration::from_secs(10));
    for (timeout, lease) in [(1, 10), (2, 10), (3, 10), (5, 10), (6, 12)] {
        let mut circuit = Circuit::new(config.clone(), START);
        fail(&mut circuit, ms(0));
        let probe = circuit
            .try_acquire_for(Duration::from_secs(timeout), ms(10_000))
            .unwrap();
        assert!(
            circuit.try_acquire(ms(10_000 + lease * 1_000 - 1)).is_err(),
            "{timeout} s"
        );
        assert!(
            circuit.try_acquire(ms(10_000 + lease * 1_000)).is_ok(),
            "{timeout} s"
        );
        circuit.reclaim(probe, ms(30_000));
    }
}

// R3, FAILURE_CASES 83
#[test]
fn a_clock_that_steps_back_neither_pins_nor_skips_a_window() {
    let within = Duration::from_secs(10);
    let mut circuit = circuit(TripPolicy::FailureCount {
        failures: 3,
        within,
        reset_on_success: false,
    });
    fail(&mut circuit, ms(100_000));
    fail(&mut circuit, ms(40_000));
    assert_eq!(circuit.record().newest(), ms(100_000));
    assert_eq!(failures(&circuit, ms(109_999)), 2);
    assert_eq!(failures(&circuit, ms(110_000)), 0);
}

// R25: whoever never fetches transitions does not make the circuit grow.
#[test]
fn at_most_64_transitions_wait_and_the_newest_are_kept() {
    let mut circuit = circuit(run(1));
    for _ in 0..100 {
        circuit.force_open(None, "a", START).unwrap();
        circuit.force_closed(None, "b", START).unwrap();
    }
    let waiting: Vec<_> = std::iter::from_fn(|| circuit.pop_transition()).collect();
    assert_eq!(waiting.len(), 64);
    assert_eq!(waiting.last().unwrap().epoch, circuit.record().epoch());
}
