//! When the breaker's actor wakes by itself: to mark a break or a ramp-up as nearly over and as over, and to fold
//! the buckets of a window of time. A timer decides nothing; late, lost or doubled it costs the circuit nothing (R28).

use std::time::Duration;

use actix::{AsyncContext, Context, SpawnHandle};

use super::BreakerActor;
use crate::circuit::{Circuit, CircuitState};
use crate::clock::Timestamp;

/// How long before a deadline handles begin to look at the clock by themselves. A timer is late by a
/// millisecond or by what keeps the arbiter busy, and a caller that comes again after the very
/// `retry_after` it was told must not be too early for it.
pub(super) const AHEAD: Duration = Duration::from_millis(50);

/// The timers of one life of the actor. A [`SpawnHandle`] names another timer in the next one.
#[derive(Debug, Default)]
pub(super) struct Timers {
    deadline: Option<(Timestamp, SpawnHandle)>,
    tick: Option<SpawnHandle>,
    /// Whether samples came since the last tick; without any the ticks go to sleep.
    busy: bool,
    /// The steps of this life, to count turns by.
    pub(super) steps: u32,
    /// Which context's timers these are, for a member of a family.
    pub(super) life: u32,
    /// Whether the head of the family knows that there are timers to be set again.
    pub(super) listed: bool,
}

impl Timers {
    /// No timers yet, in that life of the head.
    pub(super) fn of_life(life: u32) -> Self {
        Self {
            life,
            ..Self::default()
        }
    }

    pub(super) fn are_set(&self) -> bool {
        self.deadline.is_some() || self.tick.is_some()
    }

    /// Whether the next bucket boundary will be noticed.
    pub(super) fn are_ticking(&self) -> bool {
        self.tick.is_some()
    }

    pub(super) fn note_samples(&mut self, any: bool) {
        self.busy |= any;
    }
}

impl BreakerActor {
    /// Whether timers are of use: in a family, where there may be very many, only for an order, whose end
    /// an operator waits for.
    fn uses_timers(&self) -> bool {
        let forced = || {
            matches!(
                self.circuit.record().state(),
                CircuitState::ForcedOpen | CircuitState::ForcedClosed
            )
        };
        self.gate.is_timed() || forced()
    }

    /// Sets the timers that the record asks for. None for a clock that the runtime does not follow.
    pub(super) fn set_timers(&mut self, ctx: &mut Context<Self>, now: Timestamp) {
        if !self.gate.clock().drives_timers() {
            return;
        }
        self.set_deadline(ctx, now);
        if self.gate.is_timed()
            && self.timers.busy
            && self.timers.tick.is_none()
            && let Some(boundary) = self.circuit.next_bucket(now)
        {
            let tick = self.role.later(ctx, boundary.since(now), Self::tick);
            self.timers.tick = Some(tick);
        }
    }

    fn set_deadline(&mut self, ctx: &mut Context<Self>, now: Timestamp) {
        // A timer for this very instant would find nothing left to do (R28).
        let deadline = self
            .circuit
            .next_deadline()
            .filter(|at| *at > now && self.uses_timers());
        if deadline == self.timers.deadline.map(|(at, _)| at) {
            return;
        }
        if let Some((_, outdated)) = self.timers.deadline.take() {
            ctx.cancel_future(outdated);
        }
        if let Some(at) = deadline {
            let rest = at.since(now);
            // Twice: to mark it as near, and to do what is due.
            let wait = rest.checked_sub(AHEAD).filter(|wait| !wait.is_zero());
            let timer = self.role.later(ctx, wait.unwrap_or(rest), |actor, ctx| {
                actor.timers.deadline = None;
                let ((), outbox) = actor.step(ctx, Circuit::advance);
                outbox.deliver();
            });
            self.timers.deadline = Some((at, timer));
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        self.timers.tick = None;
        self.timers.busy = false;
        let ((), outbox) = self.step(ctx, |_, _| ());
        outbox.deliver();
    }
}
