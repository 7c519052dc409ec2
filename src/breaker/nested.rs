//! Finds a breaker's rejection inside the error of a call that it guarded itself (R19).
//!
//! The error is a [`Rejected`], an [`AskError`], a [`CallError<E>`] of any `E`, or a boxed error. A call error cannot be
//! named where an error is looked at, so each such type is learned where a rejection of it is made.

use std::any::{Any, TypeId};
use std::cell::Cell;
use std::collections::HashMap;
use std::error::Error;
use std::sync::{PoisonError, RwLock};

use crate::error::{AskError, CallError, Rejected};

/// How far a chain of errors is followed; one that is longer may be a circle.
const CHAIN: usize = 32;

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

/// The rejection that an error is, if it is one. A boxed error may be one anywhere in its chain.
pub(super) fn rejection_in(error: &dyn Any) -> Option<&Rejected> {
    if let Some(rejected) = error.downcast_ref() {
        return Some(rejected);
    }
    if let Some(error) = error.downcast_ref() {
        return rejection_of_ask(error);
    }
    if let Some(boxed) = error.downcast_ref::<Box<dyn Error + Send + Sync>>() {
        return rejection_in_chain(&**boxed);
    }
    if let Some(boxed) = error.downcast_ref::<Box<dyn Error>>() {
        return rejection_in_chain(&**boxed);
    }
    let learned = LEARNED.read().unwrap_or_else(PoisonError::into_inner);
    let look = *learned.as_ref()?.get(&error.type_id())?;
    look(error)
}

fn rejection_of_ask(error: &AskError) -> Option<&Rejected> {
    match error {
        AskError::Rejected(rejected) => Some(rejected),
        AskError::Timeout(_)
        | AskError::Closed
        | AskError::HoldExpired(_)
        | AskError::HoldFull { .. } => None,
    }
}

fn rejection_in_chain<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Rejected> {
    let mut link = Some(error);
    for _ in 0..CHAIN {
        let error = link?;
        let rejected = error
            .downcast_ref()
            .or_else(|| rejection_of_ask(error.downcast_ref()?));
        if rejected.is_some() {
            return rejected;
        }
        link = error.source();
    }
    None
}
