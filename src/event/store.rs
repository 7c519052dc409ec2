//! What is told of the store that breakers share their records through.

use std::sync::Arc;
use std::time::Duration;

use actix::Message;

use crate::clock::Timestamp;
use crate::store::StoreError;

/// Something happened to the store that breakers share their records through: the message that subscribers of
/// [`Breakers::subscribe_store`](crate::Breakers::subscribe_store) get.
#[derive(Debug, Clone, PartialEq, Eq, Message)]
#[rtype(result = "()")]
#[non_exhaustive]
pub enum StoreEvent {
    /// It does not answer, or not in time, or takes no writes: each breaker of this process is on its own.
    Degraded {
        /// When.
        at: Timestamp,
        /// What it answered, if anything.
        error: StoreError,
    },
    /// It is there again, and the breakers share their records again.
    Recovered {
        /// When.
        at: Timestamp,
        /// For how long it was not there.
        away: Duration,
    },
    /// What is in the place of a breaker's record cannot be read. It counts as no record, and the next change
    /// replaces it. Told once, until the record can be read again.
    Corrupt {
        /// The breaker's name.
        breaker: Arc<str>,
        /// When.
        at: Timestamp,
    },
}
