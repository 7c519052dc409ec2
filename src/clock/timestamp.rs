//! An instant as the circuit sees it: whole microseconds on a line that is exact in a double.
//! Where the microseconds come from is the business of a [`Clock`](super::Clock).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant in whole microseconds, from 0 to 2^53 - 1.
///
/// The range is what a double represents exactly, so that the same numbers can be computed with by
/// Lua scripts (R3). With [`SystemClock`](crate::SystemClock) they count from the Unix epoch, which
/// leaves room until the year 2255. Arithmetic saturates at both ends.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use actix_circuit_breaker::Timestamp;
///
/// let tripped = Timestamp::from_micros(1_000);
/// let due = tripped + Duration::from_millis(3);
/// assert_eq!(due.as_micros(), 4_000);
/// assert_eq!(due.since(tripped), Duration::from_millis(3));
/// assert_eq!(tripped.since(due), Duration::ZERO);
/// ```
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(from = "u64")]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// The latest instant there is: 2^53 - 1 microseconds.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Makes an instant of a number of microseconds; what is above [`MAX`](Self::MAX) becomes `MAX`.
    #[inline]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    /// Returns the microseconds since the origin.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this instant, or zero when `earlier` is the later one.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Tells whether a span of length `span` that began here is over at `now`: `now - self >= span`
    /// (R4).
    #[inline]
    pub(crate) fn is_over(self, span: Duration, now: Self) -> bool {
        now.since(self) >= span
    }
}

impl From<u64> for Timestamp {
    fn from(micros: u64) -> Self {
        Self::from_micros(micros)
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// Adds a span, cut to whole microseconds; saturates at [`Timestamp::MAX`].
    #[inline]
    fn add(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(span)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} µs", self.0)
    }
}

/// Returns a span in whole microseconds; what is longer than the line of instants becomes its length.
#[inline]
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).map_or(Timestamp::MAX.0, |micros| micros.min(Timestamp::MAX.0))
}

/// Writes a span as people read it: "1m 30s".
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(crate) fn span_as_text<S: serde::Serializer>(
    span: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match span {
        Some(span) => serializer.collect_str(&humantime::format_duration(*span)),
        None => serializer.serialize_none(),
    }
}
