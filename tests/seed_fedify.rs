//! The first seed, Fedify's circuit, and the note that would make it smaller: configured alike, their
//! documented sequences give the same decisions, states and deadlines here, and where a rule says otherwise
//! the test's name says so. Left out: the holding of messages, HTTP, and the store.
//! Its machine and ours are compared over all short stories in `equivalence.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "the numbers of the stories are small, and an overflow would fail the test"
)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_circuit_breaker::circuit::{
    Circuit, CircuitState, Lifetime, Panicked, Reason, Record, Settlement,
};
use actix_circuit_breaker::{
    BreakerConfig, BreakerConfigBuilder, Outcome, Timestamp, TripPolicy, TripRule,
};
use common::{Story as _, at, circuit, minutes, read, refused_field, secs, why};

use CircuitState::{Closed, HalfOpen, Open};

/// An instant in minutes.
fn at_min(minute: u64) -> Timestamp {
    at(0) + minutes(minute)
}

/// A success forgets all failures, and the lease of a probe is the recovery delay.
fn fedify(threshold: u32, window: Duration, recovery: Duration) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures: threshold,
            within: window,
            reset_on_success: true,
        })
        .break_duration(recovery)
        .probe_timeout(recovery)
}

/// Its defaults but for the threshold: ten minutes, thirty minutes.
fn fedify_of(threshold: u32) -> Circuit {
    circuit(fedify(threshold, minutes(10), minutes(30)))
}

/// Fails at each of these minutes; the states afterwards.
fn fail_at(circuit: &mut Circuit, at: &[u64]) -> CircuitState {
    for minute in at {
        circuit.bad(at_min(*minute));
    }
    circuit.state()
}

#[test]
fn fedify_trips_on_the_threshold_within_the_window() {
    assert_eq!(fail_at(&mut fedify_of(3), &[0, 5]), Closed);
    assert_eq!(fail_at(&mut fedify_of(3), &[0, 5, 9]), Open);
    let mut spread = fedify_of(3);
    assert_eq!(fail_at(&mut spread, &[0, 11, 12]), Closed);
    assert_eq!(spread.snapshot(at_min(12)).failures, 2);
}

/// It keeps a failure whose age equals the window: 0, 5, 10 trips there.
#[test]
fn fedify_counts_a_failure_as_old_as_the_window_we_do_not() {
    // R4
    let mut circuit = fedify_of(3);
    assert_eq!(fail_at(&mut circuit, &[0, 5, 10]), Closed);
    assert_eq!(circuit.snapshot(at_min(10)).failures, 2);
    let mut just_inside = fedify_of(3);
    just_inside.bad(at_min(0));
    just_inside.bad(at_min(5));
    just_inside.bad(Timestamp::from_micros(at_min(10).as_micros() - 1));
    assert_eq!(just_inside.state(), Open);
}

#[test]
fn fedify_opens_probes_and_closes() {
    let mut circuit = fedify_of(2);
    assert_eq!(fail_at(&mut circuit, &[0, 5]), Open);
    assert_eq!(
        why(circuit.reject(at_min(5))),
        (Reason::Open, Some(minutes(30)))
    );
    assert_eq!(
        why(circuit.reject(at_min(10))),
        (Reason::Open, Some(minutes(25)))
    );
    let probe = circuit.admit(at_min(35));
    assert!(probe.is_probe());
    assert_eq!(circuit.state(), HalfOpen);
    circuit.ok(probe, at_min(36));
    assert_eq!(
        circuit.moves(),
        [(Closed, Open), (Open, HalfOpen), (HalfOpen, Closed)]
    );
    // Its success deletes the record.
    assert_eq!(circuit.lifetime(at_min(36)), Lifetime::None);
    assert_eq!(circuit.snapshot(at_min(36)).failures, 0);
}

#[test]
fn fedify_trips_half_open_on_a_single_failure() {
    let mut circuit = fedify_of(5);
    circuit.trip(at_min(0));
    circuit.bad(at_min(31));
    assert_eq!(circuit.state(), Open);
    assert_eq!(circuit.deadline(), Some(at_min(61)));
}

/// A probe that is lost gives its turn to another after the recovery delay, and nobody is told: the
/// state did not change. Until then a call comes back after the release interval, of a second.
#[test]
fn fedify_recovers_stale_half_open_probes() {
    let mut circuit = circuit(fedify(2, minutes(10), secs(30)));
    circuit.trip(at(0));
    let _lost = circuit.admit(at(30));
    circuit.moves();
    assert_eq!(
        why(circuit.reject(at(36))),
        (Reason::ProbesInUse, Some(secs(1)))
    );
    assert_eq!(
        why(circuit.reject(at(59.6))),
        (Reason::ProbesInUse, Some(secs(0.4)))
    );
    let next = circuit.admit(at(60));
    assert!(next.is_probe());
    assert_eq!(circuit.moves(), []);
    circuit.reject(at(89.999));
}

#[test]
fn fedify_skips_failures_of_open_circuits() {
    let mut circuit = fedify_of(2);
    let straggler = circuit.admit(at_min(0));
    fail_at(&mut circuit, &[0, 5]);
    let (state, deadline, epoch) = (
        circuit.state(),
        circuit.deadline(),
        circuit.record().epoch(),
    );
    circuit.moves();
    circuit.err(straggler, at_min(20));
    assert_eq!(circuit.state(), state);
    assert_eq!(circuit.deadline(), deadline);
    assert_eq!(circuit.record().epoch(), epoch);
    assert_eq!(circuit.moves(), []);
}

#[test]
fn fedify_prunes_stale_closed_failure_history() {
    let mut circuit = fedify_of(2);
    for minute in [0, 20, 40, 60] {
        circuit.bad(at_min(minute));
        assert_eq!(circuit.state(), Closed);
        assert_eq!(circuit.snapshot(at_min(minute)).failures, 1);
    }
}

#[test]
fn fedify_forgets_its_failures_with_any_success() {
    let mut circuit = fedify_of(2);
    circuit.bad(at_min(0));
    circuit.good(at_min(1));
    assert_eq!(circuit.snapshot(at_min(1)).failures, 0);
    circuit.bad(at_min(2));
    assert_eq!(circuit.state(), Closed);
}

/// There a success that comes while open, from a call sent before the trip, cancels the trip.
#[test]
fn fedify_closes_on_a_straggler_success_we_do_not() {
    // R12
    let mut circuit = fedify_of(2);
    let straggler = circuit.admit(at_min(0));
    fail_at(&mut circuit, &[0, 1]);
    assert_eq!(circuit.ok(straggler, at_min(2)), Settlement::Late);
    assert_eq!(circuit.state(), Open);
    assert_eq!(circuit.deadline(), Some(at_min(31)));
}

/// There any success or failure settles the half-open round, whoever sent it.
#[test]
fn fedify_lets_a_closed_era_outcome_settle_half_open_we_do_not() {
    // R11
    for outcome in [Outcome::Success, Outcome::Failure] {
        let mut circuit = fedify_of(2);
        let straggler = circuit.admit(at_min(0));
        fail_at(&mut circuit, &[0, 1]);
        let _probe = circuit.admit(at_min(31));
        circuit.settle(straggler, outcome, at_min(32));
        assert_eq!(circuit.state(), HalfOpen);
        assert_eq!(circuit.snapshot(at_min(32)).probes_in_flight, 1);
    }
}

/// A predicate over the newest failures.
struct Predicate<F> {
    lookback: Duration,
    trips: F,
}

impl<F: Fn(&[Timestamp]) -> bool + Send + Sync + 'static> TripRule for Predicate<F> {
    fn trips(&self, failures: &[Timestamp], _now: Timestamp) -> bool {
        (self.trips)(failures)
    }

    fn lookback(&self) -> Duration {
        self.lookback
    }

    fn reset_on_success(&self) -> bool {
        true
    }
}

fn fedify_by(
    lookback: Duration,
    trips: impl Fn(&[Timestamp]) -> bool + Send + Sync + 'static,
) -> Circuit {
    let rule = Predicate { lookback, trips };
    circuit(fedify(1, minutes(1), minutes(30)).trip(TripPolicy::Custom(Arc::new(rule))))
}

/// The predicate sees the newest hundred, and is not asked about a probe.
#[test]
fn fedify_accepts_a_callback_policy() {
    let longest = Arc::new(AtomicUsize::new(0));
    let asked = Arc::new(AtomicUsize::new(0));
    let (seen, times) = (Arc::clone(&longest), Arc::clone(&asked));
    let mut circuit = fedify_by(minutes(600), move |failures| {
        seen.fetch_max(failures.len(), Ordering::Relaxed);
        times.fetch_add(1, Ordering::Relaxed) + 1 == 105
    });
    for minute in 0..104 {
        circuit.bad(at_min(minute));
    }
    assert_eq!(circuit.state(), Closed);
    circuit.bad(at_min(104));
    assert_eq!(circuit.state(), Open);
    assert_eq!(longest.load(Ordering::Relaxed), 100);
    circuit.bad(at_min(134));
    assert_eq!(circuit.state(), Open, "a single failure, without asking");
    assert_eq!(asked.load(Ordering::Relaxed), 105);
}

/// There a predicate sees failures of any age; here the rule says how far back it looks.
#[test]
fn fedify_shows_a_callback_failures_of_any_age_we_do_not() {
    // R18
    let mut circuit = fedify_by(minutes(10), |failures| failures.len() >= 2);
    circuit.bad(at_min(0));
    circuit.bad(at_min(10));
    assert_eq!(circuit.state(), Closed);
    circuit.bad(at_min(19));
    assert_eq!(circuit.state(), Open);
}

/// A success deletes the record, and with it what the callback would have seen.
#[test]
fn fedify_forgets_what_a_callback_saw_with_any_success() {
    let mut circuit = fedify_by(minutes(10), |failures| failures.len() >= 2);
    circuit.bad(at_min(0));
    circuit.good(at_min(1));
    circuit.bad(at_min(2));
    assert_eq!(circuit.state(), Closed);
}

/// There a predicate that throws makes the recording fail.
#[test]
fn fedify_passes_on_what_a_callback_throws_we_report_it_and_stay() {
    // R18
    let mut circuit = fedify_by(minutes(10), |failures| match failures.len() {
        2 => panic!("a fault of the rule"),
        length => length == 3,
    });
    circuit.bad(at_min(0));
    circuit.bad(at_min(1));
    assert_eq!(circuit.state(), Closed);
    assert_eq!(circuit.pop_panicked(), Some(Panicked::TripRule));
    assert_eq!(circuit.pop_panicked(), None);
    circuit.bad(at_min(2));
    assert_eq!(circuit.state(), Open, "the failure was kept");
}

#[test]
fn fedify_validates_its_numeric_policy_and_durations() {
    assert_eq!(
        refused_field(fedify(0, minutes(10), minutes(30))),
        "trip.failures"
    );
    let fraction = "trip.failure_count = { failures = 1.5, within = \"10m\" }";
    assert!(
        read(fraction)
            .unwrap_err()
            .contains("`trip.failures` is 1.5")
    );
    assert_eq!(
        refused_field(fedify(3, Duration::ZERO, minutes(30))),
        "trip.within"
    );
    assert_eq!(
        refused_field(fedify(3, minutes(10), Duration::ZERO)),
        "break_duration"
    );
}

/// There a millisecond and a half is a millisecond, and half a one is refused.
#[test]
fn fedify_cuts_spans_to_milliseconds_we_cut_to_microseconds() {
    // R3, R33
    let config = fedify(3, Duration::from_nanos(1_500), minutes(30));
    let TripPolicy::FailureCount { within, .. } = *config.build().unwrap().trip() else {
        panic!("another policy");
    };
    assert_eq!(within, Duration::from_micros(1));
    assert_eq!(
        refused_field(fedify(3, Duration::from_nanos(500), minutes(30))),
        "trip.within"
    );
    let half_a_millisecond = fedify(3, Duration::from_micros(500), minutes(30));
    assert!(half_a_millisecond.build().is_ok());
}

/// There the ttl of a record is a setting, 7 d 30 min if the longest hold decides.
#[test]
fn fedify_sets_the_ttl_of_a_record_we_derive_it() {
    // R31: twice the longest of break, window and lease, and a minute, from the last instant that counts
    let margin = minutes(2 * 30 + 1);
    let mut circuit = fedify_of(2);
    assert_eq!(circuit.lifetime(at_min(0)), Lifetime::None);
    circuit.bad(at_min(0));
    assert_eq!(circuit.lifetime(at_min(0)), Lifetime::For(margin));
    circuit.bad(at_min(5));
    assert_eq!(
        circuit.lifetime(at_min(5)),
        Lifetime::For(minutes(30) + margin)
    );
    assert!(read("state_ttl = \"14d\"").is_err());
}

/// There a record of another shape counts as none; here reading it is an error, and its owner decides.
#[test]
fn fedify_takes_a_malformed_record_for_none_we_refuse_to_read_it() {
    // R2
    let mut circuit = fedify_of(2);
    circuit.bad(at_min(0));
    let written = serde_json::to_value(circuit.record()).unwrap();
    let good: Record = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(&good, circuit.record());
    for (field, value) in [
        ("phase", serde_json::json!({ "ajar": {} })),
        ("phase", serde_json::json!({ "open": {} })),
        ("phase", serde_json::json!({ "open": { "until": "soon" } })),
        (
            "phase",
            serde_json::json!({ "closed": { "instants": ["noon"] } }),
        ),
        ("epoch", serde_json::json!(-1)),
        ("newest", serde_json::json!(null)),
    ] {
        let mut bad = written.clone();
        bad[field] = value;
        assert!(
            serde_json::from_value::<Record>(bad.clone()).is_err(),
            "{bad}"
        );
    }
    let mut missing = written;
    missing.as_object_mut().unwrap().remove("phase");
    assert!(serde_json::from_value::<Record>(missing).is_err());
}

/// The note's two fields cannot tell open from half-open, so every late failure pushes its deadline.
#[test]
fn the_note_pushes_its_deadline_with_each_late_failure_we_do_not() {
    // R1, R12: its shortest trace, threshold 1, recovery 4
    let mut circuit = circuit(
        fedify(1, minutes(10), secs(4))
            .call_timeout(secs(1))
            .probe_timeout(secs(4)),
    );
    let (one, two) = (circuit.admit(at(0)), circuit.admit(at(0)));
    circuit.err(one, at(0));
    circuit.err(two, at(1));
    assert_eq!(circuit.deadline(), Some(at(4)));
    assert!(circuit.admit(at(4)).is_probe());
}

/// The note's records are gone five seconds after the deadline, and then a burst is sent whole.
#[test]
fn the_note_forgets_an_idle_open_circuit_we_keep_one_probe() {
    // R31
    let mut circuit = fedify_of(1);
    circuit.trip(at_min(0));
    let later = at_min(30) + secs(10);
    assert!(matches!(circuit.lifetime(later), Lifetime::For(rest) if rest > minutes(60)));
    let sent = (0..100)
        .filter(|_| circuit.try_acquire(later).is_ok())
        .count();
    assert_eq!(sent, 1);
}
