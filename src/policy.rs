//! When a closed circuit trips: the policies and the trait for a rule of one's own.
//! What they remember and how they count is in `circuit/window.rs`; their ranges are in `config.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;

/// When a closed circuit trips. All limits mean "at or above" (R18).
///
/// The default is five failures within ten seconds:
/// `FailureCount { failures: 5, within: 10 s, reset_on_success: false }`.
///
/// | policy | trips when | a success | forgets by time |
/// | --- | --- | --- | --- |
/// | `ConsecutiveFailures` | the run of failures reaches `failures` | ends the run | only with `within` |
/// | `FailureCount` | `failures` of them lie within `within` | forgets them with `reset_on_success`, else nothing | yes |
/// | `FailureRate` | the share of failures or of slow calls reaches its `rate` and at least `minimum_calls` were counted | is counted | with `Window::Time` |
/// | `Custom` | your [`TripRule`] says so | forgets them if your rule says so | yes, by its `lookback` |
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TripPolicy {
    /// Trips on a run of failures without a success between them.
    ConsecutiveFailures {
        /// The length of the run, 1 or more.
        failures: u32,
        /// The time in which the whole run must lie; `None`: its distance in time does not matter.
        within: Option<Duration>,
    },
    /// Trips on a number of failures in a window that slides exactly.
    FailureCount {
        /// The number of failures, 1 or more.
        failures: u32,
        /// The length of the window. A failure as old as the window is out of it.
        within: Duration,
        /// Whether a success forgets the failures so far.
        reset_on_success: bool,
    },
    /// Trips on the share of failures, or of slow calls, among the calls of a window.
    FailureRate {
        /// The share of failures that trips, in (0, 1].
        rate: f64,
        /// The number of counted calls below which nothing trips, 1 or more.
        minimum_calls: u32,
        /// Which calls count.
        window: Window,
        /// A limit on slow calls as well; `None`: a call may be as slow as its timeout allows.
        slow_call: Option<SlowCall>,
    },
    /// Trips when a rule of one's own says so.
    ///
    /// Two are equal when they are the same `Arc`. It serialises as `"custom"` and cannot be read.
    Custom(Arc<dyn TripRule>),
}

/// Which calls a [`TripPolicy::FailureRate`] looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// The last so many counted calls, 1 or more and at least `minimum_calls`.
    Calls(u32),
    /// The calls of the last span, in ten buckets: a bucket leaves when its start is as old as the
    /// span, so the window is between nine and ten tenths of it long.
    Time(Duration),
}

/// The limit on slow calls of a [`TripPolicy::FailureRate`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a pair of settings that users write as a literal; a third would be another policy"
)]
pub struct SlowCall {
    /// How long a call takes to be slow: at least this. Below the call timeout.
    pub duration: Duration,
    /// The share of slow calls that trips, in (0, 1].
    pub rate: f64,
}

impl SlowCall {
    /// Makes the pair.
    pub const fn new(duration: Duration, rate: f64) -> Self {
        Self { duration, rate }
    }
}

/// A rule of one's own for when to trip.
///
/// It runs inside the decision, in the breaker's mailbox: it must be quick, must not block and should
/// depend on nothing but its arguments. A rule that panics means "do not trip" and is reported (R18).
///
/// # Examples
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use actix_circuit_breaker::{BreakerConfig, Timestamp, TripPolicy, TripRule};
///
/// /// Trips when two failures come within a second of each other.
/// struct Burst;
///
/// impl TripRule for Burst {
///     fn trips(&self, failures: &[Timestamp], _now: Timestamp) -> bool {
///         failures.windows(2).any(|pair| pair[1].since(pair[0]) < Duration::from_secs(1))
///     }
///     fn lookback(&self) -> Duration {
///         Duration::from_secs(60)
///     }
/// }
///
/// let config = BreakerConfig::builder().trip(TripPolicy::Custom(Arc::new(Burst))).build()?;
/// # Ok::<(), actix_circuit_breaker::ConfigError>(())
/// ```
pub trait TripRule: Send + Sync + 'static {
    /// Decides, after each failure, whether the circuit trips.
    ///
    /// `failures` holds the instants of the newest failures, oldest first, the present one last: those
    /// younger than [`lookback`](Self::lookback), and at most 100.
    fn trips(&self, failures: &[Timestamp], now: Timestamp) -> bool;

    /// Returns how far back the rule looks. Failures older than this are not kept, so that a record's
    /// lifetime can always be derived. Read once, when the config is built.
    fn lookback(&self) -> Duration;

    /// Tells whether a success forgets the failures so far. Default: `false`. Read once, when the
    /// config is built.
    fn reset_on_success(&self) -> bool {
        false
    }
}

impl Default for TripPolicy {
    fn default() -> Self {
        Self::FailureCount {
            failures: 5,
            within: Duration::from_secs(10),
            reset_on_success: false,
        }
    }
}

/// Two rules are equal when they are the same object.
impl PartialEq for dyn TripRule {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

impl fmt::Debug for dyn TripRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
