//! The ramp-up after a recovery (R36) as handles meet it: every way to call, the gate, timers and arbiters.
//! What the circuit decides is in `ramp_up.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::items_after_statements,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod harness;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::{Ask, ForceClosed};
use actix_circuit_breaker::{
    AskError, Breaker, BreakerConfigBuilder, Breakers, CallError, Cause, CircuitState, CreateError,
    ManualClock, RampUp, RandomSource, Reason, Rejected, SlowCall, TripPolicy, Window,
};
use futures::FutureExt;
use harness::*;

/// How long a ramp-up takes here; a quarter of the calls is admitted at once.
const RAMP: Duration = Duration::from_secs(20);

/// Answers what it is told to.
struct Drawn(AtomicU64);

impl Drawn {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(0)))
    }

    /// Has the calls that come refused.
    fn refuse(&self) {
        self.0.store(1.0_f64.to_bits(), Ordering::SeqCst);
    }

    fn admit(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

impl RandomSource for Drawn {
    fn uniform(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::SeqCst))
    }
}

fn ramped(config: BreakerConfigBuilder) -> BreakerConfigBuilder {
    config.ramp_up(RampUp::new(RAMP, 0.25))
}

/// A breaker that has just recovered, on paused time.
async fn recovered(config: BreakerConfigBuilder) -> (Arc<Drawn>, World) {
    pause();
    let drawn = Drawn::new();
    let w = world_of(Breakers::builder().random(drawn.clone()), ramped(config));
    w.trip().await;
    pass(BREAK + MS).await;
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    (drawn, w)
}

/// The same on a clock of the test's own.
async fn recovered_by_hand(config: BreakerConfigBuilder) -> (Arc<Drawn>, ManualClock, World) {
    pause();
    let (drawn, clock) = (Drawn::new(), ManualClock::new());
    let builder = Breakers::builder()
        .random(drawn.clone())
        .clock(Arc::new(clock.clone()));
    let w = world_of(builder, ramped(config));
    w.trip().await;
    clock.advance(BREAK);
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    (drawn, clock, w)
}

/// Whether a call goes on at once, without a message.
fn passes(breaker: &Breaker) -> bool {
    let call = breaker.call(async { Ok::<_, Oops>(()) });
    match call.now_or_never() {
        Some(done) => done == Ok(()),
        None => false,
    }
}

/// Calls in each way there is; the reply, or why there is none.
async fn call(w: &World, kind: usize) -> Result<u32, Rejected> {
    let rejected = |error: AskError| match error {
        AskError::Rejected(rejected) => rejected,
        other => panic!("{kind}: {other}"),
    };
    let called = |error: CallError<Oops>| match error {
        CallError::Rejected(rejected) => rejected,
        other => panic!("{kind}: {other}"),
    };
    match kind {
        0 => w.ask(Job::Good).await.map(Result::unwrap).map_err(rejected),
        1 => {
            let guard = w.breaker.guard(w.target.clone());
            let reply = guard.send(Job::Good).await;
            reply.map(Result::unwrap).map_err(rejected)
        }
        2 => {
            let call = w
                .breaker
                .call(async { w.target.send(Job::Good).await.unwrap() });
            call.await.map_err(called)
        }
        3 => {
            let target = w.target.clone();
            let call = async move { target.send(Job::Good).await.unwrap() };
            w.breaker.clone().into_call(call).await.map_err(called)
        }
        4 => {
            let permit = w.breaker.acquire().await.map_err(rejected)?;
            assert!(!permit.is_probe());
            let reply = w.target.send(Job::Good).await.unwrap().unwrap();
            permit.success().await;
            Ok(reply)
        }
        _ => {
            let ask = Ask::new(w.target.clone().recipient(), Job::Good);
            let reply = w.breaker.addr().send(ask).await.unwrap();
            reply.map(Result::unwrap).map_err(rejected)
        }
    }
}

const KINDS: usize = 6;

// R36, R9
#[actix::test]
async fn every_way_to_call_is_refused_or_admitted_while_ramping_up() {
    let (drawn, w) = recovered(consecutive(1)).await;
    let before = w.seen.get();
    drawn.refuse();
    for kind in 0..KINDS {
        let rejected = call(&w, kind).await.unwrap_err();
        assert_eq!(rejected.reason(), Reason::RampUp, "{kind}");
        assert_eq!(rejected.retry_after(), Some(SECOND), "{kind}");
        assert_eq!(
            rejected.to_string(),
            "breaker `b` is ramping up, retry after 1s"
        );
        let json = serde_json::to_value(&rejected).unwrap();
        assert_eq!(json["reason"], "ramp_up");
    }
    assert_eq!(w.seen.get(), before, "the target saw none of them");
    drawn.admit();
    for kind in 0..KINDS {
        assert_eq!(call(&w, kind).await.unwrap(), 1, "{kind}");
    }
    assert_eq!(w.seen.get(), before + KINDS);
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.calls.rejected, 6);
    assert_eq!(snapshot.ramp_share, Some(0.25));
    assert_eq!(snapshot.state, CircuitState::Closed);
    assert_eq!(w.state(), CircuitState::Closed);
}

// R36, R28: the gate learns of the end by the timer, without a call.
#[actix::test]
async fn calls_pass_without_a_message_once_the_ramp_up_is_over() {
    let (drawn, w) = recovered(consecutive(1)).await;
    drawn.refuse();
    assert!(!passes(&w.breaker));
    pass(RAMP - 2 * MS).await;
    assert!(!passes(&w.breaker));
    pass(4 * MS).await;
    assert!(passes(&w.breaker));
    assert_eq!(w.snapshot().await.ramp_share, None);
    assert_eq!(w.snapshot().await.calls.rejected, 0);
}

// R36, R28: a clock without timers. The next question finds it over and makes it known.
#[actix::test]
async fn a_ramp_up_on_a_manual_clock_ends_with_the_next_question() {
    for kind in 0..KINDS {
        let (drawn, clock, w) = recovered_by_hand(consecutive(1)).await;
        drawn.refuse();
        clock.advance(RAMP - Duration::from_micros(1));
        let rejected = call(&w, kind).await.unwrap_err();
        assert_eq!(rejected.retry_after(), Some(Duration::from_micros(1)));
        clock.advance(Duration::from_micros(1));
        assert!(!passes(&w.breaker), "nobody has looked yet");
        call(&w, kind).await.unwrap();
        assert!(passes(&w.breaker));
    }
}

// R36, R9, R28: who was told to come again at the end is let in, though the timer may not have run.
#[actix::test]
async fn who_comes_again_at_the_end_of_a_ramp_up_is_admitted() {
    for late in (0..300_u32).step_by(7) {
        let (drawn, w) = recovered(consecutive(1)).await;
        drawn.refuse();
        let odd = Duration::from_micros(u64::from(late) * 1_000 + 137);
        pass(RAMP - 301 * MS + odd).await;
        let after = w.rejected().await.retry_after().unwrap();
        assert!(after < SECOND);
        pass(after).await;
        w.good().await;
    }
}

// R36: off by default
#[actix::test]
async fn without_a_ramp_up_calls_pass_right_after_the_recovery() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    w.good().await;
    assert!(passes(&w.breaker));
}

// R36, R25: no event of its own, and watchers see it closed.
#[actix::test]
async fn nobody_is_told_of_a_ramp_up() {
    pause();
    let drawn = Drawn::new();
    let builder = Breakers::builder().random(drawn.clone());
    let w = world_of(builder, ramped(consecutive(1)));
    let (_recorder, told) = w.record().await;
    let mut watch = w.breaker.watch();
    w.trip().await;
    pass(BREAK + MS).await;
    w.good().await;
    assert_eq!(*watch.borrow_and_update(), CircuitState::Closed);
    drawn.refuse();
    w.rejected().await;
    pass(RAMP + MS).await;
    assert!(!watch.has_changed().unwrap());
    use Cause::{Present, ProbeDue, Recovered, Tripped};
    assert_eq!(told.causes(), [Present, Tripped, ProbeDue, Recovered]);
    assert_eq!(told.last().evidence.until, None);
}

// R36, R17, R21: failures trip, and the caller that gets the last one is rejected next.
#[actix::test]
async fn failures_of_a_ramp_up_trip_as_ever() {
    let (drawn, w) = recovered(consecutive(3)).await;
    w.bad().await;
    let permit = w.breaker.acquire().await.unwrap();
    permit.failure().await;
    assert_eq!(w.snapshot().await.failures, 2);
    let failed = w.breaker.call(async { Err::<(), _>(BAD) }).await;
    assert_eq!(failed, Err(CallError::Failed(BAD)));
    drawn.refuse();
    assert_eq!(w.state(), CircuitState::Open);
    assert_eq!(w.rejected().await.reason(), Reason::Open);
    // The end of the ramp-up that was is of no matter.
    pass(BREAK - 2 * MS).await;
    assert_eq!(w.rejected().await.reason(), Reason::Open);
    pass(3 * MS).await;
    w.good().await;
    assert_eq!(w.rejected().await.reason(), Reason::RampUp);
}

// R36, R17: a success ends a run of failures.
#[actix::test]
async fn successes_of_a_ramp_up_are_told_where_they_change_the_record() {
    let (_drawn, w) = recovered(consecutive(3)).await;
    for kind in 0..KINDS {
        w.bad().await;
        w.bad().await;
        call(&w, kind).await.unwrap();
        quiet().await;
        assert_eq!(w.snapshot().await.failures, 0, "{kind}");
    }
}

// R36, R17: a rate counts every call that a ramp-up admits, by stripe or by message.
#[actix::test]
async fn a_rate_counts_every_admitted_call_of_a_ramp_up() {
    let calls = 6 * 50_u64;
    for window in [Window::Calls(400), Window::Time(1_000 * SECOND)] {
        let (_drawn, w) = recovered(rate(0.5, 1, window)).await;
        for _ in 0..50 {
            for kind in 0..KINDS {
                call(&w, kind).await.unwrap();
            }
        }
        let snapshot = w.snapshot().await;
        assert_eq!((snapshot.samples, snapshot.failures), (calls, 0));
        // And goes on counting in the same epoch when it is over.
        pass(RAMP + MS).await;
        for kind in 0..KINDS {
            call(&w, kind).await.unwrap();
        }
        let snapshot = w.snapshot().await;
        assert_eq!(snapshot.samples, calls + 6);
        assert_eq!((snapshot.calls.late, snapshot.ramp_share), (0, None));

        let (_drawn, _clock, w) = recovered_by_hand(rate(0.5, 1, window)).await;
        for kind in 0..KINDS {
            call(&w, kind).await.unwrap();
        }
        assert_eq!(w.snapshot().await.samples, 6);
    }
}

// R36, R17: the success that fills the minimum trips.
#[actix::test]
async fn a_success_of_a_ramp_up_trips_where_it_fills_the_minimum() {
    for kind in 0..KINDS {
        let (_drawn, w) = recovered(rate(0.5, 2, Window::Calls(4))).await;
        w.bad().await;
        assert_eq!(w.state(), CircuitState::Closed, "{kind}");
        call(&w, kind).await.unwrap();
        quiet().await;
        assert_eq!(w.state(), CircuitState::Open, "{kind}");
    }
}

// R36, R18: a slow call is one, and its time runs from its own admission.
#[actix::test]
async fn a_slow_call_of_a_ramp_up_is_slow() {
    let trip = TripPolicy::FailureRate {
        rate: 1.0,
        minimum_calls: 4,
        window: Window::Calls(4),
        slow_call: Some(SlowCall::new(500 * MS, 0.5)),
    };
    let (_drawn, w) = recovered(consecutive(1).trip(trip)).await;
    w.ask(Job::Late(600 * MS, Ok(1))).await.unwrap().unwrap();
    let permit = w.breaker.acquire().await.unwrap();
    pass(600 * MS).await;
    permit.success().await;
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.slow_calls, snapshot.samples), (2, 2));
    w.good().await;
    w.good().await;
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R36, R10: as a probe, an ask that the breaker makes itself runs on without its caller.
#[actix::test]
async fn an_ask_of_a_ramp_up_outlives_its_caller() {
    let (_drawn, w) = recovered(consecutive(1)).await;
    let (release, job) = latch();
    let ask = w.breaker.ask(&w.target, job);
    quiet().await;
    drop(ask);
    release.send(Err(BAD)).unwrap();
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R36, R23, R24, R35: what ends it is known at once.
#[actix::test]
async fn orders_and_other_settings_end_a_ramp_up() {
    for ending in 0..3 {
        let (drawn, w) = recovered(consecutive(1)).await;
        drawn.refuse();
        w.rejected().await;
        match ending {
            0 => w.breaker.reset().await.unwrap(),
            1 => {
                let order = ForceClosed::new("enough");
                w.breaker.force_closed(order).await.unwrap().unwrap();
            }
            _ => {
                let config = consecutive(1).build().unwrap();
                w.breaker.reconfigure(config).await.unwrap().unwrap();
            }
        }
        assert!(passes(&w.breaker), "{ending}");
        w.breaker.release().await.unwrap();
        assert!(passes(&w.breaker), "{ending}");
    }
    // Other settings for it bind at once, from its old start.
    let (drawn, w) = recovered(consecutive(1)).await;
    drawn.refuse();
    pass(5 * SECOND).await;
    let config = consecutive(1).ramp_up(RampUp::new(6 * SECOND, 0.25));
    let config = config.build().unwrap();
    w.breaker.reconfigure(config).await.unwrap().unwrap();
    w.rejected().await;
    pass(SECOND + MS).await;
    assert!(passes(&w.breaker));
}

// R36, R29: a restart of the actor leaves it as it is, and its timer is set again.
#[actix::test]
async fn a_ramp_up_survives_a_restart_of_the_actor() {
    pause();
    let (drawn, trap) = (Drawn::new(), Trap::default());
    let builder = Breakers::builder()
        .random(drawn.clone())
        .clock(Arc::new(trap.clone()));
    let w = world_of(builder, ramped(consecutive(1)));
    w.trip().await;
    pass(BREAK + MS).await;
    w.good().await;
    drawn.refuse();
    trap.set();
    w.breaker.snapshot().await.unwrap_err();
    pass(SECOND).await;
    assert_eq!(w.snapshot().await.restarts, 1);
    assert_eq!(w.rejected().await.reason(), Reason::RampUp);
    pass(RAMP).await;
    assert!(passes(&w.breaker));
}

// R36, R27: a random source that panics admits, and the actor lives.
#[actix::test]
async fn a_random_source_that_panics_admits() {
    pause();
    let builder = Breakers::builder().random(Arc::new(|| -> f64 { panic!("trap in the source") }));
    let w = world_of(builder, ramped(consecutive(1)));
    w.trip().await;
    pass(BREAK + MS).await;
    for kind in 0..KINDS {
        call(&w, kind).await.unwrap();
    }
    assert_eq!(w.snapshot().await.restarts, 0);
}

// R36, R29: a breaker that is gone guards nothing, whatever it showed last.
#[actix::test]
async fn a_removed_breaker_that_ramped_up_lets_calls_pass() {
    let (drawn, w) = recovered(consecutive(1)).await;
    drawn.refuse();
    w.rejected().await;
    w.breakers.remove("b");
    assert!(passes(&w.breaker));
    w.good().await;
}

// R36, R32: not idle before it is over.
#[actix::test]
async fn a_breaker_that_ramps_up_makes_no_room() {
    pause();
    let clock = ManualClock::new();
    let breakers = Breakers::builder()
        .clock(Arc::new(clock.clone()))
        .random(Drawn::new())
        .max_breakers(1)
        .start();
    let config = ramped(consecutive(1)).build().unwrap();
    let breaker = breakers.create("b", config.clone()).unwrap();
    breaker.acquire().await.unwrap().failure().await;
    clock.advance(BREAK);
    breaker.acquire().await.unwrap().success().await;
    assert_eq!(breaker.state(), CircuitState::Closed);
    drop(breaker);
    clock.advance(RAMP - Duration::from_micros(1));
    let full = breakers.create("another", config.clone()).unwrap_err();
    assert!(matches!(full, CreateError::Full { .. }), "{full}");
    clock.advance(Duration::from_micros(1));
    breakers.create("another", config).unwrap();
    assert_eq!(breakers.names(), ["another"]);
}

/// Draws that are the same in every run.
struct Seeded(Mutex<fastrand::Rng>);

impl RandomSource for Seeded {
    fn uniform(&self) -> f64 {
        self.0.lock().unwrap().f64()
    }
}

// R36, R10: callers on two arbiters, in real time. Every call is accounted for once.
#[actix::test]
async fn two_arbiters_share_a_ramp_up() {
    const CALLS: u64 = 4_000;
    let random = Seeded(Mutex::new(fastrand::Rng::with_seed(36)));
    let breakers = Breakers::builder().random(Arc::new(random)).start();
    let config = rate(0.5, 1, Window::Calls(u32::MAX))
        .break_duration(MS)
        .call_timeout(30 * SECOND)
        .ramp_up(RampUp::new(1_000_000 * SECOND, 0.25));
    let breaker = breakers.create("b", config.build().unwrap()).unwrap();
    breaker.acquire().await.unwrap().failure().await;
    let probe = loop {
        match breaker.acquire().await {
            Ok(permit) if permit.is_probe() => break permit,
            Ok(_) => panic!("an open breaker let a call through"),
            Err(_) => tokio::task::yield_now().await,
        }
    };
    probe.success().await;
    let before = breaker.snapshot().await.unwrap().calls;

    let arbiters = [Arbiter::new(), Arbiter::new()];
    let done: Vec<_> = arbiters
        .iter()
        .map(|arbiter| {
            let breaker = breaker.clone();
            let (done, sums) = tokio::sync::oneshot::channel();
            assert!(arbiter.spawn(async move {
                let (target, seen) = target();
                let (mut admitted, mut rejected) = (0, 0);
                for _ in 0..CALLS / 50 {
                    let asks = (0..50).map(|_| breaker.ask(&target, Job::Good));
                    for reply in futures::future::join_all(asks).await {
                        match reply {
                            Ok(reply) => admitted += u64::from(reply.unwrap()),
                            Err(AskError::Rejected(error)) => {
                                assert_eq!(error.reason(), Reason::RampUp);
                                rejected += 1;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
                let sums = (admitted, rejected, seen.get() as u64);
                assert_eq!(done.send(sums), Ok(()));
            }));
            sums
        })
        .collect();
    let (mut admitted, mut rejected) = (0, 0);
    for sums in done {
        let sums = sums.await.unwrap();
        assert_eq!(sums.0 + sums.1, CALLS);
        assert_eq!(sums.2, sums.0);
        admitted += sums.0;
        rejected += sums.1;
    }
    // Draws are the same and in one order, whoever comes first.
    assert!((1_850..2_150).contains(&admitted), "{admitted}");
    let snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.calls.rejected - before.rejected, rejected);
    assert_eq!(snapshot.calls.successes - before.successes, admitted);
    assert_eq!((snapshot.samples, snapshot.calls.late), (admitted, 0));
    for arbiter in arbiters {
        arbiter.stop();
        arbiter.join().unwrap();
    }
}
