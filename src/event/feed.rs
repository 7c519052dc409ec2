//! A bounded queue of events to one reader, which may be slow or on another thread.
//! When it is full, what comes replaces what came last: the newest state is never lost.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use super::StateChanged;
use crate::caught::quietly;

/// How many events wait for a reader at most.
const CAPACITY: usize = 64;

/// Events that a reader missed because it was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("missed {missed} events")]
#[non_exhaustive]
pub struct Lagged {
    /// How many.
    pub missed: u64,
}

/// The changes of one breaker's state as a stream, made by [`Breaker::transitions`](crate::Breaker::transitions).
///
/// The first item is the present state. A reader that is 64 events behind misses some: it gets a
/// [`Lagged`] marker in their place, and always the newest. The stream ends when the breaker is gone;
/// it does not keep the breaker alive.
///
/// Dropping the stream at any time loses nothing but its own events.
#[must_use = "streams do nothing unless polled"]
pub struct Transitions {
    reader: FeedReader<StateChanged>,
}

/// The reader's end of a feed.
pub(super) struct FeedReader<E> {
    feed: Arc<Feed<E>>,
}

/// The breaker's end of a feed, such as a [`Transitions`].
pub(crate) struct FeedSender<E = StateChanged> {
    feed: Weak<Feed<E>>,
}

struct Feed<E> {
    state: Mutex<State<E>>,
}

struct State<E> {
    queue: VecDeque<Result<E, Lagged>>,
    closed: bool,
    reader: Option<Waker>,
}

/// Makes both ends of a feed.
pub(super) fn feed<E>() -> (FeedSender<E>, FeedReader<E>) {
    let feed = Arc::new(Feed {
        state: Mutex::new(State {
            queue: VecDeque::new(),
            closed: false,
            reader: None,
        }),
    });
    let sender = FeedSender {
        feed: Arc::downgrade(&feed),
    };
    (sender, FeedReader { feed })
}

impl Transitions {
    pub(crate) fn new() -> (FeedSender, Self) {
        let (sender, reader) = feed();
        (sender, Self { reader })
    }
}

impl<E> Feed<E> {
    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E> State<E> {
    /// Queues an event; tells whether another one was lost for it.
    fn push(&mut self, event: E) -> bool {
        if self.queue.len() < CAPACITY {
            self.queue.push_back(Ok(event));
            return false;
        }
        // Full: the last event gives way, and the marker before it counts it.
        self.queue.pop_back();
        match self.queue.back_mut() {
            Some(Err(lagged)) => lagged.missed = lagged.missed.saturating_add(1),
            _ => self.queue.push_back(Err(Lagged { missed: 1 })),
        }
        self.queue.push_back(Ok(event));
        true
    }
}

impl<E> FeedSender<E> {
    /// Whether the reader is there.
    pub(crate) fn is_read(&self) -> bool {
        self.feed.strong_count() > 0
    }

    /// Queues an event; tells whether another one was lost for it, or `None` if the reader is gone.
    pub(crate) fn send(&self, event: E) -> Option<bool> {
        let feed = self.feed.upgrade()?;
        let (lost, reader) = {
            let mut state = feed.lock();
            (state.push(event), state.reader.take())
        };
        wake(reader);
        Some(lost)
    }
}

/// A reader's waker is code of the reader's: a panic of it stays here (R26).
fn wake(reader: Option<Waker>) {
    if let Some(reader) = reader {
        quietly(|| reader.wake());
    }
}

impl<E> Drop for FeedSender<E> {
    fn drop(&mut self) {
        if let Some(feed) = self.feed.upgrade() {
            let reader = {
                let mut state = feed.lock();
                state.closed = true;
                state.reader.take()
            };
            wake(reader);
        }
    }
}

impl Stream for Transitions {
    type Item = Result<StateChanged, Lagged>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.reader.poll_next(cx)
    }
}

impl<E> FeedReader<E> {
    /// The next event, or a marker for those that were missed; `None` once the breaker is gone.
    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Result<E, Lagged>>> {
        let mut state = self.feed.lock();
        if let Some(item) = state.queue.pop_front() {
            return Poll::Ready(Some(item));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl fmt::Debug for Transitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transitions").finish_non_exhaustive()
    }
}
