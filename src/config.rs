//! The settings of a breaker, and what is derived from them.
//! Their ranges are in `config/builder.rs`, how they are read and written as text in `config/text.rs`.

mod builder;
mod error;
mod hold;
mod text;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use builder::BreakerConfigBuilder;
pub(crate) use builder::span;
pub use error::ConfigError;
pub use hold::Hold;

use crate::clock::{Timestamp, micros};
use crate::policy::{SlowCall, TripPolicy, Window};

/// What a policy without a time bound counts as when a record's lifetime is derived (R31).
const UNBOUNDED_LOOKBACK: Duration = Duration::from_secs(3600);

/// How breaks grow while probes keep failing: by `factor` each time, up to `max`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a pair of settings that users write as a literal"
)]
pub struct Backoff {
    /// What each failed round multiplies the break by: 1 or more, finite.
    pub factor: f64,
    /// The longest break, jitter apart: at least `break_duration`.
    pub max: Duration,
}

impl Backoff {
    /// Makes the pair.
    pub const fn new(factor: f64, max: Duration) -> Self {
        Self { factor, max }
    }
}

/// How a breaker that has recovered admits a growing share of calls: from `initial_share` at once to all
/// of them after `duration` (R36).
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a pair of settings that users write as a literal"
)]
pub struct RampUp {
    /// How long it takes until every call is admitted: 1 µs up to 2^53 - 1 µs.
    pub duration: Duration,
    /// The share of calls that is admitted right after the recovery: above 0, at most 1.
    pub initial_share: f64,
}

impl RampUp {
    /// Makes the pair.
    pub const fn new(duration: Duration, initial_share: f64) -> Self {
        Self {
            duration,
            initial_share,
        }
    }

    /// The share of calls that is admitted at `now`, for a ramp that began at `since`. The order of the
    /// operations is part of the rule, so that scripts in Lua compute the same doubles.
    pub(crate) fn share(self, since: Timestamp, now: Timestamp) -> f64 {
        let passed = to_f64(now.since(since)) / to_f64(self.duration);
        self.initial_share + (1.0 - self.initial_share) * passed
    }
}

/// The settings of one breaker. Valid by construction: [`BreakerConfigBuilder::build`] and
/// deserialising go through the same validator.
///
/// | setting | default | range |
/// | --- | --- | --- |
/// | `trip` | `FailureCount { failures: 5, within: 10 s, reset_on_success: false }` | see [`TripPolicy`] |
/// | `call_timeout` | 5 s | 1 µs up to 2^53 - 2 µs |
/// | `break_duration` | 30 s | 1 µs up to 2^53 - 1 µs |
/// | `backoff` | none | `factor` 1 or more, `max` at least `break_duration` |
/// | `jitter` | 0 | 0 to 1 |
/// | `max_probes` | 1 | 1 or more |
/// | `successes_to_close` | 1 | 1 or more |
/// | `probe_timeout` | the greater of `break_duration` and twice `call_timeout` | more than `call_timeout` |
/// | `max_inconclusive` | 10 | 1 or more |
/// | `hold` | none | see [`Hold`] |
/// | `ramp_up` | none | `duration` 1 µs up to 2^53 - 1 µs, `initial_share` above 0 and at most 1 |
/// | `enforcement` | 1 | 0 (shadow mode) to 1 |
///
/// Durations are cut to whole microseconds. In text they carry a unit (`"30s"`, `"1m 30s"`,
/// `"250ms"`); a bare number is refused. A minute is `m`, a month `M`. Unknown fields are refused.
///
/// Two are equal when they act alike, so a derived `probe_timeout` equals the same one set by hand.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use actix_circuit_breaker::{Backoff, BreakerConfig, TripPolicy};
///
/// let config = BreakerConfig::builder()
///     .trip(TripPolicy::ConsecutiveFailures { failures: 3, within: None })
///     .call_timeout(Duration::from_millis(800))
///     .break_duration(Duration::from_secs(10))
///     .backoff(Backoff::new(2.0, Duration::from_secs(120)))
///     .jitter(0.2)
///     .build()?;
/// assert_eq!(config.probe_timeout(), Duration::from_secs(10));
///
/// let refused = BreakerConfig::builder().jitter(1.5).build().unwrap_err();
/// assert_eq!(refused.to_string(), "`jitter` is 1.5, must be a number from 0 to 1");
/// # Ok::<(), actix_circuit_breaker::ConfigError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct BreakerConfig {
    /// Shared: a breaker's gate, its circuit and its maker have the same.
    checked: Arc<Checked>,
}

struct Checked {
    settings: BreakerConfigBuilder,
    /// Derived once: the settings' own or the default made from the others.
    probe_timeout: Duration,
    /// What a custom rule said of itself when the config was built. Boxed, since most have none.
    rule: Option<Box<RuleFacts>>,
}

/// What a custom rule says of itself, read once so that its code does not run again for it.
#[derive(Debug, PartialEq)]
struct RuleFacts {
    lookback: Duration,
    reset_on_success: bool,
}

/// Shows what is in force.
impl fmt::Debug for BreakerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerConfig")
            .field("trip", self.trip())
            .field("call_timeout", &self.call_timeout())
            .field("break_duration", &self.break_duration())
            .field("backoff", &self.backoff())
            .field("jitter", &self.jitter())
            .field("max_probes", &self.max_probes())
            .field("successes_to_close", &self.successes_to_close())
            .field("probe_timeout", &self.probe_timeout())
            .field("max_inconclusive", &self.max_inconclusive())
            .field("hold", &self.hold())
            .field("ramp_up", &self.ramp_up())
            .field("enforcement", &self.enforcement())
            .finish()
    }
}

/// Compares what is in force, so that a derived `probe_timeout` equals the same one set by hand.
impl PartialEq for Checked {
    fn eq(&self, other: &Self) -> bool {
        let in_force = |checked: &Self| BreakerConfigBuilder {
            probe_timeout: Some(checked.probe_timeout),
            ..checked.settings.clone()
        };
        in_force(self) == in_force(other) && self.rule == other.rule
    }
}

impl Default for BreakerConfig {
    fn default() -> Self {
        let settings = BreakerConfigBuilder::default();
        Self::new(Checked {
            probe_timeout: settings.derived_probe_timeout(),
            settings,
            rule: None,
        })
    }
}

impl BreakerConfig {
    fn new(checked: Checked) -> Self {
        Self {
            checked: Arc::new(checked),
        }
    }

    /// Starts from the defaults.
    pub fn builder() -> BreakerConfigBuilder {
        BreakerConfigBuilder::default()
    }

    /// Starts from these settings; a `probe_timeout` that was derived is derived again.
    pub fn to_builder(&self) -> BreakerConfigBuilder {
        self.checked.settings.clone()
    }

    /// Returns when a closed circuit trips.
    pub fn trip(&self) -> &TripPolicy {
        &self.checked.settings.trip
    }

    /// Returns how long an ask or a call may take.
    pub fn call_timeout(&self) -> Duration {
        self.checked.settings.call_timeout
    }

    /// Returns how long the first break lasts, before jitter.
    pub fn break_duration(&self) -> Duration {
        self.checked.settings.break_duration
    }

    /// Returns how breaks grow, if they do.
    pub fn backoff(&self) -> Option<Backoff> {
        self.checked.settings.backoff
    }

    /// Returns by what share a break may be lengthened at random.
    pub fn jitter(&self) -> f64 {
        self.checked.settings.jitter
    }

    /// Returns how many probes may run at once while half-open.
    pub fn max_probes(&self) -> u32 {
        self.checked.settings.max_probes
    }

    /// Returns how many probes must succeed before the circuit closes.
    pub fn successes_to_close(&self) -> u32 {
        self.checked.settings.successes_to_close
    }

    /// Returns how long a probe may hold its slot.
    pub fn probe_timeout(&self) -> Duration {
        self.checked.probe_timeout
    }

    /// Returns how many probes in a row may end without a verdict before the circuit opens again.
    pub fn max_inconclusive(&self) -> u32 {
        self.checked.settings.max_inconclusive
    }

    /// Returns how messages wait while they cannot be sent, if they may.
    pub fn hold(&self) -> Option<Hold> {
        self.checked.settings.hold.as_deref().copied()
    }

    /// Returns how the calls that are admitted grow after a recovery, if they do.
    pub fn ramp_up(&self) -> Option<RampUp> {
        self.checked.settings.ramp_up.as_deref().copied()
    }

    /// Returns the share of what the breaker refuses that is rejected: 0 in shadow mode.
    pub fn enforcement(&self) -> f64 {
        self.checked.settings.enforcement
    }

    /// The limit beyond which a call is slow, where the policy has one.
    pub(crate) fn slow_call(&self) -> Option<SlowCall> {
        match self.checked.settings.trip {
            TripPolicy::FailureRate { slow_call, .. } => slow_call,
            _ => None,
        }
    }

    /// Whether a success makes the policy forget its failures.
    pub(crate) fn success_forgets(&self) -> bool {
        match self.checked.settings.trip {
            TripPolicy::ConsecutiveFailures { .. } => true,
            TripPolicy::FailureCount {
                reset_on_success, ..
            } => reset_on_success,
            TripPolicy::FailureRate { .. } => false,
            TripPolicy::Custom(_) => {
                let rule = self.checked.rule.as_ref();
                rule.is_some_and(|rule| rule.reset_on_success)
            }
        }
    }

    /// How long a sample can matter to the policy; `None` where time alone forgets nothing.
    pub(crate) fn lookback(&self) -> Option<Duration> {
        match self.checked.settings.trip {
            TripPolicy::ConsecutiveFailures { within, .. } => within,
            TripPolicy::FailureCount { within, .. } => Some(within),
            TripPolicy::FailureRate { window, .. } => match window {
                Window::Calls(_) => None,
                Window::Time(span) => Some(span),
            },
            TripPolicy::Custom(_) => self.checked.rule.as_ref().map(|rule| rule.lookback),
        }
    }

    /// The lease of a probe whose own call timeout is `timeout` (R16).
    pub(crate) fn lease(&self, timeout: Duration) -> Duration {
        if timeout > self.checked.settings.call_timeout {
            self.checked.probe_timeout.max(timeout.saturating_mul(2))
        } else {
            self.checked.probe_timeout
        }
    }

    /// The longest a break can be (R3).
    pub(crate) fn longest_break(&self) -> Duration {
        let longest = match self.checked.settings.backoff {
            Some(backoff) => backoff.max,
            None => self.checked.settings.break_duration,
        };
        from_f64(to_f64(longest) * (1.0 + self.checked.settings.jitter))
    }

    /// The length of a break after `attempt` failed rounds (R22): the base grown and capped, then
    /// lengthened by the share `random` of the jitter. The growth is a loop of products, each capped,
    /// so that scripts in Lua compute the same doubles; a power could differ in its last bit.
    pub(crate) fn break_length(&self, attempt: u32, random: f64) -> Duration {
        let settings = &self.checked.settings;
        let mut length = to_f64(settings.break_duration);
        if let Some(Backoff { factor, max }) = settings.backoff
            // A factor of 1 would do no harm, but count to `attempt` for nothing.
            && factor > 1.0
        {
            let ceiling = to_f64(max);
            for _ in 0..attempt {
                if length >= ceiling {
                    break;
                }
                length *= factor;
            }
            length = length.min(ceiling);
        }
        from_f64(length * (1.0 + settings.jitter * random))
    }

    /// How long a record is worth keeping after its last instant (R31).
    pub(crate) fn margin(&self) -> Duration {
        self.longest_break()
            .max(self.lookback().unwrap_or(UNBOUNDED_LOOKBACK))
            .max(self.checked.probe_timeout)
            .saturating_mul(2)
            .saturating_add(Duration::from_secs(60))
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "spans are below 2^53 µs, where a double is exact"
)]
fn to_f64(span: Duration) -> f64 {
    micros(span) as f64
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates at both ends and is capped right after; rounding down is the rule"
)]
fn from_f64(micros: f64) -> Duration {
    Duration::from_micros((micros as u64).min(Timestamp::MAX.as_micros()))
}
