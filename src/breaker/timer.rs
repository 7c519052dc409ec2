//! The time of one call: when it is slow, and when it is over.
//! Armed at the first poll, which is when the call was first found waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

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

    /// Whether the call has taken as long as a slow one.
    pub(super) fn is_slow(&self) -> bool {
        self.slow
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
            match sleep.deadline().checked_add(rest) {
                Some(end) => sleep.reset(end),
                None => return Poll::Pending,
            }
        }
        *this.slow = true;
        Poll::Ready(())
    }
}
