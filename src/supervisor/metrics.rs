//! Whose counts are told to the recorder of the `metrics` crate; the feature `metrics`.
//! What is told of each is in `telemetry.rs`.

use std::sync::Arc;

use super::Breakers;
use crate::breaker::Breaker;
use crate::family::Family;
use crate::telemetry::{Kind, Source, StoreSource};

impl Breakers {
    /// Tells the recorder of the [`metrics`](https://docs.rs/metrics) crate what all breakers and families have
    /// counted. Needs the feature `metrics`.
    ///
    /// Nothing is told by itself: call this when metrics are scraped, before they are rendered, or at an
    /// interval. It can be called from any thread, waits for no breaker, and sends none a message. The recorder
    /// runs in this call, and nowhere else; a panic of it is caught. While another thread is at it, this returns at
    /// once. What was told while no recorder was installed is not told again.
    ///
    /// | metric | labels | is |
    /// | --- | --- | --- |
    /// | `circuit_breaker_calls_total` | `breaker`, `outcome`: `success`, `failure`, `ignored`, `late`, `timeout` | calls that ended, each under one outcome |
    /// | `circuit_breaker_rejections_total` | `breaker`, `reason`: `open`, `probes_in_use`, `forced_open`, `ramp_up` | calls that were not let through |
    /// | `circuit_breaker_simulated_rejections_total` | `breaker`, `reason`: `open`, `probes_in_use`, `ramp_up` | calls that were refused and let through all the same, see [`enforcement`](crate::BreakerConfigBuilder::enforcement) |
    /// | `circuit_breaker_enforcement` | `breaker` | the share of refused calls that is rejected: 0 in shadow mode; of a family, as its keys have it that were not given their own |
    /// | `circuit_breaker_transitions_total` | `breaker`, `from`, `to`, `cause` | changes of state, those between two recordings too |
    /// | `circuit_breaker_state` | `breaker`, `state`: `closed`, `open`, `half_open`, `forced_open`, `forced_closed` | 1 for the present state, 0 for the others |
    /// | `circuit_breaker_call_duration_seconds` | `breaker` | a histogram: how long calls were waited for, see below |
    /// | `circuit_breaker_calls_in_flight` | `breaker` | calls under way, probes with them |
    /// | `circuit_breaker_probes_in_flight` | `breaker` | probes under way, those too whose lease is over |
    /// | `circuit_breaker_held` | `breaker` | messages that wait inside the breaker, see [`Hold`](crate::Hold) |
    /// | `circuit_breaker_overrides` | `breaker` | an operator's orders in force |
    /// | `circuit_breaker_restarts_total` | `breaker` | restarts of the breaker's actor |
    /// | `circuit_breaker_evictions_total` | | idle breakers that had to go to make room |
    /// | `circuit_breaker_store_degraded` | | 1 while the store that records are shared through does not answer; only where there is one |
    /// | `circuit_breaker_store_steps_total` | | steps that the store was asked for, each a round trip |
    /// | `circuit_breaker_family_keys` | `breaker`, `state` | keys of a family that are kept, by state |
    /// | `circuit_breaker_family_unguarded_total` | `breaker` | breakers a family gave out that guard nothing |
    ///
    /// # What is counted
    ///
    /// - A timeout is a failure to the breaker; here it is a `timeout` and no `failure`. A call that is dropped
    ///   before it ended is `ignored`, or `late` if the state has changed since. So all outcomes together are
    ///   the calls that ended, but for those of the next line and for failures that pass a breaker whose actor is gone for good.
    /// - A call that is refused and let through all the same is in flight and may be measured, and ends under no
    ///   outcome: the breaker is not told of it.
    /// - A break that is over is `open` until a call comes, as in [`Breaker::state`].
    /// - A future that is ready when it is first polled is never in flight.
    ///
    /// # How long calls take
    ///
    /// Measured are asks, and calls that were found waiting: from then on, as their timeout is, to their result.
    /// A probe's time counts from its admission. Futures that are ready at once and two-step permits are not
    /// measured. To keep a closed ask cheap, of each thread the first 64 calls after a recording are measured, then
    /// every 32nd; probes, and asks that the breaker makes itself, always are. At most about 4,096 are handed over at once, thinned out evenly. So this tells the quantiles and
    /// the mean; how many calls there were, `circuit_breaker_calls_total` tells. Times are off by at most a
    /// sixteenth.
    ///
    /// # How many series there are
    ///
    /// The label `breaker` takes one value for each breaker and family there is, so at most
    /// [`max_breakers`](Self::max_breakers) at a time. A [`Family`](crate::Family) is one: its keys come from
    /// strangers, so they are no labels, and what all of them count is told under the family's name.
    /// It has no `circuit_breaker_state`, but `circuit_breaker_family_keys`.
    ///
    /// Of a breaker that was evicted or removed the rest is told once, its gauges become 0, and from then on it is
    /// told no more: an exporter with an idle timeout drops it. One that came and went between two recordings is
    /// not told at all. Two owners with breakers of the same name share their series: their counters are added up,
    /// their gauges overwrite each other.
    ///
    /// # Examples
    ///
    /// ```
    /// use actix_circuit_breaker::{BreakerConfig, Breakers};
    /// use metrics_exporter_prometheus::PrometheusBuilder;
    ///
    /// # #[actix::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let prometheus = PrometheusBuilder::new().install_recorder()?;
    /// let breakers = Breakers::start();
    /// let mail = breakers.create("mail", BreakerConfig::default())?;
    /// mail.call(async { Ok::<_, ()>(()) }).await.unwrap();
    ///
    /// breakers.record_metrics();
    /// let text = prometheus.render();
    /// assert!(text.contains(r#"circuit_breaker_calls_total{breaker="mail",outcome="success"} 1"#));
    /// # Ok(())
    /// # }
    /// ```
    pub fn record_metrics(&self) {
        // Read under the lock, told outside of it.
        let (mut sources, families, evictions) = {
            let registry = self.registry();
            let breakers: Vec<_> = registry.breakers().map(of_breaker).collect();
            (breakers, registry.families(), registry.evictions())
        };
        sources.extend(families.iter().map(of_family));
        let store = self.shared.link.as_ref().map(|link| StoreSource {
            is_away: link.is_away(),
            steps: link.steps(),
        });
        self.shared.telemetry.record(sources, evictions, store);
    }
}

fn of_breaker(breaker: &Breaker) -> Source {
    let gate = breaker.gate();
    Source {
        name: Arc::clone(gate.name()),
        meter: gate.meter().clone(),
        kind: Kind::Breaker(gate.state()),
        enforcement: gate.enforcement(),
    }
}

fn of_family(family: &Family) -> Source {
    Source {
        name: family.name().into(),
        meter: family.meter().clone(),
        kind: Kind::Family {
            keys: family.states(),
            unguarded: family.unguarded(),
        },
        enforcement: family.config().enforcement(),
    }
}
