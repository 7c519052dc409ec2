//! What a replica asked the store, until it is answered.

use std::collections::VecDeque;

use super::Waiting;
use super::view::FOREIGN;
use crate::circuit::Ending;
use crate::circuit::permit::SlotId;
use crate::circuit::shared::{Action, CallId, Sample, Step};

/// Names a request; later ones have higher numbers.
pub(crate) type Ticket = u64;

/// On which terms a circuit shares its record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// A number that no other process has.
    pub(crate) process: u64,
    /// A number that no other circuit of the process has: names are not used again by one that is made anew.
    pub(crate) life: u64,
    /// How many processes must report failures before the shared record trips.
    pub(crate) min_reporters: u32,
    /// Whether the store is asked before every call.
    pub(crate) strict: bool,
    /// The shared time less the process's own, in microseconds, as far as it is known.
    pub(crate) ahead: i64,
}

/// How many names a circuit gives out before those of the next begin.
const NAMES_OF_A_LIFE: u32 = 40;

impl Terms {
    /// The number of the circuit's first name, in the range of its slots.
    pub(super) fn first(&self) -> u64 {
        (self.life << NAMES_OF_A_LIFE) & !FOREIGN
    }

    pub(super) fn call(&self, number: u64) -> CallId {
        CallId {
            process: self.process,
            number,
        }
    }
}

/// A step that the store is to make.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) ticket: Ticket,
    pub(crate) step: Step,
}

impl Step {
    /// Whether it counts a sample, which it may do twice, for it has a name.
    pub(super) fn names_sample(&self) -> bool {
        matches!(
            self.action,
            Action::Record {
                sample: Some(_),
                ..
            }
        )
    }
}

/// What is to be done with the answer.
#[derive(Debug, Clone)]
pub(super) enum Pending {
    /// Nothing but to take the record over.
    Look,
    /// A slot, or leave to pass.
    Leave(SlotId),
    /// How a closed call of that epoch ended.
    Sample { sample: Sample, epoch: u64 },
    /// How a probe of that epoch ended.
    Probe {
        slot: SlotId,
        ending: Ending,
        epoch: u64,
    },
    /// A custom rule's verdict on samples of that epoch.
    Trip { epoch: u64 },
    /// An order that stands here already.
    Order { tries: u32 },
    /// What is remembered here.
    Offer,
    /// What nobody waits for.
    Beat,
}

/// What was asked and not answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    newest: Ticket,
    numbers: u64,
    waiting: Waiting,
    unsent: VecDeque<Ticket>,
}

impl Requests {
    /// None yet; names begin after that number.
    pub(super) fn after(first: u64) -> Self {
        Self {
            numbers: first,
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, step: Step, pending: Pending) {
        let ticket = self.newest.saturating_add(1);
        self.newest = ticket;
        self.push_as(ticket, step, pending);
    }

    pub(super) fn push_as(&mut self, ticket: Ticket, step: Step, pending: Pending) {
        self.waiting.insert(ticket, (step, pending));
        self.unsent.push_back(ticket);
    }

    /// The oldest that was not sent.
    pub(super) fn pop(&mut self) -> Option<Request> {
        let ticket = self.unsent.pop_front()?;
        let (step, _) = self.waiting.get(&ticket)?;
        Some(Request {
            ticket,
            step: step.clone(),
        })
    }

    pub(super) fn take(&mut self, ticket: Ticket) -> Option<(Step, Pending)> {
        self.waiting.remove(&ticket)
    }

    /// All of them, oldest first; none is to be sent any more.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (Step, Pending)> + use<> {
        self.unsent.clear();
        std::mem::take(&mut self.waiting).into_values()
    }

    pub(super) fn newest(&self) -> Ticket {
        self.newest
    }

    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }

    pub(super) fn count(&self, which: impl Fn(&Pending) -> bool) -> usize {
        let mut waiting = self.waiting.values();
        waiting
            .by_ref()
            .filter(|(_, pending)| which(pending))
            .count()
    }

    pub(super) fn is_under_way(&self, which: impl Fn(&Pending) -> bool) -> bool {
        self.waiting.values().any(|(_, pending)| which(pending))
    }

    /// A number for a sample's name, never used again.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers = self.numbers.saturating_add(1);
        self.numbers
    }
}
