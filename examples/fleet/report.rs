//! What a worker tells its parent: a line of JSON each, on its standard output.
//! What becomes of it is left to `log.rs`.

use std::time::Duration;

use actix_circuit_breaker::{Cause, CircuitState, Timestamp};
use serde::{Deserialize, Serialize};

/// All times are by the worker's own clock; the processes of one machine agree on it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Report {
    /// A call has ended.
    Call { number: u64, outcome: Outcome },
    /// The breaker's state changed.
    Change(Change),
    /// The store is gone: the breaker is on its own.
    Lost { at: Timestamp, error: String },
    /// The store is there again.
    Found {
        at: Timestamp,
        away: Duration,
        asked: u64,
    },
    /// The worker made so many calls and ends.
    End { asked: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Ok,
    Failed,
    Rejected,
    /// No answer in time, or the client went away.
    Unanswered,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Change {
    /// When this process came to know.
    pub(crate) at: Timestamp,
    /// The number of its newest call by then: what comes later was let through in this state, or a later one.
    pub(crate) asked: u64,
    pub(crate) from: CircuitState,
    pub(crate) to: CircuitState,
    pub(crate) cause: Cause,
    /// The same in all processes if it is one change of a record that they share.
    pub(crate) epoch: u64,
    /// When a break ends.
    pub(crate) until: Option<Timestamp>,
}
