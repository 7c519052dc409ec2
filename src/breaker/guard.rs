//! A breaker bound to one target, as workers hold it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};

use super::{AskFuture, Breaker, HeldAsk};
use crate::outcome::{Classify, Outcome};

/// A breaker bound to one target: a recipient that can reject.
///
/// Made once by [`Breaker::guard`], injected in the constructor of whoever asks.
///
/// # Examples
///
/// ```
/// use actix::prelude::*;
/// use actix_circuit_breaker::{BreakerConfig, Breakers, Guarded};
///
/// # #[derive(Message)]
/// # #[rtype(result = "Result<(), String>")]
/// # struct Charge;
/// # struct Gateway;
/// # impl Actor for Gateway { type Context = Context<Self>; }
/// # impl Handler<Charge> for Gateway {
/// #     type Result = Result<(), String>;
/// #     fn handle(&mut self, _: Charge, _: &mut Context<Self>) -> Self::Result { Ok(()) }
/// # }
/// struct Checkout {
///     payments: Guarded<Charge>,
/// }
///
/// impl Actor for Checkout {
///     type Context = Context<Self>;
/// }
///
/// #[derive(Message)]
/// #[rtype(result = "bool")]
/// struct Order;
///
/// impl Handler<Order> for Checkout {
///     type Result = ResponseFuture<bool>;
///     fn handle(&mut self, _: Order, _: &mut Context<Self>) -> Self::Result {
///         let charged = self.payments.send(Charge);
///         Box::pin(async move { matches!(charged.await, Ok(Ok(()))) })
///     }
/// }
///
/// # #[actix::main]
/// # async fn main() {
/// let breaker = Breakers::start().create("payments", BreakerConfig::default()).unwrap();
/// let payments = breaker.guard(Gateway.start());
/// let checkout = Checkout { payments }.start();
/// assert!(checkout.send(Order).await.unwrap());
/// # }
/// ```
pub struct Guarded<M>
where
    M: Message + Send,
    M::Result: Send,
{
    breaker: Breaker,
    target: Recipient<M>,
    classify: Classifier<M::Result>,
    call_timeout: Option<Duration>,
}

/// The future of an ask by a [`Guarded`], to be named where it is stored.
pub type GuardedAsk<M> = AskFuture<Recipient<M>, M, Classifier<<M as Message>::Result>>;

/// The classifier of a [`Guarded`], shared by its asks.
pub struct Classifier<R>(Arc<dyn Classify<R> + Send + Sync>);

impl<R> Clone for Classifier<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> fmt::Debug for Classifier<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Classifier(..)")
    }
}

impl<R> Classify<R> for Classifier<R> {
    fn classify(&self, reply: &R) -> Outcome {
        self.0.classify(reply)
    }

    fn error<'r>(&self, reply: &'r R) -> Option<&'r dyn Any> {
        self.0.error(reply)
    }
}

impl<M> Guarded<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    pub(super) fn new(
        breaker: Breaker,
        target: Recipient<M>,
        classify: impl Classify<M::Result> + Send + Sync + 'static,
    ) -> Self {
        Self {
            breaker,
            target,
            classify: Classifier(Arc::new(classify)),
            call_timeout: None,
        }
    }

    /// Sets how long the target may take to answer this guard's asks. Default: the breaker's call
    /// timeout. A probe that may take longer than that holds its slot for up to twice as long.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = Some(timeout);
        self
    }

    /// Asks the target, if the breaker lets it through; as [`Breaker::ask`].
    ///
    /// # Errors
    ///
    /// The future resolves to an [`AskError`](crate::AskError) as that of [`Breaker::ask`] does.
    ///
    /// # Cancel safety
    ///
    /// As [`Breaker::ask`].
    pub fn send(&self, message: M) -> GuardedAsk<M> {
        AskFuture::new(
            &self.breaker,
            &self.target,
            message,
            self.classify.clone(),
            self.call_timeout,
        )
    }

    /// Asks the target, or lets the message wait inside the breaker until it can be sent.
    ///
    /// While closed and nothing waits, this is [`send`](Self::send). Else the message goes behind those that
    /// wait already, whatever they are, up to [`capacity`](crate::Hold::capacity). When the break is over the
    /// first of them is the probe, without anybody calling. After the breaker has closed the others follow at
    /// the [`release_interval`](crate::Hold::release_interval), each an ask like any other: its call timeout
    /// begins when it is sent. While half-open they follow as far as the breaker admits probes, and a trip
    /// stops them. An ask that was released and failed is not held again.
    ///
    /// Each message waits for [`held_ttl`](crate::Hold::held_ttl) at most, counted from when it was first held,
    /// whatever becomes of the breaker meanwhile; also while forced open, and while closed if its turn does not
    /// come before. Other asks do not wait and may overtake those who do, but for the probe at the end of a
    /// break. A restart of the breaker's actor keeps them.
    ///
    /// They reach their targets in the order in which the breaker got them. One caller's messages keep their
    /// order also where some go straight through, unless the target's mailbox is full: actix keeps such a
    /// message back until its future is polled, as it does with `addr.send(msg)`.
    ///
    /// Without a [`Hold`](crate::Hold) in the breaker's config this is [`send`](Self::send). If the policy is
    /// taken away while messages wait, those still leave as it said.
    ///
    /// Do not wait for it inside a call that the same breaker guards: that call may be the probe which has to
    /// end first.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`HoldExpired`](crate::AskError::HoldExpired) or
    /// [`HoldFull`](crate::AskError::HoldFull); [`Rejected`](crate::AskError::Rejected) only without a policy.
    /// [`Closed`](crate::AskError::Closed) also when the breaker is gone for good while the message waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes a message that waits out of the queue, wherever it is dropped. One that was
    /// sent runs on in the breaker's care, and its outcome counts.
    pub fn send_or_hold(&self, message: M) -> HeldAsk<M> {
        HeldAsk::new(
            &self.breaker,
            &self.target,
            message,
            self.classify.clone(),
            self.call_timeout,
        )
    }

    /// Returns the breaker.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }
}

impl<M> Clone for Guarded<M>
where
    M: Message + Send,
    M::Result: Send,
{
    fn clone(&self) -> Self {
        Self {
            breaker: self.breaker.clone(),
            target: self.target.clone(),
            classify: self.classify.clone(),
            call_timeout: self.call_timeout,
        }
    }
}

impl<M> fmt::Debug for Guarded<M>
where
    M: Message + Send,
    M::Result: Send,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("breaker", &self.breaker)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}
