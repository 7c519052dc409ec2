//! `BackoffSupervisor`: restarts an actor on stop and on panic, after a delay that grows.
//! What the user sets is left to `policy`, running the actor to `supervising`.

mod end;
mod life;
mod policy;
mod restarts;
mod supervising;
#[cfg(test)]
mod tests;

use std::{any::type_name, sync::Arc};

use actix::{
    Actor, Addr, ArbiterHandle, AsyncContext, Context, Supervised,
    dev::channel::{self, AddressReceiver},
};

pub use self::{
    end::EndHandle,
    policy::{GaveUp, RestartPolicy},
};
use self::{life::Life, supervising::Supervising};
use crate::caught::{caught, quietly};

/// What actix gives a mailbox unless told otherwise.
const MAILBOX_CAPACITY: usize = 16;

/// Restarts an actor when it stops and when it panics, after a delay that grows.
///
/// [`actix::Supervisor`] restarts an actor that stops, at once and for ever; one that panics is
/// gone, with its queue, and while the thread unwinds its hooks and its `Drop` run: a second panic
/// there aborts the process. Here
///
/// - a panic in a handler, in any hook or in a future spawned in the actor's context is a reason to
///   restart like any other;
/// - the address, the queue and the actor value stay. Only the message being handled is lost: its
///   asker gets [`MailboxError::Closed`];
/// - nothing of the actor runs while the thread unwinds;
/// - restarts wait longer each time in a row, and may be limited ([`RestartPolicy`]). During the
///   delay messages wait in the mailbox;
/// - an actor can be ended for good ([`EndHandle`]).
///
/// A next life is what it is under actix: the futures and timers of the life before are dropped,
/// [`Supervised::restarting`] is called, then `started`, both when the delay is over. Until then
/// the old futures are kept, unpolled, and with them the replies they owe. A value that a panic
/// left half changed is the actor's to mend in `restarting`. A `SpawnHandle` is not valid in the
/// next life; actix would cancel something else.
///
/// When the last address is gone the actor is not restarted; nothing is reported then. Messages
/// still queued behind a panic or a stop are dropped with it, as under [`actix::Supervisor`].
/// During a delay the loss may be noticed only at its end.
///
/// At its end, whichever it is, `stopping` and `stopped` are called if they were not, then the value
/// is dropped; a panic in any of these is caught. (If the thread itself is unwinding by then, the
/// hooks are skipped.)
///
/// Each restart is a `tracing` event at `WARN`, giving up one at `ERROR`, with the fields `actor`,
/// `restarts` and `cause`; a restart has `delay_ms` too.
///
/// # Limits
///
/// It needs `panic = "unwind"`, the default. Two values dropped together that both panic in `drop`,
/// say two spawned futures of the actor, abort the process as they do in any `Vec`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use actix::prelude::*;
/// use actix_circuit_breaker::{BackoffSupervisor, RestartPolicy};
///
/// struct Counter(u32);
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// impl Supervised for Counter {}
///
/// #[derive(Message)]
/// #[rtype(result = "u32")]
/// struct Add(u32);
///
/// impl Handler<Add> for Counter {
///     type Result = u32;
///
///     fn handle(&mut self, Add(n): Add, _: &mut Context<Self>) -> u32 {
///         assert!(n < 100, "that is too much");
///         self.0 += n;
///         self.0
///     }
/// }
///
/// # System::new().block_on(async {
/// let policy = RestartPolicy::new().backoff(Duration::from_millis(5));
/// let addr = BackoffSupervisor::start(policy, |_| Counter(0));
///
/// assert_eq!(addr.send(Add(1)).await, Ok(1));
/// assert_eq!(addr.send(Add(100)).await, Err(MailboxError::Closed));
/// assert_eq!(addr.send(Add(1)).await, Ok(2)); // the same actor, 5 ms later
/// # });
/// ```
///
/// [`MailboxError::Closed`]: actix::MailboxError::Closed
#[derive(Debug)]
#[non_exhaustive]
pub struct BackoffSupervisor;

impl BackoffSupervisor {
    /// Starts a supervised actor on the current arbiter, as [`actix::Supervisor::start`] does.
    ///
    /// # Panics
    ///
    /// Panics outside a running actix system, and when `make` does.
    #[track_caller]
    pub fn start<A, F>(policy: RestartPolicy, make: F) -> Addr<A>
    where
        A: Actor<Context = Context<A>> + Supervised,
        F: FnOnce(&mut Context<A>) -> A,
    {
        Self::start_with_handle(policy, |ctx, _| make(ctx)).0
    }

    /// Starts a supervised actor on that arbiter, as [`actix::Supervisor::start_in_arbiter`] does.
    ///
    /// `make` runs on the arbiter. If the arbiter has stopped, or `make` panics, the address is
    /// closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use actix::prelude::*;
    /// use actix_circuit_breaker::{BackoffSupervisor, RestartPolicy};
    ///
    /// struct Worker;
    ///
    /// impl Actor for Worker {
    ///     type Context = Context<Self>;
    /// }
    ///
    /// impl Supervised for Worker {}
    ///
    /// # System::new().block_on(async {
    /// let arbiter = Arbiter::new();
    /// let addr =
    ///     BackoffSupervisor::start_in_arbiter(&arbiter.handle(), RestartPolicy::new(), |_| Worker);
    /// assert!(addr.connected());
    /// # arbiter.stop();
    /// # });
    /// ```
    pub fn start_in_arbiter<A, F>(
        arbiter: &ArbiterHandle,
        policy: RestartPolicy,
        make: F,
    ) -> Addr<A>
    where
        A: Actor<Context = Context<A>> + Supervised,
        F: FnOnce(&mut Context<A>) -> A + Send + 'static,
    {
        Self::start_in_arbiter_with_handle(arbiter, policy, |ctx, _| make(ctx)).0
    }

    /// Starts as [`start`](Self::start) does; the handle, which `make` sees too, ends the actor.
    ///
    /// # Panics
    ///
    /// Panics outside a running actix system, and when `make` does.
    ///
    /// # Examples
    ///
    /// ```
    /// # use actix::prelude::*;
    /// # use actix_circuit_breaker::{BackoffSupervisor, RestartPolicy};
    /// # struct Worker;
    /// # impl Actor for Worker { type Context = Context<Self>; }
    /// # impl Supervised for Worker {}
    /// # System::new().block_on(async {
    /// let (addr, end) = BackoffSupervisor::start_with_handle(RestartPolicy::new(), |_, _| Worker);
    /// std::thread::spawn(move || end.end()).join().unwrap();
    /// while addr.connected() {
    ///     tokio::task::yield_now().await;
    /// }
    /// # });
    /// ```
    #[track_caller]
    pub fn start_with_handle<A, F>(policy: RestartPolicy, make: F) -> (Addr<A>, EndHandle)
    where
        A: Actor<Context = Context<A>> + Supervised,
        F: FnOnce(&mut Context<A>, &EndHandle) -> A,
    {
        let end = EndHandle::default();
        let mut ctx = Context::new();
        let actor = make(&mut ctx, &end);
        let addr = ctx.address();
        actix::spawn(Supervising::new(
            Life::new(ctx, actor),
            Arc::new(policy),
            end.clone(),
            |_, _| {},
        ));
        (addr, end)
    }

    /// Starts as [`start_in_arbiter`](Self::start_in_arbiter) does; the handle, which `make` sees
    /// too, ends the actor.
    pub fn start_in_arbiter_with_handle<A, F>(
        arbiter: &ArbiterHandle,
        policy: RestartPolicy,
        make: F,
    ) -> (Addr<A>, EndHandle)
    where
        A: Actor<Context = Context<A>> + Supervised,
        F: FnOnce(&mut Context<A>, &EndHandle) -> A + Send + 'static,
    {
        let (tx, rx) = channel::channel(MAILBOX_CAPACITY);
        let end = Self::start_with_receiver(arbiter, rx, Arc::new(policy), |_, _| {}, make);
        (Addr::new(tx), end.unwrap_or_default())
    }

    /// Runs the actor that `make` makes behind a mailbox made beforehand, on that arbiter; `None`
    /// when the arbiter has stopped. From any thread.
    ///
    /// `on_restart` is told the count and the cause of each restart, on the arbiter, after
    /// `restarting` and before `started`. A panic of it is caught.
    pub(crate) fn start_with_receiver<A, F, O>(
        arbiter: &ArbiterHandle,
        rx: AddressReceiver<A>,
        policy: Arc<RestartPolicy>,
        on_restart: O,
        make: F,
    ) -> Option<EndHandle>
    where
        A: Actor<Context = Context<A>> + Supervised,
        F: FnOnce(&mut Context<A>, &EndHandle) -> A + Send + 'static,
        O: Fn(u64, &str) + Send + 'static,
    {
        let end = EndHandle::default();
        let ordered = end.clone();
        let taken = arbiter.spawn_fn(move || {
            let mut ctx = Context::with_receiver(rx);
            match caught(|| make(&mut ctx, &ordered)) {
                Ok(actor) => {
                    let life = Life::new(ctx, actor);
                    actix::spawn(Supervising::new(life, policy, ordered, on_restart));
                }
                Err(cause) => quietly(|| {
                    let actor = type_name::<A>();
                    tracing::error!(actor, cause, "supervised actor could not be made");
                }),
            }
        });
        taken.then_some(end)
    }
}
