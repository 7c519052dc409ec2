//! The other circuit breakers, each driven the quickest way it has around a future that is ready.
//! What each of them leaves undone on that way is told in the README.

use std::future::{poll_fn, ready};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use ::breaker::{CircuitBreaker as Breaker, CircuitBreakerConfig};
use circuitbreaker_rs::{CircuitBreaker as Rs, DefaultPolicy};
use failsafe::backoff;
use failsafe::failure_policy::{consecutive_failures, success_rate_over_time_window};
use failsafe::futures::CircuitBreaker as _;
use recloser::{AsyncRecloser, Recloser};
use tower::{Service, service_fn};
use tower_resilience_circuitbreaker::CircuitBreakerLayer;

use crate::echo::Fault;
use crate::subject;
use crate::subject::Subject;

const HOUR: Duration = Duration::from_secs(3_600);

/// A peer and where it stands in a comparison.
#[derive(Debug)]
pub struct Peer {
    /// What is measured.
    pub subject: Subject,
    /// Which comparisons it takes part in.
    pub kind: Kind,
}

/// Which comparisons a peer takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Counts failures.
    Counts,
    /// Judges by a rate or over a window.
    Rates,
    /// As `Rates`, but not one of those that the figures for the other policies compare with.
    RatesAlone,
}

fn peer(kind: Kind, subject: Subject) -> Peer {
    Peer { subject, kind }
}

fn good() -> std::future::Ready<Result<u64, Fault>> {
    ready(Ok(black_box(1)))
}

fn bad() -> std::future::Ready<Result<u64, Fault>> {
    ready(Err(black_box(Fault)))
}

/// The peers with closed circuits.
pub fn closed() -> Vec<Peer> {
    let run = failsafe::Config::new()
        .failure_policy(consecutive_failures(5, backoff::constant(HOUR)))
        .build();
    let rate = failsafe::Config::new()
        .failure_policy(success_rate_over_time_window(
            0.5,
            100,
            Duration::from_secs(30),
            backoff::constant(HOUR),
        ))
        .build();
    let default = failsafe::Config::new().build();
    let recloser = AsyncRecloser::from(Recloser::custom().error_rate(0.5).closed_len(100).build());
    let breaker = Breaker::new(breaker_config());
    let nobreak = Arc::new(nobreak::breaker());
    let rs = Arc::new(Rs::<DefaultPolicy, Fault>::builder().build());
    let tower = tower_breaker();
    vec![
        peer(
            Kind::Counts,
            subject!("failsafe (consecutive failures)", run => run.call(good())),
        ),
        peer(
            Kind::Rates,
            subject!("failsafe (success rate)", rate => rate.call(good())),
        ),
        peer(
            Kind::Rates,
            subject!("failsafe (default)", default => default.call(good())),
        ),
        peer(
            Kind::Rates,
            subject!("recloser", recloser => recloser.call(good())),
        ),
        peer(
            Kind::Rates,
            subject!("breaker", breaker => breaker.call(good)),
        ),
        peer(
            Kind::Counts,
            subject!("nobreak", nobreak => nobreak.call_async(good)),
        ),
        peer(
            Kind::RatesAlone,
            subject!("circuitbreaker-rs", rs => rs.call_async(good)),
        ),
        peer(
            Kind::RatesAlone,
            subject!("tower-resilience-circuitbreaker", tower => tower_call(&mut tower)),
        ),
    ]
}

/// The peers with open circuits.
pub async fn open() -> Vec<Peer> {
    let failsafe = failsafe::Config::new()
        .failure_policy(consecutive_failures(1, backoff::constant(HOUR)))
        .build();
    assert!(failsafe.call(bad()).await.is_err());
    let recloser = Recloser::custom().closed_len(1).open_wait(HOUR).build();
    let recloser = AsyncRecloser::from(recloser);
    for _ in 0..2 {
        assert!(recloser.call(bad()).await.is_err());
    }
    let breaker = Breaker::new(breaker_config());
    breaker.trip();
    let nobreak = Arc::new(
        nobreak::builder()
            .with_failure_threshold(1)
            .with_open_duration(HOUR)
            .build(),
    );
    assert!(nobreak.call_async(bad).await.is_err());
    let rs = Arc::new(Rs::<DefaultPolicy, Fault>::builder().cooldown(HOUR).build());
    assert!(rs.force_open());
    let mut tower = tower_breaker();
    tower.force_open().await;

    // Each of them does reject.
    assert!(failsafe.call(good()).await.is_err());
    assert!(recloser.call(good()).await.is_err());
    assert!(breaker.call(good).await.is_err());
    assert!(nobreak.call_async(good).await.is_err());
    assert!(rs.call_async(good).await.is_err());
    assert!(tower_call(&mut tower).await.is_err());

    vec![
        peer(
            Kind::Counts,
            subject!("failsafe", failsafe => failsafe.call(good())),
        ),
        peer(
            Kind::Rates,
            subject!("recloser", recloser => recloser.call(good())),
        ),
        peer(
            Kind::Rates,
            subject!("breaker", breaker => breaker.call(good)),
        ),
        peer(
            Kind::Counts,
            subject!("nobreak", nobreak => nobreak.call_async(good)),
        ),
        peer(
            Kind::RatesAlone,
            subject!("circuitbreaker-rs", rs => rs.call_async(good)),
        ),
        peer(
            Kind::RatesAlone,
            subject!("tower-resilience-circuitbreaker", tower => tower_call(&mut tower)),
        ),
    ]
}

fn breaker_config() -> CircuitBreakerConfig {
    CircuitBreakerConfig::builder()
        .failure_rate_threshold(0.5)
        .sliding_window_size(100)
        .wait_duration(HOUR)
        .build()
}

type Ready = std::future::Ready<Result<u64, Fault>>;
type TowerBreaker<S> = tower_resilience_circuitbreaker::CircuitBreaker<
    S,
    tower_resilience_circuitbreaker::DefaultClassifier,
>;

fn tower_breaker() -> TowerBreaker<
    impl Service<(), Response = u64, Error = Fault, Future = Ready> + Clone + Send + 'static,
> {
    CircuitBreakerLayer::builder()
        .failure_rate_threshold(0.5)
        .sliding_window_size(100)
        .wait_duration_in_open(HOUR)
        .build()
        .expect("valid settings")
        .layer_fn(service_fn(|()| good()))
}

/// One call the way of tower: ready first. Its lock is tokio's, which would make the task yield now
/// and then, so it is freed of that.
async fn tower_call<S>(
    service: &mut TowerBreaker<S>,
) -> Result<u64, tower_resilience_circuitbreaker::CircuitBreakerError<Fault>>
where
    S: Service<(), Response = u64, Error = Fault, Future = Ready> + Clone + Send + 'static,
{
    tokio::task::unconstrained(async {
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(()).await
    })
    .await
}
