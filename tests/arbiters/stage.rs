//! Where scripts are played: arbiters with workers on them, targets, subscribers, a clock that can be
//! made to panic the breaker's actor.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::{
    BackoffSupervisor, Clock, ManualClock, Outcome, Reply, RestartPolicy, StateChanged, Timestamp,
};
use futures::future::LocalBoxFuture;
use tokio::sync::oneshot;

use super::script::{ARBITERS, End, Kind};

pub(crate) type Work = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The arbiters: the breaker's own, and those of the callers.
pub(crate) struct Stage {
    pub(crate) home: Arbiter,
    pub(crate) thread: ThreadId,
    pub(crate) arbiters: Vec<Arbiter>,
    workers: Vec<Addr<Worker>>,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let home = Arbiter::new();
        let (tell, thread) = oneshot::channel();
        home.spawn_fn(move || _ = tell.send(std::thread::current().id()));
        let arbiters: Vec<_> = (0..ARBITERS).map(|_| Arbiter::new()).collect();
        let workers = arbiters[..2]
            .iter()
            .map(|arbiter| {
                BackoffSupervisor::start_in_arbiter(&arbiter.handle(), restarts(), |_| Worker)
            })
            .collect();
        Self {
            thread: thread.await.unwrap(),
            home,
            arbiters,
            workers,
        }
    }

    /// Has it done on that arbiter: by its worker actor, or by a task where there is none.
    pub(crate) fn run(&self, arbiter: u8, work: Work) {
        if let Some(worker) = self.workers.get(usize::from(arbiter)) {
            worker.do_send(Do(work));
        } else {
            let spawn = move || drop(actix::spawn(work()));
            self.arbiter(arbiter).spawn_fn(spawn);
        }
    }

    pub(crate) fn arbiter(&self, arbiter: u8) -> &Arbiter {
        self.arbiters
            .get(usize::from(arbiter))
            .unwrap_or(&self.home)
    }

    /// Lets the breaker's arbiter do what it has to do.
    pub(crate) async fn turns(&self) {
        let (tell, told) = oneshot::channel();
        self.home.spawn(async move {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            _ = tell.send(());
        });
        told.await.unwrap();
    }

    pub(crate) fn end(self) {
        drop(self.workers);
        for arbiter in self.arbiters.into_iter().chain([self.home]) {
            arbiter.stop();
            arbiter.join().unwrap();
        }
    }
}

/// At once, each time.
pub(crate) fn restarts() -> RestartPolicy {
    RestartPolicy::new()
        .backoff(Duration::ZERO)
        .within(Duration::ZERO)
}

/// Panics without a line on the terminal.
pub(crate) fn panic_quietly() -> ! {
    resume_unwind(Box::new("trap"))
}

pub(crate) struct Worker;

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Supervised for Worker {}

#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Do(Work);

impl Handler<Do> for Worker {
    type Result = ();

    fn handle(&mut self, Do(work): Do, ctx: &mut Context<Self>) {
        ctx.spawn(work().into_actor(self));
    }
}

/// When a call ends, and how.
pub(crate) enum Plan {
    Now(End),
    /// When the script says so.
    Later(oneshot::Receiver<End>),
}

impl Plan {
    pub(crate) async fn end(self) -> End {
        match self {
            Self::Now(end) => end,
            Self::Later(end) => match end.await {
                Ok(end) => end,
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// What a target is asked.
#[derive(Message)]
#[rtype(result = "Told")]
pub(crate) struct Job {
    pub(crate) seen: oneshot::Sender<()>,
    pub(crate) plan: Plan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, MessageResponse)]
pub(crate) struct Told(pub(crate) Outcome);

impl Reply for Told {
    fn outcome(&self) -> Outcome {
        self.0
    }
}

/// Whoever is asked, once.
pub(crate) struct Target;

impl Target {
    pub(crate) fn start(arbiter: &Arbiter, supervised: bool) -> Addr<Self> {
        let handle = arbiter.handle();
        if supervised {
            BackoffSupervisor::start_in_arbiter(&handle, restarts(), |_| Self)
        } else {
            Self::start_in_arbiter(&handle, |_| Self)
        }
    }
}

impl Actor for Target {
    type Context = Context<Self>;
}

impl Supervised for Target {}

impl Handler<Job> for Target {
    type Result = ResponseActFuture<Self, Told>;

    fn handle(&mut self, job: Job, _: &mut Context<Self>) -> Self::Result {
        _ = job.seen.send(());
        let end = job.plan.end().into_actor(self);
        Box::pin(end.then(|end, target, ctx: &mut Context<Self>| {
            let answer: LocalBoxFuture<'static, Told> = match end {
                End::Panic => panic_quietly(),
                End::Stop => {
                    ctx.stop();
                    Box::pin(std::future::pending())
                }
                End::Hang => Box::pin(std::future::pending()),
                end => Box::pin(std::future::ready(Told(end.outcome()))),
            };
            answer.into_actor(target)
        }))
    }
}

/// The script's clock. Set to, it panics once on the breaker's thread, where only a step of the actor
/// reads it.
#[derive(Debug)]
pub(crate) struct TrapClock {
    pub(crate) clock: ManualClock,
    pub(crate) set: AtomicBool,
    pub(crate) thread: ThreadId,
    /// What it says of the runtime's timers.
    pub(crate) timers: bool,
}

impl Clock for TrapClock {
    fn now(&self) -> Timestamp {
        if self.set.load(Ordering::SeqCst)
            && std::thread::current().id() == self.thread
            && self.set.swap(false, Ordering::SeqCst)
        {
            panic_quietly();
        }
        self.clock.now()
    }

    fn drives_timers(&self) -> bool {
        self.timers
    }
}

/// A subscriber, as the script's player knows it.
pub(crate) struct Subscriber {
    pub(crate) kind: Kind,
    pub(crate) log: Arc<Mutex<Vec<StateChanged>>>,
    pub(crate) addr: Addr<Listener>,
    /// Lets a slow one go on.
    pub(crate) go_on: Option<oneshot::Sender<()>>,
    pub(crate) killed: bool,
}

impl Subscriber {
    pub(crate) fn start(kind: Kind, arbiter: &Arbiter) -> Self {
        let log: Arc<Mutex<Vec<_>>> = Arc::default();
        let (go_on, wait) = oneshot::channel();
        let listener = Listener {
            kind,
            log: Arc::clone(&log),
            wait: Some(wait),
            handled: 0,
        };
        let handle = arbiter.handle();
        let addr = if kind == Kind::Restarts {
            BackoffSupervisor::start_in_arbiter(&handle, restarts(), |_| listener)
        } else {
            Listener::start_in_arbiter(&handle, |_| listener)
        };
        Self {
            kind,
            log,
            addr,
            go_on: Some(go_on),
            killed: false,
        }
    }

    pub(crate) fn told(&self) -> Vec<StateChanged> {
        self.log.lock().unwrap().clone()
    }

    /// Whether it is to be there still, having been told so many events.
    pub(crate) fn lives(&self) -> bool {
        let dies = matches!(self.kind, Kind::Panics | Kind::Dies);
        !(self.killed || dies && self.log.lock().unwrap().len() > 1)
    }
}

pub(crate) struct Listener {
    kind: Kind,
    log: Arc<Mutex<Vec<StateChanged>>>,
    wait: Option<oneshot::Receiver<()>>,
    handled: usize,
}

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Supervised for Listener {}

impl Handler<StateChanged> for Listener {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, event: StateChanged, ctx: &mut Context<Self>) -> Self::Result {
        self.log.lock().unwrap().push(event);
        self.handled += 1;
        let second = self.handled == 2;
        match self.kind {
            Kind::Panics | Kind::Restarts if second => panic_quietly(),
            Kind::Dies if second => ctx.stop(),
            Kind::Slow => {
                if let Some(wait) = self.wait.take() {
                    return Box::pin(async move { _ = wait.await });
                }
            }
            _ => {}
        }
        Box::pin(std::future::ready(()))
    }
}

/// Stops a subscriber.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Halt;

impl Handler<Halt> for Listener {
    type Result = ();

    fn handle(&mut self, _: Halt, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}
