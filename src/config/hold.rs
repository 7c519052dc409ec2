//! Whether and how messages wait that cannot be sent yet.
//! What waiting means is in `hold.rs`.

use std::time::Duration;

use super::ConfigError;
use super::builder::{count, span};

/// How messages wait inside a breaker that cannot let them through: how many, how long, and how they leave
/// once the target is well again.
///
/// Only what is sent by [`Guarded::send_or_hold`](crate::Guarded::send_or_hold) and
/// [`Breaker::tell_or_hold`](crate::Breaker::tell_or_hold) waits.
///
/// | setting | default | range |
/// | --- | --- | --- |
/// | `capacity` | must be given | 1 or more |
/// | `held_ttl` | must be given | 1 µs up to 2^53 - 1 µs |
/// | `release_interval` | must be given | 1 µs up to 2^53 - 1 µs |
/// | `growing` | `false` | |
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use actix_circuit_breaker::{BreakerConfig, Hold};
///
/// let hold = Hold::new(1_000, Duration::from_secs(600), Duration::from_millis(100)).growing();
/// let config = BreakerConfig::builder().hold(hold).build()?;
/// assert_eq!(config.hold(), Some(hold));
/// # Ok::<(), actix_circuit_breaker::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a set of settings that users write as a literal, as `Backoff` is"
)]
pub struct Hold {
    /// How many messages wait at most: 1 or more.
    pub capacity: u32,
    /// How long a message waits at most, counted from when it was first held: at least 1 µs.
    pub held_ttl: Duration,
    /// How much time lies between two releases: at least 1 µs.
    pub release_interval: Duration,
    /// Whether the releases grow, to 1, 2, 4 … messages at a time. A failure among them starts again
    /// with 1. Else each release is of one message.
    pub growing: bool,
}

impl Hold {
    /// Makes a policy that releases one message after the other.
    pub const fn new(capacity: u32, held_ttl: Duration, release_interval: Duration) -> Self {
        Self {
            capacity,
            held_ttl,
            release_interval,
            growing: false,
        }
    }

    /// Lets the releases grow: 1, 2, 4 … messages at a time.
    #[must_use]
    pub const fn growing(mut self) -> Self {
        self.growing = true;
        self
    }

    /// Checks the settings and cuts the spans to whole microseconds.
    pub(super) fn checked(self) -> Result<Self, ConfigError> {
        count("hold.capacity", self.capacity)?;
        Ok(Self {
            held_ttl: span("hold.held_ttl", self.held_ttl)?,
            release_interval: span("hold.release_interval", self.release_interval)?,
            ..self
        })
    }
}
