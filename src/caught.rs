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

/// Holds what is dropped quietly: a value of the user's, whose destructor may panic where the panic would
/// hit somebody else.
pub(crate) struct Quiet<T>(Option<T>);

impl<T> Quiet<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut()
    }

    /// Takes the value out; from then on its destructor is its owner's.
    pub(crate) fn take(&mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Drop for Quiet<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            quietly(|| drop(value));
        }
    }
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
