//! What a model is made of: leave to call, letters, messages, and the points of a step.

use std::sync::Arc;

use actix_circuit_breaker::circuit::{Circuit, Permit};
use actix_circuit_breaker::{Outcome, Timestamp};

use super::script::{End, Op, Way};

/// How to come by a permit any number of times: the circuit before it was given out, and when. Permits
/// cannot be cloned, and a search that goes back needs them again.
#[derive(Clone)]
pub(super) struct Recipe(pub(super) Arc<(Circuit, Timestamp)>);

impl Recipe {
    pub(super) fn permit(&self) -> Permit {
        let (before, now) = &*self.0;
        before.clone().try_acquire(*now).unwrap()
    }

    pub(super) fn is_probe(&self) -> bool {
        self.permit().is_probe()
    }
}

/// By what leave a call runs.
#[derive(Clone)]
pub(super) enum Leave {
    /// It was let through by the gate, or told that the circuit is closed.
    Direct(Recipe),
    /// Its question was lost with the actor's panic: let through unguarded, in an epoch that lets none.
    Ghost(u64),
    /// A probe in the caller's hands.
    Probe(Recipe),
    /// A call that the breaker makes itself.
    Mediated(Recipe),
}

/// What waits in the letterbox.
#[derive(Clone)]
pub(super) enum Letter {
    Gone(Recipe),
    Failed(Recipe),
}

/// A message on its way.
#[derive(Clone)]
pub(super) enum Mail {
    Acquire,
    Ask,
    Settle(Leave, Outcome),
    Collect,
    /// What the step itself says: an order, a question, a subscription.
    Plain,
}

/// The next point of a step.
#[derive(Clone)]
pub(super) enum At {
    /// It reads the gate.
    Gate,
    Mail(Mail),
    /// Its question was lost: it reads the epoch.
    Unguarded,
    /// The call is over; its end is compared with the gate's epoch.
    Note(Leave, Outcome),
    /// A success that the gate counts, for the actor to look at.
    Tally(Leave),
    /// A permit is dropped.
    Drop(Recipe, bool),
    Over,
}

impl Leave {
    pub(super) fn recipe(&self) -> Option<&Recipe> {
        match self {
            Self::Direct(recipe) | Self::Probe(recipe) | Self::Mediated(recipe) => Some(recipe),
            Self::Ghost(_) => None,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        match (self, self.recipe()) {
            (_, Some(recipe)) => recipe.permit().epoch(),
            (Self::Ghost(epoch), None) => *epoch,
            _ => 0,
        }
    }

    pub(super) fn key(&self) -> String {
        match self {
            Self::Direct(recipe) => format!("direct {:?}", recipe.permit()),
            Self::Ghost(epoch) => format!("ghost {epoch}"),
            Self::Probe(recipe) => format!("probe {:?}", recipe.permit()),
            Self::Mediated(recipe) => format!("mediated {:?}", recipe.permit()),
        }
    }
}

impl Letter {
    pub(super) fn key(&self) -> String {
        match self {
            Self::Gone(recipe) => format!("gone {:?}", recipe.permit()),
            Self::Failed(recipe) => format!("failed {:?}", recipe.permit()),
        }
    }
}

impl At {
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    pub(super) fn key(&self) -> String {
        match self {
            Self::Gate => "gate".into(),
            Self::Mail(Mail::Acquire) => "acquire".into(),
            Self::Mail(Mail::Ask) => "ask".into(),
            Self::Mail(Mail::Settle(leave, outcome)) => format!("settle {} {outcome}", leave.key()),
            Self::Mail(Mail::Collect) => "collect".into(),
            Self::Mail(Mail::Plain) => "plain".into(),
            Self::Unguarded => "unguarded".into(),
            Self::Note(leave, outcome) => format!("note {} {outcome}", leave.key()),
            Self::Tally(leave) => format!("tally {}", leave.key()),
            Self::Drop(recipe, panicking) => format!("drop {:?} {panicking}", recipe.permit()),
            Self::Over => "over".into(),
        }
    }
}

/// What is to be asked of the actor.
pub(super) fn question(op: Op) -> At {
    match op {
        Op::Call(way, _) | Op::Begin(way) | Op::Early(way) if !way.has_target() => {
            At::Mail(Mail::Acquire)
        }
        _ => At::Mail(Mail::Ask),
    }
}

/// How the end of a call reaches the record.
pub(super) fn ending(way: Way, leave: &Leave, end: End) -> At {
    let outcome = end.outcome();
    match (leave, end) {
        // It runs on in the breaker's care.
        (Leave::Mediated(_), End::Gone) => At::Over,
        (Leave::Mediated(recipe), _) if outcome == Outcome::Success && !recipe.is_probe() => {
            At::Note(leave.clone(), outcome)
        }
        (Leave::Probe(recipe), End::Gone) => At::Drop(recipe.clone(), false),
        (Leave::Probe(recipe), End::Panic) if way == Way::Permit => At::Drop(recipe.clone(), true),
        (Leave::Probe(_) | Leave::Mediated(_), _) => At::Mail(Mail::Settle(leave.clone(), outcome)),
        // Of a call that went straight and whose caller went away nobody takes note.
        (_, End::Gone) if way != Way::Permit => At::Over,
        _ => At::Note(leave.clone(), outcome),
    }
}
