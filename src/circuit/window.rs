//! What a trip policy remembers of the calls of a closed circuit, and whether it is enough to trip.
//! Each policy keeps the least it needs, in a file of its own; memory is bounded by the settings (R18).

mod buckets;
mod calls;
mod failures;

use std::mem::discriminant;

use serde::{Deserialize, Serialize};

use crate::caught::caught;
use crate::clock::{Timestamp, micros};
use crate::config::BreakerConfig;
use crate::policy::{TripPolicy, Window};
use buckets::{Buckets, bucket_end};
use calls::LastCalls;
use failures::{Instants, Run};

/// How many failures a custom rule sees at most.
const CUSTOM_FAILURES: usize = 100;

/// One counted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) failed: bool,
    pub(super) slow: bool,
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

/// How the samples of a window are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// So many of them one by one.
    Each(usize),
    /// By their places among the calls.
    ByPlace,
    /// Added up.
    Sum,
}

/// What is in the window at some instant. For policies without a rate every sample is a failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) failures: u64,
    pub(super) slow: u64,
    pub(super) samples: u64,
}

impl Counts {
    fn of_failures(failures: u64) -> Self {
        Self {
            failures,
            slow: 0,
            samples: failures,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            failures: self.failures.saturating_add(other.failures),
            slow: self.slow.saturating_add(other.slow),
            samples: self.samples.saturating_add(other.samples),
        }
    }

    /// The same with no more failures and slow calls than there were calls.
    fn plausible(self) -> Self {
        Self {
            failures: self.failures.min(self.samples),
            slow: self.slow.min(self.samples),
            samples: self.samples,
        }
    }
}

/// The memory of one closed window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Memory {
    Run(Run),
    Instants(Instants),
    /// Boxed, since it is twice as large as the others.
    Calls(Box<LastCalls>),
    Buckets(Buckets),
}

impl Memory {
    pub(super) fn new(config: &BreakerConfig) -> Self {
        match config.trip() {
            TripPolicy::ConsecutiveFailures { within: None, .. } => Self::Run(Run::default()),
            TripPolicy::ConsecutiveFailures { .. }
            | TripPolicy::FailureCount { .. }
            | TripPolicy::Custom(_) => Self::Instants(Instants::default()),
            TripPolicy::FailureRate { window, .. } => match window {
                Window::Calls(_) => Self::Calls(Box::default()),
                Window::Time(_) => Self::Buckets(Buckets::default()),
            },
        }
    }

    /// Counts one call and evaluates the policy. A custom rule runs before anything changes.
    pub(super) fn add(
        &mut self,
        sample: Sample,
        config: &BreakerConfig,
        now: Timestamp,
    ) -> Verdict {
        if let (Self::Instants(instants), TripPolicy::Custom(_), true) =
            (&mut *self, config.trip(), sample.failed)
        {
            let mut seen = instants.clone();
            seen.add(config.lookback().unwrap_or_default(), CUSTOM_FAILURES, now);
            let verdict = ask_rule(config, seen.as_slice(), now);
            *instants = seen;
            return verdict;
        }
        self.remember(sample, config, now);
        self.judge(sample, config, now)
    }

    /// Counts one call, and evaluates nothing.
    pub(super) fn remember(&mut self, sample: Sample, config: &BreakerConfig, now: Timestamp) {
        let within = config.lookback().unwrap_or_default();
        match self {
            Self::Run(run) => run.add(sample.failed, now),
            Self::Instants(instants) if sample.failed => {
                let most = match config.trip() {
                    TripPolicy::Custom(_) => CUSTOM_FAILURES,
                    _ => to_usize(trip_length(config)),
                };
                instants.add(within, most, now);
            }
            Self::Instants(instants) => {
                if config.success_forgets() {
                    instants.clear();
                }
            }
            Self::Calls(calls) => calls.add(sample, window_calls(config), now),
            Self::Buckets(buckets) => buckets.add(sample, within, now),
        }
    }

    /// Evaluates a built-in policy after a sample was counted.
    pub(super) fn judge(&self, sample: Sample, config: &BreakerConfig, now: Timestamp) -> Verdict {
        Verdict::trip_if(match self {
            Self::Run(run) => sample.failed && run.length() >= trip_length(config),
            Self::Instants(instants) => {
                sample.failed && instants.len() >= to_usize(trip_length(config))
            }
            Self::Calls(_) | Self::Buckets(_) => self.rate_is_reached(config, now),
        })
    }

    /// Counts `batch` successes that came one after another, none of them slow, as if each had been
    /// counted and evaluated by itself: it trips if one of them would have. For rate policies alone.
    pub(super) fn add_successes(
        &mut self,
        batch: u64,
        config: &BreakerConfig,
        now: Timestamp,
    ) -> Verdict {
        let TripPolicy::FailureRate { minimum_calls, .. } = config.trip() else {
            return Verdict::Stay;
        };
        // A success lowers the rate once the minimum is there, so the first one that sees the minimum
        // reached is the one that trips, if any does.
        let trips = self.success_may_trip(config, now)
            && self.counts(config, now).samples.saturating_add(batch) >= (*minimum_calls).into();
        match self {
            Self::Calls(calls) => calls.add_successes(batch, window_calls(config), now),
            Self::Buckets(buckets) => {
                buckets.add_successes(batch, config.lookback().unwrap_or_default(), now);
            }
            Self::Run(_) | Self::Instants(_) => {}
        }
        Verdict::trip_if(trips)
    }

    /// Tells whether the next success, or a later one, can trip: by filling the minimum of calls, or by
    /// being the first to look after old successes aged out.
    pub(super) fn success_may_trip(&self, config: &BreakerConfig, now: Timestamp) -> bool {
        let TripPolicy::FailureRate { minimum_calls, .. } = config.trip() else {
            return false;
        };
        let counts = self.counts(config, now);
        let with_it = counts.samples.saturating_add(1).min(window_calls(config));
        reaches(config, counts, with_it.max((*minimum_calls).into()))
    }

    fn rate_is_reached(&self, config: &BreakerConfig, now: Timestamp) -> bool {
        let TripPolicy::FailureRate { minimum_calls, .. } = config.trip() else {
            return false;
        };
        let counts = self.counts(config, now);
        counts.samples >= (*minimum_calls).into() && reaches(config, counts, counts.samples)
    }

    /// How samples are kept.
    pub(super) fn kept(&self) -> Kept {
        match self {
            Self::Instants(instants) => Kept::Each(instants.len()),
            Self::Calls(_) => Kept::ByPlace,
            Self::Run(_) | Self::Buckets(_) => Kept::Sum,
        }
    }

    /// What tells how old a sample is that is the last of `calls` more: its place in a window of calls, its
    /// instant in others.
    pub(super) fn mark(&self, calls: u64, now: Timestamp) -> u64 {
        match self {
            Self::Calls(seen) => seen.place_after(calls),
            Self::Run(_) | Self::Instants(_) | Self::Buckets(_) => now.as_micros(),
        }
    }

    /// The lowest mark of what is still in the window once `calls` more are counted.
    pub(super) fn first_mark(&self, calls: u64, config: &BreakerConfig, now: Timestamp) -> u64 {
        match (self, config.lookback()) {
            (Self::Calls(seen), _) => seen.first_place_after(calls, window_calls(config)),
            (_, Some(lookback)) => {
                let next = now.as_micros().saturating_add(1);
                next.saturating_sub(micros(lookback))
            }
            (_, None) => 0,
        }
    }

    /// Whether it is of the kind that the policy keeps.
    pub(super) fn suits(&self, config: &BreakerConfig) -> bool {
        discriminant(self) == discriminant(&Self::new(config))
    }

    /// The failures that are not too old, for a policy that keeps their instants.
    pub(super) fn instants(&self, config: &BreakerConfig, now: Timestamp) -> Vec<Timestamp> {
        match self {
            Self::Instants(instants) => instants.young(config.lookback().unwrap_or_default(), now),
            Self::Run(_) | Self::Calls(_) | Self::Buckets(_) => Vec::new(),
        }
    }

    /// What is in the window at `now`.
    pub(super) fn counts(&self, config: &BreakerConfig, now: Timestamp) -> Counts {
        let within = config.lookback().unwrap_or_default();
        match self {
            Self::Run(run) => Counts::of_failures(run.length().into()),
            Self::Instants(instants) => Counts::of_failures(length(instants.count(within, now))),
            Self::Calls(calls) => calls.counts(),
            Self::Buckets(buckets) => buckets.counts(within, now),
        }
    }

    /// When the newest sample came, if one is remembered.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        match self {
            Self::Run(run) => run.newest(),
            Self::Instants(instants) => instants.newest(),
            Self::Calls(calls) => calls.newest(),
            Self::Buckets(buckets) => buckets.newest(),
        }
    }

    /// When nothing in the window counts any more: the origin for an empty one, `None` for one that time
    /// alone does not empty.
    pub(super) fn empty_at(&self, config: &BreakerConfig) -> Option<Timestamp> {
        match (self.newest(), config.lookback()) {
            (None, _) => Some(Timestamp::ZERO),
            (Some(newest), Some(lookback)) => Some(newest + lookback),
            (Some(_), None) => None,
        }
    }

    /// When the bucket that holds `now` ends, for a window of time that holds anything. (For an empty one
    /// it would cost a timer that finds nothing.)
    pub(super) fn next_bucket(&self, config: &BreakerConfig, now: Timestamp) -> Option<Timestamp> {
        match (self, config.lookback()) {
            (Self::Buckets(buckets), Some(span)) if buckets.newest().is_some() => {
                Some(bucket_end(span, now))
            }
            _ => None,
        }
    }

    /// This memory as another process may take it over: nothing of it lies in the future, and it fits
    /// the policy; if it cannot, it is empty.
    pub(super) fn restored(self, config: &BreakerConfig, now: Timestamp) -> Self {
        let below_trip = trip_length(config).saturating_sub(1);
        match (Self::new(config), self) {
            (Self::Run(_), Self::Run(run)) => Self::Run(run.restored(below_trip, now)),
            (Self::Instants(_), Self::Instants(instants)) => {
                let most = match config.trip() {
                    TripPolicy::Custom(_) => CUSTOM_FAILURES,
                    _ => to_usize(below_trip),
                };
                Self::Instants(instants.restored(most, now))
            }
            (Self::Calls(_), Self::Calls(calls)) => {
                Self::Calls(Box::new(calls.restored(window_calls(config), now)))
            }
            (Self::Buckets(_), Self::Buckets(buckets)) => {
                Self::Buckets(buckets.restored(config.lookback().unwrap_or_default(), now))
            }
            (empty, _) => empty,
        }
    }
}

/// Asks a custom rule, which is code of the user's; other policies say "stay".
pub(super) fn ask_rule(config: &BreakerConfig, failures: &[Timestamp], now: Timestamp) -> Verdict {
    match config.trip() {
        TripPolicy::Custom(rule) => {
            let trips = caught(|| rule.trips(failures, now));
            trips.map_or(Verdict::RulePanicked, Verdict::trip_if)
        }
        _ => Verdict::Stay,
    }
}

/// Whether a rate policy's limits are reached by these counts among `samples` calls.
fn reaches(config: &BreakerConfig, counts: Counts, samples: u64) -> bool {
    match config.trip() {
        TripPolicy::FailureRate {
            rate, slow_call, ..
        } => {
            share(counts.failures, samples) >= *rate
                || slow_call.is_some_and(|slow| share(counts.slow, samples) >= slow.rate)
        }
        _ => false,
    }
}

/// How many failures trip, for the policies that count them.
fn trip_length(config: &BreakerConfig) -> u32 {
    match config.trip() {
        TripPolicy::ConsecutiveFailures { failures, .. }
        | TripPolicy::FailureCount { failures, .. } => *failures,
        TripPolicy::FailureRate { .. } | TripPolicy::Custom(_) => u32::MAX,
    }
}

/// How many calls a window of calls holds; for a window of time, any number.
fn window_calls(config: &BreakerConfig) -> u64 {
    match config.trip() {
        TripPolicy::FailureRate {
            window: Window::Calls(calls),
            ..
        } => (*calls).into(),
        _ => u64::MAX,
    }
}

fn length(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn to_usize(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "counts stay far below 2^53, where a double is exact"
)]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
