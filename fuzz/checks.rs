//! What has to hold for any bytes: shared by the fuzz targets and by the test that replays the corpus.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "each user needs one of them; a check that fails has to panic"
)]

use std::time::Duration;

use actix_circuit_breaker::circuit::{Circuit, CircuitState, Record};
use actix_circuit_breaker::{
    BreakerConfig, Breakers, Exported, Outcome, RampUp, SlowCall, Timestamp, TripPolicy, Window,
};

/// Reads settings as TOML and as JSON. What is accepted survives being written and read, and makes a
/// circuit that works. Tells whether it was accepted.
pub(crate) fn config(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let mut accepted = false;
    let from_toml = toml::from_str::<BreakerConfig>(text).ok();
    let from_json = serde_json::from_str::<BreakerConfig>(text).ok();
    for config in from_toml.into_iter().chain(from_json) {
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(
            serde_json::from_str::<BreakerConfig>(&json).unwrap(),
            config
        );
        let toml = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<BreakerConfig>(&toml).unwrap(), config);
        exercise(Circuit::new(config, Timestamp::ZERO), Timestamp::ZERO);
        accepted = true;
    }
    accepted
}

/// Reads a record as JSON and restores it under every policy, at several instants. Tells whether it was
/// accepted.
pub(crate) fn record(data: &[u8]) -> bool {
    let Ok(record) = serde_json::from_slice::<Record>(data) else {
        return false;
    };
    let written = serde_json::to_vec(&record).unwrap();
    assert_eq!(serde_json::from_slice::<Record>(&written).unwrap(), record);
    for config in configs() {
        for now in [0, 1, 1_000_000, 3_600_000_000, Timestamp::MAX.as_micros()] {
            let now = Timestamp::from_micros(now);
            exercise(Circuit::restore(config.clone(), record.clone(), now), now);
        }
    }
    true
}

/// Reads as JSON what breakers may have written down, and restores it. Whatever JSON it is, it can be read; what
/// is good of it is taken over. Tells whether it was JSON.
pub(crate) fn exported(data: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(data) else {
        return false;
    };
    let exported = serde_json::from_slice::<Exported>(data).unwrap();
    let written = serde_json::to_vec(&exported).unwrap();
    let again = serde_json::from_slice::<Exported>(&written).unwrap();
    actix::System::new().block_on(async {
        for exported in [exported, again] {
            let breakers = Breakers::start();
            breakers.restore(exported);
            for config in configs() {
                for name in names(&value["breakers"]) {
                    if let Ok(breaker) = breakers.create(name, config.clone()) {
                        breaker.snapshot().await.unwrap();
                    }
                    breakers.remove(name);
                }
                for name in names(&value["families"]) {
                    if let Ok(family) = breakers.family(name, config.clone()) {
                        assert_eq!(family.snapshots().await.len(), family.keys().len());
                    }
                    breakers.remove(name);
                }
            }
            breakers.export().await;
        }
    });
    true
}

/// The first few names of what may be a map.
fn names(map: &serde_json::Value) -> impl Iterator<Item = &String> {
    map.as_object()
        .into_iter()
        .flat_map(|map| map.keys())
        .take(4)
}

/// Takes a circuit through a few breaks. It never panics, and it comes to admit calls again.
fn exercise(mut circuit: Circuit, start: Timestamp) {
    let longest = longest_break(circuit.config());
    let snapshot = circuit.snapshot(start);
    if snapshot.state == CircuitState::Open {
        assert!(snapshot.retry_after.unwrap_or_default() <= longest);
    }
    circuit.release(start);
    let mut now = start;
    for _ in 0..40 {
        circuit.lifetime(now);
        match circuit.try_acquire(now) {
            Ok(permit) => {
                circuit.settle(permit, Outcome::Failure, now);
            }
            Err(refused) => now = now + refused.retry_after().unwrap(),
        }
    }
    now = now + longest;
    if now == Timestamp::MAX {
        return;
    }
    for _ in 0..circuit.config().successes_to_close().min(100) {
        let permit = circuit.try_acquire(now).unwrap();
        circuit.settle(permit, Outcome::Success, now);
    }
}

fn longest_break(config: &BreakerConfig) -> Duration {
    let longest = config
        .backoff()
        .map_or(config.break_duration(), |backoff| backoff.max);
    longest.mul_f64(1.0 + config.jitter()) + Duration::from_micros(1)
}

fn configs() -> Vec<BreakerConfig> {
    let second = Duration::from_secs(1);
    let slow_call = Some(SlowCall::new(second, 0.5));
    [
        TripPolicy::ConsecutiveFailures {
            failures: 3,
            within: None,
        },
        TripPolicy::ConsecutiveFailures {
            failures: 3,
            within: Some(second),
        },
        TripPolicy::default(),
        TripPolicy::FailureRate {
            rate: 0.5,
            minimum_calls: 3,
            window: Window::Calls(10),
            slow_call,
        },
        TripPolicy::FailureRate {
            rate: 0.5,
            minimum_calls: 3,
            window: Window::Time(second),
            slow_call,
        },
    ]
    .map(|policy| BreakerConfig::builder().trip(policy))
    .into_iter()
    .flat_map(|builder| {
        let ramp_up = RampUp::new(5 * second, 0.1);
        [builder.clone(), builder.ramp_up(ramp_up)]
    })
    .map(|builder| builder.build().unwrap())
    .collect()
}
