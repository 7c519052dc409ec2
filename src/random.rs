//! Where jitter and the draws of a ramp-up and of the dial come from: a trait and the default source.
//! What is made of a number is decided in [`config`](crate::config) and [`circuit`](crate::circuit).

use crate::caught::caught;

/// A source of uniform numbers, asked once for every break when `jitter` is above 0 (R22), and once for
/// every call while a ramp-up admits a share of them (R36), and once for every call that is refused while a
/// share of those is rejected (R37), on the thread that makes the call.
///
/// It runs inside the decision, so it must be quick and must not block. A source that panics counts
/// as 0, and so does a number that is not one; numbers outside \[0, 1\] are moved to the nearer end.
pub trait RandomSource: Send + Sync + 'static {
    /// Returns a number in \[0, 1\].
    fn uniform(&self) -> f64;
}

/// A function can be the source, which is handy in tests: `Arc::new(|| 0.5)`.
impl<F: Fn() -> f64 + Send + Sync + 'static> RandomSource for F {
    fn uniform(&self) -> f64 {
        self()
    }
}

/// The default: the thread's own small generator, seeded by the operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ThreadRandom;

impl RandomSource for ThreadRandom {
    fn uniform(&self) -> f64 {
        fastrand::f64()
    }
}

/// Asks a source for a number in [0, 1]; `None` if it panicked.
pub(crate) fn draw(source: &dyn RandomSource) -> Option<f64> {
    let number = caught(|| source.uniform()).ok()?;
    Some(if number.is_nan() {
        0.0
    } else {
        number.clamp(0.0, 1.0)
    })
}
