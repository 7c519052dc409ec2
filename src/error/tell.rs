//! Why a message without a reply was not delivered: with the message, so that it is not lost.

use std::fmt;
use std::time::Duration;

use super::Rejected;

/// Why a message was not delivered; hands it back.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TellError<M> {
    /// The breaker did not let the message through.
    #[error("{rejected}")]
    #[non_exhaustive]
    Rejected {
        /// Why, and when to come again.
        rejected: Rejected,
        /// The message.
        message: M,
    },
    /// The target's mailbox is full. That says nothing about its health (R19).
    #[error("mailbox full")]
    Full(M),
    /// The target's mailbox is closed. Also when the breaker's own actor went away while the message was
    /// in its care.
    #[error("mailbox closed")]
    Closed(M),
    /// The message waited in the breaker for as long as it may.
    #[error("held for {ttl:?} and not sent")]
    #[non_exhaustive]
    HoldExpired {
        /// How long that is.
        ttl: Duration,
        /// The message.
        message: M,
    },
    /// There was no room for the message to wait.
    #[error("not held, {capacity} messages wait already")]
    #[non_exhaustive]
    HoldFull {
        /// How many may wait.
        capacity: u32,
        /// The message.
        message: M,
    },
}

impl<M> TellError<M> {
    /// Returns the message.
    pub fn into_message(self) -> M {
        match self {
            Self::Rejected { message, .. }
            | Self::Full(message)
            | Self::Closed(message)
            | Self::HoldExpired { message, .. }
            | Self::HoldFull { message, .. } => message,
        }
    }

    /// Tells whether the breaker kept the message from its target: rejected, or held and not sent.
    pub fn is_rejected(&self) -> bool {
        match self {
            Self::Rejected { .. } | Self::HoldExpired { .. } | Self::HoldFull { .. } => true,
            Self::Full(_) | Self::Closed(_) => false,
        }
    }

    /// Returns after what time another attempt makes sense, for a rejection that knows.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected { rejected, .. } => rejected.retry_after(),
            _ => None,
        }
    }
}

/// Without the message, which need not be `Debug`.
impl<M> fmt::Debug for TellError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { rejected, .. } => f.debug_tuple("Rejected").field(rejected).finish(),
            Self::Full(_) => f.write_str("Full(..)"),
            Self::Closed(_) => f.write_str("Closed(..)"),
            Self::HoldExpired { ttl, .. } => f.debug_tuple("HoldExpired").field(ttl).finish(),
            Self::HoldFull { capacity, .. } => f.debug_tuple("HoldFull").field(capacity).finish(),
        }
    }
}
