//! What is told of messages that waited in a breaker and were not sent.
//! When a message is dropped is decided by `actor/holding.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::Message;
use serde::Serialize;

use crate::clock::Timestamp;

/// A message that should wait in a breaker was dropped, or handed back to its caller: the message that those
/// get who subscribed by [`Breaker::subscribe_drops`](crate::Breaker::subscribe_drops).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Message)]
#[rtype(result = "()")]
#[non_exhaustive]
pub struct HeldDropped {
    /// The breaker's name.
    pub breaker: Arc<str>,
    /// Why.
    pub why: DropReason,
    /// How long the message had waited.
    #[serde(serialize_with = "as_text")]
    pub held_for: Duration,
    /// When.
    pub at: Timestamp,
    /// Grows by one with every drop of this breaker; a gap shows that events were missed.
    pub seq: u64,
}

/// Why a message that was to wait in a breaker did not reach its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DropReason {
    /// It had waited for [`held_ttl`](crate::Hold::held_ttl).
    Expired,
    /// As many as [`capacity`](crate::Hold::capacity) waited already.
    Full,
    /// Its caller went away.
    CallerGone,
    /// The breaker is gone for good.
    BreakerGone,
    /// A message without a reply: its target was gone when its turn came, and nobody waits to get it back.
    TargetClosed,
    /// A message without a reply: its target's mailbox was full when its turn came, and nobody waits to
    /// get it back.
    TargetFull,
    /// A message without a reply was rejected, and nobody waits to get it back.
    Rejected,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Expired => "expired",
            Self::Full => "full",
            Self::CallerGone => "caller gone",
            Self::BreakerGone => "breaker gone",
            Self::TargetClosed => "target closed",
            Self::TargetFull => "target full",
            Self::Rejected => "rejected",
        })
    }
}

fn as_text<S: serde::Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*span))
}
