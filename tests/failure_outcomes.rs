//! Failure cases from the field, kinds E and L, with 137, and what of C and K shows on the circuit alone:
//! outcomes that say nothing, orders of an operator against automatic changes, one transition a change.
//!
//! Unless a test says otherwise: a run of two failures trips, the break is ten seconds, one probe at a
//! time, one success closes. "trip at 0" means that the deadline is 10.

mod common;

use actix_circuit_breaker::Window;
use actix_circuit_breaker::circuit::{Cause, CircuitState, Lifetime, Reason, Settlement};
use common::{Story as _, at, circuit, cons, rate, secs, why};

use CircuitState::{Closed, ForcedClosed, ForcedOpen, HalfOpen, Open};

// E. Outcomes that are ignored.

/// An ignored exception on the last trial left the breaker half-open for good.
#[test]
fn an_ignored_probe_frees_its_slot_without_a_vote() {
    // case 43, R15
    let mut one = circuit(cons(2));
    one.trip(at(0));
    let probe = one.admit(at(10));
    one.ign(probe, at(10));
    one.good(at(10));
    assert_eq!(one.state(), Closed);

    let mut five = circuit(cons(2).max_probes(5));
    five.trip(at(0));
    for probe in [(); 5].map(|()| five.admit(at(10))) {
        five.ign(probe, at(10));
    }
    let snapshot = five.snapshot(at(10));
    assert_eq!((snapshot.probes_in_flight, snapshot.successes), (0, 0));
    assert!(five.admit(at(10)).is_probe());
}

/// An unhandled exception used up the only trial; callers were blocked for another full break.
#[test]
fn after_an_ignored_probe_the_next_caller_probes_at_once() {
    // case 44, R15
    let mut circuit = circuit(cons(2));
    circuit.trip(at(0));
    let probe = circuit.admit(at(10));
    circuit.ign(probe, at(10.05));
    assert!(circuit.admit(at(10.1)).is_probe());
}

/// Refused calls were counted as failures.
#[test]
fn rejections_raise_the_counter_of_rejections_alone() {
    // case 46, R9
    let mut circuit = circuit(rate(0.5, 4, Window::Time(secs(60))));
    circuit.trip(at(0));
    let before = circuit.record().clone();
    for _ in 0..1_000 {
        circuit.reject(at(1));
    }
    assert_eq!(circuit.record(), &before);
    assert_eq!(circuit.calls().rejected, 1_000);
    assert_eq!(circuit.calls().failures, 4);
    circuit.good(at(10));
    assert_eq!(circuit.state(), Closed);
    circuit.bad(at(10));
    for _ in 0..3 {
        circuit.good(at(10));
    }
    assert_eq!(circuit.state(), Closed, "a quarter failed");
    let snapshot = circuit.snapshot(at(10));
    assert_eq!((snapshot.failures, snapshot.samples), (1, 4));
}

/// The breaker's own "too many trials" errors were counted in half-open.
#[test]
fn rejections_in_half_open_are_no_votes() {
    // case 47, R9
    let mut circuit = circuit(cons(2));
    circuit.trip(at(0));
    let probe = circuit.admit(at(10));
    let before = circuit.record().clone();
    for _ in 0..50 {
        circuit.reject(at(10.5));
    }
    assert_eq!(circuit.record(), &before);
    circuit.ok(probe, at(11));
    assert_eq!(circuit.state(), Closed);
    let calls = circuit.calls();
    assert_eq!((calls.successes, calls.failures), (1, 2));
    assert_eq!((calls.ignored, calls.rejected), (0, 50));
}

/// Clients that navigated away tripped the breaker of a healthy database.
#[test]
fn a_caller_that_goes_away_counts_neither_way() {
    // case 49, R10, R19. A probe made by `ask` runs on instead; that needs the actor.
    let mut circuit = circuit(cons(5));
    for tenth in 0..20 {
        let now = at(f64::from(tenth) / 20.0);
        let permit = circuit.admit(now);
        circuit.reclaim(permit, now);
    }
    assert_eq!(circuit.state(), Closed);
    assert_eq!(circuit.snapshot(at(1)).failures, 0);
    assert_eq!(circuit.calls().ignored, 20);
    circuit.trip(at(1));
    let probe = circuit.admit(at(11));
    circuit.reclaim(probe, at(11.5));
    assert_eq!(circuit.state(), HalfOpen);
    assert_eq!(circuit.snapshot(at(11.5)).inconclusive, 0, "R15");
    assert!(circuit.admit(at(11.5)).is_probe());
}

/// Callers of an open breaker received a success with no hint.
#[test]
fn a_rejection_is_an_error_that_says_why_and_for_how_long() {
    // case 50, R9. That the error of an ask carries the breaker's name needs the actor.
    let mut circuit = circuit(cons(2));
    circuit.trip(at(0));
    let refused = circuit.reject(at(3));
    assert_eq!(why(refused), (Reason::Open, Some(secs(7))));
    assert_eq!(refused.epoch(), circuit.record().epoch());
    assert_eq!(refused.to_string(), "the circuit is open");
}

// C, as far as the circuit alone shows it: the permit of a caller that goes away.

/// A caller unsubscribed during the trial; the circuit was open for good.
#[test]
fn a_reclaimed_probe_leaves_the_round_to_the_next() {
    // case 26, R10: for `call` and two-step permits; an `ask` probe runs on.
    let mut circuit = circuit(cons(2));
    circuit.trip(at(0));
    let probe = circuit.admit(at(10));
    circuit.reclaim(probe, at(10.2));
    circuit.good(at(10.3));
    assert_eq!(circuit.state(), Closed);
}

/// Of three joined calls one was refused, its siblings were cancelled, and half-open got stuck.
#[test]
fn each_cancelled_sibling_returns_its_own_permit() {
    // case 32, R10
    let mut circuit = circuit(cons(2).max_probes(3).successes_to_close(3));
    circuit.trip(at(0));
    let held = circuit.admit(at(10));
    let siblings = [circuit.admit(at(10)), circuit.admit(at(10))];
    circuit.reject(at(10));
    for sibling in siblings {
        circuit.reclaim(sibling, at(10));
    }
    let _two_more = [circuit.admit(at(10)), circuit.admit(at(10))];
    circuit.reject(at(10));
    assert_eq!(circuit.ok(held, at(10)), Settlement::Counted);
}

// K, as far as the circuit alone shows it: one transition a change.

/// "Broken" was called several times for one opening.
#[test]
fn a_trip_is_told_once_however_many_calls_fail_after_it() {
    // case 103, R12, R25
    let mut circuit = circuit(cons(2));
    for permit in [(); 10].map(|()| circuit.admit(at(0))) {
        circuit.err(permit, at(0));
    }
    assert_eq!(circuit.moves(), [(Closed, Open)]);
    assert_eq!(circuit.calls().late, 8);
}

/// Failures of concurrent probes each told of an opening and each moved the deadline.
#[test]
fn the_second_failed_probe_of_a_round_is_late() {
    // case 104, R11
    let mut circuit = circuit(cons(2).max_probes(3));
    circuit.trip(at(0));
    let probes = [(); 3].map(|()| circuit.admit(at(10)));
    circuit.moves();
    for (now, probe) in (11..).zip(probes) {
        circuit.err(probe, at(now));
    }
    assert_eq!(circuit.moves(), [(HalfOpen, Open)]);
    assert_eq!(circuit.deadline(), Some(at(21)));
    assert_eq!(circuit.record().attempt(), 1);
}

/// A recovery that failed was not told of.
#[test]
fn every_change_of_state_is_told_in_order() {
    // case 106, R25
    let mut circuit = circuit(cons(2));
    let before = circuit.record().epoch();
    circuit.trip(at(0));
    circuit.bad(at(10));
    circuit.good(at(20));
    circuit.force_open(None, "upgrade", at(21)).unwrap();
    circuit.release(at(22));
    let told: Vec<_> = std::iter::from_fn(|| circuit.pop_transition()).collect();
    assert_eq!(
        told.iter()
            .map(|told| (told.from, told.to, told.cause))
            .collect::<Vec<_>>(),
        [
            (Closed, Open, Cause::Tripped),
            (Open, HalfOpen, Cause::ProbeDue),
            (HalfOpen, Open, Cause::ProbeFailed),
            (Open, HalfOpen, Cause::ProbeDue),
            (HalfOpen, Closed, Cause::Recovered),
            (Closed, ForcedOpen, Cause::Forced),
            (ForcedOpen, Closed, Cause::Released),
        ]
    );
    for (epoch, told) in (before + 1..).zip(&told) {
        assert_eq!(told.epoch, epoch);
    }
}

// L. An operator's orders against automatic changes.

/// A breaker forced open went half-open by itself, by the timer of an earlier trip.
#[test]
fn a_forced_open_circuit_forgets_the_deadline_it_had() {
    // case 113, R23
    let mut circuit = circuit(cons(2));
    circuit.trip(at(0));
    circuit.force_open(None, "incident 7", at(3)).unwrap();
    circuit.moves();
    for now in [3, 10, 11, 100, 1_000] {
        circuit.advance(at(now));
        assert_eq!(why(circuit.reject(at(now))), (Reason::ForcedOpen, None));
    }
    assert_eq!(circuit.moves(), []);
    assert_eq!(circuit.lifetime(at(1_000)), Lifetime::Forever);
    circuit.release(at(1_000));
    assert_eq!(circuit.state(), Closed);
    assert_eq!(circuit.record().attempt(), 0);
}

/// A breaker tripped by hand healed itself.
#[test]
fn a_forced_open_circuit_stays_so_until_it_is_released() {
    // case 115, R23
    let mut circuit = circuit(cons(2));
    let earlier = circuit.admit(at(0));
    circuit.force_open(None, "", at(0)).unwrap();
    circuit.reject(at(1e6));
    assert_eq!(circuit.ok(earlier, at(1e6)), Settlement::Late);
    assert_eq!(circuit.state(), ForcedOpen);
    circuit.reset(at(1e6));
    assert_eq!(circuit.state(), ForcedOpen);
}

/// An explicit `open()` was undone by the reset timer that was running.
#[test]
fn an_order_for_a_time_replaces_the_deadline_it_meets() {
    // case 116, R23: a trip by hand that heals is a forced open with a ttl. Its end is the deadline.
    let mut circuit = circuit(cons(2));
    circuit.trip(at(0));
    circuit.moves();
    circuit.force_open(Some(secs(10)), "again", at(8)).unwrap();
    assert_eq!(
        why(circuit.reject(at(10))),
        (Reason::ForcedOpen, Some(secs(8)))
    );
    circuit.reject(at(17.999));
    assert_eq!(circuit.moves(), [(Open, ForcedOpen)]);
    assert!(circuit.admit(at(18)).is_probe());
    assert_eq!(circuit.moves(), [(ForcedOpen, Open), (Open, HalfOpen)]);
}

/// After the operator's reset the next evaluation tripped again.
#[test]
fn a_reset_leaves_no_failure_and_no_call_under_way() {
    // case 118, R24
    let mut circuit = circuit(cons(3));
    circuit.trip(at(0));
    circuit.reset(at(1));
    assert_eq!(circuit.state(), Closed);
    circuit.bad(at(1));
    assert_eq!(circuit.state(), Closed);
    assert_eq!(circuit.snapshot(at(1)).failures, 1);
    let under_way = [(); 3].map(|()| circuit.admit(at(1)));
    circuit.reset(at(2));
    for permit in under_way {
        assert_eq!(circuit.err(permit, at(2)), Settlement::Late);
    }
    assert_eq!(circuit.state(), Closed);
    assert_eq!(circuit.snapshot(at(2)).failures, 0);
}

/// A breaker tripped by hand let calls through when the automatic criteria were fine.
#[test]
fn an_order_is_looked_at_first() {
    // case 119, R23
    let mut circuit = circuit(cons(2));
    circuit.good(at(0));
    circuit.force_open(None, "", at(0)).unwrap();
    circuit.reject(at(0));
    circuit.force_closed(None, "", at(1)).unwrap();
    circuit.moves();
    for _ in 0..100 {
        circuit.bad(at(1));
    }
    assert_eq!(circuit.state(), ForcedClosed);
    assert_eq!(circuit.moves(), []);
    assert_eq!(circuit.calls().failures, 100);
}

// N. What is shown.

/// The state was read as open for ever until somebody made a call.
#[test]
fn a_look_shows_that_a_probe_is_due_and_changes_nothing() {
    // case 137, R8
    let mut circuit = circuit(cons(2));
    circuit.trip(at(0));
    circuit.moves();
    let before = circuit.record().clone();
    for _ in 0..2 {
        let snapshot = circuit.snapshot(at(12));
        assert_eq!(snapshot.state, Open);
        assert!(snapshot.probe_due);
        assert_eq!(snapshot.retry_after, None);
    }
    assert_eq!(circuit.record(), &before);
    assert!(circuit.admit(at(12)).is_probe());
    assert_eq!(circuit.moves(), [(Open, HalfOpen)]);
}

// Left to the actor's tests, of kinds A to M, Q and 133, 137:
// C: 28 (a probe by `ask` that runs on; 26 and 49 for `ask` too), 29, 31.
// G: 62, 67, 68, and of 64 and 65 the part with real replies and timers.
// E: of 50 the name of the breaker in the error.
// K: 107, 109, 110, 112, and of 103, 104, 106 the way to every subscriber.
// M: 121, 122, 124, 125, 127, 130.
// Q: 172, 173, 175, 176.
// Shared store: 73, 86.
