//! Subscribers, streams and watches: what they are told, and that nobody feels them.

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

use std::sync::Arc;

use actix::prelude::*;
use actix_circuit_breaker::message::Subscribe;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    Breaker, Breakers, Cause, CircuitState, ManualClock, SlowCall, StateChanged, TripPolicy, Window,
};
use futures::{FutureExt, StreamExt};
use harness::*;

// R25: the first event tells what is in the window.
#[actix::test]
async fn present_state_comes_with_what_is_remembered() {
    let w = world(consecutive(1).trip(TripPolicy::FailureRate {
        rate: 0.9,
        minimum_calls: 100,
        window: Window::Calls(100),
        slow_call: Some(SlowCall::new(100 * MS, 1.0)),
    }));
    w.bad().await;
    let slow = w.ask(Job::Late(200 * MS, Ok(1)));
    assert_eq!(slow.await, Ok(Ok(1)));
    for _ in 0..3 {
        w.good().await;
    }
    let (_recorder, told) = w.record().await;
    pass(MS).await;
    let known = told.last().evidence;
    assert_eq!((known.failures, known.slow_calls, known.samples), (1, 1, 5));
}

// R25: the present first, then each change in order, and what was known at each.
#[actix::test]
async fn subscriber_is_told_the_present_and_then_every_change_in_order() {
    let (clock, w) = manual(consecutive(2));
    clock.advance(SECOND);
    let (_recorder, told) = w.record().await;
    pass(MS).await;
    let present = told.last();
    assert_eq!(
        (present.from, present.to),
        (CircuitState::Closed, CircuitState::Closed)
    );
    assert_eq!((present.cause, present.seq), (Cause::Present, 0));
    assert_eq!(&*present.breaker, "b");

    w.trip().await;
    clock.advance(BREAK);
    w.bad().await;
    clock.advance(BREAK);
    w.good().await;
    w.breaker
        .force_open(ForceOpen::new("why"))
        .await
        .unwrap()
        .unwrap();
    w.breaker
        .force_closed(ForceClosed::new("so"))
        .await
        .unwrap()
        .unwrap();
    w.breaker.release().await.unwrap();
    w.trip().await;
    w.breaker.reset().await.unwrap();
    pass(MS).await;

    use Cause as C;
    use CircuitState::{Closed, ForcedClosed, ForcedOpen, HalfOpen, Open};
    let events = told.all();
    let steps: Vec<_> = events
        .iter()
        .map(|event| (event.from, event.to, event.cause))
        .collect();
    // Case 106
    assert_eq!(
        steps,
        [
            (Closed, Closed, C::Present),
            (Closed, Open, C::Tripped),
            (Open, HalfOpen, C::ProbeDue),
            (HalfOpen, Open, C::ProbeFailed),
            (Open, HalfOpen, C::ProbeDue),
            (HalfOpen, Closed, C::Recovered),
            (Closed, ForcedOpen, C::Forced),
            (ForcedOpen, ForcedClosed, C::Forced),
            (ForcedClosed, Closed, C::Released),
            (Closed, Open, C::Tripped),
            (Open, Closed, C::Reset),
        ]
    );
    assert_eq!(told.seqs(), (0..=10).collect::<Vec<_>>());
    for pair in events.windows(2) {
        assert!(pair[0].epoch < pair[1].epoch);
        assert!(pair[0].at <= pair[1].at);
        assert_eq!(pair[0].to, pair[1].from);
    }
    let tripped = &events[1];
    assert_eq!(tripped.at.as_micros(), 1_000_000);
    assert_eq!(tripped.evidence.failures, 2);
    assert_eq!(tripped.evidence.until.unwrap().as_micros(), 11_000_000);
    assert_eq!(events[3].evidence.attempt, 1);
    assert_eq!(events[6].evidence.reason.as_deref(), Some("why"));
    assert_eq!(events[10].epoch, w.snapshot().await.epoch);
}

// R25: one that comes later begins with the present, and the present `seq`.
#[actix::test]
async fn later_subscriber_begins_with_the_present() {
    let (clock, w) = manual(consecutive(1));
    w.trip().await;
    clock.advance(BREAK);
    w.bad().await;
    let (_recorder, told) = w.record().await;
    let mut stream = w.breaker.transitions();
    pass(MS).await;
    let present = told.last();
    assert_eq!(
        (present.from, present.to),
        (CircuitState::Open, CircuitState::Open)
    );
    assert_eq!((present.seq, present.cause), (3, Cause::Present));
    assert_eq!(present.evidence.attempt, 1);
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!((first.seq, first.cause), (3, Cause::Present));
    clock.advance(BREAK);
    w.good().await;
    pass(MS).await;
    assert_eq!(told.seqs(), [3, 4, 5]);
}

// R26, cases 112 and 125.
#[actix::test]
async fn same_recipient_twice_is_told_once_and_a_dead_one_is_removed() {
    let w = world(consecutive(1));
    let (recorder, told) = w.record().await;
    w.breaker.subscribe(recorder.clone()).await.unwrap();
    w.breaker.subscribe(recorder.downgrade()).await.unwrap();
    let recipient = recorder.clone().recipient();
    w.breaker.subscribe(recipient.downgrade()).await.unwrap();
    let admin = w.breaker.addr();
    admin.send(Subscribe::new(recorder.clone())).await.unwrap();
    w.breakers.subscribe(recorder.clone());
    let stream = w.breaker.transitions();
    assert_eq!(w.snapshot().await.subscribers, 2);
    w.trip().await;
    pass(MS).await;
    assert_eq!(told.causes(), [Cause::Present, Cause::Tripped]);

    drop((recorder, recipient, stream));
    pass(MS).await;
    w.breaker.reset().await.unwrap();
    pass(MS).await;
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.subscribers, snapshot.missed_events), (0, 0));
    assert_eq!(told.len(), 2);
    // It can subscribe no more.
    let dead = Recorder(Told::default()).start();
    let weak = dead.downgrade();
    drop(dead);
    pass(MS).await;
    w.breaker.subscribe(weak).await.unwrap();
    assert_eq!(w.snapshot().await.subscribers, 0);
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

/// A subscriber that panics at every event, and is restarted.
struct Panicking(Counter);

impl Actor for Panicking {
    type Context = Context<Self>;
}

impl Supervised for Panicking {}

impl Handler<StateChanged> for Panicking {
    type Result = ();

    fn handle(&mut self, _: StateChanged, _: &mut Context<Self>) {
        self.0.add();
        panic!("trap in a subscriber");
    }
}

/// A subscriber that asks the breaker back, and steers it, from inside its handler.
struct Reentrant {
    breaker: Breaker,
    target: Addr<Target>,
    told: Told,
    asked: Counter,
}

impl Actor for Reentrant {
    type Context = Context<Self>;
}

impl Handler<StateChanged> for Reentrant {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, event: StateChanged, _: &mut Context<Self>) -> Self::Result {
        self.told.push(event);
        let breaker = self.breaker.clone();
        let target = self.target.clone();
        let asked = self.asked.clone();
        Box::pin(async move {
            breaker.snapshot().await.unwrap();
            drop(breaker.ask(&target, Job::Good).await);
            drop(breaker.acquire().await);
            drop(breaker.transitions());
            asked.add();
        })
    }
}

async fn cycle(w: &World, clock: &ManualClock) {
    w.trip().await;
    clock.advance(BREAK);
    w.good().await;
}

// R26, check 43: dead, stuck, panicking and re-entrant ones next to a good one.
#[actix::test]
async fn no_subscriber_is_felt_by_anybody() {
    let (clock, w) = manual(consecutive(1));
    let dead = Recorder(Told::default()).start();
    w.breaker.subscribe(dead).await.unwrap();
    let stuck = Stuck.start();
    w.breaker.subscribe(stuck.clone()).await.unwrap();
    let panics = Counter::default();
    let panicking = Panicking(panics.clone()).start();
    w.breaker.subscribe(panicking.clone()).await.unwrap();
    let restarted = {
        let panics = panics.clone();
        actix_circuit_breaker::BackoffSupervisor::start(
            actix_circuit_breaker::RestartPolicy::new().max_backoff(MS),
            move |_| Panicking(panics),
        )
    };
    w.breaker.subscribe(restarted.clone()).await.unwrap();
    let (_recorder, told) = w.record().await;
    let unread = w.breaker.transitions();
    for _ in 0..40 {
        cycle(&w, &clock).await;
        pass(SECOND).await;
    }
    assert_eq!(told.seqs(), (0..=120).collect::<Vec<_>>());
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.restarts, snapshot.calls.rejected), (0, 0));
    assert_eq!(w.seen.get(), 80);
    // Left are the stuck one, the restarted one, the recorder and the stream.
    assert_eq!(snapshot.subscribers, 4);
    assert!(panics.get() > 100);
    drop((stuck, unread));
}

// R26
#[actix::test]
async fn subscriber_may_ask_the_breaker_back() {
    let (clock, w) = manual(consecutive(1));
    let (told, asked) = (Told::default(), Counter::default());
    let reentrant = Reentrant {
        breaker: w.breaker.clone(),
        target: w.target.clone(),
        told: told.clone(),
        asked: asked.clone(),
    }
    .start();
    w.breaker.subscribe(reentrant.clone()).await.unwrap();
    for _ in 0..10 {
        cycle(&w, &clock).await;
        pass(SECOND).await;
    }
    assert_eq!(told.len(), asked.get());
    assert_eq!(told.seqs(), (0..=30).collect::<Vec<_>>());
    assert_eq!(w.state(), CircuitState::Closed);
}

/// A subscriber whose next event is handled when the test says so.
struct Slow {
    told: Told,
    gate: Arc<tokio::sync::Semaphore>,
}

impl Actor for Slow {
    type Context = Context<Self>;
}

impl Handler<StateChanged> for Slow {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, event: StateChanged, _: &mut Context<Self>) -> Self::Result {
        self.told.push(event);
        let gate = Arc::clone(&self.gate);
        Box::pin(async move { gate.acquire().await.unwrap().forget() })
    }
}

// R26, cases 109 and 173: a full one misses events and sees the gap; the newest is never lost.
#[actix::test]
async fn full_subscriber_misses_events_and_gets_the_newest() {
    let (clock, w) = manual(consecutive(1));
    let told = Told::default();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let slow = Slow {
        told: told.clone(),
        gate: Arc::clone(&gate),
    }
    .start();
    w.breaker.subscribe(slow.clone()).await.unwrap();
    let mut unread = w.breaker.transitions();
    for _ in 0..100 {
        cycle(&w, &clock).await;
    }
    pass(MS).await;
    assert_eq!(told.len(), 1);
    // Two are behind, the actor and the stream: let the actor catch up.
    gate.add_permits(1_000);
    pass(MS).await;
    let events = told.all();
    assert_eq!(events.last().unwrap().seq, 300);
    assert_eq!(events.last().unwrap().to, w.state());
    assert!(events.len() <= 67, "{}", events.len());
    let transitions_told = u64::try_from(events.len() - 1).unwrap();
    // The stream: its markers say what it missed, where it missed it.
    let (mut got, mut lagged, mut next) = (0, 0, 0);
    while let Some(Some(item)) = unread.next().now_or_never() {
        match item {
            Ok(event) => {
                assert_eq!(event.seq, next);
                next += 1;
                got += u64::from(event.cause != Cause::Present);
            }
            Err(missed) => {
                lagged += missed.missed;
                next += missed.missed;
            }
        }
    }
    assert_eq!(got + lagged, 300);
    assert_eq!(next, 301);
    let missed = w.snapshot().await.missed_events;
    assert_eq!(missed, (300 - transitions_told) + lagged);
    // Caught up, it misses nothing more.
    cycle(&w, &clock).await;
    pass(MS).await;
    let seqs = told.seqs();
    assert_eq!(seqs[seqs.len() - 3..], [301, 302, 303]);
    assert_eq!(w.snapshot().await.missed_events, missed);
}

// Case 173: memory stays flat. The queue is bounded, and what is missed is counted.
#[actix::test]
async fn ten_thousand_changes_are_no_burden_for_a_stuck_subscriber() {
    let w = world(consecutive(1));
    let stuck = Stuck.start();
    w.breaker.subscribe(stuck.clone()).await.unwrap();
    let mut stream = w.breaker.transitions();
    for _ in 0..5_000 {
        w.breaker
            .force_open(ForceOpen::new("x"))
            .await
            .unwrap()
            .unwrap();
        w.breaker.release().await.unwrap();
    }
    let mut waiting = 0;
    while let Some(Some(_)) = stream.next().now_or_never() {
        waiting += 1;
    }
    assert!(waiting <= 66, "{waiting}");
    let missed = w.snapshot().await.missed_events;
    assert!((19_800..20_000).contains(&missed), "{missed}");
    drop(stuck);
}

#[actix::test]
async fn watch_shows_the_newest_state() {
    let w = world(consecutive(1));
    let mut watch = w.breaker.watch();
    assert_eq!(*watch.borrow_and_update(), CircuitState::Closed);
    w.trip().await;
    assert!(watch.has_changed().unwrap());
    assert_eq!(*watch.borrow_and_update(), CircuitState::Open);
    w.rejected().await;
    assert!(!watch.has_changed().unwrap());
    pass(BREAK + MS).await;
    assert!(!watch.has_changed().unwrap());
    w.good().await;
    // It skips what is not the newest.
    assert_eq!(*watch.borrow_and_update(), CircuitState::Closed);
    let order = ForceOpen::new("x").ttl(SECOND);
    w.breaker.force_open(order).await.unwrap().unwrap();
    assert_eq!(*watch.borrow_and_update(), CircuitState::ForcedOpen);
    watch.changed().await.unwrap();
    assert_eq!(*watch.borrow_and_update(), CircuitState::Open);
}

#[actix::test]
async fn stream_does_not_keep_the_breaker_and_ends_with_it() {
    let w = world(consecutive(1));
    let stream = w.breaker.transitions();
    let address = w.breaker.addr().downgrade();
    pass(MS).await;
    let World {
        breakers, breaker, ..
    } = w;
    drop((breakers, breaker));
    pass(MS).await;
    assert!(address.upgrade().is_none_or(|address| !address.connected()));
    let events: Vec<_> = stream.collect().await;
    assert_eq!(events.len(), 1);
}

#[actix::test]
async fn stream_of_a_removed_breaker_ends() {
    let w = world(consecutive(1));
    let stream = w.breaker.transitions();
    w.trip().await;
    assert!(w.breakers.remove("b"));
    let events: Vec<_> = stream.map(|event| event.unwrap().cause).collect().await;
    assert_eq!(events, [Cause::Present, Cause::Tripped]);
    let after: Vec<_> = w.breaker.transitions().collect().await;
    assert_eq!(after, []);
}

// All breakers at once, and those made later.
#[actix::test]
async fn subscriber_of_the_owner_is_told_of_every_breaker() {
    let w = world(consecutive(1));
    let told = Told::default();
    let recorder = Recorder(told.clone()).start();
    w.breakers.subscribe(recorder.clone());
    w.breakers.subscribe(recorder.clone());
    let config = consecutive(1).build().unwrap();
    let later = w.breakers.create("later", config).unwrap();
    w.trip().await;
    later.acquire().await.unwrap().failure().await;
    pass(MS).await;
    let mut events: Vec<_> = told
        .all()
        .iter()
        .map(|event| (event.breaker.to_string(), event.seq, event.cause))
        .collect();
    events.sort_by_key(|(name, seq, _)| (name.clone(), *seq));
    assert_eq!(
        events,
        [
            ("b".to_owned(), 0, Cause::Present),
            ("b".to_owned(), 1, Cause::Tripped),
            ("later".to_owned(), 0, Cause::Present),
            ("later".to_owned(), 1, Cause::Tripped),
        ]
    );
}

// R26: a subscriber on an arbiter that stops.
#[actix::test]
async fn subscriber_whose_arbiter_stops_is_removed() {
    let breakers = Breakers::start();
    let config = consecutive(1).build().unwrap();
    let breaker = breakers.create("b", config).unwrap();
    let arbiter = Arbiter::new();
    let told = Told::default();
    let recorder = {
        let told = told.clone();
        Recorder::start_in_arbiter(&arbiter.handle(), |_| Recorder(told))
    };
    breaker.subscribe(recorder.clone()).await.unwrap();
    while told.len() < 1 {
        tokio::task::yield_now().await;
    }
    arbiter.stop();
    arbiter.join().unwrap();
    quiet().await;
    breaker.acquire().await.unwrap().failure().await;
    let snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.subscribers, 0);
    assert_eq!(snapshot.state, CircuitState::Open);
}

// Cases 103 and 104: one event for one opening, however many fail.
#[actix::test]
async fn late_failures_tell_no_second_opening() {
    let w = world(consecutive(2).max_probes(3));
    let (_recorder, told) = w.record().await;
    let asks = (0..10).map(|_| w.breaker.ask(&w.target, Job::Bad));
    futures::future::join_all(asks).await;
    pass(MS).await;
    assert_eq!(told.causes(), [Cause::Present, Cause::Tripped]);
    pass(BREAK).await;
    let asks = (0..3).map(|_| w.breaker.ask(&w.target, Job::Bad));
    for reply in futures::future::join_all(asks).await {
        assert_eq!(reply, Ok(Err(BAD)));
    }
    pass(MS).await;
    assert_eq!(told.causes()[2..], [Cause::ProbeDue, Cause::ProbeFailed]);
    let until = w.snapshot().await.until.unwrap();
    assert_eq!(until, told.last().at + BREAK);
}

/// Wakes nobody, and panics over it.
struct PanickingWaker;

impl std::task::Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("trap in a waker");
    }
}

fn poll_with_trap<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) {
    let waker = std::task::Waker::from(Arc::new(PanickingWaker));
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(future.poll(&mut cx).is_pending());
}

// R26: whoever waits, with whatever executor, is woken by the breaker's actor itself.
#[actix::test]
async fn waker_that_panics_is_felt_by_nobody() {
    let w = world(consecutive(1));
    let (_recorder, told) = w.record().await;
    pass(MS).await;
    let mut trapped = w.breaker.transitions();
    let other = w.breaker.transitions();
    trapped.next().await.unwrap().unwrap();
    let mut watch = w.breaker.watch();
    watch.borrow_and_update();
    {
        let mut next = Box::pin(trapped.next());
        poll_with_trap(next.as_mut());
        let mut changed = Box::pin(watch.changed());
        poll_with_trap(changed.as_mut());
        w.trip().await;
    }
    let mut snapshot = Box::pin(w.breaker.snapshot());
    poll_with_trap(snapshot.as_mut());
    let mut order = Box::pin(w.breaker.reset());
    poll_with_trap(order.as_mut());
    quiet().await;
    let mut call = Box::pin(w.breaker.call(async { Err::<(), _>(BAD) }));
    poll_with_trap(call.as_mut());
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
    pass(MS).await;
    assert_eq!(told.seqs(), [0, 1, 2, 3]);
    assert_eq!(w.snapshot().await.restarts, 0);
    // The end of the stream wakes, too.
    let mut trapped = Box::pin(trapped);
    while let Some(Some(_)) = trapped.next().now_or_never() {}
    poll_with_trap(trapped.next().boxed_local().as_mut());
    w.breakers.remove("b");
    let seqs: Vec<_> = other.map(|event| event.unwrap().seq).collect().await;
    assert_eq!(seqs, [0, 1, 2, 3]);
}

// A reader and a subscriber on other threads get everything, in order.
#[actix::test]
async fn events_cross_threads_in_order() {
    let breakers = Breakers::start();
    let config = consecutive(1).build().unwrap();
    let breaker = breakers.create("b", config).unwrap();
    let arbiter = Arbiter::new();
    let told = Told::default();
    let recorder = {
        let told = told.clone();
        Recorder::start_in_arbiter(&arbiter.handle(), |_| Recorder(told))
    };
    breaker.subscribe(recorder.clone()).await.unwrap();
    let stream = breaker.transitions();
    let (done, read) = tokio::sync::oneshot::channel();
    assert!(arbiter.spawn(async move {
        let events: Vec<_> = stream.map(|event| event.unwrap().seq).collect().await;
        done.send(events).unwrap();
    }));
    for round in 1..=50 {
        let order = ForceOpen::new("x");
        breaker.force_open(order).await.unwrap().unwrap();
        breaker.release().await.unwrap();
        while told.len() < 2 * round {
            tokio::task::yield_now().await;
        }
    }
    breakers.remove("b");
    let expected: Vec<_> = (0..=100).collect();
    assert_eq!(read.await.unwrap(), expected);
    while told.len() < 101 {
        tokio::task::yield_now().await;
    }
    assert_eq!(told.seqs(), expected);
    arbiter.stop();
    arbiter.join().unwrap();
}
