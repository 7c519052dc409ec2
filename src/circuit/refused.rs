//! Why a call was not admitted, as a value that answers questions.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::clock::Timestamp;

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
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "open",
            Self::ProbesInUse => "half-open with all probes in use",
            Self::ForcedOpen => "forced open",
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
    /// [`Reason::ProbesInUse`] at most a second; the rest of a forced open's ttl, `None` without one.
    /// Never zero.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// When that time is over.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }
}
