//! What a user says about restarts, and what is said back when they are used up.
//! Counting them is left to `restarts`.

use std::{fmt, sync::Arc, time::Duration};

type GiveUpHook = Arc<dyn Fn(GaveUp) + Send + Sync>;

/// Says when a [`BackoffSupervisor`](crate::BackoffSupervisor) restarts an actor, and when no more.
///
/// Every value is allowed; what an odd one means is said at its setter. A policy is plain settings:
/// one may start any number of actors, each with its own count.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use actix_circuit_breaker::RestartPolicy;
///
/// let policy = RestartPolicy::new()
///     .max_restarts(5)
///     .within(Duration::from_secs(60))
///     .backoff(Duration::from_millis(200))
///     .max_backoff(Duration::from_secs(5))
///     .on_give_up(|gave_up| eprintln!("{gave_up}"));
/// # drop(policy);
/// ```
#[derive(Clone)]
#[must_use]
pub struct RestartPolicy {
    pub(super) max_restarts: Option<u32>,
    pub(super) within: Duration,
    pub(super) backoff: Duration,
    pub(super) max_backoff: Duration,
    pub(super) restart_on_stop: bool,
    pub(super) on_give_up: Option<GiveUpHook>,
}

impl RestartPolicy {
    /// Creates the default: restarts without limit, after 100 ms, 200 ms and so on up to 30 s,
    /// from 100 ms again when the actor has lived for 60 s, on panic and on stop.
    ///
    /// There is no limit because an actor given up is gone until the process is started again,
    /// while one restart in 30 s costs next to nothing.
    pub fn new() -> Self {
        Self {
            max_restarts: None,
            within: Duration::from_secs(60),
            backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(30),
            restart_on_stop: true,
            on_give_up: None,
        }
    }

    /// Sets how many restarts there may be [`within`](Self::within) the period; an actor that ends
    /// once more is given up. Default: no limit.
    ///
    /// Zero gives an actor up when it first ends. A limit above 4,096 counts as none, since each
    /// restart within the period is remembered. A limit that the delays leave no room for is never
    /// reached: ten restarts do not fit into a period of 60 s when each waits for 10 s.
    pub fn max_restarts(mut self, restarts: u32) -> Self {
        self.max_restarts = Some(restarts);
        self
    }

    /// Sets the period over which restarts count. Default: 60 s.
    ///
    /// A restart counts for that long. An actor that has lived for that long since its last restart
    /// has got over it: the delay goes back to its first value. With zero, nothing is ever counted:
    /// each delay is the first one and no limit but zero is reached. With [`Duration::MAX`] nothing
    /// is ever forgotten.
    pub fn within(mut self, period: Duration) -> Self {
        self.within = period;
        self
    }

    /// Sets the delay before the first restart, doubled for each further one in a row. Default:
    /// 100 ms.
    ///
    /// No delay is shorter than 1 ms, so that an actor that ends at once leaves the arbiter to the
    /// others. Zero stays at that 1 ms, it does not double.
    pub fn backoff(mut self, first_delay: Duration) -> Self {
        self.backoff = first_delay;
        self
    }

    /// Sets the longest delay. Default: 30 s.
    ///
    /// It holds for the first delay too, if that is set to more. With [`Duration::MAX`] the delays
    /// double on; tokio's timers end after some years.
    pub fn max_backoff(mut self, longest_delay: Duration) -> Self {
        self.max_backoff = longest_delay;
        self
    }

    /// Sets whether an actor that stops is restarted, as under [`actix::Supervisor`]. Default: true.
    ///
    /// With `false` only a panic restarts it, and `ctx.stop()` ends it for good. That is no giving
    /// up: the hook is not called.
    pub fn restart_on_stop(mut self, restart: bool) -> Self {
        self.restart_on_stop = restart;
        self
    }

    /// Sets what is called, once, when an actor is given up. Default: nothing.
    ///
    /// It is called on the actor's arbiter when the actor is gone and its mailbox closed. It must
    /// not block. A panic of it is caught and reported as a `tracing` event. An actor that has no
    /// address left, was ended by its [`EndHandle`](crate::EndHandle) or goes down with its arbiter
    /// is not given up.
    pub fn on_give_up(mut self, hook: impl Fn(GaveUp) + Send + Sync + 'static) -> Self {
        self.on_give_up = Some(Arc::new(hook));
        self
    }
}

/// The same as [`RestartPolicy::new`].
impl Default for RestartPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RestartPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestartPolicy")
            .field("max_restarts", &self.max_restarts)
            .field("within", &self.within)
            .field("backoff", &self.backoff)
            .field("max_backoff", &self.max_backoff)
            .field("restart_on_stop", &self.restart_on_stop)
            .field(
                "on_give_up",
                &self.on_give_up.as_ref().map(|_| format_args!("..")),
            )
            .finish()
    }
}

/// Tells which actor was given up, and why.
#[derive(Clone, Debug)]
pub struct GaveUp {
    pub(super) actor: &'static str,
    pub(super) restarts: u64,
    pub(super) cause: String,
}

impl GaveUp {
    /// Returns the name of the actor's type.
    pub fn actor(&self) -> &'static str {
        self.actor
    }

    /// Returns how often the actor was restarted since it was started.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Returns why it ended last: the text of the panic, or "stopped".
    pub fn cause(&self) -> &str {
        &self.cause
    }
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} given up after {} restarts: {}",
            self.actor, self.restarts, self.cause
        )
    }
}
