//! All that a circuit remembers, as one value that cannot contradict itself (R1, R2).
//! Nothing here decides; the steps that change it are in [`circuit`](super).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::order::{Order, OrderKind};
use super::probe::Round;
use super::window::Memory;
use super::{Circuit, CircuitState, next_epoch};
use crate::clock::Timestamp;
use crate::config::BreakerConfig;
use crate::random::{RandomSource, ThreadRandom};

/// All that a circuit remembers; write it down to [`restore`](super::Circuit::restore) it in another
/// process.
///
/// What the fields of R1 could say in contradiction (a deadline without a break, probes in a closed
/// circuit) has no representation here: each belongs to one phase.
///
/// # Why there are three fields
///
/// Failures and a restraint seem to be enough: no restraint is closed, and one that is over lets a probe
/// pass and is set anew. That decides like a machine of four states and stamps as long as one call at a
/// time is under way. With two it does not, for it cannot tell a failed probe from another call that
/// fails after the trip. A break of two units, one failure to trip:
///
/// ```text
/// at 0   two calls are admitted
/// at 0   the first fails: both forms are open until 2
/// at 2   the second fails: the machine ignores it; with two fields the break now ends at 4
/// at 2   a call comes: the machine sends it as a probe; with two fields it is rejected
/// ```
///
/// No shorter story tells them apart. So every call that was under way at the trip and times out later makes
/// the break longer. A third field, whether a probe is under way, with the rule that failures change nothing
/// while open (R12), decides like the machine in every state that can be reached; `tests/equivalence.rs`
/// visits them all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub(super) phase: Phase,
    pub(super) epoch: u64,
    pub(super) attempt: u32,
    pub(super) newest: Timestamp,
}

/// The state with what belongs to it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// R1's `failures`, with nothing else set.
    Closed(Memory),
    /// R1's `restrained_until`.
    Open { until: Timestamp },
    /// R1's `probing`, with the deadline that fell due.
    HalfOpen { due: Timestamp, round: Round },
    /// R1's `override`, over an otherwise empty record.
    Forced(Order),
    /// Closed, with the instant at which a recovery began to admit a growing share of calls (R36). The
    /// last one, so that records written without it read as they did.
    Ramping { since: Timestamp, memory: Memory },
}

impl Phase {
    pub(super) fn state(&self) -> CircuitState {
        match self {
            Self::Closed(_) | Self::Ramping { .. } => CircuitState::Closed,
            Self::Open { .. } => CircuitState::Open,
            Self::HalfOpen { .. } => CircuitState::HalfOpen,
            Self::Forced(Order {
                kind: OrderKind::Open,
                ..
            }) => CircuitState::ForcedOpen,
            Self::Forced(Order {
                kind: OrderKind::Closed,
                ..
            }) => CircuitState::ForcedClosed,
        }
    }

    /// When its state ends by itself.
    pub(super) fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Closed(_) | Self::Ramping { .. } | Self::HalfOpen { .. } => None,
            Self::Open { until } => Some(*until),
            Self::Forced(order) => order.until,
        }
    }

    /// What a closed circuit remembers.
    pub(super) fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Closed(memory) | Self::Ramping { memory, .. } => Some(memory),
            Self::Open { .. } | Self::HalfOpen { .. } | Self::Forced(_) => None,
        }
    }

    pub(super) fn memory_mut(&mut self) -> Option<&mut Memory> {
        match self {
            Self::Closed(memory) | Self::Ramping { memory, .. } => Some(memory),
            Self::Open { .. } | Self::HalfOpen { .. } | Self::Forced(_) => None,
        }
    }
}

impl Record {
    /// Returns the state as the last step left it.
    pub fn state(&self) -> CircuitState {
        self.phase.state()
    }

    /// Returns the epoch: a number that is raised at every change of state and at a reset, and never
    /// used again.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns how many rounds of probes in a row have failed.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the newest instant a step has seen.
    pub fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Returns the end of the break: of the present one while open, of the one that fell due while
    /// half-open.
    pub fn restrained_until(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Open { until } => Some(*until),
            Phase::HalfOpen { due, .. } => Some(*due),
            Phase::Closed(_) | Phase::Ramping { .. } | Phase::Forced(_) => None,
        }
    }
}

impl Circuit {
    /// Takes over what another process wrote down, at `now` of this one (R29): with a new epoch,
    /// nothing later than `now` but an order's end, no break longer than the config's longest, and a
    /// half-open round as a break that is over. What the config's policy cannot read of the window is
    /// dropped: a count of calls is of no use to one that looks at instants.
    pub fn restore(config: BreakerConfig, record: Record, now: Timestamp) -> Self {
        Self::restore_with_random(config, record, Arc::new(ThreadRandom), now)
    }

    /// Takes over as [`restore`](Self::restore) does, with a random source of one's own for the jitter
    /// and the ramp-up.
    pub fn restore_with_random(
        config: BreakerConfig,
        record: Record,
        random: Arc<dyn RandomSource>,
        now: Timestamp,
    ) -> Self {
        let Record {
            phase,
            epoch,
            attempt,
            newest,
        } = record;
        let phase = match phase {
            Phase::Closed(memory) => Phase::Closed(memory.restored(&config, now)),
            Phase::Ramping { since, memory } => {
                let memory = memory.restored(&config, now);
                match config.ramp_up() {
                    Some(_) => Phase::Ramping {
                        since: since.min(now),
                        memory,
                    },
                    None => Phase::Closed(memory),
                }
            }
            Phase::Open { until } => Phase::Open {
                until: until.min(now + config.longest_break()),
            },
            Phase::HalfOpen { due, .. } => Phase::Open {
                until: due.min(now),
            },
            Phase::Forced(order) => Phase::Forced(order),
        };
        let record = Record {
            phase,
            epoch: next_epoch(epoch).max(now.as_micros()),
            attempt,
            newest: newest.min(now),
        };
        Self::from_record(config, random, record)
    }
}
