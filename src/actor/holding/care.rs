//! When the actor looks after the messages in its care: at every step, and by a timer of their own.

use std::sync::PoisonError;
use std::time::Duration;

use actix::{AsyncContext, Context, Handler};

use super::Round;
use crate::actor::BreakerActor;
use crate::actor::outbox::Told;
use crate::caught::caught;
use crate::circuit::Circuit;
use crate::clock::Timestamp;
use crate::message::{Bring, SubscribeDrops};

/// How often the actor looks at a clock that the runtime's timers do not follow, while messages wait.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl BreakerActor {
    /// How many messages wait.
    pub(in crate::actor) fn waiting(&self) -> usize {
        self.holding.as_ref().map_or(0, |all| all.waiting())
    }

    /// Whether messages wait.
    pub(in crate::actor) fn is_holding(&self) -> bool {
        self.waiting() > 0
    }

    /// Does what is due with the messages in its care; tells when to come again. Most breakers have none.
    #[inline]
    pub(in crate::actor) fn tend_held(
        &mut self,
        ctx: &Context<Self>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let Self {
            holding,
            circuit,
            gate,
            role,
            ..
        } = self;
        holding.as_mut()?.tend(&mut Round {
            circuit,
            gate,
            address: &|| role.address(ctx),
            now,
        })
    }

    /// Sets the timer of those who wait, to go off at `again` at the latest.
    #[inline]
    pub(in crate::actor) fn set_held_timer(
        &mut self,
        ctx: &mut Context<Self>,
        again: Option<Timestamp>,
        now: Timestamp,
    ) {
        let Some(holding) = &mut self.holding else {
            return;
        };
        let next = if self.gate.clock().drives_timers() {
            again.map(|at| (at, at.since(now)))
        } else {
            // One that is set stays: its instant says nothing.
            (holding.waiting() > 0).then_some((Timestamp::ZERO, LOOK_EVERY))
        };
        // One that goes off too early does no harm: to set it again at each step would only cost more.
        if let (Some((at, _)), Some((set, _))) = (next, &holding.timer)
            && *set <= at
        {
            return;
        }
        if let Some((_, outdated)) = holding.timer.take() {
            ctx.cancel_future(outdated);
        }
        if let Some((at, wait)) = next {
            let timer = self.role.later(ctx, wait, |actor, ctx| {
                if let Some(holding) = &mut actor.holding {
                    holding.forget_timer();
                }
                let ((), outbox) = actor.step(ctx, Circuit::advance);
                outbox.deliver();
            });
            holding.timer = Some((at, timer));
        }
    }

    /// Ends a step that is published: tells callers what became of their messages.
    pub(in crate::actor) fn answer_held(&mut self, now: Timestamp) {
        if let Some(holding) = &mut self.holding {
            // Only now: who sees that nothing is on its way also sees what waits.
            holding.questions.clear();
            for (since, answer) in std::mem::take(&mut holding.answers) {
                if let Ok(Some(why)) = caught(answer) {
                    holding.note(why, since, &self.gate, now);
                }
            }
        }
    }
}

impl Handler<Bring> for BreakerActor {
    type Result = ();

    fn handle(&mut self, message: Bring, ctx: &mut Context<Self>) {
        let Bring { parcel, question } = message;
        let holding = self.holding.get_or_insert_default();
        // Both are here even if this step panics, and the next one finds them.
        holding.questions.push(question);
        holding.arrivals.push_back(parcel);
        let ((), outbox) = self.step(ctx, |_, _| ());
        outbox.deliver();
    }
}

impl Handler<SubscribeDrops> for BreakerActor {
    type Result = Told<()>;

    fn handle(&mut self, message: SubscribeDrops, _: &mut Context<Self>) -> Told<()> {
        let holding = self.holding.get_or_insert_default();
        let subscribers = holding.subscribers.get_or_insert_default();
        let mut subscribers = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.add_actor(message.subscriber, None);
        Told::already(())
    }
}
