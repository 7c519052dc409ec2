//! What subscribers are told, and how it reaches them without anybody feeling them (R25, R26).
//! When something is told is decided in `actor.rs`.

mod dropped;
mod feed;
mod store;
mod subscribers;

use std::sync::Arc;

use actix::Message;
use serde::Serialize;

use crate::circuit::{Cause, CircuitState, Evidence, Transition};
use crate::clock::Timestamp;
use crate::config::BreakerConfig;

pub use dropped::{DropReason, HeldDropped};
pub(crate) use feed::FeedSender;
pub use feed::{Lagged, Transitions};
pub use store::StoreEvent;
pub(crate) use subscribers::{Subscribers, alive};

/// A breaker's state changed: the message that subscribers get (R25).
///
/// A subscriber's first message tells the present state, with `from` equal to `to` and
/// [`Cause::Present`]; it repeats the `seq` of the newest change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Message)]
#[rtype(result = "()")]
#[non_exhaustive]
pub struct StateChanged {
    /// The breaker's name.
    pub breaker: Arc<str>,
    /// The state before.
    pub from: CircuitState,
    /// The state after.
    pub to: CircuitState,
    /// Why.
    pub cause: Cause,
    /// When.
    pub at: Timestamp,
    /// The epoch that began with it.
    pub epoch: u64,
    /// Grows by one with every change of this breaker; a gap shows that events were missed.
    pub seq: u64,
    /// What the breaker knew.
    pub evidence: Evidence,
    /// Whether the state it tells of rejects nothing: the breaker is in [shadow
    /// mode](crate::BreakerConfigBuilder::enforcement), with `enforcement` at 0, and `to` is none that an
    /// operator forced (R37). Where a share is rejected, however small, it is `false`.
    ///
    /// It says of `to` what was so when the event was made; a change of the dial is no event.
    pub simulated: bool,
}

impl StateChanged {
    /// The event of a transition under those settings.
    pub(crate) fn new(
        breaker: Arc<str>,
        seq: u64,
        transition: Transition,
        config: &BreakerConfig,
    ) -> Self {
        let Transition {
            from,
            to,
            cause,
            at,
            epoch,
            evidence,
        } = transition;
        Self {
            breaker,
            from,
            to,
            cause,
            at,
            epoch,
            seq,
            evidence,
            simulated: config.enforcement() <= 0.0 && !to.is_forced(),
        }
    }
}
