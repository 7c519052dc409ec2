//! The messages of the breaker's actor, each one step of the circuit.

use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use actix::{Addr, Context, Handler, MailboxError, Message, ResponseFuture};
use tokio::sync::oneshot;

use super::BreakerActor;
use super::outbox::{Order, Told};
use super::replica::Answered;
use crate::breaker::{Stopwatch, judge, settle};
use crate::caught::{Quiet, caught, quietly};
use crate::circuit::{self, Circuit, Permit, Record, Refused};
use crate::clock::Timestamp;
use crate::config::{BreakerConfig, ConfigError};
use crate::error::{AskError, Rejected};
use crate::gate::{Gate, Held, Took};
use crate::message::{
    Acquire, Ask, Collect, Follow, ForceClosed, ForceOpen, GetRecord, GetSnapshot, Grant, Inspect,
    Reconfigure, Release, Reset, Sampled, Settle, Snapshot, Subscribe,
};
use crate::outcome::{Classify, Outcome};
use crate::report;

impl BreakerActor {
    /// One step whose result is the answer.
    fn answer<R>(
        &mut self,
        ctx: &mut Context<Self>,
        decide: impl FnOnce(&mut Circuit, Timestamp) -> R,
    ) -> Told<R> {
        let (answer, outbox) = self.step(ctx, decide);
        Told::new(answer, outbox)
    }

    /// Has an order logged after its answer.
    fn ordered<R>(&self, mut told: Told<R>, order: Order) -> Told<R> {
        let news = told.outbox.news(self);
        news.order = Some(order);
        told
    }

    fn ordered_if_ok<E>(&self, told: Told<Result<(), E>>, order: Order) -> Told<Result<(), E>> {
        if told.answer.is_ok() {
            self.ordered(told, order)
        } else {
            told
        }
    }

    /// Rejects a call that was refused, or lets it go to its target all the same (R37).
    fn refuse(&mut self, refused: Refused) -> Result<Permit, Rejected> {
        if self.gate.spares(refused.reason()) {
            self.circuit.uncount_rejected();
            return Ok(Permit::spared());
        }
        Err(self
            .gate
            .rejection(refused.reason(), refused.epoch(), refused.until()))
    }
}

impl Handler<Settle> for BreakerActor {
    type Result = ();

    fn handle(&mut self, message: Settle, ctx: &mut Context<Self>) {
        let Settle {
            permit,
            end,
            done,
            _owed,
        } = message;
        self.timers.note_samples(true);
        let asked = self.circuit.newest_ticket();
        let ((), outbox) = self.step_by(ctx, |actor, now| actor.end(permit, end, now));
        if let Some(done) = done.and_then(|done| self.keep_receipt(asked, done)) {
            // A caller that went away does not wait for it, and one whose waker panics ends nobody else.
            quietly(|| _ = done.send(()));
        }
        outbox.deliver();
    }
}

impl Handler<Acquire> for BreakerActor {
    type Result = Answered<Result<Grant, Rejected>>;

    fn handle(&mut self, message: Acquire, ctx: &mut Context<Self>) -> Self::Result {
        if !self.needs_leave() {
            return Answered::Now(self.acquire(message, ctx));
        }
        let (granted, answer) = oneshot::channel();
        self.park(message.call_timeout, ctx, |actor, ctx| {
            let Told { answer, outbox } = actor.acquire(message, ctx);
            // Who went away meanwhile leaves a probe that gives its slot back.
            quietly(|| drop(granted.send(answer)));
            outbox.deliver();
        });
        Answered::Later(answer)
    }
}

impl BreakerActor {
    fn acquire(
        &mut self,
        message: Acquire,
        ctx: &mut Context<Self>,
    ) -> Told<Result<Grant, Rejected>> {
        let (admitted, outbox) = self.step(ctx, |circuit, now| {
            circuit.try_acquire_for(message.call_timeout, now)
        });
        drop(message);
        let answer = match admitted {
            Ok(permit) if permit.is_probe() => {
                let held = self.gate.hold(permit);
                Ok(Grant::Probe(self.told_of(held, ctx)))
            }
            Ok(permit) => Ok(Grant::Closed(permit)),
            Err(refused) => self.refuse(refused).map(Grant::Closed),
        };
        Told::new(answer, outbox)
    }
}

impl<M> Handler<Ask<M>> for BreakerActor
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    type Result = ResponseFuture<Result<M::Result, AskError>>;

    fn handle(&mut self, ask: Ask<M>, ctx: &mut Context<Self>) -> Self::Result {
        let call_timeout = ask
            .call_timeout
            .unwrap_or_else(|| self.circuit.config().call_timeout());
        if !self.needs_leave() {
            return self.mediate(ask, call_timeout, ctx);
        }
        let (sent, reply) = oneshot::channel();
        self.park(call_timeout, ctx, move |actor, ctx| {
            let asked = actor.mediate(ask, call_timeout, ctx);
            // In a task of its own: the probe outlives who asked (R10).
            actix::spawn(async move { drop(sent.send(asked.await)) });
        });
        Box::pin(async move { reply.await.unwrap_or(Err(AskError::Closed)) })
    }
}

impl BreakerActor {
    /// Makes an ask in the breaker's care, if it is admitted.
    fn mediate<M>(
        &mut self,
        mut ask: Ask<M>,
        call_timeout: Duration,
        ctx: &mut Context<Self>,
    ) -> ResponseFuture<Result<M::Result, AskError>>
    where
        M: Message + Send + 'static,
        M::Result: Send,
    {
        drop(ask.question.take());
        let (admitted, outbox) = self.step(ctx, |circuit, now| {
            circuit.try_acquire_for(call_timeout, now)
        });
        let permit = match admitted.or_else(|refused| self.refuse(refused)) {
            Ok(permit) => permit,
            Err(rejected) => {
                outbox.deliver();
                return Box::pin(std::future::ready(Err(AskError::Rejected(rejected))));
            }
        };
        let gate = Arc::clone(&self.gate);
        let result = errand(
            ask,
            permit,
            gate,
            self.role.address(ctx),
            call_timeout,
            |_| (),
        );
        outbox.deliver();
        Box::pin(result)
    }
}

/// Makes an ask that was admitted, and tells `note` the outcome before it is settled.
pub(super) fn errand<M>(
    mut ask: Ask<M>,
    permit: Permit,
    gate: Arc<Gate>,
    breaker: Addr<BreakerActor>,
    call_timeout: Duration,
    note: impl FnOnce(Outcome) + 'static,
) -> impl Future<Output = Result<M::Result, AskError>> + 'static
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    let errand = Errand {
        held: gate.hold(permit),
        gate,
        breaker,
        watch: Stopwatch::start(),
    };
    // Made here, so that the time counts from admission; awaited in a task of its own, so that
    // neither this mailbox nor a restart of this actor is bound to the target.
    // A closed target drops the message, whose destructor is the user's: it may panic.
    let sent = caught(|| ask.message.take().map(|message| ask.target.send(message)));
    let sent = sent.ok().flatten();
    let reply = sent.map(|request| tokio::time::timeout(call_timeout, request));
    async move {
        let reply = match reply {
            Some(reply) => reply.await.ok(),
            None => Some(Err(MailboxError::Closed)),
        };
        errand.finish(reply, ask.classify, call_timeout, note).await
    }
}

/// A call that the breaker makes itself.
struct Errand {
    held: Held,
    gate: Arc<Gate>,
    breaker: Addr<BreakerActor>,
    watch: Stopwatch,
}

impl Errand {
    /// Settles the call, then passes the reply on; `None` where it did not come in time.
    async fn finish<R>(
        mut self,
        reply: Option<Result<R, MailboxError>>,
        mut classify: Quiet<Box<dyn Classify<R> + Send>>,
        call_timeout: Duration,
        note: impl FnOnce(Outcome),
    ) -> Result<R, AskError> {
        let (result, outcome) = match reply {
            Some(Ok(reply)) => {
                let outcome = classify.get().map_or(Outcome::Failure, |classify| {
                    judge(|| &self.gate, &**classify, &reply)
                });
                (Ok(reply), outcome)
            }
            Some(Err(MailboxError::Closed | MailboxError::Timeout)) => {
                (Err(AskError::Closed), Outcome::Failure)
            }
            None => (Err(AskError::Timeout(call_timeout)), Outcome::Failure),
        };
        if let Err(cause) = caught(|| drop(classify.take())) {
            report::classifier_panicked(self.gate.name(), &cause);
        }
        note(outcome);
        if let Some(permit) = self.held.take() {
            let took = match result {
                Err(AskError::Timeout(_)) => Took::TooLong,
                _ => Took::Usual,
            };
            self.gate.meter().measure(|| self.watch.took());
            settle(&self.breaker, &self.gate, permit, outcome, took).await;
        }
        result
    }
}

impl Handler<Sampled> for BreakerActor {
    type Result = ();

    fn handle(&mut self, _: Sampled, ctx: &mut Context<Self>) {
        self.gate.end_sampling();
        // As by a timer, which a member that was woken too late for one never had.
        let ((), outbox) = self.step(ctx, Circuit::advance);
        outbox.deliver();
    }
}

impl Handler<Collect> for BreakerActor {
    type Result = ();

    fn handle(&mut self, _: Collect, ctx: &mut Context<Self>) {
        let ((), outbox) = self.step(ctx, |_, _| ());
        outbox.deliver();
    }
}

impl Handler<GetSnapshot> for BreakerActor {
    type Result = Told<Snapshot>;

    fn handle(&mut self, _: GetSnapshot, ctx: &mut Context<Self>) -> Self::Result {
        let (mut circuit, outbox) = self.step(ctx, |circuit, now| circuit.snapshot(now));
        let unsent = self.gate.unsent();
        let calls = &mut circuit.calls;
        calls.rejected = calls.rejected.saturating_add(unsent.rejected);
        calls.late = calls.late.saturating_add(unsent.late);
        calls.ignored = calls.ignored.saturating_add(unsent.ignored);
        let (subscribers, missed_events) = self.subscribers.as_ref().map_or((0, 0), |all| {
            let all = all.lock().unwrap_or_else(PoisonError::into_inner);
            (all.len(), all.missed())
        });
        let snapshot = Snapshot {
            sharing: self.circuit.sharing_status(),
            breaker: Arc::clone(self.gate.name()),
            circuit,
            config: self.circuit.config().clone(),
            simulated_rejections: unsent.simulated,
            subscribers,
            missed_events,
            restarts: self.gate.restarts(),
            held: self.waiting(),
            held_counts: self
                .holding
                .as_ref()
                .map(|all| all.counts())
                .unwrap_or_default(),
        };
        Told::new(snapshot, outbox)
    }
}

impl Handler<Inspect> for BreakerActor {
    type Result = Told<circuit::Snapshot>;

    fn handle(&mut self, _: Inspect, ctx: &mut Context<Self>) -> Self::Result {
        self.answer(ctx, |circuit, now| circuit.snapshot(now))
    }
}

impl Handler<GetRecord> for BreakerActor {
    type Result = Told<(BreakerConfig, Record)>;

    fn handle(&mut self, _: GetRecord, ctx: &mut Context<Self>) -> Self::Result {
        self.answer(ctx, |circuit, _| {
            (circuit.config().clone(), circuit.record().clone())
        })
    }
}

impl Handler<ForceOpen> for BreakerActor {
    type Result = Told<Result<(), ConfigError>>;

    fn handle(&mut self, order: ForceOpen, ctx: &mut Context<Self>) -> Self::Result {
        let ForceOpen { reason, ttl } = order;
        let told = self.answer(ctx, |circuit, now| {
            circuit.force_open(ttl, Arc::clone(&reason), now)
        });
        self.ordered_if_ok(told, Order::new("force open").given(ttl, reason))
    }
}

impl Handler<ForceClosed> for BreakerActor {
    type Result = Told<Result<(), ConfigError>>;

    fn handle(&mut self, order: ForceClosed, ctx: &mut Context<Self>) -> Self::Result {
        let ForceClosed { reason, ttl } = order;
        let told = self.answer(ctx, |circuit, now| {
            circuit.force_closed(ttl, Arc::clone(&reason), now)
        });
        self.ordered_if_ok(told, Order::new("force closed").given(ttl, reason))
    }
}

impl Handler<Release> for BreakerActor {
    type Result = Told<()>;

    fn handle(&mut self, _: Release, ctx: &mut Context<Self>) -> Self::Result {
        let told = self.answer(ctx, Circuit::release);
        self.ordered(told, Order::new("release"))
    }
}

impl Handler<Reset> for BreakerActor {
    type Result = Told<()>;

    fn handle(&mut self, _: Reset, ctx: &mut Context<Self>) -> Self::Result {
        let told = self.answer(ctx, Circuit::reset);
        self.ordered(told, Order::new("reset"))
    }
}

impl Handler<Reconfigure> for BreakerActor {
    type Result = Told<Result<(), ConfigError>>;

    fn handle(&mut self, order: Reconfigure, ctx: &mut Context<Self>) -> Self::Result {
        let Reconfigure { config, of_family } = order;
        let own = of_family.is_none();
        if of_family.is_some_and(|before| !self.follows_family(&before)) {
            return Told::already(Ok(()));
        }
        let gate = Arc::clone(&self.gate);
        // Both at once: an order that is lost changes neither.
        let told = self.answer(ctx, |circuit, now| {
            circuit.reconfigure(config.clone(), now);
            gate.set_config(config);
            Ok(())
        });
        self.role.note_settings(own);
        self.ordered(told, Order::new("reconfigure"))
    }
}

impl Handler<Subscribe> for BreakerActor {
    type Result = Told<()>;

    fn handle(&mut self, message: Subscribe, ctx: &mut Context<Self>) -> Told<()> {
        let present = self.present(ctx);
        self.subscribers
            .get_or_insert_default()
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add_actor(message.subscriber, Some(present));
        Told::already(())
    }
}

impl Handler<Follow> for BreakerActor {
    type Result = ();

    fn handle(&mut self, message: Follow, ctx: &mut Context<Self>) {
        let present = self.present(ctx);
        self.subscribers
            .get_or_insert_default()
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add_stream(message.0, present);
    }
}
