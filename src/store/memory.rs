//! A store in the memory of one process: the reference that others are held against.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::{Change, Step, Store, StoreError, View};
use crate::circuit::Stored;
use crate::clock::Timestamp;
use crate::config::BreakerConfig;

/// How many changes wait for one who listens; who is slower is told that some were missed.
const WAITING: usize = 1_024;

/// A [`Store`] in the memory of this process, for tests and for several [`Breakers`](crate::Breakers) of one
/// process. Clones are the same store. It goes with the process.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    kept: Arc<Kept>,
}

#[derive(Debug)]
struct Kept {
    records: Mutex<HashMap<Arc<str>, Stored>>,
    changes: broadcast::Sender<Change>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Makes an empty one.
    pub fn new() -> Self {
        let (changes, _) = broadcast::channel(WAITING);
        Self {
            kept: Arc::new(Kept {
                records: Mutex::default(),
                changes,
            }),
        }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.kept
            .records
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the record of that breaker, as a store that was emptied would.
    pub fn forget(&self, breaker: &str) {
        let mut records = self
            .kept
            .records
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        records.remove(breaker);
    }

    fn make(&self, breaker: &Arc<str>, config: &BreakerConfig, step: &Step) -> View {
        let mut records = self
            .kept
            .records
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut kept = records.remove(breaker);
        let done = Stored::step(&mut kept, config, step);
        if let Some(kept) = kept {
            records.insert(Arc::clone(breaker), kept);
        }
        if done.is_news {
            // Told under the lock, so that changes are told in their order. Nobody may listen.
            let told = self.kept.changes.send(Change::Made {
                breaker: Arc::clone(breaker),
                by: step.process,
                view: done.view.clone(),
            });
            drop(told);
        }
        done.view
    }
}

impl Store for MemoryStore {
    fn step(
        &self,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: Step,
    ) -> BoxFuture<'static, Result<View, StoreError>> {
        ready(Ok(self.make(breaker, config, &step))).boxed()
    }

    fn contact(&self) -> BoxFuture<'static, Result<Option<Timestamp>, StoreError>> {
        ready(Ok(None)).boxed()
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let receiver = self.kept.changes.subscribe();
        stream::unfold(receiver, |mut receiver| async {
            let change = match receiver.recv().await {
                Ok(change) => change,
                Err(RecvError::Lagged(_)) => Change::Missed,
                Err(RecvError::Closed) => return None,
            };
            Some((change, receiver))
        })
        .boxed()
    }
}
