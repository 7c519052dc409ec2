//! Where `now` comes from: the trait, the clock of the machine, and a clock for tests.
//! What the time means is decided in [`circuit`](crate::circuit), which never reads a clock.

mod timestamp;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use timestamp::Timestamp;
pub(crate) use timestamp::{micros, span_as_text};

/// A source of the present instant.
///
/// An implementation must not panic and should never go backwards; when it does, the circuit goes on
/// with the newest instant it has seen (R3).
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the present instant.
    fn now(&self) -> Timestamp;

    /// Tells whether the runtime's timers follow this clock. Default: `true`.
    ///
    /// With `false`, as for [`ManualClock`], no timer marks the end of a break, so every rejection
    /// looks at the clock itself, and every success that counts is settled through the mailbox.
    fn drives_timers(&self) -> bool {
        true
    }
}

/// The clock of the machine: the wall clock read once at its creation, plus monotonic time since (R5).
///
/// It never goes back inside a process, whatever is done to the wall clock, and is comparable across
/// processes as well as their wall clocks are. It follows tokio's paused time, which each thread has for
/// itself.
#[derive(Debug, Clone)]
pub struct SystemClock {
    origin: Timestamp,
    started: tokio::time::Instant,
}

impl SystemClock {
    /// Reads the wall clock and starts counting. A wall clock before 1970 counts as 1970.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads a clock (R5)"
    )]
    pub fn new() -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            origin: Timestamp::ZERO + wall,
            started: tokio::time::Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.origin + self.started.elapsed()
    }
}

/// A clock that moves only when told to; for tests of one's own.
///
/// Clones share the same time. It moves breaks, windows, leases and orders; call timeouts stay with the
/// runtime's timers. Where tokio's time can be paused, that is simpler: it moves both.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use actix_circuit_breaker::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.now(), Timestamp::from_micros(2_000_000));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock that shows [`Timestamp::ZERO`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward; it stops at [`Timestamp::MAX`].
    pub fn advance(&self, span: Duration) {
        // The closure always gives a value, so the update cannot fail.
        let _ = self
            .micros
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| {
                Some((Timestamp::from_micros(now) + span).as_micros())
            });
    }

    /// Sets the clock, backwards too, as an operator might set the wall clock of a machine.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn drives_timers(&self) -> bool {
        false
    }
}
