//! The third seed, the circuit breaker of actor-ts: configured alike, its documented sequences give the same
//! decisions, states and deadlines here, and where a rule says otherwise the test's name says so.
//! Left out: what needs an actor or a registry.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "the numbers of the stories are small, and an overflow would fail the test"
)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use actix_circuit_breaker::circuit::{Cause, Circuit, CircuitState, Reason};
use actix_circuit_breaker::{Backoff, BreakerConfig, BreakerConfigBuilder, TripPolicy};
use common::{
    Story as _, at, at_ms, break_lengths, circuit, cons, minutes, read, refused_field, secs,
};

use CircuitState::{Closed, ForcedOpen, HalfOpen, Open};

/// A run of failures without a window, and one reset time.
fn actor_ts_settings(max_failures: u32, reset: Duration) -> BreakerConfigBuilder {
    cons(max_failures).break_duration(reset)
}

fn actor_ts(max_failures: u32) -> Circuit {
    circuit(actor_ts_settings(max_failures, secs(10)))
}

#[test]
fn actor_ts_starts_closed_and_passes_through() {
    let mut circuit = actor_ts(3);
    assert_eq!(circuit.state(), Closed);
    circuit.good(at(0));
    assert_eq!(circuit.state(), Closed);
}

#[test]
fn actor_ts_opens_after_max_failures_and_rejects_at_once() {
    let mut circuit = actor_ts(3);
    circuit.bad(at(0));
    circuit.bad(at(0));
    assert_eq!(circuit.state(), Closed);
    circuit.bad(at(0));
    assert_eq!(circuit.state(), Open);
    circuit.reject(at(0));
}

#[test]
fn actor_ts_closes_on_a_successful_probe_and_opens_on_a_failed_one() {
    let mut closing = actor_ts(1);
    closing.bad(at(0));
    let probe = closing.admit(at(10));
    assert_eq!(closing.state(), HalfOpen);
    closing.ok(probe, at(11));
    assert_eq!(closing.state(), Closed);

    let mut opening = actor_ts(1);
    opening.bad(at(0));
    opening.bad(at(12));
    assert_eq!(opening.state(), Open);
    assert_eq!(opening.deadline(), Some(at(22)));
}

#[test]
fn actor_ts_skips_the_count_of_an_excused_error() {
    let mut circuit = actor_ts(2);
    for _ in 0..10 {
        let permit = circuit.admit(at(0));
        circuit.ign(permit, at(0));
    }
    assert_eq!(circuit.state(), Closed);
    // It is neither: it does not end a run.
    circuit.bad(at(0));
    let permit = circuit.admit(at(0));
    circuit.ign(permit, at(0));
    circuit.bad(at(0));
    assert_eq!(circuit.state(), Open);
}

#[test]
fn actor_ts_tells_open_half_open_closed() {
    let mut circuit = actor_ts(1);
    circuit.bad(at(0));
    circuit.good(at(10));
    let states: Vec<_> = circuit.moves().into_iter().map(|(_, to)| to).collect();
    assert_eq!(states, [Open, HalfOpen, Closed]);
}

#[test]
fn actor_ts_builder_equals_plain_object() {
    let built = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 3,
            within: None,
        })
        .break_duration(secs(15))
        .call_timeout(secs(2))
        .backoff(Backoff::new(2.0, secs(60)))
        .jitter(0.5)
        .build()
        .unwrap();
    let text = r#"
        trip.consecutive_failures.failures = 3
        break_duration = "15s"
        call_timeout = "2s"
        backoff = { factor = 2, max = "60s" }
        jitter = 0.5
    "#;
    assert_eq!(read(text), Ok(built));
}

#[test]
fn actor_ts_rejects_bad_settings_by_name() {
    for (text, field) in [
        ("trip.consecutive_failures.failures = 0", "trip.failures"),
        ("trip.consecutive_failures.failures = -1", "trip.failures"),
        ("trip.consecutive_failures.failures = 2.5", "trip.failures"),
        ("break_duration = -1", "break_duration"),
        ("break_duration = nan", "break_duration"),
        ("break_duration = inf", "break_duration"),
        ("call_timeout = \"0s\"", "call_timeout"),
        ("call_timeout = -5", "call_timeout"),
        (
            "backoff = { factor = 0.5, max = \"60s\" }",
            "backoff.factor",
        ),
        (
            "backoff = { factor = inf, max = \"60s\" }",
            "backoff.factor",
        ),
        ("backoff = { factor = 2, max = \"0s\" }", "backoff.max"),
        ("backoff = { factor = 2, max = inf }", "backoff.max"),
        ("backoff = { factor = 2, max = \"29s\" }", "backoff.max"),
        ("jitter = -0.1", "jitter"),
        ("jitter = 1.1", "jitter"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(&format!("`{field}`")), "{text}: {error}");
    }
}

/// There a reset time of zero means that the next call probes.
#[test]
fn actor_ts_accepts_a_break_of_zero_we_do_not() {
    // R33
    assert_eq!(
        refused_field(actor_ts_settings(3, Duration::ZERO)),
        "break_duration"
    );
}

/// There the two main settings must be given, and a call without a timeout may hang for ever.
#[test]
fn actor_ts_requires_settings_and_no_timeout_we_have_defaults_and_a_timeout() {
    // R18, R20, R22
    let config = read("").unwrap();
    assert_eq!(config.break_duration(), secs(30));
    assert_eq!(config.call_timeout(), secs(5));
}

/// There an unset ceiling is a minute and refuses a reset time of five.
#[test]
fn actor_ts_has_an_implicit_ceiling_we_do_not() {
    // R22: no backoff by default, both its fields required when given
    assert!(actor_ts_settings(3, secs(300)).build().is_ok());
    assert!(read("backoff = { factor = 2 }").is_err());
    assert!(read("backoff = { max = \"60s\" }").is_err());
}

#[test]
fn actor_ts_grows_its_window_up_to_the_ceiling() {
    let growing = |factor, max| {
        circuit(actor_ts_settings(1, secs(1)).backoff(Backoff::new(factor, secs(max))))
    };
    assert_eq!(
        break_lengths(&mut growing(1.0, 60), 3),
        [1, 1, 1, 1].map(secs)
    );
    let mut doubling = growing(2.0, 60);
    assert_eq!(break_lengths(&mut doubling, 2), [1, 2, 4].map(secs));
    assert_eq!(doubling.record().attempt(), 2);
    let mut steep = growing(10.0, 5);
    assert_eq!(break_lengths(&mut steep, 2), [1, 5, 5].map(secs));
    // Closing resets the exponent.
    let due = steep.deadline().unwrap();
    steep.good(due);
    assert_eq!(steep.record().attempt(), 0);
    assert_eq!(break_lengths(&mut steep, 0), [secs(1)]);
}

/// There the exponent grew without end and zero times infinity made a deadline that never came.
#[test]
fn actor_ts_clamps_growth_before_it_multiplies() {
    // R22
    let mut circuit = circuit(
        actor_ts_settings(1, Duration::from_micros(1)).backoff(Backoff::new(f64::MAX, secs(60))),
    );
    let lengths = break_lengths(&mut circuit, 5_000);
    assert_eq!(lengths[0], Duration::from_micros(1));
    assert!(lengths[1..].iter().all(|length| *length == secs(60)));
}

/// There jitter of a half makes 500, 1,000 and 1,250 ms of a second: it may shorten.
#[test]
fn actor_ts_jitter_may_shorten_a_break_ours_does_not() {
    // R22; check 34
    for (random, base, grown) in [
        (0.0, 1_000, 2_000),
        (0.5, 1_250, 2_500),
        (0.75, 1_375, 2_750),
        (1.0, 1_500, 3_000),
    ] {
        let config = actor_ts_settings(1, secs(1))
            .backoff(Backoff::new(2.0, secs(60)))
            .jitter(0.5)
            .build()
            .unwrap();
        let mut circuit = Circuit::with_random(config, Arc::new(move || random), at(0));
        assert_eq!(
            break_lengths(&mut circuit, 1),
            [base, grown].map(Duration::from_millis)
        );
    }
}

#[test]
fn actor_ts_crosses_a_long_window_in_no_time() {
    let mut circuit = actor_ts(1);
    circuit.bad(at(0));
    assert_eq!(circuit.next_deadline(), Some(at_ms(10_000)));
    circuit.reject(at_ms(9_999));
    assert!(circuit.admit(at_ms(10_000)).is_probe());
}

/// An outage trips, and the store is called three times and no more.
#[test]
fn actor_ts_stops_calling_during_an_outage() {
    let mut circuit = actor_ts(3);
    let mut called = 0;
    for second in 0..9 {
        if let Ok(permit) = circuit.try_acquire(at(second)) {
            called += 1;
            circuit.err(permit, at(second));
        }
    }
    assert_eq!(called, 3);
}

#[test]
fn actor_ts_breakers_are_independent() {
    let (mut one, mut two) = (actor_ts(1), actor_ts(1));
    one.bad(at(0));
    one.reject(at(0));
    two.good(at(0));
}

/// There a failure while open raises the count and a success while open resets it; nothing moves. So here.
#[test]
fn actor_ts_moves_nothing_while_open() {
    let mut circuit = actor_ts(1);
    let (one, two) = (circuit.admit(at(0)), circuit.admit(at(0)));
    circuit.bad(at(0));
    circuit.err(one, at(5));
    circuit.ok(two, at(6));
    assert_eq!(circuit.state(), Open);
    assert_eq!(circuit.deadline(), Some(at(10)));
}

/// There half-open admits everyone, and the first to finish decides.
#[test]
fn actor_ts_admits_all_in_half_open_we_do_not() {
    // R7
    let mut circuit = actor_ts(1);
    circuit.bad(at(0));
    let _probe = circuit.admit(at(10));
    assert_eq!(circuit.reject(at(10)).reason(), Reason::ProbesInUse);
}

/// There a result of the closed era decides half-open.
#[test]
fn actor_ts_lets_closed_era_results_decide_half_open_we_do_not() {
    // R11
    let mut circuit = actor_ts(1);
    let (one, two) = (circuit.admit(at(0)), circuit.admit(at(0)));
    circuit.bad(at(0));
    let _probe = circuit.admit(at(10));
    circuit.ok(one, at(11));
    assert_eq!(circuit.state(), HalfOpen);
    circuit.err(two, at(11));
    assert_eq!(circuit.state(), HalfOpen);
}

/// There excused errors keep a circuit half-open without end.
#[test]
fn actor_ts_stays_half_open_on_excused_errors_we_give_up_after_some() {
    // R15
    let mut circuit = actor_ts(1);
    circuit.bad(at(0));
    for turn in 0..10 {
        assert_ne!(circuit.record().state(), Closed, "turn {turn}");
        let probe = circuit.admit(at(10));
        circuit.ign(probe, at(10));
    }
    assert_eq!(circuit.state(), Open);
    assert_eq!(circuit.deadline(), Some(at(20)));
}

/// There a state forced open heals after the reset time.
#[test]
fn actor_ts_heals_a_forced_open_by_itself_we_do_not() {
    // R23
    let mut circuit = actor_ts(1);
    circuit.force_open(None, "maintenance", at(0)).unwrap();
    circuit.reject(at(10));
    circuit.reject(at(1e9));
    assert_eq!(circuit.state(), ForcedOpen);
    // As there, setting the state it has is no change and tells nobody.
    circuit.moves();
    circuit.force_open(None, "still", at(1e9)).unwrap();
    assert_eq!(circuit.moves(), []);
}

/// There every entry to open lengthens the next break, forced ones too.
#[test]
fn actor_ts_feeds_backoff_by_forced_opens_we_do_not() {
    // R22
    let mut circuit = circuit(actor_ts_settings(1, secs(1)).backoff(Backoff::new(2.0, secs(60))));
    for minute in 0..5 {
        let now = at(0) + minutes(minute);
        circuit.force_open(None, "", now).unwrap();
        circuit.release(now);
    }
    assert_eq!(break_lengths(&mut circuit, 0), [secs(1)]);
}

/// There a listener is told the new state alone.
#[test]
fn actor_ts_tells_the_new_state_alone_we_tell_why_and_when() {
    // R25
    let mut circuit = actor_ts(2);
    circuit.bad(at(0));
    circuit.bad(at(1));
    let told = circuit.pop_transition().unwrap();
    assert_eq!((told.from, told.to), (Closed, Open));
    assert_eq!((told.cause, told.at), (Cause::Tripped, at(1)));
    assert_eq!(told.epoch, circuit.record().epoch());
    assert_eq!(told.evidence.failures, 2);
    assert_eq!(told.evidence.until, Some(at(11)));
}
