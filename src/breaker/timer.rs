//! The time of one call: when it is slow, and when it is over.
//! Armed at the first poll, which is when the call was first found waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use crate::gate::Took;

pin_project! {
    /// The timer of one call.
    pub(super) struct CallTimer {
        #[pin]
        sleep: Option<Sleep>,
        // What is left of the call's time after it has become slow.
        rest: Option<Duration>,
        slow: bool,
    }
}

impl CallTimer {
    pub(super) const fn new() -> Self {
        Self {
            sleep: None,
            rest: None,
            slow: false,
        }
    }

    /// How much of its time a call took that has a result. Where its arbiter was busy, that is found
    /// together with the end of a slow call's time, before the timer could say so.
    pub(super) fn took(&self) -> Took {
        let has_become_slow = |timer: &Sleep| self.rest.is_some() && timer.deadline() <= now();
        if self.slow || self.sleep.as_ref().is_some_and(has_become_slow) {
            Took::Slow
        } else {
            Took::Usual
        }
    }

    /// How long a call has been waiting whose time is `limit`; `None` if it never did.
    pub(super) fn waited(&self, limit: Duration) -> Option<Duration> {
        let deadline = self.sleep.as_ref()?.deadline();
        let end = deadline.checked_add(self.rest.unwrap_or_default())?;
        Some(now().duration_since(end.checked_sub(limit)?))
    }

    /// Ready when `limit` is over, counted from the first poll. On the way the call becomes slow after
    /// `slow_call`.
    #[inline]
    pub(super) fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        limit: Duration,
        slow_call: Option<Duration>,
    ) -> Poll<()> {
        let mut this = self.project();
        if this.sleep.is_none() {
            let first = match slow_call.filter(|slow| *slow < limit) {
                Some(slow) => {
                    *this.rest = limit.checked_sub(slow);
                    slow
                }
                None => limit,
            };
            this.sleep.set(Some(sleep(first)));
        }
        while let Some(mut sleep) = this.sleep.as_mut().as_pin_mut() {
            ready!(sleep.as_mut().poll(cx));
            let Some(rest) = this.rest.take() else {
                break;
            };
            *this.slow = true;
            let end = sleep.deadline().checked_add(rest);
            // A time beyond tokio's is cut by it.
            sleep.reset(end.unwrap_or_else(|| tokio::time::sleep(rest).deadline()));
        }
        *this.slow = true;
        Poll::Ready(())
    }
}

/// The time of tokio's timers, which tests pause. The wall clock is `clock`'s to read.
pub(super) fn now() -> Instant {
    sleep(Duration::ZERO).deadline()
}
