//! The meter without the feature `metrics`: it has no size and does nothing.

use std::time::Duration;

use crate::circuit::{Calls, Cause, CircuitState, Reason};

/// Counts nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(());

/// Adds up nothing.
#[derive(Debug, Default)]
pub(crate) struct Account(());

#[expect(
    clippy::unused_self,
    reason = "as the meter that counts, but nothing is left of it"
)]
impl Meter {
    #[inline(always)]
    pub(crate) fn success(&self) {}

    #[inline(always)]
    pub(crate) fn late(&self) {}

    #[inline(always)]
    pub(crate) fn ignored(&self) {}

    #[inline(always)]
    pub(crate) fn reject(&self, _: Reason) {}

    #[inline(always)]
    pub(crate) fn simulate(&self, _: Reason) {}

    #[inline(always)]
    pub(crate) fn hold(&self, _: bool) {}

    #[inline(always)]
    pub(crate) fn let_go(&self, _: bool) {}

    #[inline(always)]
    pub(crate) fn measure(&self, _: impl FnOnce() -> Option<Duration>) {}

    #[inline(always)]
    pub(crate) fn restarted(&self) {}

    #[inline(always)]
    pub(crate) fn transition(&self, _: CircuitState, _: CircuitState, _: Cause) {}
}

#[expect(
    clippy::unused_self,
    reason = "as the account that adds up, but nothing is left of it"
)]
impl Account {
    #[inline(always)]
    pub(crate) fn timed_out(&mut self) {}

    #[inline(always)]
    pub(crate) fn hold(&mut self, _: usize, _: &Meter) {}

    #[inline(always)]
    pub(crate) fn close(&mut self, _: &Calls, _: &Meter) {}
}
