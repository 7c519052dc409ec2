//! The last changes of every breaker, and all changes as they come to those who listen.
//! Filled by an actor that is a subscriber like any other, so no breaker feels it (R26).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::{Actor, Context, Handler};
use actix_web::web::Bytes;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::circuit::Cause;
use crate::event::StateChanged;

/// How many breakers have a history at most; the one that changed longest ago makes room.
const NAMES: usize = 4_096;

/// How many events wait for a slow listener at most. All listeners share them.
const EVENTS: usize = 256;

/// How many changes of each breaker are kept, unless it is set otherwise.
pub(super) const CHANGES: usize = 32;

#[derive(Debug)]
pub(super) struct History {
    kept: Mutex<Kept>,
    listeners: broadcast::Sender<Bytes>,
}

#[derive(Debug)]
struct Kept {
    /// How many of each.
    changes: usize,
    names: HashMap<Arc<str>, Changes>,
    /// The names by when they changed last.
    order: BTreeMap<u64, Arc<str>>,
    turn: u64,
}

#[derive(Debug, Default)]
struct Changes {
    turn: u64,
    last: VecDeque<Arc<StateChanged>>,
}

impl History {
    pub(super) fn new() -> Self {
        Self {
            kept: Mutex::new(Kept {
                changes: CHANGES,
                names: HashMap::new(),
                order: BTreeMap::new(),
                turn: 0,
            }),
            listeners: broadcast::channel(EVENTS).0,
        }
    }

    pub(super) fn set_changes(&self, changes: usize) {
        self.kept().changes = changes;
    }

    /// The newest changes of a breaker, the oldest of them first.
    pub(super) fn last(&self, breaker: &str, at_most: usize) -> Vec<Arc<StateChanged>> {
        let kept = self.kept();
        let Some(changes) = kept.names.get(breaker) else {
            return Vec::new();
        };
        let older = changes.last.len().saturating_sub(at_most);
        changes.last.iter().skip(older).cloned().collect()
    }

    /// Every change from now on, as frames of a stream of events.
    pub(super) fn listen(&self) -> broadcast::Receiver<Bytes> {
        self.listeners.subscribe()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn add(&mut self, event: StateChanged) {
        let name = Arc::clone(&event.breaker);
        self.turn = self.turn.saturating_add(1);
        let changes = self.names.entry(Arc::clone(&name)).or_default();
        self.order.remove(&changes.turn);
        changes.turn = self.turn;
        changes.last.push_back(Arc::new(event));
        while changes.last.len() > self.changes {
            changes.last.pop_front();
        }
        self.order.insert(self.turn, name);
        if self.names.len() > NAMES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.names.remove(&oldest);
        }
    }
}

/// The subscriber that fills the history.
#[derive(Debug)]
pub(super) struct Recorder(pub(super) Arc<History>);

impl Actor for Recorder {
    type Context = Context<Self>;
}

impl Handler<StateChanged> for Recorder {
    type Result = ();

    fn handle(&mut self, event: StateChanged, _: &mut Context<Self>) {
        let Self(history) = self;
        if let Some(frame) = frame("changed", &event) {
            // Without listeners there is nobody to tell.
            drop(history.listeners.send(frame));
        }
        if event.cause != Cause::Present {
            history.kept().add(event);
        }
    }
}

/// One event of a stream, as browsers read it.
pub(super) fn frame(event: &str, data: &impl Serialize) -> Option<Bytes> {
    // JSON on one line: a line break inside a text is escaped, so nothing can end the frame early.
    let data = serde_json::to_string(data).ok()?;
    Some(Bytes::from(format!("event: {event}\ndata: {data}\n\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::{CircuitState, Evidence, Transition};
    use crate::clock::Timestamp;
    use crate::config::BreakerConfig;

    fn change(breaker: &str, seq: u64) -> StateChanged {
        let transition = Transition {
            from: CircuitState::Closed,
            to: CircuitState::Open,
            cause: Cause::Tripped,
            at: Timestamp::ZERO,
            epoch: seq,
            evidence: Evidence::default(),
        };
        StateChanged::new(breaker.into(), seq, transition, &BreakerConfig::default())
    }

    #[test]
    fn keeps_the_newest_changes_of_the_names_that_changed_last() {
        let history = History::new();
        history.set_changes(3);
        for seq in 0..5 {
            history.kept().add(change("first", seq));
        }
        let seqs = |name: &str, at_most| -> Vec<u64> {
            let last = history.last(name, at_most);
            last.iter().map(|event| event.seq).collect()
        };
        assert_eq!(seqs("first", 10), [2, 3, 4]);
        assert_eq!(seqs("first", 1), [4]);

        for other in 1..NAMES {
            history.kept().add(change(&other.to_string(), 0));
        }
        history.kept().add(change("first", 5));
        history.kept().add(change("one more", 0));
        assert_eq!(seqs("first", 10), [3, 4, 5]);
        assert!(seqs("1", 10).is_empty(), "it changed longest ago");
        assert_eq!(history.kept().names.len(), NAMES);
        assert_eq!(history.kept().order.len(), NAMES);
    }
}
