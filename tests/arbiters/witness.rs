//! What was seen of a script: each step with its answer, the breaker's events, and snapshots when all was
//! quiet. It can be changed by hand, to see that the checker notices.

use std::fmt;

use actix_circuit_breaker::{
    BreakerConfig, CircuitState, Reason, Snapshot, StateChanged, Timestamp, circuit,
};

use super::script::Op;

/// No answer to go by: what the step leads to may come at any time until all is quiet.
pub(crate) const OPEN_END: u64 = u64::MAX;

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// Rejected, and until when.
    Rejected {
        reason: Reason,
        epoch: u64,
        until: Option<Timestamp>,
    },
    /// Admitted, and whether as a probe, where that is known.
    Admitted {
        probe: Option<bool>,
    },
    /// The breaker panicked over it.
    Lost,
    /// The caller went away unanswered; whether the breaker makes the call nevertheless.
    Dropped {
        orphan: bool,
    },
    Done,
    Look(Box<circuit::Snapshot>),
    State(CircuitState),
    Present(Box<StateChanged>),
    /// There was nothing to do.
    Nothing,
}

/// One step and its answer. The stamps are out of one counter: a step that was answered before another
/// began came first.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) op: Op,
    /// The call it is about, if it is about one.
    pub(crate) call: u64,
    pub(crate) began: u64,
    pub(crate) answered: u64,
    pub(crate) answer: Answer,
}

/// What happened between two quiet moments.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    /// When it began.
    pub(crate) now: Timestamp,
    /// What the random source says meanwhile.
    pub(crate) random: f64,
    pub(crate) seen: Vec<Seen>,
    pub(crate) events: Vec<StateChanged>,
    /// How many of these were told when the message after all steps was answered.
    pub(crate) prompt: usize,
    /// What the gate showed before anybody asked the breaker.
    pub(crate) idle: CircuitState,
    /// What the gate and the breaker show at the end.
    pub(crate) state: CircuitState,
    pub(crate) watched: CircuitState,
    pub(crate) end: Snapshot,
}

/// What was seen of a whole script.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) config: BreakerConfig,
    /// Whether handles count on timers: then they look at the clock less, and a rate's successes are no
    /// messages. The script moves the clock, and no timer follows.
    pub(crate) timers: bool,
    pub(crate) present: StateChanged,
    pub(crate) batches: Vec<Batch>,
    /// What was found wrong without looking at the circuit.
    pub(crate) faults: Vec<String>,
}

/// A line for each step and event.
impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "at {}, random {}:", self.now, self.random)?;
        for seen in &self.seen {
            let Seen {
                op,
                call,
                began,
                answered,
                answer,
            } = seen;
            write!(f, "  {began}")?;
            match *answered {
                OPEN_END => write!(f, "..: {op:?}")?,
                answered => write!(f, "..{answered}: {op:?}")?,
            }
            if *call != u64::MAX {
                write!(f, " of call {call}")?;
            }
            writeln!(f, ": {answer:?}")?;
        }
        for event in &self.events {
            let (seq, from, to, cause) = (event.seq, event.from, event.to, event.cause);
            let (epoch, at, evidence) = (event.epoch, event.at, &event.evidence);
            writeln!(
                f,
                "  {seq}. {from} to {to}, {cause}, epoch {epoch}, at {at}: {evidence:?}"
            )?;
        }
        writeln!(f, "  {} of these told at once", self.prompt)?;
        let Self {
            idle,
            state,
            watched,
            ..
        } = self;
        writeln!(
            f,
            "  the gate shows {idle} by itself, then {state}, {watched}"
        )?;
        write!(
            f,
            "  {:?}, restarts {}",
            self.end.circuit, self.end.restarts
        )
    }
}
