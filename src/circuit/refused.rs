//! Why a call is not admitted (R6, R7, R9), as a value that answers questions.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Circuit;
use super::order::OrderKind;
use super::record::Phase;
use crate::clock::Timestamp;

/// The longest `retry_after` of a caller that met all probes in use (R9).
pub(super) const PROBES_IN_USE_RETRY: Duration = Duration::from_secs(1);

/// Why a call was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The break is not over.
    Open,
    /// All probes that may run at once are running.
    ProbesInUse,
    /// An operator forced the breaker open.
    ForcedOpen,
    /// The breaker has recovered and admits a growing share of calls; this one was not among them (R36).
    RampUp,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "open",
            Self::ProbesInUse => "half-open with all probes in use",
            Self::ForcedOpen => "forced open",
            Self::RampUp => "ramping up",
        })
    }
}

/// A call that the circuit did not admit. It leaves no trace in the record (R9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the circuit is {reason}")]
pub struct Refused {
    pub(super) reason: Reason,
    pub(super) epoch: u64,
    pub(super) until: Option<Timestamp>,
    pub(super) retry_after: Option<Duration>,
}

impl Refused {
    /// Returns why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the epoch of the refusal.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns after what time another attempt makes sense (R9): the rest of the break; for
    /// [`Reason::ProbesInUse`] at most a second; the rest of a forced open's ttl, `None` without one; for
    /// [`Reason::RampUp`] the rest of the ramp-up and at most a second. Never zero.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// When that time is over.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

impl Circuit {
    /// Why a call is not admitted as a probe before the store has given leave.
    pub(super) fn no_probe_yet(&self, now: Timestamp) -> Refused {
        let soon = now + PROBES_IN_USE_RETRY;
        Refused {
            reason: Reason::ProbesInUse,
            epoch: self.record.epoch,
            until: Some(soon),
            retry_after: Some(PROBES_IN_USE_RETRY),
        }
    }

    /// Why a call would not be admitted, by the record as it stands. Whom a ramp-up refuses is drawn.
    pub(super) fn refusal(&self, now: Timestamp) -> Option<Refused> {
        let (reason, until) = match &self.record.phase {
            Phase::Closed(_) | Phase::Ramping { .. } => return None,
            Phase::Open { until } if *until <= now => return None,
            Phase::Open { until } => (Reason::Open, Some(*until)),
            Phase::HalfOpen { round, .. } => {
                if round.admits(
                    self.config.max_probes(),
                    self.config.max_inconclusive(),
                    now,
                ) {
                    return None;
                }
                let soon = now + PROBES_IN_USE_RETRY;
                let until = round.first_lease_end(now).unwrap_or(soon).min(soon);
                (Reason::ProbesInUse, Some(until))
            }
            Phase::Forced(order) => match order.kind {
                OrderKind::Closed => return None,
                OrderKind::Open => (Reason::ForcedOpen, order.until),
            },
        };
        Some(Refused {
            reason,
            epoch: self.record.epoch,
            until,
            retry_after: until.map(|until| until.since(now)),
        })
    }
}
