//! Faults that users of circuit breakers reported, as far as actors have a part in them. Numbers are
//! those of the collection of cases; more of them are named where the rule itself is tested.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::items_after_statements,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "panics are among what is tested, and a test may fail"
)]

mod harness;

use actix::prelude::*;
use actix_circuit_breaker::message::Ask;
use actix_circuit_breaker::{
    AskError, Breakers, CallError, CircuitState, Outcome, StateChanged, TripPolicy, Window,
};
use harness::*;

// Case 4: replies that say nothing free the slot and leave half-open as it is.
#[actix::test]
async fn neutral_probe_is_no_silent_third_exit() {
    let w = world(consecutive(1));
    let (_recorder, told) = w.record().await;
    w.trip().await;
    pass(BREAK + MS).await;
    let neutral = |_: &Answer| Outcome::Ignored;
    let ask = w.breaker.ask_with(&w.target, Job::Bad, neutral).await;
    assert_eq!(ask, Ok(Err(BAD)));
    pass(MS).await;
    let events = told.len();
    w.good().await;
    pass(MS).await;
    assert_eq!((told.len(), w.state()), (events + 1, CircuitState::Closed));
}

// Cases 5, 22: neither the minimum of calls nor the rate has a say about a probe.
#[actix::test]
async fn one_failed_probe_opens_whatever_the_rate() {
    let w = world(rate(0.5, 10, Window::Time(10 * SECOND)).break_duration(30 * SECOND));
    w.trip().await;
    assert_eq!(w.seen.get(), 10);
    pass(30 * SECOND + MS).await;
    let asks = (0..5).map(|_| w.breaker.ask(&w.target, Job::Bad));
    let admitted = futures::future::join_all(asks).await;
    assert_eq!(admitted.iter().filter(|ask| ask.is_ok()).count(), 1);
    assert_eq!(w.state(), CircuitState::Open);
    let left = w.snapshot().await.retry_after.unwrap();
    assert!(left > 30 * SECOND - 5 * MS);
}

// Case 8: a round goes on for as long as it takes.
#[actix::test]
async fn round_outlives_the_closed_window() {
    let w = world(rate(0.5, 10, Window::Time(SECOND)).successes_to_close(2));
    w.trip().await;
    pass(BREAK + MS).await;
    w.good().await;
    pass(4 * SECOND).await;
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// Cases 53 and 58
#[actix::test]
async fn run_of_failures_knows_no_time_and_a_window_does() {
    let w = world(consecutive(2));
    w.bad().await;
    w.good().await;
    for _ in 0..1_000 {
        w.good().await;
    }
    pass(1_000_000 * SECOND).await;
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Closed);
    pass(1_000_000 * SECOND).await;
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Open);
    let w = world(count(2, 10 * SECOND));
    w.bad().await;
    pass(86_400 * SECOND).await;
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// Case 59: the closed window begins empty.
#[actix::test]
async fn closed_window_begins_without_the_probes() {
    let w = world(rate(0.4, 4, Window::Calls(8)).successes_to_close(3));
    w.trip().await;
    pass(BREAK + MS).await;
    for _ in 0..3 {
        w.good().await;
    }
    let snapshot = w.snapshot().await;
    assert_eq!(
        (snapshot.state, snapshot.samples),
        (CircuitState::Closed, 0)
    );
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// Case 28, the other half: a call that is given up frees its slot and opens nothing.
#[actix::test]
async fn impatient_calls_leave_half_open_half_open() {
    let w = world(consecutive(1));
    let (_recorder, told) = w.record().await;
    w.trip().await;
    pass(BREAK + MS).await;
    for _ in 0..30 {
        let call = w.breaker.call(async {
            pass(300 * MS).await;
            Ok::<_, Oops>(1)
        });
        tokio::time::timeout(100 * MS, call).await.unwrap_err();
        assert_eq!(w.snapshot().await.probes_in_flight, 0);
        assert_eq!(w.state(), CircuitState::HalfOpen);
    }
    assert_eq!(told.len(), 3);
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// Case 31, as a probe.
#[actix::test]
async fn probe_whose_reply_races_its_timeout_leaves_the_capacity_unchanged() {
    let w = world(
        consecutive(1)
            .call_timeout(2 * MS)
            .max_probes(2)
            .successes_to_close(9),
    );
    for i in 0..300 {
        w.breaker.reset().await.unwrap();
        w.trip().await;
        pass(BREAK + MS).await;
        let after = std::time::Duration::from_micros(1_800 + i * 2);
        let job = || Job::Late(after, Ok(1));
        let asks = [
            w.breaker.ask(&w.target, job()),
            w.breaker.ask(&w.target, job()),
        ];
        for ask in futures::future::join_all(asks).await {
            match ask {
                Ok(Ok(1)) | Err(AskError::Timeout(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        quiet().await;
        assert_eq!(w.snapshot().await.probes_in_flight, 0);
        if w.state() == CircuitState::HalfOpen {
            let both = [w.breaker.acquire().await, w.breaker.acquire().await];
            assert!(both.iter().all(Result::is_ok));
            assert!(w.breaker.acquire().await.is_err());
        }
    }
    assert_eq!(w.snapshot().await.calls.lost_probes, 0);
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

// Case 68: ten thousand timed-out calls leave nothing behind; late replies are dropped.
#[actix::test]
async fn timed_out_calls_leave_nothing_behind() {
    let w = world(count(u32::MAX, 3_600 * SECOND));
    w.snapshot().await;
    let before = alive_tasks();
    for by_message in [false, true] {
        for _ in 0..50 {
            let late = || Job::Late(2 * SECOND, Ok(1));
            if by_message {
                let asks = (0..100).map(|_| {
                    let ask = Ask::new(w.target.clone().recipient(), late());
                    w.breaker.addr().send(ask)
                });
                for reply in futures::future::join_all(asks).await {
                    assert_eq!(reply.unwrap(), Err(AskError::Timeout(SECOND)));
                }
            } else {
                let asks = (0..100).map(|_| w.breaker.ask(&w.target, late()));
                for reply in futures::future::join_all(asks).await {
                    assert_eq!(reply, Err(AskError::Timeout(SECOND)));
                }
            }
        }
    }
    pass(10 * SECOND).await;
    assert_eq!(alive_tasks(), before);
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.calls.failures, snapshot.calls.late), (10_000, 0));
}

// Case 68: no timer of an open breaker keeps the system alive.
#[test]
fn system_ends_at_once_while_a_breaker_is_open() {
    let system = std::thread::spawn(|| {
        System::new().block_on(async {
            let breakers = Breakers::start();
            let config = consecutive(1)
                .break_duration(3_600 * SECOND)
                .build()
                .unwrap();
            let breaker = breakers.create("b", config).unwrap();
            let (target, _) = target();
            let failed = breaker.ask(&target, Job::Bad).await;
            assert_eq!(failed, Ok(Err(BAD)));
            let hanging = breaker.addr().send(Ask::new(target.recipient(), Job::Hang));
            drop(hanging);
            breaker.state()
        })
    });
    assert_eq!(system.join().unwrap(), CircuitState::Open);
}

/// A subscriber that never gets to its messages.
struct Stuck;

impl Actor for Stuck {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        ctx.wait(actix::fut::wrap_future(std::future::pending::<()>()));
    }
}

impl Handler<StateChanged> for Stuck {
    type Result = ();

    fn handle(&mut self, _: StateChanged, _: &mut Context<Self>) {}
}

// Case 110: ten thousand asks through trips and recoveries, with a stuck subscriber. No ask waits for
// it: paused time stands still.
#[actix::test]
async fn stuck_subscriber_holds_no_ask_up() {
    let (clock, w) = manual(consecutive(5));
    let stuck = Stuck.start();
    w.breaker.subscribe(stuck.clone()).await.unwrap();
    let start = tokio::time::sleep(std::time::Duration::ZERO).deadline();
    for _ in 0..1_000 {
        for _ in 0..5 {
            w.bad().await;
        }
        w.rejected().await;
        clock.advance(BREAK);
        for _ in 0..4 {
            w.good().await;
        }
    }
    let end = tokio::time::sleep(std::time::Duration::ZERO).deadline();
    assert_eq!(end - start, std::time::Duration::ZERO);
    let snapshot = w.snapshot().await;
    assert!(snapshot.missed_events > 2_900);
    assert_eq!(w.seen.get(), 9_000);
    drop(stuck);
}

/// Listens to everything and does nothing with it.
struct Listener;

impl tracing::Subscriber for Listener {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

// Case 139: who listens changes no decision.
#[actix::test]
async fn decisions_do_not_depend_on_who_listens() {
    let tape = async |listened: bool| {
        let on = listened.then(|| tracing::subscriber::set_default(Listener));
        let (clock, w) = manual(rate(0.5, 4, Window::Time(20 * SECOND)).max_probes(2));
        let _recorder = if listened {
            Some(w.record().await)
        } else {
            None
        };
        let stream = listened.then(|| w.breaker.transitions());
        let mut rng = fastrand::Rng::with_seed(139);
        let mut decisions = Vec::new();
        for _ in 0..2_000 {
            clock.advance(std::time::Duration::from_millis(rng.u64(..900)));
            let job = if rng.bool() { Job::Good } else { Job::Bad };
            decisions.push((w.ask(job).await.is_ok(), w.state()));
        }
        let calls = w.snapshot().await.calls;
        drop((on, stream));
        (decisions, calls)
    };
    assert_eq!(tape(false).await, tape(true).await);
}

// Case 172: user code in every place panics, and the next ask is answered by the same actor.
#[actix::test]
async fn panicking_user_code_takes_neither_actor_nor_arbiter_along() {
    struct Rule;
    impl actix_circuit_breaker::TripRule for Rule {
        fn trips(
            &self,
            failures: &[actix_circuit_breaker::Timestamp],
            _: actix_circuit_breaker::Timestamp,
        ) -> bool {
            assert!(failures.len() > 2, "trap in the rule");
            true
        }
        fn lookback(&self) -> std::time::Duration {
            BREAK
        }
    }
    pause();
    let random = std::sync::Arc::new(|| -> f64 { panic!("trap in the random source") });
    let config = consecutive(1)
        .trip(TripPolicy::Custom(std::sync::Arc::new(Rule)))
        .jitter(1.0);
    let w = world_of(Breakers::builder().random(random), config);
    w.bad().await;
    let ask = w
        .breaker
        .ask_with(&w.target, Job::Good, |_: &Answer| -> Outcome {
            panic!("trap in the classifier")
        });
    assert_eq!(ask.await, Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Closed);
    w.bad().await;
    // R22: without the source's help the break is not lengthened.
    assert_eq!(w.rejected().await.retry_after(), Some(BREAK));
    assert_eq!(w.snapshot().await.restarts, 0);
    pass(BREAK + MS).await;
    w.good().await;
}

// Case 175: an ask in the care of a breaker whose arbiter goes down is answered, not forgotten.
#[actix::test]
async fn every_caller_is_answered_when_the_breaker_goes() {
    let arbiter = Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&arbiter.handle());
    let config = consecutive(9).call_timeout(60 * SECOND).build().unwrap();
    let breaker = breakers.create("b", config).unwrap();
    let (target, seen) = target();
    let asks: Vec<_> = (0..10)
        .map(|_| {
            let ask = Ask::new(target.clone().recipient(), Job::Hang);
            actix::spawn(breaker.addr().send(ask))
        })
        .collect();
    while seen.get() < 10 {
        tokio::task::yield_now().await;
    }
    arbiter.stop();
    for ask in asks {
        ask.await.unwrap().unwrap_err();
    }
    arbiter.join().unwrap();
}

// Case 176: what one call does inside concerns no other that runs at the same time.
#[actix::test]
async fn nested_call_of_one_caller_does_not_excuse_another() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    let outer = w.breaker.call(async {
        // The breaker rejects the inner one, and another caller outside.
        let inner = w.breaker.call(async { Ok::<(), Oops>(()) }).await;
        assert!(w.ask(Job::Good).await.unwrap_err().is_rejected());
        inner
    });
    assert!(matches!(outer.await, Err(CallError::Failed(_))));
    let snapshot = w.snapshot().await;
    assert_eq!(
        (snapshot.state, snapshot.calls.ignored),
        (CircuitState::HalfOpen, 1)
    );
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Open);
}
