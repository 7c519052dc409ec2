//! Runs foreign code so that its panic becomes a text.
//! What a panic means is left to the caller.

use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Runs `f`; a panic comes back as the text it was raised with.
#[inline]
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(text_of)
}

/// Runs what only reports: a subscriber or observer that panics must not end the supervision.
pub(crate) fn quietly(f: impl FnOnce()) {
    drop(caught(f));
}

#[cold]
fn text_of(payload: Box<dyn Any + Send>) -> String {
    let text = if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "panic without a text".to_owned()
    };
    // A payload may be any value, its destructor may panic too, and so on for ever.
    // The second one is leaked.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(again);
    }
    text
}
