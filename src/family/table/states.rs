//! How many members there are in each state, for those who watch the whole family.

use super::{Slot, Table, lock};
use crate::circuit::CircuitState;
use crate::clock::Timestamp;

impl Table {
    /// Counts the members that are kept: closed, open, half-open, forced open, forced closed.
    pub(in crate::family) fn states(&self, now: Timestamp) -> [u64; 5] {
        let mut counts = [0_u64; 5];
        let [closed, open, half_open, forced_open, forced_closed] = &mut counts;
        for shard in &self.shards {
            for slot in lock(shard).slots.values() {
                let state = match slot {
                    Slot::Awake(member, _) => member.state(),
                    Slot::AtRest(rest) => rest.state(now),
                };
                let count = match state {
                    CircuitState::Closed => &mut *closed,
                    CircuitState::Open => open,
                    CircuitState::HalfOpen => half_open,
                    CircuitState::ForcedOpen => forced_open,
                    CircuitState::ForcedClosed => forced_closed,
                };
                *count = count.saturating_add(1);
            }
        }
        counts
    }
}
