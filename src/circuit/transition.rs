//! What is told about a change of state: why, when, and what the circuit knew.
//! Who is told is the business of `event.rs`.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::CircuitState;
use crate::clock::Timestamp;

/// Why the state changed (R25).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The trip policy's limit was reached.
    Tripped,
    /// The break was over and a call came.
    ProbeDue,
    /// A probe failed.
    ProbeFailed,
    /// Too many probes in a row gave no verdict.
    Inconclusive,
    /// Enough probes succeeded.
    Recovered,
    /// An operator forced the circuit open or closed.
    Forced,
    /// An operator lifted the order.
    Released,
    /// The ttl of an order was over.
    Expired,
    /// An operator reset the circuit.
    Reset,
    /// Nothing changed: a new subscriber is told the present state.
    Present,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tripped => "tripped",
            Self::ProbeDue => "probe due",
            Self::ProbeFailed => "probe failed",
            Self::Inconclusive => "inconclusive",
            Self::Recovered => "recovered",
            Self::Forced => "forced",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Reset => "reset",
            Self::Present => "present",
        })
    }
}

/// What the circuit knew when its state changed. What does not apply is 0 or `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    /// The failures the trip policy had counted, the last one with them.
    pub failures: u64,
    /// The slow calls a rate policy had counted.
    pub slow_calls: u64,
    /// All calls a rate policy had counted.
    pub samples: u64,
    /// The successful probes of the round that ended.
    pub successes: u32,
    /// The probes in a row that gave no verdict in the round that ended.
    pub inconclusive: u32,
    /// How many rounds in a row had failed when the break began; 0 for the first break.
    pub attempt: u32,
    /// When the new state ends by itself: a break, or an order with a ttl.
    pub until: Option<Timestamp>,
    /// The operator's reason.
    pub reason: Option<Arc<str>>,
}

/// One change of state, as the circuit reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Transition {
    /// The state before.
    pub from: CircuitState,
    /// The state after.
    pub to: CircuitState,
    /// Why.
    pub cause: Cause,
    /// When.
    pub at: Timestamp,
    /// The epoch that began with it.
    pub epoch: u64,
    /// What the circuit knew.
    pub evidence: Evidence,
}
