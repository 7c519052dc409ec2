//! Shadow mode and the dial (R37): what a breaker refuses and does not reject, on every way to call.
//! The text of the setting is in `config.rs`, what is told of it in `metrics_calls.rs` and `admin.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "panics are part of what is tested, and a test may fail"
)]

mod harness;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::{Ask, ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    AskError, BreakerConfigBuilder, Breakers, CallError, Cause, Circuit, CircuitState, Clock,
    HealthStatus, Hold, ManualClock, Outcome, Permit, RampUp, RandomSource, Reason, StateChanged,
    TellError, Timestamp, Window,
};
use futures::FutureExt;
use futures::future::{join_all, ready};
use harness::*;
use tokio::sync::oneshot;

/// Answers what it is told to, and counts how often it was asked.
#[derive(Default)]
struct Drawn {
    number: AtomicU64,
    asked: AtomicU64,
}

impl Drawn {
    fn set(&self, number: f64) {
        self.number.store(number.to_bits(), Ordering::SeqCst);
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl RandomSource for Drawn {
    fn uniform(&self) -> f64 {
        self.asked.fetch_add(1, Ordering::SeqCst);
        f64::from_bits(self.number.load(Ordering::SeqCst))
    }
}

/// Numbers from a seed.
struct Seeded(Mutex<fastrand::Rng>);

impl Seeded {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(fastrand::Rng::with_seed(seed))))
    }
}

impl RandomSource for Seeded {
    fn uniform(&self) -> f64 {
        self.0.lock().unwrap().f64()
    }
}

fn shadow() -> BreakerConfigBuilder {
    consecutive(1).enforcement(0.0)
}

/// A breaker that rejects nothing and is open.
async fn open(config: BreakerConfigBuilder) -> World {
    let w = world(config);
    w.trip().await;
    w
}

/// The same of a source that is told what to say.
async fn open_by(config: BreakerConfigBuilder) -> (Arc<Drawn>, World) {
    pause();
    let drawn = Arc::new(Drawn::default());
    let w = world_of(Breakers::builder().random(drawn.clone()), config);
    w.trip().await;
    (drawn, w)
}

const KINDS: usize = 8;

/// Calls in each way there is; the reply, or why there is none.
async fn call(w: &World, kind: usize, job: Job) -> Result<Answer, AskError> {
    let called = |error: CallError<Oops>| match error {
        CallError::Rejected(rejected) => Err(AskError::Rejected(rejected)),
        CallError::Timeout(limit) => Err(AskError::Timeout(limit)),
        CallError::Failed(oops) => Ok(Err(oops)),
        other => panic!("{other}"),
    };
    let target = w.target.clone();
    let asked = async move { target.send(job).await.unwrap() };
    match kind {
        0 => w
            .breaker
            .call(asked)
            .await
            .map_or_else(called, |n| Ok(Ok(n))),
        1 => {
            let call = w.breaker.clone().into_call(asked);
            call.await.map_or_else(called, |n| Ok(Ok(n)))
        }
        2 => {
            let permit = w.breaker.acquire().await?;
            let answer = asked.await;
            settle(permit, answer).await;
            Ok(answer)
        }
        _ => unreachable!("asks"),
    }
}

async fn settle(permit: Permit, answer: Answer) {
    match answer {
        Ok(_) => permit.success().await,
        Err(_) => permit.failure().await,
    }
}

/// Asks or calls in each way there is.
async fn any(w: &World, kind: usize, job: Job) -> Result<Answer, AskError> {
    match kind {
        0..=2 => call(w, kind, job).await,
        3 => w.ask(job).await,
        4 => w.breaker.guard(w.target.clone()).send(job).await,
        5 => w.breaker.guard(w.target.clone()).send_or_hold(job).await,
        6 => {
            let outcome = |reply: &Answer| match reply {
                Ok(_) => Outcome::Success,
                Err(_) => Outcome::Failure,
            };
            w.breaker.ask_with(&w.target, job, outcome).await
        }
        _ => {
            let ask = Ask::new(w.target.clone().recipient(), job);
            w.breaker.addr().send(ask).await.unwrap()
        }
    }
}

/// What nothing may move that was let through against the breaker's word.
async fn untouched(w: &World) -> impl PartialEq + std::fmt::Debug + use<> {
    let snapshot = w.snapshot().await;
    (
        snapshot.state,
        snapshot.epoch,
        snapshot.until,
        snapshot.attempt,
        (snapshot.failures, snapshot.samples),
        snapshot.probes_in_flight,
        snapshot.calls,
    )
}

async fn dial(w: &World, enforcement: f64) {
    let config = w.snapshot().await.config.to_builder();
    let config = config.enforcement(enforcement).build().unwrap();
    w.breaker.reconfigure(config).await.unwrap().unwrap();
}

// Open.

// R37, R9
#[actix::test]
async fn what_an_open_breaker_refuses_goes_to_its_target_on_every_way() {
    let w = open(shadow()).await;
    let (before, seen) = (untouched(&w).await, w.seen.get());
    for kind in 0..KINDS {
        assert_eq!(any(&w, kind, Job::Good).await, Ok(Ok(1)), "{kind}");
        assert_eq!(any(&w, kind, Job::Bad).await, Ok(Err(BAD)), "{kind}");
    }
    w.breaker.tell(&w.target, Job::Good).await.unwrap();
    w.breaker.tell_or_hold(&w.target, Job::Bad).await.unwrap();
    quiet().await;
    assert_eq!(w.seen.get(), seen + 2 * KINDS + 2);
    assert_eq!(untouched(&w).await, before);
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.simulated_rejections, 2 * KINDS as u64 + 2);
    assert_eq!(snapshot.calls.rejected, 0);
    assert_eq!(w.state(), CircuitState::Open, "it is open all the same");
}

// R37, R10, R11: no sample, no late outcome, nothing ignored.
#[actix::test]
async fn however_such_a_call_ends_nothing_is_moved() {
    let w = open(shadow()).await;
    let before = untouched(&w).await;
    for kind in 0..KINDS {
        let hangs = any(&w, kind, Job::Hang);
        if kind != 2 {
            let limit = pass(SECOND + 2 * MS);
            let (done, ()) = futures::join!(hangs, limit);
            assert_eq!(done, Err(AskError::Timeout(SECOND)), "{kind}");
        }
        // A caller that goes away.
        let (release, job) = latch();
        let mut asked = Box::pin(any(&w, kind, job));
        assert!(poll_once(&mut asked).await.is_pending());
        quiet().await;
        drop(asked);
        drop(release);
        quiet().await;
    }
    // Permits of each ending, the last in a panic.
    w.breaker.acquire().await.unwrap().ignore().await;
    drop(w.breaker.acquire().await.unwrap());
    let permit = w.breaker.acquire().await.unwrap();
    let thread = std::thread::spawn(move || {
        let _permit = permit;
        panic!("trap with a permit");
    });
    thread.join().unwrap_err();
    // A guarded future that panics, at once and later.
    for later in [false, true] {
        let call = async {
            if later {
                tokio::task::yield_now().await;
            }
            panic!("trap in a call");
        };
        let call = w.breaker.call::<_, (), Oops>(call);
        let call = std::panic::AssertUnwindSafe(call).catch_unwind();
        call.await.unwrap_err();
    }
    quiet().await;
    assert_eq!(untouched(&w).await, before);
    // Over the end of the state they began in, too.
    let (release, job) = latch();
    let mut across = Box::pin(w.ask(job));
    assert!(poll_once(&mut across).await.is_pending());
    pass(BREAK).await;
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    drop(across);
    drop(release);
    let calls = w.snapshot().await.calls;
    assert_eq!((calls.late, calls.ignored), (0, 0));
}

/// Settles its permit where nobody can be woken any more.
struct AtTheEnd(RefCell<Option<Permit>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            drop(permit.failure());
        }
    }
}

thread_local! {
    static KEPT: AtTheEnd = const { AtTheEnd(RefCell::new(None)) };
}

// R37, R10: nor is anything that others leave on the way to the breaker.
#[actix::test]
async fn such_a_permit_may_be_settled_with_the_locals_of_its_thread() {
    let w = open(shadow()).await;
    let at_the_end = |permit| {
        let thread = std::thread::spawn(move || {
            KEPT.with(|kept| *kept.0.borrow_mut() = Some(permit));
            drop(tokio::runtime::Handle::try_current());
        });
        thread.join().unwrap();
    };
    let spared = w.breaker.acquire().await.unwrap();
    let before = untouched(&w).await;
    at_the_end(spared);
    assert_eq!(untouched(&w).await, before);
    // One that was admitted, behind another that was not.
    let spared = w.breaker.acquire().await.unwrap();
    w.breaker.reset().await.unwrap();
    let admitted = w.breaker.acquire().await.unwrap();
    at_the_end(spared);
    at_the_end(admitted);
    let calls = w.snapshot().await.calls;
    assert_eq!(calls.late, 0);
    assert_eq!(w.state(), CircuitState::Open, "the failure counts");
}

// R37: a mailbox that is closed or full.
#[actix::test]
async fn a_tell_that_cannot_be_delivered_moves_nothing_either() {
    let w = open(shadow()).await;
    let (gone, _) = target();
    assert_eq!(w.breaker.ask(&gone, Job::Stop).await, Err(AskError::Closed));
    let before = untouched(&w).await;
    for hold in [false, true] {
        let told = if hold {
            w.breaker.tell_or_hold(&gone, Job::Good).await
        } else {
            w.breaker.tell(&gone, Job::Good).await
        };
        assert!(matches!(told, Err(TellError::Closed(_))), "{told:?}");
    }
    assert_eq!(untouched(&w).await, before);
}

// R37, DESIGN "Speed": neither a message nor a wait.
#[actix::test]
async fn a_refused_call_goes_to_its_target_without_a_message() {
    let w = open(shadow()).await;
    for _ in 0..200 {
        let done = w.breaker.call(ready(Ok::<_, Oops>(1))).now_or_never();
        assert_eq!(done, Some(Ok(1)));
        let failed = w.breaker.call(ready(Err::<u32, _>(BAD))).now_or_never();
        assert_eq!(failed, Some(Err(CallError::Failed(BAD))));
        assert!(w.breaker.acquire().now_or_never().unwrap().is_ok());
    }
    assert_eq!(w.snapshot().await.simulated_rejections, 600);
}

/// Says that its time drives timers, which it does not: every timer is lost.
#[derive(Debug, Clone)]
struct Liar(ManualClock);

impl Clock for Liar {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn drives_timers(&self) -> bool {
        true
    }
}

// R37, R28: the net under a lost timer is there also where nothing is counted as rejected.
#[actix::test]
async fn the_end_of_a_break_is_found_without_a_timer_and_without_rejections() {
    for enforcement in [0.0, 0.5] {
        pause();
        let (clock, drawn) = (ManualClock::new(), Arc::new(Drawn::default()));
        let builder = Breakers::builder()
            .clock(Arc::new(Liar(clock.clone())))
            .random(drawn.clone());
        // All that is drawn is spared.
        drawn.set(0.9);
        let w = world_of(builder, consecutive(1).enforcement(enforcement));
        w.trip().await;
        clock.advance(BREAK);
        for _ in 0..64 {
            w.good().await;
        }
        assert_eq!(w.state(), CircuitState::Closed, "{enforcement}");
        let snapshot = w.snapshot().await;
        assert!(snapshot.simulated_rejections < 64, "{snapshot:?}");
    }
}

// R37, R28
#[actix::test]
async fn a_clock_that_drives_no_timers_does_as_well() {
    let (clock, w) = manual(shadow());
    w.trip().await;
    clock.advance(BREAK - Duration::from_micros(1));
    w.good().await;
    assert_eq!(w.state(), CircuitState::Open);
    clock.advance(Duration::from_micros(1));
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(w.snapshot().await.simulated_rejections, 1);
}

// Half-open.

// R37, R7, R8
#[actix::test]
async fn there_is_one_real_probe_and_the_others_go_as_well() {
    let w = open(shadow()).await;
    pass(BREAK).await;
    let (answer, job) = latch();
    let mut probe = Box::pin(w.ask(job));
    assert!(poll_once(&mut probe).await.is_pending());
    quiet().await;
    assert_eq!(w.state(), CircuitState::HalfOpen);
    let before = untouched(&w).await;
    for kind in 0..KINDS {
        assert_eq!(any(&w, kind, Job::Good).await, Ok(Ok(1)), "{kind}");
        assert_eq!(any(&w, kind, Job::Bad).await, Ok(Err(BAD)), "{kind}");
        // The breaker makes these asks itself.
        let (release, job) = latch();
        let mut asked = Box::pin(any(&w, kind, job));
        assert!(poll_once(&mut asked).await.is_pending());
        quiet().await;
        drop(asked);
        drop(release);
    }
    w.breaker.tell(&w.target, Job::Good).await.unwrap();
    w.breaker.tell_or_hold(&w.target, Job::Good).await.unwrap();
    drop(w.breaker.acquire().await.unwrap());
    quiet().await;
    assert_eq!(untouched(&w).await, before);
    assert_eq!(w.snapshot().await.probes_in_flight, 1);
    assert_eq!(
        w.snapshot().await.simulated_rejections,
        3 * KINDS as u64 + 3
    );
    // What the probe brings is what decides.
    answer.send(Err(BAD)).unwrap();
    assert_eq!(probe.await, Ok(Err(BAD)));
    assert_eq!(w.state(), CircuitState::Open);
    assert_eq!(w.snapshot().await.attempt, 1);
    pass(BREAK).await;
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R37: where there is no room for one more question, the answer is known.
#[actix::test]
async fn a_call_that_finds_no_room_to_ask_goes_to_its_target() {
    let w = open(shadow()).await;
    pass(BREAK).await;
    let (answer, job) = latch();
    // Sent when they are made.
    let ask = |job| w.breaker.ask(&w.target, job);
    let probe = ask(job);
    let asks: Vec<_> = (1..1_024).map(|_| ask(Job::Good)).collect();
    for _ in 0..10 {
        let done = w.breaker.call(ready(Ok::<_, Oops>(1))).now_or_never();
        assert_eq!(done, Some(Ok(1)));
    }
    answer.send(Ok(1)).unwrap();
    assert_eq!(probe.await, Ok(Ok(1)));
    for asked in join_all(asks).await {
        assert_eq!(asked, Ok(Ok(1)));
    }
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Closed);
    assert_eq!(snapshot.calls.rejected, 0);
    assert_eq!(snapshot.simulated_rejections, 10 + 1_023);
}

// Ramping up.

// R37, R36
#[actix::test]
async fn what_a_ramp_up_refuses_goes_to_its_target() {
    let ramp = RampUp::new(20 * SECOND, 0.25);
    let (drawn, w) = open_by(shadow().ramp_up(ramp)).await;
    pass(BREAK).await;
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    drawn.set(1.0);
    let before = untouched(&w).await;
    for kind in 0..KINDS {
        assert_eq!(any(&w, kind, Job::Good).await, Ok(Ok(1)), "{kind}");
        // It would trip if it were a sample.
        assert_eq!(any(&w, kind, Job::Bad).await, Ok(Err(BAD)), "{kind}");
    }
    assert_eq!(untouched(&w).await, before);
    assert_eq!(w.snapshot().await.simulated_rejections, 2 * KINDS as u64);
    // One that is admitted counts.
    drawn.set(0.0);
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// Orders.

// R37, R23: an order is no opinion.
#[actix::test]
async fn what_an_operator_forces_open_is_rejected_whatever_the_dial_says() {
    for enforcement in [0.0, 0.5, 1.0] {
        let (drawn, w) = open_by(consecutive(1).enforcement(enforcement)).await;
        drawn.set(1.0);
        let asked = drawn.asked();
        let order = ForceOpen::new("by hand").ttl(BREAK);
        w.breaker.force_open(order).await.unwrap().unwrap();
        for kind in 0..KINDS {
            let error = any(&w, kind, Job::Good).await.unwrap_err();
            let AskError::Rejected(rejected) = error else {
                panic!("{kind}: {error}")
            };
            assert_eq!(rejected.reason(), Reason::ForcedOpen, "{kind}");
        }
        let told = w.breaker.tell(&w.target, Job::Good).await;
        assert!(matches!(told, Err(TellError::Rejected { .. })), "{told:?}");
        let snapshot = w.snapshot().await;
        assert_eq!(snapshot.simulated_rejections, 0);
        assert_eq!(snapshot.calls.rejected, KINDS as u64 + 1);
        assert_eq!(drawn.asked(), asked, "nothing is drawn");
        // Its ttl is over: it is open and due, as ever.
        pass(BREAK).await;
        w.good().await;
        assert_eq!(w.state(), CircuitState::Closed);
    }
}

// The dial.

// R37: of those that are refused one by one, the share that is drawn is rejected.
#[actix::test]
async fn a_share_of_what_is_refused_is_rejected() {
    const CALLS: usize = 4_000;
    const SEED: u64 = 0x005e_ed37;
    for (enforcement, half_open) in [(0.25, false), (0.25, true), (0.9, false), (0.01, true)] {
        pause();
        let builder = Breakers::builder().random(Seeded::new(SEED));
        let w = world_of(builder, consecutive(1).enforcement(enforcement));
        w.trip().await;
        let mut probe = None;
        if half_open {
            pass(BREAK).await;
            let (answer, job) = latch();
            let mut asked = Box::pin(w.ask(job));
            assert!(poll_once(&mut asked).await.is_pending());
            quiet().await;
            assert_eq!(w.state(), CircuitState::HalfOpen);
            probe = Some((answer, asked));
        }
        let mut rng = fastrand::Rng::with_seed(SEED);
        let mut rejected = 0;
        for call in 0..CALLS {
            let drawn = rng.f64() < enforcement;
            let done = w.breaker.call(ready(Ok::<_, Oops>(1))).await;
            assert_eq!(done.is_err(), drawn, "call {call} of seed {SEED}");
            rejected += usize::from(drawn);
        }
        let share = rejected as f64 / CALLS as f64;
        assert!((share - enforcement).abs() < 0.02, "{share}");
        let snapshot = w.snapshot().await;
        assert_eq!(snapshot.calls.rejected, rejected as u64);
        assert_eq!(snapshot.simulated_rejections, (CALLS - rejected) as u64);
        drop(probe);
    }
}

// R37: every way takes one draw.
#[actix::test]
async fn every_way_to_call_draws_once() {
    let (drawn, w) = open_by(consecutive(1).enforcement(0.25)).await;
    for number in [0.0, 0.24, 0.25, 1.0] {
        drawn.set(number);
        for kind in 0..KINDS {
            let asked = drawn.asked();
            let done = any(&w, kind, Job::Good).await;
            assert_eq!(done.is_err(), number < 0.25, "{kind}: {number}");
            assert_eq!(drawn.asked(), asked + 1, "{kind}");
        }
    }
    // A rejection says what it always says.
    drawn.set(0.0);
    let rejected = w.rejected().await;
    assert_eq!(rejected.reason(), Reason::Open);
    assert_eq!(rejected.retry_after(), Some(BREAK));
    // Where it makes no difference nothing is drawn.
    let asked = drawn.asked();
    for enforcement in [0.0, 1.0] {
        dial(&w, enforcement).await;
        for kind in 0..KINDS {
            let rejected = any(&w, kind, Job::Good).await.is_err();
            assert_eq!(rejected, enforcement == 1.0);
        }
    }
    assert_eq!(drawn.asked(), asked);
}

// R37, R27
#[actix::test]
async fn a_source_that_panics_rejects() {
    pause();
    let source = Arc::new(|| -> f64 { panic!("trap in the source") });
    let w = world_of(
        Breakers::builder().random(source),
        consecutive(1).enforcement(0.01),
    );
    w.trip().await;
    for kind in 0..KINDS {
        let error = any(&w, kind, Job::Good).await.unwrap_err();
        assert!(error.is_rejected(), "{kind}: {error}");
    }
    assert_eq!(w.snapshot().await.restarts, 0);
}

// R37, R35: live, and the state stays.
#[actix::test]
async fn the_dial_is_turned_while_the_breaker_is_open_and_keeps_its_state() {
    let w = open(consecutive(1)).await;
    let (_recorder, told) = w.record().await;
    let before = w.snapshot().await;
    assert_eq!(w.rejected().await.reason(), Reason::Open);
    for (enforcement, passes) in [(0.0, true), (1.0, false), (0.0, true)] {
        dial(&w, enforcement).await;
        for kind in 0..KINDS {
            let done = any(&w, kind, Job::Bad).await;
            assert_eq!(done.is_ok(), passes, "{kind}: {enforcement}");
        }
        let now = w.snapshot().await;
        assert_eq!(now.config.enforcement(), enforcement);
        assert_eq!(
            (now.state, now.epoch, now.until, now.attempt, now.since),
            (
                before.state,
                before.epoch,
                before.until,
                before.attempt,
                before.since
            )
        );
    }
    // A closed window is kept, too.
    w.breaker.reset().await.unwrap();
    let config = consecutive(3).build().unwrap();
    w.breaker.reconfigure(config).await.unwrap().unwrap();
    w.bad().await;
    w.bad().await;
    dial(&w, 0.5).await;
    assert_eq!(w.snapshot().await.failures, 2);
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Open);
    quiet().await;
    assert_eq!(
        told.causes(),
        [Cause::Present, Cause::Reset, Cause::Tripped],
        "to turn it is no event"
    );
}

// Events.

// R37, R25
#[actix::test]
async fn events_say_whether_the_state_they_tell_of_rejects_nothing() {
    let w = world(shadow());
    let (_recorder, told) = w.record().await;
    w.trip().await;
    pass(BREAK).await;
    w.good().await;
    let order = ForceOpen::new("real");
    w.breaker.force_open(order).await.unwrap().unwrap();
    w.breaker.release().await.unwrap();
    let order = ForceClosed::new("real");
    w.breaker.force_closed(order).await.unwrap().unwrap();
    w.breaker.release().await.unwrap();
    dial(&w, 0.01).await;
    w.trip().await;
    dial(&w, 0.0).await;
    let (_late, later) = w.record().await;
    quiet().await;
    let simulated = |told: &Told| -> Vec<_> {
        let all = told.all().into_iter();
        all.map(|event| (event.to, event.simulated)).collect()
    };
    use CircuitState::{Closed, ForcedClosed, ForcedOpen, HalfOpen, Open};
    assert_eq!(
        simulated(&told),
        [
            (Closed, true),
            (Open, true),
            (HalfOpen, true),
            (Closed, true),
            (ForcedOpen, false),
            (Closed, true),
            (ForcedClosed, false),
            (Closed, true),
            (Open, false),
        ]
    );
    assert_eq!(simulated(&later), [(Open, true)], "as it is at present");
    let json = serde_json::to_value(told.all()).unwrap();
    assert_eq!(json[1]["simulated"], true);
    assert_eq!(json[8]["simulated"], false);
    let json = serde_json::to_value(w.snapshot().await).unwrap();
    assert_eq!(json["config"]["enforcement"], 0.0);
    assert_eq!(json["simulated_rejections"], 0);
}

// Messages that wait.

fn holding() -> BreakerConfigBuilder {
    consecutive(1).hold(Hold::new(10, 60 * SECOND, SECOND))
}

// R37
#[actix::test]
async fn a_message_that_would_have_to_wait_goes_at_once() {
    let w = open(holding().enforcement(0.0)).await;
    let guard = w.breaker.guard(w.target.clone());
    let before = untouched(&w).await;
    assert_eq!(guard.send_or_hold(Job::Good).await, Ok(Ok(1)));
    assert_eq!(guard.send_or_hold(Job::Bad).await, Ok(Err(BAD)));
    w.breaker.tell_or_hold(&w.target, Job::Bad).await.unwrap();
    let (gone, _) = target();
    gone.do_send(Job::Stop);
    quiet().await;
    let told = w.breaker.tell_or_hold(&gone, Job::Good).await;
    assert!(matches!(told, Err(TellError::Closed(_))), "{told:?}");
    assert_eq!(untouched(&w).await, before);
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.held, snapshot.held_counts.held), (0, 0));
    assert_eq!(snapshot.simulated_rejections, 4);
    // The first after the break is the probe.
    pass(BREAK).await;
    assert_eq!(guard.send_or_hold(Job::Good).await, Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Closed);
    // An order has them wait.
    let order = ForceOpen::new("by hand");
    w.breaker.force_open(order).await.unwrap().unwrap();
    let held = guard.send_or_hold(Job::Good);
    assert_eq!(w.snapshot().await.held, 1);
    w.breaker.release().await.unwrap();
    assert_eq!(held.await, Ok(Ok(1)));
}

// R37: between the ends a message goes at once or waits, as it is drawn.
#[actix::test]
async fn a_message_waits_if_it_is_drawn_to() {
    let (drawn, w) = open_by(holding().enforcement(0.5)).await;
    let guard = w.breaker.guard(w.target.clone());
    drawn.set(0.49);
    let held = guard.send_or_hold(Job::Good);
    assert_eq!(w.snapshot().await.held, 1);
    // It overtakes the one that waits.
    drawn.set(0.5);
    assert_eq!(guard.send_or_hold(Job::Good).await, Ok(Ok(1)));
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.held, snapshot.simulated_rejections), (1, 1));
    pass(BREAK).await;
    assert_eq!(held.await, Ok(Ok(1)), "as the probe");
    assert_eq!(w.state(), CircuitState::Closed);
}

// R37, R35
#[actix::test]
async fn those_who_wait_leave_in_turn_when_the_dial_becomes_zero() {
    let w = open(holding()).await;
    let guard = w.breaker.guard(w.target.clone());
    let before = w.seen.get();
    let mut held: Vec<_> = (0..3).map(|_| guard.send_or_hold(Job::Bad)).collect();
    assert_eq!(w.snapshot().await.held, 3);
    pass(SECOND).await;
    assert_eq!(w.seen.get(), before, "they wait");
    let calls = w.snapshot().await.calls;
    dial(&w, 0.0).await;
    pass(SECOND - MS).await;
    assert_eq!(w.seen.get(), before);
    pass(2 * MS).await;
    assert_eq!(w.seen.get(), before + 1, "one at each interval");
    // The dial is turned back: the others wait on.
    dial(&w, 1.0).await;
    pass(2 * SECOND).await;
    assert_eq!(w.seen.get(), before + 1);
    assert_eq!(w.snapshot().await.held, 2);
    dial(&w, 0.0).await;
    pass(2 * SECOND + 2 * MS).await;
    assert_eq!(w.seen.get(), before + 3);
    for held in held.drain(..) {
        assert_eq!(held.await, Ok(Err(BAD)));
    }
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Open);
    assert_eq!(snapshot.calls, calls, "what became of them moves nothing");
    assert_eq!((snapshot.held, snapshot.held_counts.released), (0, 3));
    assert_eq!(snapshot.simulated_rejections, 0, "they did wait");
}

// Families.

// R37
#[actix::test]
async fn the_keys_of_a_family_reject_nothing_either() {
    pause();
    let breakers = Breakers::start();
    let family = breakers.family("hosts", shadow().build().unwrap());
    let family = family.unwrap();
    let (target, seen) = target();
    let good = || async { Ok::<_, Oops>(1) };
    let bad = || async { Err::<u32, _>(BAD) };
    let failed = Err(CallError::Failed(BAD));
    assert_eq!(family.call("a", bad()).await, failed);
    assert_eq!(family.breaker("a").state(), CircuitState::Open);
    for _ in 0..3 {
        assert_eq!(family.call("a", good()).await, Ok(1));
        assert_eq!(family.call("a", bad()).await, failed);
        let slow = async {
            tokio::task::yield_now().await;
            bad().await
        };
        assert_eq!(family.call("a", slow).await, failed);
        let breaker = family.breaker("a");
        assert_eq!(breaker.ask(&target, Job::Bad).await, Ok(Err(BAD)));
        breaker.acquire().await.unwrap().failure().await;
    }
    assert_eq!(seen.get(), 3);
    let held = family.breaker("a");
    let snapshot = held.snapshot().await.unwrap();
    assert_eq!(snapshot.state, CircuitState::Open);
    assert_eq!(snapshot.calls.rejected + snapshot.calls.late, 0);
    // R37, R35: the family's dial reaches its keys, those at rest too.
    assert_eq!(family.call("b", bad()).await, failed);
    drop(held);
    for _ in 0..3 {
        quiet().await;
        assert_eq!(family.keys(), ["a", "b"]);
    }
    let config = consecutive(1).build().unwrap();
    family.reconfigure(config);
    quiet().await;
    for key in ["a", "b"] {
        assert!(family.call(key, good()).await.unwrap_err().is_rejected());
    }
    family.reconfigure(shadow().build().unwrap());
    quiet().await;
    for key in ["a", "b"] {
        assert_eq!(family.call(key, good()).await, Ok(1));
    }
    pass(BREAK).await;
    assert_eq!(family.call("a", good()).await, Ok(1));
    assert_eq!(family.breaker("a").state(), CircuitState::Closed);
}

// Health.

// R37
#[actix::test]
async fn a_breaker_that_rejects_nothing_is_listed_and_does_not_make_a_process_unready() {
    let w = open(shadow()).await;
    let listed = |enforcement| {
        let w = &w;
        async move {
            dial(w, enforcement).await;
            let health = w.breakers.health().await;
            let breaker = health.breaker("b").unwrap().clone();
            assert_eq!(breaker.state, CircuitState::Open);
            assert_eq!(breaker.status(), health.status);
            (health.status, breaker.simulated, breaker.partial)
        }
    };
    assert_eq!(listed(0.0).await, (HealthStatus::Up, true, false));
    assert_eq!(listed(0.01).await, (HealthStatus::Degraded, false, true));
    assert_eq!(listed(0.99).await, (HealthStatus::Degraded, false, true));
    assert_eq!(listed(1.0).await, (HealthStatus::Down, false, false));
    dial(&w, 0.0).await;
    let order = ForceOpen::new("by hand");
    w.breaker.force_open(order).await.unwrap().unwrap();
    let health = w.breakers.health().await;
    assert_eq!(health.status, HealthStatus::Down, "an order is enforced");
    assert!(!health.breaker("b").unwrap().simulated);
}

// R37
#[actix::test]
async fn so_is_a_family_whose_keys_reject_nothing() {
    pause();
    let breakers = Breakers::start();
    let family = breakers.family("hosts", shadow().build().unwrap());
    let family = family.unwrap();
    let fail = |key: &'static str| {
        let family = family.clone();
        async move {
            family
                .call(key, ready(Err::<(), _>(BAD)))
                .await
                .unwrap_err()
        }
    };
    fail("awake").await;
    fail("at rest").await;
    let awake = family.breaker("awake");
    let status = |open, simulated, status| {
        let (breakers, keys) = (breakers.clone(), family.clone());
        async move {
            // Puts those to rest that nobody holds, and has not just been looked for.
            for _ in 0..3 {
                quiet().await;
                assert_eq!(keys.len(), 2);
            }
            let health = breakers.health().await;
            assert_eq!(health.status, status);
            let family = &health.families[0];
            assert_eq!((family.open, family.simulated), (open, simulated));
            assert_eq!(
                family.listed.iter().filter(|key| key.simulated).count(),
                simulated
            );
        }
    };
    status(2, 2, HealthStatus::Up).await;
    // One that has settings of its own.
    let own = consecutive(1).build().unwrap();
    awake.reconfigure(own).await.unwrap().unwrap();
    status(2, 1, HealthStatus::Degraded).await;
    drop(awake);
    status(2, 1, HealthStatus::Degraded).await;
    family.reconfigure(consecutive(1).build().unwrap());
    status(2, 0, HealthStatus::Degraded).await;
}

// The circuit.

// R37: the dial is the breaker's; a circuit by itself refuses.
#[test]
fn a_circuit_by_itself_does_not_look_at_the_dial() {
    let mut circuit = Circuit::new(shadow().build().unwrap(), Timestamp::ZERO);
    let permit = circuit.try_acquire(Timestamp::ZERO).unwrap();
    circuit.settle(permit, Outcome::Failure, Timestamp::ZERO);
    circuit.try_acquire(Timestamp::ZERO).unwrap_err();
    assert_eq!(circuit.snapshot(Timestamp::ZERO).calls.rejected, 1);
}

// Beside a breaker that enforces all.

/// An ask whose target answers when it is told to.
struct Asked {
    answer: oneshot::Sender<Answer>,
    reply: tokio::task::JoinHandle<Result<Answer, AskError>>,
}

impl Asked {
    fn of(w: &World) -> Self {
        let (answer, job) = latch();
        let reply = actix::spawn(w.breaker.ask(&w.target, job));
        Self { answer, reply }
    }

    async fn end(self, answer: Answer) {
        self.answer.send(answer).unwrap();
        assert_eq!(self.reply.await.unwrap(), Ok(answer));
    }
}

/// Two breakers of the same settings but for the dial, on one clock.
struct Pair {
    clock: ManualClock,
    /// The one with the dial, and the one that enforces all.
    worlds: [World; 2],
    told: [Told; 2],
    _recorders: [Addr<Recorder>; 2],
    /// Asks that both admitted.
    under_way: Vec<[Asked; 2]>,
    /// Asks that only the first let through.
    spared: Vec<Asked>,
    /// Whether the first rejects nothing.
    is_shadow: bool,
    rng: fastrand::Rng,
}

impl Pair {
    async fn new(config: &BreakerConfigBuilder, enforcement: f64, seed: u64) -> Self {
        pause();
        let clock = ManualClock::new();
        let world = |enforcement| {
            let builder = Breakers::builder()
                .clock(Arc::new(clock.clone()))
                .random(Seeded::new(seed));
            world_of(builder, config.clone().enforcement(enforcement))
        };
        let worlds = [world(enforcement), world(1.0)];
        let (first, first_told) = worlds[0].record().await;
        let (second, second_told) = worlds[1].record().await;
        Self {
            clock,
            worlds,
            told: [first_told, second_told],
            _recorders: [first, second],
            under_way: Vec::new(),
            spared: Vec::new(),
            is_shadow: enforcement == 0.0,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn answer(&mut self) -> Answer {
        if self.rng.bool() { Ok(1) } else { Err(BAD) }
    }

    async fn step(&mut self) {
        match self.rng.u8(0..10) {
            0..=3 => self.call().await,
            4 | 5 => self.begin().await,
            6 | 7 => self.end().await,
            8 if self.rng.u8(0..6) == 0 => {
                for w in &self.worlds {
                    w.breaker.reset().await.unwrap();
                }
            }
            _ => {
                let micros = self.rng.u64(0..6_000_000);
                self.clock.advance(Duration::from_micros(micros));
            }
        }
        let [first, second] = &self.worlds;
        assert_eq!(first.state(), second.state());
    }

    /// Whether an ask of the first may have ended so, where that of the second was rejected.
    fn check_rejected(&self, first: &Result<Answer, AskError>) {
        assert!(!self.is_shadow || first.is_ok(), "{first:?}");
    }

    async fn call(&mut self) {
        let kind = self.rng.usize(0..KINDS);
        let answer = self.answer();
        let job = || match answer {
            Ok(_) => Job::Good,
            Err(_) => Job::Bad,
        };
        let first = any(&self.worlds[0], kind, job()).await;
        match any(&self.worlds[1], kind, job()).await {
            Err(AskError::Rejected(_)) => self.check_rejected(&first),
            second => assert_eq!(first, second),
        }
    }

    async fn begin(&mut self) {
        let [first, second] = &self.worlds;
        let (first, second) = (Asked::of(first), Asked::of(second));
        quiet().await;
        match (first.reply.is_finished(), second.reply.is_finished()) {
            (false, false) => self.under_way.push([first, second]),
            (false, true) => self.spared.push(first),
            (true, true) => self.check_rejected(&first.reply.await.unwrap()),
            (true, false) => panic!("rejected by the wrong one"),
        }
    }

    async fn end(&mut self) {
        let answer = self.answer();
        let (goes_away, spared) = (self.rng.bool(), self.rng.bool());
        if spared && !self.spared.is_empty() {
            let at = self.rng.usize(0..self.spared.len());
            let asked = self.spared.swap_remove(at);
            if goes_away {
                asked.reply.abort();
            } else {
                asked.end(answer).await;
            }
        } else if !self.under_way.is_empty() {
            let at = self.rng.usize(0..self.under_way.len());
            for asked in self.under_way.swap_remove(at) {
                if goes_away {
                    asked.reply.abort();
                    drop(asked.answer);
                } else {
                    asked.end(answer).await;
                }
            }
        }
        quiet().await;
    }

    /// What both have told and counted is the same, but for the rejections.
    async fn check(self) -> (usize, u64) {
        quiet().await;
        let [first, second] = self.told.map(|told| {
            let all = told.all().into_iter();
            all.map(|event| StateChanged::clone(&event))
                .collect::<Vec<_>>()
        });
        let mut expected = second;
        for event in &mut expected {
            event.simulated = self.is_shadow;
        }
        assert_eq!(first, expected);
        let [first, second] = [
            self.worlds[0].snapshot().await,
            self.worlds[1].snapshot().await,
        ];
        let (mut calls, refused) = (second.calls, second.calls.rejected);
        calls.rejected = refused - first.simulated_rejections;
        assert_eq!(first.calls, calls);
        if self.is_shadow {
            assert_eq!(first.calls.rejected, 0);
        }
        assert_eq!(
            (first.state, first.epoch, first.until, first.attempt),
            (second.state, second.epoch, second.until, second.attempt)
        );
        assert_eq!(
            (first.failures, first.samples, first.probes_in_flight),
            (second.failures, second.samples, second.probes_in_flight)
        );
        (expected.len(), first.simulated_rejections)
    }
}

/// Settings of every kind; those that draw only where the dial does not.
fn some(rng: &mut fastrand::Rng, draws: bool) -> BreakerConfigBuilder {
    let mut config = match rng.u8(0..4) {
        0 => consecutive(2),
        1 => count(3, 20 * SECOND),
        2 => rate(0.5, 3, Window::Calls(6)),
        _ => rate(0.5, 3, Window::Time(30 * SECOND)),
    };
    config = config
        .max_probes(rng.u32(1..3))
        .successes_to_close(rng.u32(1..3));
    if draws && rng.bool() {
        config = config.jitter(0.3);
    }
    if draws && rng.bool() {
        config = config.ramp_up(RampUp::new(15 * SECOND, 0.3));
    }
    config
}

async fn beside_one_that_enforces_all(enforcement: f64) {
    let (mut events, mut spared) = (0, 0);
    for seed in 0..150 {
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let config = some(&mut rng, enforcement == 0.0);
        let mut pair = Pair::new(&config, enforcement, seed).await;
        for _ in 0..120 {
            pair.step().await;
        }
        let (told, simulated) = pair.check().await;
        events += told;
        spared += simulated;
    }
    assert!(events > 1_000 && spared > 1_500, "{events}, {spared}");
}

// R37: in shadow mode no ask is rejected, and the circuit does what it would do if callers obeyed it.
#[actix::test]
async fn shadow_mode_moves_as_a_breaker_that_is_obeyed() {
    beside_one_that_enforces_all(0.0).await;
}

// R37
#[actix::test]
async fn so_does_one_that_rejects_a_share() {
    beside_one_that_enforces_all(0.4).await;
}
