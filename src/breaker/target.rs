//! What can be asked: an address or a recipient.

use std::future::Future;

use actix::dev::{RecipientRequest, Request, SendError, ToEnvelope};
use actix::{Actor, Addr, Handler, MailboxError, Message, Recipient};

/// What can be asked with a message `M`: an [`Addr`] of an actor that handles it, or a [`Recipient`].
///
/// Sealed: it is implemented for these two alone.
pub trait Target<M>: sealed::Sealed
where
    M: Message + Send,
    M::Result: Send,
{
    /// The request that `send` returns.
    #[doc(hidden)]
    type Request: Future<Output = Result<M::Result, MailboxError>> + Send + 'static;

    #[doc(hidden)]
    fn send(&self, message: M) -> Self::Request;

    #[doc(hidden)]
    fn try_send(&self, message: M) -> Result<(), SendError<M>>;

    #[doc(hidden)]
    fn to_recipient(&self) -> Recipient<M>;
}

mod sealed {
    #[expect(unnameable_types, reason = "that is what seals the trait")]
    pub trait Sealed {}
}

impl<A: Actor> sealed::Sealed for Addr<A> {}

impl<M> sealed::Sealed for Recipient<M>
where
    M: Message + Send,
    M::Result: Send,
{
}

impl<A, M> Target<M> for Addr<A>
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    type Request = Request<A, M>;

    fn send(&self, message: M) -> Self::Request {
        Addr::send(self, message)
    }

    fn try_send(&self, message: M) -> Result<(), SendError<M>> {
        Addr::try_send(self, message)
    }

    fn to_recipient(&self) -> Recipient<M> {
        self.clone().recipient()
    }
}

impl<M> Target<M> for Recipient<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    type Request = RecipientRequest<M>;

    fn send(&self, message: M) -> Self::Request {
        Recipient::send(self, message)
    }

    fn try_send(&self, message: M) -> Result<(), SendError<M>> {
        Recipient::try_send(self, message)
    }

    fn to_recipient(&self) -> Recipient<M> {
        self.clone()
    }
}
