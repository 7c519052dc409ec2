//! What breakers remember outlives their process: written to a file at the end, read from it at the start.
//!
//! Run it twice within a minute, with `cargo run --example restart`: the second run finds the breaker as
//! the first one left it.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use std::path::PathBuf;
use std::time::Duration;

use actix_circuit_breaker::{BreakerConfig, Breakers, CallError, Exported, TripPolicy};

#[actix::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).map_or_else(
        || std::env::temp_dir().join("actix-circuit-breaker-restart.json"),
        PathBuf::from,
    );
    let breakers = Breakers::start();
    // Before the breakers are made. A file that is not there or not readable is no reason not to start.
    match std::fs::read_to_string(&file) {
        Ok(text) => match serde_json::from_str::<Exported>(&text) {
            Ok(exported) => println!("read {} records", breakers.restore(exported)),
            Err(error) => println!("{} is not what was written: {error}", file.display()),
        },
        Err(error) => println!("nothing to read: {error}"),
    }

    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 3,
            within: None,
        })
        .break_duration(Duration::from_secs(60))
        .build()?;
    let mail = breakers.create("mail", config)?;
    for refused in breakers.refused_records() {
        println!("{} starts closed: {}", refused.name, refused.error);
    }
    println!("mail is {}", mail.state());

    for _ in 0..4 {
        match mail
            .call(async { Err::<(), _>("connection refused") })
            .await
        {
            Ok(()) => println!("sent"),
            Err(CallError::Failed(error)) => println!("failed: {error}"),
            Err(error) => println!("not tried: {error}"),
        }
    }

    let text = serde_json::to_string_pretty(&breakers.export().await)?;
    // Beside the old one, then in its place, so that a crash leaves one of them whole.
    let written = file.with_extension("new");
    std::fs::write(&written, text)?;
    std::fs::rename(&written, &file)?;
    println!("wrote {}", file.display());
    Ok(())
}
