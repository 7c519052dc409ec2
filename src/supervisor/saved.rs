//! What breakers remember, written down and taken over by another process (R29).
//! What of a record another process can use is decided by [`Circuit::restore`].
//!
//! [`Circuit::restore`]: crate::Circuit::restore

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::circuit::Record;
use crate::clock::Timestamp;
use crate::config::BreakerConfig;
use crate::policy::TripPolicy;

/// The version this crate writes, and the only one it reads.
const VERSION: u64 = 1;

/// The highest epoch that leaves room for those to come: a circuit goes on above it, and none may be used
/// twice (R1).
const HIGHEST_EPOCH: u64 = Timestamp::MAX.as_micros() - (1 << 32);

/// How many refusals are kept to be looked at.
const REFUSALS: usize = 1_024;

/// What breakers remember, made by [`Breakers::export`](crate::Breakers::export): to be written down with
/// serde, read again, and given to [`Breakers::restore`](crate::Breakers::restore).
///
/// Any self-describing format will do, such as JSON or TOML. Whatever is read, reading does not fail for
/// what the format can represent: what is of another version or corrupt is refused when it is restored.
#[derive(Debug, Clone, PartialEq)]
pub struct Exported(Contents);

#[derive(Debug, Clone, PartialEq)]
enum Contents {
    Known(Saved),
    Unknown { version: Option<u64> },
}

/// What is known of all breakers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    version: Version,
    #[serde(default)]
    pub(super) breakers: BTreeMap<String, Entry<SavedBreaker>>,
    #[serde(default)]
    pub(super) families: BTreeMap<String, Entry<SavedFamily>>,
}

/// Nothing but the version this crate writes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Version;

/// One of many, which is not lost with another one that is corrupt.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Entry<T> {
    Good(T),
    Corrupt(IgnoredAny),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedBreaker {
    /// The settings it had; none for a rule of the user's, which cannot be written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<BreakerConfig>,
    record: Record,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedFamily {
    pub(super) keys: BTreeMap<String, Entry<SavedBreaker>>,
}

/// Why a record was not taken over. Its breaker starts closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The whole is of a version that this crate does not read, or of none.
    #[error("version {} is not known", version.map_or("none".to_owned(), |version| version.to_string()))]
    Version {
        /// The version.
        version: Option<u64>,
    },
    /// It is not what a breaker writes.
    #[error("the record is corrupt")]
    Corrupt,
    /// The breaker had other settings.
    #[error("the record is of a breaker with other settings")]
    Config,
    /// The breaker is there already. Restore before you create.
    #[error("the breaker exists already")]
    Exists,
    /// The family has no room for the key.
    #[error("there is no room for the key")]
    Full,
}

/// A record that was not taken over, as [`Breakers::refused_records`](crate::Breakers::refused_records)
/// lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedRecord {
    /// The name of the breaker, or of the family, with a slash and the key if it is about one key. Empty
    /// for the whole.
    pub name: String,
    /// Why.
    pub error: RestoreError,
}

impl Exported {
    pub(super) fn new(saved: Saved) -> Self {
        Self(Contents::Known(saved))
    }

    pub(super) fn into_saved(self) -> Result<Saved, RestoreError> {
        match self.0 {
            Contents::Known(saved) => Ok(saved),
            Contents::Unknown {
                version: Some(VERSION),
            } => Err(RestoreError::Corrupt),
            Contents::Unknown { version } => Err(RestoreError::Version { version }),
        }
    }
}

impl SavedBreaker {
    pub(super) fn new(config: &BreakerConfig, record: Record) -> Self {
        let own_rule = matches!(config.trip(), TripPolicy::Custom(_));
        Self {
            config: (!own_rule).then(|| config.clone()),
            record,
        }
    }

    /// The record, if it is of a breaker with these settings.
    pub(super) fn record_for(self, config: &BreakerConfig) -> Result<Record, RestoreError> {
        let own_rule = matches!(config.trip(), TripPolicy::Custom(_));
        let fits = match &self.config {
            Some(saved) => saved == config,
            None => own_rule,
        };
        if self.record.epoch() > HIGHEST_EPOCH {
            Err(RestoreError::Corrupt)
        } else if fits {
            Ok(self.record)
        } else {
            Err(RestoreError::Config)
        }
    }
}

impl SavedFamily {
    pub(super) fn new(keys: impl IntoIterator<Item = (String, SavedBreaker)>) -> Self {
        let keys = keys.into_iter();
        Self {
            keys: keys.map(|(key, saved)| (key, Entry::Good(saved))).collect(),
        }
    }
}

impl<T> Entry<T> {
    pub(super) fn good(self) -> Result<T, RestoreError> {
        match self {
            Self::Good(saved) => Ok(saved),
            Self::Corrupt(_) => Err(RestoreError::Corrupt),
        }
    }
}

/// What waits to be taken over, and what was refused.
#[derive(Default)]
pub(super) struct Waiting {
    saved: Saved,
    refused: Vec<RefusedRecord>,
    /// How many of them were told.
    told: usize,
}

impl Waiting {
    /// Those refused since this was asked last.
    pub(super) fn untold(&mut self) -> Vec<RefusedRecord> {
        let told = std::mem::replace(&mut self.told, self.refused.len());
        self.refused.get(told..).unwrap_or_default().to_vec()
    }

    /// Adds what was read; `exists` tells whether there is a breaker or family of that name. Returns how
    /// many wait now.
    pub(super) fn add(&mut self, saved: Saved, exists: impl Fn(&str) -> bool) -> usize {
        let Saved {
            breakers, families, ..
        } = saved;
        for (name, breaker) in breakers {
            if exists(&name) {
                self.refuse(name, RestoreError::Exists);
            } else {
                self.saved.breakers.insert(name, breaker);
            }
        }
        for (name, family) in families {
            if exists(&name) {
                self.refuse(name, RestoreError::Exists);
            } else {
                self.saved.families.insert(name, family);
            }
        }
        self.len()
    }

    /// How many breakers and keys of families wait.
    fn len(&self) -> usize {
        let keys = self.saved.families.values().map(|family| match family {
            Entry::Good(family) => family.keys.len(),
            Entry::Corrupt(_) => 0,
        });
        keys.fold(self.saved.breakers.len(), usize::saturating_add)
    }

    /// The record of a breaker that is made now, if it can be taken over.
    pub(super) fn take(&mut self, name: &str, config: &BreakerConfig) -> Option<Record> {
        let entry = self.saved.breakers.remove(name)?;
        let record = entry.good().and_then(|saved| saved.record_for(config));
        self.or_refuse(name, record)
    }

    /// The keys of a family that is made now.
    pub(super) fn take_family(&mut self, name: &str) -> Option<SavedFamily> {
        let entry = self.saved.families.remove(name)?;
        self.or_refuse(name, entry.good())
    }

    pub(super) fn or_refuse<T>(
        &mut self,
        name: impl Into<String>,
        result: Result<T, RestoreError>,
    ) -> Option<T> {
        result.map_err(|error| self.refuse(name.into(), error)).ok()
    }

    pub(super) fn refuse(&mut self, name: String, error: RestoreError) {
        if self.refused.len() < REFUSALS {
            self.refused.push(RefusedRecord { name, error });
        }
    }

    pub(super) fn refused(&self) -> &[RefusedRecord] {
        &self.refused
    }
}

impl Saved {
    pub(super) fn add(&mut self, name: String, breaker: SavedBreaker) {
        self.breakers.insert(name, Entry::Good(breaker));
    }

    pub(super) fn add_family(&mut self, name: String, family: SavedFamily) {
        self.families.insert(name, Entry::Good(family));
    }
}

impl<T: Serialize> Serialize for Entry<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Good(saved) => saved.serialize(serializer),
            Self::Corrupt(_) => serializer.serialize_unit(),
        }
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(VERSION)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            VERSION => Ok(Self),
            other => Err(serde::de::Error::custom(format_args!(
                "version {other} is not {VERSION}"
            ))),
        }
    }
}

impl Serialize for Exported {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Unknown {
            version: Option<u64>,
        }
        match &self.0 {
            Contents::Known(saved) => saved.serialize(serializer),
            Contents::Unknown { version } => Unknown { version: *version }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Exported {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Text {
            Known(Saved),
            Other { version: u64 },
            Anything(IgnoredAny),
        }
        Ok(Self(match Text::deserialize(deserializer)? {
            Text::Known(saved) => Contents::Known(saved),
            Text::Other { version } => Contents::Unknown {
                version: Some(version),
            },
            Text::Anything(_) => Contents::Unknown { version: None },
        }))
    }
}
