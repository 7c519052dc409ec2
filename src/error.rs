//! What a caller gets instead of a reply, and what goes wrong when a breaker is made.
//! Settings that are refused: [`ConfigError`](crate::ConfigError).

mod dial;
mod origin;
mod tell;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::circuit::Reason;
use crate::clock::Timestamp;
use crate::config::ConfigError;
pub(crate) use dial::Dial;
pub(crate) use origin::Origin;
pub use tell::TellError;

/// Why an ask has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The breaker did not let the ask through: the target never saw it.
    #[error(transparent)]
    Rejected(Rejected),
    /// No reply came within the call timeout, which is given. The target may still work on the
    /// message.
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    /// The target's mailbox is closed: it was stopped, or it panicked over this message. Also when
    /// the breaker's own actor went away while the ask was in its care.
    #[error("mailbox closed")]
    Closed,
    /// The message waited in the breaker for as long as it may, which is given: the target never saw it.
    #[error("held for {0:?} and not sent")]
    HoldExpired(Duration),
    /// There was no room for the message to wait in the breaker: the target never saw it.
    #[error("not held, {capacity} messages wait already")]
    #[non_exhaustive]
    HoldFull {
        /// How many may wait, see [`Hold::capacity`](crate::Hold::capacity).
        capacity: u32,
    },
}

impl AskError {
    /// Tells whether the breaker kept the ask from its target, which never saw it: rejected, or held and
    /// not sent.
    pub fn is_rejected(&self) -> bool {
        match self {
            Self::Rejected(_) | Self::HoldExpired(_) | Self::HoldFull { .. } => true,
            Self::Timeout(_) | Self::Closed => false,
        }
    }

    /// Returns after what time another attempt makes sense, for a rejection that knows.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected(rejected) => rejected.retry_after(),
            Self::Timeout(_) | Self::Closed | Self::HoldExpired(_) | Self::HoldFull { .. } => None,
        }
    }
}

/// Why a guarded call has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The breaker did not let the call through: the future was not polled.
    #[error(transparent)]
    Rejected(Rejected),
    /// The call did not end within the call timeout, which is given.
    #[error("not done within {0:?}")]
    Timeout(Duration),
    /// The call's own error.
    #[error(transparent)]
    Failed(E),
}

impl<E> CallError<E> {
    /// Tells whether the breaker rejected the call, so that the future was not polled.
    pub fn is_rejected(&self) -> bool {
        matches!(self, Self::Rejected(_))
    }

    /// Returns after what time another attempt makes sense, for a rejection that knows.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected(rejected) => rejected.retry_after(),
            Self::Timeout(_) | Self::Failed(_) => None,
        }
    }
}

impl<E> CallError<E> {
    /// Turns the call's own error into another; a rejection and a timeout stay what they are.
    ///
    /// Of use where the error is no [`std::error::Error`], such as a `String` or a boxed one.
    pub fn map_failed<F>(self, map: impl FnOnce(E) -> F) -> CallError<F> {
        match self {
            Self::Rejected(rejected) => CallError::Rejected(rejected),
            Self::Timeout(limit) => CallError::Timeout(limit),
            Self::Failed(error) => CallError::Failed(map(error)),
        }
    }
}

impl From<Rejected> for AskError {
    fn from(rejected: Rejected) -> Self {
        Self::Rejected(rejected)
    }
}

impl<E> From<Rejected> for CallError<E> {
    fn from(rejected: Rejected) -> Self {
        Self::Rejected(rejected)
    }
}

/// A call that a breaker did not let through.
///
/// Small and made without an allocation. It keeps the breaker's name, not the breaker: holding one is
/// not holding a handle.
#[derive(Clone)]
pub struct Rejected {
    /// There until it is dropped.
    origin: Option<Arc<Origin>>,
    /// When another attempt makes sense, in microseconds; [`NEVER`] if nobody knows.
    until: u64,
    /// The epoch, above eight bits for the reason.
    epoch_and_reason: u64,
}

/// Stands for "no instant"; above every [`Timestamp`].
const NEVER: u64 = u64::MAX;

impl Rejected {
    #[inline]
    pub(crate) fn new(
        origin: &Arc<Origin>,
        reason: Reason,
        epoch: u64,
        until: Option<Timestamp>,
    ) -> Self {
        let reason: u64 = match reason {
            Reason::Open => 0,
            Reason::ProbesInUse => 1,
            Reason::ForcedOpen => 2,
            Reason::RampUp => 3,
        };
        Self {
            origin: Some(origin.share()),
            until: until.map_or(NEVER, Timestamp::as_micros),
            epoch_and_reason: epoch << 8 | reason,
        }
    }

    /// Returns the name of the breaker that rejected.
    pub fn breaker(&self) -> &str {
        self.origin.as_ref().map_or("", |origin| &origin.name)
    }

    /// Returns why.
    pub fn reason(&self) -> Reason {
        match self.epoch_and_reason & 0xff {
            0 => Reason::Open,
            1 => Reason::ProbesInUse,
            2 => Reason::ForcedOpen,
            _ => Reason::RampUp,
        }
    }

    /// Returns the epoch of the breaker's state that rejected.
    pub fn epoch(&self) -> u64 {
        self.epoch_and_reason >> 8
    }

    /// Returns after what time, counted from this call of the method, another attempt makes sense:
    /// the rest of the break; for [`Reason::ProbesInUse`] and [`Reason::RampUp`] at most a second; the
    /// rest of a forced open's ttl, `None` without one. Zero once that time is over.
    pub fn retry_after(&self) -> Option<Duration> {
        let origin = self.origin.as_ref()?;
        (self.until != NEVER).then(|| Timestamp::from_micros(self.until).since(origin.clock.now()))
    }

    /// Whether a breaker made it that rejects as `origin`.
    pub(crate) fn is_by(&self, origin: &Arc<Origin>) -> bool {
        self.origin
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, origin))
    }
}

impl Drop for Rejected {
    #[inline]
    fn drop(&mut self) {
        if let Some(share) = self.origin.take() {
            Origin::take_back(share);
        }
    }
}

impl PartialEq for Rejected {
    fn eq(&self, other: &Self) -> bool {
        self.breaker() == other.breaker()
            && self.until == other.until
            && self.epoch_and_reason == other.epoch_and_reason
    }
}

impl Eq for Rejected {}

impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("breaker", &self.breaker())
            .field("reason", &self.reason())
            .field("epoch", &self.epoch())
            .field("retry_after", &self.retry_after())
            .finish()
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "breaker `{}` is {}", self.breaker(), self.reason())?;
        match self.retry_after() {
            Some(after) => {
                // For a person to read, so in whole milliseconds, and never too early.
                let millis = after.as_micros().div_ceil(1_000).try_into();
                let after = millis.map_or(after, Duration::from_millis);
                write!(f, ", retry after {}", humantime::format_duration(after))
            }
            None => Ok(()),
        }
    }
}

impl std::error::Error for Rejected {}

impl Serialize for Rejected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Rejected", 4)?;
        fields.serialize_field("breaker", self.breaker())?;
        fields.serialize_field("reason", &self.reason())?;
        fields.serialize_field("epoch", &self.epoch())?;
        let retry_after = self.retry_after().map(humantime::format_duration);
        fields.serialize_field("retry_after", &retry_after.map(|after| after.to_string()))?;
        fields.end()
    }
}

/// Why a breaker was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The name is taken by a breaker with other settings.
    #[error("breaker `{name}` exists with another config")]
    Conflict {
        /// The name.
        name: String,
    },
    /// There are as many breakers as there may be, and none of them can go: each is held somewhere,
    /// not closed, or remembers something.
    #[error("no room for breaker `{name}`: all {max} breakers are in use")]
    Full {
        /// The name.
        name: String,
        /// The cap, see [`BreakersBuilder::max_breakers`](crate::BreakersBuilder::max_breakers).
        max: usize,
    },
    /// The name is empty.
    #[error(transparent)]
    Name(ConfigError),
    /// The arbiter the breakers run on has stopped.
    #[error("no arbiter for breaker `{name}`: it has stopped")]
    ArbiterStopped {
        /// The name.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::random::ThreadRandom;

    fn rejected(until: Option<u64>) -> Rejected {
        let dial = Dial::new(Arc::new(ThreadRandom));
        let origin = Origin::new("payments".into(), Arc::new(ManualClock::new()), dial);
        Rejected::new(&origin, Reason::Open, 1, until.map(Timestamp::from_micros))
    }

    #[test]
    fn a_rejection_reads_in_whole_milliseconds_rounded_up() {
        let read = |until| rejected(until).to_string();
        assert_eq!(read(None), "breaker `payments` is open");
        assert_eq!(read(Some(0)), "breaker `payments` is open, retry after 0s");
        assert_eq!(read(Some(1)), "breaker `payments` is open, retry after 1ms");
        assert_eq!(
            read(Some(1_098_445)),
            "breaker `payments` is open, retry after 1s 99ms"
        );
    }
}
