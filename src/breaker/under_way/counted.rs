//! Calls under way with the feature `metrics`: each is counted from its beginning to its end. One that is
//! dropped before it was settled is one whose caller went away; nothing else is told of those.

use std::ops::Deref;
use std::time::Duration;

use tokio::time::Instant;

use crate::breaker::Breaker;
use crate::breaker::timer::now;
use crate::circuit::SPARED;

/// A handle, and the call that is made through it, if it passed.
pub(crate) struct Tracked {
    breaker: Breaker,
    /// The epoch of a call that is under way.
    epoch: Option<u64>,
}

/// A call that passed, until it is settled.
pub(crate) type UnderWay = Tracked;

impl Tracked {
    #[inline]
    pub(crate) fn asking(breaker: &Breaker, epoch: u64) -> Self {
        breaker.gate().meter().begin();
        Self {
            breaker: breaker.clone(),
            epoch: Some(epoch),
        }
    }

    #[inline]
    pub(crate) fn of(breaker: &Breaker, epoch: u64) -> Self {
        Self::asking(breaker, epoch)
    }

    #[inline]
    pub(crate) fn idle(breaker: &Breaker) -> Self {
        Self {
            breaker: breaker.clone(),
            epoch: None,
        }
    }

    /// The call is settled now. `took` is asked only if its time is to be taken.
    #[inline]
    pub(crate) fn end(&mut self, took: impl FnOnce() -> Option<Duration>) {
        if self.epoch.take().is_some() {
            self.breaker.gate().meter().end(took);
        }
    }

    /// The caller went away: that says nothing about the target (R19), and less if it comes late (R11).
    #[cold]
    fn abandon(&self, epoch: u64) {
        let gate = self.breaker.gate();
        gate.meter().end(|| None);
        if epoch == SPARED {
            return;
        }
        if gate.load().epoch() == epoch {
            gate.meter().ignored();
        } else {
            gate.meter().late();
        }
    }
}

impl Deref for Tracked {
    type Target = Breaker;

    #[inline]
    fn deref(&self) -> &Breaker {
        &self.breaker
    }
}

impl Drop for Tracked {
    #[inline]
    fn drop(&mut self) {
        if let Some(epoch) = self.epoch {
            self.abandon(epoch);
        }
    }
}

/// Takes the time of a call that the breaker makes itself.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(now())
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "as the one without the feature, which takes no time"
    )]
    pub(crate) fn took(&self) -> Option<Duration> {
        Some(now().duration_since(self.0))
    }
}
