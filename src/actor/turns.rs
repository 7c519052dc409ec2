//! How the breaker's actor gives way to the others on its arbiter, and ends when nobody can reach it.
//! actix does neither: it empties a mailbox before anything else runs, and keeps an actor for its timers.

use std::pin::Pin;
use std::task::{self, Poll};

use actix::fut::ActorFuture;
use actix::{ActorContext, AsyncContext, Context, WrapFuture};

use super::BreakerActor;

/// How many steps the actor takes in one turn. The probes it makes and its timers run on the same thread:
/// a storm of rejected callers must not keep them from it (R28).
const STEPS: u32 = 128;

impl BreakerActor {
    /// Counts a step; after many of them the actor handles nothing more until the others had their turn.
    pub(super) fn take_turns(&mut self, ctx: &mut Context<Self>) {
        self.timers.steps = self.timers.steps.wrapping_add(1);
        if self.timers.steps.is_multiple_of(STEPS) {
            ctx.wait(tokio::task::yield_now().into_actor(self));
        }
    }
}

/// Ends the actor when its last address is gone, whatever timers it has; polled whenever the actor is.
pub(super) struct WhileReachable;

impl ActorFuture<BreakerActor> for WhileReachable {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        _: &mut BreakerActor,
        ctx: &mut Context<BreakerActor>,
        _: &mut task::Context<'_>,
    ) -> Poll<()> {
        if !ctx.connected() {
            ctx.stop();
        }
        Poll::Pending
    }
}
