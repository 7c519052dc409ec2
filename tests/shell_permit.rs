//! Permits of one's own, and futures given up at every point where they wait.

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

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use actix_circuit_breaker::{AskError, CircuitState, Permit, SlowCall, TripPolicy, Window};
use harness::*;

#[actix::test]
async fn permit_settles_as_it_is_told() {
    let w = world(consecutive(2));
    w.breaker.acquire().await.unwrap().failure().await;
    w.breaker.acquire().await.unwrap().ignore().await;
    assert_eq!(w.snapshot().await.failures, 1);
    w.breaker.acquire().await.unwrap().success().await;
    assert_eq!(w.snapshot().await.failures, 0);
    let permit = w.breaker.acquire().await.unwrap();
    assert!(!permit.is_probe());
    permit.failure().await;
    w.breaker.acquire().await.unwrap().failure().await;
    assert_eq!(w.state(), CircuitState::Open);
    pass(BREAK + MS).await;
    let permit = w.breaker.acquire().await.unwrap();
    assert!(permit.is_probe());
    permit.success().await;
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Closed);
    assert_eq!(
        (
            snapshot.calls.successes,
            snapshot.calls.failures,
            snapshot.calls.ignored
        ),
        (2, 3, 1)
    );
}

// R11, R24: what was asked of a breaker that is open and is answered by one that was reset meanwhile.
#[actix::test]
async fn permit_of_a_breaker_that_closes_before_it_answers_is_no_probe() {
    let w = world(consecutive(2));
    w.trip().await;
    pass(BREAK + MS).await;
    // On its way before the question, which is asked of an open breaker.
    let reset = w.breaker.reset();
    let permit = w.breaker.acquire().await.unwrap();
    reset.await.unwrap();
    assert!(!permit.is_probe());
    permit.failure().await;
    let snapshot = w.snapshot().await;
    assert_eq!(
        (snapshot.state, snapshot.failures),
        (CircuitState::Closed, 1)
    );
}

// R10: the outcome counts when it is given, not when it is awaited.
#[actix::test]
async fn outcome_counts_without_waiting_for_it() {
    let w = world(consecutive(1));
    drop(w.breaker.acquire().await.unwrap().failure());
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
    pass(BREAK + MS).await;
    drop(w.breaker.acquire().await.unwrap().success());
    quiet().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R10, R19, cases 2, 26 and 49: a caller that went away says nothing.
#[actix::test]
async fn dropped_permit_is_no_outcome_and_frees_its_slot_at_once() {
    let w = world(consecutive(5).max_probes(3).successes_to_close(3));
    for _ in 0..20 {
        drop(w.breaker.acquire().await.unwrap());
    }
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.failures, snapshot.calls.ignored), (0, 20));
    w.trip().await;
    pass(BREAK + MS).await;
    let mut permits = Vec::new();
    for _ in 0..3 {
        permits.push(w.breaker.acquire().await.unwrap());
    }
    assert!(w.breaker.acquire().await.unwrap_err().is_rejected());
    let last = permits.pop().unwrap();
    drop(last);
    // Asked at once, with nothing in between.
    permits.push(w.breaker.acquire().await.unwrap());
    for permit in permits {
        assert!(permit.is_probe());
        permit.success().await;
    }
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Closed);
    // R15: reclaimed slots are not inconclusive probes.
    assert_eq!(snapshot.calls.ignored, 21);
}

// R15
#[actix::test]
async fn callers_that_go_away_never_open_a_half_open_breaker() {
    let w = world(consecutive(1).max_inconclusive(2));
    w.trip().await;
    pass(BREAK + MS).await;
    for _ in 0..50 {
        drop(w.breaker.acquire().await.unwrap());
    }
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::HalfOpen);
    assert_eq!((snapshot.inconclusive, snapshot.probes_in_flight), (0, 0));
}

fn panic_with(permit: Permit) {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _permit = permit;
        panic!("trap around a permit");
    }));
    caught.unwrap_err();
}

// R10
#[actix::test]
async fn permit_dropped_by_a_panic_is_a_failure_and_wakes_the_breaker() {
    let w = world(consecutive(1));
    panic_with(w.breaker.acquire().await.unwrap());
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
    pass(BREAK + MS).await;
    panic_with(w.breaker.acquire().await.unwrap());
    // Nobody sends a message: the panic itself woke the breaker.
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.calls.failures, snapshot.attempt), (2, 1));
}

// R10: a panic that has nothing to do with it.
#[actix::test]
async fn permit_settled_in_a_panicking_thread_keeps_its_outcome() {
    struct Settles(Option<Permit>);
    impl Drop for Settles {
        fn drop(&mut self) {
            drop(self.0.take().unwrap().success());
        }
    }
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    let settles = Settles(Some(w.breaker.acquire().await.unwrap()));
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _settles = settles;
        panic!("trap around a permit");
    }));
    caught.unwrap_err();
    quiet().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R10: threads that know neither actix nor tokio.
#[actix::test]
async fn permit_ends_on_a_thread_without_a_runtime() {
    let w = world(consecutive(1));
    let on_thread = async |end: fn(Permit)| {
        let permit = w.breaker.acquire().await.unwrap();
        std::thread::spawn(move || end(permit)).join().unwrap();
        quiet().await;
    };
    on_thread(drop).await;
    assert_eq!(w.snapshot().await.calls.ignored, 1);
    on_thread(|permit| drop(permit.success())).await;
    assert_eq!(w.state(), CircuitState::Closed);
    on_thread(|permit| drop(permit.failure())).await;
    assert_eq!(w.state(), CircuitState::Open);
    w.breaker.reset().await.unwrap();
    on_thread(panic_with).await;
    assert_eq!(w.state(), CircuitState::Open);
    // As probes.
    pass(BREAK + MS).await;
    on_thread(drop).await;
    assert_eq!(w.snapshot().await.probes_in_flight, 0);
    on_thread(panic_with).await;
    assert_eq!(w.state(), CircuitState::Open);
    pass(BREAK + MS).await;
    on_thread(|permit| drop(permit.success())).await;
    assert_eq!(w.state(), CircuitState::Closed);
}

thread_local! {
    static KEPT: RefCell<Option<Permit>> = const { RefCell::new(None) };
}

// R10: dropped with the thread's locals, after those of tokio or before them.
#[actix::test]
async fn permit_kept_in_a_thread_local_gives_its_slot_back() {
    let w = world(consecutive(1));
    for tokio_first in [true, false] {
        w.trip().await;
        pass(BREAK + MS).await;
        let permit = w.breaker.acquire().await.unwrap();
        assert!(permit.is_probe());
        std::thread::spawn(move || {
            let touch_tokio = || drop(tokio::runtime::Handle::try_current());
            if tokio_first {
                touch_tokio();
            }
            KEPT.with(|kept| *kept.borrow_mut() = Some(permit));
            touch_tokio();
        })
        .join()
        .unwrap();
        let next = w.breaker.acquire().await.unwrap();
        next.success().await;
        assert_eq!(w.state(), CircuitState::Closed);
    }
}

// R10: no call timeout, only a lease; in closed not even that.
#[actix::test]
async fn permit_has_no_call_timeout() {
    let w = world(consecutive(1));
    let permit = w.breaker.acquire().await.unwrap();
    pass(1_000 * SECOND).await;
    permit.failure().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R11
#[actix::test]
async fn permit_of_an_earlier_epoch_is_late() {
    let w = world(consecutive(1));
    let early = w.breaker.acquire().await.unwrap();
    let early_drop = w.breaker.acquire().await.unwrap();
    w.trip().await;
    pass(BREAK + MS).await;
    let probe = w.breaker.acquire().await.unwrap();
    early.failure().await;
    drop(early_drop);
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::HalfOpen);
    assert_eq!((snapshot.calls.late, snapshot.calls.ignored), (2, 0));
    assert_eq!(snapshot.probes_in_flight, 1);
    probe.success().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R18: the circuit measures it from the admission on.
#[actix::test]
async fn permit_settled_late_is_a_slow_call() {
    let w = world(consecutive(1).trip(TripPolicy::FailureRate {
        rate: 1.0,
        minimum_calls: 3,
        window: Window::Calls(3),
        slow_call: Some(SlowCall::new(100 * MS, 0.6)),
    }));
    w.breaker.acquire().await.unwrap().success().await;
    for slow in 1..=2 {
        let permit = w.breaker.acquire().await.unwrap();
        pass(100 * MS).await;
        assert_eq!(w.state(), CircuitState::Closed);
        permit.success().await;
        if slow == 1 {
            assert_eq!(w.snapshot().await.slow_calls, 1);
        }
    }
    assert_eq!(w.state(), CircuitState::Open);
}

/// Polls a future so many times, with turns for the others in between, and drops it then.
async fn give_up_after<F: Future>(future: F, polls: u32) {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if poll_once(&mut future).await.is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Gives up each kind of call after so many polls.
async fn give_up_each(w: &World, kind: u32, good: bool, polls: u32) {
    let job = || if good { Job::Good } else { Job::Bad };
    let answer = if good { Ok(1) } else { Err(BAD) };
    let future = async move {
        tokio::task::yield_now().await;
        answer
    };
    match kind {
        0 => give_up_after(w.breaker.ask(&w.target, job()), polls).await,
        1 => give_up_after(w.breaker.call(future), polls).await,
        2 => {
            let acquire = async {
                let permit = w.breaker.acquire().await?;
                tokio::task::yield_now().await;
                if good {
                    permit.success().await;
                } else {
                    permit.failure().await;
                }
                Ok::<_, AskError>(())
            };
            give_up_after(acquire, polls).await;
        }
        _ => {
            let recipient = w.target.clone().recipient();
            let ask = actix_circuit_breaker::message::Ask::new(recipient, job());
            give_up_after(w.breaker.addr().send(ask), polls).await;
        }
    }
}

// R10, case 26, check 42: wherever a caller gives up, in whatever state, no slot leaks, nothing hangs
// and the accounts are right.
#[actix::test]
async fn giving_up_at_any_point_leaks_no_slot() {
    let mut kinds_of_ends = 0;
    for kind in 0..4 {
        for good in [true, false] {
            for polls in 0..12 {
                let w = world(consecutive(1));
                w.trip().await;
                pass(BREAK + MS).await;
                give_up_each(&w, kind, good, polls).await;
                quiet().await;
                let snapshot = w.snapshot().await;
                assert_eq!(snapshot.probes_in_flight, 0, "{kind} {good} {polls}");
                assert_eq!(snapshot.calls.lost_probes, 0);
                let calls = snapshot.calls;
                assert!(calls.successes + calls.failures + calls.ignored <= 2);
                match snapshot.state {
                    // Taken back, or never taken: the next one is a probe at once.
                    CircuitState::Open if snapshot.probe_due => {
                        assert_eq!(calls.failures, 1);
                        kinds_of_ends |= 1;
                    }
                    CircuitState::HalfOpen => {
                        assert_eq!(calls.failures, 1);
                        kinds_of_ends |= 2;
                    }
                    CircuitState::Closed => {
                        assert!(good);
                        kinds_of_ends |= 4;
                        continue;
                    }
                    CircuitState::Open => {
                        assert!(!good);
                        assert_eq!((calls.failures, snapshot.attempt), (2, 1));
                        kinds_of_ends |= 8;
                        continue;
                    }
                    other => panic!("{other}"),
                }
                w.good().await;
                assert_eq!(w.state(), CircuitState::Closed, "{kind} {good} {polls}");
            }
        }
    }
    assert_eq!(kinds_of_ends, 15);
}

// R10: while closed, a caller that waits for the breaker to take note has given its failure already.
#[actix::test]
async fn failure_counts_whether_or_not_its_caller_waits() {
    for kind in 0..4 {
        let mut counted = false;
        for polls in 0..12 {
            let w = world(consecutive(2));
            give_up_each(&w, kind, false, polls).await;
            quiet().await;
            let snapshot = w.snapshot().await;
            assert!(snapshot.failures <= 1);
            // Once it counts at some poll, it does at every later one.
            assert!(!counted || snapshot.failures == 1, "{kind} {polls}");
            counted = snapshot.failures == 1;
            w.good().await;
        }
        assert!(counted, "{kind}");
    }
}

// Exactly there: the reply has come, the acknowledgement has not.
#[actix::test]
async fn caller_dropped_while_waiting_for_the_acknowledgement_has_failed() {
    let w = world(consecutive(1));
    let (release, job) = latch();
    let mut ask = Box::pin(w.breaker.ask(&w.target, job));
    assert!(poll_once(&mut ask).await.is_pending());
    release.send(Err(BAD)).unwrap();
    // The target has its turns; the breaker has had no message.
    quiet().await;
    assert!(poll_once(&mut ask).await.is_pending());
    drop(ask);
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);

    w.breaker.reset().await.unwrap();
    let mut call = Box::pin(w.breaker.call(async { Err::<(), _>(BAD) }));
    assert!(poll_once(&mut call).await.is_pending());
    drop(call);
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R10: a call gives its slot back at once; only asks run on.
#[actix::test]
async fn dropped_call_of_a_probe_gives_its_slot_back_at_once() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    let mut call = Box::pin(w.breaker.call(std::future::pending::<Answer>()));
    assert!(poll_once(&mut call).await.is_pending());
    quiet().await;
    assert!(poll_once(&mut call).await.is_pending());
    assert!(w.breaker.acquire().await.unwrap_err().is_rejected());
    drop(call);
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// R10: an `acquire` that was granted but never polled again.
#[actix::test]
async fn granted_permit_that_nobody_fetched_goes_back() {
    let w = world(consecutive(1));
    w.trip().await;
    pass(BREAK + MS).await;
    let mut acquire = Box::pin(w.breaker.acquire());
    assert!(poll_once(&mut acquire).await.is_pending());
    quiet().await;
    assert_eq!(w.snapshot().await.probes_in_flight, 1);
    drop(acquire);
    assert_eq!(w.snapshot().await.probes_in_flight, 0);
    w.good().await;
    assert_eq!(w.state(), CircuitState::Closed);
}

// Case 32: of three joined calls one is refused, and its siblings are dropped with it.
#[actix::test]
async fn siblings_of_a_refused_call_give_their_slots_back() {
    let w = world(consecutive(1).max_probes(3).successes_to_close(3));
    w.trip().await;
    pass(BREAK + MS).await;
    let held = w.breaker.acquire().await.unwrap();
    let call = || async {
        w.breaker
            .call(std::future::pending::<Answer>())
            .await
            .map_err(drop)
    };
    let joined = futures::future::try_join3(call(), call(), call()).await;
    joined.unwrap_err();
    let (one, other) = (w.breaker.acquire().await, w.breaker.acquire().await);
    for permit in [held, one.unwrap(), other.unwrap()] {
        permit.success().await;
    }
    assert_eq!(w.state(), CircuitState::Closed);
}

// Case 31: reply and timer race at the same instant, very often.
#[actix::test]
async fn ten_thousand_races_of_reply_and_timeout_settle_once_each() {
    let w = world(count(1_000_000, 3_600 * SECOND).call_timeout(MS));
    let mut timeouts = 0;
    for _ in 0..100 {
        let asks = (0..100).map(|i| {
            let after = Duration::from_micros(950 + i);
            w.breaker.ask(&w.target, Job::Late(after, Err(BAD)))
        });
        for reply in futures::future::join_all(asks).await {
            match reply {
                Ok(Err(BAD)) => {}
                Err(AskError::Timeout(limit)) => {
                    assert_eq!(limit, MS);
                    timeouts += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    pass(SECOND).await;
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.calls.failures, 10_000, "{timeouts} timeouts");
    assert_eq!((snapshot.calls.late, snapshot.failures), (0, 10_000));
}
