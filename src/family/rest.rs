//! What is kept of a member that nobody holds: its record, and no more.
//! When a member is put to rest, and where, is left to `family/table.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::actor::{BreakerActor, Numbers};
use crate::breaker::Breaker;
use crate::circuit::{Circuit, CircuitState, Lifetime, Record, Since, Snapshot};
use crate::clock::Timestamp;
use crate::config::BreakerConfig;
use crate::random::RandomSource;

/// A member at rest.
pub(super) struct Rest {
    record: Record,
    next_slot: u64,
    numbers: Numbers,
    born: u64,
    since: Since,
    /// The settings it had.
    config: BreakerConfig,
    /// Whether they were given to this member alone; it is never forgotten then.
    own: bool,
    /// When the record does not matter any more (R31).
    until: Timestamp,
}

/// A member that was at rest, or is new.
pub(super) struct Woken {
    pub(super) circuit: Circuit,
    pub(super) numbers: Numbers,
    /// The epoch it began with when nothing was known.
    pub(super) born: u64,
    /// Whether its settings were given to it alone.
    pub(super) own: bool,
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
    /// What there is to keep of a member; `family` are the settings of the family.
    fn of(member: &BreakerActor, born: u64, family: &BreakerConfig, now: Timestamp) -> Self {
        let circuit = member.circuit();
        let own = member.has_own_settings() && circuit.config() != family;
        Self::new(circuit, member.numbers(), born, own, now)
    }

    /// What there is to keep of a record that another process wrote down.
    pub(super) fn restored(circuit: &Circuit, now: Timestamp) -> Self {
        // No call can have begun when nothing was known of it.
        Self::new(circuit, Numbers::default(), u64::MAX, false, now)
    }

    /// `born` is the epoch it began with when nothing was known.
    fn new(circuit: &Circuit, numbers: Numbers, born: u64, own: bool, now: Timestamp) -> Self {
        // What is left of its lifetime is left of it from then on (R3).
        let now = now.max(circuit.record().newest());
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
            numbers,
            born,
            since: circuit.since().clone(),
            config: circuit.config().clone(),
            own,
            until,
        }))
    }
}

impl Rest {
    /// Puts a member to rest that nobody holds; gives it back if somebody does, or if it has something to
    /// do. What is left of it is to be dropped, which is left to the caller.
    pub(super) fn of(
        member: Breaker,
        family: &BreakerConfig,
        now: Timestamp,
    ) -> Result<(Fate, BreakerActor), Breaker> {
        if !member.is_unused() {
            return Err(member);
        }
        let born = member.born();
        // Nobody can have come to hold it but its own timers, which only look.
        let kept = member.into_kept()?;
        Ok((Fate::of(&kept, born, family, now), kept))
    }

    /// What it was.
    pub(super) fn wake(
        self,
        family: &BreakerConfig,
        random: &Arc<dyn RandomSource>,
        now: Timestamp,
    ) -> Woken {
        let mut circuit =
            Circuit::resumed(self.config, Arc::clone(random), self.record, self.next_slot)
                .known_since(self.since);
        if !self.own && circuit.config() != family {
            circuit.reconfigure(family.clone(), now);
        }
        Woken {
            circuit,
            numbers: self.numbers,
            born: self.born,
            own: self.own,
        }
    }

    pub(super) fn config(&self) -> &BreakerConfig {
        &self.config
    }

    /// How much of what it refuses will be rejected once it is awake, in a family of those settings.
    pub(super) fn enforcement(&self, family: &BreakerConfig) -> f64 {
        if self.own {
            self.config.enforcement()
        } else {
            family.enforcement()
        }
    }

    pub(super) fn state(&self, now: Timestamp) -> CircuitState {
        self.record.state_at(now)
    }

    /// What there is to see of it.
    pub(super) fn look(&self, random: &Arc<dyn RandomSource>, now: Timestamp) -> Snapshot {
        let config = self.config.clone();
        let circuit = Circuit::resumed(
            config,
            Arc::clone(random),
            self.record.clone(),
            self.next_slot,
        )
        .known_since(self.since.clone());
        circuit.snapshot(now)
    }

    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.until <= now && self.until < Timestamp::MAX
    }

    /// Other settings may have it matter for longer; until it wakes, that is an upper bound.
    pub(super) fn keep_longer(&mut self, longer: Duration) {
        self.until = self.until + longer;
    }

    pub(super) fn epoch(&self) -> u64 {
        self.record.epoch()
    }
}
