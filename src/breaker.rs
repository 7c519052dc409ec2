//! The handle: what workers hold, and how they ask through it.
//! What the handle finds without a message is in `gate.rs`; what needs one is decided by `actor.rs`.

mod ask;
mod call;
mod guard;
mod hold;
mod mailbox;
mod nested;
mod permit;
mod settle;
mod target;
mod tell;
mod timer;
mod under_way;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use actix::dev::Request;
use actix::{Addr, Message, Recipient, WeakRecipient};
use tokio::sync::watch;

pub use ask::AskFuture;
pub use call::{Call, IntoCall};
pub(crate) use call::{GuardedFuture, Handle};
pub use guard::{Classifier, Guarded, GuardedAsk};
pub use hold::HeldAsk;
pub(crate) use mailbox::WeakBreaker;
pub(crate) use permit::can_wake;
pub use permit::{AcquireFuture, Permit};
pub use settle::Settled;
pub(crate) use settle::{Receipt, judge, settle};
pub use target::Target;
pub use tell::Tell;
pub(crate) use under_way::Stopwatch;
use under_way::{Tracked, UnderWay};

use mailbox::Mailbox;

use crate::actor::BreakerActor;
use crate::circuit::CircuitState;
use crate::config::BreakerConfig;
use crate::event::{HeldDropped, StateChanged, Transitions};
use crate::gate::{Admission, Gate};
use crate::message::{
    Follow, ForceClosed, ForceOpen, GetSnapshot, Reconfigure, Release, Reset, Subscribe,
    SubscribeDrops,
};
use crate::outcome::{ByReply, Outcome, Reply};
use crate::report;

/// A handle to one breaker: inject it where others are asked, and ask through it.
///
/// It is one pointer wide, `Clone + Send + Sync`, and outlives restarts of the actors around it and of
/// the breaker's own. [`Breakers::create`](crate::Breakers::create) makes breakers; one guards one
/// upstream: a database, a provider, a host.
///
/// # Which method
///
/// | to guard | use |
/// | --- | --- |
/// | an ask of an actor | [`ask`](Self::ask), or a [`Guarded`] made once by [`guard`](Self::guard) and injected |
/// | an ask that had better wait than be rejected | [`Guarded::send_or_hold`] |
/// | a message without a reply | [`tell`](Self::tell), [`tell_or_hold`](Self::tell_or_hold) |
/// | any other future of a `Result` | [`call`](Self::call), [`into_call`](Self::into_call) |
/// | something that is no future | [`acquire`](Self::acquire), and settle the [`Permit`] |
///
/// Each has a `_with` form to say for oneself what a reply amounts to; else `Err` is a failure and all
/// other replies are successes, see [`Reply`]. A call timeout, a closed mailbox and a panic of a
/// guarded call are failures too. What says nothing about the target is ignored: a caller that goes
/// away, a rejection by this same breaker from inside a guarded call.
///
/// # What is guaranteed
///
/// - **Serialised**: failures, probes and orders go through the breaker's mailbox. At most `max_probes`
///   probes run at once, failures are counted exactly, events come in order. Whoever gets the failure
///   that trips the breaker and asks again at once is rejected.
/// - **One message old**: a closed breaker is read without a message, so an ask from elsewhere may slip
///   through while the trip is in the mailbox.
/// - **Lossy**: events to a subscriber that is too slow, which sees the gap.
/// - A breaker whose actor is gone for good (its arbiter stopped, its restarts were used up, it was
///   removed) guards nothing: calls pass, with one warning in the log.
///
/// # Examples
///
/// ```
/// use actix::prelude::*;
/// use actix_circuit_breaker::{AskError, Breaker, BreakerConfig, Breakers};
///
/// #[derive(Message)]
/// #[rtype(result = "Result<u64, String>")]
/// struct Charge(u64);
///
/// struct Gateway;
/// impl Actor for Gateway {
///     type Context = Context<Self>;
/// }
/// impl Handler<Charge> for Gateway {
///     type Result = Result<u64, String>;
///     fn handle(&mut self, Charge(cents): Charge, _: &mut Context<Self>) -> Self::Result {
///         Ok(cents)
///     }
/// }
///
/// # #[actix::main]
/// # async fn main() {
/// let breakers = Breakers::start();
/// let breaker: Breaker = breakers.create("payments", BreakerConfig::default()).unwrap();
/// let gateway = Gateway.start();
///
/// match breaker.ask(&gateway, Charge(42)).await {
///     Ok(Ok(cents)) => assert_eq!(cents, 42),
///     Ok(Err(declined)) => panic!("the gateway failed: {declined}"),
///     Err(AskError::Rejected(rejected)) => panic!("try again in {:?}", rejected.retry_after()),
///     Err(error) => panic!("no reply: {error}"),
/// }
/// # }
/// ```
///
/// # In an actor
///
/// A worker gets its guard in the constructor. It answers with the ask's future, or goes on with its own
/// state by `into_actor`; a handler never waits, so the mailbox stays free.
///
/// ```
/// use actix::prelude::*;
/// use actix_circuit_breaker::{AskError, Guarded};
/// # #[derive(Message)]
/// # #[rtype(result = "Result<u64, String>")]
/// # struct Charge(u64);
///
/// struct Checkout {
///     payments: Guarded<Charge>,
///     put_off: Vec<u64>,
/// }
///
/// impl Actor for Checkout {
///     type Context = Context<Self>;
/// }
///
/// #[derive(Message)]
/// #[rtype(result = "bool")]
/// struct Order(u64);
///
/// impl Handler<Order> for Checkout {
///     type Result = ResponseActFuture<Self, bool>;
///
///     fn handle(&mut self, Order(cents): Order, _: &mut Context<Self>) -> Self::Result {
///         let charge = self.payments.send(Charge(cents)).into_actor(self);
///         Box::pin(charge.map(move |reply, checkout, _| match reply {
///             Ok(Ok(_receipt)) => true,
///             Ok(Err(_declined)) => false,
///             // Rejected, timed out, or the gateway is gone: not charged as far as we know.
///             Err(AskError::Rejected(_)) => {
///                 checkout.put_off.push(cents);
///                 false
///             }
///             Err(_) => false,
///         }))
///     }
/// }
/// ```
///
/// A future of one's own is spawned with the handle in it:
/// `ctx.spawn(self.breaker.clone().into_call(future).into_actor(self).map(|result, actor, ctx| ..))`.
#[derive(Clone)]
pub struct Breaker {
    inner: Arc<Inner>,
}

struct Inner {
    mailbox: Mailbox,
    gate: Arc<Gate>,
}

impl Breaker {
    pub(crate) fn new(address: Addr<BreakerActor>, gate: Arc<Gate>) -> Self {
        Self {
            inner: Arc::new(Inner {
                mailbox: Mailbox::Own(address),
                gate,
            }),
        }
    }

    #[inline]
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.inner.gate
    }

    /// Whether this is the only handle; nobody can make another one meanwhile.
    pub(crate) fn is_only_handle(&mut self) -> bool {
        Arc::get_mut(&mut self.inner).is_some()
    }

    /// Decides without a message, where that is possible.
    #[expect(
        clippy::inline_always,
        reason = "counted: inlined with `admit_restrained`, a closed call takes 69 instructions, not 90"
    )]
    #[inline(always)]
    pub(crate) fn admit(&self) -> Admission {
        let word = self.inner.gate.load();
        if word.passes() {
            Admission::Pass(word)
        } else if self.is_guarding() {
            self.inner.gate.admit_restrained(word)
        } else {
            self.warn_unguarded();
            Admission::Pass(word)
        }
    }

    /// Whether the actor is there, or will be back.
    #[inline]
    fn is_guarding(&self) -> bool {
        self.inner.mailbox.is_connected() && !self.inner.gate.is_retired()
    }

    #[cold]
    fn warn_unguarded(&self) {
        if self.inner.gate.warn_once() {
            report::unguarded(self.name());
        }
    }

    // Asking.

    /// Asks an actor, if the breaker lets it through; the reply's own type says its outcome.
    ///
    /// As with `target.send(msg)`, the message is sent now, not when the future is polled. The target
    /// is an [`Addr`] or a [`Recipient`]; the future is `Send + 'static` and works with `.await`,
    /// `into_actor` and `spawn`. The reply must come within the breaker's call timeout, which begins
    /// when the future is first found waiting. The target's mailbox capacity does not hold an ask
    /// back, as it does not hold `send` back.
    ///
    /// # Errors
    ///
    /// [`AskError::Rejected`](crate::AskError) when the breaker did not let it through,
    /// [`Timeout`](crate::AskError::Timeout), or [`Closed`](crate::AskError::Closed) when the target is
    /// gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future counts as no outcome. A probe runs on in the breaker's care, and its outcome
    /// counts, so that impatient callers do not keep a healthy target's breaker open; so does an ask that
    /// a [ramp-up](crate::BreakerConfigBuilder::ramp_up) admits.
    ///
    /// Never block an arbiter on an ask: the reply may need that very thread.
    pub fn ask<T, M>(&self, target: &T, message: M) -> AskFuture<T, M>
    where
        T: Target<M>,
        M: Message + Send + 'static,
        M::Result: Reply + Send,
    {
        AskFuture::new(self, target, message, ByReply, None)
    }

    /// Asks as [`ask`](Self::ask) does; `classify` says the outcome of the reply, whose type need not
    /// be a [`Reply`].
    ///
    /// A classifier that panics makes the ask a failure, and its caller still gets the reply.
    pub fn ask_with<T, M, C>(&self, target: &T, message: M, classify: C) -> AskFuture<T, M, C>
    where
        T: Target<M>,
        M: Message + Send + 'static,
        M::Result: Send,
        C: Fn(&M::Result) -> Outcome + Send + 'static,
    {
        AskFuture::new(self, target, message, classify, None)
    }

    /// Binds the breaker to one target: what a worker holds, made once and injected.
    pub fn guard<M>(&self, target: impl Into<Recipient<M>>) -> Guarded<M>
    where
        M: Message + Send + 'static,
        M::Result: Reply + Send,
    {
        Guarded::new(self.clone(), target.into(), ByReply)
    }

    /// Binds as [`guard`](Self::guard) does; `classify` says the outcome of every reply.
    pub fn guard_with<M, C>(&self, target: impl Into<Recipient<M>>, classify: C) -> Guarded<M>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        C: Fn(&M::Result) -> Outcome + Send + Sync + 'static,
    {
        Guarded::new(self.clone(), target.into(), classify)
    }

    /// Guards a future of a `Result`: polls it only if the breaker lets it through; `Err` is a failure.
    ///
    /// The future is lazy, so use it for what starts when it is polled; `addr.send(..)` has left before
    /// the breaker is asked. It must end within the call timeout, which begins when the future is first
    /// found waiting: one that is ready at once pays nothing for it. When it does not, it is not polled
    /// again and dropped with this one.
    ///
    /// The breaker looks at the future's own result, so of a result in a result it sees the outer one:
    /// make it flat first, or say what counts by [`call_with`](Self::call_with).
    ///
    /// # Errors
    ///
    /// [`CallError`](crate::CallError): rejected, timed out, or the future's own error.
    ///
    /// # Panics
    ///
    /// A panic of the future counts as a failure and goes on.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the guarded future and counts as no outcome; a probe gives its slot back.
    ///
    /// # Examples
    ///
    /// ```
    /// # use actix_circuit_breaker::{BreakerConfig, Breakers, CallError};
    /// # #[actix::main]
    /// # async fn main() {
    /// # let breaker = Breakers::start().create("disk", BreakerConfig::default()).unwrap();
    /// let read = breaker.call(async { std::fs::read_to_string("/no/such/file") }).await;
    /// assert!(matches!(read, Err(CallError::Failed(error)) if error.kind() == std::io::ErrorKind::NotFound));
    /// # }
    /// ```
    pub fn call<F, T, E>(&self, future: F) -> Call<'_, F>
    where
        F: Future<Output = Result<T, E>>,
        E: 'static,
    {
        Call::new(self, future, ByReply)
    }

    /// Guards as [`call`](Self::call) does; `classify` says the outcome of the result.
    pub fn call_with<F, T, E, C>(&self, future: F, classify: C) -> Call<'_, F, C>
    where
        F: Future<Output = Result<T, E>>,
        E: 'static,
        C: Fn(&Result<T, E>) -> Outcome,
    {
        Call::new(self, future, classify)
    }

    /// Guards as [`call`](Self::call) does, with a future that holds the handle: for `spawn` and
    /// `into_actor`.
    pub fn into_call<F, T, E>(self, future: F) -> IntoCall<F>
    where
        F: Future<Output = Result<T, E>>,
        E: 'static,
    {
        IntoCall::new(self, future, ByReply)
    }

    /// Guards as [`into_call`](Self::into_call) does; `classify` says the outcome of the result.
    pub fn into_call_with<F, T, E, C>(self, future: F, classify: C) -> IntoCall<F, C>
    where
        F: Future<Output = Result<T, E>>,
        E: 'static,
        C: Fn(&Result<T, E>) -> Outcome,
    {
        IntoCall::new(self, future, classify)
    }

    /// Asks for leave to make one call by oneself, and to say how it went.
    ///
    /// A permit has no call timeout; a probe's has a lease of `probe_timeout`, after which its slot
    /// goes to the next caller. Waiting for the breaker counts against the call timeout.
    ///
    /// # Errors
    ///
    /// [`AskError::Rejected`](crate::AskError), or [`Timeout`](crate::AskError::Timeout) when the
    /// breaker's arbiter is blocked for longer than the call timeout; nothing was sent then.
    ///
    /// # Cancel safety
    ///
    /// Dropping it takes nothing: a slot that was given out meanwhile goes back.
    ///
    /// # Examples
    ///
    /// ```
    /// # use actix_circuit_breaker::{BreakerConfig, Breakers};
    /// # #[actix::main]
    /// # async fn main() -> Result<(), actix_circuit_breaker::AskError> {
    /// # let breaker = Breakers::start().create("mail", BreakerConfig::default()).unwrap();
    /// let permit = breaker.acquire().await?;
    /// let sent = true; // … something that is no future
    /// if sent { permit.success().await } else { permit.failure().await }
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(&self) -> AcquireFuture {
        AcquireFuture::new(self)
    }

    // Telling: messages without a reply.

    /// Delivers a message whose reply is of no interest, if the breaker lets it through; else hands it back.
    ///
    /// The message is sent now, not when the future is polled, and it takes room in the target's mailbox, as
    /// with `target.try_send(msg)`.
    ///
    /// | the breaker is | the message | the outcome |
    /// | --- | --- | --- |
    /// | closed, forced closed | is delivered at once | none: that a mailbox takes it says nothing of the target's health |
    /// | open, forced open | is handed back, [`Rejected`](crate::TellError::Rejected) | |
    /// | open and due, half-open | is a probe if the breaker admits it, else is handed back | delivered: a success, for it is all there is to know |
    ///
    /// A full mailbox is [`Full`](crate::TellError::Full) and an ignored outcome, for a local refusal says
    /// nothing of the target; a closed one is [`Closed`](crate::TellError::Closed) and a failure (R19). actix
    /// takes one message beyond the capacity from each address, and what the breaker delivers itself, a probe
    /// or one that waited, has an address of its own: it finds no mailbox full.
    ///
    /// # Errors
    ///
    /// A [`TellError`](crate::TellError), with the message in it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing back; a message that could not be delivered is dropped with it.
    ///
    /// # Examples
    ///
    /// ```
    /// use actix::prelude::*;
    /// use actix_circuit_breaker::{BreakerConfig, Breakers};
    ///
    /// # #[derive(Message)]
    /// # #[rtype(result = "()")]
    /// # struct Line(&'static str);
    /// # struct Log;
    /// # impl Actor for Log { type Context = Context<Self>; }
    /// # impl Handler<Line> for Log {
    /// #     type Result = ();
    /// #     fn handle(&mut self, _: Line, _: &mut Context<Self>) {}
    /// # }
    /// # #[actix::main]
    /// # async fn main() {
    /// let breaker = Breakers::start().create("log", BreakerConfig::default()).unwrap();
    /// let log = Log.start();
    /// if let Err(error) = breaker.tell(&log, Line("hello")).await {
    ///     println!("not delivered: {error}");
    ///     let Line(text) = error.into_message();
    ///     println!("still here: {text}");
    /// }
    /// # }
    /// ```
    pub fn tell<T, M>(&self, target: &T, message: M) -> Tell<M>
    where
        T: Target<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        Tell::new(self, target, message)
    }

    /// Delivers as [`tell`](Self::tell) does; what would be rejected waits inside the breaker, as a message of
    /// [`Guarded::send_or_hold`] does and in the same queue.
    ///
    /// Without a [`Hold`](crate::Hold) in the config this is [`tell`](Self::tell).
    ///
    /// # Errors
    ///
    /// As [`tell`](Self::tell), and [`HoldExpired`](crate::TellError::HoldExpired) or
    /// [`HoldFull`](crate::TellError::HoldFull); each with the message in it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing back: the message waits on, since it owes its caller no reply. What
    /// cannot be handed back any more is told to those who
    /// [subscribed to drops](Self::subscribe_drops), and to the log.
    pub fn tell_or_hold<T, M>(&self, target: &T, message: M) -> Tell<M>
    where
        T: Target<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        Tell::or_hold(self, target, message)
    }

    // Looking.

    /// Returns the state, without a message; it may be one message old. A break that is over shows as
    /// [`Open`](CircuitState::Open) until a call comes, a breaker whose actor is gone for good as
    /// [`Closed`](CircuitState::Closed).
    pub fn state(&self) -> CircuitState {
        self.inner.gate.state()
    }

    /// Returns a receiver of the state, for whoever needs only the newest. As [`state`](Self::state), it
    /// shows a break that is over as open until a call comes.
    pub fn watch(&self) -> watch::Receiver<CircuitState> {
        self.inner.gate.watch()
    }

    /// Returns the changes of state as a stream, the present state first.
    ///
    /// # Examples
    ///
    /// ```
    /// # use actix_circuit_breaker::{BreakerConfig, Breakers, message::ForceOpen, CircuitState};
    /// use futures::StreamExt;
    /// # #[actix::main]
    /// # async fn main() {
    /// # let breaker = Breakers::start().create("search", BreakerConfig::default()).unwrap();
    /// let mut transitions = breaker.transitions();
    /// breaker.force_open(ForceOpen::new("index is rebuilt")).await.unwrap().unwrap();
    ///
    /// let present = transitions.next().await.unwrap().unwrap();
    /// assert_eq!(present.to, CircuitState::Closed);
    /// let forced = transitions.next().await.unwrap().unwrap();
    /// assert_eq!(forced.to, CircuitState::ForcedOpen);
    /// # }
    /// ```
    pub fn transitions(&self) -> Transitions {
        let (sender, transitions) = Transitions::new();
        self.addr().do_send(Follow(sender));
        transitions
    }

    /// Asks for the whole picture; see [`Snapshot`](crate::message::Snapshot).
    pub fn snapshot(&self) -> Request<BreakerActor, GetSnapshot> {
        self.addr().send(GetSnapshot)
    }

    /// Tells an actor of every change of state; see [`Subscribe`].
    pub fn subscribe(
        &self,
        subscriber: impl Into<WeakRecipient<StateChanged>>,
    ) -> Request<BreakerActor, Subscribe> {
        self.addr().send(Subscribe::new(subscriber))
    }

    /// Tells an actor of every message that was to wait and was not sent; see [`SubscribeDrops`].
    pub fn subscribe_drops(
        &self,
        subscriber: impl Into<WeakRecipient<HeldDropped>>,
    ) -> Request<BreakerActor, SubscribeDrops> {
        self.addr().send(SubscribeDrops::new(subscriber))
    }

    /// Returns the breaker's name.
    pub fn name(&self) -> &str {
        self.inner.gate.name()
    }

    /// Returns the address of the breaker's actor, for whoever steers it by [`message`](crate::message).
    /// An address is no handle: an idle breaker to which nobody holds one may go to make room for others,
    /// and its address is closed then. That goes for the breakers of a [`Family`](crate::Family), too: each
    /// has an address of its own, though one actor runs them all.
    pub fn addr(&self) -> &Addr<BreakerActor> {
        self.inner.mailbox.address()
    }

    // Orders. As with `addr.send`, the message is sent now; a request that is dropped before the
    // breaker handled it is cancelled.

    /// Rejects all calls until the order is released or its ttl is over; see [`ForceOpen`].
    pub fn force_open(&self, order: ForceOpen) -> Request<BreakerActor, ForceOpen> {
        self.addr().send(order)
    }

    /// Lets all calls pass until the order is released or its ttl is over; see [`ForceClosed`].
    pub fn force_closed(&self, order: ForceClosed) -> Request<BreakerActor, ForceClosed> {
        self.addr().send(order)
    }

    /// Lifts an order; see [`Release`].
    pub fn release(&self) -> Request<BreakerActor, Release> {
        self.addr().send(Release)
    }

    /// Forgets everything but an order; see [`Reset`].
    pub fn reset(&self) -> Request<BreakerActor, Reset> {
        self.addr().send(Reset)
    }

    /// Gives the breaker other settings without losing its state; see [`Reconfigure`].
    pub fn reconfigure(&self, config: BreakerConfig) -> Request<BreakerActor, Reconfigure> {
        self.addr().send(Reconfigure::new(config))
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("name", &self.name())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
