//! What the shell around a circuit needs beside the steps: it publishes the state, and collects
//! successes outside. Nothing here is a rule of its own.

use std::sync::Arc;

use super::order::OrderKind;
use super::record::Phase;
use super::{Calls, Cause, Circuit, CircuitState, Evidence, Record, Transition, next_epoch};
use crate::clock::Timestamp;
use crate::config::BreakerConfig;
use crate::random::RandomSource;

impl Record {
    /// The state; an order whose time is over shows as the state it ends in (R8).
    pub(crate) fn state_at(&self, now: Timestamp) -> CircuitState {
        match &self.phase {
            Phase::Forced(order) if order.is_over(now) => match order.kind {
                OrderKind::Open => CircuitState::Open,
                OrderKind::Closed => CircuitState::Closed,
            },
            phase => phase.state(),
        }
    }
}

impl Circuit {
    /// Goes on with a record in the same process; nothing of it is under way.
    pub(crate) fn resumed(
        config: BreakerConfig,
        random: Arc<dyn RandomSource>,
        record: Record,
        next_slot: u64,
    ) -> Self {
        Self {
            next_slot,
            ..Self::from_record(config, random, record)
        }
    }

    /// The number of the next probe's slot, for one that goes on with the record.
    pub(crate) fn next_slot(&self) -> u64 {
        self.next_slot
    }

    /// Whether something waits to be fetched.
    pub(crate) fn has_news(&self) -> bool {
        self.news.is_some()
    }

    /// Starts above the epochs an owner has given out before, so that none is used twice (R1).
    pub(crate) fn above_epoch(mut self, highest: u64) -> Self {
        self.record.epoch = self.record.epoch.max(next_epoch(highest));
        self
    }

    /// Counts `batch` successes of `epoch` that were collected outside, none of them slow; as if each
    /// had been settled by itself. For rate policies.
    pub(crate) fn settle_successes(&mut self, epoch: u64, batch: u64, now: Timestamp) {
        if batch == 0 {
            return;
        }
        let now = self.begin(now);
        self.record.newest = now;
        if epoch != self.record.epoch {
            self.calls.late = self.calls.late.saturating_add(batch);
            return;
        }
        self.calls.successes = self.calls.successes.saturating_add(batch);
        if self.record_successes_there(batch, now) {
            return;
        }
        if let Some(memory) = self.record.phase.memory_mut() {
            let verdict = memory.add_successes(batch, &self.config, now);
            self.act_on(verdict, now);
        }
    }

    /// The state as a transition into itself, for a new subscriber.
    pub(crate) fn present(&self, now: Timestamp) -> Transition {
        let state = self.record.state();
        let counts = self.counts(now);
        Transition {
            from: state,
            to: state,
            cause: Cause::Present,
            at: now.max(self.record.newest),
            epoch: self.record.epoch,
            evidence: self.complete(Evidence {
                failures: counts.failures,
                slow_calls: counts.slow,
                samples: counts.samples,
                ..Evidence::default()
            }),
        }
    }

    /// Whether a success changes the record now: there is something for it to forget.
    pub(crate) fn success_forgets(&self) -> bool {
        self.record
            .phase
            .memory()
            .is_some_and(|memory| self.config.success_forgets() && memory.newest().is_some())
            || self.others_remember()
    }

    /// Whether the next success could trip; see [`Memory::success_may_trip`].
    pub(crate) fn success_may_trip(&self, now: Timestamp) -> bool {
        !self.is_led()
            && self.record.phase.memory().is_some_and(|memory| {
                memory.success_may_trip(&self.config, now.max(self.record.newest))
            })
    }

    /// When the present bucket of a window of time ends.
    pub(crate) fn next_bucket(&self, now: Timestamp) -> Option<Timestamp> {
        let memory = self.record.phase.memory()?;
        memory.next_bucket(&self.config, now.max(self.record.newest))
    }

    /// When a closed circuit remembers nothing any more, a ramp-up included; `None` where time alone does
    /// not get there.
    pub(crate) fn empty_at(&self) -> Option<Timestamp> {
        let empty = self.record.phase.memory()?.empty_at(&self.config)?;
        Some(self.ramp_end().map_or(empty, |end| end.max(empty)))
    }

    /// What became of the calls so far.
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// A call that was refused goes to its target all the same, so that it was not rejected (R37).
    pub(crate) fn uncount_rejected(&mut self) {
        self.calls.rejected = self.calls.rejected.saturating_sub(1);
    }

    /// Counts outcomes that were found to be late outside.
    pub(crate) fn count_late(&mut self, late: u64) {
        self.calls.late = self.calls.late.saturating_add(late);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::Outcome;
    use crate::policy::TripPolicy;
    use crate::random::ThreadRandom;

    // R13: a slot that a lost probe still holds is not taken for that of a probe admitted later.
    #[test]
    fn what_goes_on_with_a_record_gives_no_slot_twice() {
        let trip = TripPolicy::ConsecutiveFailures {
            failures: 1,
            within: None,
        };
        let config = BreakerConfig::builder()
            .trip(trip)
            .break_duration(Duration::from_secs(10))
            .max_probes(2);
        let config = config.build().unwrap();
        let due = Timestamp::ZERO + Duration::from_secs(10);
        let mut circuit = Circuit::new(config.clone(), Timestamp::ZERO);
        let permit = circuit.try_acquire(Timestamp::ZERO).unwrap();
        circuit.settle(permit, Outcome::Failure, Timestamp::ZERO);
        let lost = circuit.try_acquire(due).unwrap();
        assert!(lost.is_probe());
        let slot = circuit.next_slot();
        assert_eq!(slot, 1);
        let record = circuit.record().clone();
        let mut circuit = Circuit::resumed(config, Arc::new(ThreadRandom), record, slot);
        let probe = circuit.try_acquire(due).unwrap();
        assert_eq!(circuit.next_slot(), 2);
        circuit.settle(probe, Outcome::Ignored, due);
        assert_eq!(circuit.snapshot(due).probes_in_flight, 1);
    }
}
