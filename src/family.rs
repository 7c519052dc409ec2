//! A breaker per key, of very many keys: what a family is to its users.
//! Where its members are kept is in `family/table.rs`; the actor that runs them is in `actor/members.rs`.

mod call;
mod rest;
mod survey;
mod table;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use actix::dev::channel;
use actix::{Addr, WeakRecipient};

pub use call::FamilyCall;

use crate::actor::{BreakerActor, Keeper, Listeners, Numbers};
use crate::breaker::{Breaker, WeakBreaker, can_wake};
use crate::circuit::{Circuit, CircuitState, Record};
use crate::clock::{Clock, Timestamp};
use crate::config::BreakerConfig;
use crate::event::{HeldDropped, StateChanged};
use crate::gate::{Gate, Meter};
use crate::message::{FollowFamily, GetRecord, Reconfigure, Sampled, Snapshot};
use crate::outcome::{ByReply, Outcome};
use crate::random::RandomSource;
use crate::report;
use rest::{Fate, Woken};
use table::{Found, Table};

/// The longest key that is guarded, in bytes. A host name has at most 253.
const LONGEST_KEY: usize = 1_024;

/// Breakers of one kind, one for each key: a host, a tenant, a shard. Made by
/// [`Breakers::family`](crate::Breakers::family).
///
/// [`breaker`](Self::breaker) gives the breaker of a key, which is a [`Breaker`] like any other; all of
/// them are run by one actor. A key whose breaker is closed and remembers nothing costs nothing. Any other
/// is kept for as long as it can matter (R31) and forgotten then, by itself.
///
/// # Keys that strangers choose
///
/// At most [`max_keys`](Self::max_keys) keys are kept. One that finds no room gets a breaker that guards
/// nothing: its calls pass, and nobody else's are touched. The log warns of it and
/// [`unguarded`](Self::unguarded) counts it. So does a key that is empty or longer than 1,024 bytes. Only
/// what is closed, remembers nothing and is held by nobody goes to make room (R32).
///
/// # What differs from a named breaker
///
/// - The breaker's name is that of the family, a slash, and the key: `hosts/example.org`.
/// - No timer marks the end of a break, so while open each rejection looks at the clock.
/// - Under a rate policy each success is a message to the family's actor.
/// - [`Snapshot::calls`](crate::circuit::Snapshot::calls), `held_counts` and `restarts` begin anew when a
///   breaker was held by nobody; the `seq` of its events when its key was forgotten, while epochs go on.
/// - Who listens to the family and to one of its keys hears of that key twice.
/// - Under a clock that drives no timers, the end of a forced-closed order is told only if its key is looked
///   at before it is forgotten.
///
/// # Examples
///
/// ```
/// use actix_circuit_breaker::{BreakerConfig, Breakers, CircuitState};
///
/// # #[actix::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hosts = Breakers::start().family("hosts", BreakerConfig::default())?;
///
/// for _ in 0..5 {
///     let sent: Result<(), _> = hosts.call("down.example", async { Err("no route") }).await;
///     sent.unwrap_err();
/// }
/// assert_eq!(hosts.breaker("down.example").state(), CircuitState::Open);
/// assert_eq!(hosts.breaker("well.example").state(), CircuitState::Closed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Family {
    shared: Arc<Shared>,
}

/// What makes a family.
pub(crate) struct Parts {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn RandomSource>,
    pub(crate) config: BreakerConfig,
    pub(crate) max_keys: usize,
    /// The highest epoch that the family's owner has given out before.
    pub(crate) highest_epoch: Option<u64>,
    /// The actor that runs the members.
    pub(crate) head: Addr<BreakerActor>,
    /// Those who listen to all members.
    pub(crate) listeners: Arc<Listeners>,
}

struct Shared {
    name: Arc<str>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    config: Mutex<BreakerConfig>,
    /// Held while settings are given, so that all members get them in one order.
    reconfiguring: Mutex<()>,
    head: Addr<BreakerActor>,
    listeners: Arc<Listeners>,
    /// What breakers that guard nothing have for an address.
    nobody: Addr<BreakerActor>,
    table: Table,
    unguarded: AtomicU64,
    /// What all members count together, that of their calls which are guarded.
    meter: Meter,
    /// Where the calls of breakers that guard nothing are lost.
    nowhere: Meter,
    /// Whether the head is gone for good.
    retired: AtomicBool,
    me: Weak<Shared>,
}

impl Family {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts {
            name,
            clock,
            random,
            config,
            max_keys,
            highest_epoch,
            head,
            listeners,
        } = parts;
        let shared = Arc::new_cyclic(|me| Shared {
            name,
            clock,
            random,
            table: Table::new(max_keys, highest_epoch.unwrap_or(0), &config),
            config: Mutex::new(config),
            reconfiguring: Mutex::default(),
            head,
            listeners,
            nobody: Addr::new(channel::channel(0).0),
            unguarded: AtomicU64::new(0),
            meter: Meter::default(),
            nowhere: Meter::default(),
            retired: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        Self { shared }
    }

    /// Returns the breaker of that key; from any thread.
    ///
    /// Holding it keeps it; so hold it while you use it, not for ever.
    pub fn breaker(&self, key: impl AsRef<str>) -> Breaker {
        self.shared.breaker(key.as_ref())
    }

    /// Guards a future of a `Result` by the breaker of that key; as [`Breaker::call`].
    ///
    /// The same as `family.breaker(key).call(future)`, but quicker: a call of a key that has nothing to
    /// remember, and that is ready at once, finds and leaves nothing.
    ///
    /// # Errors
    ///
    /// # Panics
    ///
    /// # Cancel safety
    ///
    /// As [`Breaker::call`].
    pub fn call<'f, F, T, E>(&'f self, key: &'f str, future: F) -> FamilyCall<'f, F>
    where
        F: Future<Output = Result<T, E>>,
        E: 'static,
    {
        FamilyCall::new(&self.shared, key, future, ByReply)
    }

    /// Guards as [`call`](Self::call) does; `classify` says the outcome of the result.
    pub fn call_with<'f, F, T, E, C>(
        &'f self,
        key: &'f str,
        future: F,
        classify: C,
    ) -> FamilyCall<'f, F, C>
    where
        F: Future<Output = Result<T, E>>,
        E: 'static,
        C: Fn(&Result<T, E>) -> Outcome,
    {
        FamilyCall::new(&self.shared, key, future, classify)
    }

    /// Returns the family's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the settings of keys that have none of their own.
    pub fn config(&self) -> BreakerConfig {
        self.shared.config()
    }

    /// Returns the keys that are not closed and empty, or are held by somebody; sorted. One that was held
    /// until now may be among them for a moment.
    pub fn keys(&self) -> Vec<String> {
        self.shared.tidy();
        let mut keys = self.shared.table.keys();
        keys.sort_unstable();
        keys
    }

    /// Tells whether [`keys`](Self::keys) would name that key.
    pub fn contains(&self, key: impl AsRef<str>) -> bool {
        self.shared.tidy();
        self.shared.table.contains(key.as_ref())
    }

    /// Returns how many keys [`keys`](Self::keys) would name.
    pub fn len(&self) -> usize {
        self.shared.tidy();
        self.shared.table.len()
    }

    /// Tells whether all keys are closed and empty, and held by nobody.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many keys are kept at most.
    pub fn max_keys(&self) -> usize {
        self.shared.table.max()
    }

    /// Returns how often a breaker was given out that guards nothing: there was no room for its key, or
    /// the key was empty or too long.
    pub fn unguarded(&self) -> u64 {
        self.shared.unguarded.load(Ordering::Relaxed)
    }

    /// Gives all keys other settings, without losing their state (R35). Those that were given settings of
    /// their own, by [`Breaker::reconfigure`], keep them, and are never forgotten.
    pub fn reconfigure(&self, config: BreakerConfig) {
        let shared = &self.shared;
        let giving = shared.reconfiguring.lock();
        let giving = giving.unwrap_or_else(PoisonError::into_inner);
        shared.table.set_config(&config);
        let before = {
            let mut present = shared.config.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *present, config.clone())
        };
        // Who wakes from now on finds the new ones. Those that are awake are held here, so that none of them
        // goes to rest with the lifetime of before.
        let awake = shared.table.awake();
        let longer = config.margin().saturating_sub(before.margin());
        shared.table.keep_longer(longer);
        let order = Reconfigure::of_family(config, before);
        for member in awake {
            member.addr().do_send(order.clone());
        }
        drop(giving);
    }

    /// Returns the whole picture of every key that [`keys`](Self::keys) names, in that order.
    ///
    /// Dropping the future loses nothing.
    pub fn snapshots(&self) -> impl Future<Output = Vec<Snapshot>> + Send + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        let keys = self.keys();
        async move {
            let mut snapshots = Vec::with_capacity(keys.len());
            for key in keys {
                let request = shared.breaker(&key).snapshot();
                snapshots.extend(request.await);
            }
            snapshots
        }
    }

    /// What every key that is not closed and empty remembers, with its settings.
    pub(crate) fn records(
        &self,
    ) -> impl Future<Output = Vec<(String, BreakerConfig, Record)>> + Send + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        let keys = self.keys();
        async move {
            let mut records = Vec::with_capacity(keys.len());
            for key in keys {
                let request = shared.breaker(&key).addr().send(GetRecord);
                if let Ok((config, record)) = request.await {
                    records.push((key, config, record));
                }
            }
            records
        }
    }

    /// Takes over the record of a key from another process; `None` if there is no room.
    pub(crate) fn take_over(&self, key: &str, record: Record, now: Timestamp) -> Option<()> {
        if !is_guarded(key) {
            return None;
        }
        let shared = &self.shared;
        let random = Arc::clone(&shared.random);
        let circuit = Circuit::restore_with_random(shared.config(), record, random, now);
        let circuit = shared.above_forgotten(circuit);
        // One that says nothing is not needed.
        match Fate::restored(&circuit, now) {
            Fate::Rest(rest) => shared.table.lay_down(key, rest),
            Fate::Forgotten { .. } => Some(()),
        }
    }

    /// Tells an actor of every change of the state of every key, from now on. Other than with a named
    /// breaker it is not told the present states first, for there may be very many.
    pub fn subscribe(&self, subscriber: impl Into<WeakRecipient<StateChanged>>) {
        let subscriber = FollowFamily::Changes(subscriber.into());
        self.shared.head.do_send(subscriber);
    }

    /// Tells an actor of every message of every key that was to wait and was not sent; see
    /// [`SubscribeDrops`](crate::message::SubscribeDrops).
    pub fn subscribe_drops(&self, subscriber: impl Into<WeakRecipient<HeldDropped>>) {
        let subscriber = FollowFamily::Drops(subscriber.into());
        self.shared.head.do_send(subscriber);
    }

    /// Makes known that the family's actor is gone for good; returns the highest epoch given out.
    pub(crate) fn retire(&self) -> u64 {
        Keeper::retire(&*self.shared);
        self.shared.table.highest_epoch()
    }

    /// Whether its actor is not gone for good.
    pub(crate) fn is_alive(&self) -> bool {
        self.shared.head.connected()
    }

    /// What all members count together.
    pub(crate) fn meter(&self) -> &Meter {
        &self.shared.meter
    }

    /// How many keys are closed, open, half-open, forced open and forced closed.
    #[cfg(feature = "metrics")]
    pub(crate) fn states(&self) -> [u64; 5] {
        self.shared.table.states(self.shared.clock.now())
    }

    /// The actor that runs the members.
    pub(crate) fn head(&self) -> &Addr<BreakerActor> {
        &self.shared.head
    }

    /// What keeps the members, for the head.
    pub(crate) fn keeper(&self) -> Weak<dyn Keeper> {
        self.shared.me.clone()
    }
}

impl Shared {
    fn config(&self) -> BreakerConfig {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        config.clone()
    }

    fn breaker(&self, key: &str) -> Breaker {
        if let Some(member) = self.table.find(key) {
            return member;
        }
        if !is_guarded(key) {
            return self.unguarded(key);
        }
        // No code of the user's runs under a lock of the table; the clock is the user's.
        let now = self.clock.now();
        let config = self.config();
        // Nor does the destructor of settings that are outdated.
        let mut outdated = None;
        let found = self.table.find_or_wake(key, now, &config, |key, rest| {
            // Read here, so that whoever gives new ones meanwhile finds this member, or is found.
            let config = self.config();
            let woken = match rest {
                Some(rest) => {
                    outdated = Some(rest.config().clone());
                    rest.wake(&config, &self.random, now)
                }
                None => self.born(config, now),
            };
            self.wake(key, woken, now)
        });
        drop(outdated);
        match found {
            Some(Found::Known(member)) => member,
            Some(Found::Woken(member)) => {
                if self.retired.load(Ordering::Acquire) || !self.head.connected() {
                    member.gate().retire();
                }
                // The end of an order is waited for by a timer, which the head sets.
                let state = member.gate().load().state();
                let is_forced =
                    matches!(state, CircuitState::ForcedOpen | CircuitState::ForcedClosed);
                // From a thread that is ending nobody can be woken; who comes next does that.
                if is_forced && can_wake() {
                    member.addr().do_send(Sampled);
                }
                member
            }
            None => self.unguarded(key),
        }
    }

    /// A circuit for a key that nothing is known of.
    fn born(&self, config: BreakerConfig, now: Timestamp) -> Woken {
        let circuit = Circuit::with_random(config, Arc::clone(&self.random), now);
        let circuit = self.above_forgotten(circuit);
        let born = circuit.record().epoch();
        Woken {
            circuit,
            numbers: Numbers::default(),
            born,
            own: false,
        }
    }

    /// With an epoch above all those that were given out to keys that are forgotten (R1).
    fn above_forgotten(&self, circuit: Circuit) -> Circuit {
        match self.table.highest_forgotten() {
            0 => circuit,
            highest => circuit.above_epoch(highest),
        }
    }

    fn wake(&self, key: &Arc<str>, woken: Woken, now: Timestamp) -> Breaker {
        let Woken {
            circuit,
            numbers,
            born,
            own,
        } = woken;
        let notice = BreakerActor::first_notice(&circuit, false, now);
        let config = circuit.config().clone();
        let name = [&self.name, "/", key].concat().into();
        let meter = self.meter.clone();
        let (clock, random) = (&self.clock, &self.random);
        let gate = Gate::new(&name, clock, random, config, false, notice, meter);
        let gate = Arc::new(gate);
        let keeper = self.me.clone();
        Breaker::member(
            &self.head,
            keeper,
            Arc::clone(key),
            born,
            Arc::clone(&gate),
            |me| {
                let listeners = Arc::clone(&self.listeners);
                BreakerActor::member(circuit, gate, numbers, own, me, listeners)
            },
        )
    }

    /// A breaker that guards nothing.
    fn unguarded(&self, key: &str) -> Breaker {
        let before = self.unguarded.fetch_add(1, Ordering::Relaxed);
        // Once, twice, four times, …: strangers who choose keys cannot flood the log.
        if before.saturating_add(1).is_power_of_two() {
            report::family_full(&self.name, key.len(), self.table.max(), before);
        }
        let now = self.clock.now();
        let Woken { circuit, .. } = self.born(self.config(), now);
        let notice = BreakerActor::first_notice(&circuit, false, now);
        let name = [&self.name, "/", key].concat().into();
        let meter = self.nowhere.clone();
        let (clock, random) = (&self.clock, &self.random);
        let gate = Gate::new(&name, clock, random, self.config(), false, notice, meter);
        gate.retire();
        gate.warn_once();
        Breaker::new(self.nobody.clone(), Arc::new(gate))
    }

    /// Forgets what does not matter any more.
    fn tidy(&self) {
        let now = self.clock.now();
        let config = self.config();
        self.table.tidy(&config, now);
    }
}

/// Whether a key is of a length that is guarded.
fn is_guarded(key: &str) -> bool {
    !key.is_empty() && key.len() <= LONGEST_KEY
}

impl Keeper for Shared {
    fn put_away(&self, key: &str, me: &WeakBreaker, is_empty: &mut dyn FnMut() -> bool) -> bool {
        let now = self.clock.now();
        let config = self.config();
        self.table
            .put_away(key, &config, now, |member| member.is(me) && is_empty())
    }

    fn tidy(&self) {
        Self::tidy(self);
    }

    fn retire(&self) {
        // Before those that are awake are looked for: who wakes from now on sees it.
        self.retired.store(true, Ordering::Release);
        for member in self.table.awake() {
            member.gate().retire();
        }
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family")
            .field("name", &self.name())
            .field("keys", &self.shared.table.len())
            .field("max_keys", &self.max_keys())
            .finish_non_exhaustive()
    }
}
