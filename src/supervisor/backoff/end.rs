//! The order to end a supervised actor for good.
//! Carrying it out is left to the supervising future.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use actix::{Actor, ActorContext, Context};

/// Ends one actor under a [`BackoffSupervisor`] for good.
///
/// It comes from [`start_with_handle`] and [`start_in_arbiter_with_handle`]. Clones end the same
/// actor. Dropping one does nothing.
///
/// It is a handle, and not a function of the address, for two reasons. An address carries only
/// messages the actor handles, and they wait while the actor is between two lives; an order to end
/// must not. And to a supervisor, `ctx.stop()` and `ctx.terminate()` look alike: neither can say
/// "for good" (unless [`restart_on_stop(false)`] says so for all stops).
///
/// [`BackoffSupervisor`]: crate::BackoffSupervisor
/// [`start_with_handle`]: crate::BackoffSupervisor::start_with_handle
/// [`start_in_arbiter_with_handle`]: crate::BackoffSupervisor::start_in_arbiter_with_handle
/// [`restart_on_stop(false)`]: crate::RestartPolicy::restart_on_stop
#[derive(Clone, Default)]
pub struct EndHandle {
    order: Arc<Order>,
}

#[derive(Default)]
struct Order {
    given: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl EndHandle {
    /// Ends the actor, from any thread, whatever it is doing; returns without waiting for it.
    ///
    /// The message being handled is finished. Then `stopping` is called, its answer is not heeded,
    /// and `stopped`; the mailbox closes and every ask waiting in it, and every later one, gets
    /// [`MailboxError::Closed`]. During the delay before a restart the same happens at once,
    /// without the restart; hooks that ran when the actor stopped do not run a second time. An
    /// actor that has not started yet goes through `started` first, as it does when actix drops
    /// one. There is no call of the give-up hook.
    ///
    /// A second call does nothing.
    ///
    /// [`MailboxError::Closed`]: actix::MailboxError::Closed
    pub fn end(&self) {
        self.order.given.store(true, Ordering::Release);
        let task = self.task().take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Ends the actor from inside one of its handlers: no further message is handled.
    ///
    /// [`end`](Self::end) does as well there, but what is already in the mailbox may be handled
    /// before the supervisor gets its turn.
    ///
    /// # Examples
    ///
    /// ```
    /// use actix::prelude::*;
    /// use actix_circuit_breaker::{BackoffSupervisor, EndHandle, RestartPolicy};
    ///
    /// struct Worker {
    ///     end: EndHandle,
    /// }
    ///
    /// impl Actor for Worker {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// impl Supervised for Worker {}
    ///
    /// #[derive(Message)]
    /// #[rtype(result = "()")]
    /// struct Retire;
    ///
    /// impl Handler<Retire> for Worker {
    ///     type Result = ();
    ///
    ///     fn handle(&mut self, _: Retire, ctx: &mut Context<Self>) {
    ///         self.end.end_in(ctx);
    ///     }
    /// }
    ///
    /// # System::new().block_on(async {
    /// let (addr, _end) = BackoffSupervisor::start_with_handle(RestartPolicy::new(), |_, end| {
    ///     Worker { end: end.clone() }
    /// });
    /// addr.send(Retire).await.unwrap();
    /// assert_eq!(addr.send(Retire).await, Err(MailboxError::Closed));
    /// # });
    /// ```
    pub fn end_in<A>(&self, ctx: &mut Context<A>)
    where
        A: Actor<Context = Context<A>>,
    {
        self.end();
        ctx.stop();
    }

    pub(super) fn is_ordered(&self) -> bool {
        self.order.given.load(Ordering::Acquire)
    }

    /// Sets whom [`end`](Self::end) wakes. Ask [`is_ordered`](Self::is_ordered) after it, not
    /// before: then no order is missed.
    pub(super) fn set_task(&self, task: Option<Waker>) {
        let former = std::mem::replace(&mut *self.task(), task);
        drop(former);
    }

    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.order
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EndHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndHandle")
            .field("ordered", &self.is_ordered())
            .finish()
    }
}
