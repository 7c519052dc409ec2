//! Since when a circuit is in its state, for those who look. No rule depends on it, so it is no part of the
//! record (R1): another process that restores the record does not know it until the next change.

use super::record::Phase;
use super::{Circuit, CircuitState};
use crate::clock::Timestamp;

/// Kept only while there is something to keep: most circuits are closed most of the time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Since(Option<Box<Times>>);

#[derive(Debug, Clone, Copy)]
struct Times {
    state: Timestamp,
    restrained: Option<Timestamp>,
}

/// Whether calls are rejected, or pass as probes at most.
fn restrains(state: CircuitState) -> bool {
    !matches!(state, CircuitState::Closed | CircuitState::ForcedClosed)
}

impl Since {
    /// Takes note of a change of state.
    pub(super) fn note(&mut self, from: CircuitState, to: CircuitState, at: Timestamp) {
        if to == CircuitState::Closed {
            self.0 = None;
            return;
        }
        let restrained = match (restrains(from), restrains(to)) {
            (_, false) => None,
            (false, true) => Some(at),
            (true, true) => self.0.as_ref().and_then(|times| times.restrained),
        };
        let times = Times {
            state: at,
            restrained,
        };
        self.0 = Some(Box::new(times));
    }
}

impl Circuit {
    /// When the state began that `state` shows, and since when calls are not simply let through.
    pub(super) fn times(&self, state: CircuitState) -> (Option<Timestamp>, Option<Timestamp>) {
        let times = self.since.0.as_deref();
        let restrained = times.and_then(|times| times.restrained);
        match &self.record.phase {
            // An order whose time is over: what it ends in began then.
            Phase::Forced(order) if state != self.record.state() => match state {
                CircuitState::Closed => (None, None),
                _ => (order.until, restrained),
            },
            _ => (times.map(|times| times.state), restrained),
        }
    }

    /// Since when, for one that goes on with the record in the same process.
    pub(crate) fn since(&self) -> &Since {
        &self.since
    }

    /// Goes on with what [`since`](Self::since) told.
    pub(crate) fn known_since(mut self, since: Since) -> Self {
        self.since = since;
        self
    }
}
