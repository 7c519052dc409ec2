//! The settings of a breaker: the builder, the one validator, and what is derived from the settings.
//! How they are read and written as text is in `config/text.rs`.

mod error;
mod text;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use error::ConfigError;

use crate::clock::{Timestamp, micros};
use crate::policy::{SlowCall, TripPolicy, Window};

/// The longest span a setting takes: 2^53 - 1 µs, about 285 years (R3).
const LONGEST: Duration = Duration::from_micros(Timestamp::MAX.as_micros());

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

/// The settings of one breaker. Valid by construction: [`BreakerConfigBuilder::build`] and
/// deserialising go through the same validator.
///
/// | setting | default | range |
/// | --- | --- | --- |
/// | `trip` | `FailureCount { failures: 5, within: 10 s, reset_on_success: false }` | see [`TripPolicy`] |
/// | `call_timeout` | 5 s | 1 µs up to 2^53 - 1 µs |
/// | `break_duration` | 30 s | 1 µs up to 2^53 - 1 µs |
/// | `backoff` | none | `factor` 1 or more, `max` at least `break_duration` |
/// | `jitter` | 0 | 0 to 1 |
/// | `max_probes` | 1 | 1 or more |
/// | `successes_to_close` | 1 | 1 or more |
/// | `probe_timeout` | the greater of `break_duration` and twice `call_timeout` | more than `call_timeout` |
/// | `max_inconclusive` | 10 | 1 or more |
///
/// Durations are cut to whole microseconds. In text they carry a unit (`"30s"`, `"1m 30s"`,
/// `"250ms"`); a bare number is refused. Unknown fields are refused.
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
#[derive(Debug, Clone, PartialEq)]
pub struct BreakerConfig {
    /// Shared: a breaker's gate, its circuit and its maker have the same.
    checked: Arc<Checked>,
}

#[derive(Debug, PartialEq)]
struct Checked {
    settings: BreakerConfigBuilder,
    /// Derived once: the settings' own or the default made from the others.
    probe_timeout: Duration,
    /// What a custom rule said of itself when the config was built.
    rule: RuleFacts,
}

/// What a custom rule says of itself, read once so that its code does not run again for it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct RuleFacts {
    lookback: Duration,
    reset_on_success: bool,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        let settings = BreakerConfigBuilder::default();
        Self::new(Checked {
            probe_timeout: settings.derived_probe_timeout(),
            settings,
            rule: RuleFacts::default(),
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
            TripPolicy::Custom(_) => self.checked.rule.reset_on_success,
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
            TripPolicy::Custom(_) => Some(self.checked.rule.lookback),
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
        lengthen(longest, self.checked.settings.jitter)
    }

    /// The length of a break after `attempt` failed rounds (R22): the base grown and capped, then
    /// lengthened by the share `random` of the jitter. The growth is a loop of products, each capped,
    /// so that scripts in Lua compute the same doubles; a power could differ in its last bit.
    pub(crate) fn break_length(&self, attempt: u32, random: f64) -> Duration {
        let base = self.checked.settings.break_duration;
        let grown = match self.checked.settings.backoff {
            Some(Backoff { factor, max }) if factor > 1.0 => {
                let ceiling = to_f64(max);
                let mut length = to_f64(base);
                for _ in 0..attempt {
                    if length >= ceiling {
                        break;
                    }
                    length *= factor;
                }
                if length >= ceiling {
                    max
                } else {
                    from_f64(length)
                }
            }
            _ => base,
        };
        lengthen(grown, self.checked.settings.jitter * random)
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

/// A span made longer by a share of itself, in whole microseconds, rounded down.
fn lengthen(span: Duration, share: f64) -> Duration {
    if share > 0.0 {
        from_f64(to_f64(span) * (1.0 + share))
    } else {
        span
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

/// Collects the settings of a breaker; [`build`](Self::build) checks them.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct BreakerConfigBuilder {
    trip: TripPolicy,
    call_timeout: Duration,
    break_duration: Duration,
    backoff: Option<Backoff>,
    jitter: f64,
    max_probes: u32,
    successes_to_close: u32,
    probe_timeout: Option<Duration>,
    max_inconclusive: u32,
}

impl Default for BreakerConfigBuilder {
    fn default() -> Self {
        Self {
            trip: TripPolicy::default(),
            call_timeout: Duration::from_secs(5),
            break_duration: Duration::from_secs(30),
            backoff: None,
            jitter: 0.0,
            max_probes: 1,
            successes_to_close: 1,
            probe_timeout: None,
            max_inconclusive: 10,
        }
    }
}

impl BreakerConfigBuilder {
    /// Sets when a closed circuit trips. Default: five failures within ten seconds.
    pub fn trip(mut self, policy: TripPolicy) -> Self {
        self.trip = policy;
        self
    }

    /// Sets how long an ask or a call may take before it fails with a timeout. Default: 5 s; it can be
    /// long (100 years are accepted), never absent.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Sets how long the first break lasts. Default: 30 s; at least 1 µs.
    pub fn break_duration(mut self, length: Duration) -> Self {
        self.break_duration = length;
        self
    }

    /// Lets breaks grow while probes keep failing. Default: every break is `break_duration` long.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }

    /// Lengthens each break by a random share of itself, up to this one, so that breakers which opened
    /// together do not probe together. Default: 0; from 0 to 1. It never shortens a break.
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Sets how many probes may run at once while half-open. Default: 1; 1 or more.
    pub fn max_probes(mut self, probes: u32) -> Self {
        self.max_probes = probes;
        self
    }

    /// Sets how many probes must succeed before the circuit closes. Default: 1; 1 or more. It may be
    /// more than `max_probes`, for a slot can be used in turn.
    pub fn successes_to_close(mut self, successes: u32) -> Self {
        self.successes_to_close = successes;
        self
    }

    /// Sets how long a probe may hold its slot before the slot goes to the next caller. Default: the
    /// greater of `break_duration` and twice `call_timeout`; more than `call_timeout`.
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.probe_timeout = Some(timeout);
        self
    }

    /// Sets how many probes in a row may end without a verdict (ignored outcomes) before the circuit
    /// opens again. Default: 10; 1 or more.
    pub fn max_inconclusive(mut self, probes: u32) -> Self {
        self.max_inconclusive = probes;
        self
    }

    fn derived_probe_timeout(&self) -> Duration {
        self.probe_timeout.unwrap_or_else(|| {
            self.break_duration
                .max(self.call_timeout.saturating_mul(2))
                .min(LONGEST)
        })
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the first field out of its range, its value and the range.
    pub fn build(mut self) -> Result<BreakerConfig, ConfigError> {
        self.call_timeout = span("call_timeout", self.call_timeout)?;
        self.break_duration = span("break_duration", self.break_duration)?;
        if let Some(backoff) = &mut self.backoff {
            backoff.max = span("backoff.max", backoff.max)?;
            if !(backoff.factor >= 1.0 && backoff.factor.is_finite()) {
                return Err(ConfigError::new(
                    "backoff.factor",
                    backoff.factor,
                    "a finite number of 1 or more",
                ));
            }
            if backoff.max < self.break_duration {
                return Err(ConfigError::new(
                    "backoff.max",
                    humantime::format_duration(backoff.max),
                    format!(
                        "at least `break_duration`, which is {}",
                        humantime::format_duration(self.break_duration)
                    ),
                ));
            }
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(ConfigError::new(
                "jitter",
                self.jitter,
                "a number from 0 to 1",
            ));
        }
        count("max_probes", self.max_probes)?;
        count("successes_to_close", self.successes_to_close)?;
        count("max_inconclusive", self.max_inconclusive)?;
        if let Some(timeout) = self.probe_timeout {
            self.probe_timeout = Some(span("probe_timeout", timeout)?);
        }
        let probe_timeout = self.derived_probe_timeout();
        if probe_timeout <= self.call_timeout {
            return Err(ConfigError::new(
                "probe_timeout",
                humantime::format_duration(probe_timeout),
                format!(
                    "more than `call_timeout`, which is {}",
                    humantime::format_duration(self.call_timeout)
                ),
            ));
        }
        let rule = self.check_trip()?;
        Ok(BreakerConfig::new(Checked {
            settings: self,
            probe_timeout,
            rule,
        }))
    }

    fn check_trip(&mut self) -> Result<RuleFacts, ConfigError> {
        match &mut self.trip {
            TripPolicy::ConsecutiveFailures { failures, within } => {
                count("trip.failures", *failures)?;
                if let Some(within) = within {
                    *within = span("trip.within", *within)?;
                }
            }
            TripPolicy::FailureCount {
                failures, within, ..
            } => {
                count("trip.failures", *failures)?;
                *within = span("trip.within", *within)?;
            }
            TripPolicy::FailureRate {
                rate,
                minimum_calls,
                window,
                slow_call,
            } => {
                share("trip.rate", *rate)?;
                count("trip.minimum_calls", *minimum_calls)?;
                match window {
                    Window::Calls(calls) => {
                        count("trip.window.calls", *calls)?;
                        if minimum_calls > calls {
                            return Err(ConfigError::new(
                                "trip.minimum_calls",
                                *minimum_calls,
                                format!("at most `trip.window.calls`, which is {calls}"),
                            ));
                        }
                    }
                    Window::Time(length) => *length = span("trip.window.time", *length)?,
                }
                if let Some(slow) = slow_call {
                    slow.duration = span("trip.slow_call.duration", slow.duration)?;
                    share("trip.slow_call.rate", slow.rate)?;
                    if slow.duration >= self.call_timeout {
                        return Err(ConfigError::new(
                            "trip.slow_call.duration",
                            humantime::format_duration(slow.duration),
                            format!(
                                "less than `call_timeout`, which is {}",
                                humantime::format_duration(self.call_timeout)
                            ),
                        ));
                    }
                }
            }
            TripPolicy::Custom(rule) => {
                let facts = catch_unwind(AssertUnwindSafe(|| {
                    (rule.lookback(), rule.reset_on_success())
                }));
                let Ok((lookback, reset_on_success)) = facts else {
                    return Err(ConfigError::new(
                        "trip.custom",
                        "a rule that panics",
                        "a rule that can say its lookback",
                    ));
                };
                return Ok(RuleFacts {
                    lookback: span("trip.lookback", lookback)?,
                    reset_on_success,
                });
            }
        }
        Ok(RuleFacts::default())
    }
}

/// Checks a span and cuts it to whole microseconds.
pub(crate) fn span(field: &'static str, span: Duration) -> Result<Duration, ConfigError> {
    let cut = Duration::from_micros(micros(span));
    if cut.is_zero() || span > LONGEST {
        return Err(ConfigError::new(
            field,
            format!("{span:?}"),
            "a span from 1 µs to 2^53 - 1 µs (about 285 years)",
        ));
    }
    Ok(cut)
}

fn count(field: &'static str, count: u32) -> Result<(), ConfigError> {
    if count == 0 {
        return Err(ConfigError::new(field, count, "a count of 1 or more"));
    }
    Ok(())
}

fn share(field: &'static str, share: f64) -> Result<(), ConfigError> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    Err(ConfigError::new(
        field,
        share,
        "a number above 0 and at most 1",
    ))
}
