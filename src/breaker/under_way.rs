//! Calls that passed and are not done at once, as they are counted for the feature `metrics`: since when each
//! is under way, and whether somebody still waits for its end. Without the feature all of it is empty.

#[cfg(feature = "metrics")]
mod counted;
#[cfg(not(feature = "metrics"))]
mod uncounted;

#[cfg(feature = "metrics")]
pub(crate) use counted::{Stopwatch, Tracked, UnderWay};
#[cfg(not(feature = "metrics"))]
pub(crate) use uncounted::{Stopwatch, Tracked, UnderWay};
