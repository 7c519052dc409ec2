//! Every message a [`BreakerActor`](crate::BreakerActor) understands, so that an admin actor needs only
//! its address. What each does is decided in `actor.rs` and the circuit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient, WeakRecipient};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::actor::{HeldCounts, MemberMailbox, Parcel};
use crate::caught::Quiet;
use crate::circuit::{self, Permit, Record, Ticket};
#[cfg(doc)]
use crate::config::BreakerConfigBuilder;
use crate::config::{BreakerConfig, ConfigError};
use crate::error::{AskError, Rejected};
use crate::event::{FeedSender, HeldDropped, StateChanged};
use crate::gate::{End, Held, OnItsWay};
use crate::outcome::{ByReply, Classify, Reply};
use crate::store::{Sharing, View};

/// An ask that the breaker makes itself, in every state: it admits it, sends it to the target from a
/// task of its own, settles it and passes the reply on.
///
/// The handle's [`ask`](crate::Breaker::ask) does the same for probes and is quicker for all others;
/// this is for those who have only the breaker's address.
///
/// # Cancel safety
///
/// A request that is dropped before the breaker handles it sends nothing. Later, the breaker still
/// waits for the reply and counts it.
///
/// # Examples
///
/// ```
/// use actix::prelude::*;
/// use actix_circuit_breaker::{BreakerConfig, Breakers, message::Ask};
///
/// # #[derive(Message)]
/// # #[rtype(result = "Result<u64, std::io::Error>")]
/// # struct Quote;
/// # struct Stock;
/// # impl Actor for Stock { type Context = Context<Self>; }
/// # impl Handler<Quote> for Stock {
/// #     type Result = Result<u64, std::io::Error>;
/// #     fn handle(&mut self, _: Quote, _: &mut Context<Self>) -> Self::Result { Ok(7) }
/// # }
/// # #[actix::main]
/// # async fn main() {
/// let stock = Stock.start();
/// let breaker = Breakers::start().create("stock", BreakerConfig::default()).unwrap();
/// let address = breaker.addr().clone();
///
/// let reply = address.send(Ask::new(stock.recipient(), Quote)).await.unwrap();
/// assert_eq!(reply.unwrap().unwrap(), 7);
/// # }
/// ```
pub struct Ask<M>
where
    M: Message + Send,
    M::Result: Send,
{
    pub(crate) target: Recipient<M>,
    // The user's: an ask that is rejected or cancelled is dropped in the breaker's mailbox.
    pub(crate) message: Quiet<M>,
    pub(crate) classify: Quiet<Box<dyn Classify<M::Result> + Send>>,
    pub(crate) call_timeout: Option<Duration>,
    /// Bounds how many of these wait in the mailbox, where a handle sent it.
    pub(crate) question: Option<OnItsWay>,
}

impl<M> Ask<M>
where
    M: Message + Send,
    M::Result: Send,
{
    /// Asks `target`; the reply's own type says its outcome.
    pub fn new(target: Recipient<M>, message: M) -> Self
    where
        M::Result: Reply,
    {
        Self::with(target, message, ByReply)
    }

    /// Asks `target`; `classify` says the outcome of the reply.
    pub fn with(
        target: Recipient<M>,
        message: M,
        classify: impl Classify<M::Result> + Send + 'static,
    ) -> Self {
        Self {
            target,
            message: Quiet::new(message),
            classify: Quiet::new(Box::new(classify)),
            call_timeout: None,
            question: None,
        }
    }

    /// Sets how long the target may take. Default: the breaker's call timeout.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = Some(timeout);
        self
    }
}

impl<M> Message for Ask<M>
where
    M: Message + Send,
    M::Result: Send,
{
    type Result = Result<M::Result, AskError>;
}

impl<M> fmt::Debug for Ask<M>
where
    M: Message + Send,
    M::Result: Send,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}

/// A breaker as it stands: the circuit and what is around it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// The breaker's name.
    pub breaker: Arc<str>,
    /// The circuit; its fields can be read through this struct.
    #[serde(flatten)]
    pub circuit: circuit::Snapshot,
    /// The settings in force.
    pub config: BreakerConfig,
    /// How many calls were refused and went to their targets all the same, since not all that is refused is
    /// [enforced](BreakerConfigBuilder::enforcement) (R37). They are not among the rejected.
    pub simulated_rejections: u64,
    /// How many actors and streams are told of changes.
    pub subscribers: usize,
    /// How many events they missed, all together, because they were too slow.
    pub missed_events: u64,
    /// How often the breaker's own actor was restarted.
    pub restarts: u64,
    /// How many messages wait inside the breaker now.
    pub held: usize,
    /// What became of the messages that were to wait.
    pub held_counts: HeldCounts,
    /// How the record is shared; `None` where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
}

impl std::ops::Deref for Snapshot {
    type Target = circuit::Snapshot;

    fn deref(&self) -> &circuit::Snapshot {
        &self.circuit
    }
}

/// Asks for a [`Snapshot`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Message)]
#[rtype(result = "Snapshot")]
#[expect(clippy::exhaustive_structs, reason = "a question without parameters")]
pub struct GetSnapshot;

/// Orders the breaker to reject all calls, until [`Release`] or for a time (R23).
///
/// The order outranks everything the circuit would decide. Repeated, it replaces ttl and reason. When
/// its time is over the breaker is open and due: the next call is a probe.
///
/// # Errors
///
/// The answer is a [`ConfigError`] that names `ttl` when that is zero or longer than 2^53 - 1 µs.
#[derive(Debug, Clone, PartialEq, Eq, Message)]
#[rtype(result = "Result<(), ConfigError>")]
pub struct ForceOpen {
    pub(crate) reason: Arc<str>,
    pub(crate) ttl: Option<Duration>,
}

impl ForceOpen {
    /// Makes the order; the reason appears in the event, the snapshot and the log.
    pub fn new(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            ttl: None,
        }
    }

    /// Lets the order end by itself. Default: it stands until it is released. At least 1 µs.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// Orders the breaker to let all calls pass, whatever their outcomes, until [`Release`] or for a time
/// (R23). When its time is over the breaker is closed and remembers nothing.
///
/// # Errors
///
/// The answer is a [`ConfigError`] that names `ttl` when that is zero or longer than 2^53 - 1 µs.
#[derive(Debug, Clone, PartialEq, Eq, Message)]
#[rtype(result = "Result<(), ConfigError>")]
pub struct ForceClosed {
    pub(crate) reason: Arc<str>,
    pub(crate) ttl: Option<Duration>,
}

impl ForceClosed {
    /// Makes the order; the reason appears in the event, the snapshot and the log.
    pub fn new(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
            ttl: None,
        }
    }

    /// Lets the order end by itself. Default: it stands until it is released. At least 1 µs.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// Lifts a [`ForceOpen`] or [`ForceClosed`]: the breaker is closed and remembers nothing. Without such
/// an order it does nothing (R23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Message)]
#[rtype(result = "()")]
#[expect(clippy::exhaustive_structs, reason = "an order without parameters")]
pub struct Release;

/// Makes the breaker forget everything but an operator's order: it is closed and empty, and outcomes of
/// calls that are under way come too late to count (R24).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Message)]
#[rtype(result = "()")]
#[expect(clippy::exhaustive_structs, reason = "an order without parameters")]
pub struct Reset;

/// Gives the breaker other settings, without losing its state (R35).
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "Result<(), ConfigError>")]
pub struct Reconfigure {
    pub(crate) config: BreakerConfig,
    /// The settings that a family had before, if it is the family that gives others.
    pub(crate) of_family: Option<BreakerConfig>,
}

impl Reconfigure {
    /// Makes the order.
    pub fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            of_family: None,
        }
    }

    /// Makes the order of a family that had other settings before.
    pub(crate) fn of_family(config: BreakerConfig, before: BreakerConfig) -> Self {
        Self {
            config,
            of_family: Some(before),
        }
    }
}

/// Tells an actor of every change of state, the present state first (R25).
///
/// The actor is held weakly, and told of one event at a time: the next leaves when it has handled the
/// last. One that is 64 events behind misses some, which it sees as a gap in
/// [`seq`](StateChanged::seq), and always gets the newest. The same actor is told once, however often
/// it subscribes.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Subscribe {
    pub(crate) subscriber: WeakRecipient<StateChanged>,
}

impl Subscribe {
    /// Makes the request, of an `Addr`, a `WeakAddr` or a `Recipient`.
    pub fn new(subscriber: impl Into<WeakRecipient<StateChanged>>) -> Self {
        Self {
            subscriber: subscriber.into(),
        }
    }
}

impl fmt::Debug for Subscribe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribe").finish_non_exhaustive()
    }
}

/// Tells an actor of every message that was to wait in the breaker and was not sent.
///
/// The actor is held weakly, and told of one drop at a time: the next leaves when it has handled the
/// last. One that is 64 drops behind misses some, which it sees as a gap in
/// [`seq`](HeldDropped::seq). The same actor is told once, however often it subscribes.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SubscribeDrops {
    pub(crate) subscriber: WeakRecipient<HeldDropped>,
}

impl SubscribeDrops {
    /// Makes the request, of an `Addr`, a `WeakAddr` or a `Recipient`.
    pub fn new(subscriber: impl Into<WeakRecipient<HeldDropped>>) -> Self {
        Self {
            subscriber: subscriber.into(),
        }
    }
}

impl fmt::Debug for SubscribeDrops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscribeDrops").finish_non_exhaustive()
    }
}

// Between the handles and the actor.

/// An order that has no reason of its own, with who gave it and why.
#[cfg(feature = "admin")]
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Noted {
    pub(crate) order: NotedOrder,
    pub(crate) note: Arc<str>,
}

#[cfg(feature = "admin")]
#[derive(Debug)]
pub(crate) enum NotedOrder {
    Release,
    Reset,
    Reconfigure(BreakerConfig),
}

/// Puts a message into the actor's care.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Bring {
    pub(crate) parcel: Box<dyn Parcel>,
    /// Bounds how many of these wait in the mailbox.
    pub(crate) question: OnItsWay,
}

/// A call ended in a way that the record wants to know.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Settle {
    pub(crate) permit: Permit,
    pub(crate) end: End,
    /// Told once the outcome is decided and published.
    pub(crate) done: Option<oneshot::Sender<()>>,
    /// Bounds how many of these wait in the mailbox.
    pub(crate) _owed: Option<OnItsWay>,
}

/// What the store that a breaker shares its record through answers and tells.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) enum FromStore {
    /// What became of a request; `None`: it is not known.
    Answered {
        ticket: Ticket,
        view: Option<Box<View>>,
    },
    /// Another process changed the record.
    Heard(Box<View>),
    /// The store is there, and its time is so many microseconds ahead.
    Joined { ahead: i64 },
    /// It is not there any more.
    Cut,
    /// Changes may have been missed.
    Refresh,
}

/// Asks for leave to make one call outside the actor.
#[derive(Debug, Message)]
#[rtype(result = "Result<Grant, Rejected>")]
pub(crate) struct Acquire {
    pub(crate) call_timeout: Duration,
    /// Bounds how many of these wait in the mailbox.
    pub(crate) _question: OnItsWay,
}

/// Leave to make one call outside the actor.
#[derive(Debug)]
pub(crate) enum Grant {
    /// As a probe.
    Probe(Held),
    /// The circuit is closed, and the epoch tells which closed window counts it; or it refused the call, which
    /// none counts.
    Closed(Permit),
}

/// There are successes on the stripes that could trip, or settlements that found the mailbox full.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Sampled;

/// There are letters that should not wait for the next message.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Collect;

/// Asks for the circuit as it stands.
#[derive(Debug, Message)]
#[rtype(result = "circuit::Snapshot")]
pub(crate) struct Inspect {
    /// Bounds how many of these wait in the mailbox.
    pub(crate) _question: OnItsWay,
}

/// Asks for what there is to write down.
#[derive(Message)]
#[rtype(result = "(BreakerConfig, Record)")]
pub(crate) struct GetRecord;

/// Has the head of a family read the mailbox of one more member.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Serve(pub(crate) MemberMailbox);

/// Has the head of a family tell an actor of what happens to all members.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum FollowFamily {
    Changes(WeakRecipient<StateChanged>),
    Drops(WeakRecipient<HeldDropped>),
}

/// Adds a stream to those that are told.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Follow(pub(crate) FeedSender);
