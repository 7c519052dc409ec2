//! Which of the calls that a breaker refuses are rejected (R37). What becomes of the others is left to those
//! who ask.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::circuit::Reason;
use crate::random::{RandomSource, draw};

/// The share of refused calls that is rejected, and what is drawn from.
pub(crate) struct Dial {
    /// Its bits.
    share: AtomicU64,
    random: Arc<dyn RandomSource>,
}

impl Dial {
    /// Rejects all.
    pub(crate) fn new(random: Arc<dyn RandomSource>) -> Self {
        Self {
            share: AtomicU64::new(1.0_f64.to_bits()),
            random,
        }
    }

    pub(crate) fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, share: f64) {
        self.share.store(share.to_bits(), Ordering::Relaxed);
    }

    /// Draws whether a call that is refused for `reason` goes to its target all the same. What an operator
    /// ordered is no matter of chance. Where all are rejected or none, nothing is drawn. A source that panics
    /// counts as 0, and is told to `panicked`.
    pub(crate) fn spares(&self, reason: Reason, panicked: impl FnOnce()) -> bool {
        if reason == Reason::ForcedOpen {
            return false;
        }
        let share = self.share();
        if share <= 0.0 || share >= 1.0 {
            return share < 1.0;
        }
        let drawn = draw(&*self.random).unwrap_or_else(|| {
            panicked();
            0.0
        });
        drawn >= share
    }

    /// Whether nothing is rejected for `reason`.
    pub(crate) fn spares_all(&self, reason: Reason) -> bool {
        reason != Reason::ForcedOpen && self.share() <= 0.0
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dial").field(&self.share()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dial(drawn: f64, share: f64) -> Dial {
        let dial = Dial::new(Arc::new(move || drawn));
        dial.set(share);
        dial
    }

    // R37
    #[test]
    fn a_call_is_spared_if_the_draw_reaches_the_share() {
        let spares =
            |drawn, share| dial(drawn, share).spares(Reason::Open, || panic!("no source panics"));
        for (drawn, share, spared) in [
            (0.0, 0.25, false),
            (0.249, 0.25, false),
            (0.25, 0.25, true),
            (1.0, 0.999, true),
            (1.0, 1.0, false),
            (0.0, 0.0, true),
            (0.0, -0.0, true),
            (f64::NAN, 0.001, false),
        ] {
            assert_eq!(spares(drawn, share), spared, "{drawn} of {share}");
        }
    }

    // R37: where all are rejected or none, and for orders, nothing is drawn.
    #[test]
    fn nothing_is_drawn_where_nothing_hangs_on_it() {
        let source = || panic!("asked");
        let dial = Dial::new(Arc::new(source));
        let quiet = || panic!("drawn");
        assert!(!dial.spares(Reason::Open, quiet));
        dial.set(0.0);
        assert!(dial.spares(Reason::ProbesInUse, quiet) && dial.spares_all(Reason::RampUp));
        assert!(!dial.spares(Reason::ForcedOpen, quiet) && !dial.spares_all(Reason::ForcedOpen));
        dial.set(0.5);
        assert!(!dial.spares(Reason::ForcedOpen, quiet) && !dial.spares_all(Reason::Open));
        let mut told = false;
        assert!(!dial.spares(Reason::Open, || told = true));
        assert!(told, "a source that panics counts as 0");
        assert_eq!(format!("{dial:?}"), "Dial(0.5)");
    }
}
