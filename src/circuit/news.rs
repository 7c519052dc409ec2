//! What a circuit has to tell, until it is fetched.

use std::collections::VecDeque;

use super::{Circuit, Panicked, Transition};

/// How many transitions, and how many reports, wait to be fetched at most; older ones are dropped.
const WAITING: usize = 64;

/// Boxed while there is any: most circuits have nothing to tell most of the time.
#[derive(Debug, Clone, Default)]
pub(super) struct News(Option<Box<Waiting>>);

#[derive(Debug, Clone, Default)]
struct Waiting {
    transitions: VecDeque<Transition>,
    panicked: VecDeque<Panicked>,
}

impl News {
    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn push_transition(&mut self, transition: Transition) {
        push(&mut self.0.get_or_insert_default().transitions, transition);
    }

    pub(super) fn push_panicked(&mut self, panicked: Panicked) {
        push(&mut self.0.get_or_insert_default().panicked, panicked);
    }

    pub(super) fn pop_transition(&mut self) -> Option<Transition> {
        self.pop(|waiting| &mut waiting.transitions)
    }

    pub(super) fn pop_panicked(&mut self) -> Option<Panicked> {
        self.pop(|waiting| &mut waiting.panicked)
    }

    fn pop<T>(&mut self, queue: impl FnOnce(&mut Waiting) -> &mut VecDeque<T>) -> Option<T> {
        let waiting = self.0.as_mut()?;
        let oldest = queue(waiting).pop_front();
        if waiting.transitions.is_empty() && waiting.panicked.is_empty() {
            self.0 = None;
        }
        oldest
    }
}

/// Adds what waits to be fetched, without growing for a user who never fetches.
fn push<T>(waiting: &mut VecDeque<T>, new: T) {
    if waiting.len() >= WAITING {
        waiting.pop_front();
    }
    waiting.push_back(new);
}

impl Circuit {
    /// Takes the oldest transition that was not yet told. At most 64 wait; older ones are dropped.
    pub fn pop_transition(&mut self) -> Option<Transition> {
        self.news.pop_transition()
    }

    /// Takes the oldest report of user code that panicked inside a decision.
    pub fn pop_panicked(&mut self) -> Option<Panicked> {
        self.news.pop_panicked()
    }
}
