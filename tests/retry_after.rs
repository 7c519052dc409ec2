//! What `retry_after` promises: who comes again after that time is not told to wait once more.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::future::Future;
use std::time::Duration;

use actix::System;
use actix_circuit_breaker::message::ForceOpen;
use actix_circuit_breaker::{
    Breaker, BreakerConfig, Breakers, CallError, CircuitState, TripPolicy,
};
use tokio::time::sleep;

const BREAK: Duration = Duration::from_millis(300);

/// Runs on paused time, where the caller's timer and the breaker's fire in the same turn and the
/// caller is polled first.
fn on_paused_time(test: impl Future<Output = ()>) {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
    };
    System::with_tokio_rt(runtime).block_on(test);
}

fn breaker() -> Breaker {
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 1,
            within: None,
        })
        .call_timeout(Duration::from_millis(100))
        .break_duration(BREAK)
        .build()
        .unwrap();
    Breakers::start().create("payments", config).unwrap()
}

async fn succeed(breaker: &Breaker) -> Result<(), CallError<&'static str>> {
    breaker.call(async { Ok(()) }).await
}

/// Is rejected, waits as long as it is told to, and asks again.
async fn come_again(breaker: &Breaker) {
    let after = succeed(breaker).await.unwrap_err().retry_after().unwrap();
    sleep(after).await;
    assert_eq!(succeed(breaker).await, Ok(()), "came again after {after:?}");
    assert_eq!(breaker.state(), CircuitState::Closed);
}

// R4, R9, R28
#[test]
fn who_comes_again_after_a_break_is_the_probe() {
    on_paused_time(async {
        let breaker = breaker();
        for late in (0..300_u32).step_by(7) {
            let failed = breaker.call(async { Err::<(), _>("no connection") }).await;
            assert_eq!(failed, Err(CallError::Failed("no connection")));
            sleep(Duration::from_micros(u64::from(late) * 1_000 + 137)).await;
            come_again(&breaker).await;
        }
    });
}

// R9, R23, R28
#[test]
fn who_comes_again_after_a_forced_open_is_the_probe() {
    on_paused_time(async {
        let breaker = breaker();
        for late in (0..300_u32).step_by(7) {
            let order = ForceOpen::new("maintenance").ttl(BREAK);
            breaker.force_open(order).await.unwrap().unwrap();
            sleep(Duration::from_micros(u64::from(late) * 1_000 + 137)).await;
            come_again(&breaker).await;
        }
    });
}
