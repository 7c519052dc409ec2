//! What the reader is told: the timeline, the summary, and the check that breaks were kept.
//! What happens is left to `checkout.rs`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::{
    AskError, Cause, CircuitState, Clock, StateChanged, SystemClock, Timestamp,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::Failed;

/// Prints what happens, the seconds since the start first. The breaker uses the same clock.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) clock: SystemClock,
    start: Timestamp,
}

impl Story {
    pub(crate) fn start() -> Self {
        let clock = SystemClock::new();
        let start = clock.now();
        Self { clock, start }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn tell(&self, text: impl Display) {
        self.tell_at(self.now(), text);
    }

    fn tell_at(&self, at: Timestamp, text: impl Display) {
        println!("{:6.2} s  {text}", self.seconds(at));
    }

    pub(crate) fn seconds(&self, at: Timestamp) -> f64 {
        at.since(self.start).as_secs_f64()
    }
}

/// Subscribes to the breaker: prints each change of state, then passes it on to the script.
pub(crate) struct Timeline {
    pub(crate) story: Story,
    pub(crate) told: mpsc::UnboundedSender<Told>,
}

/// A change of state, and when the timeline was told of it.
pub(crate) struct Told {
    at: Timestamp,
    event: StateChanged,
}

impl Actor for Timeline {
    type Context = Context<Self>;
}

impl Handler<StateChanged> for Timeline {
    type Result = ();

    fn handle(&mut self, event: StateChanged, _: &mut Context<Self>) {
        let at = self.story.now();
        let (name, from, to, cause) = (&event.breaker, event.from, event.to, event.cause);
        let line = if cause == Cause::Present {
            format!("{name} is {to}")
        } else if let Some(reason) = &event.evidence.reason {
            format!("{name} {from} -> {to} ({cause}: {reason})")
        } else if let Some(until) = event.evidence.until {
            let seconds = self.story.seconds(until);
            format!("{name} {from} -> {to} ({cause}), next probe from {seconds:.2} s on")
        } else {
            format!("{name} {from} -> {to} ({cause})")
        };
        self.story.tell_at(event.at, line);
        drop(self.told.send(Told { at, event }));
    }
}

/// What the timeline was told so far.
pub(crate) struct Events {
    told: mpsc::UnboundedReceiver<Told>,
    past: Vec<Told>,
}

impl Events {
    pub(crate) fn new(told: mpsc::UnboundedReceiver<Told>) -> Self {
        let past = Vec::new();
        Self { told, past }
    }

    /// Waits for the next change for that cause.
    pub(crate) async fn until(&mut self, cause: Cause) -> Result<(), Failed> {
        loop {
            let told = timeout(Duration::from_secs(30), self.told.recv())
                .await
                .map_err(|_| format!("waited 30 s for an event: {cause}"))?
                .ok_or("the timeline is gone")?;
            let found = told.event.cause == cause;
            self.past.push(told);
            if found {
                return Ok(());
            }
        }
    }

    pub(crate) fn all(&self, cause: Cause) -> impl Iterator<Item = Timestamp> {
        self.past
            .iter()
            .filter(move |told| told.event.cause == cause)
            .map(|told| told.event.at)
    }

    /// Returns every state the breaker was in, and since when.
    pub(crate) fn states(&self) -> Vec<(Timestamp, CircuitState)> {
        let told = self.past.iter().map(|told| &told.event);
        told.map(|event| (event.at, event.to)).collect()
    }

    /// Returns the spans in which no ask may pass: each from when the timeline was told of a break to
    /// the end announced for it, or to the next change if that came first.
    fn breaks(&self) -> Vec<(Timestamp, Timestamp)> {
        let nexts = self.past.iter().skip(1).map(|told| told.event.at);
        self.past
            .iter()
            .zip(nexts.chain([Timestamp::MAX]))
            .filter(|(Told { event, .. }, _)| {
                matches!(event.to, CircuitState::Open | CircuitState::ForcedOpen)
            })
            .map(|(Told { at, event }, next)| {
                let end = event.evidence.until.unwrap_or(Timestamp::MAX);
                (*at, end.min(next))
            })
            .collect()
    }
}

/// What became of one ask, and when it was made: not before `from`, not after `to`.
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) answered: Timestamp,
    pub(crate) result: Result<io::Result<()>, AskError>,
    pub(crate) retry_after: Option<Duration>,
}

impl Asked {
    fn is_rejected(&self) -> bool {
        self.result.as_ref().is_err_and(AskError::is_rejected)
    }

    fn is_failed(&self) -> bool {
        !self.is_rejected() && !matches!(self.result, Ok(Ok(())))
    }

    fn is_refused(&self) -> bool {
        let refused = io::ErrorKind::ConnectionRefused;
        matches!(&self.result, Ok(Err(error)) if error.kind() == refused)
    }

    fn is_in_one_of(&self, breaks: &[(Timestamp, Timestamp)]) -> bool {
        breaks
            .iter()
            .any(|(start, end)| *start < self.from && self.to < *end)
    }
}

/// What became of an ask, in a word.
pub(crate) enum Fate {
    Paid,
    Failed,
    Rejected,
}

/// All that is known at the end.
pub(crate) struct Summary<'a> {
    pub(crate) story: &'a Story,
    pub(crate) events: &'a Events,
    pub(crate) asked: &'a [Asked],
    /// When each ask that reached the server did, by its number.
    pub(crate) arrived: &'a BTreeMap<u64, Timestamp>,
    pub(crate) healthy_again: Timestamp,
    pub(crate) restarts: u64,
}

impl Summary<'_> {
    pub(crate) fn print(&self) {
        let rejected = self.asked.iter().filter(|asked| asked.is_rejected());
        let hints: Vec<_> = rejected.clone().filter_map(|it| it.retry_after).collect();
        let hinted = u32::try_from(hints.len()).unwrap_or(u32::MAX);
        let mean = hints.iter().sum::<Duration>() / hinted.max(1);
        let unknown = rejected.clone().filter(|it| it.retry_after.is_none());
        let refused = self.asked.iter().filter(|asked| asked.is_refused());

        println!("\nSummary");
        row(self.asked.len(), "asks made");
        row(self.arrived.len(), "  reached the server");
        row(refused.count(), "  met a closed port");
        row(rejected.count(), "  were rejected by the breaker");
        row(
            hinted,
            format_args!("    told to come again after {} in the mean", seconds(mean)),
        );
        row(unknown.count(), "    told no time: forced open");
        row(self.events.all(Cause::ProbeDue).count(), "probes");
        row(self.events.all(Cause::ProbeFailed).count(), "  failed");
        row(self.restarts, "worker restarts");
        let failed = self.asked.iter().filter(|asked| asked.is_failed());
        let failed = failed.map(|asked| asked.answered).min();
        let tripped = self.events.all(Cause::Tripped).next();
        if let (Some(failed), Some(tripped)) = (failed, tripped) {
            row(
                seconds(tripped.since(failed)),
                "from the first failure to the trip",
            );
        }
        if let Some(recovered) = self.events.all(Cause::Recovered).last() {
            row(
                seconds(recovered.since(self.healthy_again)),
                "from health to recovery",
            );
        }
    }

    /// Returns when each ask was made, in seconds, and what became of it.
    pub(crate) fn fates(&self) -> impl Iterator<Item = (f64, Fate)> {
        self.asked.iter().map(|asked| {
            let fate = if asked.is_rejected() {
                Fate::Rejected
            } else if asked.is_failed() {
                Fate::Failed
            } else {
                Fate::Paid
            };
            (self.story.seconds(asked.from), fate)
        })
    }

    /// Checks, and tells, that every ask made during a break was kept from the server.
    pub(crate) fn breaks_were_kept(&self) -> bool {
        let breaks = self.events.breaks();
        let made_in_breaks = self
            .asked
            .iter()
            .filter(|asked| asked.is_in_one_of(&breaks));
        let (mut made, mut leaked) = (0_u32, 0_u32);
        for asked in made_in_breaks {
            made += 1;
            if let Some(arrived) = self.arrived.get(&asked.number) {
                leaked += 1;
                let (from, arrived) =
                    (self.story.seconds(asked.from), self.story.seconds(*arrived));
                println!(
                    "Leak: ask {} of {from:.3} s reached the server at {arrived:.3} s",
                    asked.number
                );
            }
        }
        let verdict = if leaked == 0 && made > 0 {
            "as it should be"
        } else {
            "WRONG"
        };
        println!(
            "\nCheck: of {made} asks made during {} breaks, {leaked} reached the server: {verdict}",
            breaks.len(),
        );
        leaked == 0 && made > 0
    }
}

fn row(value: impl Display, what: impl Display) {
    println!("{value:>10}  {what}");
}

fn seconds(span: Duration) -> String {
    format!("{:.2} s", span.as_secs_f64())
}
