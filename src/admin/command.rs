//! What an operator orders over HTTP, and who may: as the authorizer sees it.
//! How it is read from a request and carried out is in `order.rs`.

use std::fmt;
use std::time::Duration;

/// An order that came over HTTP, before it is carried out: what an authorizer decides about.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    pub(super) target: Target,
    pub(super) kind: CommandKind,
    pub(super) reason: String,
    pub(super) ttl: Option<Duration>,
    pub(super) config: serde_json::Map<String, serde_json::Value>,
}

/// Whom an order is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Breaker(String),
    /// All keys of a family.
    Family(String),
}

/// What is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommandKind {
    /// To reject all calls; see [`ForceOpen`](crate::message::ForceOpen).
    ForceOpen,
    /// To let all calls pass; see [`ForceClosed`](crate::message::ForceClosed).
    ForceClosed,
    /// To lift such an order; see [`Release`](crate::message::Release).
    Release,
    /// To forget everything but such an order; see [`Reset`](crate::message::Reset).
    Reset,
    /// To go on with other settings; see [`Reconfigure`](crate::message::Reconfigure).
    Reconfigure,
}

impl fmt::Display for CommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ForceOpen => "force open",
            Self::ForceClosed => "force closed",
            Self::Release => "release",
            Self::Reset => "reset",
            Self::Reconfigure => "reconfigure",
        })
    }
}

impl Command {
    /// Returns the name of the breaker, or of the family if the order is for all its keys; it need not exist.
    pub fn breaker(&self) -> &str {
        match &self.target {
            Target::Breaker(name) | Target::Family(name) => name,
        }
    }

    /// Tells whether the order is for all keys of a family.
    pub fn is_for_family(&self) -> bool {
        matches!(self.target, Target::Family(_))
    }

    /// Returns what is ordered.
    pub fn kind(&self) -> CommandKind {
        self.kind
    }

    /// Returns why, as the operator says.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns for how long, for an order that ends by itself.
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// Returns the names of the settings that a [`Reconfigure`](CommandKind::Reconfigure) changes.
    pub fn changed_settings(&self) -> impl Iterator<Item = &str> {
        self.config.keys().map(String::as_str)
    }
}

/// An authorizer's no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    pub(super) why: String,
}

impl Denied {
    /// Makes one; the requester is told why.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Denied {}
