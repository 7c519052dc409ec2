//! A policy for messages that wait, as text.

use serde::de::Deserializer;

use super::{Scalar, named};
use crate::config::{ConfigError, Hold};

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HoldFields {
    capacity: Scalar,
    held_ttl: Scalar,
    release_interval: Scalar,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    growing: Option<Scalar>,
}

pub(super) fn hold<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<HoldFields>, D::Error> {
    named("hold", deserializer)
}

impl HoldFields {
    pub(super) fn read(self) -> Result<Hold, ConfigError> {
        Ok(Hold {
            capacity: self.capacity.count("hold.capacity")?,
            held_ttl: self.held_ttl.span("hold.held_ttl")?,
            release_interval: self.release_interval.span("hold.release_interval")?,
            growing: match self.growing {
                Some(flag) => flag.flag("hold.growing")?,
                None => false,
            },
        })
    }
}

impl From<Hold> for HoldFields {
    fn from(hold: Hold) -> Self {
        Self {
            capacity: Scalar::Whole(hold.capacity.into()),
            held_ttl: Scalar::of(hold.held_ttl),
            release_interval: Scalar::of(hold.release_interval),
            growing: Some(Scalar::Flag(hold.growing)),
        }
    }
}
