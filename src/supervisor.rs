//! Who owns the breakers: by name, up to a cap, on an arbiter of one's choice.
//! How their actors are kept running is in `supervisor/backoff.rs`.

mod backoff;
mod builder;
mod export;
mod families;
mod health;
mod joining;
#[cfg(feature = "metrics")]
mod metrics;
mod registry;
mod saved;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::dev::channel::{self, AddressReceiver};
use actix::{Addr, ArbiterHandle, WeakRecipient};

pub use backoff::{BackoffSupervisor, EndHandle, GaveUp, RestartPolicy};
pub use builder::BreakersBuilder;
use registry::{Entry, FamilyEntry, Registry};
pub use saved::{Exported, RefusedRecord, RestoreError};

use crate::actor::{BreakerActor, Link};
use crate::breaker::Breaker;
use crate::circuit::{Circuit, Record};
use crate::clock::{Clock, Timestamp};
use crate::config::{BreakerConfig, ConfigError};
use crate::error::CreateError;
use crate::event::{StateChanged, StoreEvent};
use crate::family::Family;
use crate::gate::{Gate, Meter};
use crate::message::Snapshot;
use crate::random::RandomSource;
use crate::report;
use export::tell_refused;

/// The owner of breakers: makes them by name, finds them, removes them.
///
/// Clones own the same breakers. The breakers' actors run on one arbiter, each under a
/// [`BackoffSupervisor`]. A breaker lives as long as its owner or any handle to it does, whatever
/// becomes of the actors that ask and are asked (R30).
///
/// Names often come from outside, so their number is capped. To make room, a breaker may go that nobody
/// would miss: it is closed, remembers nothing, and no handle to it is held (R32).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use actix_circuit_breaker::{BreakerConfig, Breakers, TripPolicy};
///
/// # #[actix::main]
/// # async fn main() {
/// let breakers = Breakers::start();
/// let config = BreakerConfig::builder()
///     .trip(TripPolicy::ConsecutiveFailures { failures: 3, within: None })
///     .call_timeout(Duration::from_millis(500))
///     .build()
///     .unwrap();
///
/// let payments = breakers.create("payments", config.clone()).unwrap();
/// assert_eq!(payments.name(), "payments");
/// // The same name and config: the same breaker.
/// breakers.create("payments", config).unwrap();
/// // Another config: an error, not a silent reuse.
/// breakers.create("payments", BreakerConfig::default()).unwrap_err();
/// # }
/// ```
#[derive(Clone)]
pub struct Breakers {
    shared: Arc<Shared>,
}

/// Whether a breaker was there.
enum Found {
    Known,
    Made,
}

/// What making a breaker cost, to be dropped outside the lock.
#[derive(Default)]
struct Gone {
    /// One of the same name whose actor was gone for good.
    dead: Option<Entry>,
    /// One that made room.
    evicted: Option<Entry>,
    /// A family of the same name whose actor was gone for good.
    dead_family: Option<FamilyEntry>,
    /// Records of another process that it did not take over.
    refused: Vec<RefusedRecord>,
    /// Keys that were taken over with an operator's order.
    ordered: Vec<(Family, String)>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    random: Arc<dyn RandomSource>,
    max_breakers: usize,
    max_keys: usize,
    restart: Arc<RestartPolicy>,
    arbiter: ArbiterHandle,
    registry: Mutex<Registry>,
    /// The way to the store that records are shared through, if they are.
    link: Option<Arc<Link>>,
    #[cfg(feature = "metrics")]
    telemetry: crate::telemetry::Telemetry,
}

impl Breakers {
    /// Starts on the current arbiter, with the defaults.
    ///
    /// # Panics
    ///
    /// Panics outside a running actix system.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts on that arbiter, from any thread, with the defaults.
    pub fn start_in_arbiter(arbiter: &ArbiterHandle) -> Self {
        Self::builder().start_in_arbiter(arbiter)
    }

    /// Starts from the defaults, to change some of them.
    pub fn builder() -> BreakersBuilder {
        BreakersBuilder::default()
    }

    /// Returns the breaker of that name, made now if there is none; from any thread. A breaker whose
    /// actor is gone for good is made anew.
    ///
    /// # Errors
    ///
    /// [`CreateError::Conflict`] when there is one with another config than this (reconfigured ones are
    /// compared by their present config), [`Full`](CreateError::Full) when there is no room and none can
    /// go, [`Name`](CreateError::Name) for an empty name,
    /// [`ArbiterStopped`](CreateError::ArbiterStopped).
    pub fn create(
        &self,
        name: impl AsRef<str>,
        config: BreakerConfig,
    ) -> Result<Breaker, CreateError> {
        self.make(name.as_ref(), |name, now, gone| {
            self.find_or_insert(name, config, now, gone)
        })
    }

    /// Has something made under the lock. No code of the user's runs there: neither a clock, nor a
    /// subscriber of the log, nor the `Drop` of what goes.
    fn make<T>(
        &self,
        name: &str,
        find_or_insert: impl FnOnce(&str, Timestamp, &mut Gone) -> Result<(T, Found), CreateError>,
    ) -> Result<T, CreateError> {
        if name.is_empty() {
            let error = ConfigError::new("name", "\"\"", "at least one character long");
            return Err(CreateError::Name(error));
        }
        let now = self.shared.clock.now();
        let mut gone = Gone::default();
        let created = find_or_insert(name, now, &mut gone);
        tell_refused(&gone.refused);
        for (family, key) in gone.ordered.drain(..) {
            // Awake, it has a timer that ends the order.
            drop(family.breaker(key));
        }
        if let Some(evicted) = &gone.evicted {
            report::evicted(evicted.name());
        }
        match &created {
            Ok((_, Found::Made)) => report::created(name),
            Err(CreateError::Full { max, .. }) => report::full(name, *max),
            _ => {}
        }
        created.map(|(made, _)| made)
    }

    fn find_or_insert(
        &self,
        name: &str,
        config: BreakerConfig,
        now: Timestamp,
        gone: &mut Gone,
    ) -> Result<(Breaker, Found), CreateError> {
        let name_again = || name.to_owned();
        let mut registry = self.registry();
        if let Some(breaker) = registry.find(name) {
            return if breaker.gate().config() == config {
                Ok((breaker, Found::Known))
            } else {
                Err(CreateError::Conflict { name: name_again() })
            };
        }
        if registry.find_family(name).is_some() {
            return Err(CreateError::Conflict { name: name_again() });
        }
        self.make_room(&mut registry, name, now, gone)?;
        let highest_epoch = registry.highest_epoch();
        let record = registry.waiting.take(name, &config);
        gone.refused = registry.waiting.untold();
        // Unbounded: handles do not wait for room, and what they may send is bounded by the gate.
        let (sender, receiver) = channel::channel(0);
        let (gate, end) = self
            .start_actor(
                (name, config, now),
                (record, highest_epoch, self.shared.link.as_ref()),
                (receiver, Meter::default()),
                {
                    let link = self.shared.link.clone();
                    move |circuit, gate| match link {
                        Some(link) => BreakerActor::linked(circuit, gate, link),
                        None => BreakerActor::new(circuit, gate),
                    }
                },
            )
            .ok_or_else(|| CreateError::ArbiterStopped { name: name_again() })?;
        let address = Addr::new(sender);
        if let Some(link) = &self.shared.link {
            link.enroll(gate.name(), &address);
        }
        let entry = Entry::new(Breaker::new(address, gate), end);
        Ok((registry.insert(entry), Found::Made))
    }

    /// Makes room for one of a free name.
    fn make_room(
        &self,
        registry: &mut Registry,
        name: &str,
        now: Timestamp,
        gone: &mut Gone,
    ) -> Result<(), CreateError> {
        gone.dead = registry.remove(name);
        gone.dead_family = registry.remove_family(name);
        let max = self.shared.max_breakers;
        if registry.len() >= max {
            gone.evicted = registry.evict_idle(now);
            if gone.evicted.is_none() {
                return Err(CreateError::Full {
                    name: name.to_owned(),
                    max,
                });
            }
        }
        Ok(())
    }

    /// Makes a circuit, its gate and its actor; `None` if the arbiter has stopped.
    fn start_actor(
        &self,
        (name, config, now): (&str, BreakerConfig, Timestamp),
        (record, highest_epoch, link): (Option<Record>, Option<u64>, Option<&Arc<Link>>),
        (receiver, meter): (AddressReceiver<BreakerActor>, Meter),
        make: impl FnOnce(Circuit, Arc<Gate>) -> BreakerActor + Send + 'static,
    ) -> Option<(Arc<Gate>, EndHandle)> {
        let Shared {
            clock,
            random,
            restart,
            arbiter,
            ..
        } = &*self.shared;
        let shown = config.clone();
        let drawn = Arc::clone(random);
        let written = record.as_ref().map(Record::epoch);
        let mut circuit = match record {
            Some(record) => Circuit::restore_with_random(config, record, drawn, now),
            None => Circuit::with_random(config, drawn, now),
        };
        if let Some(link) = link {
            circuit = circuit.sharing(link.terms(), written);
        }
        if let Some(highest) = highest_epoch {
            circuit = circuit.above_epoch(highest);
        }
        let timed = clock.drives_timers();
        let notice = BreakerActor::first_notice(&circuit, timed, now);
        let gate = Gate::new(&name.into(), clock, random, shown, timed, notice, meter);
        let gate = Arc::new(gate);
        let end = BackoffSupervisor::start_with_receiver(
            arbiter,
            receiver,
            Arc::clone(restart),
            {
                let gate = Arc::clone(&gate);
                move |restarts, cause: &str| {
                    gate.count_restart();
                    report::restarted(gate.name(), restarts, cause);
                }
            },
            {
                let gate = Arc::clone(&gate);
                move |_, _| make(circuit, gate)
            },
        )?;
        Some((gate, end))
    }

    /// Returns the breaker of that name.
    pub fn get(&self, name: &str) -> Option<Breaker> {
        self.registry().find(name)
    }

    /// Removes the breaker or the family of that name and ends its actor; tells whether there was one.
    /// Handles that are held elsewhere guard nothing from then on: their calls pass, with one warning.
    pub fn remove(&self, name: &str) -> bool {
        let (breaker, family) = {
            let mut registry = self.registry();
            (registry.remove(name), registry.remove_family(name))
        };
        breaker.is_some() || family.is_some()
    }

    /// Returns the names of all breakers, sorted; without those of families.
    pub fn names(&self) -> Vec<String> {
        self.registry().names()
    }

    /// Returns how many breakers had to go to make room, so far.
    pub fn evictions(&self) -> u64 {
        self.registry().evictions()
    }

    /// Returns how many breakers there may be.
    pub fn max_breakers(&self) -> usize {
        self.shared.max_breakers
    }

    /// Returns the whole picture of every breaker, sorted by name; those whose actors are gone are left
    /// out.
    ///
    /// The questions are sent now; the future collects the answers. Dropping it loses nothing.
    pub fn snapshots(&self) -> impl Future<Output = Vec<Snapshot>> + Send + 'static + use<> {
        let requests: Vec<_> = self.registry().breakers().map(Breaker::snapshot).collect();
        async move {
            let mut snapshots = Vec::with_capacity(requests.len());
            for request in requests {
                snapshots.extend(request.await);
            }
            snapshots
        }
    }

    /// Tells an actor of every change of every breaker's state, those made later and those of families
    /// included; of each named breaker the present state first. See [`Subscribe`](crate::message::Subscribe).
    pub fn subscribe(&self, subscriber: impl Into<WeakRecipient<StateChanged>>) {
        self.registry().subscribe(subscriber.into());
    }

    /// Tells an actor of losing the store that records are shared through, and of finding it again; at once,
    /// if it is lost now. Without a store there is nothing to tell.
    ///
    /// The subscriber is held weakly; one whose mailbox is full misses the event.
    pub fn subscribe_store(&self, subscriber: impl Into<WeakRecipient<StoreEvent>>) {
        if let Some(link) = &self.shared.link {
            link.subscribe(subscriber.into());
        }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.shared
            .registry
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Breakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breakers")
            .field("names", &self.names())
            .field("max_breakers", &self.max_breakers())
            .finish_non_exhaustive()
    }
}
