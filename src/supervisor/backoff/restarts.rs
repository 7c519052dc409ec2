//! Counts the restarts of one actor and tells the delay before the next.
//! Reading the clock and waiting are left to the supervising future.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::policy::RestartPolicy;

/// tokio's timers know nothing shorter, and a timer of zero may fire without giving up the turn.
const SHORTEST_DELAY: Duration = Duration::from_millis(1);

/// The highest limit that is one: so many restarts are remembered at most, 16 bytes each.
const HIGHEST_LIMIT: u32 = 4_096;

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
        if limit(policy).is_some_and(|limit| self.recent.len() >= limit) {
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
        if self.recent.len() >= limit(policy).unwrap_or(1) {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
    }
}

fn limit(policy: &RestartPolicy) -> Option<usize> {
    let limit = policy
        .max_restarts
        .filter(|limit| *limit <= HIGHEST_LIMIT)?;
    usize::try_from(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The delays of an actor that ends again after living for `lived`, up to its giving up.
    fn delays(policy: &RestartPolicy, lived: Duration, most: usize) -> Vec<Duration> {
        let mut restarts = Restarts::new(policy);
        let mut now = tokio::time::sleep(Duration::ZERO).deadline();
        let mut delays = Vec::new();
        while delays.len() < most {
            now = now.checked_add(lived).unwrap();
            let Some(delay) = restarts.delay(policy, now) else {
                break;
            };
            delays.push(delay);
            now = now.checked_add(delay).unwrap();
            restarts.record(policy, now);
        }
        delays
    }

    #[tokio::test]
    async fn limit_counts_restarts_that_fit_into_the_period() {
        let policy = RestartPolicy::new()
            .backoff(SECOND)
            .max_backoff(SECOND)
            .within(SECOND * 10)
            .max_restarts(5);
        // Every second: five in 10 s. Every third second: never more than four.
        assert_eq!(delays(&policy, Duration::ZERO, 100).len(), 5);
        assert_eq!(delays(&policy, SECOND * 2, 100).len(), 100);
    }

    #[tokio::test]
    async fn no_delay_is_shorter_than_the_timer_can_wait() {
        let policy = RestartPolicy::new().backoff(Duration::ZERO);
        assert_eq!(delays(&policy, Duration::ZERO, 3), [SHORTEST_DELAY; 3]);
    }

    #[tokio::test]
    async fn limit_of_zero_holds_even_for_a_period_of_zero() {
        let policy = RestartPolicy::new().within(Duration::ZERO).max_restarts(0);
        assert!(delays(&policy, SECOND, 100).is_empty());
    }

    #[tokio::test]
    async fn highest_limit_is_kept_and_a_higher_one_is_none() {
        let policy = RestartPolicy::new()
            .backoff(Duration::ZERO)
            .max_restarts(4_096);
        assert_eq!(delays(&policy, Duration::ZERO, 5_000).len(), 4_096);
        let policy = policy.max_restarts(4_097);
        assert_eq!(delays(&policy, Duration::ZERO, 5_000).len(), 5_000);
    }

    #[tokio::test]
    async fn remembers_no_more_than_the_limit_asks_for() {
        for (policy, most) in [
            (RestartPolicy::new(), 1),
            (RestartPolicy::new().max_restarts(3), 3),
            (RestartPolicy::new().max_restarts(u32::MAX), 1),
        ] {
            let policy = policy.within(Duration::MAX);
            let mut restarts = Restarts::new(&policy);
            let now = tokio::time::sleep(Duration::ZERO).deadline();
            for _ in 0..100 {
                restarts.record(&policy, now);
            }
            assert_eq!(restarts.recent.len(), most);
            assert_eq!(restarts.total(), 100);
        }
    }
}
