//! A breaker's state does not hang on the actors around it: workers and targets come and go.

#![allow(clippy::panic, reason = "actors that are killed on purpose")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::{
    AskError, BackoffSupervisor, BreakerConfig, Breakers, CircuitState, Guarded, RestartPolicy,
    TripPolicy,
};

#[derive(Message)]
#[rtype(result = "Result<u32, String>")]
struct Charge;

/// Refuses everything, and counts how often it was asked in all its lives.
struct Gateway {
    asked: Arc<AtomicU32>,
}

impl Actor for Gateway {
    type Context = Context<Self>;
}

impl Supervised for Gateway {}

impl Handler<Charge> for Gateway {
    type Result = Result<u32, String>;

    fn handle(&mut self, _: Charge, _: &mut Context<Self>) -> Self::Result {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Err("no".to_owned())
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Die;

impl Handler<Die> for Gateway {
    type Result = ();

    fn handle(&mut self, _: Die, _: &mut Context<Self>) {
        panic!("killed by the test");
    }
}

/// Holds a guard from its constructor on.
struct Worker {
    payments: Guarded<Charge>,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Supervised for Worker {}

#[derive(Message)]
#[rtype(result = "Result<Result<u32, String>, AskError>")]
struct Order;

impl Handler<Order> for Worker {
    type Result = ResponseFuture<Result<Result<u32, String>, AskError>>;

    fn handle(&mut self, _: Order, _: &mut Context<Self>) -> Self::Result {
        Box::pin(self.payments.send(Charge))
    }
}

impl Handler<Die> for Worker {
    type Result = ();

    fn handle(&mut self, _: Die, _: &mut Context<Self>) {
        panic!("killed by the test");
    }
}

// R30
#[actix::test]
async fn restarted_workers_and_targets_find_the_breaker_as_it_was() {
    tokio::time::pause();
    let breakers = Breakers::start();
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: None,
        })
        .break_duration(Duration::from_secs(60))
        .build()
        .unwrap();
    let breaker = breakers.create("payments", config).unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let gateway = Gateway {
        asked: Arc::clone(&asked),
    };
    let gateway = BackoffSupervisor::start(RestartPolicy::new(), |_| gateway);
    let worker = Worker {
        payments: breaker.guard(gateway.clone()),
    };
    let worker = BackoffSupervisor::start(RestartPolicy::new(), |_| worker);

    for _ in 0..2 {
        worker.send(Order).await.unwrap().unwrap().unwrap_err();
    }
    assert_eq!(breaker.state(), CircuitState::Open);
    let epoch = breaker.snapshot().await.unwrap().epoch;

    gateway.send(Die).await.unwrap_err();
    worker.send(Die).await.unwrap_err();
    let rejected = worker.send(Order).await.unwrap().unwrap_err();
    assert!(rejected.is_rejected());
    assert_eq!(asked.load(Ordering::SeqCst), 2);

    let snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(
        (snapshot.state, snapshot.epoch),
        (CircuitState::Open, epoch)
    );
    assert_eq!(snapshot.calls.rejected, 1);
    // The owner's own handle may go, too.
    drop(breakers);
    assert!(worker.send(Order).await.unwrap().unwrap_err().is_rejected());
}

// The README's example of a test, run.
#[actix::test]
async fn recovers_by_one_probe() {
    tokio::time::pause();
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: None,
        })
        .break_duration(Duration::from_secs(10));
    let breaker = Breakers::start()
        .create("test", config.build().unwrap())
        .unwrap();
    for _ in 0..2 {
        breaker
            .call(async { Err::<(), _>("down") })
            .await
            .unwrap_err();
    }
    let rejected = breaker.call(async { Ok::<_, &str>(()) }).await.unwrap_err();
    tokio::time::sleep(rejected.retry_after().unwrap()).await;
    breaker.call(async { Ok::<_, &str>(()) }).await.unwrap();
    assert_eq!(breaker.state(), CircuitState::Closed);
}

// check 46: what happens to one upstream is nothing to another.
#[actix::test]
async fn breakers_of_two_targets_are_independent() {
    tokio::time::pause();
    let breakers = Breakers::start();
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 1,
            within: None,
        })
        .build()
        .unwrap();
    let down = breakers.create("down", config.clone()).unwrap();
    let up = breakers.create("up", config).unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let gateway = Gateway {
        asked: Arc::clone(&asked),
    }
    .start();
    down.ask(&gateway, Charge).await.unwrap().unwrap_err();
    assert_eq!(down.state(), CircuitState::Open);
    assert_eq!(up.state(), CircuitState::Closed);
    assert!(down.ask(&gateway, Charge).await.unwrap_err().is_rejected());
    up.ask(&gateway, Charge).await.unwrap().unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    let calls = |snapshot: actix_circuit_breaker::Snapshot| snapshot.calls;
    assert_eq!(calls(down.snapshot().await.unwrap()).rejected, 1);
    assert_eq!(calls(up.snapshot().await.unwrap()).rejected, 0);
}
