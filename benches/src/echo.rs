//! The actor that is asked: as little work as an actor can do.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use actix::{Actor, Context, Handler, Message};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fault")
    }
}

impl std::error::Error for Fault {}

/// Asks for the number back.
#[derive(Debug, Message)]
#[rtype(result = "Result<u64, Fault>")]
pub struct Say(pub u64);

/// Asks for a failure.
#[derive(Debug, Message)]
#[rtype(result = "Result<u64, Fault>")]
pub struct Fail;

/// Asks for a failure, and for a note of when it left.
#[derive(Debug, Message)]
#[rtype(result = "Result<u64, Fault>")]
pub struct FailAt {
    /// What the time is counted from.
    pub origin: Instant,
    /// Where the nanoseconds are noted.
    pub left: Arc<AtomicU64>,
}

/// Answers at once.
#[derive(Debug, Default)]
pub struct Echo;

impl Actor for Echo {
    type Context = Context<Self>;
}

impl Handler<Say> for Echo {
    type Result = Result<u64, Fault>;

    fn handle(&mut self, Say(number): Say, _: &mut Context<Self>) -> Self::Result {
        Ok(number)
    }
}

impl Handler<Fail> for Echo {
    type Result = Result<u64, Fault>;

    fn handle(&mut self, _: Fail, _: &mut Context<Self>) -> Self::Result {
        Err(Fault)
    }
}

impl Handler<FailAt> for Echo {
    type Result = Result<u64, Fault>;

    fn handle(&mut self, FailAt { origin, left }: FailAt, _: &mut Context<Self>) -> Self::Result {
        left.store(nanos(origin), Ordering::Release);
        Err(Fault)
    }
}

/// Nanoseconds since then.
pub fn nanos(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
