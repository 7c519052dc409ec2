//! Failure cases from the field, kind J: settings that are zero, negative, huge or badly read.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "the numbers of the stories are small, and an overflow would fail the test"
)]

mod common;

use std::time::Duration;

use actix_circuit_breaker::circuit::{Circuit, CircuitState, Lifetime, Reason};
use actix_circuit_breaker::{Backoff, BreakerConfig, SlowCall, Timestamp, TripPolicy, Window};
use common::{Story as _, at, circuit, cons, count, rate, read, refused_field, secs, why};

/// The longest span there is: 2^53 - 1 µs.
const LONGEST: Duration = Duration::from_micros((1 << 53) - 1);

/// With both bounds at zero the breaker tripped on its first check; negatives were silently ignored.
#[test]
fn zeros_and_negatives_are_refused_by_name() {
    // case 88, R33
    let window = Window::Time(secs(10));
    for (settings, field) in [
        (cons(0), "trip.failures"),
        (count(0, secs(10)), "trip.failures"),
        (count(2, Duration::ZERO), "trip.within"),
        (rate(0.5, 0, window), "trip.minimum_calls"),
        (rate(0.5, 1, Window::Calls(0)), "trip.window.calls"),
        (
            rate(0.5, 1, Window::Time(Duration::ZERO)),
            "trip.window.time",
        ),
        (cons(2).max_probes(0), "max_probes"),
        (cons(2).successes_to_close(0), "successes_to_close"),
        (cons(2).max_inconclusive(0), "max_inconclusive"),
        (cons(2).call_timeout(Duration::ZERO), "call_timeout"),
        (cons(2).probe_timeout(Duration::ZERO), "probe_timeout"),
    ] {
        assert_eq!(refused_field(settings), field);
    }
    for (text, field) in [
        ("max_probes = -1", "max_probes"),
        ("max_inconclusive = -7", "max_inconclusive"),
        ("jitter = -0.1", "jitter"),
        ("break_duration = \"-30s\"", "break_duration"),
        (
            "trip.failure_count = { failures = -5, within = \"10s\" }",
            "trip.failures",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(&format!("`{field}`")), "{text}: {error}");
    }
}

/// Zero was documented as "off", but opened after one failure.
#[test]
fn a_breaker_is_switched_off_by_an_order_and_not_by_a_zero() {
    // case 89, R23: "off" is forced closed, and the state says so.
    let mut circuit = circuit(cons(1));
    circuit.force_closed(None, "off", at(0)).unwrap();
    circuit.moves();
    for _ in 0..1_000 {
        circuit.bad(at(0));
    }
    assert_eq!(circuit.state(), CircuitState::ForcedClosed);
    assert_eq!(circuit.moves(), []);
    assert_eq!(refused_field(cons(0)), "trip.failures");
}

/// A threshold that was not a number passed the check of its range and kept the breaker from tripping.
#[test]
fn a_rate_is_above_zero_and_at_most_one() {
    // case 91, R33
    let time = Window::Time(secs(10));
    for bad in [
        f64::NAN,
        0.0,
        -0.0,
        -0.1,
        1.0001,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ] {
        assert_eq!(refused_field(rate(bad, 2, time)), "trip.rate", "{bad}");
        let slow = cons(2).trip(TripPolicy::FailureRate {
            rate: 0.5,
            minimum_calls: 2,
            window: time,
            slow_call: Some(SlowCall::new(secs(1), bad)),
        });
        assert_eq!(refused_field(slow), "trip.slow_call.rate", "{bad}");
    }
    for bad in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
        assert_eq!(refused_field(cons(2).jitter(bad)), "jitter", "{bad}");
    }
    for bad in [f64::NAN, 0.9, f64::INFINITY] {
        let backoff = cons(2).backoff(Backoff::new(bad, secs(60)));
        assert_eq!(refused_field(backoff), "backoff.factor", "{bad}");
    }
    let mut all = circuit(rate(1.0, 2, Window::Calls(2)));
    all.bad(at(0));
    all.good(at(0));
    assert_eq!(all.state(), CircuitState::Closed, "half is not all");
    all.bad(at(0));
    assert_eq!(all.state(), CircuitState::Closed, "half is not all");
    all.bad(at(0));
    assert_eq!(all.state(), CircuitState::Open);
}

/// A panic: a window divided into buckets gave a width of zero.
#[test]
fn a_window_shorter_than_ten_buckets_still_has_buckets() {
    // case 92, R18: the width is rounded up to a microsecond.
    let micros = Duration::from_micros;
    for window in [secs(0.001), micros(10), micros(9), micros(1)] {
        let mut circuit = circuit(rate(1.0, 2, Window::Time(window)));
        circuit.bad(at(0));
        let last = at(0) + window.saturating_sub(micros(1));
        assert_eq!(circuit.snapshot(last).failures, 1, "{window:?}");
        assert_eq!(circuit.snapshot(at(0) + window).failures, 0, "{window:?}");
    }
    // A span that ten does not divide is summed over its whole length.
    let mut circuit = circuit(rate(1.0, 100, Window::Time(micros(25))));
    for micros in 0..25 {
        circuit.bad(Timestamp::from_micros(micros));
    }
    assert_eq!(circuit.snapshot(Timestamp::from_micros(24)).failures, 25);
    // The bucket that began at 0 leaves when it is 25 old, and it is 3 wide.
    assert_eq!(circuit.snapshot(Timestamp::from_micros(25)).failures, 22);
    let too_short = rate(1.0, 2, Window::Time(Duration::from_nanos(999)));
    assert_eq!(refused_field(too_short), "trip.window.time");
}

/// A breaker could not open before a hundred calls, whatever the minimum said.
#[test]
fn a_window_of_calls_need_not_be_full() {
    // case 94, R18
    let mut circuit = circuit(rate(0.5, 5, Window::Calls(100)));
    for _ in 0..4 {
        circuit.bad(at(0));
    }
    assert_eq!(circuit.state(), CircuitState::Closed);
    circuit.bad(at(0));
    assert_eq!(circuit.state(), CircuitState::Open);
    let more_than_all = rate(0.5, 101, Window::Calls(100));
    assert_eq!(refused_field(more_than_all), "trip.minimum_calls");
}

/// An open time of 20 became 20 ms when the unit changed.
#[test]
fn a_duration_in_text_carries_its_unit() {
    // case 95, R33
    for text in ["'20'", "20", "20.0", "''", "'s'", "'20 parsecs'", "true"] {
        let error = read(&format!("break_duration = {text}")).unwrap_err();
        assert!(error.contains("`break_duration`"), "{text}: {error}");
    }
    for (text, length) in [
        ("20s", secs(20)),
        ("20ms", secs(0.02)),
        ("1m30s", secs(90)),
        ("1m 30s", secs(90)),
    ] {
        let config = read(&format!("break_duration = '{text}'")).unwrap();
        assert_eq!(config.break_duration(), length, "{text}");
    }
}

/// A delay that overflowed was turned into a millisecond, and the breaker into a tight loop.
#[test]
fn a_very_long_break_neither_ends_early_nor_overflows() {
    // case 97, R3, R33: `Duration::MAX` is refused, 100 years are not.
    let years = |years: u32| Duration::from_secs(365 * 86_400) * years;
    for (settings, field) in [
        (cons(2).break_duration(Duration::MAX), "break_duration"),
        (cons(2).call_timeout(Duration::MAX), "call_timeout"),
        (cons(2).probe_timeout(Duration::MAX), "probe_timeout"),
        (count(2, Duration::MAX), "trip.within"),
        (
            rate(0.5, 2, Window::Time(Duration::MAX)),
            "trip.window.time",
        ),
        (
            cons(2).backoff(Backoff::new(2.0, Duration::MAX)),
            "backoff.max",
        ),
        (
            cons(2).break_duration(LONGEST + Duration::from_micros(1)),
            "break_duration",
        ),
    ] {
        assert_eq!(refused_field(settings), field);
    }
    let mut long = circuit(
        cons(2)
            .call_timeout(years(100))
            .break_duration(years(100))
            .jitter(1.0)
            .backoff(Backoff::new(1e300, LONGEST)),
    );
    long.trip(at(0));
    let later = at(0) + years(10);
    let (reason, wait) = why(long.reject(later));
    assert_eq!(reason, Reason::Open);
    assert!(wait >= Some(years(90)) && wait <= Some(years(190)));
    let due = long.deadline().unwrap();
    long.bad(due);
    assert_eq!(long.deadline(), Some(Timestamp::MAX));
    assert!(matches!(long.lifetime(due), Lifetime::For(_)));
    // At the end of all time nothing is left to overflow.
    let end = long.admit(Timestamp::MAX);
    long.err(end, Timestamp::MAX);
    long.snapshot(Timestamp::MAX);

    let mut longest = circuit(cons(2).break_duration(LONGEST));
    longest.trip(at(0));
    assert_eq!(
        why(longest.reject(at(1))),
        (Reason::Open, Some(LONGEST.saturating_sub(secs(1))))
    );
}

/// A breaker was half-open directly after it tripped: its break was zero by mistake.
#[test]
fn a_break_lasts_a_microsecond_at_least() {
    // case 98, R33
    for nothing in [Duration::ZERO, Duration::from_nanos(999)] {
        assert_eq!(
            refused_field(cons(2).break_duration(nothing)),
            "break_duration"
        );
    }
    for shortest in [Duration::from_millis(1), Duration::from_micros(1)] {
        let mut circuit = circuit(cons(2).break_duration(shortest));
        circuit.trip(at(0));
        assert_eq!(why(circuit.reject(at(0))), (Reason::Open, Some(shortest)));
        assert!(circuit.admit(at(0) + shortest).is_probe());
    }
}

/// The documented default was not the default.
#[test]
fn the_table_in_the_docs_shows_the_defaults() {
    // case 100. The table stands in the docs of `BreakerConfig`.
    let docs = include_str!("../src/config.rs");
    let config = BreakerConfig::default();
    let seconds = |span: Duration| {
        assert_eq!(span.subsec_micros(), 0);
        format!("{} s", span.as_secs())
    };
    let TripPolicy::FailureCount {
        failures,
        within,
        reset_on_success,
    } = config.trip()
    else {
        panic!("{:?}", config.trip());
    };
    let trip = format!(
        "`FailureCount {{ failures: {failures}, within: {}, reset_on_success: {reset_on_success} }}`",
        seconds(*within)
    );
    assert_eq!(config.backoff(), None);
    assert_eq!(config.ramp_up(), None);
    for (setting, default) in [
        ("trip", trip),
        ("call_timeout", seconds(config.call_timeout())),
        ("break_duration", seconds(config.break_duration())),
        ("backoff", "none".to_owned()),
        ("jitter", config.jitter().to_string()),
        ("max_probes", config.max_probes().to_string()),
        (
            "successes_to_close",
            config.successes_to_close().to_string(),
        ),
        ("max_inconclusive", config.max_inconclusive().to_string()),
        ("ramp_up", "none".to_owned()),
        (
            "probe_timeout",
            "the greater of `break_duration` and twice `call_timeout`".to_owned(),
        ),
    ] {
        let row = format!("/// | `{setting}` | {default} |");
        assert!(docs.contains(&row), "no row {row}");
    }
    assert_eq!(
        config.probe_timeout(),
        config.break_duration().max(config.call_timeout() * 2)
    );
    // The values that the rules name.
    assert_eq!(
        (*failures, *within, *reset_on_success),
        (5, secs(10), false)
    );
    assert_eq!(config.call_timeout(), secs(5));
    assert_eq!(config.break_duration(), secs(30));
    assert_eq!(config, BreakerConfig::builder().build().unwrap());
    assert_eq!(config, read("").unwrap());
}

/// A ttl below a millisecond deleted the key instead of keeping it.
#[test]
fn there_is_no_ttl_to_set_and_the_derived_one_outlives_break_and_window() {
    // case 101, R31
    for field in ["ttl = '0.5ms'", "state_ttl = '7d'", "lifetime = '1h'"] {
        let error = read(field).unwrap_err();
        assert!(error.contains("unknown field"), "{error}");
    }
    let window = secs(90);
    let config = count(2, window).build().unwrap();
    let length = config.break_duration();
    let mut circuit = Circuit::new(config, at(0));
    assert_eq!(circuit.lifetime(at(0)), Lifetime::None);
    circuit.bad(at(0));
    assert!(matches!(circuit.lifetime(at(0)), Lifetime::For(span) if span > window));
    circuit.bad(at(0));
    assert_eq!(circuit.state(), CircuitState::Open);
    assert!(matches!(circuit.lifetime(at(0)), Lifetime::For(span) if span > length + window));
}
