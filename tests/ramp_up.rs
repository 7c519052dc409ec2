//! The ramp-up after a recovery (R36): whom it admits, when it begins and what ends it.
//! Every (state, input) pair is in `circuit_table.rs`, random sequences in `circuit_model.rs`; what handles
//! make of it, in `shell_ramp_up.rs`.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::float_cmp,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test, and the numbers are small and exact"
)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_circuit_breaker::circuit::{Cause, Circuit, Lifetime, Panicked, Record, Settlement};
use actix_circuit_breaker::{
    BreakerConfig, BreakerConfigBuilder, CircuitState, Outcome, RampUp, RandomSource, Reason,
    Timestamp, TripPolicy, Window,
};

const SECOND: u64 = 1_000_000;

/// When the circuits of this file recover.
const RECOVERY: u64 = 100 * SECOND;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// So many microseconds after the recovery.
fn after(micros: u64) -> Timestamp {
    at(RECOVERY + micros)
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Answers what it is told to, and counts how often it is asked.
struct Told {
    number: Mutex<f64>,
    asked: AtomicUsize,
}

impl Told {
    fn new(number: f64) -> Arc<Self> {
        Arc::new(Self {
            number: Mutex::new(number),
            asked: AtomicUsize::new(0),
        })
    }

    fn set(&self, number: f64) {
        *self.number.lock().unwrap() = number;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl RandomSource for Told {
    fn uniform(&self) -> f64 {
        self.asked.fetch_add(1, Ordering::SeqCst);
        *self.number.lock().unwrap()
    }
}

/// Numbers that look random and are the same in every run (splitmix64).
struct Seeded(AtomicU64);

impl RandomSource for Seeded {
    fn uniform(&self) -> f64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut x = self.0.fetch_add(step, Ordering::SeqCst).wrapping_add(step);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        (x >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// One failure trips, a break lasts 10 s, one success closes.
fn plain() -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 1,
            within: None,
        })
        .break_duration(secs(10))
}

/// The same, and a recovery admits a quarter of the calls, all of them after 8 s.
fn ramped() -> BreakerConfigBuilder {
    plain().ramp_up(RampUp::new(secs(8), 0.25))
}

fn build(builder: BreakerConfigBuilder) -> BreakerConfig {
    builder.build().unwrap()
}

fn settle(circuit: &mut Circuit, outcome: Outcome, now: Timestamp) {
    let permit = circuit.try_acquire(now).expect("admitted");
    assert_eq!(circuit.settle(permit, outcome, now), Settlement::Counted);
}

/// A circuit that trips ten seconds before the recovery, and recovers.
fn recovered(config: BreakerConfig, random: Arc<dyn RandomSource>) -> Circuit {
    let mut circuit = Circuit::with_random(config, random, at(RECOVERY - 10 * SECOND));
    settle(&mut circuit, Outcome::Failure, at(RECOVERY - 10 * SECOND));
    settle(&mut circuit, Outcome::Success, at(RECOVERY));
    assert_eq!(circuit.record().state(), CircuitState::Closed);
    circuit
}

/// What a call meets, without a trace of it but in the counts: a clone is asked.
fn meets(circuit: &Circuit, now: Timestamp) -> Result<(), (Reason, Duration)> {
    match circuit.clone().try_acquire(now) {
        Ok(permit) => {
            assert!(!permit.is_probe());
            Ok(())
        }
        Err(refused) => Err((refused.reason(), refused.retry_after().unwrap())),
    }
}

fn refused(retry_after: Duration) -> Result<(), (Reason, Duration)> {
    Err((Reason::RampUp, retry_after))
}

fn share(circuit: &Circuit, now: Timestamp) -> Option<f64> {
    circuit.snapshot(now).ramp_share
}

// R36: off by default
#[test]
fn without_the_setting_a_recovery_admits_all_calls_and_draws_nothing() {
    let random = Told::new(1.0);
    let mut circuit = recovered(build(plain()), random.clone());
    for micros in [0, 1, 8 * SECOND] {
        assert_eq!(meets(&circuit, after(micros)), Ok(()));
        assert_eq!(share(&circuit, after(micros)), None);
        circuit.advance(after(micros));
    }
    assert_eq!(random.asked(), 0);
    assert_eq!(circuit.next_deadline(), None);
}

// R36, R4, R9
#[test]
fn the_share_grows_in_a_straight_line_and_is_all_at_the_very_end() {
    let random = Told::new(0.0);
    let circuit = recovered(build(ramped()), random.clone());
    for (micros, expected, retry_after) in [
        (0, 0.25, SECOND),
        (2 * SECOND, 0.4375, SECOND),
        (4 * SECOND, 0.625, SECOND),
        (7 * SECOND, 0.906_25, SECOND),
        (7 * SECOND + 1, 0.906_250_093_75, SECOND - 1),
        (8 * SECOND - 1, 0.999_999_906_25, 1),
    ] {
        let now = after(micros);
        assert_eq!(share(&circuit, now), Some(expected), "at {micros} µs");
        random.set(expected);
        assert_eq!(meets(&circuit, now), refused(self::micros(retry_after)));
        random.set(1.0);
        assert_eq!(meets(&circuit, now), refused(self::micros(retry_after)));
        random.set(expected.next_down());
        assert_eq!(meets(&circuit, now), Ok(()));
        random.set(0.0);
        assert_eq!(meets(&circuit, now), Ok(()));
    }
    let asked = random.asked();
    random.set(1.0);
    assert_eq!(meets(&circuit, after(8 * SECOND)), Ok(()));
    assert_eq!(share(&circuit, after(8 * SECOND)), None);
    assert_eq!(random.asked(), asked, "nothing is drawn once it is over");
}

// R36: a hundred thousand calls at each of a few instants
#[test]
fn the_admitted_share_is_the_one_that_is_shown() {
    let random = Arc::new(Seeded(AtomicU64::new(36)));
    let mut circuit = recovered(
        build(plain().ramp_up(RampUp::new(secs(30), 0.1))),
        Arc::new(|| 0.0),
    );
    let record = circuit.record().clone();
    circuit = Circuit::restore_with_random(circuit.config().clone(), record, random, at(RECOVERY));
    let calls = 100_000_u32;
    for second in [0, 1, 5, 10, 15, 22, 29] {
        let now = after(second * SECOND);
        let share = share(&circuit, now).unwrap();
        assert!((share - (0.1 + 0.03 * second as f64)).abs() < 1e-12);
        let admitted = (0..calls)
            .filter(|_| circuit.try_acquire(now).is_ok())
            .count();
        let (expected, calls) = (share * f64::from(calls), f64::from(calls));
        let deviation = (calls * share * (1.0 - share)).sqrt();
        assert!(
            (admitted as f64 - expected).abs() < 3.0 * deviation,
            "{admitted} of {calls}, {expected} expected"
        );
    }
    let now = after(30 * SECOND);
    assert!((0..calls).all(|_| circuit.try_acquire(now).is_ok()));
}

// R36, R9, R8
#[test]
fn a_refusal_leaves_no_trace_but_its_count_and_looking_draws_nothing() {
    let random = Told::new(0.9);
    let mut circuit = recovered(build(ramped()), random.clone());
    while circuit.pop_transition().is_some() {}
    let (record, now) = (circuit.record().clone(), after(SECOND));
    let calls = circuit.snapshot(now).calls;
    let refused = circuit.try_acquire(now).unwrap_err();
    assert_eq!(refused.reason(), Reason::RampUp);
    assert_eq!(refused.epoch(), record.epoch());
    assert_eq!(refused.to_string(), "the circuit is ramping up");
    assert_eq!(circuit.record(), &record);
    assert_eq!(circuit.pop_transition(), None);
    let asked = random.asked();
    let mut shown = circuit.snapshot(now).calls;
    assert_eq!(shown.rejected, calls.rejected + 1);
    shown.rejected = calls.rejected;
    assert_eq!(shown, calls);

    let peek = circuit.peek(now);
    assert_eq!((peek.state, peek.refusal), (CircuitState::Closed, None));
    assert_eq!((peek.probe_due, peek.retry_after), (false, None));
    assert_eq!(circuit.record(), &record);
    assert_eq!(random.asked(), asked);
}

// R36, R25: the state is closed all the while
#[test]
fn a_ramp_up_begins_and_ends_without_an_event_or_an_epoch() {
    let mut circuit = recovered(build(ramped()), Told::new(0.0));
    let mut causes = Vec::new();
    while let Some(transition) = circuit.pop_transition() {
        causes.push(transition.cause);
    }
    assert_eq!(causes, [Cause::Tripped, Cause::ProbeDue, Cause::Recovered]);
    let epoch = circuit.record().epoch();
    assert_eq!(circuit.next_deadline(), Some(after(8 * SECOND)));
    circuit.advance(after(8 * SECOND));
    assert_eq!(circuit.next_deadline(), None);
    assert_eq!(circuit.record().epoch(), epoch);
    assert_eq!(circuit.record().state(), CircuitState::Closed);
    assert_eq!(circuit.pop_transition(), None);
}

// R36: other ways into closed begin none
#[test]
fn only_a_recovery_begins_a_ramp_up() {
    let fresh = || Circuit::with_random(build(ramped()), Told::new(1.0), at(0));
    let now = after(0);
    let admits = |circuit: &Circuit, what: &str| {
        assert_eq!(circuit.peek(now).state, CircuitState::Closed, "{what}");
        assert_eq!(share(circuit, now), None, "{what}");
        assert_eq!(meets(circuit, now), Ok(()), "{what}");
    };
    admits(&fresh(), "made");

    let mut reset = fresh();
    settle(&mut reset, Outcome::Failure, at(0));
    reset.reset(at(1));
    admits(&reset, "reset while open");

    let mut reset = fresh();
    settle(&mut reset, Outcome::Failure, at(0));
    let probe = reset.try_acquire(at(10 * SECOND)).unwrap();
    reset.reset(at(10 * SECOND));
    assert_eq!(reset.settle(probe, Outcome::Success, now), Settlement::Late);
    admits(&reset, "reset while half-open");

    for open in [true, false] {
        let mut released = fresh();
        let done = if open {
            released.force_open(None, "an order", at(0))
        } else {
            released.force_closed(None, "an order", at(0))
        };
        done.unwrap();
        released.release(at(1));
        admits(&released, "released");
    }

    let mut expired = fresh();
    expired
        .force_closed(Some(secs(1)), "an order", at(0))
        .unwrap();
    expired.advance(now);
    admits(&expired, "a forced closed that ended");

    // The end of a forced open is a break that is over, and its probe's success a recovery.
    let mut expired = fresh();
    expired
        .force_open(Some(secs(1)), "an order", at(0))
        .unwrap();
    settle(&mut expired, Outcome::Success, now);
    assert_eq!(share(&expired, now), Some(0.25));
}

// R36, R17, R22
#[test]
fn an_admitted_call_is_as_any_other_and_its_failure_trips() {
    let random = Told::new(0.0);
    let mut circuit = recovered(build(ramped().jitter(0.5)), random.clone());
    let permit = circuit.try_acquire(after(SECOND)).unwrap();
    assert!(!permit.is_probe());
    assert_eq!(permit.epoch(), circuit.record().epoch());
    while circuit.pop_transition().is_some() {}
    random.set(1.0);
    circuit.settle(permit, Outcome::Failure, after(2 * SECOND));
    let tripped = circuit.pop_transition().unwrap();
    assert_eq!(tripped.cause, Cause::Tripped);
    assert_eq!(tripped.evidence.attempt, 0);
    assert_eq!(share(&circuit, after(2 * SECOND)), None);
    assert_eq!(circuit.next_deadline(), Some(after(17 * SECOND)));
    assert_eq!(
        meets(&circuit, after(3 * SECOND)),
        Err((Reason::Open, secs(14)))
    );
    // The next recovery begins the next one.
    settle(&mut circuit, Outcome::Success, after(17 * SECOND));
    assert_eq!(share(&circuit, after(17 * SECOND)), Some(0.25));
    assert_eq!(share(&circuit, after(19 * SECOND)), Some(0.4375));
}

// R36, R18: the window of a rate fills as ever
#[test]
fn a_rate_counts_what_a_ramp_up_admits() {
    let rate = TripPolicy::FailureRate {
        rate: 0.5,
        minimum_calls: 4,
        window: Window::Calls(4),
        slow_call: None,
    };
    let mut circuit = recovered(build(ramped()), Told::new(0.0));
    circuit.reconfigure(build(ramped().trip(rate)), after(0));
    for outcome in [Outcome::Success, Outcome::Failure, Outcome::Success] {
        settle(&mut circuit, outcome, after(1));
    }
    let shown = circuit.snapshot(after(1));
    assert_eq!((shown.failures, shown.samples), (1, 3));
    settle(&mut circuit, Outcome::Failure, after(2));
    assert_eq!(circuit.record().state(), CircuitState::Open);
}

// R36, R23, R24
#[test]
fn an_order_and_a_reset_end_a_ramp_up() {
    let ramping = recovered(build(ramped()), Told::new(1.0));
    let now = after(SECOND);
    assert_eq!(meets(&ramping, now), refused(secs(1)));

    let mut reset = ramping.clone();
    reset.reset(now);
    assert_eq!(meets(&reset, now), Ok(()));
    assert_eq!(share(&reset, now), None);

    let mut closed = ramping.clone();
    closed.force_closed(None, "an order", now).unwrap();
    assert_eq!(meets(&closed, now), Ok(()));
    closed.release(now);
    assert_eq!(meets(&closed, now), Ok(()));

    let mut open = ramping.clone();
    open.force_open(None, "an order", now).unwrap();
    assert_eq!(share(&open, now), None);
    open.release(now);
    assert_eq!(meets(&open, now), Ok(()));

    // Nothing to release, so nothing ends.
    let mut released = ramping;
    released.release(now);
    assert_eq!(meets(&released, now), refused(secs(1)));
}

// R36, R35
#[test]
fn other_settings_bind_a_ramp_up_from_its_old_start() {
    let random = Told::new(1.0);
    let ramping = recovered(build(ramped()), random.clone());
    let now = after(2 * SECOND);
    let with = |ramp_up: RampUp| {
        let mut circuit = ramping.clone();
        circuit.reconfigure(build(plain().ramp_up(ramp_up)), now);
        circuit
    };
    let slower = with(RampUp::new(secs(16), 0.5));
    assert_eq!(share(&slower, now), Some(0.5625));
    assert_eq!(slower.next_deadline(), Some(after(16 * SECOND)));
    let quicker = with(RampUp::new(secs(2), 0.5));
    assert_eq!(share(&quicker, now), None);
    assert_eq!(meets(&quicker, now), Ok(()));

    let mut ended = ramping.clone();
    ended.reconfigure(build(plain()), now);
    assert_eq!(meets(&ended, now), Ok(()));
    // What has ended stays so, also in another process, and settings alone begin none.
    let record = ended.record().clone();
    let restored = Circuit::restore_with_random(build(ramped()), record, random.clone(), now);
    assert_eq!(meets(&restored, now), Ok(()));
    ended.reconfigure(build(ramped()), now);
    assert_eq!(meets(&ended, now), Ok(()));
    assert_eq!(share(&ended, now), None);

    let mut over = ramping.clone();
    over.reconfigure(
        build(plain().ramp_up(RampUp::new(secs(60), 0.25))),
        after(8 * SECOND),
    );
    assert_eq!(share(&over, after(8 * SECOND)), None);

    let mut quicker = quicker;
    quicker.reconfigure(build(ramped()), now);
    assert_eq!(share(&quicker, now), None, "it was over");

    let mut added = recovered(build(plain()), random);
    added.reconfigure(build(ramped()), now);
    assert_eq!(meets(&added, now), Ok(()));

    let mut same = ramping;
    let record = same.record().clone();
    same.reconfigure(build(ramped()), now);
    assert_eq!(same.record(), &record);
}

// R36, R29
#[test]
fn a_restored_ramp_up_goes_on_and_never_begins_later_than_now() {
    let random = Told::new(1.0);
    let ramping = recovered(build(ramped()), random.clone());
    let text = serde_json::to_string(ramping.record()).unwrap();
    let restored = |builder: BreakerConfigBuilder, now| {
        let record: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(&record, ramping.record());
        Circuit::restore_with_random(build(builder), record, random.clone(), now)
    };
    let now = after(2 * SECOND);
    assert_eq!(share(&restored(ramped(), now), now), Some(0.4375));
    assert_eq!(meets(&restored(ramped(), now), now), refused(secs(1)));

    let before = at(RECOVERY - 50 * SECOND);
    let behind = restored(ramped(), before);
    assert_eq!(share(&behind, before), Some(0.25));
    assert_eq!(share(&behind, before + secs(4)), Some(0.625));
    assert_eq!(meets(&behind, before + secs(8)), Ok(()));

    let without = restored(plain(), now);
    assert_eq!(meets(&without, now), Ok(()));
    let without = without.record().clone();
    let again = Circuit::restore_with_random(build(ramped()), without, random.clone(), now);
    assert_eq!(meets(&again, now), Ok(()));

    let late = after(8 * SECOND);
    assert_eq!(meets(&restored(ramped(), late), late), Ok(()));
}

// R36, R29: records that were written before there was a ramp-up
#[test]
fn a_record_that_knows_no_ramp_up_reads_as_it_did() {
    let mut circuit = Circuit::new(build(plain()), at(7));
    circuit.advance(at(9));
    let text =
        r#"{"phase":{"closed":{"run":{"length":0,"newest":0}}},"epoch":7,"attempt":0,"newest":7}"#;
    assert_eq!(serde_json::to_string(circuit.record()).unwrap(), text);
    let read: Record = serde_json::from_str(text).unwrap();
    assert_eq!(&read, circuit.record());
    let circuit = Circuit::restore_with_random(build(ramped()), read, Told::new(1.0), at(9));
    assert_eq!(meets(&circuit, at(9)), Ok(()));
}

// R36, R31
#[test]
fn a_ramp_up_is_worth_keeping_until_it_is_over() {
    let ramping = recovered(build(ramped()), Told::new(0.0));
    assert_eq!(ramping.lifetime(after(0)), Lifetime::For(secs(8)));
    assert_eq!(
        ramping.lifetime(after(8 * SECOND - 1)),
        Lifetime::For(micros(1))
    );
    assert_eq!(ramping.lifetime(after(8 * SECOND)), Lifetime::None);

    // What the window remembers may be worth keeping for longer, or not.
    let count = |length| {
        let trip = TripPolicy::FailureCount {
            failures: 2,
            within: secs(1),
            reset_on_success: false,
        };
        build(plain().trip(trip).ramp_up(RampUp::new(length, 0.25)))
    };
    for length in [secs(8), secs(86_400)] {
        let mut circuit = ramping.clone();
        circuit.reconfigure(count(length), after(0));
        settle(&mut circuit, Outcome::Failure, after(0));
        let margin = secs(2 * 10 + 60);
        assert_eq!(
            circuit.lifetime(after(0)),
            Lifetime::For(length.max(margin))
        );
        let rest = length.checked_sub(secs(1)).unwrap();
        assert_eq!(circuit.lifetime(after(SECOND)), Lifetime::For(rest));
    }
}

// R36, R27
#[test]
fn a_random_source_that_panics_or_answers_no_number_admits() {
    let panicking = || -> f64 { panic!("no luck today") };
    let mut circuit = recovered(build(ramped()), Arc::new(panicking));
    while circuit.pop_panicked().is_some() {}
    let epoch = circuit.record().epoch();
    let permit = circuit.try_acquire(after(1)).expect("admitted");
    assert_eq!(permit.epoch(), epoch);
    assert_eq!(circuit.pop_panicked(), Some(Panicked::RandomSource));
    assert_eq!(circuit.pop_panicked(), None);

    for (number, admits) in [
        (f64::NAN, true),
        (f64::NEG_INFINITY, true),
        (-0.5, true),
        (1.5, false),
        (f64::INFINITY, false),
    ] {
        let circuit = recovered(build(ramped()), Told::new(number));
        assert_eq!(meets(&circuit, after(1)).is_ok(), admits, "{number}");
    }
}

// R36
#[test]
fn an_initial_share_of_one_refuses_nobody_and_draws_nothing() {
    let random = Told::new(1.0);
    let config = build(plain().ramp_up(RampUp::new(secs(8), 1.0)));
    let circuit = recovered(config, random.clone());
    for micros in [0, 1, 4 * SECOND, 8 * SECOND - 1] {
        assert_eq!(meets(&circuit, after(micros)), Ok(()));
    }
    assert_eq!(random.asked(), 0);
}

// R36, R3
#[test]
fn time_that_goes_back_and_the_end_of_the_line_do_no_harm() {
    let random = Told::new(1.0);
    let circuit = recovered(build(ramped()), random.clone());
    assert_eq!(share(&circuit, at(0)), Some(0.25));
    assert_eq!(meets(&circuit, at(0)), refused(secs(1)));

    // The end that a step has seen does not come back.
    let mut over = circuit.clone();
    over.advance(after(8 * SECOND));
    assert_eq!(meets(&over, after(SECOND)), Ok(()));

    let longest = micros((1 << 53) - 1);
    let mut endless = circuit;
    endless.reconfigure(build(plain().ramp_up(RampUp::new(longest, 0.25))), after(0));
    assert_eq!(meets(&endless, after(1)), refused(secs(1)));
    let last = at(Timestamp::MAX.as_micros() - 1);
    assert_eq!(meets(&endless, last), refused(micros(1)));
    assert_eq!(meets(&endless, Timestamp::MAX), Ok(()));
}
