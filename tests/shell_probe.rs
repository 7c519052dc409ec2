//! From open to a probe, and what becomes of probes: by timer, by the net under it, with and without
//! their callers.

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

use actix_circuit_breaker::message::Ask;
use actix_circuit_breaker::{
    AskError, Breakers, Cause, CircuitState, Clock, ManualClock, Outcome, Reason, Timestamp,
};
use harness::*;

// R4, R6, R8
#[actix::test]
async fn first_ask_after_the_break_is_a_probe_by_the_timer() {
    let w = world(consecutive(1));
    w.trip().await;
    // Timers round up to a millisecond.
    pass(BREAK - 2 * MS).await;
    assert_eq!(w.rejected().await.reason(), Reason::Open);
    assert!(!w.snapshot().await.probe_due);
    pass(2 * MS).await;
    // Cases 7, 137: looking moves nothing and takes nothing.
    for _ in 0..3 {
        let snapshot = w.snapshot().await;
        assert!(snapshot.probe_due);
        assert_eq!(snapshot.state, CircuitState::Open);
        assert_eq!(snapshot.retry_after, None);
        assert_eq!(w.state(), CircuitState::Open);
    }
    let (release, job) = latch();
    let probe = w.breaker.ask(&w.target, job);
    pass(MS).await;
    assert_eq!(w.state(), CircuitState::HalfOpen);
    release.send(Ok(5)).unwrap();
    assert_eq!(probe.await, Ok(Ok(5)));
    assert_eq!(w.state(), CircuitState::Closed);
}

// Case 25: time alone never closes.
#[actix::test]
async fn idle_open_breaker_meets_one_probe_after_any_time() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(100_000 * SECOND).await;
    assert_eq!(w.state(), CircuitState::Open);
    let (_release, job) = latch();
    let _probe = w.breaker.ask(&w.target, job);
    for _ in 0..19 {
        assert_eq!(w.rejected().await.reason(), Reason::ProbesInUse);
    }
    assert_eq!(w.state(), CircuitState::HalfOpen);
}

/// A clock that says it drives timers but does not: they come late, early or never.
#[derive(Debug, Clone, Default)]
struct Untrue(ManualClock);

impl Clock for Untrue {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

fn untrue() -> (ManualClock, World) {
    pause();
    let clock = Untrue::default();
    let builder = Breakers::builder().clock(Arc::new(clock.clone()));
    (clock.0, world_of(builder, consecutive(1)))
}

// R28: a timer that never fires.
#[actix::test]
async fn lost_timer_costs_63_rejections_at_most() {
    let (clock, w) = untrue();
    w.trip().await;
    clock.advance(BREAK);
    for _ in 0..63 {
        assert_eq!(w.rejected().await.reason(), Reason::Open);
    }
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(w.snapshot().await.calls.rejected, 63);
}

// R28: any message does as well.
#[actix::test]
async fn lost_timer_is_made_up_for_by_the_next_message() {
    let (clock, w) = untrue();
    w.trip().await;
    clock.advance(BREAK);
    w.rejected().await;
    w.snapshot().await;
    w.good().await;
}

// R28: a timer that fires before the break is over.
#[actix::test]
async fn early_timer_ends_no_break() {
    let (clock, w) = untrue();
    let (_recorder, told) = w.record().await;
    w.trip().await;
    pass(3 * BREAK).await;
    assert_eq!(w.rejected().await.retry_after(), Some(BREAK));
    clock.advance(BREAK - MS);
    pass(3 * BREAK).await;
    assert_eq!(w.rejected().await.retry_after(), Some(MS));
    assert_eq!(told.causes(), [Cause::Present, Cause::Tripped]);
    // It was set again each time, so the break is found to be over without a call.
    clock.advance(MS);
    pass(BREAK).await;
    w.good().await;
}

// R28: a clock without timers. Every rejection looks at it.
#[actix::test]
async fn breaker_on_a_manual_clock_is_due_at_once() {
    let (clock, w) = manual(consecutive(1));
    w.trip().await;
    pass(10 * BREAK).await;
    w.rejected().await;
    clock.advance(BREAK - Duration::from_micros(1));
    w.rejected().await;
    clock.advance(Duration::from_micros(1));
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(w.snapshot().await.calls.rejected, 2);
}

// R16: timers are what ends a call, and this clock does not drive them.
#[actix::test]
async fn probe_on_a_manual_clock_has_its_whole_time() {
    let (clock, w) = manual(consecutive(1));
    w.trip().await;
    clock.advance(BREAK);
    let mut call = Box::pin(w.breaker.call(async {
        pass(500 * MS).await;
        Ok::<_, Oops>(1)
    }));
    assert!(poll_once(&mut call).await.is_pending());
    quiet().await;
    // Between its admission and its start.
    clock.advance(2 * SECOND);
    assert_eq!(call.await, Ok(1));
    assert_eq!(w.state(), CircuitState::Closed);
}

// R7, check 39, cases 16, 19 and 47
#[actix::test]
async fn probe_in_flight_keeps_fifty_others_out() {
    let w = world(consecutive(1));
    let (_recorder, told) = w.record().await;
    w.trip().await;
    pass(BREAK + MS).await;
    let (release, job) = latch();
    let probe = w.breaker.ask(&w.target, job);
    let others = (0..50).map(|_| w.breaker.ask(&w.target, Job::Good));
    for other in futures::future::join_all(others).await {
        let rejected = match other {
            Err(AskError::Rejected(rejected)) => rejected,
            other => panic!("{other:?}"),
        };
        assert_eq!(rejected.reason(), Reason::ProbesInUse);
        assert!(rejected.retry_after().unwrap() > Duration::ZERO);
    }
    assert_eq!(w.seen.get(), 2);
    release.send(Ok(3)).unwrap();
    assert_eq!(probe.await, Ok(Ok(3)));
    pass(MS).await;
    use Cause::{Present, ProbeDue, Recovered, Tripped};
    assert_eq!(told.causes(), [Present, Tripped, ProbeDue, Recovered]);
    assert_eq!(told.last().evidence.successes, 1);
    assert_eq!(w.snapshot().await.calls.rejected, 50);
}

// R7, case 20: the limit holds for the whole call timeout; one event for three timeouts.
#[actix::test]
async fn hanging_target_never_gets_more_probes_than_allowed() {
    let w = world(
        consecutive(1)
            .max_probes(3)
            .call_timeout(30 * SECOND)
            .probe_timeout(61 * SECOND),
    );
    let (_recorder, told) = w.record().await;
    w.trip().await;
    pass(BREAK + MS).await;
    let mut hanging = Vec::new();
    for _ in 0..290 {
        for _ in 0..10 {
            hanging.push(actix::spawn(w.breaker.ask(&w.target, Job::Hang)));
        }
        pass(100 * MS).await;
    }
    assert_eq!(w.seen.get(), 1 + 3);
    assert_eq!(w.snapshot().await.probes_in_flight, 3);
    pass(2 * SECOND).await;
    let mut timeouts = 0;
    for ask in hanging {
        match ask.await.unwrap() {
            Err(AskError::Timeout(limit)) => {
                assert_eq!(limit, 30 * SECOND);
                timeouts += 1;
            }
            other => assert!(other.unwrap_err().is_rejected()),
        }
    }
    assert_eq!(timeouts, 3);
    use Cause::{Present, ProbeDue, ProbeFailed, Tripped};
    assert_eq!(told.causes(), [Present, Tripped, ProbeDue, ProbeFailed]);
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.calls.failures, snapshot.calls.late), (2, 2));
}

// R13, case 14: a slot is used in turn, ignored outcomes give it back at once.
#[actix::test]
async fn slot_is_free_for_the_next_probe_at_once() {
    let w = world(consecutive(1).successes_to_close(2));
    w.trip().await;
    pass(BREAK + MS).await;
    let ignored = |_: &Answer| Outcome::Ignored;
    for ignore in [true, true, false, true] {
        if ignore {
            let ask = w.breaker.ask_with(&w.target, Job::Bad, ignored);
            assert_eq!(ask.await, Ok(Err(BAD)));
        } else {
            w.good().await;
        }
        assert_eq!(w.state(), CircuitState::HalfOpen);
    }
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R15, case 13
#[actix::test]
async fn too_many_inconclusive_probes_open_again() {
    let w = world(consecutive(1).max_inconclusive(3));
    let (_recorder, told) = w.record().await;
    w.trip().await;
    pass(BREAK + MS).await;
    for _ in 0..3 {
        let ask = w
            .breaker
            .ask_with(&w.target, Job::Good, |_: &Answer| Outcome::Ignored);
        assert_eq!(ask.await, Ok(Ok(1)));
    }
    assert_eq!(w.rejected().await.reason(), Reason::Open);
    pass(MS).await;
    assert_eq!(told.last().cause, Cause::Inconclusive);
    assert_eq!(told.last().evidence.inconclusive, 3);
    assert_eq!(w.snapshot().await.attempt, 0);
}

// R10, case 28: impatient callers of a healthy target do not keep its breaker open.
#[actix::test]
async fn probe_outlives_its_caller_and_closes() {
    let w = world(consecutive(1));
    let guard = w.breaker.guard(w.target.clone());
    for way in 0..3 {
        w.trip().await;
        pass(BREAK + MS).await;
        let job = Job::Late(300 * MS, Ok(1));
        match way {
            0 => {
                let ask = w.breaker.ask(&w.target, job);
                tokio::time::timeout(100 * MS, ask).await.unwrap_err();
            }
            1 => {
                let ask = guard.send(job);
                tokio::time::timeout(100 * MS, ask).await.unwrap_err();
            }
            _ => {
                let ask = Ask::new(w.target.clone().recipient(), job);
                let ask = w.breaker.addr().send(ask);
                tokio::time::timeout(100 * MS, ask).await.unwrap_err();
            }
        }
        // Its slot is still held.
        assert_eq!(w.rejected().await.reason(), Reason::ProbesInUse);
        let mut watch = w.breaker.watch();
        assert_eq!(*watch.borrow_and_update(), CircuitState::HalfOpen);
        watch.changed().await.unwrap();
        assert_eq!(w.state(), CircuitState::Closed);
        assert_eq!(w.snapshot().await.probes_in_flight, 0);
    }
}

// R10
#[actix::test]
async fn probe_without_its_caller_fails_or_times_out_as_any_other() {
    let w = world(consecutive(1));
    w.trip().await;
    for (job, failures) in [(Job::Late(300 * MS, Err(BAD)), 2), (Job::Hang, 3)] {
        pass(BREAK + MS).await;
        let ask = w.breaker.ask(&w.target, job);
        tokio::time::timeout(100 * MS, ask).await.unwrap_err();
        let mut watch = w.breaker.watch();
        watch.borrow_and_update();
        watch.changed().await.unwrap();
        assert_eq!(w.state(), CircuitState::Open);
        assert_eq!(w.snapshot().await.calls.failures, failures);
    }
    // At its expiry.
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.attempt, 2);
    assert!(snapshot.retry_after.unwrap() > BREAK - 2 * MS);
}

// R10: an ask that the breaker has not handled yet asks nobody and takes nothing.
#[actix::test]
async fn probe_that_is_still_queued_is_withdrawn_with_its_caller() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    drop(w.breaker.ask(&w.target, Job::Good));
    pass(MS).await;
    assert_eq!(w.seen.get(), 1);
    assert_eq!(w.state(), CircuitState::Open);
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R10: nobody reads the reply, and nobody has to.
#[actix::test]
async fn probe_sent_and_forgotten_counts() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    let ask = Ask::new(w.target.clone().recipient(), Job::Good);
    w.breaker.addr().do_send(ask);
    pass(MS).await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R16: a guard whose asks may take longer than the breaker's gets a longer lease.
#[actix::test]
async fn probe_with_a_long_timeout_keeps_its_slot() {
    let w = world(consecutive(1));
    let slow = w.breaker.guard(w.target.clone()).call_timeout(60 * SECOND);
    w.trip().await;
    pass(BREAK + MS).await;
    let probe = actix::spawn(slow.send(Job::Late(50 * SECOND, Ok(1))));
    for _ in 0..49 {
        pass(SECOND).await;
        assert_eq!(w.rejected().await.reason(), Reason::ProbesInUse);
    }
    assert_eq!(probe.await.unwrap(), Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(w.snapshot().await.calls.lost_probes, 0);
    assert_eq!(w.seen.get(), 2);
}

// R16: it is bounded for all that: twice its timeout.
#[actix::test]
async fn permit_holds_its_slot_for_its_lease_and_its_outcome_counts_after() {
    let (clock, w) = manual(consecutive(1).probe_timeout(4 * SECOND));
    w.trip().await;
    clock.advance(BREAK);
    let first = w.breaker.acquire().await.unwrap();
    clock.advance(4 * SECOND - Duration::from_micros(1));
    assert!(w.breaker.acquire().await.unwrap_err().is_rejected());
    clock.advance(Duration::from_micros(1));
    let second = w.breaker.acquire().await.unwrap();
    assert_eq!(w.snapshot().await.calls.lost_probes, 1);
    assert!(w.breaker.acquire().await.unwrap_err().is_rejected());
    first.success().await;
    assert_eq!(w.state(), CircuitState::Closed);
    second.failure().await;
    let snapshot = w.snapshot().await;
    assert_eq!(
        (snapshot.state, snapshot.calls.late),
        (CircuitState::Closed, 1)
    );
}

// R16: the lease of a mediated probe is never shorter than twice its timeout.
#[actix::test]
async fn lease_of_a_long_probe_ends_at_twice_its_timeout() {
    let (clock, w) = manual(consecutive(1));
    w.trip().await;
    clock.advance(BREAK);
    let slow = w.breaker.guard(w.target.clone()).call_timeout(60 * SECOND);
    let _probe = slow.send(Job::Hang);
    quiet().await;
    clock.advance(120 * SECOND - Duration::from_micros(1));
    assert_eq!(w.rejected().await.reason(), Reason::ProbesInUse);
    clock.advance(Duration::from_micros(1));
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R11, case 34: results from before the trip move nothing in half-open.
#[actix::test]
async fn straggler_from_before_the_trip_settles_no_round() {
    let w = world(consecutive(1).call_timeout(60 * SECOND));
    let (good, job) = latch();
    let first = w.breaker.ask(&w.target, job);
    let (bad, job) = latch();
    let second = w.breaker.ask(&w.target, job);
    let (open, job) = latch();
    let third = w.breaker.ask(&w.target, job);
    w.trip().await;
    // Case 35: a success while open.
    open.send(Ok(0)).unwrap();
    assert_eq!(third.await, Ok(Ok(0)));
    w.rejected().await;
    pass(BREAK + MS).await;
    let (release, job) = latch();
    let probe = w.breaker.ask(&w.target, job);
    pass(MS).await;
    good.send(Ok(1)).unwrap();
    bad.send(Err(BAD)).unwrap();
    assert_eq!(first.await, Ok(Ok(1)));
    assert_eq!(second.await, Ok(Err(BAD)));
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::HalfOpen);
    assert_eq!((snapshot.probes_in_flight, snapshot.successes), (1, 0));
    assert_eq!(snapshot.calls.late, 3);
    release.send(Ok(2)).unwrap();
    assert_eq!(probe.await, Ok(Ok(2)));
    assert_eq!(w.state(), CircuitState::Closed);
}

// Case 67: reply and timer at the same instant, in either order: one verdict, one event.
#[actix::test]
async fn reply_at_the_instant_of_the_timeout_settles_once() {
    for offset in [-1_i64, 0, 1] {
        let w = world(consecutive(1));
        let (_recorder, told) = w.record().await;
        w.trip().await;
        pass(BREAK + MS).await;
        let after = Duration::from_millis(u64::try_from(1_000 + offset).unwrap());
        let reply = w.ask(Job::Late(after, Ok(1))).await;
        pass(5 * SECOND).await;
        let snapshot = w.snapshot().await;
        assert_eq!(told.len(), 4, "{:?}", told.causes());
        match reply {
            Ok(_) => assert_eq!(snapshot.state, CircuitState::Closed),
            Err(_) => assert_eq!(snapshot.state, CircuitState::Open),
        }
        assert_eq!(snapshot.calls.successes + snapshot.calls.failures, 2);
        assert_eq!(snapshot.calls.late, 0);
    }
}

// Case 130: an outage of an hour, with a caller a second, piles little up in the target.
#[actix::test]
async fn long_outage_leaves_few_unanswered_messages_in_the_target() {
    let w = world(
        consecutive(1)
            .break_duration(SECOND)
            .backoff(actix_circuit_breaker::Backoff::new(2.0, 60 * SECOND)),
    );
    for _ in 0..3_600 {
        actix::spawn(w.breaker.ask(&w.target, Job::Hang));
        pass(SECOND).await;
    }
    assert!(w.seen.get() <= 70, "{}", w.seen.get());
    assert!(w.seen.get() >= 50, "{}", w.seen.get());
}
