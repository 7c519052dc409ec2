//! What is wrong with a setting. Which ranges there are is said in [`config`](super).

use std::fmt::Display;

/// A setting that was refused: names the field, its value and the range it must lie in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {value}, must be {range}")]
pub struct ConfigError {
    field: &'static str,
    value: String,
    range: String,
}

impl ConfigError {
    pub(crate) fn new(field: &'static str, value: impl Display, range: impl Into<String>) -> Self {
        Self {
            field,
            value: value.to_string(),
            range: range.into(),
        }
    }

    /// Returns the name of the field, with its path: `trip.window.calls`.
    pub fn field(&self) -> &str {
        self.field
    }

    /// Returns the value that was refused.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns what the value must be.
    pub fn range(&self) -> &str {
        &self.range
    }
}
