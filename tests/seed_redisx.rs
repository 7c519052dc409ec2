//! The second seed, `CircuitBreakerState` of `NestJS` `RedisX`: configured alike, its documented sequences give
//! the same decisions, states and deadlines here, and where a rule says otherwise the test's name says so.
//! Left out: its store. "check 4" names a check of the list that the seeds gave rise to.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "the numbers of the stories are small, and an overflow would fail the test"
)]

mod common;

use std::time::Duration;

use actix_circuit_breaker::circuit::{
    Cause, Circuit, CircuitState, Lifetime, Permit, Reason, Settlement,
};
use actix_circuit_breaker::{BreakerConfig, BreakerConfigBuilder, TripPolicy};
use common::{Story as _, at_ms, circuit, read, refused_field, secs, why};

use CircuitState::{Closed, HalfOpen, Open};

/// Three failures in a second, a break of five seconds, two probes at once, two successes.
fn redisx_settings() -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures: 3,
            within: secs(1),
            reset_on_success: false,
        })
        .call_timeout(secs(0.05))
        .break_duration(secs(5))
        .max_probes(2)
        .successes_to_close(2)
        .probe_timeout(secs(600))
}

fn redisx() -> Circuit {
    circuit(redisx_settings())
}

fn redisx_with_threshold(failures: u32) -> Circuit {
    circuit(redisx_settings().trip(TripPolicy::FailureCount {
        failures,
        within: secs(1),
        reset_on_success: false,
    }))
}

/// Fails at each of these milliseconds; the state afterwards.
fn fail_at_ms(circuit: &mut Circuit, millis: &[u64]) -> CircuitState {
    for millis in millis {
        circuit.bad(at_ms(*millis));
    }
    circuit.state()
}

/// Open since 300, so due at 5,300.
fn redisx_open() -> Circuit {
    let mut circuit = redisx();
    assert_eq!(fail_at_ms(&mut circuit, &[100, 200, 300]), Open);
    circuit
}

#[test]
fn redisx_starts_closed_and_permits() {
    // check 1
    let mut circuit = redisx();
    let snapshot = circuit.snapshot(at_ms(0));
    assert_eq!(snapshot.state, Closed);
    assert_eq!((snapshot.failures, snapshot.successes), (0, 0));
    assert_eq!(snapshot.probes_in_flight, 0);
    assert!(!circuit.admit(at_ms(0)).is_probe());
}

#[test]
fn redisx_trips_at_the_threshold_within_the_window() {
    // check 2
    let mut circuit = redisx();
    assert_eq!(fail_at_ms(&mut circuit, &[100, 200]), Closed);
    assert_eq!(circuit.snapshot(at_ms(200)).failures, 2);
    assert_eq!(fail_at_ms(&mut circuit, &[300]), Open);
    assert_eq!(circuit.snapshot(at_ms(300)).failures, 0);
    assert_eq!(
        why(circuit.reject(at_ms(300))),
        (Reason::Open, Some(secs(5)))
    );
    // check 5
    assert_eq!(fail_at_ms(&mut redisx(), &[0, 500, 999]), Open);
}

#[test]
fn redisx_lets_older_failures_age_out() {
    // checks 3, 4; R4
    let mut circuit = redisx();
    assert_eq!(fail_at_ms(&mut circuit, &[0, 500, 1_600]), Closed);
    assert_eq!(circuit.snapshot(at_ms(1_600)).failures, 1);

    let mut edge = redisx_with_threshold(2);
    assert_eq!(fail_at_ms(&mut edge, &[0, 1_000]), Closed);
    assert_eq!(edge.snapshot(at_ms(1_000)).failures, 1);

    let mut sliding = redisx();
    assert_eq!(fail_at_ms(&mut sliding, &[100, 200, 1_100]), Closed);
    assert_eq!(sliding.snapshot(at_ms(1_100)).failures, 2);
}

#[test]
fn redisx_does_not_forget_by_a_success() {
    // check 6; R17
    let mut circuit = redisx();
    fail_at_ms(&mut circuit, &[100, 200]);
    circuit.good(at_ms(250));
    assert_eq!(circuit.snapshot(at_ms(250)).failures, 2);
    assert_eq!(fail_at_ms(&mut circuit, &[300]), Open);
}

#[test]
fn redisx_denies_before_the_cool_down_and_probes_at_its_end() {
    // check 9; R4
    let mut circuit = redisx_open();
    circuit.reject(at_ms(300 + 4_999));
    assert!(circuit.admit(at_ms(300 + 5_000)).is_probe());
    assert_eq!(circuit.state(), HalfOpen);
}

#[test]
fn redisx_ignores_records_while_open() {
    // check 10; R12
    let mut circuit = redisx();
    let (one, two) = (circuit.admit(at_ms(0)), circuit.admit(at_ms(0)));
    fail_at_ms(&mut circuit, &[100, 200, 300]);
    circuit.moves();
    circuit.err(one, at_ms(400));
    circuit.ok(two, at_ms(500));
    assert_eq!(circuit.moves(), []);
    circuit.reject(at_ms(300 + 4_999));
    assert!(circuit.admit(at_ms(300 + 5_000)).is_probe());
}

#[test]
fn redisx_shows_open_until_somebody_asks() {
    // check 11; R8
    let circuit = redisx_open();
    let before = circuit.record().clone();
    let snapshot = circuit.snapshot(at_ms(999_999));
    assert_eq!(snapshot.state, Open);
    assert_eq!(circuit.snapshot(at_ms(999_999)), snapshot);
    assert_eq!(circuit.record(), &before);
}

#[test]
fn redisx_caps_probes_and_closes_after_its_successes() {
    // checks 12, 13; R7, R13
    let mut circuit = redisx_open();
    let (one, two) = (circuit.admit(at_ms(5_300)), circuit.admit(at_ms(5_301)));
    circuit.reject(at_ms(5_302));
    circuit.ok(one, at_ms(5_400));
    assert_eq!(circuit.state(), HalfOpen);
    circuit.ok(two, at_ms(5_500));
    assert_eq!(circuit.state(), Closed);
    let snapshot = circuit.snapshot(at_ms(5_500));
    assert_eq!((snapshot.failures, snapshot.successes), (0, 0));
    assert_eq!(snapshot.probes_in_flight, 0);
    assert_eq!(
        circuit.causes(),
        [
            (Cause::Tripped, at_ms(300)),
            (Cause::ProbeDue, at_ms(5_300)),
            (Cause::Recovered, at_ms(5_500))
        ]
    );
}

#[test]
fn redisx_opens_on_a_single_failed_probe() {
    // check 14; R14
    let mut circuit = redisx_open();
    let probe = circuit.admit(at_ms(5_300));
    circuit.err(probe, at_ms(6_000));
    assert_eq!(circuit.state(), Open);
    circuit.reject(at_ms(10_999));
    assert!(circuit.admit(at_ms(11_000)).is_probe());
}

#[test]
fn redisx_frees_a_slot_on_success() {
    // check 15; R13
    let mut circuit = circuit(redisx_settings().max_probes(1).successes_to_close(3));
    fail_at_ms(&mut circuit, &[0, 0, 0]);
    for turn in 1..=3 {
        assert_ne!(circuit.state(), Closed, "turn {turn}");
        let probe = circuit.admit(at_ms(5_000));
        circuit.reject(at_ms(5_000));
        circuit.ok(probe, at_ms(5_000));
    }
    assert_eq!(circuit.state(), Closed);
}

#[test]
fn redisx_allows_as_many_successes_as_probes() {
    let mut circuit = circuit(redisx_settings().max_probes(3).successes_to_close(3));
    fail_at_ms(&mut circuit, &[0, 0, 0]);
    let probes = [(); 3].map(|()| circuit.admit(at_ms(5_000)));
    for probe in probes {
        assert_eq!(circuit.state(), HalfOpen);
        circuit.ok(probe, at_ms(5_001));
    }
    assert_eq!(circuit.state(), Closed);
}

#[test]
fn redisx_resets_from_half_open_and_from_open() {
    // R24
    let mut half_open = redisx_open();
    let probe = half_open.admit(at_ms(5_300));
    half_open.reset(at_ms(5_400));
    assert_eq!(half_open.state(), Closed);
    assert_eq!(half_open.err(probe, at_ms(5_500)), Settlement::Late);
    assert_eq!(half_open.snapshot(at_ms(5_500)).failures, 0);

    let mut open = redisx_open();
    open.reset(at_ms(400));
    assert_eq!(open.state(), Closed);
    assert!(!open.admit(at_ms(400)).is_probe());
}

/// With a lease of a second.
fn redisx_with_leases(successes: u32) -> (Circuit, Permit, Permit) {
    let mut circuit = circuit(
        redisx_settings()
            .probe_timeout(secs(1))
            .successes_to_close(successes),
    );
    fail_at_ms(&mut circuit, &[0, 0, 0]);
    let (one, two) = (circuit.admit(at_ms(5_000)), circuit.admit(at_ms(5_000)));
    (circuit, one, two)
}

#[test]
fn redisx_reclaims_a_slot_exactly_at_the_probe_timeout() {
    // check 16; R16
    let (mut circuit, _one, _two) = redisx_with_leases(2);
    circuit.reject(at_ms(5_999));
    assert_eq!(circuit.snapshot(at_ms(5_999)).probes_in_flight, 2);
    let snapshot = circuit.snapshot(at_ms(6_000));
    assert_eq!(snapshot.probes_in_flight, 0);
    assert_eq!(circuit.snapshot(at_ms(6_000)), snapshot);
    assert!(circuit.admit(at_ms(6_000)).is_probe());
    assert!(circuit.admit(at_ms(6_000)).is_probe());
    circuit.reject(at_ms(6_000));
}

#[test]
fn redisx_counts_the_late_success_of_an_expired_probe() {
    // check 17; R16
    let (mut circuit, one, _two) = redisx_with_leases(1);
    assert_eq!(circuit.ok(one, at_ms(7_000)), Settlement::Counted);
    assert_eq!(circuit.state(), Closed);
}

#[test]
fn redisx_reclaims_nothing_while_the_probe_is_fresh() {
    let mut circuit = circuit(redisx_settings().max_probes(1).probe_timeout(secs(10)));
    fail_at_ms(&mut circuit, &[0, 0, 0]);
    let _probe = circuit.admit(at_ms(5_000));
    for fresh in [1, 5_000, 9_999] {
        circuit.reject(at_ms(5_000 + fresh));
    }
    assert!(circuit.admit(at_ms(15_000)).is_probe());
}

#[test]
fn redisx_validates_each_knob() {
    let s = redisx_settings;
    for (settings, field) in [
        (s().max_probes(0), "max_probes"),
        (s().successes_to_close(0), "successes_to_close"),
        (s().break_duration(Duration::ZERO), "break_duration"),
        (s().probe_timeout(Duration::ZERO), "probe_timeout"),
        (common::count(0, secs(1)), "trip.failures"),
        (common::count(3, Duration::ZERO), "trip.within"),
    ] {
        assert_eq!(refused_field(settings), field);
    }
    for fraction in ["1.5", "100.1"] {
        for knob in ["max_probes", "successes_to_close", "max_inconclusive"] {
            let error = read(&format!("{knob} = {fraction}")).unwrap_err();
            assert!(
                error.contains(&format!("`{knob}` is {fraction}")),
                "{error}"
            );
        }
    }
    assert!(s().build().is_ok());
}

/// There three successes with two slots are refused, though a slot can be used in turn.
#[test]
fn redisx_refuses_more_successes_than_probes_we_do_not() {
    // R13
    assert!(redisx_settings().successes_to_close(3).build().is_ok());
}

/// There a success frees the newest slot, so an expired probe's success frees another's: three run
/// where two may.
#[test]
fn redisx_frees_the_newest_slot_we_free_the_probes_own() {
    // R13, R16; check 18
    let (mut circuit, expired, _other) = redisx_with_leases(3);
    let (_one, _two) = (circuit.admit(at_ms(6_000)), circuit.admit(at_ms(6_500)));
    assert_eq!(circuit.ok(expired, at_ms(6_600)), Settlement::Counted);
    let snapshot = circuit.snapshot(at_ms(6_600));
    assert_eq!((snapshot.successes, snapshot.probes_in_flight), (1, 2));
    circuit.reject(at_ms(6_600));
}

/// There, of two probes, a success gives back the newest slot, and the older one expires on its time.
#[test]
fn redisx_keeps_the_older_slot_after_a_success_we_keep_the_one_that_runs() {
    // R13
    let mut circuit = circuit(redisx_settings().probe_timeout(secs(1)));
    fail_at_ms(&mut circuit, &[0, 0, 0]);
    let older = circuit.admit(at_ms(5_000));
    let _newer = circuit.admit(at_ms(5_500));
    circuit.ok(older, at_ms(5_600));
    assert_eq!(circuit.snapshot(at_ms(6_100)).probes_in_flight, 1);
    assert_eq!(circuit.snapshot(at_ms(6_499)).probes_in_flight, 1);
    assert_eq!(circuit.snapshot(at_ms(6_500)).probes_in_flight, 0);
}

/// The same with a clock that goes back in between: the older instant counts as the newest seen.
#[test]
fn redisx_frees_by_start_with_a_clock_that_goes_back_we_by_permit() {
    // R3, R13
    let mut circuit = circuit(redisx_settings().probe_timeout(secs(1)));
    fail_at_ms(&mut circuit, &[0, 0, 0]);
    let one = circuit.admit(at_ms(5_500));
    let _two = circuit.admit(at_ms(5_000));
    circuit.ok(one, at_ms(5_100));
    assert_eq!(circuit.snapshot(at_ms(6_499)).probes_in_flight, 1);
    assert_eq!(circuit.snapshot(at_ms(6_500)).probes_in_flight, 0);
}

/// There an outcome of a call admitted while closed counts as a probe's.
#[test]
fn redisx_lets_closed_era_outcomes_settle_half_open_we_do_not() {
    // R11; checks 19, 20
    let mut circuit = redisx();
    let (one, two) = (circuit.admit(at_ms(0)), circuit.admit(at_ms(0)));
    fail_at_ms(&mut circuit, &[100, 200, 300]);
    let _probe = circuit.admit(at_ms(5_300));
    circuit.ok(one, at_ms(5_400));
    assert_eq!(circuit.snapshot(at_ms(5_400)).successes, 0);
    circuit.err(two, at_ms(5_400));
    assert_eq!(circuit.state(), HalfOpen);
    assert_eq!(circuit.snapshot(at_ms(5_400)).probes_in_flight, 1);
}

/// A target slower than the lease gets one more probe per lease, as there; an ask cannot be slower, since
/// its timeout is below the lease.
#[test]
fn redisx_sends_one_more_probe_per_lease_to_a_target_that_is_slower() {
    // R16
    let mut circuit = circuit(redisx_settings().max_probes(1).probe_timeout(secs(0.1)));
    fail_at_ms(&mut circuit, &[0, 0, 0]);
    let admitted = (5_000..5_900)
        .filter(|millis| circuit.try_acquire(at_ms(*millis)).is_ok())
        .count();
    assert_eq!(admitted, 9);
    // Of the slots, one is kept: what the lost probes held is swept out.
    let written = serde_json::to_value(circuit.record()).unwrap();
    let slots = written["phase"]["half_open"]["round"]["slots"].as_array();
    assert_eq!(slots.unwrap().len(), 1, "{written}");
    assert_eq!(
        refused_field(redisx_settings().call_timeout(secs(600))),
        "probe_timeout"
    );
}

/// There the keys of an open circuit are gone after two minutes without traffic: it is closed, unprobed.
#[test]
fn redisx_forgets_an_idle_open_circuit_we_count_its_ttl_from_the_deadline() {
    // R31
    let mut circuit = circuit(redisx_settings().probe_timeout(secs(30)));
    fail_at_ms(&mut circuit, &[0, 0, 0]);
    assert_eq!(
        circuit.lifetime(at_ms(0)),
        Lifetime::For(secs(5) + secs(2 * 30 + 60))
    );
}

/// There a snapshot shows the failures that are in the window at the instant of looking; so here.
#[test]
fn redisx_filters_its_snapshot_by_now() {
    let mut circuit = redisx();
    fail_at_ms(&mut circuit, &[100, 200]);
    assert_eq!(circuit.snapshot(at_ms(1_099)).failures, 2);
    assert_eq!(circuit.snapshot(at_ms(1_100)).failures, 1);
    assert_eq!(circuit.snapshot(at_ms(1_200)).failures, 0);
}
