//! Faults that were found by attacking the actor shell: code of the user's that panics where it is not
//! expected, storms, leaks, and races with the published state.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unwrap_used,
    reason = "panics are among what is tested, and a test may fail"
)]

mod harness;

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as Cx, Wake, Waker};
use std::time::Duration;

use actix::WeakAddr;
use actix::prelude::*;
use actix_circuit_breaker::message::{Ask, ForceOpen};
use actix_circuit_breaker::{
    Breaker, BreakerActor, BreakerConfigBuilder, Breakers, CircuitState, Clock, CreateError,
    Outcome, Permit, SlowCall, SystemClock, Timestamp, TripPolicy, Window,
};
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::oneshot;
use tokio::task::{unconstrained, yield_now};

use harness::{
    Answer, BAD, BREAK, Counter, Job, MS, SECOND, Trap, World, consecutive, latch, pass, pause,
    poll_once, quiet, rate, target, world, world_of,
};

// Code of the user's that panics.

/// A message whose destructor panics.
#[derive(Debug, Message)]
#[rtype(result = "Answer")]
struct Explosive;

impl Drop for Explosive {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "trap in a message");
    }
}

struct Never;

impl Actor for Never {
    type Context = Context<Self>;
}

impl Handler<Explosive> for Never {
    type Result = Answer;

    fn handle(&mut self, _: Explosive, _: &mut Context<Self>) -> Answer {
        panic!("it is never asked");
    }
}

// R26, R29
#[actix::test]
async fn rejected_message_that_panics_when_dropped_does_not_end_the_breaker() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK).await;
    let (answer, job) = latch();
    let probe = actix::spawn(w.breaker.ask(&w.target, job));
    quiet().await;
    assert_eq!(w.state(), CircuitState::HalfOpen);

    let rejected = w.breaker.ask(&Never.start(), Explosive).await;
    assert!(rejected.is_err_and(|error| error.is_rejected()));
    assert_eq!(w.snapshot().await.restarts, 0);

    answer.send(Ok(1)).unwrap();
    assert_eq!(probe.await.unwrap(), Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Closed);
}

// R26, R29
#[actix::test]
async fn cancelled_message_that_panics_when_dropped_does_not_end_the_breaker() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK).await;
    // It waits in the breaker's mailbox, which drops it there.
    drop(w.breaker.ask(&Never.start(), Explosive));
    quiet().await;
    assert_eq!(w.snapshot().await.restarts, 0);
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("trap in a waker");
    }
}

// R26: nobody feels a reader whose waker panics.
#[actix::test]
async fn waker_that_panics_does_not_end_the_breaker() {
    let w = world(consecutive(1));
    let waker = Waker::from(Arc::new(Panicking));
    let mut cx = Cx::from_waker(&waker);
    let mut transitions = w.breaker.transitions();
    let mut watched = w.breaker.watch();
    quiet().await;
    while Pin::new(&mut transitions).poll_next(&mut cx).is_ready() {}
    let mut changed = Box::pin(watched.changed());
    assert!(changed.poll_unpin(&mut cx).is_pending());
    let mut forced = Box::pin(w.breaker.force_open(ForceOpen::new("panic")));
    assert!(forced.poll_unpin(&mut cx).is_pending());

    quiet().await;
    assert_eq!(w.state(), CircuitState::ForcedOpen);
    assert_eq!(w.snapshot().await.restarts, 0);
}

/// A subscriber of the log that panics wherever a span takes it.
struct Log;

impl tracing::Subscriber for Log {
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

    fn exit(&self, _: &tracing::span::Id) {
        panic!("trap in a span's exit");
    }

    fn try_close(&self, _: tracing::span::Id) -> bool {
        panic!("trap in a span's end");
    }
}

// R26, R27, case 107
#[actix::test]
async fn log_that_panics_at_the_end_of_a_span_is_not_felt_by_the_caller() {
    let w = world(consecutive(2));
    let log = tracing::subscriber::set_default(Log);
    w.good().await;
    w.bad().await;
    drop(w.breaker.ask(&w.target, Job::Hang));
    let panicking = w.breaker.call(async {
        yield_now().await;
        yield_now().await;
        panic!("trap in a call");
        #[expect(unreachable_code, reason = "it says the type")]
        Answer::Ok(1)
    });
    // The exit of its span panics in mid-unwind.
    let unwound = std::panic::AssertUnwindSafe(panicking).catch_unwind().await;
    assert!(unwound.is_err());
    drop(log);
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R29: what a lost order changed would be half of it.
#[actix::test]
async fn lost_order_to_reconfigure_changes_nothing() {
    pause();
    let trap = Trap::default();
    let builder = Breakers::builder().clock(Arc::new(trap.clone()));
    let w = world_of(builder, consecutive(1));
    w.good().await;
    quiet().await;

    trap.set();
    let other = consecutive(2).build().unwrap();
    w.breaker.reconfigure(other.clone()).await.unwrap_err();
    let config = w.snapshot().await.config;
    assert_eq!(config, consecutive(1).build().unwrap());
    w.breakers.create("b", config).unwrap();
    w.breakers.create("b", other).unwrap_err();
}

thread_local! {
    /// What is dropped after tokio's own locals of the thread.
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Settles as a guard of the user's would.
struct Guard(Option<Permit>);

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.take().map(Permit::failure));
    }
}

// R10: settled while the thread's locals are destroyed, when nobody can be woken without an abort.
#[test]
fn permit_settled_by_a_dying_thread_counts_and_wakes_nobody() {
    System::new().block_on(async {
        let breakers = Breakers::start();
        let config = consecutive(1).build().unwrap();
        let breaker = breakers.create("b", config).unwrap();
        breaker.snapshot().await.unwrap();
        let permit = breaker.acquire().await.unwrap();
        let arbiter = Arbiter::with_tokio_rt(|| {
            KEPT.with(|_| ());
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().unwrap()
        });
        let (kept, is_kept) = oneshot::channel();
        arbiter.spawn_fn(|| {
            let guard = Box::new(Guard(Some(permit)));
            KEPT.with(|kept| kept.borrow_mut().push(guard));
            kept.send(()).unwrap();
        });
        is_kept.await.unwrap();
        arbiter.stop();
        arbiter.join().unwrap();
        breaker.snapshot().await.unwrap();
        assert_eq!(breaker.state(), CircuitState::Open);
    });
}

// Storms.

// R28: the probes that the breaker makes, and its timers, run on its own arbiter.
#[actix::test]
async fn flood_of_messages_leaves_the_arbiter_to_others() {
    let w = world(consecutive(1));
    quiet().await;
    let turns = Counter::default();
    let other = actix::spawn({
        let turns = turns.clone();
        async move {
            loop {
                turns.add();
                yield_now().await;
            }
        }
    });
    quiet().await;
    let before = turns.get();
    let flood: Vec<_> = (0..10_000).map(|_| w.breaker.snapshot()).collect();
    for question in flood {
        unconstrained(question).await.unwrap();
    }
    let turns = turns.get() - before;
    assert!(turns > 50, "{turns} turns");
    other.abort();
}

// Leaks.

// R26, cases 124, 125: a breaker that never changes keeps no stream that is gone.
#[actix::test]
async fn streams_that_are_gone_are_forgotten_without_an_event() {
    let w = world(consecutive(1));
    for _ in 0..100 {
        let mut transitions = w.breaker.transitions();
        assert!(transitions.next().await.is_some());
    }
    assert!(w.snapshot().await.subscribers <= 1);
}

/// Whether the breaker's actor has ended.
fn ended(address: &WeakAddr<BreakerActor>) -> bool {
    address.upgrade().is_none_or(|address| !address.connected())
}

// R30: a breaker ends with its owner and its handles, however long its timers.
#[actix::test]
async fn breaker_without_owner_or_handle_ends_in_spite_of_its_timers() {
    let World {
        breakers,
        breaker,
        target: _target,
        ..
    } = world(consecutive(1));
    let address = breaker.addr().downgrade();
    let mut transitions = breaker.transitions();
    let order = ForceOpen::new("for a year").ttl(SECOND * 31_536_000);
    breaker.force_open(order).await.unwrap().unwrap();
    assert!(!ended(&address));

    drop(breakers);
    drop(breaker);
    quiet().await;
    assert!(ended(&address));
    while let Some(item) = transitions.next().now_or_never().unwrap() {
        item.unwrap();
    }
}

// R32, case 122: a call that the breaker makes itself is unsettled too.
#[actix::test]
async fn breaker_with_an_ask_in_its_care_is_not_evicted() {
    pause();
    let breakers = Breakers::builder().max_breakers(1).start();
    let config = consecutive(1).build().unwrap();
    let address = breakers.create("a", config.clone()).unwrap().addr().clone();
    let (target, _) = target();
    let (answer, job) = latch();
    let reply = actix::spawn(address.send(Ask::new(target.recipient(), job)));
    quiet().await;
    let full = breakers.create("b", config.clone());
    assert!(matches!(full, Err(CreateError::Full { .. })));

    answer.send(Ok(1)).unwrap();
    assert_eq!(reply.await.unwrap(), Ok(Ok(Ok(1))));
    breakers.create("b", config).unwrap();
}

// Time.

fn slow_call(duration: Duration) -> BreakerConfigBuilder {
    consecutive(1).trip(TripPolicy::FailureRate {
        rate: 1.0,
        minimum_calls: 10,
        window: Window::Calls(10),
        slow_call: Some(SlowCall::new(duration, 1.0)),
    })
}

// R18, R20: a call timeout beyond what a clock can show is no timeout at once.
#[actix::test]
async fn longest_call_timeout_of_a_slow_call_is_not_over_at_the_next_poll() {
    let w = world(slow_call(MS * 100));
    let guarded = w
        .breaker
        .guard_with(w.target.clone(), |_: &Answer| Outcome::Success)
        .call_timeout(Duration::MAX);
    let (answer, job) = latch();
    let mut ask = Box::pin(guarded.send(job));
    for _ in 0..5 {
        assert!(poll_once(&mut ask).await.is_pending());
        pass(SECOND).await;
    }
    answer.send(Ok(1)).unwrap();
    assert_eq!(ask.await, Ok(Ok(1)));
    assert_eq!(w.snapshot().await.slow_calls, 1);
}

// R18: slow is who took as long, also where a busy arbiter finds the reply and the timer together.
#[actix::test]
async fn slow_reply_is_slow_even_if_its_caller_was_not_polled_meanwhile() {
    let w = world(slow_call(MS * 100));
    let (answer, job) = latch();
    let mut ask = Box::pin(w.breaker.ask(&w.target, job));
    assert!(poll_once(&mut ask).await.is_pending());
    pass(MS * 200).await;
    answer.send(Ok(1)).unwrap();
    quiet().await;
    assert_eq!(ask.await, Ok(Ok(1)));
    assert_eq!(w.snapshot().await.slow_calls, 1);
}

type Hook = Arc<Mutex<Option<Breaker>>>;

/// The machine's clock; while the breaker's actor publishes, it makes one successful call.
#[derive(Clone, Default)]
struct Intruder {
    clock: SystemClock,
    hook: Hook,
}

impl fmt::Debug for Intruder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Intruder")
    }
}

impl Clock for Intruder {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn drives_timers(&self) -> bool {
        let hook = self.hook.lock().unwrap().take();
        if let Some(breaker) = hook {
            let called = breaker.call(async { Answer::Ok(1) }).now_or_never();
            assert!(called.unwrap().is_ok());
        }
        true
    }
}

// R17, R28: a success that trips while the actor publishes; its break needs a timer like any other.
#[actix::test]
async fn break_that_begins_while_publishing_is_noticed_at_its_end() {
    pause();
    let clock = Intruder::default();
    let builder = Breakers::builder().clock(Arc::new(clock.clone()));
    let w = world_of(builder, rate(0.4, 5, Window::Calls(5)));
    w.bad().await;
    w.good().await;
    w.good().await;
    w.snapshot().await;
    // Two of four: the fifth call trips, failed or not.
    *clock.hook.lock().unwrap() = Some(w.breaker.clone());
    assert_eq!(w.ask(Job::Bad).await, Ok(Err(BAD)));
    assert_eq!(w.state(), CircuitState::Open);

    pass(BREAK + MS * 10).await;
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}
