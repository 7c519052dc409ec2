//! What is told of a step: to subscribers and to the log, after the answer has left (R27).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Context, Message};

use super::BreakerActor;
use super::holding::Drops;
use super::members::Listeners;
use crate::caught::quietly;
use crate::circuit::Panicked;
use crate::event::{StateChanged, Subscribers};
use crate::gate::Gate;
use crate::report;

/// What is to be told of a step, after it was answered. Most steps have nothing to tell.
#[derive(Debug, Default)]
#[must_use = "events have to be told"]
pub(super) struct Outbox(Option<Box<News>>);

/// Something to be told.
#[derive(Debug)]
pub(super) struct News {
    gate: Arc<Gate>,
    subscribers: Option<Arc<Mutex<Subscribers>>>,
    /// Those who listen to all breakers of the family.
    family: Option<Arc<Listeners>>,
    pub(super) events: Vec<StateChanged>,
    pub(super) panicked: Vec<Panicked>,
    pub(super) lost_probes: u64,
    pub(super) order: Option<Order>,
    pub(super) drops: Option<Drops>,
}

/// An operator's order, for the log.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) name: &'static str,
    pub(super) ttl: Option<Duration>,
    pub(super) reason: Option<Arc<str>>,
}

impl Order {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            ttl: None,
            reason: None,
        }
    }

    pub(super) fn given(self, ttl: Option<Duration>, reason: Arc<str>) -> Self {
        Self {
            ttl,
            reason: Some(reason),
            ..self
        }
    }
}

impl Outbox {
    /// What is in it, to be added to.
    pub(super) fn news(&mut self, actor: &BreakerActor) -> &mut News {
        self.0.get_or_insert_with(|| {
            Box::new(News {
                gate: Arc::clone(&actor.gate),
                subscribers: actor.subscribers.clone(),
                family: actor.listeners().cloned(),
                events: Vec::new(),
                panicked: Vec::new(),
                lost_probes: 0,
                order: None,
                drops: None,
            })
        })
    }

    /// Tells subscribers and the log.
    #[inline]
    pub(super) fn deliver(self) {
        if let Some(news) = self.0 {
            news.deliver();
        }
    }
}

impl News {
    fn deliver(self) {
        let name = self.gate.name();
        if let Some(Order {
            name: order,
            ttl,
            reason,
        }) = self.order
        {
            report::order(name, order, ttl, reason.as_deref());
        }
        for event in &self.events {
            report::transition(event);
            let own = self.subscribers.as_deref();
            let family = self.family.as_ref().map(|all| &all.changes);
            for subscribers in own.into_iter().chain(family) {
                let mut subscribers = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
                subscribers.tell(event);
            }
        }
        for code in self.panicked {
            report::decision_panicked(name, code);
        }
        if self.lost_probes > 0 {
            report::lost_probes(name, self.lost_probes);
        }
        if let Some(drops) = self.drops {
            drops.deliver(self.family.as_deref());
        }
    }
}

/// An answer that leaves before the change is told.
#[expect(
    unnameable_types,
    reason = "the associated type of a public actor's handlers has to be `pub`"
)]
#[derive(Debug)]
pub struct Told<R> {
    pub(super) answer: R,
    pub(super) outbox: Outbox,
}

impl<R> Told<R> {
    pub(super) fn new(answer: R, outbox: Outbox) -> Self {
        Self { answer, outbox }
    }

    /// Answers what was told already.
    pub(super) fn already(answer: R) -> Self {
        Self::new(answer, Outbox::default())
    }
}

impl<M> MessageResponse<BreakerActor, M> for Told<M::Result>
where
    M: Message,
{
    fn handle(self, _: &mut Context<BreakerActor>, asker: Option<OneshotSender<M::Result>>) {
        if let Some(asker) = asker {
            // An asker that went away gets nothing, and one whose waker panics ends nobody else.
            quietly(|| drop(asker.send(self.answer)));
        }
        self.outbox.deliver();
    }
}
