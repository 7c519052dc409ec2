//! What is kept of a member that nobody holds: its record, and no more.
//! When a member is put to rest, and where, is left to `family/table.rs`.

use std::sync::Arc;

use crate::breaker::Breaker;
use crate::circuit::{Circuit, Lifetime, Record};
use crate::clock::Timestamp;
use crate::config::BreakerConfig;
use crate::random::RandomSource;

/// A member at rest.
pub(super) struct Rest {
    record: Record,
    next_slot: u64,
    seq: u64,
    born: u64,
    /// The settings it had. Those of the family, unless `own`.
    config: BreakerConfig,
    /// Whether they were given to this member alone; it is never forgotten then.
    own: bool,
    /// When the record does not matter any more (R31).
    until: Timestamp,
}

/// What becomes of a member that nobody holds.
pub(super) enum Fate {
    Rest(Box<Rest>),
    /// It remembers nothing. Its epoch is not used again.
    Forgotten {
        epoch: u64,
    },
}

impl Fate {
    /// What there is to keep of a circuit. `born` is the epoch it began with when nothing was known.
    pub(super) fn of(
        circuit: &Circuit,
        seq: u64,
        born: Option<u64>,
        family: &BreakerConfig,
        now: Timestamp,
    ) -> Self {
        let own = circuit.config() != family;
        let until = match circuit.lifetime(now) {
            Lifetime::None if !own => {
                let epoch = circuit.record().epoch();
                return Self::Forgotten { epoch };
            }
            Lifetime::For(rest) if !own => now + rest,
            _ => Timestamp::MAX,
        };
        Self::Rest(Box::new(Rest {
            record: circuit.record().clone(),
            next_slot: circuit.next_slot(),
            seq,
            born: born.unwrap_or(u64::MAX),
            config: circuit.config().clone(),
            own,
            until,
        }))
    }
}

impl Rest {
    /// Puts a member to rest that nobody holds; gives it back if somebody does, or if it has something to
    /// do. `family` are the settings of the family.
    pub(super) fn of(
        member: Breaker,
        family: &BreakerConfig,
        now: Timestamp,
    ) -> Result<Fate, Breaker> {
        if !member.is_unused() {
            return Err(member);
        }
        let born = member.born();
        // Nobody can have come to hold it but its own timers, which only look.
        let kept = member.into_kept()?;
        let (circuit, seq) = kept.kept();
        Ok(Fate::of(circuit, seq, Some(born), family, now))
    }

    /// The circuit again, its `seq` and the epoch it was born with.
    pub(super) fn wake(
        self,
        family: &BreakerConfig,
        random: &Arc<dyn RandomSource>,
        now: Timestamp,
    ) -> (Circuit, u64, u64) {
        let mut circuit =
            Circuit::resumed(self.config, Arc::clone(random), self.record, self.next_slot);
        if !self.own && circuit.config() != family {
            circuit.reconfigure(family.clone(), now);
        }
        (circuit, self.seq, self.born)
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.until <= now && self.until < Timestamp::MAX
    }

    #[cfg(feature = "metrics")]
    pub(super) fn state(&self) -> crate::circuit::CircuitState {
        self.record.state()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.record.epoch()
    }
}
