//! Finds a breaker's rejection inside the error of a call that it guarded itself (R19).
//!
//! The error is a [`Rejected`], an [`AskError`] or a [`CallError<E>`] of any `E`. The last one cannot be
//! named where an error is looked at, so each such type is learned where a rejection of it is made.

use std::any::{Any, TypeId};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::error::{AskError, CallError, Rejected};

type Look = fn(&dyn Any) -> Option<&Rejected>;

/// The types of call errors that were ever made of a rejection: as many as the program has.
static LEARNED: RwLock<Option<HashMap<TypeId, Look>>> = RwLock::new(None);

thread_local! {
    /// The last one learned on this thread, so that a run of rejections takes no lock.
    static LAST: Cell<Option<TypeId>> = const { Cell::new(None) };
}

/// Makes a call's error of a rejection.
#[inline]
pub(super) fn rejected<E: 'static>(rejected: Rejected) -> CallError<E> {
    let id = TypeId::of::<CallError<E>>();
    let known = LAST
        .try_with(|last| last.get() == Some(id))
        .unwrap_or(false);
    if !known {
        learn(id, |error| match error.downcast_ref::<CallError<E>>() {
            Some(CallError::Rejected(rejected)) => Some(rejected),
            _ => None,
        });
    }
    CallError::Rejected(rejected)
}

#[cold]
fn learn(id: TypeId, look: Look) {
    // A thread whose locals are gone learns again each time.
    let _ = LAST.try_with(|last| last.set(Some(id)));
    LEARNED
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(id, look);
}

/// The rejection that an error is, if it is one.
pub(super) fn rejection_in(error: &dyn Any) -> Option<&Rejected> {
    if let Some(rejected) = error.downcast_ref() {
        return Some(rejected);
    }
    if let Some(error) = error.downcast_ref() {
        return match error {
            AskError::Rejected(rejected) => Some(rejected),
            AskError::Timeout(_) | AskError::Closed => None,
        };
    }
    let learned = LEARNED.read().unwrap_or_else(PoisonError::into_inner);
    let look = *learned.as_ref()?.get(&error.type_id())?;
    look(error)
}
