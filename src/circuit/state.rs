//! Where a circuit stands, as its users see it. How it gets from one to another: [`circuit`](super).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a circuit stands.
///
/// ```text
///            Tripped                 ProbeDue
///  Closed ────────────► Open ──────────────────► HalfOpen
///    ▲                    ▲   ProbeFailed,           │ │
///    │                    └── Inconclusive ──────────┘ │
///    └────────────────── Recovered ────────────────────┘
///
///  any state ── Forced ──► ForcedOpen / ForcedClosed ── Released ──► Closed
///                          ForcedOpen   ── Expired ──► Open, due
///                          ForcedClosed ── Expired ──► Closed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CircuitState {
    /// Calls pass and their outcomes are counted; during a ramp-up after a recovery, a share of them (R36).
    Closed,
    /// Calls are rejected until the break is over.
    Open,
    /// A few calls pass as probes; the others are rejected.
    HalfOpen,
    /// An operator's order rejects all calls.
    ForcedOpen,
    /// An operator's order lets all calls pass, whatever their outcomes.
    ForcedClosed,
}

impl CircuitState {
    /// Whether it is by an operator's order.
    pub(crate) fn is_forced(self) -> bool {
        matches!(self, Self::ForcedOpen | Self::ForcedClosed)
    }
}

impl fmt::Display for CircuitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
            Self::ForcedOpen => "forced open",
            Self::ForcedClosed => "forced closed",
        })
    }
}
