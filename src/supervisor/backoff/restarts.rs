//! Counts the restarts of one actor and tells the delay before the next.
//! Reading the clock and waiting are left to the supervising future.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::policy::RestartPolicy;

/// tokio's timers know nothing shorter, and a timer of zero may fire without giving up the turn.
const SHORTEST_DELAY: Duration = Duration::from_millis(1);

/// At most so many restarts are remembered (16 bytes each), whatever the limit.
pub(super) const MOST_REMEMBERED: u32 = 4_096;

#[derive(Debug)]
pub(super) struct Restarts {
    total: u64,
    /// Those within the period, the last one at the back.
    recent: VecDeque<Instant>,
    next_delay: Duration,
}

impl Restarts {
    pub(super) fn new(policy: &RestartPolicy) -> Self {
        Self {
            total: 0,
            recent: VecDeque::new(),
            next_delay: policy.backoff,
        }
    }

    /// How many there were since the actor was started.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The delay before a restart of the actor that ended now; `None` when they are used up.
    pub(super) fn delay(&mut self, policy: &RestartPolicy, now: Instant) -> Option<Duration> {
        while let Some(&first) = self.recent.front()
            && now.saturating_duration_since(first) >= policy.within
        {
            self.recent.pop_front();
        }
        if policy
            .max_restarts
            .is_some_and(|limit| self.recent.len() >= remembered(limit))
        {
            return None;
        }
        if self.recent.is_empty() {
            self.next_delay = policy.backoff;
        }
        let delay = self.next_delay.min(policy.max_backoff);
        self.next_delay = delay.saturating_mul(2);
        Some(delay.max(SHORTEST_DELAY))
    }

    pub(super) fn record(&mut self, policy: &RestartPolicy, now: Instant) {
        self.total = self.total.saturating_add(1);
        // Without a limit the last one will do: it tells how long the actor lived.
        if self.recent.len() >= remembered(policy.max_restarts.unwrap_or(1)) {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
    }
}

fn remembered(limit: u32) -> usize {
    usize::try_from(limit.min(MOST_REMEMBERED)).unwrap_or(usize::MAX)
}
