//! What handles count without a message, the actor finds in full: no success and no rejection of any
//! thread is lost or counted twice.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, which may fail this way"
)]

use std::future::{Future, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use actix_circuit_breaker::{
    Breaker, BreakerConfig, Breakers, CircuitState, TripPolicy, Window, message::ForceOpen,
};

const THREADS: u64 = 8;

/// Polls once: a call around a ready future, admitted or rejected, needs no more.
fn call(breaker: &Breaker) -> bool {
    let call = pin!(breaker.call(ready(Ok::<(), ()>(()))));
    match call.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.is_ok(),
        Poll::Pending => panic!("the call is ready at once"),
    }
}

/// Calls on eight threads, which are more than there are stripes; returns how many passed.
async fn on_threads(breaker: &Breaker, calls: u64) -> u64 {
    let threads = (0..THREADS).map(|_| {
        let breaker = breaker.clone();
        std::thread::spawn(move || (0..calls).filter(|_| call(&breaker)).count())
    });
    let threads: Vec<_> = threads.collect();
    // The breaker's actor has its turns meanwhile.
    while !threads.iter().all(std::thread::JoinHandle::is_finished) {
        tokio::task::yield_now().await;
    }
    threads
        .into_iter()
        .map(|thread| u64::try_from(thread.join().unwrap()).unwrap())
        .sum()
}

// R17
#[actix::test]
async fn successes_of_all_threads_are_counted_exactly() {
    const CALLS: u64 = 1_000_000;
    let config = BreakerConfig::builder()
        .trip(TripPolicy::FailureRate {
            rate: 0.5,
            minimum_calls: 100,
            window: Window::Calls(100),
            slow_call: None,
        })
        .build()
        .unwrap();
    let breaker = Breakers::start().create("totals", config).unwrap();
    assert_eq!(on_threads(&breaker, CALLS).await, THREADS * CALLS);
    let snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.calls.successes, THREADS * CALLS);
    assert_eq!(snapshot.calls.late, 0);
    assert_eq!(snapshot.state, CircuitState::Closed);
}

// R9
#[actix::test]
async fn rejections_of_all_threads_are_counted_exactly() {
    const CALLS: u64 = 100_000;
    let breaker = Breakers::start()
        .create("totals", BreakerConfig::default())
        .unwrap();
    let order = ForceOpen::new("test");
    breaker.force_open(order).await.unwrap().unwrap();
    assert_eq!(on_threads(&breaker, CALLS).await, 0);
    let snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.calls.rejected, THREADS * CALLS);
}
