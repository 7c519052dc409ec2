//! The ramp-up: after a recovery a growing share of calls is admitted (R36).
//! How a recovery closes the circuit, and what ends that, is in [`circuit`](super).

use std::mem;
use std::time::Duration;

use super::record::Phase;
use super::window::Memory;
use super::{Circuit, Reason, Refused};
use crate::clock::Timestamp;

/// The longest `retry_after` of a caller that the ramp-up did not admit (R36).
const RAMP_UP_RETRY: Duration = Duration::from_secs(1);

impl Circuit {
    /// When the ramp-up that was begun last is over, if it has not been ended.
    pub(super) fn ramp_end(&self) -> Option<Timestamp> {
        match (&self.record.phase, self.config.ramp_up()) {
            (Phase::Ramping { since, .. }, Some(ramp_up)) => Some(*since + ramp_up.duration),
            _ => None,
        }
    }

    /// Whether only a share of calls is admitted at `now`.
    pub(crate) fn is_ramping(&self, now: Timestamp) -> bool {
        self.ramp_end().is_some_and(|end| end > now)
    }

    /// The share of calls that is admitted at `now`, while that is not all of them for good.
    pub(super) fn ramp_share(&self, now: Timestamp) -> Option<f64> {
        match (&self.record.phase, self.config.ramp_up()) {
            (Phase::Ramping { since, .. }, Some(ramp_up)) if self.is_ramping(now) => {
                Some(ramp_up.share(*since, now))
            }
            _ => None,
        }
    }

    /// Draws whether a call is beyond the share that is admitted at `now`. Where all are, and outside a
    /// ramp-up, nothing is drawn.
    pub(super) fn ramp_refusal(&mut self, now: Timestamp) -> Option<Refused> {
        let share = self.ramp_share(now)?;
        if share >= 1.0 || self.draw() < share {
            return None;
        }
        let soon = now + RAMP_UP_RETRY;
        let until = self.ramp_end().map_or(soon, |end| end.min(soon));
        Some(Refused {
            reason: Reason::RampUp,
            epoch: self.record.epoch,
            until: Some(until),
            retry_after: Some(until.since(now)),
        })
    }

    /// Forgets a ramp-up that is over: the circuit is closed as any other.
    pub(super) fn end_ramp(&mut self, now: Timestamp) {
        if self.is_ramping(now) {
            return;
        }
        if let Phase::Ramping { memory, .. } = &mut self.record.phase {
            let memory = mem::replace(memory, Memory::new(&self.config));
            self.record.phase = Phase::Closed(memory);
            self.record.newest = now;
        }
    }
}
