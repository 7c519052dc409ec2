//! Where breakers of several processes share what they remember.
#![doc = include_str!("store/sharing.md")]

// What a step on a shared record does is decided in `circuit/stored.rs`; how breakers live with a store that is slow
// or away, in `circuit/replica.rs`, `actor/replica.rs` and `supervisor/joining.rs`.

mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;

pub use crate::circuit::shared::{
    Action, Answer, CallId, Forced, InvalidCallId, ProbeEnding, Sample, SharedPhase, SharedProbe,
    SharedRecord, Sharing, Step, View,
};
use crate::clock::Timestamp;
use crate::config::{BreakerConfig, ConfigError};
pub use memory::MemoryStore;
#[cfg(feature = "redis")]
pub use redis::{RedisStore, RedisStoreBuilder};

/// Keeps records that several processes share: one by each breaker's name.
///
/// A store makes one step at a time on a record, reads no clock and draws no number: all that a step
/// depends on is in the [`Step`] and in the settings of whoever asks. It does not try again, and it need
/// not hurry: breakers wait for it only for a short time, then go on alone.
///
/// [`MemoryStore`] is the reference: what it answers is right.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Makes a step on the record of that breaker.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] when the store cannot say what became of it; it may have been made all the same.
    fn step(
        &self,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: Step,
    ) -> BoxFuture<'static, Result<View, StoreError>>;

    /// Finds out whether the store is there and takes writes, and what time it is by the clock that the
    /// processes share; `None` where their own clocks agree.
    ///
    /// # Errors
    ///
    /// A [`StoreError`] when it is not there or takes no writes.
    fn contact(&self) -> BoxFuture<'static, Result<Option<Timestamp>, StoreError>>;

    /// Tells what any process changes, from now on. Whoever listens asks again when it ends.
    fn changes(&self) -> BoxStream<'static, Change>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn step(
        &self,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: Step,
    ) -> BoxFuture<'static, Result<View, StoreError>> {
        (**self).step(breaker, config, step)
    }

    fn contact(&self) -> BoxFuture<'static, Result<Option<Timestamp>, StoreError>> {
        (**self).contact()
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        (**self).changes()
    }
}

/// When breakers ask the store that they share their records through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Consistency {
    /// At failures and for probes: while calls succeed, nothing is asked. Of what other processes change, a
    /// breaker is told.
    #[default]
    Eventual,
    /// Before every call as well, as systems do that keep no state of their own. Each call takes a round trip
    /// longer.
    Strict,
}

/// What a store tells of its records.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are changes; the other is the rare one"
)]
#[non_exhaustive]
pub enum Change {
    /// A process changed something that others have to know of.
    Made {
        /// The breaker's name.
        breaker: Arc<str>,
        /// The process; see [`Step::process`].
        by: u64,
        /// The record after it.
        view: View,
    },
    /// Changes may have been missed: whoever wants to know has to look.
    Missed,
}

/// Why a store could not say what became of a step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It is not there, or did not answer in time.
    #[error("the store cannot be reached: {0}")]
    Unreachable(Arc<str>),
    /// It is there and does not do it: it takes no writes, or knows another password.
    #[error("the store refuses: {0}")]
    Refused(Arc<str>),
    /// Its code panicked, so that nobody knows.
    #[error("the store panicked: {0}")]
    Panicked(Arc<str>),
    /// It answered what cannot be understood.
    #[error("the store's answer cannot be read: {0}")]
    Unreadable(Arc<str>),
    /// It cannot be made of these settings.
    #[error(transparent)]
    Invalid(#[from] ConfigError),
}
