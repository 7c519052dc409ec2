//! Guarded futures: results, timeouts, panics, rejections from inside.

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

use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Cx, Poll};

use actix::prelude::*;
use actix_circuit_breaker::message::Ask;
use actix_circuit_breaker::{
    AskError, CallError, CircuitState, Outcome, Reason, Rejected, Reply, TripPolicy, Window,
};
use futures::FutureExt;
use harness::*;

#[actix::test]
async fn result_comes_through_as_it_is() {
    let w = world(consecutive(2));
    assert_eq!(w.breaker.call(async { Ok::<_, Oops>(3) }).await, Ok(3));
    let failed = w.breaker.call(async { Err::<(), _>(BAD) }).await;
    assert_eq!(failed, Err(CallError::Failed(BAD)));
    let late = w.breaker.call(async {
        pass(500 * MS).await;
        Ok::<_, Oops>(4)
    });
    assert_eq!(late.await, Ok(4));
    let call = w.breaker.clone().into_call(async {
        pass(MS).await;
        Err::<(), _>(BAD)
    });
    assert_eq!(
        actix::spawn(call).await.unwrap(),
        Err(CallError::Failed(BAD))
    );
    assert_eq!(w.snapshot().await.failures, 1);
}

// It is lazy: rejected when polled, not when made.
#[actix::test]
async fn future_is_not_polled_when_rejected_and_decided_when_polled() {
    let w = world(consecutive(1));
    let call = w.breaker.call(async { Ok::<_, Oops>(1) });
    w.trip().await;
    let error = call.await.unwrap_err();
    assert!(error.is_rejected());
    assert!(error.retry_after().unwrap() > BREAK - 2 * MS);
    let call = w.breaker.call(async { panic!("polled") as Answer });
    match call.await {
        Err(CallError::Rejected(rejected)) => {
            assert_eq!((rejected.breaker(), rejected.reason()), ("b", Reason::Open));
        }
        other => panic!("{other:?}"),
    }
}

/// Tells when it is polled and dropped, and never ends.
struct Endless {
    polled: Counter,
    dropped: Counter,
}

impl Future for Endless {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, _: &mut Cx<'_>) -> Poll<Answer> {
        self.polled.add();
        Poll::Pending
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.dropped.add();
    }
}

// R20
#[actix::test]
async fn call_that_takes_too_long_is_a_failure_and_is_not_polled_again() {
    let w = world(consecutive(1));
    let (polled, dropped) = (Counter::default(), Counter::default());
    let endless = || Endless {
        polled: polled.clone(),
        dropped: dropped.clone(),
    };
    {
        let mut call = Box::pin(w.breaker.call(endless()));
        assert_eq!((&mut call).await, Err(CallError::Timeout(SECOND)));
        assert_eq!(w.state(), CircuitState::Open);
        let polls = polled.get();
        assert!(poll_once(&mut call).await.is_pending());
        assert_eq!(polled.get(), polls);
    }
    assert_eq!(dropped.get(), 1);
    // As a probe.
    pass(BREAK + MS).await;
    let call = w.breaker.clone().into_call(endless());
    assert_eq!(call.await, Err(CallError::Timeout(SECOND)));
    assert_eq!(w.state(), CircuitState::Open);
    assert_eq!(w.snapshot().await.attempt, 1);
}

// R16: a probe's time counts from its admission, not from when its caller comes round to it.
#[actix::test]
async fn call_timeout_of_a_probe_counts_from_its_admission() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    let start = now();
    let mut call = Box::pin(w.breaker.call(pending::<Answer>()));
    assert!(poll_once(&mut call).await.is_pending());
    pass(700 * MS).await;
    assert_eq!(w.snapshot().await.probes_in_flight, 1);
    assert_eq!(call.await, Err(CallError::Timeout(SECOND)));
    let took = now() - start;
    assert!(took <= SECOND + 5 * MS, "{took:?}");
    assert_eq!(w.state(), CircuitState::Open);

    // One that comes too late for all of it is still polled once.
    pass(BREAK + MS).await;
    let mut call = Box::pin(w.breaker.call(async { Ok::<_, Oops>(1) }));
    assert!(poll_once(&mut call).await.is_pending());
    pass(3 * SECOND).await;
    assert_eq!(call.await, Ok(1));
    assert_eq!(w.state(), CircuitState::Closed);
}

fn now() -> tokio::time::Instant {
    tokio::time::sleep(std::time::Duration::ZERO).deadline()
}

// Case 70: one early timeout of three is not enough.
#[actix::test]
async fn single_timeout_does_not_trip_a_rate_with_a_minimum() {
    let w = world(rate(0.5, 3, Window::Time(60 * SECOND)));
    for closed in [true, true, false] {
        let hung = w.breaker.call(pending::<Answer>()).await;
        assert_eq!(hung, Err(CallError::Timeout(SECOND)));
        assert_eq!(w.state() == CircuitState::Closed, closed);
    }
}

#[actix::test]
async fn classifier_judges_the_result() {
    let w = world(consecutive(1));
    let bad = || async { Err::<u32, _>(BAD) };
    let excuse = |_: &Answer| Outcome::Ignored;
    let call = w.breaker.call_with(bad(), excuse).await;
    assert_eq!(call, Err(CallError::Failed(BAD)));
    let call = w.breaker.clone().into_call_with(bad(), excuse).await;
    assert_eq!(call, Err(CallError::Failed(BAD)));
    assert_eq!(w.state(), CircuitState::Closed);
    let call = w
        .breaker
        .call_with(async { Ok::<_, Oops>(9) }, |_: &Answer| Outcome::Failure);
    assert_eq!(call.await, Ok(9));
    assert_eq!(w.state(), CircuitState::Open);
}

/// An actor that guards a future of its own.
struct Worker(actix_circuit_breaker::Breaker);

impl Actor for Worker {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Result<u32, CallError<Oops>>")]
struct Work(Answer);

impl Handler<Work> for Worker {
    type Result = ResponseActFuture<Self, Result<u32, CallError<Oops>>>;

    fn handle(&mut self, Work(answer): Work, _: &mut Context<Self>) -> Self::Result {
        let call = self.0.clone().into_call(async move {
            pass(MS).await;
            answer
        });
        Box::pin(call.into_actor(self))
    }
}

#[actix::test]
async fn call_works_as_an_actor_future() {
    let w = world(consecutive(1));
    let worker = Worker(w.breaker.clone()).start();
    assert_eq!(worker.send(Work(Ok(1))).await.unwrap(), Ok(1));
    let failed = worker.send(Work(Err(BAD))).await.unwrap();
    assert_eq!(failed, Err(CallError::Failed(BAD)));
    let rejected = worker.send(Work(Ok(1))).await.unwrap();
    assert!(rejected.unwrap_err().is_rejected());
    pass(BREAK + MS).await;
    assert_eq!(worker.send(Work(Ok(1))).await.unwrap(), Ok(1));
    assert_eq!(w.state(), CircuitState::Closed);
}

/// Panics at that poll.
struct PanicsAt(u32);

impl Future for PanicsAt {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Answer> {
        assert!(self.0 > 0, "trap in the future");
        self.0 -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

async fn panics(call: impl Future) -> bool {
    let caught = AssertUnwindSafe(call).catch_unwind().await;
    let Err(payload) = caught else { return false };
    // The very panic of the future, not one of the crate.
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        == Some("trap in the future")
}

// R19, R10
#[actix::test]
async fn panic_of_the_guarded_future_is_a_failure_and_goes_on() {
    for polls in 0..8 {
        let w = world(consecutive(1));
        assert!(panics(w.breaker.call(PanicsAt(polls))).await, "{polls}");
        quiet().await;
        assert_eq!(w.state(), CircuitState::Open, "{polls}");
        // As a probe: the slot is free, the verdict is a failure.
        pass(BREAK + MS).await;
        let call = w.breaker.clone().into_call(PanicsAt(polls));
        assert!(panics(call).await, "{polls}");
        quiet().await;
        let snapshot = w.snapshot().await;
        assert_eq!(snapshot.state, CircuitState::Open, "{polls}");
        assert_eq!((snapshot.attempt, snapshot.restarts), (1, 0));
        assert_eq!(snapshot.calls.failures, 2);
        pass(BREAK + MS).await;
        w.good().await;
        assert_eq!(w.state(), CircuitState::Closed);
    }
}

// R19
#[actix::test]
async fn panic_in_a_task_counts_and_others_live() {
    let w = world(consecutive(1));
    let call = actix::spawn(w.breaker.clone().into_call(PanicsAt(1)));
    assert!(call.await.unwrap_err().is_panic());
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R19, case 29, checks 45: the caller gets its reply, the breaker counts a failure.
#[actix::test]
async fn panicking_classifier_makes_a_failure_and_the_caller_gets_its_reply() {
    let trap = |_: &Answer| -> Outcome { panic!("trap in the classifier") };
    for probe in [false, true] {
        for way in 0..6 {
            let w = world(consecutive(1));
            if probe {
                w.trip().await;
                pass(BREAK + MS).await;
            }
            let failures = w.snapshot().await.calls.failures;
            let recipient = w.target.clone().recipient();
            let reply = match way {
                0 => w.breaker.ask_with(&w.target, Job::Good, trap).await,
                1 => {
                    let guard = w.breaker.guard_with(recipient, trap);
                    guard.send(Job::Good).await
                }
                2 => {
                    let ask = Ask::with(recipient, Job::Good, trap);
                    w.breaker.addr().send(ask).await.unwrap()
                }
                3 => {
                    let call = w.breaker.call_with(async { Ok(1) }, trap).await;
                    Ok(Ok(call.unwrap()))
                }
                4 => {
                    let call = w.breaker.call_with(
                        async {
                            pass(MS).await;
                            Ok(1)
                        },
                        trap,
                    );
                    Ok(Ok(call.await.unwrap()))
                }
                _ => {
                    let call = w.breaker.clone().into_call_with(async { Ok(1) }, trap);
                    Ok(Ok(call.await.unwrap()))
                }
            };
            assert_eq!(reply, Ok(Ok(1)), "{probe} {way}");
            let snapshot = w.snapshot().await;
            assert_eq!(snapshot.state, CircuitState::Open, "{probe} {way}");
            assert_eq!(snapshot.calls.failures, failures + 1);
            assert_eq!((snapshot.probes_in_flight, snapshot.restarts), (0, 0));
            pass(BREAK + MS).await;
            w.good().await;
        }
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "trap in the destructor");
    }
}

// R10: user code on the way out of a mediated ask costs neither its outcome nor its reply.
#[actix::test]
async fn classifier_that_panics_when_dropped_costs_nobody_the_reply() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    let bomb = Bomb;
    let classify = move |_: &Answer| {
        let _ = &bomb;
        Outcome::Success
    };
    let ask = Ask::with(w.target.clone().recipient(), Job::Good, classify);
    let reply = w.breaker.addr().send(ask).await.unwrap();
    assert_eq!(reply, Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Closed);
}

#[derive(Message)]
#[rtype(result = "()")]
struct Armed {
    _bomb: Bomb,
}

impl Handler<Armed> for Target {
    type Result = ();

    fn handle(&mut self, armed: Armed, _: &mut Context<Self>) {
        std::mem::forget(armed);
    }
}

// R26, R29: a closed target drops the message in the hands of the breaker's actor. It goes on, and no
// event is lost.
#[actix::test]
async fn message_that_panics_when_dropped_does_not_restart_the_breaker() {
    let w = world(consecutive(1));
    let (_recorder, told) = w.record().await;
    assert_eq!(w.ask(Job::Stop).await, Err(AskError::Closed));
    pass(BREAK + MS).await;
    let armed = Armed { _bomb: Bomb };
    let reply = w.breaker.ask(&w.target, armed).await;
    assert_eq!(reply, Err(AskError::Closed));
    pass(MS).await;
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Open);
    assert_eq!((snapshot.attempt, snapshot.restarts), (1, 0));
    assert_eq!(told.seqs(), [0, 1, 2, 3]);
}

#[derive(Debug)]
struct Refused(AskError);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

// R19: a rejection by this same breaker from inside says nothing of the target.
#[actix::test]
async fn rejection_from_inside_by_the_same_breaker_is_ignored() {
    let w = world(consecutive(1).max_probes(1));
    w.trip().await;
    let rejected: Rejected = w.rejected().await;
    let ask: AskError = AskError::Rejected(rejected.clone());
    let call: CallError<Oops> = w
        .breaker
        .call(async { Ok::<(), Oops>(()) })
        .await
        .unwrap_err();
    w.breaker.reset().await.unwrap();

    let outer = w.breaker.call(async { Err::<(), _>(rejected.clone()) });
    assert!(matches!(outer.await, Err(CallError::Failed(_))));
    let outer = w.breaker.call(async { Err::<(), _>(ask.clone()) });
    assert!(matches!(outer.await, Err(CallError::Failed(_))));
    let outer = w.breaker.call(async { Err::<(), _>(call.clone()) });
    assert!(matches!(outer.await, Err(CallError::Failed(_))));
    // In a boxed error, and in an error of one's own in a boxed one.
    let boxed = |error: Box<dyn std::error::Error + Send + Sync>| async { Err::<(), _>(error) };
    let outer = w.breaker.call(boxed(ask.clone().into()));
    assert!(matches!(outer.await, Err(CallError::Failed(_))));
    let outer = w.breaker.call(boxed(Refused(ask.clone()).into()));
    assert!(matches!(outer.await, Err(CallError::Failed(_))));
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Closed);
    assert_eq!((snapshot.calls.ignored, snapshot.calls.failures), (5, 1));

    // As a probe.
    w.trip().await;
    pass(BREAK + MS).await;
    let inner = || w.breaker.call(async { Ok::<(), Oops>(()) });
    let outer = w.breaker.call(async { inner().await });
    match outer.await {
        Err(CallError::Failed(CallError::Rejected(inner))) => {
            assert_eq!(inner.reason(), Reason::ProbesInUse);
        }
        other => panic!("{other:?}"),
    }
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::HalfOpen);
    assert_eq!((snapshot.probes_in_flight, snapshot.inconclusive), (0, 1));
    // By an ask inside a call.
    let outer = w.breaker.call(async {
        let reply = w.breaker.ask(&w.target, Job::Good).await?;
        Ok::<_, AskError>(reply)
    });
    let outer = outer.await;
    assert!(matches!(
        outer,
        Err(CallError::Failed(AskError::Rejected(_)))
    ));
    assert_eq!(w.state(), CircuitState::HalfOpen);
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

/// A target whose reply is an error of asking another one.
struct Relay(actix_circuit_breaker::Guarded<Job>);

impl Actor for Relay {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Result<Answer, AskError>")]
struct Pass;

impl Handler<Pass> for Relay {
    type Result = ResponseFuture<Result<Answer, AskError>>;

    fn handle(&mut self, _: Pass, _: &mut Context<Self>) -> Self::Result {
        Box::pin(self.0.send(Job::Good))
    }
}

// R19: the error in which that rejection is looked for, however the reply is wrapped.
#[test]
fn error_is_found_in_a_wrapped_reply() {
    fn found(reply: &impl Reply) -> Option<&Oops> {
        reply.error().map(|error| error.downcast_ref().unwrap())
    }
    let (good, bad): (Answer, Answer) = (Ok(1), Err(BAD));
    assert_eq!((found(&good), found(&bad)), (None, Some(&BAD)));
    assert_eq!(found(&Box::new(bad)), Some(&BAD));
    assert_eq!(found(&Rc::new(bad)), Some(&BAD));
    assert_eq!(found(&Arc::new(bad)), Some(&BAD));
    assert_eq!(found(&Arc::new(good)), None);
}

// R19: across an actor in between, by the same breaker and by another.
#[actix::test]
async fn rejection_by_another_breaker_is_a_failure() {
    let w = world(consecutive(1));
    let config = consecutive(1).build().unwrap();
    let inner = w.breakers.create("inner", config).unwrap();
    let relay = Relay(inner.guard(w.target.clone())).start();
    inner.acquire().await.unwrap().failure().await;
    assert_eq!(inner.state(), CircuitState::Open);
    let reply = w.breaker.ask(&relay, Pass).await;
    assert!(reply.unwrap().unwrap_err().is_rejected());
    assert_eq!(w.state(), CircuitState::Open);

    w.breaker.reset().await.unwrap();
    let failed = w
        .breaker
        .call(async { inner.call(async { Ok::<(), Oops>(()) }).await });
    assert!(failed.await.is_err());
    assert_eq!(w.state(), CircuitState::Open);

    // The probe of the outer breaker meets a relay that asks through that same breaker.
    pass(BREAK + MS).await;
    let relay = Relay(w.breaker.guard(w.target.clone())).start();
    let reply = w.breaker.ask(&relay, Pass).await;
    assert!(reply.unwrap().unwrap_err().is_rejected());
    assert_eq!(w.state(), CircuitState::HalfOpen);
    assert_eq!(w.snapshot().await.calls.ignored, 1);
}

// R19: a timeout or a closed mailbox inside is no rejection.
#[actix::test]
async fn timeout_from_inside_by_the_same_breaker_is_a_failure() {
    let w = world(consecutive(9));
    let quick = w.breaker.guard(w.target.clone()).call_timeout(10 * MS);
    let outer = w.breaker.call(async { quick.send(Job::Hang).await });
    let outer = outer.await;
    assert!(matches!(
        outer,
        Err(CallError::Failed(AskError::Timeout(_)))
    ));
    assert_eq!(w.snapshot().await.failures, 2);
}

// R18: the time of a slow call is counted for futures too.
#[actix::test]
async fn slow_call_counts_as_slow() {
    let w = world(consecutive(1).trip(TripPolicy::FailureRate {
        rate: 1.0,
        minimum_calls: 2,
        window: Window::Time(60 * SECOND),
        slow_call: Some(actix_circuit_breaker::SlowCall::new(100 * MS, 1.0)),
    }));
    for _ in 0..2 {
        let call = w.breaker.call(async {
            pass(150 * MS).await;
            Ok::<_, Oops>(1)
        });
        assert_eq!(call.await, Ok(1));
    }
    assert_eq!(w.state(), CircuitState::Open);
}
