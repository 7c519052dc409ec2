//! A short notation for stories about a circuit: who asks when, how it ends, what must come of it.
//! The rules are not here; each test file uses a part of this.

#![allow(dead_code, reason = "each test file uses a part of the notation")]
#![allow(
    unreachable_pub,
    reason = "the module is compiled into each test binary"
)]
#![allow(
    clippy::arithmetic_side_effects,
    reason = "arithmetic of instants saturates"
)]
#![allow(
    clippy::panic,
    reason = "a helper that does not find what the story says fails the test"
)]

use std::time::Duration;

use actix_circuit_breaker::circuit::{
    Calls, Cause, Circuit, CircuitState, Permit, Reason, Refused, Settlement,
};
use actix_circuit_breaker::{
    BreakerConfig, BreakerConfigBuilder, Outcome, Timestamp, TripPolicy, Window,
};

/// An instant, in seconds: `at(10)`, `at(10.1)`.
pub fn at(seconds: impl Into<f64>) -> Timestamp {
    Timestamp::ZERO + secs(seconds)
}

/// An instant, in milliseconds.
pub fn at_ms(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

/// A span, in seconds: `secs(10)`, `secs(0.1)`.
pub fn secs(seconds: impl Into<f64>) -> Duration {
    Duration::from_secs_f64(seconds.into())
}

/// A span in minutes.
pub fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes.saturating_mul(60))
}

/// A run of `failures`, however far apart; with a break of ten seconds.
pub fn cons(failures: u32) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures,
            within: None,
        })
        .break_duration(secs(10))
}

/// `failures` in a window that slides, which a success does not empty; with a break of ten seconds.
pub fn count(failures: u32, within: Duration) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures,
            within,
            reset_on_success: false,
        })
        .break_duration(secs(10))
}

/// A share of failures; with a break of ten seconds.
pub fn rate(rate: f64, minimum_calls: u32, window: Window) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureRate {
            rate,
            minimum_calls,
            window,
            slow_call: None,
        })
        .break_duration(secs(10))
}

/// A circuit of these settings, made at the origin.
#[track_caller]
pub fn circuit(settings: BreakerConfigBuilder) -> Circuit {
    match settings.build() {
        Ok(config) => Circuit::new(config, Timestamp::ZERO),
        Err(error) => panic!("{error}"),
    }
}

/// The field that `build` refuses.
#[track_caller]
pub fn refused_field(settings: BreakerConfigBuilder) -> String {
    match settings.build() {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => error.field().to_owned(),
    }
}

/// Trips, lets `rounds` probes fail as soon as they may run, and returns the lengths of all breaks.
#[track_caller]
pub fn break_lengths(circuit: &mut Circuit, rounds: usize) -> Vec<Duration> {
    let mut now = circuit.record().newest();
    circuit.trip(now);
    let mut lengths = Vec::new();
    for round in 0..=rounds {
        let Some(due) = circuit.deadline() else {
            panic!("not open: {circuit:?}");
        };
        lengths.push(due.since(now));
        now = due;
        if round < rounds {
            circuit.bad(now);
        }
    }
    lengths
}

/// Reads settings; an error as text.
pub fn read(toml: &str) -> Result<BreakerConfig, String> {
    toml::from_str(toml).map_err(|error| error.to_string())
}

/// The story itself.
pub trait Story {
    /// Asks and must be admitted.
    fn admit(&mut self, now: Timestamp) -> Permit;
    /// Asks and must be rejected.
    fn reject(&mut self, now: Timestamp) -> Refused;
    /// The call ends well.
    fn ok(&mut self, permit: Permit, now: Timestamp) -> Settlement;
    /// The call fails.
    fn err(&mut self, permit: Permit, now: Timestamp) -> Settlement;
    /// The call says nothing about the target.
    fn ign(&mut self, permit: Permit, now: Timestamp) -> Settlement;
    /// A whole call that ends well at once.
    fn good(&mut self, now: Timestamp);
    /// A whole call that fails at once.
    fn bad(&mut self, now: Timestamp);
    /// Calls fail until the circuit opens.
    fn trip(&mut self, now: Timestamp);
    /// The state as the last step left it.
    fn state(&self) -> CircuitState;
    /// The end of the break, in seconds of the story.
    fn deadline(&self) -> Option<Timestamp>;
    /// The transitions since the last look: from, to.
    fn moves(&mut self) -> Vec<(CircuitState, CircuitState)>;
    /// The transitions since the last look: why and when.
    fn causes(&mut self) -> Vec<(Cause, Timestamp)>;
    /// The counters.
    fn calls(&self) -> Calls;
}

impl Story for Circuit {
    #[track_caller]
    fn admit(&mut self, now: Timestamp) -> Permit {
        match self.try_acquire(now) {
            Ok(permit) => permit,
            Err(refused) => panic!("at {now}: {refused}, {:?}", self.record()),
        }
    }

    #[track_caller]
    fn reject(&mut self, now: Timestamp) -> Refused {
        match self.try_acquire(now) {
            Ok(permit) => panic!("at {now}: {permit:?}, {:?}", self.record()),
            Err(refused) => refused,
        }
    }

    fn ok(&mut self, permit: Permit, now: Timestamp) -> Settlement {
        self.settle(permit, Outcome::Success, now)
    }

    fn err(&mut self, permit: Permit, now: Timestamp) -> Settlement {
        self.settle(permit, Outcome::Failure, now)
    }

    fn ign(&mut self, permit: Permit, now: Timestamp) -> Settlement {
        self.settle(permit, Outcome::Ignored, now)
    }

    #[track_caller]
    fn good(&mut self, now: Timestamp) {
        let permit = self.admit(now);
        assert_eq!(self.ok(permit, now), Settlement::Counted);
    }

    #[track_caller]
    fn bad(&mut self, now: Timestamp) {
        let permit = self.admit(now);
        assert_eq!(self.err(permit, now), Settlement::Counted);
    }

    #[track_caller]
    fn trip(&mut self, now: Timestamp) {
        assert_eq!(self.state(), CircuitState::Closed);
        for _ in 0..1_000 {
            self.bad(now);
            if self.state() == CircuitState::Open {
                return;
            }
        }
        panic!("did not trip: {self:?}");
    }

    fn state(&self) -> CircuitState {
        self.record().state()
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.record().restrained_until()
    }

    fn moves(&mut self) -> Vec<(CircuitState, CircuitState)> {
        std::iter::from_fn(|| self.pop_transition())
            .map(|transition| (transition.from, transition.to))
            .collect()
    }

    fn causes(&mut self) -> Vec<(Cause, Timestamp)> {
        std::iter::from_fn(|| self.pop_transition())
            .map(|transition| (transition.cause, transition.at))
            .collect()
    }

    fn calls(&self) -> Calls {
        self.snapshot(Timestamp::ZERO).calls
    }
}

/// Why and for how long a call was rejected, for comparing in one go.
pub fn why(refused: Refused) -> (Reason, Option<Duration>) {
    (refused.reason(), refused.retry_after())
}
