//! Those who are told: actors, held weakly, and streams.
//! Each has a [feed](super::feed) of its own, so none of them can be felt by another.

use std::fmt;
use std::future::poll_fn;

use actix::{Message, Recipient, WeakRecipient};

use super::feed::{FeedReader, feed};
use super::{FeedSender, StateChanged};

/// What subscribers can be told.
pub(crate) trait Event: Message<Result = ()> + Clone + Send + 'static {}

impl<E: Message<Result = ()> + Clone + Send + 'static> Event for E {}

/// The subscribers of one breaker to events of one kind.
pub(crate) struct Subscribers<E: Event = StateChanged> {
    actors: Vec<(WeakRecipient<E>, FeedSender<E>)>,
    streams: Vec<FeedSender<E>>,
    missed: u64,
}

impl<E: Event> Default for Subscribers<E> {
    fn default() -> Self {
        Self {
            actors: Vec::new(),
            streams: Vec::new(),
            missed: 0,
        }
    }
}

impl<E: Event> Subscribers<E> {
    /// Adds an actor, which gets `present` first, if there is such a thing. One that is subscribed
    /// already gets nothing new; tells whether it was added.
    pub(crate) fn add_actor(
        &mut self,
        actor: WeakRecipient<E>,
        present: impl Into<Option<E>>,
    ) -> bool {
        let Some(recipient) = alive(&actor) else {
            return false;
        };
        self.prune();
        let known = self
            .actors
            .iter()
            .any(|(known, _)| alive(known).is_some_and(|known| known == recipient));
        if known {
            return false;
        }
        let (sender, events) = feed();
        actix::spawn(deliver(actor.clone(), events));
        if let Some(present) = present.into() {
            // The feed is new and has a reader, so nothing can be lost yet.
            sender.send(present);
        }
        self.actors.push((actor, sender));
        true
    }

    /// Adds a stream, which gets `present` first.
    pub(crate) fn add_stream(&mut self, sender: FeedSender<E>, present: E) {
        if sender.send(present).is_some() {
            // A breaker that never changes would else keep every stream there ever was.
            self.prune();
            self.streams.push(sender);
        }
    }

    /// Tells everyone; those who are gone are removed.
    pub(crate) fn tell(&mut self, event: &E) {
        self.prune();
        let actors = self.actors.iter().map(|(_, sender)| sender);
        for sender in actors.chain(&self.streams) {
            if sender.send(event.clone()) == Some(true) {
                self.missed = self.missed.saturating_add(1);
            }
        }
    }

    fn prune(&mut self) {
        self.actors
            .retain(|(actor, sender)| alive(actor).is_some() && sender.is_read());
        self.streams.retain(FeedSender::is_read);
    }

    /// How many there are, without those that are gone.
    pub(crate) fn living(&mut self) -> usize {
        self.prune();
        self.len()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.actors.len().saturating_add(self.streams.len())
    }

    /// How many events they missed, all together.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }
}

impl<E: Event> fmt::Debug for Subscribers<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribers")
            .field("actors", &self.actors.len())
            .field("streams", &self.streams.len())
            .field("missed", &self.missed)
            .finish()
    }
}

/// The recipient, if its actor lives: an upgrade alone gives dead actors too.
pub(crate) fn alive<E: Event>(actor: &WeakRecipient<E>) -> Option<Recipient<E>> {
    actor.upgrade().filter(Recipient::connected)
}

/// Passes events on to an actor, one at a time: the next leaves when the last was handled. A sender
/// made for each message is never told that a mailbox is full, so waiting is what bounds it.
async fn deliver<E: Event>(actor: WeakRecipient<E>, events: FeedReader<E>) {
    while let Some(item) = poll_fn(|cx| events.poll_next(cx)).await {
        let Ok(event) = item else {
            // The actor sees the gap in `seq`.
            continue;
        };
        let Some(handled) = alive(&actor).map(|actor| actor.send(event)) else {
            return;
        };
        if handled.await.is_err() && alive(&actor).is_none() {
            return;
        }
    }
}
