//! Retries inside one guarded call, by the `backon` crate.
//!
//! The breaker sees one call, however often it was tried: two failed attempts and a success are a
//! success. Retried the other way round, around the guarded call, every attempt would count by itself
//! and trip the breaker early, and a rejection would be retried, which only waits: the breaker says
//! itself when to come again.
//!
//! Run it with `cargo run --example retry_inside`.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix_circuit_breaker::{Breaker, BreakerConfig, Breakers, CallError, TripPolicy};
use backon::{ExponentialBuilder, Retryable};
use tokio::time::sleep;

/// Stands for a mail server that is busy for the next so many attempts.
#[derive(Default)]
struct MailServer {
    busy: AtomicU32,
    attempts: AtomicU32,
}

impl MailServer {
    async fn deliver(&self) -> io::Result<&'static str> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(5)).await;
        let one_less = |left: u32| left.checked_sub(1);
        match self
            .busy
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
        {
            Ok(_) => Err(io::Error::other("busy")),
            Err(_) => Ok("delivered"),
        }
    }
}

/// Delivers a mail, with up to two retries. They all must fit into the breaker's call timeout.
async fn deliver(
    breaker: &Breaker,
    server: &MailServer,
) -> Result<&'static str, CallError<io::Error>> {
    breaker.call((|| server.deliver()).retry(retries())).await
}

fn retries() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(20))
        .with_max_times(2)
}

async fn try_it(breaker: &Breaker, server: &MailServer, busy: u32) {
    server.busy.store(busy, Ordering::Relaxed);
    let before = server.attempts.load(Ordering::Relaxed);
    let result = deliver(breaker, server).await;
    let after = server.attempts.load(Ordering::Relaxed);
    let attempts = after.saturating_sub(before);
    let state = breaker.state();
    match result {
        Ok(done) => println!("{done} after {attempts} attempts; breaker {state}"),
        Err(CallError::Rejected(rejected)) => {
            println!("rejected after {attempts} attempts: {rejected}");
        }
        Err(CallError::Failed(error)) => {
            println!("failed after {attempts} attempts: {error}; breaker {state}");
        }
        Err(error) => println!("{error} after {attempts} attempts; breaker {state}"),
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: None,
        })
        .call_timeout(Duration::from_secs(2))
        .build()?;
    let breaker = Breakers::start().create("mail", config)?;
    let server = MailServer::default();

    println!("The server is busy twice, the third attempt gets through: one call, one success.");
    try_it(&breaker, &server, 2).await;

    println!(
        "\nThe server stays busy: two calls fail, of three attempts each, and that is the limit."
    );
    try_it(&breaker, &server, 100).await;
    try_it(&breaker, &server, 100).await;

    println!("\nThe breaker is open: no attempt is made, and the rejection is not retried.");
    try_it(&breaker, &server, 100).await;

    println!("\nRetried around the guarded call it would be, and all for nothing:");
    let guarded = || breaker.call(server.deliver());
    let result = guarded
        .retry(retries())
        .notify(|error, delay| {
            if let Some(after) = error.retry_after() {
                println!("retry in {delay:.0?}, though the breaker said {after:.0?}");
            }
        })
        .await;
    if let Err(CallError::Rejected(rejected)) = result {
        println!("rejected three times: {rejected}");
    }

    println!("\nIf retries must be around, leave rejections out of them:");
    let result = guarded
        .retry(retries())
        .when(|error| !error.is_rejected())
        .await;
    if let Err(CallError::Rejected(rejected)) = result {
        println!("rejected once: {rejected}");
    }
    Ok(())
}
