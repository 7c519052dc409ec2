//! Collects settings and checks them: the one validator, for builder and text alike (R33).

use std::time::Duration;

use super::{Backoff, BreakerConfig, Checked, ConfigError, Hold, RampUp, RuleFacts};
use crate::caught::caught;
use crate::clock::{Timestamp, micros};
use crate::policy::{TripPolicy, Window};

/// The longest span a setting takes: 2^53 - 1 µs, about 285 years (R3).
const LONGEST: Duration = Duration::from_micros(Timestamp::MAX.as_micros());

/// Collects the settings of a breaker; [`build`](Self::build) checks them.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct BreakerConfigBuilder {
    pub(super) trip: TripPolicy,
    pub(super) call_timeout: Duration,
    pub(super) break_duration: Duration,
    pub(super) backoff: Option<Backoff>,
    pub(super) jitter: f64,
    pub(super) max_probes: u32,
    pub(super) successes_to_close: u32,
    pub(super) probe_timeout: Option<Duration>,
    pub(super) max_inconclusive: u32,
    /// Boxed, since most have none.
    pub(super) hold: Option<Box<Hold>>,
    /// Boxed, since most have none and every breaker may have settings of its own.
    pub(super) ramp_up: Option<Box<RampUp>>,
    pub(super) enforcement: f64,
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
            hold: None,
            ramp_up: None,
            enforcement: 1.0,
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

    /// Lets messages wait while they cannot be sent, if they were sent so that they may: see [`Hold`].
    /// Default: none wait. `None` takes a policy away.
    pub fn hold(mut self, hold: impl Into<Option<Hold>>) -> Self {
        self.hold = hold.into().map(Box::new);
        self
    }

    /// Admits only a share of calls at first once probes have closed the circuit, and rejects the others
    /// with [`Reason::RampUp`](crate::Reason::RampUp): `initial_share` of them right away, in a straight
    /// line up to all of them after `duration` (R36). Default: none, all calls are admitted at once.
    /// `duration` from 1 µs to 2^53 - 1 µs, `initial_share` above 0 and at most 1.
    ///
    /// Meanwhile every call asks the breaker's mailbox, as it does while half-open; where more than 1,024
    /// wait for its answer, the others are rejected in the same way.
    pub fn ramp_up(mut self, ramp_up: RampUp) -> Self {
        self.ramp_up = Some(Box::new(ramp_up));
        self
    }

    /// Sets the share of what the breaker refuses that is rejected; the rest goes to its target all the same
    /// (R37). Default: 1, all of it; from 0 to 1. At 0 the breaker is in *shadow mode*: it rejects nothing.
    ///
    /// Whatever the share, the circuit runs as ever: it trips, breaks, sends one real probe, recovers, ramps
    /// up, and tells of it; at 0 its events are marked as
    /// [`simulated`](crate::StateChanged::simulated). A call that is refused and not rejected goes straight to
    /// its target. Its call timeout holds; its outcome moves nothing and is counted nowhere, as that of a call
    /// past the breaker; the call is counted in
    /// [`simulated_rejections`](crate::Snapshot::simulated_rejections). So the breaker sees what it would see
    /// if callers had obeyed it. Between 0 and 1 every refusal is drawn for itself.
    ///
    /// - An operator's [`force_open`](crate::Breaker::force_open) is an order and no opinion: it rejects all
    ///   calls, whatever the share.
    /// - A message that would have to wait as [`hold`](Self::hold) says is a refused one too: it goes at once,
    ///   or waits if it is drawn to. When the share becomes 0, those that wait already leave as they would from
    ///   a closed breaker.
    /// - While half-open and ramping up, calls ask the breaker's mailbox as ever, whose answer is to go.
    /// - [`state`](crate::Breaker::state), [`watch`](crate::Breaker::watch) and the metrics of the state show
    ///   the circuit, also where it is obeyed by nobody.
    ///
    /// It is a setting like the others, so [`reconfigure`](crate::Breaker::reconfigure) is the dial, live and
    /// without losing the state (R35); a change of it is no event. A [`Circuit`](crate::Circuit) used by itself
    /// does not look at it.
    pub fn enforcement(mut self, share: f64) -> Self {
        self.enforcement = share;
        self
    }

    pub(super) fn derived_probe_timeout(&self) -> Duration {
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
        if self.call_timeout == LONGEST {
            return Err(ConfigError::new(
                "call_timeout",
                humantime::format_duration(self.call_timeout),
                "less than 2^53 - 1 µs, since `probe_timeout` is more",
            ));
        }
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
        if !(0.0..=1.0).contains(&self.enforcement) {
            return Err(ConfigError::new(
                "enforcement",
                self.enforcement,
                "a number from 0 to 1",
            ));
        }
        count("max_probes", self.max_probes)?;
        count("successes_to_close", self.successes_to_close)?;
        count("max_inconclusive", self.max_inconclusive)?;
        if let Some(hold) = &mut self.hold {
            **hold = hold.checked()?;
        }
        if let Some(ramp_up) = &mut self.ramp_up {
            ramp_up.duration = span("ramp_up.duration", ramp_up.duration)?;
            share("ramp_up.initial_share", ramp_up.initial_share)?;
        }
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

    fn check_trip(&mut self) -> Result<Option<Box<RuleFacts>>, ConfigError> {
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
                let facts = caught(|| (rule.lookback(), rule.reset_on_success()));
                let Ok((lookback, reset_on_success)) = facts else {
                    return Err(ConfigError::new(
                        "trip.custom",
                        "a rule that panics",
                        "a rule that can say its lookback",
                    ));
                };
                return Ok(Some(Box::new(RuleFacts {
                    lookback: span("trip.lookback", lookback)?,
                    reset_on_success,
                })));
            }
        }
        Ok(None)
    }
}

/// Checks a span and cuts it to whole microseconds.
pub(crate) fn span(field: &'static str, span: Duration) -> Result<Duration, ConfigError> {
    let cut = Duration::from_micros(micros(span));
    if cut.is_zero() || span.as_micros() > LONGEST.as_micros() {
        return Err(ConfigError::new(
            field,
            humantime::format_duration(span),
            "a span from 1 µs to 2^53 - 1 µs (about 285 years)",
        ));
    }
    Ok(cut)
}

pub(super) fn count(field: &'static str, count: u32) -> Result<(), ConfigError> {
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
