//! What is counted of a breaker for the feature `metrics`, and nothing without it: a meter is empty then,
//! and what it is told costs nothing. Who is told of the counts is left to `telemetry.rs`.

#[cfg(feature = "metrics")]
mod counted;
#[cfg(feature = "metrics")]
mod durations;
#[cfg(not(feature = "metrics"))]
mod uncounted;

#[cfg(feature = "metrics")]
pub(crate) use counted::{Account, Change, Counts, Meter};
#[cfg(not(feature = "metrics"))]
pub(crate) use uncounted::{Account, Meter};
