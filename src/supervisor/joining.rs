//! Keeps the link to the store going: finds out whether it is there, again and again, and passes on what it
//! tells. It ends with the last breaker and the last owner.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix::ArbiterHandle;
use futures_core::stream::Stream;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio::time::{sleep, timeout};

use crate::actor::Link;
use crate::store::Change;

/// How long a store that is away is left alone, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(2);

/// Starts what keeps the link going. On an arbiter that has stopped nothing starts, and no breaker does.
pub(super) fn start(link: &Arc<Link>, arbiter: &ArbiterHandle) {
    let weak = Arc::downgrade(link);
    // Before anybody looks at a record, so that no change is missed in between.
    let changes = link.changes();
    let poll = link.manner().poll;
    arbiter.spawn(async move {
        let listening = listen(weak.clone(), changes);
        futures_util::future::join(keep(weak, poll), listening).await;
    });
}

/// Passes on what the store tells, as long as anybody shares.
async fn listen(link: Weak<Link>, changes: impl Stream<Item = Change>) {
    listen_once(&link, changes).await;
    while link.strong_count() > 0 {
        sleep(LONGEST_RETRY).await;
        let Some(changes) = link.upgrade().map(|link| link.changes()) else {
            return;
        };
        listen_once(&link, changes).await;
    }
}

async fn listen_once(link: &Weak<Link>, changes: impl Stream<Item = Change>) {
    let mut changes = pin!(changes);
    loop {
        // Looked at now and then, since a store may be silent for long.
        match timeout(LONGEST_RETRY, changes.next()).await {
            Ok(None) => return,
            Ok(Some(change)) => {
                let Some(link) = link.upgrade() else { return };
                link.pass_on(change);
                // However much there is to tell: those who are told have their turn first.
                tokio::task::yield_now().await;
            }
            Err(_) => {
                if link.strong_count() == 0 {
                    return;
                }
            }
        }
    }
}

/// Looks for the store while it is away, and has breakers look at their records while it is there. One that is
/// there and lost again at once, as when a part of a cluster is away, is left alone for as long as one that is
/// not there.
async fn keep(link: Weak<Link>, poll: Duration) {
    let mut retry = FIRST_RETRY;
    let mut steady = Duration::ZERO;
    loop {
        let Some(strong) = link.upgrade() else { return };
        match strong.contact().await {
            Ok(()) => {
                let took = strong.join().await;
                drop(strong);
                let (rested, is_lost) = rest(&link, poll.saturating_sub(took)).await;
                steady = steady.saturating_add(took).saturating_add(rested);
                let is_steady = steady >= LONGEST_RETRY;
                if is_steady {
                    retry = FIRST_RETRY;
                }
                if !is_lost {
                    continue;
                }
                steady = Duration::ZERO;
                if is_steady {
                    continue;
                }
            }
            Err(error) => {
                strong.lose(error);
                steady = Duration::ZERO;
            }
        }
        sleep(retry).await;
        retry = retry.saturating_mul(2).min(LONGEST_RETRY);
    }
}

/// Waits for so long, or until the store stops answering, or nobody is left: how long about, and whether it was
/// lost.
async fn rest(link: &Weak<Link>, wait: Duration) -> (Duration, bool) {
    let mut left = wait;
    while !left.is_zero() {
        let Some(strong) = link.upgrade() else { break };
        let slice = left.min(LONGEST_RETRY);
        // An owner that is gone is not kept for longer than this.
        let lost = pin!(strong.until_lost());
        let missed = pin!(strong.until_missed());
        match timeout(slice, select(lost, missed)).await {
            Ok(Either::Left(_)) => return (wait.saturating_sub(left), true),
            // However often something is missed.
            Ok(Either::Right(_)) => left = left.min(FIRST_RETRY),
            Err(_) => left = left.saturating_sub(slice),
        }
    }
    (wait.saturating_sub(left), false)
}
