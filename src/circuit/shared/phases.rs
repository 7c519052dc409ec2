//! The state of a record in its two forms: as it goes to and fro, and as a circuit has it. What differs are the
//! slots of probes, which circuits number and everybody else names.

use std::sync::Arc;

use super::{CallId, Forced, SharedPhase, SharedProbe};
use crate::circuit::order::{Order, OrderKind};
use crate::circuit::permit::SlotId;
use crate::circuit::probe::Round;
use crate::circuit::record::Phase;
use crate::circuit::window::Memory;
use crate::clock::Timestamp;
use crate::config::BreakerConfig;

impl SharedPhase {
    /// The same as a circuit has it at `now`, with numbers for the probes' slots. No break in it is longer than
    /// the settings allow (R3), and no samples are remembered.
    pub(in crate::circuit) fn read(
        &self,
        config: &BreakerConfig,
        now: Timestamp,
        mut number: impl FnMut(CallId) -> SlotId,
    ) -> Phase {
        let longest = now + config.longest_break();
        match self {
            Self::Closed { ramping_since, .. } => {
                let memory = Memory::new(config);
                match ramping_since.filter(|_| config.ramp_up().is_some()) {
                    Some(since) => Phase::Ramping {
                        since: since.min(now),
                        memory,
                    },
                    None => Phase::Closed(memory),
                }
            }
            Self::Open { until } => Phase::Open {
                until: (*until).min(longest),
            },
            Self::HalfOpen {
                due,
                probes,
                successes,
                inconclusive,
            } => {
                let mut round = Round::voted(*successes, *inconclusive);
                for (at, probe) in probes.iter().enumerate() {
                    let is_again = (probes.iter().take(at)).any(|known| known.call == probe.call);
                    if !is_again {
                        round.seat(number(probe.call), probe.lease_end);
                    }
                }
                Phase::HalfOpen {
                    due: (*due).min(longest),
                    round,
                }
            }
            Self::Forced {
                kind,
                until,
                reason,
            } => Phase::Forced(Order {
                kind: (*kind).into(),
                until: *until,
                reason: Arc::clone(reason),
            }),
        }
    }

    /// What others have to know of a circuit's phase, with names for the probes' slots; `failures` are those
    /// that a custom rule looks at.
    pub(in crate::circuit) fn write(
        phase: &Phase,
        failures: impl FnOnce(&Memory) -> Vec<Timestamp>,
        name: impl Fn(SlotId) -> Option<CallId>,
    ) -> Self {
        let closed = |memory: &Memory, ramping_since| Self::Closed {
            remembers: memory.newest().is_some(),
            failures: failures(memory),
            ramping_since,
        };
        match phase {
            Phase::Closed(memory) => closed(memory, None),
            Phase::Ramping { since, memory } => closed(memory, Some(*since)),
            Phase::Open { until } => Self::Open { until: *until },
            Phase::HalfOpen { due, round } => {
                let mut probes: Vec<_> = round
                    .slots()
                    .filter_map(|(slot, end)| Some(SharedProbe::new(name(slot)?, end)))
                    .collect();
                probes.sort_unstable_by_key(|probe| (probe.lease_end, probe.call));
                Self::HalfOpen {
                    due: *due,
                    probes,
                    successes: round.successes(),
                    inconclusive: round.inconclusive(),
                }
            }
            Phase::Forced(order) => Self::Forced {
                kind: order.kind.into(),
                until: order.until,
                reason: Arc::clone(&order.reason),
            },
        }
    }
}

impl From<Forced> for OrderKind {
    fn from(kind: Forced) -> Self {
        match kind {
            Forced::Open => Self::Open,
            Forced::Closed => Self::Closed,
        }
    }
}

impl From<OrderKind> for Forced {
    fn from(kind: OrderKind) -> Self {
        match kind {
            OrderKind::Open => Self::Open,
            OrderKind::Closed => Self::Closed,
        }
    }
}
