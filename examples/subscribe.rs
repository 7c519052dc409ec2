//! Three ways to follow a breaker: an actor, a stream, and a `watch` for the newest state alone.
//!
//! Run it with `cargo run --example subscribe`.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use std::error::Error;
use std::io;
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::ForceOpen;
use actix_circuit_breaker::{
    Breaker, BreakerConfig, Breakers, CallError, Cause, CircuitState, StateChanged, TripPolicy,
};
use futures::StreamExt;
use tokio::time::sleep;

/// Hears of every breaker, those made later included.
struct Operator;

impl Actor for Operator {
    type Context = Context<Self>;
}

impl Handler<StateChanged> for Operator {
    type Result = ();

    fn handle(&mut self, event: StateChanged, _: &mut Context<Self>) {
        let StateChanged {
            breaker,
            from,
            to,
            cause,
            seq,
            evidence,
            ..
        } = event;
        match cause {
            // The first message of each breaker tells how it stands.
            Cause::Present => println!("actor:  {breaker} is {to}"),
            Cause::Tripped => println!(
                "actor:  #{seq} {breaker} {from} -> {to}: {cause} after {} failures",
                evidence.failures
            ),
            Cause::Forced => println!(
                "actor:  #{seq} {breaker} {from} -> {to}: {}",
                evidence.reason.as_deref().unwrap_or("no reason given")
            ),
            _ => println!("actor:  #{seq} {breaker} {from} -> {to}: {cause}"),
        }
    }
}

async fn fail(breaker: &Breaker) {
    let result = breaker
        .call(async { Err::<(), _>(io::ErrorKind::ConnectionRefused) })
        .await;
    if let Err(CallError::Failed(error)) = result {
        println!("call:   {error}");
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: None,
        })
        .call_timeout(Duration::from_millis(50))
        .break_duration(Duration::from_millis(200))
        .build()?;
    let breakers = Breakers::start();
    let search = breakers.create("search", config.clone())?;

    // An actor is held weakly: it is told for as long as somebody keeps its address.
    let operator = Operator.start();
    breakers.subscribe(operator.clone());
    let mail = breakers.create("mail", config)?;

    // A stream has the changes of one breaker. It ends when the breaker is gone.
    let mut transitions = search.transitions();
    let reader = actix::spawn(async move {
        while let Some(item) = transitions.next().await {
            match item {
                Ok(event) => println!("stream: {} ({})", event.to, event.cause),
                Err(lagged) => println!("stream: {lagged}"),
            }
        }
        println!("stream: the end");
    });

    // A watch has the newest state, without a queue.
    let mut state = search.watch();
    println!("watch:  {}", *state.borrow());

    fail(&search).await;
    fail(&search).await;
    state.wait_for(|state| *state == CircuitState::Open).await?;
    println!("watch:  open");

    sleep(Duration::from_millis(250)).await;
    let found = search.call(async { Ok::<_, io::Error>(3) }).await?;
    println!("call:   found {found}");

    mail.force_open(ForceOpen::new("the server moves house"))
        .await??;

    // `search` is removed, its last handle goes: the stream ends.
    breakers.remove("search");
    drop(search);
    reader.await?;
    drop(operator);
    Ok(())
}
