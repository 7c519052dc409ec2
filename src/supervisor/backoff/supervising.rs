//! The task of one supervised actor: between its lives it decides, waits and reports.
//! The delays are left to `restarts`, the actor itself to `life`.

use std::{
    any::type_name,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context as Cx, Poll, Waker, ready},
    time::Duration,
};

use actix::{Actor, Context, Supervised};
use tokio::time::{Instant, Sleep, sleep};

use super::{
    end::EndHandle,
    life::{Cause, Life},
    policy::{GaveUp, RestartPolicy},
    restarts::Restarts,
};
use crate::caught::{caught, quietly};

/// The task of one supervised actor. By hand and not `async`, which would hold the actor twice.
pub(super) struct Supervising<A, O>
where
    A: Actor<Context = Context<A>> + Supervised,
{
    life: Life<A>,
    phase: Phase,
    policy: Arc<RestartPolicy>,
    restarts: Restarts,
    on_restart: O,
    end: EndHandle,
    /// Whom `end` wakes, to compare without its lock.
    task: Option<Waker>,
}

enum Phase {
    Alive,
    /// Between two lives.
    Delayed(Pin<Box<Sleep>>, Cause),
}

/// Nothing is pinned in place: the actor is `Unpin`, the timer is boxed.
impl<A, O> Unpin for Supervising<A, O> where A: Actor<Context = Context<A>> + Supervised {}

impl<A, O> Supervising<A, O>
where
    A: Actor<Context = Context<A>> + Supervised,
    O: Fn(u64, &str),
{
    pub(super) fn new(
        life: Life<A>,
        policy: Arc<RestartPolicy>,
        end: EndHandle,
        on_restart: O,
    ) -> Self {
        Self {
            life,
            phase: Phase::Alive,
            restarts: Restarts::new(&policy),
            policy,
            on_restart,
            end,
            task: None,
        }
    }

    fn listen(&mut self, cx: &Cx<'_>) {
        if !self.task.as_ref().is_some_and(|t| t.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
            self.end.set_task(self.task.clone());
        }
    }

    /// Decides after the end of a life; `Ready` when there will be no other.
    fn life_ended(&mut self, cause: Cause) -> Poll<()> {
        let stopped_for_good = matches!(cause, Cause::Stopped) && !self.policy.restart_on_stop;
        if stopped_for_good || self.end.is_ordered() || !self.life.connected() {
            self.life.end();
            return Poll::Ready(());
        }
        // A runtime without timers panics here. It cannot be waited on, so there is no restart.
        let timer = caught(|| {
            let delay = self.restarts.delay(&self.policy, now())?;
            Some((delay, Box::pin(sleep(delay))))
        });
        let Ok(Some((delay, timer))) = timer else {
            self.give_up(&cause);
            return Poll::Ready(());
        };
        self.warn(&cause, delay);
        self.phase = Phase::Delayed(timer, cause);
        Poll::Pending
    }

    /// Starts the next life; `Ready` when there will be no other.
    fn next_life(&mut self) -> Poll<()> {
        let restarted = self.life.restart();
        if matches!(restarted, Ok(false)) {
            self.life.end();
            return Poll::Ready(());
        }
        self.restarts.record(&self.policy, now());
        if let Phase::Delayed(_, cause) = std::mem::replace(&mut self.phase, Phase::Alive) {
            quietly(|| (self.on_restart)(self.restarts.total(), cause.text()));
        }
        match restarted {
            Ok(_) => Poll::Pending,
            Err(cause) => self.life_ended(cause),
        }
    }

    fn warn(&self, cause: &Cause, delay: Duration) {
        quietly(|| {
            tracing::warn!(
                actor = type_name::<A>(),
                restarts = self.restarts.total(),
                cause = cause.text(),
                delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                "supervised actor ended, restarting it after a delay"
            );
        });
    }

    fn give_up(&mut self, cause: &Cause) {
        self.life.end();
        let gave_up = GaveUp {
            actor: type_name::<A>(),
            restarts: self.restarts.total(),
            cause: cause.text().to_owned(),
        };
        quietly(|| {
            tracing::error!(
                actor = gave_up.actor,
                restarts = gave_up.restarts,
                cause = gave_up.cause,
                "supervised actor given up"
            );
        });
        if let Some(hook) = &self.policy.on_give_up
            && let Err(cause) = caught(|| hook(gave_up))
        {
            quietly(|| {
                let actor = type_name::<A>();
                tracing::error!(actor, cause, "give-up hook panicked");
            });
        }
    }
}

impl<A, O> Future for Supervising<A, O>
where
    A: Actor<Context = Context<A>> + Supervised,
    O: Fn(u64, &str),
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.listen(cx);
        loop {
            if this.end.is_ordered() {
                this.life.end();
                return Poll::Ready(());
            }
            let over = match &mut this.phase {
                Phase::Alive => match this.life.poll(cx) {
                    Poll::Ready(cause) => this.life_ended(cause),
                    Poll::Pending if this.end.is_ordered() => continue,
                    Poll::Pending => return Poll::Pending,
                },
                Phase::Delayed(timer, _) => {
                    if this.life.connected() {
                        ready!(timer.as_mut().poll(cx));
                    }
                    this.next_life()
                }
            };
            if over.is_ready() {
                return Poll::Ready(());
            }
        }
    }
}

impl<A, O> Drop for Supervising<A, O>
where
    A: Actor<Context = Context<A>> + Supervised,
{
    fn drop(&mut self) {
        // A handle kept would keep the memory of the task.
        self.end.set_task(None);
    }
}

/// The time of tokio's timers, which tests pause. The wall clock is `clock`'s to read.
fn now() -> Instant {
    sleep(Duration::ZERO).deadline()
}
