//! The checks that the seeds gave rise to, 1 to 35, as far as `seed_redisx.rs`, `seed_actor_ts.rs` and
//! `equivalence.rs` do not hold them already. Three failures in a second, a break of five seconds, two
//! probes at once, two successes, a lease of ten minutes, unless a test says otherwise.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "the numbers of the stories are small, and an overflow would fail the test"
)]

mod common;

use std::marker::PhantomData;
use std::time::Duration;

use actix_circuit_breaker::circuit::{
    Cause, Circuit, CircuitState, Lifetime, Permit, Reason, Settlement,
};
use actix_circuit_breaker::{
    Backoff, BreakerConfig, BreakerConfigBuilder, Outcome, SlowCall, Timestamp, TripPolicy, Window,
};
use common::{
    Story as _, at, at_ms, break_lengths, circuit, cons, minutes, read, refused_field, secs, why,
};

use CircuitState::{Closed, ForcedClosed, ForcedOpen, HalfOpen, Open};

fn three_in_a_second(reset_on_success: bool) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures: 3,
            within: secs(1),
            reset_on_success,
        })
        .break_duration(secs(5))
        .max_probes(2)
        .successes_to_close(2)
        .probe_timeout(secs(600))
}

fn base() -> Circuit {
    circuit(three_in_a_second(false))
}

/// Half-open since 5,300, no slot taken.
fn half_open() -> Circuit {
    let mut circuit = base();
    for millis in [100, 200, 300] {
        circuit.bad(at_ms(millis));
    }
    let probe = circuit.admit(at_ms(5_300));
    circuit.reclaim(probe, at_ms(5_300));
    assert_eq!(circuit.state(), HalfOpen);
    circuit
}

#[test]
fn a_success_forgets_the_failures_where_the_policy_says_so() {
    // check 7; R17
    let mut circuit = circuit(three_in_a_second(true));
    circuit.bad(at_ms(100));
    circuit.bad(at_ms(200));
    circuit.good(at_ms(250));
    circuit.bad(at_ms(300));
    assert_eq!(circuit.state(), Closed);
    assert_eq!(circuit.snapshot(at_ms(300)).failures, 1);
}

#[test]
fn a_run_without_a_window_trips_over_days() {
    // check 8; R18. A count without a window that no success empties cannot be written: `FailureCount`
    // always has its `within`.
    let mut circuit = circuit(cons(3));
    for day in 0..3 {
        assert_eq!(circuit.state(), Closed);
        circuit.bad(at(0) + minutes(day * 24 * 60));
    }
    assert_eq!(circuit.state(), Open);
}

#[test]
fn a_failure_of_before_the_trip_does_not_count_after_the_recovery() {
    // check 21; R11
    let mut circuit = circuit(cons(1));
    let (one, straggler) = (circuit.admit(at(0)), circuit.admit(at(0)));
    circuit.err(one, at(0));
    circuit.good(at(10));
    assert_eq!(circuit.state(), Closed);
    assert_eq!(circuit.err(straggler, at(11)), Settlement::Late);
    assert_eq!(circuit.state(), Closed);
    assert_eq!(circuit.snapshot(at(11)).failures, 0);
}

#[test]
fn ninety_nine_late_failures_move_nothing() {
    // check 22; R12, R25
    let mut circuit = circuit(cons(1));
    let permits: Vec<_> = (0..100).map(|_| circuit.admit(at(0))).collect();
    for (tenth, permit) in (0..100_u32).zip(permits) {
        circuit.err(permit, at(f64::from(tenth) / 20.0));
    }
    assert_eq!(circuit.moves(), [(Closed, Open)]);
    assert_eq!(circuit.deadline(), Some(at(10)));
    assert_eq!(circuit.calls().late, 99);
    assert_eq!(circuit.calls().failures, 1);
}

#[test]
fn a_probe_of_one_round_is_late_in_the_next() {
    // check 23; R11
    for outcome in [Outcome::Success, Outcome::Failure, Outcome::Ignored] {
        let mut circuit = half_open();
        let (failing, early) = (circuit.admit(at_ms(5_300)), circuit.admit(at_ms(5_300)));
        circuit.err(failing, at_ms(5_300));
        let _probe = circuit.admit(at_ms(10_300));
        let before = circuit.snapshot(at_ms(10_400));
        assert_eq!(
            circuit.settle(early, outcome, at_ms(10_400)),
            Settlement::Late
        );
        let after = circuit.snapshot(at_ms(10_400));
        assert_eq!(after.state, HalfOpen);
        assert_eq!(after.probes_in_flight, before.probes_in_flight);
        assert_eq!((after.successes, after.inconclusive), (0, 0));
    }
}

#[test]
fn an_ignored_outcome_frees_the_slot_and_leaves_every_count() {
    // check 24; R15, R17
    let mut probing = half_open();
    let probe = probing.admit(at_ms(5_300));
    let _other = probing.admit(at_ms(5_300));
    probing.reject(at_ms(5_300));
    probing.ign(probe, at_ms(5_300));
    let snapshot = probing.snapshot(at_ms(5_300));
    assert_eq!((snapshot.successes, snapshot.probes_in_flight), (0, 1));
    let _next = probing.admit(at_ms(5_300));

    let mut closed = base();
    closed.bad(at_ms(0));
    let permit = closed.admit(at_ms(0));
    closed.ign(permit, at_ms(0));
    assert_eq!(closed.snapshot(at_ms(0)).failures, 1);
}

#[test]
fn a_permit_given_back_frees_its_slot_at_once() {
    // check 25; R10. The permit of the pure circuit has no `Drop`; the breaker's own calls `reclaim`.
    let mut circuit = half_open();
    let (one, _two) = (circuit.admit(at_ms(5_300)), circuit.admit(at_ms(5_300)));
    circuit.reject(at_ms(5_300));
    circuit.reclaim(one, at_ms(5_300));
    let _three = circuit.admit(at_ms(5_300));
    circuit.reject(at_ms(5_300));
}

/// Tells whether a type can be cloned: the inherent constant goes before that of the trait.
struct Cloning<T>(PhantomData<T>);

trait CannotBeCloned {
    const CLONES: bool = false;
}

impl<T> CannotBeCloned for Cloning<T> {}

#[allow(dead_code, reason = "for types that can be cloned")]
impl<T: Clone> Cloning<T> {
    const CLONES: bool = true;
}

#[test]
fn a_permit_cannot_be_reported_twice() {
    // check 26; R10: settling consumes it, so it would have to be cloned
    const { assert!(Cloning::<Timestamp>::CLONES) };
    const { assert!(!Cloning::<Permit>::CLONES) };
}

#[test]
fn a_clock_that_goes_back_ends_no_break_early() {
    // check 27; R3
    let mut circuit = base();
    let _earlier = circuit.admit(at_ms(60_000));
    for millis in [50_000, 20_000, 0] {
        circuit.bad(at_ms(millis));
    }
    assert_eq!(circuit.state(), Open);
    assert_eq!(circuit.deadline(), Some(at_ms(65_000)));
    for millis in [0, 59_000, 60_000] {
        assert_eq!(
            why(circuit.reject(at_ms(millis))),
            (Reason::Open, Some(secs(5)))
        );
        assert_eq!(circuit.peek(at_ms(millis)).retry_after, Some(secs(5)));
    }
    circuit.reject(at_ms(64_999));
    let probe = circuit.admit(at_ms(65_000));
    circuit.err(probe, at_ms(1));
    assert_eq!(circuit.deadline(), Some(at_ms(70_000)));
    circuit.force_open(Some(secs(1)), "", at_ms(2)).unwrap();
    circuit.advance(at_ms(3));
    circuit.release(at_ms(4));
    circuit.reset(at_ms(5));
    assert_eq!(circuit.record().newest(), at_ms(65_000));
}

#[test]
fn arithmetic_saturates_at_the_end_of_time() {
    // check 28; R3. `Duration::MAX` as a setting is refused: see case 97.
    let mut circuit = circuit(cons(1).call_timeout(minutes(1)));
    assert_eq!(at(0) + Duration::MAX, Timestamp::MAX);
    let probe_or_not = circuit.try_acquire_for(Duration::MAX, at(0)).unwrap();
    circuit.err(probe_or_not, at(0));
    let probe = circuit.try_acquire_for(Duration::MAX, at(10)).unwrap();
    assert_eq!(
        why(circuit.reject(at(1_000_000))),
        (Reason::ProbesInUse, Some(secs(1)))
    );
    circuit.lifetime(Timestamp::MAX);
    circuit.err(probe, Timestamp::MAX);
    assert_eq!(circuit.deadline(), Some(Timestamp::MAX));
    circuit.snapshot(Timestamp::MAX);
    assert_eq!(
        circuit
            .force_open(Some(Duration::MAX), "", at(0))
            .unwrap_err()
            .field(),
        "ttl"
    );
}

#[test]
fn a_reset_closes_from_every_state_but_an_order() {
    // check 29; R24
    let mut open = base();
    open.trip(at_ms(0));
    let mut forced_open = base();
    forced_open.force_open(None, "", at_ms(0)).unwrap();
    let mut forced_closed = base();
    forced_closed.force_closed(None, "", at_ms(0)).unwrap();
    let mut sampled = base();
    sampled.bad(at_ms(0));
    for (mut circuit, after) in [
        (sampled, Closed),
        (open, Closed),
        (half_open(), Closed),
        (forced_open, ForcedOpen),
        (forced_closed, ForcedClosed),
    ] {
        let before = circuit.state();
        let epoch = circuit.record().epoch();
        circuit.moves();
        circuit.reset(at_ms(6_000));
        assert_eq!(circuit.state(), after, "from {before}");
        assert_eq!(circuit.record().epoch(), epoch + 1, "from {before}");
        let told = if before == after {
            Vec::new()
        } else {
            vec![(Cause::Reset, at_ms(6_000))]
        };
        assert_eq!(circuit.causes(), told, "from {before}");
        let snapshot = circuit.snapshot(at_ms(6_000));
        assert_eq!((snapshot.failures, snapshot.attempt), (0, 0));
    }
}

#[test]
fn a_forced_open_holds_until_released_and_tells_once() {
    // check 30; R23
    let mut circuit = base();
    circuit.force_open(None, "one", at_ms(0)).unwrap();
    assert_eq!(circuit.causes(), [(Cause::Forced, at_ms(0))]);
    let epoch = circuit.record().epoch();
    circuit
        .force_open(Some(minutes(5)), "two", at_ms(1))
        .unwrap();
    assert_eq!(circuit.causes(), []);
    assert_eq!(circuit.record().epoch(), epoch);
    let snapshot = circuit.snapshot(at_ms(1));
    assert_eq!(snapshot.reason.as_deref(), Some("two"));
    assert_eq!(snapshot.until, Some(at_ms(300_001)));
    circuit.reject(at_ms(200_000));
    circuit.release(at_ms(200_000));
    assert_eq!(circuit.state(), Closed);
    assert_eq!(circuit.causes(), [(Cause::Released, at_ms(200_000))]);
    circuit.release(at_ms(200_001));
    assert_eq!(circuit.causes(), []);
}

#[test]
fn an_order_empties_the_record() {
    // check 30; R22, R23: the failed rounds of before are not remembered over it
    let mut circuit = circuit(
        cons(1)
            .break_duration(secs(1))
            .backoff(Backoff::new(2.0, secs(60))),
    );
    break_lengths(&mut circuit, 2);
    assert_eq!(circuit.record().attempt(), 2);
    let now = circuit.record().newest();
    circuit.force_open(Some(secs(5)), "", now).unwrap();
    assert_eq!(circuit.record().attempt(), 0);
    let later = now + secs(5);
    circuit.bad(later);
    assert_eq!(
        circuit.deadline(),
        Some(later + secs(2)),
        "one failed round"
    );
}

/// The moves there are, each with its causes.
fn is_legal(from: CircuitState, to: CircuitState, cause: Cause) -> bool {
    match cause {
        Cause::Tripped => (from, to) == (Closed, Open),
        Cause::ProbeDue => (from, to) == (Open, HalfOpen),
        Cause::ProbeFailed | Cause::Inconclusive => (from, to) == (HalfOpen, Open),
        Cause::Recovered => (from, to) == (HalfOpen, Closed),
        Cause::Forced => from != to && matches!(to, ForcedOpen | ForcedClosed),
        Cause::Released => matches!(from, ForcedOpen | ForcedClosed) && to == Closed,
        Cause::Expired => matches!((from, to), (ForcedOpen, Open) | (ForcedClosed, Closed)),
        Cause::Reset => matches!(from, Open | HalfOpen) && to == Closed,
        _ => false,
    }
}

fn random_settings(random: &mut fastrand::Rng) -> BreakerConfigBuilder {
    let trip = match random.u32(0..5) {
        0 => TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: None,
        },
        1 => TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: Some(secs(3)),
        },
        2 => TripPolicy::FailureCount {
            failures: 2,
            within: secs(3),
            reset_on_success: random.bool(),
        },
        3 => TripPolicy::FailureRate {
            rate: 0.5,
            minimum_calls: 3,
            window: Window::Calls(5),
            slow_call: Some(SlowCall::new(secs(0.9), 0.5)),
        },
        _ => TripPolicy::FailureRate {
            rate: 0.5,
            minimum_calls: 3,
            window: Window::Time(secs(5)),
            slow_call: None,
        },
    };
    BreakerConfig::builder()
        .trip(trip)
        .call_timeout(secs(1))
        .break_duration(secs(2))
        .backoff(Backoff::new(2.0, secs(8)))
        .jitter(if random.bool() { 0.5 } else { 0.0 })
        .max_probes(random.u32(1..4))
        .successes_to_close(random.u32(1..4))
        .probe_timeout(secs(random.u32(2..5)))
        .max_inconclusive(random.u32(1..4))
}

#[test]
fn whatever_happens_open_admits_none_and_transitions_follow_each_other() {
    // check 32; R7, R8, R9, R22, R25
    let mut told = 0;
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let settings = random_settings(&mut random);
        let max_probes = settings.clone().build().unwrap().max_probes();
        let mut circuit = circuit(settings);
        let mut under_way: Vec<Permit> = Vec::new();
        let mut now = at(0);
        let mut state = Closed;
        let mut epoch = circuit.record().epoch();
        for step in 0..500 {
            let story = format!("seed {seed}, step {step}: {circuit:?}");
            now = now + Duration::from_millis(random.u64(0..700));
            let (peek, before) = (circuit.peek(now), circuit.record().clone());
            match random.u32(0..40) {
                0..20 => match circuit.try_acquire(now) {
                    Ok(permit) => {
                        assert_eq!(peek.refusal, None, "{story}");
                        assert_eq!(permit.epoch(), circuit.record().epoch(), "{story}");
                        assert_eq!(permit.is_probe(), circuit.state() == HalfOpen, "{story}");
                        under_way.push(permit);
                    }
                    Err(refused) => {
                        assert_eq!(peek.refusal, Some(refused.reason()), "{story}");
                        assert_eq!(peek.retry_after, refused.retry_after(), "{story}");
                        assert_ne!(refused.retry_after(), Some(Duration::ZERO), "{story}");
                        assert_eq!(circuit.record(), &before, "{story}");
                    }
                },
                choice @ 20..36 if !under_way.is_empty() => {
                    let permit = under_way.swap_remove(random.usize(0..under_way.len()));
                    let late = permit.epoch() != before.epoch();
                    let (states, deadline) = (peek.state, before.restrained_until());
                    let settled = match choice {
                        20..25 => circuit.ok(permit, now),
                        25..31 => circuit.err(permit, now),
                        31..34 => circuit.ign(permit, now),
                        _ => circuit.reclaim(permit, now),
                    };
                    if late {
                        assert_eq!(settled, Settlement::Late, "{story}");
                        assert_eq!(circuit.state(), states, "{story}");
                        if before.state() == states {
                            assert_eq!(circuit.deadline(), deadline, "{story}");
                        }
                    }
                }
                36 => circuit
                    .force_open(Some(secs(random.u32(1..3))), "", now)
                    .unwrap(),
                37 => circuit
                    .force_closed(Some(secs(random.u32(1..3))), "", now)
                    .unwrap(),
                38 if random.u32(0..4) == 0 => circuit.reset(now),
                _ => circuit.advance(now),
            }
            let snapshot = circuit.snapshot(now);
            assert!(snapshot.probes_in_flight <= max_probes, "{story}");
            let length = circuit.deadline().map(|due| due.since(now));
            assert!(length <= Some(secs(12)), "8 s and half of it: {story}");
            while let Some(transition) = circuit.pop_transition() {
                told += 1;
                assert_eq!(transition.from, state, "{story}");
                assert!(
                    is_legal(transition.from, transition.to, transition.cause),
                    "{transition:?} {story}"
                );
                // A reset or an order's repetition may raise it without a transition.
                assert!(transition.epoch > epoch, "{story}");
                assert_eq!(transition.at, now, "{story}");
                state = transition.to;
                epoch = transition.epoch;
            }
            assert_eq!(
                state,
                circuit.state(),
                "a change that was not told: {story}"
            );
        }
    }
    assert!(told > 2_000, "{told}");
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    // check 33; R33. Zeros and what is not a number: cases 88 and 91 in `failure_config.rs`. Another config
    // under the same name needs the registry.
    let slow = |duration| TripPolicy::FailureRate {
        rate: 0.5,
        minimum_calls: 3,
        window: Window::Calls(3),
        slow_call: Some(SlowCall::new(duration, 0.5)),
    };
    let few = TripPolicy::FailureRate {
        rate: 0.5,
        minimum_calls: 4,
        window: Window::Calls(3),
        slow_call: None,
    };
    for (settings, field) in [
        (
            cons(1).backoff(Backoff::new(2.0, secs(9.999_999))),
            "backoff.max",
        ),
        (
            cons(1).call_timeout(secs(10)).probe_timeout(secs(10)),
            "probe_timeout",
        ),
        (
            cons(1).call_timeout(secs(2)).trip(slow(secs(2))),
            "trip.slow_call.duration",
        ),
        (cons(1).trip(few), "trip.minimum_calls"),
    ] {
        assert_eq!(refused_field(settings), field);
    }
    for fits in [
        cons(1).backoff(Backoff::new(2.0, secs(10))),
        cons(1)
            .call_timeout(secs(10))
            .probe_timeout(secs(10.000_001)),
        cons(1).call_timeout(secs(2)).trip(slow(secs(1.999_999))),
    ] {
        fits.build().unwrap();
    }
    assert!(read("jitters = 0.1").unwrap_err().contains("unknown field"));
}

#[test]
fn breaks_double_up_to_the_ceiling_and_start_again_after_a_recovery() {
    // check 34; R22. Jitter: `seed_actor_ts.rs`.
    let mut circuit = circuit(
        cons(1)
            .break_duration(secs(1))
            .backoff(Backoff::new(2.0, secs(3))),
    );
    assert_eq!(break_lengths(&mut circuit, 3), [1, 2, 3, 3].map(secs));
    let due = circuit.deadline().unwrap();
    circuit.good(due);
    assert_eq!(break_lengths(&mut circuit, 1), [1, 2].map(secs));
}

#[test]
fn a_closed_empty_record_is_not_kept_and_an_open_one_is_past_its_deadline() {
    // check 35; R31. The cap on names needs the registry.
    let mut circuit = circuit(cons(1).break_duration(minutes(30)));
    assert_eq!(circuit.lifetime(at(0)), Lifetime::None);
    circuit.good(at(0));
    assert_eq!(circuit.lifetime(at(0)), Lifetime::None);
    circuit.trip(at(0));
    let long_after = at(0) + minutes(30 + 90);
    assert!(matches!(circuit.lifetime(long_after), Lifetime::For(rest) if !rest.is_zero()));
    let admitted = (0..100)
        .filter(|_| circuit.try_acquire(long_after).is_ok())
        .count();
    assert_eq!(admitted, 1);
    // Half-open counts from the end of the last lease, an order from its ttl.
    let margin = minutes(2 * 60 + 1);
    assert_eq!(
        circuit.lifetime(long_after),
        Lifetime::For(minutes(30) + margin)
    );
    circuit
        .force_open(Some(minutes(5)), "", long_after)
        .unwrap();
    assert_eq!(
        circuit.lifetime(long_after),
        Lifetime::For(minutes(5) + margin)
    );
    circuit
        .force_closed(Some(minutes(5)), "", long_after)
        .unwrap();
    assert_eq!(circuit.lifetime(long_after), Lifetime::For(minutes(5)));
    circuit.force_closed(None, "", long_after).unwrap();
    assert_eq!(circuit.lifetime(long_after), Lifetime::Forever);
}

// Checks that need actors, for the tests of the shell:
// 33: another config under a name that is taken. 35: the cap on names, with ten thousand of them.
// 36 opens after n failing asks, the target receives exactly n. 37 a rejected ask never reaches the target.
// 38 a slow target: typed timeout, counted; a late reply changes nothing. 39 one probe held by a latch, fifty
// asks rejected. 40 target stopped, target restarted. 41 the breaker's actor restarted in the middle of a
// probe. 42 a caller that drops its future. 43 a subscriber stopped or full. 44 the classifier of an `Err`,
// in half-open too. 45 a classifier that panics. 46 two targets. 47 the breaker's mailbox closed.
// 48 fallback. 49 a message that passes while open, without a vote.
