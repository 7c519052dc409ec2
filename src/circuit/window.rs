//! What a trip policy remembers of the calls of a closed circuit, and whether it is enough to trip.
//! Each policy keeps the least it needs, so memory is bounded by the settings (R18).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Timestamp, micros};
use crate::config::BreakerConfig;
use crate::policy::{TripPolicy, TripRule, Window};

/// How many failures a custom rule sees at most.
const CUSTOM_FAILURES: usize = 100;

/// How many buckets a window of time has.
const BUCKETS: u64 = 10;

/// One counted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) failed: bool,
    pub(crate) slow: bool,
}

/// What a sample did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Stay,
    Trip,
    /// The custom rule panicked, which means "stay".
    RulePanicked,
}

impl Verdict {
    fn trip_if(trips: bool) -> Self {
        if trips { Self::Trip } else { Self::Stay }
    }
}

/// What is in the window at some instant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) failures: u64,
    pub(super) slow: u64,
    pub(super) samples: u64,
}

/// The memory of one closed window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Memory {
    /// The length of a run of failures whose distance in time does not matter.
    Run { length: u32, newest: Timestamp },
    /// The instants of failures, oldest first.
    Instants(VecDeque<Timestamp>),
    /// The last calls: how many there were ever, and which of them failed or were slow.
    Calls {
        seen: u64,
        failures: VecDeque<u64>,
        slow: VecDeque<u64>,
        newest: Timestamp,
    },
    /// The calls of the last span.
    Buckets {
        buckets: VecDeque<Bucket>,
        newest: Timestamp,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bucket {
    start: Timestamp,
    samples: u64,
    failures: u64,
    slow: u64,
}

impl Memory {
    pub(super) fn new(config: &BreakerConfig) -> Self {
        match config.trip() {
            TripPolicy::ConsecutiveFailures { within: None, .. } => Self::Run {
                length: 0,
                newest: Timestamp::ZERO,
            },
            TripPolicy::ConsecutiveFailures { .. }
            | TripPolicy::FailureCount { .. }
            | TripPolicy::Custom(_) => Self::Instants(VecDeque::new()),
            TripPolicy::FailureRate { window, .. } => match window {
                Window::Calls(_) => Self::Calls {
                    seen: 0,
                    failures: VecDeque::new(),
                    slow: VecDeque::new(),
                    newest: Timestamp::ZERO,
                },
                Window::Time(_) => Self::Buckets {
                    buckets: VecDeque::new(),
                    newest: Timestamp::ZERO,
                },
            },
        }
    }

    /// Counts one call and evaluates the policy.
    pub(super) fn add(
        &mut self,
        sample: Sample,
        config: &BreakerConfig,
        now: Timestamp,
    ) -> Verdict {
        match (&mut *self, config.trip()) {
            (Self::Run { length, newest }, TripPolicy::ConsecutiveFailures { failures, .. }) => {
                if sample.failed {
                    *length = length.saturating_add(1);
                    *newest = now;
                } else {
                    *length = 0;
                }
                Verdict::trip_if(*length >= *failures)
            }
            (Self::Instants(instants), TripPolicy::Custom(rule)) => {
                add_to_custom(instants, sample, rule.as_ref(), config, now)
            }
            (
                Self::Instants(instants),
                TripPolicy::ConsecutiveFailures { failures, .. }
                | TripPolicy::FailureCount { failures, .. },
            ) => {
                if !sample.failed {
                    if config.success_forgets() {
                        instants.clear();
                    }
                    return Verdict::Stay;
                }
                let most = usize::try_from(*failures).unwrap_or(usize::MAX);
                push(instants, config.lookback(), most, now);
                Verdict::trip_if(instants.len() >= most)
            }
            (
                Self::Calls {
                    seen,
                    failures,
                    slow,
                    newest,
                },
                _,
            ) => {
                *seen = seen.saturating_add(1);
                *newest = now;
                if sample.failed {
                    failures.push_back(*seen);
                }
                if sample.slow {
                    slow.push_back(*seen);
                }
                self.sweep(config, now);
                Verdict::trip_if(self.rate_reached(config, now))
            }
            (Self::Buckets { newest, .. }, _) => {
                *newest = now;
                self.sweep(config, now);
                if let Some(bucket) = self.bucket(config, now) {
                    bucket.samples = bucket.samples.saturating_add(1);
                    bucket.failures = bucket.failures.saturating_add(sample.failed.into());
                    bucket.slow = bucket.slow.saturating_add(sample.slow.into());
                }
                Verdict::trip_if(self.rate_reached(config, now))
            }
            // A memory is always made for the config beside it.
            (Self::Run { .. } | Self::Instants(_), _) => Verdict::Stay,
        }
    }

    /// Counts `batch` successes that came one after another, none of them slow, as if each had been
    /// counted and evaluated by itself: it trips if one of them would have. For rate policies alone.
    pub(super) fn add_successes(
        &mut self,
        batch: u64,
        config: &BreakerConfig,
        now: Timestamp,
    ) -> Verdict {
        if batch == 0 {
            return Verdict::Stay;
        }
        self.sweep(config, now);
        // A success lowers the rate once the minimum is there, so the first one that sees the
        // minimum reached is the one that trips, if any does.
        let trips = self.success_may_trip(config, now)
            && self.counts(config, now).samples.saturating_add(batch) >= minimum_calls(config);
        match self {
            Self::Calls { seen, newest, .. } => {
                *seen = seen.saturating_add(batch);
                *newest = now;
            }
            Self::Buckets { newest, .. } => {
                *newest = now;
                if let Some(bucket) = self.bucket(config, now) {
                    bucket.samples = bucket.samples.saturating_add(batch);
                }
            }
            Self::Run { .. } | Self::Instants(_) => return Verdict::Stay,
        }
        if !trips {
            self.sweep(config, now);
        }
        Verdict::trip_if(trips)
    }

    /// Tells whether the next success, or a later one, can trip by filling the minimum of calls or by
    /// being the first to look after old successes aged out.
    pub(super) fn success_may_trip(&self, config: &BreakerConfig, now: Timestamp) -> bool {
        let TripPolicy::FailureRate {
            rate,
            minimum_calls,
            window,
            slow_call,
        } = config.trip()
        else {
            return false;
        };
        let counts = self.counts(config, now);
        let mut samples = counts.samples.saturating_add(1);
        if let Window::Calls(calls) = window {
            samples = samples.min((*calls).into());
        }
        let samples = samples.max((*minimum_calls).into());
        share(counts.failures, samples) >= *rate
            || slow_call.is_some_and(|slow| share(counts.slow, samples) >= slow.rate)
    }

    fn rate_reached(&self, config: &BreakerConfig, now: Timestamp) -> bool {
        let TripPolicy::FailureRate {
            rate,
            minimum_calls,
            slow_call,
            ..
        } = config.trip()
        else {
            return false;
        };
        let counts = self.counts(config, now);
        counts.samples >= (*minimum_calls).into()
            && (share(counts.failures, counts.samples) >= *rate
                || slow_call.is_some_and(|slow| share(counts.slow, counts.samples) >= slow.rate))
    }

    /// What is in the window at `now`.
    pub(super) fn counts(&self, config: &BreakerConfig, now: Timestamp) -> Counts {
        match self {
            Self::Run { length, .. } => {
                let failures = (*length).into();
                Counts {
                    failures,
                    slow: 0,
                    samples: failures,
                }
            }
            Self::Instants(instants) => {
                let failures = instants
                    .iter()
                    .filter(|instant| !is_out(**instant, config.lookback(), now));
                let failures = length(failures.count());
                Counts {
                    failures,
                    slow: 0,
                    samples: failures,
                }
            }
            Self::Calls {
                seen,
                failures,
                slow,
                ..
            } => Counts {
                failures: length(failures.len()),
                slow: length(slow.len()),
                samples: (*seen).min(window_calls(config)),
            },
            Self::Buckets { buckets, .. } => buckets
                .iter()
                .filter(|bucket| !is_out(bucket.start, config.lookback(), now))
                .fold(Counts::default(), |sum, bucket| Counts {
                    failures: sum.failures.saturating_add(bucket.failures),
                    slow: sum.slow.saturating_add(bucket.slow),
                    samples: sum.samples.saturating_add(bucket.samples),
                }),
        }
    }

    /// When the newest sample came, if one is remembered.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        match self {
            Self::Run { length, newest } => (*length > 0).then_some(*newest),
            Self::Instants(instants) => instants.back().copied(),
            Self::Calls { seen, newest, .. } => (*seen > 0).then_some(*newest),
            Self::Buckets { buckets, newest } => (!buckets.is_empty()).then_some(*newest),
        }
    }

    /// When nothing in the window counts any more: the present for an empty one, `None` for one that
    /// time alone does not empty.
    pub(super) fn empty_at(&self, config: &BreakerConfig, now: Timestamp) -> Option<Timestamp> {
        match (self.newest(), config.lookback()) {
            (None, _) => Some(now),
            (Some(newest), Some(lookback)) => Some(newest + lookback),
            (Some(_), None) => None,
        }
    }

    /// When the bucket that holds `now` ends, for a window of time that holds anything.
    pub(super) fn next_bucket(&self, config: &BreakerConfig, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Buckets { buckets, .. } if !buckets.is_empty() => {
                Some(bucket_start(config, now) + bucket_width(config))
            }
            _ => None,
        }
    }

    /// This memory as another process may take it over: nothing of it lies in the future, and it fits
    /// the policy; if it cannot, it is empty.
    pub(super) fn restored(self, config: &BreakerConfig, now: Timestamp) -> Self {
        let mut memory = Self::new(config);
        match (&mut memory, self) {
            (
                Self::Run { length, newest },
                Self::Run {
                    length: old,
                    newest: then,
                },
            ) => {
                *length = old.min(trip_length(config).saturating_sub(1));
                *newest = then.min(now);
            }
            (Self::Instants(instants), Self::Instants(old)) => {
                let mut old: Vec<_> = old.into_iter().map(|instant| instant.min(now)).collect();
                old.sort_unstable();
                let most = match config.trip() {
                    TripPolicy::Custom(_) => CUSTOM_FAILURES,
                    _ => {
                        usize::try_from(trip_length(config).saturating_sub(1)).unwrap_or(usize::MAX)
                    }
                };
                instants.extend(old.iter().skip(old.len().saturating_sub(most)));
            }
            (
                Self::Calls {
                    seen,
                    failures,
                    slow,
                    newest,
                },
                Self::Calls {
                    seen: old_seen,
                    failures: old_failures,
                    slow: old_slow,
                    newest: then,
                },
            ) => {
                let positions = |old: VecDeque<u64>| {
                    let mut old: Vec<_> = old
                        .into_iter()
                        .filter(|position| (1..=old_seen).contains(position))
                        .collect();
                    old.sort_unstable();
                    old.dedup();
                    old.into()
                };
                *seen = old_seen;
                *failures = positions(old_failures);
                *slow = positions(old_slow);
                *newest = then.min(now);
            }
            (
                Self::Buckets { newest, .. },
                Self::Buckets {
                    buckets: mut old,
                    newest: then,
                },
            ) => {
                *newest = then.min(now);
                old.make_contiguous()
                    .sort_unstable_by_key(|bucket| bucket.start);
                for old in old {
                    if let Some(bucket) = memory.bucket(config, old.start.min(now)) {
                        bucket.samples = bucket.samples.saturating_add(old.samples);
                        bucket.failures = bucket
                            .failures
                            .saturating_add(old.failures)
                            .min(bucket.samples);
                        bucket.slow = bucket.slow.saturating_add(old.slow).min(bucket.samples);
                    }
                }
            }
            _ => {}
        }
        memory.sweep(config, now);
        memory
    }

    /// Drops what is out of the window.
    fn sweep(&mut self, config: &BreakerConfig, now: Timestamp) {
        match self {
            Self::Run { .. } => {}
            Self::Instants(instants) => {
                while instants
                    .front()
                    .is_some_and(|oldest| is_out(*oldest, config.lookback(), now))
                {
                    instants.pop_front();
                }
            }
            Self::Calls {
                seen,
                failures,
                slow,
                ..
            } => {
                let out = seen.saturating_sub(window_calls(config));
                for positions in [failures, slow] {
                    while positions.front().is_some_and(|oldest| *oldest <= out) {
                        positions.pop_front();
                    }
                }
            }
            Self::Buckets { buckets, .. } => {
                while buckets
                    .front()
                    .is_some_and(|oldest| is_out(oldest.start, config.lookback(), now))
                {
                    buckets.pop_front();
                }
            }
        }
    }

    /// The bucket that holds `at`, which is no earlier than the newest one.
    fn bucket(&mut self, config: &BreakerConfig, at: Timestamp) -> Option<&mut Bucket> {
        let Self::Buckets { buckets, .. } = self else {
            return None;
        };
        let start = bucket_start(config, at);
        if buckets.back().is_none_or(|newest| newest.start < start) {
            buckets.push_back(Bucket {
                start,
                samples: 0,
                failures: 0,
                slow: 0,
            });
        }
        buckets.back_mut()
    }
}

/// Adds a failure to those a custom rule sees and asks the rule; its code runs before anything
/// changes.
fn add_to_custom(
    instants: &mut VecDeque<Timestamp>,
    sample: Sample,
    rule: &dyn TripRule,
    config: &BreakerConfig,
    now: Timestamp,
) -> Verdict {
    if !sample.failed {
        if config.success_forgets() {
            instants.clear();
        }
        return Verdict::Stay;
    }
    let mut seen = instants.clone();
    push(&mut seen, config.lookback(), CUSTOM_FAILURES, now);
    let trips = catch_unwind(AssertUnwindSafe(|| rule.trips(seen.make_contiguous(), now)));
    *instants = seen;
    trips.map_or(Verdict::RulePanicked, Verdict::trip_if)
}

fn push(instants: &mut VecDeque<Timestamp>, within: Option<Duration>, most: usize, now: Timestamp) {
    while instants
        .front()
        .is_some_and(|oldest| instants.len() >= most || is_out(*oldest, within, now))
    {
        instants.pop_front();
    }
    instants.push_back(now);
}

fn is_out(instant: Timestamp, within: Option<Duration>, now: Timestamp) -> bool {
    within.is_some_and(|within| instant.is_over(within, now))
}

fn trip_length(config: &BreakerConfig) -> u32 {
    match config.trip() {
        TripPolicy::ConsecutiveFailures { failures, .. }
        | TripPolicy::FailureCount { failures, .. } => *failures,
        TripPolicy::FailureRate { .. } | TripPolicy::Custom(_) => u32::MAX,
    }
}

fn minimum_calls(config: &BreakerConfig) -> u64 {
    match config.trip() {
        TripPolicy::FailureRate { minimum_calls, .. } => (*minimum_calls).into(),
        _ => u64::MAX,
    }
}

fn window_calls(config: &BreakerConfig) -> u64 {
    match config.trip() {
        TripPolicy::FailureRate {
            window: Window::Calls(calls),
            ..
        } => (*calls).into(),
        _ => u64::MAX,
    }
}

fn bucket_width(config: &BreakerConfig) -> Duration {
    let span = config.lookback().map_or(1, micros);
    Duration::from_micros(span.div_ceil(BUCKETS).max(1))
}

fn bucket_start(config: &BreakerConfig, at: Timestamp) -> Timestamp {
    let width = micros(bucket_width(config));
    let into = at.as_micros().checked_rem(width).unwrap_or(0);
    Timestamp::from_micros(at.as_micros().saturating_sub(into))
}

fn length(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "counts stay far below 2^53, where a double is exact"
)]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
