//! What the binaries and the Criterion benches share: the things to be measured, and how to pair them.
//! What is measured with them is in `bin/`; what each figure means is in the README.

pub mod counting;
pub mod echo;
pub mod metered;
pub mod pairs;
pub mod peers;
pub mod subject;

use std::future::Future;
use std::time::Duration;

use actix_circuit_breaker::{
    Breaker, BreakerConfig, Breakers, TripPolicy, Window, message::ForceOpen,
};

/// Runs a future in a task of a new actix system; what runs in the root future of `block_on` itself is
/// woken by way of another mechanism, which triples the time of an ask.
///
/// # Panics
///
/// Panics if the task does.
pub fn in_task<R: 'static>(future: impl Future<Output = R> + 'static) -> R {
    actix::System::new()
        .block_on(async { actix::spawn(future).await })
        .expect("the task ran to its end")
}

/// A trip that a single failure makes; the break outlives every measurement.
pub fn trips_at_once() -> BreakerConfig {
    config(TripPolicy::ConsecutiveFailures {
        failures: 1,
        within: None,
    })
}

/// Never trips, however many asks fail.
pub fn never_trips() -> BreakerConfig {
    config(TripPolicy::ConsecutiveFailures {
        failures: u32::MAX,
        within: None,
    })
}

/// Half of the last hundred calls, which is what the peers with a window are set to as well.
pub fn rate_of_calls() -> BreakerConfig {
    rate(Window::Calls(100))
}

/// Half of the calls of the last thirty seconds.
pub fn rate_of_time() -> BreakerConfig {
    rate(Window::Time(Duration::from_secs(30)))
}

fn rate(window: Window) -> BreakerConfig {
    config(TripPolicy::FailureRate {
        rate: 0.5,
        minimum_calls: 100,
        window,
        slow_call: None,
    })
}

fn config(trip: TripPolicy) -> BreakerConfig {
    BreakerConfig::builder()
        .trip(trip)
        .break_duration(Duration::from_secs(3_600))
        .build()
        .expect("valid settings")
}

/// A breaker on the current arbiter.
///
/// # Panics
///
/// Panics outside an actix system.
pub fn breaker(config: BreakerConfig) -> Breaker {
    Breakers::start()
        .create("bench", config)
        .expect("room for one breaker")
}

/// A breaker on the current arbiter that is open.
pub async fn open_breaker() -> Breaker {
    let breaker = breaker(trips_at_once());
    let failed = breaker
        .call(std::future::ready(Err::<u64, _>(echo::Fault)))
        .await;
    assert!(failed.is_err());
    assert_eq!(
        breaker.state(),
        actix_circuit_breaker::CircuitState::Open,
        "one failure trips"
    );
    breaker
}

/// A breaker on the current arbiter that an operator forced open.
pub async fn forced_open_breaker() -> Breaker {
    let breaker = breaker(trips_at_once());
    breaker
        .force_open(ForceOpen::new("bench"))
        .await
        .expect("the breaker is there")
        .expect("no ttl, so none that is wrong");
    breaker
}
