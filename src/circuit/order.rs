//! An operator's orders: force open or closed, release, reset, reconfigure (R23, R24, R35).
//! How the phase changes with them is in [`circuit`](super).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::record::Phase;
use super::shared::Action;
use super::window::Memory;
use super::{Cause, Circuit, Evidence};
use crate::clock::Timestamp;
use crate::config::{BreakerConfig, ConfigError, span};

/// An operator's order that outranks everything until it is lifted or its time is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) kind: OrderKind,
    pub(super) until: Option<Timestamp>,
    pub(super) reason: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OrderKind {
    Open,
    Closed,
}

impl Order {
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Circuit {
    /// Rejects all calls until [`release`](Self::release), or for `ttl` (R23).
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names `ttl` when it is zero or longer than 2^53 - 1 µs; nothing
    /// changes then.
    pub fn force_open(
        &mut self,
        ttl: Option<Duration>,
        reason: impl Into<Arc<str>>,
        now: Timestamp,
    ) -> Result<(), ConfigError> {
        self.force(OrderKind::Open, ttl, reason.into(), now)
    }

    /// Admits all calls, whatever their outcomes, until [`release`](Self::release), or for `ttl` (R23).
    ///
    /// # Errors
    ///
    /// As [`force_open`](Self::force_open).
    pub fn force_closed(
        &mut self,
        ttl: Option<Duration>,
        reason: impl Into<Arc<str>>,
        now: Timestamp,
    ) -> Result<(), ConfigError> {
        self.force(OrderKind::Closed, ttl, reason.into(), now)
    }

    pub(super) fn force(
        &mut self,
        kind: OrderKind,
        ttl: Option<Duration>,
        reason: Arc<str>,
        now: Timestamp,
    ) -> Result<(), ConfigError> {
        let ttl = ttl.map(|ttl| span("ttl", ttl)).transpose()?;
        let now = self.begin(now);
        self.record.newest = now;
        let known = self.shared_version();
        let told = Action::Force {
            kind: kind.into(),
            ttl,
            reason: Arc::clone(&reason),
        };
        let order = Order {
            kind,
            until: ttl.map(|ttl| now + ttl),
            reason,
        };
        if let Phase::Forced(present) = &mut self.record.phase
            && present.kind == kind
        {
            *present = order;
            self.tell_order(told, known, now);
            return Ok(());
        }
        self.record.attempt = 0;
        self.enter(
            Phase::Forced(order),
            Cause::Forced,
            Evidence::default(),
            now,
        );
        self.tell_order(told, known, now);
        Ok(())
    }

    /// Lifts an order: the circuit is closed and empty. Without an order it does nothing (R23).
    pub fn release(&mut self, now: Timestamp) {
        let now = self.begin(now);
        if matches!(self.record.phase, Phase::Forced(_)) {
            let known = self.shared_version();
            self.record.newest = now;
            self.close(Cause::Released, Evidence::default(), now);
            self.tell_order(Action::Release, known, now);
        }
    }

    /// Forgets everything but an order: the circuit is closed and empty, and outcomes of calls that
    /// are under way come late (R24).
    pub fn reset(&mut self, now: Timestamp) {
        let now = self.begin(now);
        let known = self.shared_version();
        self.record.newest = now;
        if matches!(self.record.phase, Phase::Forced(_)) {
            self.record.attempt = 0;
            self.record.epoch = self.epoch_after(Cause::Reset, now);
            self.note_own_change(Cause::Reset, now);
        } else {
            self.close(Cause::Reset, Evidence::default(), now);
        }
        self.tell_order(Action::Reset, known, now);
    }

    /// Cuts a break that is longer than the settings allow (R3).
    pub(super) fn cap_break(&mut self, now: Timestamp) {
        if let Phase::Open { until } = &mut self.record.phase {
            *until = (*until).min(now + self.config.longest_break());
        }
    }

    /// Goes on with other settings, which bind from the next step (R35). Another trip policy empties
    /// the closed window, a break that would be longer than the new longest one is cut, and a ramp-up
    /// ends if the new settings have none; everything else stays. An equal config does nothing.
    pub fn reconfigure(&mut self, config: BreakerConfig, now: Timestamp) {
        let now = self.begin(now);
        if config == self.config {
            return;
        }
        self.record.newest = now;
        if config.trip() != self.config.trip()
            && let Some(memory) = self.record.phase.memory_mut()
        {
            *memory = Memory::new(&config);
        }
        self.config = config;
        self.cap_break(now);
        self.end_ramp(now);
    }
}
