//! Carries what breakers remember into another process.
//! How it is written and read is in `supervisor/saved.rs`.

use std::future::Future;

use super::Breakers;
use super::saved::{Exported, RefusedRecord, Saved, SavedBreaker, SavedFamily};
use crate::message::GetRecord;
use crate::report;

impl Breakers {
    /// Returns what all breakers and families remember, to be written down for another process; see
    /// [`restore`](Self::restore). Breakers whose actors are gone, and keys that are closed, empty and held by
    /// nobody, are left out.
    ///
    /// The questions to named breakers are sent now, those to keys one after another when the future is
    /// polled. Dropping it loses nothing.
    pub fn export(&self) -> impl Future<Output = Exported> + Send + 'static + use<> {
        let (breakers, families) = {
            let registry = self.registry();
            let breakers: Vec<_> = registry.breakers().cloned().collect();
            (breakers, registry.families())
        };
        let requests: Vec<_> = breakers
            .iter()
            .map(|breaker| (breaker.name().to_owned(), breaker.addr().send(GetRecord)))
            .collect();
        async move {
            let mut saved = Saved::default();
            for (name, request) in requests {
                if let Ok((config, record)) = request.await {
                    saved.add(name, SavedBreaker::new(&config, record));
                }
            }
            for family in families {
                let records = family.records().await;
                let keys = records
                    .into_iter()
                    .map(|(key, config, record)| (key, SavedBreaker::new(&config, record)));
                saved.add_family(family.name().to_owned(), SavedFamily::new(keys));
            }
            Exported::new(saved)
        }
    }

    /// Has breakers and families take over what another process wrote down, when they are made: so restore
    /// before you create. Returns how many records wait for that.
    ///
    /// The rest of a break, the number of failed rounds, failures and an operator's order survive; leases
    /// of probes do not (R29). A record that is corrupt, or of a breaker with other settings, is refused,
    /// and the breaker starts closed; so is the whole if it is of another version. The log warns of each,
    /// and [`refused_records`](Self::refused_records) lists them.
    ///
    /// # Examples
    ///
    /// ```
    /// use actix_circuit_breaker::{BreakerConfig, Breakers, CircuitState, message::ForceOpen};
    ///
    /// # #[actix::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let breakers = Breakers::start();
    /// let mail = breakers.create("mail", BreakerConfig::default())?;
    /// mail.force_open(ForceOpen::new("maintenance")).await??;
    /// let text = serde_json::to_string(&breakers.export().await)?;
    ///
    /// // In the next process:
    /// let breakers = Breakers::start();
    /// breakers.restore(serde_json::from_str(&text)?);
    /// let mail = breakers.create("mail", BreakerConfig::default())?;
    /// assert_eq!(mail.state(), CircuitState::ForcedOpen);
    /// # Ok(())
    /// # }
    /// ```
    pub fn restore(&self, exported: Exported) -> usize {
        let (waiting, refused) = {
            let registry = &mut *self.registry();
            let waiting = match exported.into_saved() {
                Ok(saved) => registry.restore(saved),
                Err(error) => {
                    registry.waiting.refuse(String::new(), error);
                    0
                }
            };
            (waiting, registry.waiting.untold())
        };
        tell_refused(&refused);
        waiting
    }

    /// Returns the records that were not taken over so far, the first 1,024 of them.
    pub fn refused_records(&self) -> Vec<RefusedRecord> {
        self.registry().waiting.refused().to_vec()
    }
}

/// Warns of records that were not taken over.
pub(super) fn tell_refused(refused: &[RefusedRecord]) {
    for RefusedRecord { name, error } in refused {
        report::record_refused(name, error);
    }
}
