//! What a call amounts to: the three outcomes, and who says which one a reply is.
//! What an outcome does to the circuit is decided in [`circuit`](crate::circuit).

use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

/// What a settled call says about its target (R19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The target did what it is for.
    Success,
    /// The target failed, was too slow, or is gone.
    Failure,
    /// The call says nothing about the target: counted neither way, it breaks no run and gives no
    /// verdict on a probe.
    Ignored,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Ignored => "ignored",
        })
    }
}

/// A reply that knows its own outcome.
///
/// `Result` is a failure when it is `Err`; every other implementation here is a success. For a type of
/// one's own an empty `impl` makes every reply a success:
///
/// ```
/// use actix_circuit_breaker::{Outcome, Reply};
///
/// struct Balance(i64);
/// impl Reply for Balance {}
///
/// enum Charged {
///     Done,
///     Declined,
///     ProviderDown,
/// }
///
/// impl Reply for Charged {
///     fn outcome(&self) -> Outcome {
///         match self {
///             Charged::Done => Outcome::Success,
///             // The provider works; the card does not.
///             Charged::Declined => Outcome::Success,
///             Charged::ProviderDown => Outcome::Failure,
///         }
///     }
/// }
/// assert_eq!(Ok::<(), ()>(()).outcome(), Outcome::Success);
/// assert_eq!(Err::<(), ()>(()).outcome(), Outcome::Failure);
/// ```
#[diagnostic::on_unimplemented(
    message = "the breaker cannot tell whether a reply of type `{Self}` is a success or a failure",
    label = "`{Self}` is not a `Reply`",
    note = "write `impl actix_circuit_breaker::Reply for {Self} {{}}` when every reply is a success, or give it an `outcome`",
    note = "or say it here alone: `ask_with(&target, msg, |reply| Outcome::Success)`, `guard_with(target, |reply: &{Self}| Outcome::Success)`"
)]
pub trait Reply {
    /// Returns what this reply says about the target. Default: a success.
    fn outcome(&self) -> Outcome {
        Outcome::Success
    }

    /// Returns the error inside, so that a breaker can tell its own rejection from the target's error.
    #[doc(hidden)]
    fn error(&self) -> Option<&dyn Any> {
        None
    }
}

/// `Err` is a failure, whatever it holds; but for a rejection that the asked breaker itself made
/// somewhere inside the call, which is ignored (R19).
impl<T, E: 'static> Reply for Result<T, E> {
    fn outcome(&self) -> Outcome {
        match self {
            Ok(_) => Outcome::Success,
            Err(_) => Outcome::Failure,
        }
    }

    fn error(&self) -> Option<&dyn Any> {
        match self {
            Ok(_) => None,
            Err(error) => Some(error),
        }
    }
}

/// An absent value is an answer too.
impl<T> Reply for Option<T> {}

impl<R: Reply + ?Sized> Reply for Arc<R> {
    fn outcome(&self) -> Outcome {
        (**self).outcome()
    }

    fn error(&self) -> Option<&dyn Any> {
        (**self).error()
    }
}

impl<R: Reply + ?Sized> Reply for Box<R> {
    fn outcome(&self) -> Outcome {
        (**self).outcome()
    }

    fn error(&self) -> Option<&dyn Any> {
        (**self).error()
    }
}

impl<R: Reply + ?Sized> Reply for Rc<R> {
    fn outcome(&self) -> Outcome {
        (**self).outcome()
    }

    fn error(&self) -> Option<&dyn Any> {
        (**self).error()
    }
}

impl<T> Reply for Vec<T> {}
impl<T, const N: usize> Reply for [T; N] {}
impl<T: ToOwned + ?Sized> Reply for Cow<'_, T> {}
impl<T> Reply for VecDeque<T> {}
impl<T, S> Reply for HashSet<T, S> {}
impl<K, V, S> Reply for HashMap<K, V, S> {}
impl<T> Reply for BTreeSet<T> {}
impl<K, V> Reply for BTreeMap<K, V> {}

macro_rules! always_success {
    ($($reply:ty),* $(,)?) => { $(impl Reply for $reply {})* };
}

always_success!(
    (),
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    f32,
    f64,
    str,
    String,
    Duration,
    std::net::IpAddr,
    std::net::SocketAddr,
    std::path::PathBuf,
);

macro_rules! tuple_success {
    ($($part:ident)*) => { impl<$($part),*> Reply for ($($part,)*) {} };
}

tuple_success!(A);
tuple_success!(A B);
tuple_success!(A B C);
tuple_success!(A B C D);
tuple_success!(A B C D E);
tuple_success!(A B C D E F);

/// Says what a reply of type `R` amounts to: a function, or [`ByReply`].
///
/// It may panic: that counts as a failure of the call, whose caller still gets its reply.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what a reply of type `{R}` amounts to",
    note = "pass a closure `|reply: &{R}| Outcome::…`"
)]
pub trait Classify<R> {
    /// Returns the outcome of a reply.
    fn classify(&self, reply: &R) -> Outcome;

    /// Returns the error inside, where the breaker may look for a rejection of its own.
    #[doc(hidden)]
    fn error<'r>(&self, _reply: &'r R) -> Option<&'r dyn Any> {
        None
    }
}

impl<R, F: Fn(&R) -> Outcome> Classify<R> for F {
    fn classify(&self, reply: &R) -> Outcome {
        self(reply)
    }
}

/// The default classifier: asks the reply itself, see [`Reply`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "a name for a choice; it will never hold anything"
)]
pub struct ByReply;

impl<R: Reply> Classify<R> for ByReply {
    fn classify(&self, reply: &R) -> Outcome {
        reply.outcome()
    }

    fn error<'r>(&self, reply: &'r R) -> Option<&'r dyn Any> {
        reply.error()
    }
}
