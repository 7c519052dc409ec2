//! Guarding work that is no future: ask for leave, do it, say how it went.
//!
//! `acquire` gives a `Permit`; its `success`, `failure` or `ignore` settles the call. A permit that is
//! dropped means that the caller went away, which says nothing about the target.
//!
//! Run it with `cargo run --example two_step`.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use std::error::Error;
use std::time::Duration;

use actix_circuit_breaker::{AskError, Breaker, BreakerConfig, Breakers, TripPolicy};
use tokio::time::sleep;

/// Stands for a library that calls back, or a device: something that cannot be awaited.
struct Printer {
    jammed: bool,
}

impl Printer {
    fn print(&mut self, page: &str) -> Result<(), String> {
        match page {
            "" => Err("an empty page".into()),
            _ if self.jammed => Err("paper jam".into()),
            _ => Ok(()),
        }
    }
}

async fn print(breaker: &Breaker, printer: &mut Printer, page: &str) -> Result<(), AskError> {
    let permit = breaker.acquire().await?;
    let kind = if permit.is_probe() {
        "a probe"
    } else {
        "a call"
    };
    let result = printer.print(page);
    match &result {
        Ok(()) => println!("{kind}: {page} is printed"),
        Err(error) => println!("{kind}: {error}"),
    }
    match result {
        Ok(()) => permit.success().await,
        // Our own mistake says nothing about the printer.
        Err(_) if page.is_empty() => permit.ignore().await,
        // Awaited, the failure is counted before we go on.
        Err(_) => permit.failure().await,
    }
    Ok(())
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: None,
        })
        .call_timeout(Duration::from_millis(100))
        .break_duration(Duration::from_millis(300))
        .build()?;
    let breaker = Breakers::start().create("printer", config)?;
    let mut printer = Printer { jammed: false };

    print(&breaker, &mut printer, "page 1").await?;
    print(&breaker, &mut printer, "").await?;

    printer.jammed = true;
    print(&breaker, &mut printer, "page 2").await?;
    print(&breaker, &mut printer, "page 2").await?;
    println!("after two failures in a row: {}", breaker.state());

    if let Err(error) = print(&breaker, &mut printer, "page 2").await {
        if let AskError::Rejected(rejected) = &error {
            println!("no call: {rejected}");
        }
        sleep(error.retry_after().unwrap_or_default()).await;
    }
    println!("that time is over, and somebody has mended the printer");
    printer.jammed = false;

    // A caller that goes away: the probe's slot is free again at once.
    let forgotten = breaker.acquire().await?;
    println!("a probe's permit is taken: {}", breaker.state());
    drop(forgotten);
    println!("it was dropped, which is no verdict: {}", breaker.state());

    print(&breaker, &mut printer, "page 2").await?;
    println!("after a successful probe: {}", breaker.state());
    Ok(())
}
