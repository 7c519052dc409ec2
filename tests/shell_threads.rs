//! Many threads at one breaker: the accounts are exact. In real time, without sleeps.

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

use std::sync::{Arc, Barrier};

use actix::prelude::*;
use actix_circuit_breaker::{
    AskError, Breaker, BreakerConfigBuilder, Breakers, CircuitState, Outcome, Window,
};
use futures::FutureExt;
use harness::*;

const ARBITERS: usize = 8;
const ASKS: usize = 1_000;

/// What became of the asks of one arbiter.
#[derive(Debug, Default)]
struct Tally {
    good: u64,
    bad: u64,
    rejected: u64,
    seen: u64,
}

/// Overlapping asks on each of eight arbiters, each with a target of its own.
async fn overlapping(breaker: &Breaker, kind: fn(usize) -> Job, rounds: usize) -> Tally {
    let arbiters: Vec<_> = (0..ARBITERS).map(|_| Arbiter::new()).collect();
    let done: Vec<_> = arbiters
        .iter()
        .map(|arbiter| {
            let (done, tally) = tokio::sync::oneshot::channel();
            let breaker = breaker.clone();
            let spawned = arbiter.spawn(async move {
                let (target, seen) = target();
                let mut tally = Tally::default();
                for round in 0..rounds {
                    let asks: Vec<_> = (0..ASKS / rounds)
                        .map(|i| breaker.ask(&target, kind(i + round)))
                        .collect();
                    for reply in futures::future::join_all(asks).await {
                        match reply {
                            Ok(Ok(_)) => tally.good += 1,
                            Ok(Err(_)) => tally.bad += 1,
                            Err(AskError::Rejected(_)) => tally.rejected += 1,
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
                tally.seen = u64::try_from(seen.get()).unwrap();
                drop(done.send(tally));
            });
            assert!(spawned);
            tally
        })
        .collect();
    let mut sum = Tally::default();
    for tally in done {
        let tally = tally.await.unwrap();
        sum.good += tally.good;
        sum.bad += tally.bad;
        sum.rejected += tally.rejected;
        sum.seen += tally.seen;
    }
    for arbiter in arbiters {
        arbiter.stop();
        arbiter.join().unwrap();
    }
    sum
}

fn breaker(config: BreakerConfigBuilder) -> (Breakers, Breaker) {
    let breakers = Breakers::start();
    let config = config.call_timeout(30 * SECOND).probe_timeout(90 * SECOND);
    let breaker = breakers.create("b", config.build().unwrap()).unwrap();
    (breakers, breaker)
}

// R10, case 176: all fail. None is counted twice or not at all, none slips by once it is open.
#[actix::test]
async fn overlapping_failures_from_eight_arbiters_are_accounted_for() {
    let (_breakers, breaker) = breaker(consecutive(10));
    let sum = overlapping(&breaker, |_| Job::Bad, 20).await;
    assert_eq!(sum.bad + sum.rejected, 8_000);
    assert_eq!(sum.seen, sum.bad);
    assert!(sum.rejected > 4_000, "{sum:?}");
    let snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.state, CircuitState::Open);
    assert_eq!(snapshot.calls.failures, 10);
    assert_eq!(snapshot.calls.late, sum.bad - 10);
    assert_eq!(snapshot.calls.rejected, sum.rejected);
}

// R17: below the threshold every failure is in the window.
#[actix::test]
async fn overlapping_failures_below_the_threshold_are_all_remembered() {
    let (_breakers, breaker) = breaker(consecutive(8_001));
    let sum = overlapping(&breaker, |_| Job::Bad, 10).await;
    assert_eq!(sum.bad, 8_000);
    let snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.failures, 8_000);
    assert_eq!((snapshot.calls.late, snapshot.calls.rejected), (0, 0));
    breaker.acquire().await.unwrap().failure().await;
    assert_eq!(breaker.state(), CircuitState::Open);
}

// R7, R10: through many breaks and half-open rounds, with good and bad replies.
#[actix::test]
async fn accounts_are_exact_through_breaks_and_probes() {
    let config = rate(0.5, 8, Window::Calls(16))
        .break_duration(MS)
        .max_probes(3)
        .successes_to_close(2);
    let (_breakers, breaker) = breaker(config);
    let kind = |i: usize| {
        if (i / 3).is_multiple_of(2) {
            Job::Good
        } else {
            Job::Bad
        }
    };
    let sum = overlapping(&breaker, kind, 50).await;
    assert_eq!(sum.good + sum.bad + sum.rejected, 8_000);
    assert_eq!(sum.seen, sum.good + sum.bad);
    let snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.probes_in_flight, 0);
    let calls = snapshot.calls;
    assert_eq!((calls.ignored, calls.lost_probes), (0, 0));
    assert_eq!(calls.rejected, sum.rejected);
    assert_eq!(calls.successes + calls.failures + calls.late, sum.seen);
    assert!(calls.failures <= sum.bad && calls.successes <= sum.good);
}

// R7: never more probes at once than allowed, from however many threads.
#[actix::test]
async fn probes_from_many_threads_never_exceed_their_limit() {
    let config = consecutive(1)
        .break_duration(MS)
        .max_probes(2)
        .successes_to_close(1_000_000);
    let (_breakers, breaker) = breaker(config);
    breaker.acquire().await.unwrap().failure().await;
    while !breaker.snapshot().await.unwrap().probe_due {
        tokio::task::yield_now().await;
    }
    let inside = Counter::default();
    let admitted = Counter::default();
    let arbiters: Vec<_> = (0..ARBITERS).map(|_| Arbiter::new()).collect();
    let mut finished = Vec::new();
    for arbiter in &arbiters {
        let (done, all) = tokio::sync::oneshot::channel();
        let (breaker, inside, admitted) = (breaker.clone(), inside.clone(), admitted.clone());
        assert!(arbiter.spawn(async move {
            let mut highest = 0;
            for i in 0..400 {
                let Ok(permit) = breaker.acquire().await else {
                    continue;
                };
                assert!(permit.is_probe());
                admitted.add();
                highest = highest.max(inside.add());
                tokio::task::yield_now().await;
                inside.sub();
                match i % 3 {
                    0 => permit.success().await,
                    1 => drop(permit),
                    _ => drop(permit.success()),
                }
            }
            done.send(highest).unwrap();
        }));
        finished.push(all);
    }
    for all in finished {
        let highest = all.await.unwrap();
        assert!(highest <= 2, "{highest} at once");
    }
    let snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.state, CircuitState::HalfOpen);
    assert_eq!(snapshot.probes_in_flight, 0);
    let calls = snapshot.calls;
    assert_eq!(
        calls.successes + calls.ignored,
        u64::try_from(admitted.get()).unwrap()
    );
    for arbiter in arbiters {
        arbiter.stop();
        arbiter.join().unwrap();
    }
}

// R17: successes from eight threads, none of them by a message of its own.
#[actix::test]
async fn successes_of_a_rate_from_eight_threads_are_counted_exactly() {
    const CALLS: u64 = 100_000;
    for window in [Window::Calls(10), Window::Time(3_600 * SECOND)] {
        let (_breakers, breaker) = breaker(rate(1.0, 5, window));
        let start = Arc::new(Barrier::new(ARBITERS));
        let threads: Vec<_> = (0..ARBITERS)
            .map(|_| {
                let (breaker, start) = (breaker.clone(), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    for _ in 0..CALLS {
                        let call = breaker.call(std::future::ready(Ok::<_, Oops>(1)));
                        assert_eq!(call.now_or_never(), Some(Ok(1)));
                    }
                })
            })
            .collect();
        // Folded meanwhile, too.
        for _ in 0..100 {
            breaker.snapshot().await.unwrap();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        let snapshot = breaker.snapshot().await.unwrap();
        assert_eq!(snapshot.calls.successes, 8 * CALLS);
        assert_eq!(snapshot.calls.late, 0);
        match window {
            Window::Calls(calls) => assert_eq!(snapshot.samples, u64::from(calls)),
            _ => assert_eq!(snapshot.samples, 8 * CALLS),
        }
    }
}

// R17, case 61 across threads: one of the successes fills the minimum, and it is always noticed.
#[actix::test]
async fn success_that_trips_is_noticed_whoever_makes_it() {
    let breakers = Breakers::start();
    for round in 0..200 {
        let name = format!("{round}");
        let config = rate(0.3, 9, Window::Calls(9)).build().unwrap();
        let breaker = breakers.create(&name, config).unwrap();
        let start = Arc::new(Barrier::new(3));
        let threads: Vec<_> = (0..3)
            .map(|i| {
                let (breaker, start) = (breaker.clone(), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    for j in 0..3 {
                        // Each fails once: a third of nine.
                        if j == i {
                            let failed = breaker.acquire().now_or_never().unwrap();
                            drop(failed.unwrap().failure());
                        } else {
                            let call = breaker.call(std::future::ready(Ok::<_, Oops>(1)));
                            assert_eq!(call.now_or_never(), Some(Ok(1)));
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        quiet().await;
        // By itself: nobody sends another message.
        assert_eq!(breaker.state(), CircuitState::Open, "{round}");
        breakers.remove(&name);
    }
}

// R23: orders against traffic. After each, its word is law.
#[actix::test]
async fn orders_hold_against_traffic_from_other_threads() {
    let (_breakers, breaker) = breaker(consecutive(3).break_duration(MS));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (breaker, stop) = (breaker.clone(), Arc::clone(&stop));
            let runtime = tokio::runtime::Handle::current();
            std::thread::spawn(move || {
                // What is found waiting sets a timer.
                let _inside = runtime.enter();
                let mut passed = 0_u64;
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    if let Ok(permit) = futures::executor::block_on(breaker.acquire()) {
                        passed += 1;
                        drop(permit.failure());
                    }
                }
                passed
            })
        })
        .collect();
    for _ in 0..200 {
        let order = actix_circuit_breaker::message::ForceOpen::new("x");
        breaker.force_open(order).await.unwrap().unwrap();
        assert_eq!(breaker.state(), CircuitState::ForcedOpen);
        assert!(breaker.acquire().await.unwrap_err().is_rejected());
        let order = actix_circuit_breaker::message::ForceClosed::new("x");
        breaker.force_closed(order).await.unwrap().unwrap();
        assert_eq!(breaker.state(), CircuitState::ForcedClosed);
        let call = breaker.call_with(async { Err::<(), _>(BAD) }, |_: &Result<(), Oops>| {
            Outcome::Failure
        });
        assert!(!call.await.unwrap_err().is_rejected());
        breaker.release().await.unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    // They may wait for the breaker, which is on this thread.
    while !threads.iter().all(std::thread::JoinHandle::is_finished) {
        tokio::task::yield_now().await;
    }
    let passed: u64 = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    let snapshot = breaker.snapshot().await.unwrap();
    let calls = snapshot.calls;
    assert_eq!(calls.failures + calls.late, passed + 200);
}
