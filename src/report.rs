//! What is told to `tracing`, and only told: nothing here can change or stop a breaker.
//! Every report runs after the decision it is about, and a subscriber that panics is caught.

use std::time::Duration;

use tracing::{debug, debug_span, error, info, warn};

use crate::caught::{Quiet, caught, quietly};
use crate::circuit::Panicked;
use crate::clock::Timestamp;
use crate::event::{HeldDropped, StateChanged};
use crate::store::StoreError;

/// One target for everything, to filter by.
const TARGET: &str = "actix_circuit_breaker";

pub(crate) fn transition(event: &StateChanged) {
    quietly(|| {
        let evidence = &event.evidence;
        info!(
            target: TARGET,
            breaker = &*event.breaker,
            from = %event.from,
            to = %event.to,
            cause = %event.cause,
            at = event.at.as_micros(),
            epoch = event.epoch,
            seq = event.seq,
            failures = evidence.failures,
            slow_calls = evidence.slow_calls,
            samples = evidence.samples,
            attempt = evidence.attempt,
            until = evidence.until.map(Timestamp::as_micros),
            reason = evidence.reason.as_deref(),
            simulated = event.simulated,
            "circuit breaker changed its state"
        );
    });
}

pub(crate) fn order(breaker: &str, order: &str, ttl: Option<Duration>, reason: Option<&str>) {
    quietly(|| {
        info!(
            target: TARGET,
            breaker,
            order,
            ttl = ttl.map(|ttl| tracing::field::display(humantime::format_duration(ttl))),
            reason,
            "circuit breaker was given an order"
        );
    });
}

pub(crate) fn store_degraded(error: &StoreError) {
    quietly(|| {
        warn!(
            target: TARGET,
            error = %error,
            "the store of circuit breakers does not answer: each process is on its own"
        );
    });
}

pub(crate) fn store_recovered(away: Duration) {
    quietly(|| {
        info!(
            target: TARGET,
            away = %humantime::format_duration(away),
            "the store of circuit breakers answers again"
        );
    });
}

pub(crate) fn store_corrupt(breaker: &str) {
    quietly(|| {
        warn!(
            target: TARGET,
            breaker, "the shared record of a circuit breaker cannot be read, and counts as none"
        );
    });
}

pub(crate) fn lost_probes(breaker: &str, probes: u64) {
    quietly(|| {
        warn!(
            target: TARGET,
            breaker,
            probes, "circuit breaker passed on the slots of probes that were never settled"
        );
    });
}

pub(crate) fn held_dropped(event: &HeldDropped) {
    quietly(|| {
        warn!(
            target: TARGET,
            breaker = &*event.breaker,
            why = %event.why,
            held_for = %humantime::format_duration(event.held_for),
            at = event.at.as_micros(),
            seq = event.seq,
            "a message that was to wait in a circuit breaker was not sent"
        );
    });
}

pub(crate) fn decision_panicked(breaker: &str, panicked: Panicked) {
    let code = match panicked {
        Panicked::TripRule => "trip rule",
        Panicked::RandomSource => "random source",
    };
    quietly(|| error!(target: TARGET, breaker, code, "user code panicked in a circuit breaker"));
}

pub(crate) fn classifier_panicked(breaker: &str, cause: &str) {
    quietly(|| {
        error!(
            target: TARGET,
            breaker,
            code = "classifier",
            cause,
            "user code panicked in a circuit breaker"
        );
    });
}

pub(crate) fn restarted(breaker: &str, restarts: u64, cause: &str) {
    quietly(|| warn!(target: TARGET, breaker, restarts, cause, "circuit breaker was restarted"));
}

pub(crate) fn unguarded(breaker: &str) {
    quietly(|| {
        warn!(
            target: TARGET,
            breaker,
            "circuit breaker is gone for good, calls pass unguarded"
        );
    });
}

pub(crate) fn created(breaker: &str) {
    quietly(|| debug!(target: TARGET, breaker, "circuit breaker was made"));
}

pub(crate) fn evicted(breaker: &str) {
    quietly(|| info!(target: TARGET, breaker, "idle circuit breaker was evicted to make room"));
}

pub(crate) fn family_full(family: &str, key_bytes: usize, max: usize, before: u64) {
    quietly(|| {
        warn!(
            target: TARGET,
            family,
            key_bytes,
            max,
            unguarded_before = before,
            "no room for another key in a family of circuit breakers: its calls pass unguarded"
        );
    });
}

pub(crate) fn record_refused(breaker: &str, error: &(dyn std::error::Error + 'static)) {
    quietly(|| {
        warn!(
            target: TARGET,
            breaker,
            error,
            "a record written by another process was refused: the circuit breaker starts closed"
        );
    });
}

pub(crate) fn full(breaker: &str, max: usize) {
    quietly(|| warn!(target: TARGET, breaker, max, "no room for another circuit breaker"));
}

/// The span of one guarded call. Boxed, and only where somebody listens at debug level, so that a
/// future carries no more than a pointer for it.
pub(crate) struct CallSpan(Option<Box<Quiet<tracing::Span>>>);

impl CallSpan {
    #[inline]
    pub(crate) fn new(name: &str) -> Self {
        if tracing::level_filters::LevelFilter::current() >= tracing::Level::DEBUG {
            Self::listened(name)
        } else {
            Self(None)
        }
    }

    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Whether nobody listens.
    #[inline]
    pub(crate) const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    #[cold]
    fn listened(breaker: &str) -> Self {
        let span = caught(
            || debug_span!(target: TARGET, "guarded_call", breaker, result = tracing::field::Empty),
        );
        let span = span.ok().filter(|span| !span.is_disabled());
        Self(span.map(|span| Box::new(Quiet::new(span))))
    }

    /// Says how the call ended, in the span.
    pub(crate) fn end(&self, result: &'static str) {
        if let Some(span) = self.0.as_ref().and_then(|span| span.get()) {
            quietly(|| {
                span.record("result", result);
            });
        }
    }

    /// Runs `poll` inside the span.
    #[inline]
    pub(crate) fn run<R>(&self, poll: impl FnOnce() -> R) -> R {
        match self.0.as_ref().and_then(|span| span.get()) {
            None => poll(),
            Some(span) => run_in(span, poll),
        }
    }
}

#[cold]
fn run_in<R>(span: &tracing::Span, poll: impl FnOnce() -> R) -> R {
    // Entered by hand: only the subscriber's part may be caught, not the poll.
    let _entered = caught(|| Quiet::new(span.enter()));
    poll()
}
