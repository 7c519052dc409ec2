//! Guarded asks seen from outside: what passes, what is rejected, what counts, and when.
//! Probes are in `shell_probe.rs`, futures in `shell_call.rs`, permits in `shell_permit.rs`.

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

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::Ask;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    AskError, BreakerConfigBuilder, CallError, CircuitState, Outcome, Reason, SlowCall, Timestamp,
    TripPolicy, TripRule, Window,
};
use harness::*;

/// A rule of one's own that trips at the second failure.
struct Second;

impl TripRule for Second {
    fn trips(&self, failures: &[Timestamp], _: Timestamp) -> bool {
        failures.len() >= 2
    }

    fn lookback(&self) -> Duration {
        BREAK
    }
}

/// Each kind of policy, set to trip at the second failure.
fn policies() -> Vec<BreakerConfigBuilder> {
    vec![
        consecutive(2),
        consecutive(2).trip(TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: Some(BREAK),
        }),
        count(2, BREAK),
        rate(1.0, 2, Window::Calls(10)),
        rate(1.0, 2, Window::Time(BREAK)),
        consecutive(1).trip(TripPolicy::FailureRate {
            rate: 1.0,
            minimum_calls: 2,
            window: Window::Time(BREAK),
            slow_call: Some(SlowCall::new(100 * MS, 1.0)),
        }),
        consecutive(1).trip(TripPolicy::Custom(Arc::new(Second))),
    ]
}

// R21, check 36: the target gets exactly the asks that were admitted.
#[actix::test]
async fn caller_of_the_tripping_failure_is_rejected_at_once() {
    for config in policies() {
        let w = world(config);
        w.bad().await;
        assert_eq!(w.state(), CircuitState::Closed);
        w.bad().await;
        assert_eq!(w.state(), CircuitState::Open);
        assert_eq!(w.rejected().await.reason(), Reason::Open);
        assert_eq!(w.seen.get(), 2);
    }
}

// R21
#[actix::test]
async fn caller_by_a_guard_is_rejected_at_once() {
    for config in policies() {
        let w = world(config);
        let guard = w.breaker.guard(w.target.clone());
        for _ in 0..2 {
            assert_eq!(guard.send(Job::Bad).await, Ok(Err(BAD)));
        }
        assert!(guard.send(Job::Good).await.unwrap_err().is_rejected());
        assert_eq!(w.seen.get(), 2);
    }
}

// R21
#[actix::test]
async fn caller_of_a_future_is_rejected_at_once() {
    for config in policies() {
        let w = world(config);
        for _ in 0..2 {
            let failed = w.breaker.call(async { Err::<(), _>(BAD) }).await;
            assert_eq!(failed, Err(CallError::Failed(BAD)));
        }
        let call = w.breaker.call(async { panic!("polled") as Answer });
        assert!(call.await.unwrap_err().is_rejected());
    }
}

// R21
#[actix::test]
async fn caller_with_a_permit_is_rejected_at_once() {
    for config in policies() {
        let w = world(config);
        for _ in 0..2 {
            w.breaker.acquire().await.unwrap().failure().await;
        }
        let error = w.breaker.acquire().await.unwrap_err();
        assert!(error.is_rejected());
    }
}

// R21
#[actix::test]
async fn caller_by_message_is_rejected_at_once() {
    for config in policies() {
        let w = world(config);
        let admin = w.breaker.addr().clone();
        let ask = |job| admin.send(Ask::new(w.target.clone().recipient(), job));
        for _ in 0..2 {
            assert_eq!(ask(Job::Bad).await.unwrap(), Ok(Err(BAD)));
        }
        assert!(ask(Job::Good).await.unwrap().unwrap_err().is_rejected());
        // By the handle, too: R27 publishes before it replies.
        assert!(w.ask(Job::Good).await.unwrap_err().is_rejected());
        assert_eq!(w.seen.get(), 2);
    }
}

// R21: callers at once. Each of them asks again when it has its failure.
#[actix::test]
async fn no_overlapping_caller_passes_after_its_own_tripping_failure() {
    let w = world(consecutive(3));
    let asks = (0..20).map(|_| async {
        let first = w.ask(Job::Bad).await;
        (first, w.ask(Job::Bad).await)
    });
    let done = futures::future::join_all(asks).await;
    let admitted: usize = done
        .iter()
        .map(|(first, second)| usize::from(first.is_ok()) + usize::from(second.is_ok()))
        .sum();
    assert_eq!(w.seen.get(), admitted);
    assert_eq!(w.state(), CircuitState::Open);
    // All were admitted before any failed; none was after.
    assert_eq!(admitted, 20);
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.calls.failures, snapshot.calls.late), (3, 17));
    assert_eq!(snapshot.calls.rejected, 20);
}

// R6, check 37
#[actix::test]
async fn closed_ask_goes_straight_to_the_target_and_a_rejected_one_never() {
    let w = world(consecutive(1));
    // The mailbox of the breaker is not touched: its actor has not even started.
    let ask = w.breaker.ask(&w.target, Job::Good);
    assert_eq!(ask.await, Ok(Ok(1)));
    w.trip().await;
    assert_eq!(w.seen.get(), 2);
    for _ in 0..63 {
        w.rejected().await;
    }
    let by_recipient = w.target.clone().recipient();
    let ask = w.breaker.ask(&by_recipient, Job::Good);
    assert!(ask.await.unwrap_err().is_rejected());
    pass(SECOND).await;
    assert_eq!(w.seen.get(), 2);
}

// As `addr.send` does: the message leaves without a poll.
#[actix::test]
async fn ask_is_eager() {
    let w = world(consecutive(1));
    let ask = w.breaker.ask(&w.target, Job::Good);
    pass(MS).await;
    assert_eq!(w.seen.get(), 1);
    assert_eq!(ask.await, Ok(Ok(1)));
}

#[actix::test]
async fn target_is_an_address_or_a_recipient() {
    let w = world(consecutive(1));
    let recipient = w.target.clone().recipient();
    assert_eq!(w.breaker.ask(&recipient, Job::Good).await, Ok(Ok(1)));
    let guard = w.breaker.guard(recipient.clone());
    assert_eq!(guard.send(Job::Good).await, Ok(Ok(1)));
    w.trip().await;
    pass(BREAK + MS).await;
    // A probe by each kind, too.
    assert_eq!(w.breaker.ask(&recipient, Job::Good).await, Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Closed);
}

/// An actor that asks from its handler, in the ways actix has.
struct Worker(actix_circuit_breaker::Guarded<Job>);

impl Actor for Worker {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Result<Answer, AskError>")]
struct Work(Job);

impl Handler<Work> for Worker {
    type Result = ResponseActFuture<Self, Result<Answer, AskError>>;

    fn handle(&mut self, Work(job): Work, _: &mut Context<Self>) -> Self::Result {
        Box::pin(self.0.send(job).into_actor(self).map(|reply, _, _| reply))
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Spawned(Job, tokio::sync::oneshot::Sender<Result<Answer, AskError>>);

impl Handler<Spawned> for Worker {
    type Result = ();

    fn handle(&mut self, Spawned(job, done): Spawned, ctx: &mut Context<Self>) {
        let ask = self.0.send(job);
        ctx.spawn(ask.into_actor(self).map(|reply, _, _| {
            done.send(reply).unwrap();
        }));
    }
}

#[actix::test]
async fn ask_works_as_an_actor_future_in_every_state() {
    let w = world(consecutive(1));
    let worker = Worker(w.breaker.guard(w.target.clone())).start();
    let spawned = async |job| {
        let (done, reply) = tokio::sync::oneshot::channel();
        worker.do_send(Spawned(job, done));
        reply.await.unwrap()
    };
    assert_eq!(worker.send(Work(Job::Good)).await.unwrap(), Ok(Ok(1)));
    assert_eq!(spawned(Job::Good).await, Ok(Ok(1)));
    assert_eq!(worker.send(Work(Job::Bad)).await.unwrap(), Ok(Err(BAD)));
    let rejected = worker.send(Work(Job::Good)).await.unwrap();
    assert!(rejected.unwrap_err().is_rejected());
    assert!(spawned(Job::Good).await.unwrap_err().is_rejected());
    pass(BREAK + MS).await;
    assert_eq!(spawned(Job::Bad).await, Ok(Err(BAD)));
    pass(BREAK + MS).await;
    assert_eq!(worker.send(Work(Job::Good)).await.unwrap(), Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Closed);
}

// R9: every field of a rejection, and `retry_after` to the microsecond, each time it is asked.
#[actix::test]
async fn rejection_tells_who_why_and_until_when() {
    let (clock, w) = manual(consecutive(1));
    clock.advance(5 * SECOND);
    w.trip().await;
    clock.advance(3 * SECOND);
    let open = w.rejected().await;
    assert_eq!(open.breaker(), "b");
    assert_eq!(open.reason(), Reason::Open);
    assert_eq!(open.epoch(), w.snapshot().await.epoch);
    // Case 74: the time left, not the time gone. Case 50: never a plain mailbox error.
    assert_eq!(open.retry_after(), Some(7 * SECOND));
    clock.advance(6_999_999 * Duration::from_micros(1));
    assert_eq!(open.retry_after(), Some(Duration::from_micros(1)));
    let again = w.ask(Job::Good).await.unwrap_err();
    assert_eq!(again.retry_after(), Some(Duration::from_micros(1)));
    clock.advance(BREAK);
    assert_eq!(open.retry_after(), Some(Duration::ZERO));

    let (release, job) = latch();
    let probe = w.breaker.ask(&w.target, job);
    pass(MS).await;
    let in_use = w.rejected().await;
    assert_eq!(in_use.reason(), Reason::ProbesInUse);
    assert_eq!(in_use.retry_after(), Some(SECOND));
    assert!(in_use.epoch() > open.epoch());
    release.send(Ok(2)).unwrap();
    assert_eq!(probe.await, Ok(Ok(2)));

    let order = ForceOpen::new("maintenance").ttl(4 * SECOND);
    w.breaker.force_open(order).await.unwrap().unwrap();
    clock.advance(SECOND);
    let forced = w.rejected().await;
    assert_eq!(forced.reason(), Reason::ForcedOpen);
    assert_eq!(forced.retry_after(), Some(3 * SECOND));
    let order = ForceOpen::new("maintenance");
    w.breaker.force_open(order).await.unwrap().unwrap();
    assert_eq!(w.rejected().await.retry_after(), None);
    assert_eq!(w.seen.get(), 2);
}

// R9: the lease of a probe ends before a second is over.
#[actix::test]
async fn rejection_for_probes_in_use_waits_for_the_first_lease_at_most() {
    let (clock, w) = manual(
        consecutive(1)
            .call_timeout(100 * MS)
            .probe_timeout(400 * MS),
    );
    w.trip().await;
    clock.advance(BREAK);
    let permit = w.breaker.acquire().await.unwrap();
    clock.advance(150 * MS);
    let in_use = w.rejected().await;
    assert_eq!(in_use.retry_after(), Some(250 * MS));
    drop(permit);
}

// R9: rejections are counted as rejected, nothing else; case 46.
#[actix::test]
async fn rejections_leave_no_trace_but_their_count() {
    let (clock, w) = manual(rate(0.5, 4, Window::Time(60 * SECOND)));
    for _ in 0..4 {
        w.bad().await;
    }
    let before = w.snapshot().await;
    for _ in 0..1_000 {
        w.rejected().await;
    }
    let after = w.snapshot().await;
    assert_eq!(after.calls.rejected, before.calls.rejected + 1_000);
    assert_eq!((after.epoch, after.until), (before.epoch, before.until));
    assert_eq!(after.calls.failures, 4);
    clock.advance(BREAK);
    w.good().await;
    w.bad().await;
    for _ in 0..3 {
        w.good().await;
    }
    // A quarter of four.
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(w.snapshot().await.samples, 4);
}

// R9, case 10: rejections never move the deadline.
#[actix::test]
async fn rejections_do_not_put_off_the_probe() {
    let (clock, w) = manual(consecutive(2));
    w.trip().await;
    for left in (1..10).rev() {
        clock.advance(SECOND);
        assert_eq!(w.rejected().await.retry_after(), Some(left * SECOND));
    }
    clock.advance(SECOND);
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R19: what a reply amounts to. `Err` is a failure, all other replies are successes.
#[actix::test]
async fn error_reply_is_a_failure_and_breaks_no_more_than_it_should() {
    let w = world(consecutive(2));
    w.bad().await;
    w.good().await;
    // Case 52: the success ended the run.
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(w.snapshot().await.failures, 1);
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R19, check 44: the classifier of an ask decides, in half-open as in closed.
#[actix::test]
async fn classifier_excuses_and_accuses_in_every_state() {
    let w = world(consecutive(1));
    let excused = |_: &Answer| Outcome::Ignored;
    let praised = |_: &Answer| Outcome::Success;
    let accused = |_: &Answer| Outcome::Failure;
    let ask = w.breaker.ask_with(&w.target, Job::Bad, excused);
    assert_eq!(ask.await, Ok(Err(BAD)));
    let ask = w.breaker.ask_with(&w.target, Job::Bad, praised);
    assert_eq!(ask.await, Ok(Err(BAD)));
    assert_eq!(w.state(), CircuitState::Closed);
    let ask = w.breaker.ask_with(&w.target, Job::Good, accused);
    assert_eq!(ask.await, Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Open);

    pass(BREAK + MS).await;
    let ask = w.breaker.ask_with(&w.target, Job::Bad, excused);
    assert_eq!(ask.await, Ok(Err(BAD)));
    assert_eq!(w.state(), CircuitState::HalfOpen);
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.inconclusive, snapshot.probes_in_flight), (1, 0));
    let ask = w.breaker.ask_with(&w.target, Job::Good, accused);
    assert_eq!(ask.await, Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Open);
    pass(BREAK + MS).await;
    let ask = w.breaker.ask_with(&w.target, Job::Bad, praised);
    assert_eq!(ask.await, Ok(Err(BAD)));
    assert_eq!(w.state(), CircuitState::Closed);
}

#[actix::test]
async fn guard_with_a_classifier_and_the_message_with_one() {
    let w = world(consecutive(1));
    let guard = w
        .breaker
        .guard_with(w.target.clone(), |reply: &Answer| match reply {
            Err(BAD) => Outcome::Ignored,
            _ => Outcome::Success,
        });
    assert_eq!(guard.send(Job::Bad).await, Ok(Err(BAD)));
    assert_eq!(guard.clone().send(Job::Bad).await, Ok(Err(BAD)));
    assert_eq!(guard.breaker().name(), "b");
    let by_message = Ask::with(w.target.clone().recipient(), Job::Bad, |_: &Answer| {
        Outcome::Ignored
    });
    let reply = w.breaker.addr().send(by_message).await.unwrap();
    assert_eq!(reply, Ok(Err(BAD)));
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(w.snapshot().await.calls.ignored, 3);
    let by_message = Ask::with(w.target.clone().recipient(), Job::Good, |_: &Answer| {
        Outcome::Failure
    });
    let reply = w.breaker.addr().send(by_message).await.unwrap();
    assert_eq!(reply, Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Open);
}

// R19, check 40: a target that is gone.
#[actix::test]
async fn closed_mailbox_of_the_target_is_a_failure() {
    let w = world(consecutive(2));
    assert_eq!(w.ask(Job::Stop).await, Err(AskError::Closed));
    assert_eq!(w.snapshot().await.failures, 1);
    assert_eq!(w.ask(Job::Good).await, Err(AskError::Closed));
    assert_eq!(w.state(), CircuitState::Open);
    // As a probe, too.
    pass(BREAK + MS).await;
    assert_eq!(w.ask(Job::Good).await, Err(AskError::Closed));
    assert_eq!(w.state(), CircuitState::Open);
    assert_eq!(w.snapshot().await.attempt, 1);
}

// R19: a panic in the target's handler looks the same from outside.
#[actix::test]
async fn panic_in_the_target_is_a_failure() {
    let w = world(consecutive(1));
    assert_eq!(w.ask(Job::Panic).await, Err(AskError::Closed));
    assert_eq!(w.state(), CircuitState::Open);
    pass(BREAK + MS).await;
    let (other, seen) = target();
    assert_eq!(
        w.breaker.ask(&other, Job::Panic).await,
        Err(AskError::Closed)
    );
    assert_eq!(seen.get(), 1);
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Open);
    assert_eq!((snapshot.restarts, snapshot.attempt), (0, 1));
    // By message.
    w.breaker.reset().await.unwrap();
    let (other, _) = target();
    let ask = Ask::new(other.recipient(), Job::Panic);
    let reply = w.breaker.addr().send(ask).await.unwrap();
    assert_eq!(reply, Err(AskError::Closed));
    assert_eq!(w.state(), CircuitState::Open);
}

// R19, check 40: a target that its own supervisor restarts.
#[actix::test]
async fn restarted_target_recovers_by_a_probe() {
    let w = world(consecutive(1));
    let seen = Counter::default();
    let actor = Target { seen: seen.clone() };
    let supervised = Supervisor::start(|_| actor);
    let ask = w.breaker.ask(&supervised, Job::Stop).await;
    assert_eq!(ask, Err(AskError::Closed));
    assert_eq!(w.state(), CircuitState::Open);
    pass(BREAK + MS).await;
    let ask = w.breaker.ask(&supervised, Job::Good).await;
    assert_eq!(ask, Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(seen.get(), 2);
}

// `send` is never held back by a full mailbox, and so no ask is.
#[actix::test]
async fn asks_pass_above_the_capacity_of_the_target() {
    let w = world(consecutive(1));
    // 16 is what actix gives a mailbox.
    let asks: Vec<_> = (0..200)
        .map(|_| w.breaker.ask(&w.target, Job::Good))
        .collect();
    for reply in futures::future::join_all(asks).await {
        assert_eq!(reply, Ok(Ok(1)));
    }
    assert_eq!(w.seen.get(), 200);
    assert_eq!(w.state(), CircuitState::Closed);
}

// R20, checks 38: the trip happens when the time is over, not when the next call looks. Case 62.
#[actix::test]
async fn timeout_trips_when_it_expires() {
    let w = world(consecutive(1));
    let (_recorder, told) = w.record().await;
    let before = w.snapshot().await.at;
    let reply = w.ask(Job::Hang).await;
    assert_eq!(reply, Err(AskError::Timeout(SECOND)));
    assert_eq!(w.state(), CircuitState::Open);
    pass(MS).await;
    let late = told.last().at.since(before) - SECOND;
    assert!(late <= 2 * MS, "{late:?} late");
}

// R20: nobody looks at the one that waits.
#[actix::test]
async fn timeout_trips_while_nobody_asks() {
    let w = world(consecutive(1));
    let mut watch = w.breaker.watch();
    assert_eq!(*watch.borrow_and_update(), CircuitState::Closed);
    let waiting = actix::spawn(w.breaker.ask(&w.target, Job::Hang));
    watch.changed().await.unwrap();
    assert_eq!(*watch.borrow(), CircuitState::Open);
    assert_eq!(waiting.await.unwrap(), Err(AskError::Timeout(SECOND)));
}

// Checks 38, cases 64 and 68: a late reply changes nothing, nothing is counted twice.
#[actix::test]
async fn late_reply_changes_nothing() {
    let w = world(consecutive(4));
    for _ in 0..2 {
        let late = Job::Late(2 * SECOND, Err(BAD));
        assert_eq!(w.ask(late).await, Err(AskError::Timeout(SECOND)));
    }
    pass(10 * SECOND).await;
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.failures, 2);
    assert_eq!((snapshot.calls.failures, snapshot.calls.late), (2, 0));
    assert_eq!(snapshot.state, CircuitState::Closed);
    // A late success does not end the run either.
    for _ in 0..2 {
        let late = Job::Late(2 * SECOND, Ok(1));
        assert_eq!(w.ask(late).await, Err(AskError::Timeout(SECOND)));
    }
    assert_eq!(w.state(), CircuitState::Open);
    pass(5 * SECOND).await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R20: the message that the target had no time to begin with is withdrawn.
#[actix::test]
async fn timed_out_message_is_withdrawn_from_the_queue() {
    struct Busy(Counter);
    impl Actor for Busy {
        type Context = Context<Self>;
        fn started(&mut self, ctx: &mut Context<Self>) {
            ctx.wait(actix::fut::wrap_future(tokio::time::sleep(10 * SECOND)));
        }
    }
    impl Handler<Job> for Busy {
        type Result = Answer;
        fn handle(&mut self, _: Job, _: &mut Context<Self>) -> Answer {
            self.0.add();
            Ok(1)
        }
    }
    let w = world(consecutive(9));
    let seen = Counter::default();
    let busy = Busy(seen.clone()).start();
    for _ in 0..5 {
        let ask = w.breaker.ask(&busy, Job::Good).await;
        assert_eq!(ask, Err(AskError::Timeout(SECOND)));
    }
    pass(20 * SECOND).await;
    assert_eq!(seen.get(), 0);
    assert_eq!(w.breaker.ask(&busy, Job::Good).await, Ok(Ok(1)));
}

// Case 65: a reply that is a timeout error of the target's own is a failure like any other.
#[actix::test]
async fn timeout_error_of_the_target_is_a_failure() {
    let w = world(consecutive(2));
    for _ in 0..2 {
        let reply = w.ask(Job::Late(100 * MS, Err(Oops(504)))).await;
        assert_eq!(reply, Ok(Err(Oops(504))));
    }
    assert_eq!(w.state(), CircuitState::Open);
}

#[actix::test]
async fn guard_has_a_call_timeout_of_its_own() {
    let w = world(consecutive(9));
    let quick = w.breaker.guard(w.target.clone()).call_timeout(50 * MS);
    let slow = w.breaker.guard(w.target.clone()).call_timeout(5 * SECOND);
    let hung = quick.send(Job::Hang).await;
    assert_eq!(hung, Err(AskError::Timeout(50 * MS)));
    let late = slow.send(Job::Late(3 * SECOND, Ok(3))).await;
    assert_eq!(late, Ok(Ok(3)));
    let hung = slow.send(Job::Hang).await;
    assert_eq!(hung, Err(AskError::Timeout(5 * SECOND)));
    let hung = w.ask(Job::Hang).await;
    assert_eq!(hung, Err(AskError::Timeout(SECOND)));
    assert_eq!(w.snapshot().await.calls.failures, 3);
}

#[actix::test]
async fn message_has_a_call_timeout_of_its_own() {
    let w = world(consecutive(1));
    let ask = Ask::new(w.target.clone().recipient(), Job::Hang);
    let reply = w.breaker.addr().send(ask).await.unwrap();
    assert_eq!(reply, Err(AskError::Timeout(SECOND)));
    assert_eq!(w.state(), CircuitState::Open);
    w.breaker.reset().await.unwrap();
    let ask = Ask::new(w.target.clone().recipient(), Job::Hang).call_timeout(3 * SECOND);
    let reply = w.breaker.addr().send(ask).await.unwrap();
    assert_eq!(reply, Err(AskError::Timeout(3 * SECOND)));
    assert_eq!(w.state(), CircuitState::Open);
}

// R20: it begins when the ask is first found waiting.
#[actix::test]
async fn call_timeout_begins_at_the_first_pending_poll() {
    let w = world(consecutive(9));
    let ask = w.breaker.ask(&w.target, Job::Late(2_500 * MS, Ok(1)));
    pass(2 * SECOND).await;
    assert_eq!(ask.await, Ok(Ok(1)));
}

// R18: a timeout is one sample, failed and slow; a slow reply counts as slow.
#[actix::test]
async fn slow_replies_trip_though_they_succeed() {
    let w = world(consecutive(1).trip(TripPolicy::FailureRate {
        rate: 1.0,
        minimum_calls: 4,
        window: Window::Calls(4),
        slow_call: Some(SlowCall::new(200 * MS, 0.5)),
    }));
    w.good().await;
    w.good().await;
    let slow = w.ask(Job::Late(200 * MS, Ok(2))).await;
    assert_eq!(slow, Ok(Ok(2)));
    let snapshot = w.snapshot().await;
    assert_eq!(
        (snapshot.samples, snapshot.slow_calls, snapshot.failures),
        (3, 1, 0)
    );
    assert_eq!(w.ask(Job::Hang).await, Err(AskError::Timeout(SECOND)));
    assert_eq!(w.state(), CircuitState::Open);
    // A slow success of a probe is a failure.
    pass(BREAK + MS).await;
    let slow = w.ask(Job::Late(300 * MS, Ok(2))).await;
    assert_eq!(slow, Ok(Ok(2)));
    assert_eq!(w.state(), CircuitState::Open);
    assert_eq!(w.snapshot().await.attempt, 1);
}

// R18: at or above the limit, also where the timer had no turn before the reply.
#[actix::test]
async fn call_is_slow_from_its_limit_on_whoever_notices_first() {
    // Timers round up to a millisecond.
    for (took, slow) in [(98, false), (100, true), (101, true)] {
        for way in 0..3 {
            let w = world(consecutive(1).trip(TripPolicy::FailureRate {
                rate: 1.0,
                minimum_calls: 2,
                window: Window::Calls(2),
                slow_call: Some(SlowCall::new(100 * MS, 1.0)),
            }));
            let job = Job::Late(took * MS, Ok(1));
            match way {
                0 => assert_eq!(w.ask(job).await, Ok(Ok(1))),
                1 => {
                    let call = w.breaker.call(async {
                        pass(took * MS).await;
                        Ok::<_, Oops>(1)
                    });
                    assert_eq!(call.await, Ok(1));
                }
                _ => {
                    let ask = Ask::new(w.target.clone().recipient(), job);
                    let reply = w.breaker.addr().send(ask).await.unwrap();
                    assert_eq!(reply, Ok(Ok(1)));
                }
            }
            let slow_calls = w.snapshot().await.slow_calls;
            assert_eq!(slow_calls, u64::from(slow), "{took} {way}");
        }
    }
}

// R18: a thread that was busy when the reply came.
#[actix::test]
async fn reply_that_is_noticed_late_is_a_slow_one() {
    let w = world(consecutive(1).trip(TripPolicy::FailureRate {
        rate: 1.0,
        minimum_calls: 2,
        window: Window::Calls(2),
        slow_call: Some(SlowCall::new(100 * MS, 1.0)),
    }));
    let mut ask = Box::pin(w.breaker.ask(&w.target, Job::Late(50 * MS, Ok(1))));
    assert!(poll_once(&mut ask).await.is_pending());
    pass(200 * MS).await;
    assert_eq!(ask.await, Ok(Ok(1)));
    assert_eq!(w.snapshot().await.slow_calls, 1);
}

// Every way to ask, in every state (R6, R7, R23).
#[actix::test]
async fn each_way_to_ask_heeds_each_state() {
    let passes = async |w: &World| {
        let guard = w.breaker.guard(w.target.clone());
        let with = w
            .breaker
            .guard_with(w.target.clone(), |_: &Answer| Outcome::Success);
        let admin = w.breaker.addr();
        let recipient = w.target.clone().recipient();
        let success = |_: &Answer| Outcome::Success;
        let mut passed = Vec::new();
        passed.push(w.breaker.ask(&w.target, Job::Good).await.is_ok());
        passed.push(w.breaker.ask(&recipient, Job::Good).await.is_ok());
        let ask = w.breaker.ask_with(&w.target, Job::Good, success);
        passed.push(ask.await.is_ok());
        passed.push(guard.send(Job::Good).await.is_ok());
        passed.push(with.send(Job::Good).await.is_ok());
        let good = || async { Ok::<_, Oops>(1) };
        passed.push(w.breaker.call(good()).await.is_ok());
        passed.push(w.breaker.call_with(good(), success).await.is_ok());
        passed.push(w.breaker.clone().into_call(good()).await.is_ok());
        let call = w.breaker.clone().into_call_with(good(), success);
        passed.push(call.await.is_ok());
        passed.push(match w.breaker.acquire().await {
            Ok(permit) => {
                permit.success().await;
                true
            }
            Err(_) => false,
        });
        let ask = Ask::new(recipient.clone(), Job::Good);
        passed.push(admin.send(ask).await.unwrap().is_ok());
        let ask = Ask::with(recipient, Job::Good, success);
        passed.push(admin.send(ask).await.unwrap().is_ok());
        assert_eq!(passed.len(), 12);
        passed
    };
    let w = world(consecutive(1).max_probes(2).successes_to_close(1_000));
    assert_eq!(passes(&w).await, [true; 12]);
    w.trip().await;
    assert_eq!(passes(&w).await, [false; 12]);
    pass(BREAK + MS).await;
    assert_eq!(passes(&w).await, [true; 12]);
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::HalfOpen);
    assert_eq!((snapshot.successes, snapshot.probes_in_flight), (12, 0));
    let held = [
        w.breaker.acquire().await.unwrap(),
        w.breaker.acquire().await.unwrap(),
    ];
    assert_eq!(passes(&w).await, [false; 12]);
    drop(held);
    let order = ForceOpen::new("drill");
    w.breaker.force_open(order).await.unwrap().unwrap();
    assert_eq!(passes(&w).await, [false; 12]);
    let order = ForceClosed::new("drill");
    w.breaker.force_closed(order).await.unwrap().unwrap();
    w.bad().await;
    assert_eq!(passes(&w).await, [true; 12]);
}

// Check 46
#[actix::test]
async fn two_breakers_know_nothing_of_each_other() {
    let w = world(consecutive(1));
    let config = consecutive(1).build().unwrap();
    let other = w.breakers.create("other", config).unwrap();
    w.trip().await;
    assert_eq!(other.state(), CircuitState::Closed);
    assert_eq!(other.ask(&w.target, Job::Good).await, Ok(Ok(1)));
    w.rejected().await;
}

#[actix::test]
async fn futures_that_are_done_stay_pending() {
    let w = world(consecutive(1));
    let mut ask = Box::pin(w.breaker.ask(&w.target, Job::Bad));
    assert_eq!((&mut ask).await, Ok(Err(BAD)));
    assert!(poll_once(&mut ask).await.is_pending());
    let mut ask = Box::pin(w.breaker.ask(&w.target, Job::Good));
    assert!((&mut ask).await.is_err());
    assert!(poll_once(&mut ask).await.is_pending());
    let mut acquire = Box::pin(w.breaker.acquire());
    assert!((&mut acquire).await.is_err());
    assert!(poll_once(&mut acquire).await.is_pending());
    pass(BREAK + MS).await;
    let mut ask = Box::pin(w.breaker.ask(&w.target, Job::Good));
    assert_eq!((&mut ask).await, Ok(Ok(1)));
    assert!(poll_once(&mut ask).await.is_pending());
}
