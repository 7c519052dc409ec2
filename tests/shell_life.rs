//! Lives of the breaker's own actor: restarts, and what remains when it is gone for good.
//! The actor is made to panic by a clock that does.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::items_after_statements,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "panics are what is tested, and a test may fail"
)]

mod harness;

use std::sync::Arc;

use actix::prelude::*;
use actix_circuit_breaker::message::Ask;
use actix_circuit_breaker::message::ForceOpen;
use actix_circuit_breaker::{
    AskError, BreakerConfigBuilder, Breakers, BreakersBuilder, CallError, Cause, CircuitState,
    RampUp, Reason, RestartPolicy, Window,
};
use futures::{FutureExt, StreamExt};
use harness::*;

/// How long the actor is away after its first panic.
const AWAY: std::time::Duration = std::time::Duration::from_millis(100);

fn trapped(config: BreakerConfigBuilder) -> (Trap, World) {
    trapped_of(Breakers::builder(), config)
}

fn trapped_of(builder: BreakersBuilder, config: BreakerConfigBuilder) -> (Trap, World) {
    pause();
    let trap = Trap::default();
    let world = world_of(builder.clock(Arc::new(trap.clone())), config);
    (trap, world)
}

/// Has the actor panic over a message that matters to nobody.
async fn panic_once(trap: &Trap, w: &World) {
    // It has started, or it would panic there and keep the message.
    w.snapshot().await;
    trap.set();
    w.breaker.snapshot().await.unwrap_err();
    assert!(!trap.is_set());
}

// R29: state, window, subscribers and their order outlive it.
#[actix::test]
async fn restart_keeps_state_window_and_subscribers() {
    let (trap, w) = trapped(consecutive(3));
    let (_recorder, told) = w.record().await;
    let mut stream = w.breaker.transitions();
    let mut watch = w.breaker.watch();
    w.bad().await;
    panic_once(&trap, &w).await;
    w.bad().await;
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.failures, snapshot.restarts), (2, 1));
    assert_eq!(
        (snapshot.subscribers, snapshot.state),
        (2, CircuitState::Closed)
    );
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Open);
    panic_once(&trap, &w).await;
    assert_eq!(w.rejected().await.reason(), Reason::Open);
    pass(SECOND).await;
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.state, snapshot.restarts), (CircuitState::Open, 2));
    w.breaker.reset().await.unwrap();
    pass(MS).await;
    assert_eq!(told.seqs(), [0, 1, 2]);
    assert_eq!(
        told.causes(),
        [Cause::Present, Cause::Tripped, Cause::Reset]
    );
    let mut seqs = Vec::new();
    while let Some(Some(event)) = stream.next().now_or_never() {
        seqs.push(event.unwrap().seq);
    }
    assert_eq!(seqs, [0, 1, 2]);
    assert_eq!(*watch.borrow_and_update(), CircuitState::Closed);
}

// R29, check 41: the slot of a probe in flight stays, its lease too, and its outcome counts.
#[actix::test]
async fn restart_keeps_slots_of_probes_in_flight() {
    let (trap, w) = trapped(consecutive(1).call_timeout(4 * SECOND));
    w.trip().await;
    for closes in [false, true] {
        pass(BREAK + MS).await;
        let (release, job) = latch();
        let probe = w.breaker.ask(&w.target, job);
        pass(MS).await;
        panic_once(&trap, &w).await;
        pass(2 * AWAY + MS).await;
        assert_eq!(w.snapshot().await.probes_in_flight, 1);
        assert_eq!(w.rejected().await.reason(), Reason::ProbesInUse);
        release.send(if closes { Ok(1) } else { Err(BAD) }).unwrap();
        probe.await.unwrap().ok();
        let expected = if closes {
            CircuitState::Closed
        } else {
            CircuitState::Open
        };
        assert_eq!(w.state(), expected);
    }
    assert_eq!(w.snapshot().await.calls.lost_probes, 0);
}

// R29: as above, with the slot of a permit, which is dropped while the actor is away.
#[actix::test]
async fn slot_given_back_during_a_restart_is_free_after_it() {
    let (trap, w) = trapped(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    let permit = w.breaker.acquire().await.unwrap();
    panic_once(&trap, &w).await;
    drop(permit);
    let next = w.breaker.acquire().await.unwrap();
    panic_once(&trap, &w).await;
    next.success().await;
    pass(SECOND).await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R28, R29: timers are set again from the record.
#[actix::test]
async fn restart_sets_the_timer_of_a_break_again() {
    let (trap, w) = trapped(consecutive(1));
    w.trip().await;
    pass(5 * SECOND).await;
    panic_once(&trap, &w).await;
    pass(5 * SECOND + MS).await;
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    // The break ends while the actor is away.
    w.trip().await;
    pass(BREAK - 20 * MS).await;
    panic_once(&trap, &w).await;
    pass(SECOND).await;
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R23, R29
#[actix::test]
async fn restart_sets_the_timer_of_an_order_again() {
    let (trap, w) = trapped(consecutive(1));
    let (_recorder, told) = w.record().await;
    let order = ForceOpen::new("x").ttl(5 * SECOND);
    w.breaker.force_open(order).await.unwrap().unwrap();
    panic_once(&trap, &w).await;
    pass(4 * SECOND).await;
    assert_eq!(w.rejected().await.reason(), Reason::ForcedOpen);
    pass(SECOND + MS).await;
    assert_eq!(
        told.causes(),
        [Cause::Present, Cause::Forced, Cause::Expired]
    );
    assert_eq!(w.state(), CircuitState::Open);
}

// R29: of many messages in the mailbox, the one being handled is lost.
#[actix::test]
async fn restart_loses_the_message_being_handled_alone() {
    let (trap, w) = trapped(count(1_000, 3_600 * SECOND));
    w.snapshot().await;
    let mut settled = Vec::new();
    for _ in 0..10 {
        settled.push(w.breaker.acquire().await.unwrap().failure());
    }
    trap.set();
    let start = tokio::time::sleep(std::time::Duration::ZERO).deadline();
    futures::future::join_all(settled).await;
    let end = tokio::time::sleep(std::time::Duration::ZERO).deadline();
    assert!(end - start <= AWAY + 2 * MS, "{:?}", end - start);
    pass(SECOND).await;
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.failures, snapshot.restarts), (9, 1));
}

// R21: a caller waits no longer than 100 ms for an actor that is away, and its failure counts.
#[actix::test]
async fn failure_during_a_restart_counts_after_it() {
    let policy = RestartPolicy::new().backoff(5 * SECOND);
    let (trap, w) = trapped_of(Breakers::builder().restart(policy), consecutive(1));
    panic_once(&trap, &w).await;
    let start = tokio::time::sleep(std::time::Duration::ZERO).deadline();
    w.bad().await;
    let end = tokio::time::sleep(std::time::Duration::ZERO).deadline();
    assert!(end - start <= 102 * MS, "{:?}", end - start);
    assert!(end - start >= 100 * MS, "{:?}", end - start);
    assert_eq!(w.state(), CircuitState::Closed);
    pass(5 * SECOND).await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R29: a question that got lost. Nobody is rejected for it, the target is not blamed, no slot leaks.
#[actix::test]
async fn lost_question_of_a_probe_costs_no_slot() {
    let (trap, w) = trapped(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    trap.set();
    assert_eq!(w.ask(Job::Good).await, Err(AskError::Closed));
    assert_eq!(w.seen.get(), 1);
    pass(SECOND).await;
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.probes_in_flight, snapshot.calls.failures), (0, 1));
    assert_eq!(snapshot.state, CircuitState::Open);
    trap.set();
    let permit = w.breaker.acquire().await.unwrap();
    permit.ignore().await;
    pass(SECOND).await;
    trap.set();
    assert_eq!(w.breaker.call(async { Ok::<_, Oops>(1) }).await, Ok(1));
    pass(SECOND).await;
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.probes_in_flight, 0);
    assert_eq!(snapshot.restarts, 3);
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R29: a window of time goes on being folded, and a success goes on being reported.
#[actix::test]
async fn restart_keeps_counting_the_successes_of_a_rate() {
    for window in [Window::Calls(8), Window::Time(60 * SECOND)] {
        let (trap, w) = trapped(rate(0.5, 8, window));
        for _ in 0..4 {
            w.bad().await;
        }
        w.good().await;
        panic_once(&trap, &w).await;
        for _ in 0..2 {
            w.good().await;
        }
        pass(SECOND).await;
        assert_eq!(w.snapshot().await.samples, 7);
        assert_eq!(w.state(), CircuitState::Closed);
        w.good().await;
        quiet().await;
        assert_eq!(w.state(), CircuitState::Open, "{window:?}");
    }
}

/// Whatever is asked passes, and fails or not as it will.
async fn assert_unguarded(w: &World) {
    assert!(!w.breaker.addr().connected());
    // What a caller meets is what is shown.
    assert_eq!(w.state(), CircuitState::Closed);
    let seen = w.seen.get();
    for _ in 0..5 {
        w.bad().await;
        let failed = w.breaker.call(async { Err::<(), _>(BAD) }).await;
        assert_eq!(failed, Err(CallError::Failed(BAD)));
        w.breaker.acquire().await.unwrap().failure().await;
        drop(w.breaker.acquire().await.unwrap());
    }
    let guard = w.breaker.guard(w.target.clone());
    guard.send(Job::Good).await.unwrap().unwrap();
    let hung = guard.call_timeout(10 * MS).send(Job::Hang).await;
    assert_eq!(hung, Err(AskError::Timeout(10 * MS)));
    assert_eq!(w.seen.get(), seen + 7);
    assert_eq!(w.state(), CircuitState::Closed);
    w.breaker.snapshot().await.unwrap_err();
    let order = w.breaker.force_open(ForceOpen::new("x")).await;
    order.unwrap_err();
    assert_eq!(w.breaker.transitions().count().await, 0);
}

// R29, check 47: restarts used up, in each state that would reject.
#[actix::test]
async fn breaker_without_restarts_left_guards_nothing() {
    for state in 0..4 {
        let policy = RestartPolicy::new().max_restarts(0);
        let (trap, w) = trapped_of(Breakers::builder().restart(policy), consecutive(1));
        let stream = w.breaker.transitions();
        let mut held = None;
        match state {
            0 => {}
            1 => w.trip().await,
            2 => {
                w.trip().await;
                pass(BREAK + MS).await;
                held = Some(w.breaker.acquire().await.unwrap());
            }
            _ => {
                let order = ForceOpen::new("x");
                w.breaker.force_open(order).await.unwrap().unwrap();
            }
        }
        panic_once(&trap, &w).await;
        quiet().await;
        assert_unguarded(&w).await;
        drop(held);
        // The stream ends.
        assert!(stream.count().await >= 1);
        // It is made anew, above the old epochs.
        assert!(w.breakers.get("b").is_none());
        let config = consecutive(1).build().unwrap();
        let new = w.breakers.create("b", config).unwrap();
        assert_eq!(new.state(), CircuitState::Closed);
        assert_eq!(new.ask(&w.target, Job::Good).await, Ok(Ok(1)));
        assert_eq!(w.breakers.snapshots().await.len(), 1);
    }
}

// R29, case 175: asks in the breaker's care end, with their replies or by their time.
#[actix::test]
async fn asks_in_the_care_of_a_removed_breaker_end() {
    let w = world(consecutive(1));
    let ask = |job| {
        let ask = Ask::new(w.target.clone().recipient(), job);
        actix::spawn(w.breaker.addr().send(ask))
    };
    let hanging: Vec<_> = (0..10).map(|_| ask(Job::Hang)).collect();
    let (release, job) = latch();
    let answered = ask(job);
    quiet().await;
    assert_eq!(w.seen.get(), 11);
    let queued = w
        .breaker
        .addr()
        .send(Ask::new(w.target.clone().recipient(), Job::Good));
    assert!(w.breakers.remove("b"));
    quiet().await;
    queued.await.unwrap_err();
    release.send(Ok(3)).unwrap();
    assert_eq!(answered.await.unwrap().unwrap(), Ok(Ok(3)));
    for ask in hanging {
        let ended = ask.await.unwrap().unwrap();
        assert_eq!(ended, Err(AskError::Timeout(SECOND)));
    }
    assert_eq!(w.seen.get(), 11);
    assert_unguarded(&w).await;
}

// R29: a probe whose breaker is removed under it.
#[actix::test]
async fn probe_of_a_removed_breaker_still_brings_its_reply() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    let (release, job) = latch();
    let probe = w.breaker.ask(&w.target, job);
    let call = w.breaker.call(async { Ok::<_, Oops>(1) });
    quiet().await;
    w.breakers.remove("b");
    quiet().await;
    release.send(Ok(3)).unwrap();
    assert_eq!(probe.await, Ok(Ok(3)));
    assert_eq!(call.await, Ok(1));
}

// The rest is across arbiters, in real time: each waits for what it needs, none sleeps.

/// A breaker on an arbiter of its own, the target here.
fn elsewhere(arbiter: &Arbiter, config: BreakerConfigBuilder) -> World {
    let breakers = Breakers::start_in_arbiter(&arbiter.handle());
    let breaker = breakers.create("b", config.build().unwrap()).unwrap();
    let (target, seen) = target();
    World {
        breakers,
        breaker,
        target,
        seen,
    }
}

/// Waits for a state of the breaker.
async fn until(w: &World, state: CircuitState) {
    let mut watch = w.breaker.watch();
    let seen = watch.wait_for(|now| *now == state);
    tokio::time::timeout(20 * SECOND, seen)
        .await
        .unwrap()
        .unwrap();
}

/// Waits until the timer has marked the break as over.
async fn until_due(w: &World) {
    for _ in 0..20_000 {
        if w.snapshot().await.probe_due {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("not due");
}

// R29: the arbiter of the breaker stops.
#[actix::test]
async fn breaker_whose_arbiter_stopped_guards_nothing() {
    let arbiter = Arbiter::new();
    let w = elsewhere(&arbiter, consecutive(1).call_timeout(20 * SECOND));
    let stream = w.breaker.transitions();
    let ask = Ask::new(w.target.clone().recipient(), Job::Hang);
    let by_message = actix::spawn(w.breaker.addr().send(ask));
    let direct = w.breaker.ask(&w.target, Job::Bad);
    while w.seen.get() < 2 {
        tokio::task::yield_now().await;
    }
    arbiter.stop();
    arbiter.join().unwrap();
    // What was in its care ends; what went straight does not need it.
    by_message.await.unwrap().unwrap_err();
    assert_eq!(direct.await, Ok(Err(BAD)));
    assert_eq!(stream.count().await, 1);
    assert_unguarded(&w).await;
    let config = consecutive(1).build().unwrap();
    w.breakers.create("b", config).unwrap_err();
    assert!(w.breakers.snapshots().await.is_empty());
}

// R29: with the breaker open, and a probe on its way.
#[actix::test]
async fn probe_in_the_care_of_a_stopped_arbiter_ends() {
    let arbiter = Arbiter::new();
    let config = consecutive(1).break_duration(MS).call_timeout(20 * SECOND);
    let w = elsewhere(&arbiter, config);
    w.trip().await;
    until_due(&w).await;
    let probe = w.breaker.ask(&w.target, Job::Hang);
    let call = w.breaker.call(std::future::pending::<Answer>());
    until(&w, CircuitState::HalfOpen).await;
    let watch = w.breaker.watch();
    arbiter.stop();
    arbiter.join().unwrap();
    assert_eq!(probe.await, Err(AskError::Closed));
    drop(call);
    assert_unguarded(&w).await;
    assert_eq!(*watch.borrow(), CircuitState::Closed);
}

// R19: the arbiter of the target stops.
#[actix::test]
async fn target_whose_arbiter_stopped_has_failed() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let arbiter = Arbiter::new();
    let seen = Counter::default();
    let target = {
        let seen = seen.clone();
        Target::start_in_arbiter(&arbiter.handle(), |_| Target { seen })
    };
    let pending = w.breaker.ask(&target, Job::Hang);
    while seen.get() < 1 {
        tokio::task::yield_now().await;
    }
    arbiter.stop();
    arbiter.join().unwrap();
    assert_eq!(pending.await, Err(AskError::Closed));
    assert_eq!(
        w.breaker.ask(&target, Job::Good).await,
        Err(AskError::Closed)
    );
    assert_eq!(w.state(), CircuitState::Open);
}

/// Blocks an arbiter's thread until it is dropped.
struct Blocked(Option<std::sync::mpsc::Sender<()>>);

impl Blocked {
    async fn new(arbiter: &Arbiter) -> Self {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (entered, inside) = tokio::sync::oneshot::channel();
        assert!(arbiter.spawn_fn(move || {
            entered.send(()).unwrap();
            ended.recv().unwrap_err();
        }));
        inside.await.unwrap();
        Self(Some(end))
    }

    fn end(mut self) {
        drop(self.0.take());
    }
}

fn now() -> tokio::time::Instant {
    tokio::time::sleep(std::time::Duration::ZERO).deadline()
}

// R21, R29: a blocked breaker holds nobody up for longer than 100 ms, and learns of it all later.
#[actix::test]
async fn failing_ask_waits_a_tenth_of_a_second_for_a_blocked_breaker() {
    let arbiter = Arbiter::new();
    let w = elsewhere(&arbiter, consecutive(1));
    w.snapshot().await;
    let blocked = Blocked::new(&arbiter).await;
    let start = now();
    w.bad().await;
    let took = now() - start;
    assert!(took >= 100 * MS && took < SECOND, "{took:?}");
    assert_eq!(w.state(), CircuitState::Closed);
    // Successes owe it nothing: ten of them do not wait ten times.
    let start = now();
    for _ in 0..10 {
        w.good().await;
    }
    assert!(now() - start < 900 * MS);
    blocked.end();
    until(&w, CircuitState::Open).await;
    w.rejected().await;
    arbiter.stop();
    arbiter.join().unwrap();
}

// R16, R29: what needs the blocked breaker to decide ends by its time, and was never sent.
#[actix::test]
async fn probes_of_a_blocked_breaker_end_by_their_timeout_unsent() {
    let arbiter = Arbiter::new();
    let config = consecutive(1).call_timeout(200 * MS).break_duration(MS);
    let w = elsewhere(&arbiter, config);
    w.trip().await;
    until_due(&w).await;
    let blocked = Blocked::new(&arbiter).await;
    let start = now();
    let (ask, acquired, called) = tokio::join!(
        w.ask(Job::Good),
        w.breaker.acquire(),
        w.breaker.call(async { panic!("polled") as Answer })
    );
    let took = now() - start;
    assert_eq!(ask, Err(AskError::Timeout(200 * MS)));
    assert_eq!(acquired.unwrap_err(), AskError::Timeout(200 * MS));
    assert_eq!(called, Err(CallError::Timeout(200 * MS)));
    assert!(took >= 300 * MS && took < 2 * SECOND, "{took:?}");
    blocked.end();
    let snapshot = w.snapshot().await;
    // Withdrawn: no slot was taken, nobody asked.
    assert_eq!(
        (snapshot.state, snapshot.probes_in_flight),
        (CircuitState::Open, 0)
    );
    assert_eq!(w.seen.get(), 1);
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    arbiter.stop();
    arbiter.join().unwrap();
}

// R17: what is added up behind a blocked arbiter keeps its order: no run that was none trips.
#[actix::test]
async fn settlements_for_a_blocked_breaker_keep_their_order() {
    let arbiter = Arbiter::new();
    let w = elsewhere(&arbiter, consecutive(2));
    w.bad().await;
    let blocked = Blocked::new(&arbiter).await;
    let permit = || w.breaker.acquire().now_or_never().unwrap().unwrap();
    for _ in 0..700 {
        drop(permit().success());
        drop(permit().failure());
    }
    blocked.end();
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Closed);
    let calls = snapshot.calls;
    assert_eq!((calls.successes, calls.failures), (700, 701));
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Open);
    arbiter.stop();
    arbiter.join().unwrap();
}

// R7, R9: nor can those who want to be its probe. Beyond a thousand they are told to come again.
#[actix::test]
async fn questions_to_a_blocked_breaker_stay_bounded() {
    let arbiter = Arbiter::new();
    let w = elsewhere(&arbiter, consecutive(1).break_duration(MS));
    w.trip().await;
    until_due(&w).await;
    let blocked = Blocked::new(&arbiter).await;
    let mut waiting = Vec::new();
    let mut rejected = Vec::new();
    for _ in 0..2_000 {
        // A caller that gives up leaves its question in the mailbox.
        drop(w.breaker.acquire());
        match w.breaker.acquire().now_or_never() {
            None => waiting.push(()),
            Some(Ok(_)) => panic!("nobody can have decided that"),
            Some(Err(error)) => rejected.push(error),
        }
    }
    assert_eq!(waiting.len(), 512);
    let AskError::Rejected(last) = rejected.pop().unwrap() else {
        panic!("rejected, and nothing else");
    };
    assert_eq!(last.reason(), Reason::ProbesInUse);
    assert!(last.retry_after().unwrap() <= SECOND);
    blocked.end();
    w.snapshot().await;
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    arbiter.stop();
    arbiter.join().unwrap();
}

// R36: nor those who call while it ramps up, each of whom has to ask.
#[actix::test]
async fn questions_to_a_blocked_breaker_that_ramps_up_stay_bounded() {
    let arbiter = Arbiter::new();
    let ramp_up = RampUp::new(3_600 * SECOND, 1.0);
    let w = elsewhere(&arbiter, consecutive(1).break_duration(MS).ramp_up(ramp_up));
    w.trip().await;
    until_due(&w).await;
    w.good().await;
    let blocked = Blocked::new(&arbiter).await;
    let questions = (0..2_000).map(|_| w.breaker.acquire().now_or_never());
    let rejected: Vec<_> = questions.flatten().map(Result::unwrap_err).collect();
    assert_eq!(rejected.len(), 2_000 - 1_024);
    for error in rejected {
        let AskError::Rejected(rejected) = error else {
            panic!("rejected, and nothing else");
        };
        assert_eq!(rejected.reason(), Reason::RampUp);
        assert!(rejected.retry_after().unwrap() <= SECOND);
    }
    blocked.end();
    w.snapshot().await;
    w.good().await;
    arbiter.stop();
    arbiter.join().unwrap();
}

// R29: not only once its actor has had a turn.
#[actix::test]
async fn removed_breaker_lets_calls_pass_at_once() {
    let w = world(consecutive(1));
    w.trip().await;
    let mut watch = w.breaker.watch();
    assert_eq!(*watch.borrow_and_update(), CircuitState::Open);
    w.rejected().await;
    w.breakers.remove("b");
    let passed = w.breaker.call(async { Ok::<_, Oops>(()) }).now_or_never();
    assert_eq!(passed, Some(Ok(())));
    assert_eq!(w.state(), CircuitState::Closed);
    assert!(watch.has_changed().unwrap());
    assert_eq!(*watch.borrow_and_update(), CircuitState::Closed);
}

fn resident_pages() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

// R21: callers that do not wait cannot fill the memory of a blocked breaker, and none is forgotten.
#[actix::test]
async fn settlements_for_a_blocked_breaker_stay_bounded_and_all_count() {
    let arbiter = Arbiter::new();
    let w = elsewhere(&arbiter, count(u32::MAX, 3_600 * SECOND));
    w.snapshot().await;
    let blocked = Blocked::new(&arbiter).await;
    let fail = async || drop(w.breaker.acquire().await.unwrap().failure());
    for _ in 0..2_000 {
        fail().await;
    }
    let before = resident_pages();
    for _ in 0..200_000 {
        fail().await;
    }
    let grown = resident_pages().saturating_sub(before);
    // A queue would take some 30 MB.
    assert!(grown < 1_024, "{grown} pages");
    blocked.end();
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.calls.failures, 202_000);
    assert_eq!(snapshot.failures, 202_000);
    arbiter.stop();
    arbiter.join().unwrap();
}
