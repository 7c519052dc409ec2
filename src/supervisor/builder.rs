//! How breakers are to be owned, before they are: collected setting by setting.
//! What each setting does is in the files of what it sets.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Arbiter, ArbiterHandle};

use super::{Breakers, RestartPolicy, Shared, joining};
use crate::actor::{Link, Manner};
use crate::clock::{Clock, SystemClock};
use crate::random::{RandomSource, ThreadRandom};
use crate::store::{Consistency, Store};

/// How many breakers there may be at most, unless it is set otherwise.
const MAX_BREAKERS: usize = 1_024;

/// How many keys a family keeps at most, unless it is set otherwise.
const MAX_KEYS: usize = 100_000;

/// How long a breaker waits for its store, unless it is set otherwise.
const STORE_TIMEOUT: Duration = Duration::from_millis(50);

/// The longest that a breaker waits for its store.
const LONGEST_STORE_TIMEOUT: Duration = Duration::from_millis(90);

/// The shortest time after which breakers look at their shared records again.
const SHORTEST_STORE_POLL: Duration = Duration::from_millis(100);

/// How often breakers look at their shared records, unless it is set otherwise.
const STORE_POLL: Duration = Duration::from_secs(5);

/// Collects how breakers are owned, for [`Breakers::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it is started"]
pub struct BreakersBuilder {
    clock: Option<Arc<dyn Clock>>,
    random: Arc<dyn RandomSource>,
    max_breakers: usize,
    max_keys: usize,
    restart: RestartPolicy,
    store: Option<Arc<dyn Store>>,
    manner: Manner,
}

impl Default for BreakersBuilder {
    fn default() -> Self {
        Self {
            clock: None,
            random: Arc::new(ThreadRandom),
            max_breakers: MAX_BREAKERS,
            max_keys: MAX_KEYS,
            restart: RestartPolicy::new(),
            store: None,
            manner: Manner {
                strict: false,
                min_reporters: 1,
                timeout: STORE_TIMEOUT,
                poll: STORE_POLL,
            },
        }
    }
}

impl BreakersBuilder {
    /// Sets the clock. Default: a [`SystemClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets where jitter and the draws of a ramp-up come from. Default: the thread's own generator.
    pub fn random(mut self, random: Arc<dyn RandomSource>) -> Self {
        self.random = random;
        self
    }

    /// Sets how many breakers there may be, each family being one. Default: 1,024.
    pub fn max_breakers(mut self, max: usize) -> Self {
        self.max_breakers = max;
        self
    }

    /// Sets how many keys each [`Family`](crate::Family) keeps at most: those that are not closed and empty, or are held
    /// by somebody. Default: 100,000.
    pub fn max_keys(mut self, max: usize) -> Self {
        self.max_keys = max;
        self
    }

    /// Sets how the breakers' own actors are restarted. Default: [`RestartPolicy::new`].
    pub fn restart(mut self, policy: RestartPolicy) -> Self {
        self.restart = policy;
        self
    }

    /// Shares the records of named breakers through a store, with the other processes that have breakers of
    /// the same names there. Families stay with their process. Default: none.
    ///
    /// See [`store`](crate::store) for what holds across processes, and what does not.
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Sets when the store is asked. Default: [`Consistency::Eventual`].
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.manner.strict = consistency == Consistency::Strict;
        self
    }

    /// Sets how many processes must have reported failures of the window before the shared record trips, so
    /// that one sick machine does not open it for all. Default: 1; 0 is taken for 1.
    ///
    /// A process that has seen enough failures itself to trip does so for itself alone, and recovers by
    /// itself.
    pub fn min_reporters(mut self, min_reporters: u32) -> Self {
        self.manner.min_reporters = min_reporters.max(1);
        self
    }

    /// Sets how long a breaker waits for the store before it goes on alone. Default: 50 ms; at most 90 ms,
    /// which keeps it below the 100 ms that a failing caller waits for its breaker (R21); more counts as 90 ms.
    ///
    /// It is waited for by callers whose call failed, and by those who would be probes.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.manner.timeout = timeout.min(LONGEST_STORE_TIMEOUT);
        self
    }

    /// Sets how often each breaker looks at its shared record, in case that it was not told of a change.
    /// Default: 5 s; at least 100 ms.
    pub fn store_poll(mut self, every: Duration) -> Self {
        self.manner.poll = every.max(SHORTEST_STORE_POLL);
        self
    }

    /// Starts on the current arbiter.
    ///
    /// # Panics
    ///
    /// Panics outside a running actix system.
    #[track_caller]
    pub fn start(self) -> Breakers {
        #[expect(
            clippy::expect_used,
            reason = "the documented panic of actix's own `start`"
        )]
        let arbiter = Arbiter::try_current()
            .expect("`Breakers::start` needs a running actix system on this thread");
        self.start_in_arbiter(&arbiter)
    }

    /// Starts on that arbiter, from any thread.
    pub fn start_in_arbiter(self, arbiter: &ArbiterHandle) -> Breakers {
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let link = self.store.map(|store| {
            let link = Arc::new(Link::new(store, self.manner, Arc::clone(&clock)));
            joining::start(&link, arbiter);
            link
        });
        Breakers {
            shared: Arc::new(Shared {
                clock,
                link,
                random: self.random,
                max_breakers: self.max_breakers,
                max_keys: self.max_keys,
                restart: Arc::new(self.restart),
                arbiter: arbiter.clone(),
                registry: Mutex::default(),
                #[cfg(feature = "metrics")]
                telemetry: crate::telemetry::Telemetry::default(),
            }),
        }
    }
}

impl fmt::Debug for BreakersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakersBuilder")
            .field("clock", &self.clock)
            .field("max_breakers", &self.max_breakers)
            .field("restart", &self.restart)
            .finish_non_exhaustive()
    }
}
