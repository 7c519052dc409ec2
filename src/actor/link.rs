//! The way from the breakers of one process to the store that their records are shared through: whether it is
//! there, what time it is there, and who is to be told. What the store decides, and what is decided without
//! it, is in `circuit/replica.rs`; who keeps the link going, in `supervisor/joining.rs`.

use std::collections::HashMap;
use std::future::{Future, poll_fn, ready};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use actix::{Addr, WeakAddr, WeakRecipient};
use futures_core::future::BoxFuture;
use futures_core::stream::Stream;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::BreakerActor;
use crate::caught::{Quiet, caught, quietly};
use crate::circuit::Terms;
use crate::clock::{Clock, Timestamp};
use crate::config::BreakerConfig;
use crate::event::StoreEvent;
use crate::message::FromStore;
use crate::report;
use crate::store::{Change, MemoryStore, Step, Store, StoreError, View};

/// How the time of the store has to differ from what was measured before, to be measured anew.
const TOLERANCE: u64 = 5_000;

/// How many breakers look at their records at once, and in how many groups all of them do at most.
const AT_ONCE: usize = 16;
const MOST_GROUPS: usize = 500;

/// How long it takes until all of them have looked, at most.
const LONGEST_ROUND: Duration = Duration::from_millis(2_500);

/// How breakers share their records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) strict: bool,
    pub(crate) min_reporters: u32,
    /// How long a breaker waits for the store.
    pub(crate) timeout: Duration,
    /// How often each breaker looks at its record, in case that it was not told of a change.
    pub(crate) poll: Duration,
}

/// The link of all breakers of one owner.
#[derive(Debug)]
pub(crate) struct Link {
    store: Arc<dyn Store>,
    manner: Manner,
    clock: Arc<dyn Clock>,
    process: u64,
    /// How many breakers there were.
    lives: AtomicU64,
    /// The shared time less that of the clock, in microseconds, and whether it was ever measured.
    ahead: AtomicI64,
    is_measured: AtomicBool,
    state: Mutex<State>,
    members: Mutex<HashMap<Arc<str>, WeakAddr<BreakerActor>>>,
    subscribers: Mutex<Vec<WeakRecipient<StoreEvent>>>,
    /// Told when the store stops answering.
    failed: Notify,
    /// Told when changes were missed, and more breakers have to look than should at once.
    missed: Notify,
    /// How many steps were asked for.
    steps: AtomicU64,
}

/// Whether the store answers.
#[derive(Debug, Clone)]
enum State {
    /// It is not known yet.
    New,
    Joined,
    /// Since when it does not, and why.
    Away(Timestamp, StoreError),
}

impl Link {
    pub(crate) fn new(store: Arc<dyn Store>, manner: Manner, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            manner,
            clock,
            process: draw_process(),
            lives: AtomicU64::new(0),
            ahead: AtomicI64::new(0),
            is_measured: AtomicBool::new(false),
            state: Mutex::new(State::New),
            members: Mutex::default(),
            subscribers: Mutex::default(),
            failed: Notify::new(),
            missed: Notify::new(),
            steps: AtomicU64::new(0),
        }
    }

    pub(crate) fn manner(&self) -> &Manner {
        &self.manner
    }

    /// The terms on which a new circuit shares its record.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            process: self.process,
            life: self.lives.fetch_add(1, Ordering::Relaxed),
            min_reporters: self.manner.min_reporters,
            strict: self.manner.strict,
            ahead: self.ahead(),
        }
    }

    fn ahead(&self) -> i64 {
        self.ahead.load(Ordering::Acquire)
    }

    /// How many steps were asked for so far, each one round trip.
    #[cfg(feature = "metrics")]
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    // For actors.

    /// Has the store make a step; `None` if it does not say what became of it, for which it has as long as
    /// breakers wait. From then on all of them are on their own.
    pub(super) fn step(
        self: &Arc<Self>,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: Step,
    ) -> impl Future<Output = Option<View>> + 'static + use<> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        let made = asked(|| self.store.step(breaker, config, step));
        let link = Arc::clone(self);
        async move {
            match link.answer(made).await {
                Ok(view) => Some(view),
                Err(error) => {
                    link.lose(error);
                    None
                }
            }
        }
    }

    /// What the store answers, if it does so while breakers wait for it.
    async fn answer<T>(&self, answer: Asked<T>) -> Result<T, StoreError> {
        match timeout(self.manner.timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(self.too_slow()),
        }
    }

    fn too_slow(&self) -> StoreError {
        let waited = humantime::format_duration(self.manner.timeout);
        StoreError::Unreachable(format!("no answer within {waited}").into())
    }

    /// What an actor begins with: `None` while the store is not there.
    pub(super) fn is_joined(&self) -> Option<i64> {
        matches!(*self.state(), State::Joined).then(|| self.ahead())
    }

    pub(super) fn report_corrupt(&self, breaker: &Arc<str>) {
        report::store_corrupt(breaker);
        self.tell(&StoreEvent::Corrupt {
            breaker: Arc::clone(breaker),
            at: self.clock.now(),
        });
    }

    // For who keeps it going.

    /// Adds a breaker, under a name that no other living one has.
    pub(crate) fn enroll(&self, name: &Arc<str>, breaker: &Addr<BreakerActor>) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        // Now and then, so that it does not cost each of very many a look at all others.
        if members.len().is_power_of_two() {
            members.retain(|_, member| member.upgrade().is_some_and(|member| member.connected()));
        }
        members.insert(Arc::clone(name), breaker.downgrade());
    }

    /// Finds out whether the store is there, for at most as long as breakers wait for it.
    pub(crate) async fn contact(&self) -> Result<(), StoreError> {
        let before = self.clock.now();
        let time = self.answer(asked(|| self.store.contact())).await?;
        // A clock that stands still in between is none to measure by more than once.
        if let Some(time) = time
            && (!self.is_measured.swap(true, Ordering::AcqRel) || self.clock.drives_timers())
        {
            let now = self.clock.now().max(before);
            let ahead = difference(time, now);
            if ahead.abs_diff(self.ahead()) > TOLERANCE {
                self.ahead.store(ahead, Ordering::Release);
            }
        }
        Ok(())
    }

    /// The store is there: every breaker joins, or looks at its record again. Many do so one after another, so
    /// that they do not have each other take the store for gone. Tells how long that took.
    pub(crate) async fn join(&self) -> Duration {
        let before = std::mem::replace(&mut *self.state(), State::Joined);
        let members: Vec<_> = self.members().values().cloned().collect();
        let at_once = AT_ONCE.max(members.len().div_ceil(MOST_GROUPS));
        let mut groups = members.chunks(at_once);
        let count = u32::try_from(groups.len()).unwrap_or(u32::MAX);
        let round = self.manner.poll.checked_div(2).unwrap_or_default();
        let pause = round
            .min(LONGEST_ROUND)
            .checked_div(count)
            .unwrap_or_default();
        self.have_join(groups.next().unwrap_or_default());
        if let State::Away(since, _) = before {
            let away = self.clock.now().since(since);
            report::store_recovered(away);
            self.tell(&StoreEvent::Recovered {
                at: self.clock.now(),
                away,
            });
        }
        let mut took = Duration::ZERO;
        for group in groups {
            sleep(pause).await;
            took = took.saturating_add(pause);
            if self.is_away() {
                break;
            }
            self.have_join(group);
        }
        took
    }

    fn have_join(&self, members: &[WeakAddr<BreakerActor>]) {
        let ahead = self.ahead();
        for member in members.iter().filter_map(WeakAddr::upgrade) {
            member.do_send(FromStore::Joined { ahead });
        }
    }

    /// The store is not there: every breaker goes on alone.
    pub(crate) fn lose(&self, error: StoreError) {
        let at = self.clock.now();
        {
            let mut state = self.state();
            if let State::Away(..) = *state {
                return;
            }
            *state = State::Away(at, error.clone());
        }
        self.failed.notify_one();
        self.tell_all(|| FromStore::Cut);
        report::store_degraded(&error);
        self.tell(&StoreEvent::Degraded { at, error });
    }

    /// Waits until the store stops answering.
    pub(crate) async fn until_lost(&self) {
        // What is left of an earlier time tells nothing.
        while !self.is_away() {
            self.failed.notified().await;
        }
    }

    /// Waits until breakers have to look at their records before it is time.
    pub(crate) async fn until_missed(&self) {
        self.missed.notified().await;
    }

    pub(crate) fn is_away(&self) -> bool {
        matches!(*self.state(), State::Away(..))
    }

    /// Since when the store does not answer, and why.
    pub(crate) fn away(&self) -> Option<(Timestamp, StoreError)> {
        match &*self.state() {
            State::Away(since, error) => Some((*since, error.clone())),
            State::New | State::Joined => None,
        }
    }

    /// What the store tells of changes; it ends where the store's code panics.
    pub(crate) fn changes(&self) -> impl Stream<Item = Change> + Send + use<> {
        let mut changes = Quiet::new(caught(|| self.store.changes()).ok());
        futures_util::stream::poll_fn(move |cx| {
            let Some(Some(told)) = changes.get_mut() else {
                return Poll::Ready(None);
            };
            let change = caught(|| told.as_mut().poll_next(cx)).unwrap_or(Poll::Ready(None));
            if let Poll::Ready(None) = change {
                quietly(|| drop(changes.take()));
            }
            change
        })
    }

    /// Passes on what the store tells.
    pub(crate) fn pass_on(&self, change: Change) {
        match change {
            // Who made it has its own answer, and would take this one for somebody else's.
            Change::Made { by, .. } if by == self.process => {}
            Change::Made { breaker, view, .. } => {
                let member = self.members().get(&breaker).and_then(WeakAddr::upgrade);
                if let Some(member) = member {
                    member.do_send(FromStore::Heard(Box::new(view)));
                }
            }
            Change::Missed if self.members().len() <= AT_ONCE => {
                self.tell_all(|| FromStore::Refresh);
            }
            // As many as that look one group after another.
            Change::Missed => self.missed.notify_one(),
        }
    }

    /// Tells an actor of losing the store and finding it again; at once, if it is lost now.
    pub(crate) fn subscribe(&self, subscriber: WeakRecipient<StoreEvent>) {
        if let Some((at, error)) = self.away()
            && let Some(subscriber) = subscriber.upgrade()
        {
            quietly(|| drop(subscriber.try_send(StoreEvent::Degraded { at, error })));
        }
        let mut subscribers = self
            .subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        remove_dead(&mut subscribers);
        subscribers.push(subscriber);
    }

    fn tell(&self, event: &StoreEvent) {
        let living: Vec<_> = {
            let mut subscribers = self
                .subscribers
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            remove_dead(&mut subscribers);
            subscribers
                .iter()
                .filter_map(WeakRecipient::upgrade)
                .collect()
        };
        for subscriber in living {
            // Who has no room misses it.
            quietly(|| drop(subscriber.try_send(event.clone())));
        }
    }

    fn tell_all(&self, message: impl Fn() -> FromStore) {
        for member in self.living() {
            member.do_send(message());
        }
    }

    fn living(&self) -> impl Iterator<Item = Addr<BreakerActor>> + use<> {
        let members: Vec<_> = self.members().values().cloned().collect();
        members.into_iter().filter_map(|member| member.upgrade())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> MutexGuard<'_, HashMap<Arc<str>, WeakAddr<BreakerActor>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remove_dead(subscribers: &mut Vec<WeakRecipient<StoreEvent>>) {
    subscribers.retain(|subscriber| subscriber.upgrade().is_some_and(|one| one.connected()));
}

/// A number for a process. Not of the thread's random numbers, which a program may seed, and another alike.
fn draw_process() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// An answer of the store, whose code is the user's: a panic of it is an error.
type Asked<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Asks the store for something.
fn asked<T: Send + 'static>(
    ask: impl FnOnce() -> BoxFuture<'static, Result<T, StoreError>>,
) -> Asked<T> {
    let panicked = |cause: String| StoreError::Panicked(cause.into());
    let mut answer = match caught(ask) {
        Ok(answer) => Quiet::new(answer),
        Err(cause) => return Box::pin(ready(Err(panicked(cause)))),
    };
    Box::pin(poll_fn(move |cx| match answer.get_mut() {
        Some(answer) => caught(|| answer.as_mut().poll(cx))
            .unwrap_or_else(|cause| Poll::Ready(Err(panicked(cause)))),
        None => Poll::Pending,
    }))
}

/// The destructor of the store is the user's, and may run in an actor.
impl Drop for Link {
    fn drop(&mut self) {
        let store = std::mem::replace(&mut self.store, Arc::new(MemoryStore::new()));
        quietly(|| drop(store));
    }
}

/// How far one instant is ahead of another, in microseconds.
fn difference(ahead: Timestamp, of: Timestamp) -> i64 {
    let span = |from: Timestamp, to: Timestamp| {
        let micros = to.as_micros().saturating_sub(from.as_micros());
        i64::try_from(micros).unwrap_or(i64::MAX)
    };
    span(of, ahead).saturating_sub(span(ahead, of))
}
