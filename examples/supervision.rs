//! `BackoffSupervisor`: restarts an actor when it panics and when it stops, after a delay that grows.
//!
//! actix's own `Supervisor` restarts an actor that stops; one that panics is gone, and its mailbox
//! with it.
//!
//! Run it with `cargo run --example supervision`. The panics are meant.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]
#![allow(clippy::arithmetic_side_effects, reason = "a small sum")]

use std::error::Error;
use std::panic;
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::{
    BackoffSupervisor, Clock, EndHandle, GaveUp, RestartPolicy, SystemClock, Timestamp,
};
use tokio::sync::mpsc;

/// Adds up what it is sent. The value survives restarts; timers and spawned futures do not.
#[derive(Default)]
struct Counter {
    sum: u32,
    clock: SystemClock,
    ended: Option<Timestamp>,
}

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Supervised for Counter {
    /// The place to mend what a panic left half done; `started` comes next.
    fn restarting(&mut self, _: &mut Context<Self>) {
        if let Some(ended) = self.ended.take() {
            let delay = self.clock.now().since(ended).as_secs_f64();
            println!("  restarted after {delay:.1} s");
        }
    }
}

#[derive(Message)]
#[rtype(result = "u32")]
struct Add(u32);

impl Handler<Add> for Counter {
    type Result = u32;

    fn handle(&mut self, Add(n): Add, _: &mut Context<Self>) -> u32 {
        self.sum += n;
        self.sum
    }
}

#[derive(Message)]
#[rtype(result = "()")]
enum Fail {
    Panic,
    Stop,
}

impl Handler<Fail> for Counter {
    type Result = ();

    #[expect(clippy::panic, reason = "to be restarted")]
    fn handle(&mut self, how: Fail, ctx: &mut Context<Self>) {
        self.ended = Some(self.clock.now());
        match how {
            Fail::Panic => panic!("a bug in the handler"),
            Fail::Stop => ctx.stop(),
        }
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    panic::set_hook(Box::new(|panic| {
        let text = panic.payload().downcast_ref::<&str>();
        println!("  panic: {}", text.unwrap_or(&"something else"));
    }));

    let (tell, mut told) = mpsc::unbounded_channel::<GaveUp>();
    let policy = RestartPolicy::new()
        .backoff(Duration::from_millis(200))
        .max_backoff(Duration::from_millis(600))
        .max_restarts(3)
        .within(Duration::from_secs(60))
        .on_give_up(move |gave_up| drop(tell.send(gave_up)));
    let counter = BackoffSupervisor::start(policy, |_| Counter::default());
    println!("add 1: {}", counter.send(Add(1)).await?);

    println!("it panics");
    if let Err(error) = counter.send(Fail::Panic).await {
        println!("  whoever sent that message gets: {error}");
    }
    // The address stays good: messages wait in the mailbox until the actor is back.
    println!("add 1: {}", counter.send(Add(1)).await?);

    println!("it stops");
    counter.send(Fail::Stop).await?;
    println!("add 1: {}", counter.send(Add(1)).await?);

    println!("it panics again");
    let _ = counter.send(Fail::Panic).await;
    println!("add 1: {}", counter.send(Add(1)).await?);

    println!("it panics once too often");
    let _ = counter.send(Fail::Panic).await;
    let gave_up = told.recv().await.ok_or("the hook was not called")?;
    println!("  {gave_up}");
    if let Err(error) = counter.send(Add(1)).await {
        println!("add 1: {error}");
    }

    end_for_good().await
}

/// To a supervisor `ctx.stop()` is a reason to restart. An `EndHandle` ends the actor for good.
async fn end_for_good() -> Result<(), Box<dyn Error>> {
    let policy = RestartPolicy::new();
    let (counter, end): (Addr<Counter>, EndHandle) =
        BackoffSupervisor::start_with_handle(policy, |_, _| Counter::default());
    println!("another one, add 1: {}", counter.send(Add(1)).await?);
    end.end();
    if let Err(error) = counter.send(Add(1)).await {
        println!("ended for good, add 1: {error}");
    }
    Ok(())
}
