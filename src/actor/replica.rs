//! The actor of a breaker whose record is shared: sends what its circuit asks the store, brings the answers
//! back, and has those wait who need them. What is asked and what answers mean: `circuit/replica.rs`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Context, Handler, Message};
use tokio::sync::oneshot;

use super::BreakerActor;
use super::link::Link;
use super::outbox::Told;
use crate::breaker::can_wake;
use crate::caught::quietly;
use crate::circuit::{Request, Ticket};
use crate::clock::Timestamp;
use crate::gate::Held;
use crate::message::{Collect, FromStore};
use crate::store::View;

/// What the actor has to do with the store.
pub(super) struct Linked {
    link: Arc<Link>,
    /// Those who want a probe, or leave to pass, which the store has to give.
    parked: VecDeque<Parked>,
    /// Those who wait until an outcome is decided.
    receipts: Vec<(Ticket, oneshot::Sender<()>)>,
    /// Whether it was told that the record cannot be read, since it could.
    told_corrupt: bool,
}

/// Somebody who waits for the store's leave.
struct Parked {
    call_timeout: Duration,
    go: Box<Go>,
}

/// What is done once there is an answer.
type Go = dyn FnOnce(&mut BreakerActor, &mut Context<BreakerActor>) + Send;

impl Linked {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            parked: VecDeque::new(),
            receipts: Vec::new(),
            told_corrupt: false,
        }
    }
}

impl fmt::Debug for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linked")
            .field("parked", &self.parked.len())
            .field("receipts", &self.receipts.len())
            .finish_non_exhaustive()
    }
}

impl BreakerActor {
    /// Begins to share its record, with a link that may be there already.
    pub(super) fn join_if_there(&mut self, now: Timestamp) {
        if let Some(linked) = &self.linked
            && let Some(ahead) = linked.link.is_joined()
        {
            self.circuit.join(ahead, now);
        }
    }

    /// Whether the next call has to wait for the store's leave.
    pub(super) fn needs_leave(&self) -> bool {
        self.linked.is_some() && self.circuit.needs_leave(self.gate.clock().now())
    }

    /// Has somebody wait until the store gives leave, or says that there is none.
    pub(super) fn park(
        &mut self,
        call_timeout: Duration,
        ctx: &mut Context<Self>,
        go: impl FnOnce(&mut Self, &mut Context<Self>) + Send + 'static,
    ) {
        if let Some(linked) = &mut self.linked {
            linked.parked.push_back(Parked {
                call_timeout,
                go: Box::new(go),
            });
        }
        let ((), outbox) = self.step(ctx, |_, _| ());
        outbox.deliver();
    }

    /// Asks for leave, if somebody waits for it.
    #[inline]
    pub(super) fn ask_for_leave(&mut self, now: Timestamp) {
        if self.linked.is_some() {
            self.ask_for_leave_of_store(now);
        }
    }

    fn ask_for_leave_of_store(&mut self, now: Timestamp) {
        let parked = self.linked.as_ref().map_or(0, |linked| linked.parked.len());
        let held = self.holding.as_ref().map_or(0, |all| all.want_leave());
        let waiting = parked.saturating_add(held);
        // Those of a breaker that is half-open go one after another.
        let most = if self.circuit.asks_first() {
            waiting
        } else {
            waiting.min(1)
        };
        let longest = self
            .linked
            .iter()
            .flat_map(|linked| &linked.parked)
            .map(|parked| parked.call_timeout);
        let call_timeout = longest
            .max()
            .unwrap_or_else(|| self.circuit.config().call_timeout());
        while self.circuit.leaves_asked_for() < most && self.circuit.needs_leave(now) {
            self.circuit.ask_for_leave(call_timeout, now);
        }
    }

    /// Ends a step that is published: tells those who waited for what is decided now, and asks the store what
    /// is not.
    #[inline]
    pub(super) fn turn_to_store(&mut self, ctx: &Context<Self>) {
        if self.linked.is_some() {
            self.send_requests(ctx);
        }
    }

    fn send_requests(&mut self, ctx: &Context<Self>) {
        let Some(linked) = &mut self.linked else {
            return;
        };
        let circuit = &self.circuit;
        for (_, done) in linked
            .receipts
            .extract_if(.., |(ticket, _)| !circuit.awaits(*ticket))
        {
            quietly(|| _ = done.send(()));
        }
        while let Some(Request { ticket, step }) = self.circuit.pop_request() {
            let config = self.circuit.config();
            let view = linked.link.step(self.gate.name(), config, step);
            let breaker = self.role.address(ctx);
            // In a task of its own, so that the answer also reaches an actor that was restarted meanwhile.
            actix::spawn(async move {
                let view = view.await.map(Box::new);
                let heard = breaker.send(FromStore::Answered { ticket, view }).await;
                // A message that is lost in a restart (R29) must not be waited for without end.
                if heard.is_err() {
                    breaker.do_send(FromStore::Answered { ticket, view: None });
                }
            });
        }
    }

    /// Has this actor told at once of a probe that is dropped, if others than its own callers wait for the slot.
    pub(super) fn told_of(&self, probe: Held, ctx: &Context<Self>) -> Held {
        if self.linked.is_none() {
            return probe;
        }
        let breaker = self.role.address(ctx);
        probe.telling(move || {
            // A thread whose locals are being destroyed can wake nobody.
            if can_wake() {
                breaker.do_send(Collect);
            }
        })
    }

    /// Keeps a receipt back until the store has decided what the step asked for since `before`, if it has.
    pub(super) fn keep_receipt(
        &mut self,
        before: Option<Ticket>,
        done: oneshot::Sender<()>,
    ) -> Option<oneshot::Sender<()>> {
        let newest = self.circuit.newest_ticket();
        match (newest, &mut self.linked) {
            (Some(ticket), Some(linked)) if newest != before && self.circuit.awaits(ticket) => {
                linked.receipts.push((ticket, done));
                None
            }
            _ => Some(done),
        }
    }

    /// Lets those go on who waited for leave; what nobody wants goes back.
    fn let_go(&mut self, ctx: &mut Context<Self>) {
        while !self.circuit.needs_leave(self.gate.clock().now())
            && let Some(linked) = &mut self.linked
            && let Some(Parked { go, .. }) = linked.parked.pop_front()
        {
            go(self, ctx);
        }
        let waiting = self
            .linked
            .as_ref()
            .is_some_and(|linked| !linked.parked.is_empty());
        let ((), outbox) = self.step(ctx, |circuit, now| {
            if !waiting {
                circuit.return_leaves(now);
            }
        });
        outbox.deliver();
    }

    /// Reports a record that cannot be read, once.
    fn look_at(&mut self, view: &View) {
        if let Some(linked) = &mut self.linked {
            if view.corrupt && !linked.told_corrupt {
                linked.link.report_corrupt(self.gate.name());
            }
            linked.told_corrupt = view.corrupt;
        }
    }
}

impl Handler<FromStore> for BreakerActor {
    type Result = ();

    fn handle(&mut self, message: FromStore, ctx: &mut Context<Self>) {
        if let FromStore::Answered {
            view: Some(view), ..
        }
        | FromStore::Heard(view) = &message
        {
            self.look_at(view);
        }
        let ((), outbox) = self.step(ctx, |circuit, now| match message {
            FromStore::Answered { ticket, view } => {
                circuit.answer(ticket, view.map(|view| *view), now);
            }
            FromStore::Heard(view) => circuit.hear(*view, now),
            FromStore::Joined { ahead } => circuit.join(ahead, now),
            FromStore::Cut => circuit.cut(now),
            FromStore::Refresh => circuit.refresh(now),
        });
        outbox.deliver();
        self.let_go(ctx);
    }
}

/// An answer that is there, or comes once the store has said its word.
#[expect(
    unnameable_types,
    reason = "the associated type of a public actor's handlers has to be `pub`"
)]
#[derive(Debug)]
pub enum Answered<R> {
    Now(Told<R>),
    Later(oneshot::Receiver<R>),
}

impl<M> MessageResponse<BreakerActor, M> for Answered<M::Result>
where
    M: Message,
    M::Result: 'static,
{
    fn handle(self, ctx: &mut Context<BreakerActor>, asker: Option<OneshotSender<M::Result>>) {
        match self {
            Self::Now(told) => MessageResponse::<BreakerActor, M>::handle(told, ctx, asker),
            Self::Later(answer) => {
                if let Some(asker) = asker {
                    actix::spawn(async move {
                        if let Ok(answer) = answer.await {
                            quietly(|| drop(asker.send(answer)));
                        }
                    });
                }
            }
        }
    }
}
