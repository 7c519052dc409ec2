//! Calls under way without the feature `metrics`: nobody asks.

use std::ops::Deref;
use std::time::Duration;

use crate::breaker::Breaker;

/// A handle, and nothing more.
pub(crate) struct Tracked(Breaker);

impl Tracked {
    #[inline]
    pub(crate) fn asking(breaker: &Breaker, _: u64) -> Self {
        Self(breaker.clone())
    }

    #[inline]
    pub(crate) fn idle(breaker: &Breaker) -> Self {
        Self(breaker.clone())
    }

    #[expect(
        clippy::unused_self,
        reason = "as the one that counts, but nothing is left of it"
    )]
    #[inline(always)]
    pub(crate) fn end(&mut self, _: impl FnOnce() -> Option<Duration>) {}
}

impl Deref for Tracked {
    type Target = Breaker;

    #[inline]
    fn deref(&self) -> &Breaker {
        &self.0
    }
}

/// Nothing.
#[derive(Debug)]
pub(crate) struct UnderWay;

impl UnderWay {
    #[inline]
    pub(crate) fn of(_: &Breaker, _: u64) -> Self {
        Self
    }

    #[expect(
        clippy::unused_self,
        reason = "as the one that counts, but nothing is left of it"
    )]
    #[inline(always)]
    pub(crate) fn end(&mut self, _: impl FnOnce() -> Option<Duration>) {}
}

/// Takes no time.
#[derive(Debug)]
pub(crate) struct Stopwatch;

impl Stopwatch {
    #[inline]
    pub(crate) fn start() -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "as the one that takes the time")]
    #[inline]
    pub(crate) fn took(&self) -> Option<Duration> {
        None
    }
}
