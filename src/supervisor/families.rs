//! Makes families by name, and finds them.
//! What a family is to its users is in `family.rs`.

use std::sync::Arc;

use actix::Addr;
use actix::dev::channel;

use super::registry::FamilyEntry;
use super::{Breakers, Found, Gone, RestoreError};
use crate::actor::BreakerActor;
use crate::breaker::Breaker;
use crate::circuit::CircuitState;
use crate::clock::Timestamp;
use crate::config::BreakerConfig;
use crate::error::CreateError;
use crate::family::{self, Family};

impl Breakers {
    /// Returns the family of breakers of that name, made now if there is none; from any thread. Every key
    /// gets these settings.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create). A family and a breaker cannot have the same name.
    ///
    /// # Examples
    ///
    /// ```
    /// # use actix_circuit_breaker::{BreakerConfig, Breakers};
    /// # #[actix::main]
    /// # async fn main() {
    /// let breakers = Breakers::start();
    /// let hosts = breakers.family("hosts", BreakerConfig::default()).unwrap();
    /// let breaker = hosts.breaker("example.org");
    /// assert_eq!(breaker.name(), "hosts/example.org");
    /// # }
    /// ```
    pub fn family(
        &self,
        name: impl AsRef<str>,
        config: BreakerConfig,
    ) -> Result<Family, CreateError> {
        self.make(name.as_ref(), |name, now, gone| {
            self.find_or_insert_family(name, config, now, gone)
        })
    }

    /// Returns all families, sorted by name.
    pub fn families(&self) -> Vec<Family> {
        self.registry().families()
    }

    fn find_or_insert_family(
        &self,
        name: &str,
        config: BreakerConfig,
        now: Timestamp,
        gone: &mut Gone,
    ) -> Result<(Family, Found), CreateError> {
        let name_again = || name.to_owned();
        let mut registry = self.registry();
        if let Some(family) = registry.find_family(name) {
            return if family.config() == config {
                Ok((family, Found::Known))
            } else {
                Err(CreateError::Conflict { name: name_again() })
            };
        }
        if registry.find(name).is_some() {
            return Err(CreateError::Conflict { name: name_again() });
        }
        self.make_room(&mut registry, name, now, gone)?;
        let highest_epoch = registry.highest_epoch();
        let listeners = Arc::default();
        let (sender, receiver) = channel::channel(0);
        let family = Family::new(family::Parts {
            name: name.into(),
            clock: Arc::clone(&self.shared.clock),
            random: Arc::clone(&self.shared.random),
            config: config.clone(),
            max_keys: self.shared.max_keys,
            highest_epoch,
            head: Addr::new(sender),
            listeners: Arc::clone(&listeners),
        });
        let keeper = family.keeper();
        let (gate, end) = self
            .start_actor(
                (name, config, now),
                (None, highest_epoch, None),
                (receiver, family.meter().clone()),
                move |circuit, gate| BreakerActor::head(circuit, gate, keeper, listeners),
            )
            .ok_or_else(|| CreateError::ArbiterStopped { name: name_again() })?;
        if let Some(saved) = registry.waiting.take_family(name) {
            for (key, entry) in saved.keys {
                let taken = entry.good().and_then(|saved| {
                    let record = saved.record_for(&family.config())?;
                    let state = record.state();
                    let taken = family.take_over(&key, record, now);
                    taken.ok_or(RestoreError::Full).map(|()| state)
                });
                let full_name = [name, "/", &key].concat();
                let taken = registry.waiting.or_refuse(full_name, taken);
                if let Some(CircuitState::ForcedOpen | CircuitState::ForcedClosed) = taken {
                    gone.ordered.push((family.clone(), key));
                }
            }
        }
        gone.refused = registry.waiting.untold();
        let head = Breaker::new(family.head().clone(), gate);
        registry.insert_family(FamilyEntry::new(family.clone(), head, end));
        Ok((family, Found::Made))
    }
}
