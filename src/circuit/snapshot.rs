//! What a circuit shows to those who look: taken without changing anything (R8).

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::record::Phase;
use super::{Circuit, CircuitState, Reason};
use crate::clock::{Timestamp, span_as_text};

/// What a call would meet at some instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Peek {
    /// The state; an order whose time is over shows as the state it ends in.
    pub state: CircuitState,
    /// Whether the break is over, so that the next call is a probe.
    pub probe_due: bool,
    /// Why a call would be rejected; `None` if it would be admitted, and during a ramp-up, whose share
    /// of calls is drawn when they come.
    pub refusal: Option<Reason>,
    /// After what time a rejected call should come again; see [`Refused::retry_after`](super::Refused).
    #[serde(serialize_with = "span_as_text")]
    pub retry_after: Option<Duration>,
}

/// How many calls ended in which way since the circuit was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Calls {
    /// Successes that were reported to the circuit. A policy that does not look at successes is not
    /// told of those that change nothing, so that they cost nothing.
    pub successes: u64,
    /// Failures, timeouts with them.
    pub failures: u64,
    /// Calls that say nothing about the target.
    pub ignored: u64,
    /// Outcomes of calls that were admitted in an earlier epoch; they moved nothing (R11).
    pub late: u64,
    /// Calls that were not admitted. Of a breaker, those that did not go to their targets all the same; see
    /// [`simulated_rejections`](crate::Snapshot::simulated_rejections).
    pub rejected: u64,
    /// Probes that did not end within their lease, so that their slot was passed on.
    pub lost_probes: u64,
}

/// A circuit at some instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The instant.
    pub at: Timestamp,
    /// The state; an order whose time is over shows as the state it ends in.
    pub state: CircuitState,
    /// Whether the break is over, so that the next call is a probe.
    pub probe_due: bool,
    /// After what time a rejected call should come again; `None` if it would be admitted, and for a
    /// forced open without a ttl.
    #[serde(serialize_with = "span_as_text")]
    pub retry_after: Option<Duration>,
    /// When the state began. `None` while closed, and where a restored record was not changed since.
    pub since: Option<Timestamp>,
    /// Since when calls are rejected or pass as probes at most, however often the state changed between
    /// open, half-open and forced open meanwhile. `None` where they pass, and as `since` is.
    pub restrained_since: Option<Timestamp>,
    /// The epoch; see [`Record::epoch`](super::Record::epoch).
    pub epoch: u64,
    /// How many rounds of probes in a row have failed.
    pub attempt: u32,
    /// When the break or the order ends by itself.
    pub until: Option<Timestamp>,
    /// The reason of the operator's order in force.
    pub reason: Option<Arc<str>>,
    /// The share of calls that is admitted after a recovery; `None` outside a ramp-up.
    pub ramp_share: Option<f64>,
    /// The failures in the closed window.
    pub failures: u64,
    /// The slow calls in the closed window of a rate policy.
    pub slow_calls: u64,
    /// The calls in the closed window; for policies without a rate, the failures.
    pub samples: u64,
    /// The probes that hold a slot under a running lease.
    pub probes_in_flight: u32,
    /// The successful probes of this round.
    pub successes: u32,
    /// The probes in a row of this round that gave no verdict.
    pub inconclusive: u32,
    /// What became of the calls so far.
    pub calls: Calls,
}

impl Circuit {
    /// Returns what a call would meet at `now`, without changing anything.
    pub fn peek(&self, now: Timestamp) -> Peek {
        let now = now.max(self.record.newest);
        if let Phase::Forced(order) = &self.record.phase
            && order.is_over(now)
        {
            let state = self.after_order(order).state();
            return Peek {
                state,
                probe_due: state == CircuitState::Open,
                refusal: None,
                retry_after: None,
            };
        }
        // A slot that the store has given is there to be taken.
        let refused = self.refusal(now).filter(|_| !self.has_leave());
        let state = self.record.state();
        Peek {
            state,
            probe_due: state == CircuitState::Open && refused.is_none(),
            refusal: refused.map(|refused| refused.reason),
            retry_after: refused.and_then(|refused| refused.retry_after),
        }
    }

    /// Returns the circuit as it stands at `now`, without changing anything.
    pub fn snapshot(&self, now: Timestamp) -> Snapshot {
        let now = now.max(self.record.newest);
        let peek = self.peek(now);
        let counts = self.counts(now);
        let (probes_in_flight, successes, inconclusive) = match &self.record.phase {
            Phase::HalfOpen { round, .. } => {
                (round.held(now), round.successes(), round.inconclusive())
            }
            _ => (0, 0, 0),
        };
        let (since, restrained_since) = self.times(peek.state);
        let as_it_stands = peek.state == self.record.state();
        Snapshot {
            at: now,
            state: peek.state,
            probe_due: peek.probe_due,
            retry_after: peek.retry_after,
            since,
            restrained_since,
            epoch: self.record.epoch,
            attempt: self.record.attempt,
            until: self
                .record
                .phase
                .until()
                .filter(|_| as_it_stands || peek.state == CircuitState::Open),
            reason: self.reason().filter(|_| as_it_stands),
            ramp_share: self.ramp_share(now),
            failures: counts.failures,
            slow_calls: counts.slow,
            samples: counts.samples,
            probes_in_flight,
            successes,
            inconclusive,
            calls: self.calls,
        }
    }
}
