//! Samples that are counted where somebody else says whether they may trip: the quorum of a shared record, or
//! the store. What a circuit by itself makes of a sample is in [`circuit`](super).

use super::{Circuit, window};
use crate::clock::Timestamp;

impl Circuit {
    /// Counts successes that came one after another; whether they may trip is not for it to say.
    pub(super) fn count_successes(&mut self, batch: u64, may_trip: bool, now: Timestamp) {
        if batch == 0 {
            return;
        }
        if let Some(memory) = self.record.phase.memory_mut() {
            let verdict = memory.add_successes(batch, &self.config, now);
            if may_trip {
                self.act_on(verdict, now);
            }
        }
    }

    /// Counts one call of a closed circuit; whether it may trip is not for it to say, and a custom rule is
    /// not asked.
    pub(super) fn count_sample(
        &mut self,
        failed: bool,
        slow: bool,
        may_trip: bool,
        now: Timestamp,
    ) {
        let sample = window::Sample { failed, slow };
        if let Some(memory) = self.record.phase.memory_mut() {
            memory.remember(sample, &self.config, now);
            if may_trip {
                let verdict = memory.judge(sample, &self.config, now);
                self.act_on(verdict, now);
            }
        }
    }
}
