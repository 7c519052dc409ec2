//! What breakers remember, over the end of their process: written, read and taken over (R29).
#![allow(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a panic is a failed test"
)]

mod harness;

use std::sync::Arc;
use std::time::Duration;

use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    BreakerConfig, Breakers, CircuitState, Exported, ManualClock, RestoreError, Timestamp,
    TripPolicy, TripRule, Window,
};
use harness::*;
use serde_json::{Value, json};

/// A process of its own, as far as breakers know: with a clock that stands at an instant.
fn process(now: Timestamp) -> (ManualClock, Breakers) {
    pause();
    let clock = ManualClock::new();
    clock.set(now);
    let breakers = Breakers::builder().clock(Arc::new(clock.clone())).start();
    (clock, breakers)
}

/// An hour after the origin.
fn noon() -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(3_600)
}

fn written(exported: &Exported) -> Value {
    serde_json::to_value(exported).unwrap()
}

fn read(value: Value) -> Exported {
    serde_json::from_value(value).unwrap()
}

async fn fail(breaker: &actix_circuit_breaker::Breaker) {
    drop(breaker.call(async { Answer::Err(BAD) }).await);
}

fn config(failures: u32) -> BreakerConfig {
    consecutive(failures).build().unwrap()
}

// R29: the rest of a break, the failed rounds, failures and orders survive; leases do not.
#[actix::test]
async fn what_matters_survives_the_process() {
    let (clock, breakers) = process(noon());
    let create = |breakers: &Breakers, name: &str| breakers.create(name, config(2)).unwrap();
    for name in ["open", "half", "failed", "well", "forced"] {
        let breaker = create(&breakers, name);
        let failures = match name {
            "open" | "half" => 2,
            "failed" => 1,
            _ => 0,
        };
        for _ in 0..failures {
            fail(&breaker).await;
        }
    }
    let order = ForceClosed::new("drill").ttl(SECOND * 60);
    let forced = breakers.get("forced").unwrap();
    forced.force_closed(order).await.unwrap().unwrap();
    clock.advance(BREAK);
    // One of the two rounds fails, so its break begins now; the other is under way.
    fail(&breakers.get("open").unwrap()).await;
    let probe = breakers.get("half").unwrap().acquire().await.unwrap();
    assert!(probe.is_probe());
    let text = written(&breakers.export().await).to_string();
    let epochs: Vec<_> = breakers.snapshots().await.iter().map(|s| s.epoch).collect();

    let (clock, breakers) = process(noon() + BREAK + SECOND);
    assert_eq!(breakers.restore(serde_json::from_str(&text).unwrap()), 5);
    for name in ["open", "half", "failed", "well", "forced"] {
        create(&breakers, name);
    }
    assert_eq!(breakers.refused_records(), []);
    let snapshots = breakers.snapshots().await;
    let states: Vec<_> = snapshots.iter().map(|s| (&*s.breaker, s.state)).collect();
    assert_eq!(
        states,
        [
            ("failed", CircuitState::Closed),
            ("forced", CircuitState::ForcedClosed),
            ("half", CircuitState::Open),
            ("open", CircuitState::Open),
            ("well", CircuitState::Closed),
        ]
    );
    // R1: a new epoch each.
    for (snapshot, before) in snapshots.iter().zip(epochs) {
        assert!(snapshot.epoch > before, "{}", snapshot.breaker);
    }
    let of = |name: &str| breakers.get(name).unwrap();
    let open = of("open").snapshot().await.unwrap();
    assert_eq!((open.retry_after, open.attempt), (Some(BREAK - SECOND), 1));
    // The lease went with its process: the next call is the probe.
    assert!(of("half").acquire().await.unwrap().is_probe());
    fail(&of("failed")).await;
    assert_eq!(of("failed").state(), CircuitState::Open);
    fail(&of("well")).await;
    assert_eq!(of("well").state(), CircuitState::Closed);
    assert_eq!(
        of("forced").snapshot().await.unwrap().reason.as_deref(),
        Some("drill")
    );
    clock.advance(SECOND * 60);
    assert_eq!(
        of("forced").snapshot().await.unwrap().state,
        CircuitState::Closed
    );
}

// R3, R29: a clock that is behind makes no break longer than the longest.
#[actix::test]
async fn instants_of_a_later_clock_are_brought_back() {
    let (_, breakers) = process(noon() + SECOND * 1_000_000);
    fail(&breakers.create("a", config(1)).unwrap()).await;
    let exported = breakers.export().await;

    let (_, breakers) = process(noon());
    breakers.restore(exported);
    let snapshot = breakers.create("a", config(1)).unwrap().snapshot();
    assert_eq!(snapshot.await.unwrap().retry_after, Some(BREAK));
}

#[actix::test]
async fn record_of_other_settings_is_refused() {
    let (_, breakers) = process(noon());
    fail(&breakers.create("a", config(1)).unwrap()).await;
    let exported = breakers.export().await;

    let (_, breakers) = process(noon());
    assert_eq!(breakers.restore(exported), 1);
    let breaker = breakers.create("a", config(2)).unwrap();
    assert_eq!(breaker.state(), CircuitState::Closed);
    let refused = breakers.refused_records();
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (&*refused[0].name, &refused[0].error),
        ("a", &RestoreError::Config)
    );
    // It is refused once and for all.
    assert!(breakers.remove("a"));
    assert_eq!(
        breakers.create("a", config(1)).unwrap().state(),
        CircuitState::Closed
    );
    assert_eq!(breakers.refused_records().len(), 1);
}

#[actix::test]
async fn corrupt_record_costs_nobody_else_theirs() {
    let (_, breakers) = process(noon());
    for name in ["a", "b", "c"] {
        fail(&breakers.create(name, config(1)).unwrap()).await;
    }
    let whole = written(&breakers.export().await);
    let corrupt = [
        json!(null),
        json!(7),
        json!("b"),
        json!([]),
        json!({}),
        json!({"record": {}}),
    ];
    for corrupt in corrupt {
        let mut text = whole.clone();
        text["breakers"]["b"] = corrupt.clone();
        let (_, breakers) = process(noon());
        assert_eq!(breakers.restore(read(text)), 3, "{corrupt}");
        for (name, state) in [
            ("a", CircuitState::Open),
            ("b", CircuitState::Closed),
            ("c", CircuitState::Open),
        ] {
            let breaker = breakers.create(name, config(1)).unwrap();
            assert_eq!(breaker.state(), state, "{corrupt}");
        }
        let refused = breakers.refused_records();
        assert_eq!(refused.len(), 1, "{corrupt}");
        assert_eq!(
            (&*refused[0].name, &refused[0].error),
            ("b", &RestoreError::Corrupt)
        );
    }
    // A field of a record that was tampered with, or that another version wrote.
    for (field, value) in [("epoch", json!("x")), ("phase", json!({"Melted": 1}))] {
        let mut text = whole.clone();
        text["breakers"]["b"]["record"][field] = value;
        let (_, breakers) = process(noon());
        breakers.restore(read(text));
        assert_eq!(
            breakers.create("b", config(1)).unwrap().state(),
            CircuitState::Closed
        );
        assert_eq!(breakers.refused_records()[0].error, RestoreError::Corrupt);
    }
}

#[actix::test]
async fn unknown_versions_are_ignored() {
    let unknown = [
        (json!({"version": 2, "shards": [1, 2]}), Some(Some(2))),
        (json!({"version": 2, "breakers": {}}), Some(Some(2))),
        (json!({"version": "1"}), Some(None)),
        (json!(null), Some(None)),
        (json!([1, 2, 3]), Some(None)),
        (json!({}), Some(None)),
        // Ours, but not as we write it.
        (json!({"version": 1, "breakers": []}), None),
        (json!({"version": 1, "more": {}}), None),
    ];
    for (text, version) in unknown {
        let (_, breakers) = process(noon());
        assert_eq!(breakers.restore(read(text.clone())), 0, "{text}");
        let refused = breakers.refused_records();
        let expected = match version {
            Some(version) => RestoreError::Version { version },
            None => RestoreError::Corrupt,
        };
        assert_eq!(refused.len(), 1, "{text}");
        assert_eq!(
            (&*refused[0].name, &refused[0].error),
            ("", &expected),
            "{text}"
        );
        breakers.create("a", config(1)).unwrap();
    }
    assert_eq!(
        RestoreError::Version { version: Some(2) }.to_string(),
        "version 2 is not known"
    );
    assert_eq!(
        RestoreError::Version { version: None }.to_string(),
        "version none is not known"
    );
}

#[actix::test]
async fn breaker_that_exists_keeps_its_own() {
    let (_, breakers) = process(noon());
    fail(&breakers.create("a", config(1)).unwrap()).await;
    let exported = breakers.export().await;
    let (_, breakers) = process(noon());
    let breaker = breakers.create("a", config(1)).unwrap();
    assert_eq!(breakers.restore(exported), 0);
    assert_eq!(breaker.state(), CircuitState::Closed);
    assert_eq!(breakers.refused_records()[0].error, RestoreError::Exists);
}

struct Never;

impl TripRule for Never {
    fn trips(&self, failures: &[Timestamp], _: Timestamp) -> bool {
        failures.len() >= 2
    }

    fn lookback(&self) -> Duration {
        SECOND * 60
    }
}

// A rule of the user's cannot be written down, so a breaker with any such rule may take it over.
#[actix::test]
async fn breaker_with_a_rule_of_the_users_takes_over_one_with_such() {
    let custom = || {
        consecutive(1)
            .trip(TripPolicy::Custom(Arc::new(Never)))
            .build()
            .unwrap()
    };
    let (_, breakers) = process(noon());
    fail(&breakers.create("a", custom()).unwrap()).await;
    let text = written(&breakers.export().await);
    let (_, breakers) = process(noon());
    breakers.restore(read(text.clone()));
    let breaker = breakers.create("a", custom()).unwrap();
    assert_eq!(breaker.snapshot().await.unwrap().failures, 1);

    let (_, breakers) = process(noon());
    breakers.restore(read(text));
    breakers.create("a", config(1)).unwrap();
    assert_eq!(breakers.refused_records()[0].error, RestoreError::Config);
}

// Every policy's window can be written and read, in more than one format.
#[actix::test]
async fn every_policy_is_written_and_read() {
    let settings = [
        consecutive(3),
        count(3, SECOND * 60),
        rate(0.5, 4, Window::Calls(8)),
        rate(0.5, 4, Window::Time(SECOND * 60)),
    ];
    for settings in settings {
        let (_, breakers) = process(noon());
        let config = settings.build().unwrap();
        let breaker = breakers.create("a", config.clone()).unwrap();
        fail(&breaker).await;
        fail(&breaker).await;
        let exported = breakers.export().await;
        let texts = [
            read(written(&exported)),
            toml::from_str(&toml::to_string(&exported).unwrap()).unwrap(),
        ];
        for text in texts {
            assert_eq!(text, exported);
            let (_, breakers) = process(noon());
            breakers.restore(text);
            let breaker = breakers.create("a", config.clone()).unwrap();
            assert_eq!(breaker.snapshot().await.unwrap().failures, 2, "{config:?}");
        }
    }
}

#[actix::test]
async fn families_survive_key_by_key() {
    let (_, breakers) = process(noon());
    let hosts = breakers.family("hosts", config(2)).unwrap();
    for (key, failures) in [("open", 2), ("failed", 1), ("well", 0)] {
        let breaker = hosts.breaker(key);
        for _ in 0..failures {
            fail(&breaker).await;
        }
    }
    let own = hosts.breaker("own");
    own.reconfigure(config(3)).await.unwrap().unwrap();
    let forced = hosts.breaker("forced");
    forced
        .force_open(ForceOpen::new("gone"))
        .await
        .unwrap()
        .unwrap();
    drop((own, forced));
    let text = written(&breakers.export().await);
    let keys: Vec<_> = text["families"]["hosts"]["keys"]
        .as_object()
        .unwrap()
        .keys()
        .collect();
    assert_eq!(keys, ["failed", "forced", "open", "own"]);

    let (_, breakers) = process(noon() + SECOND);
    assert_eq!(breakers.restore(read(text.clone())), 4);
    let hosts = breakers.family("hosts", config(2)).unwrap();
    assert_eq!(hosts.keys(), ["failed", "forced", "open"]);
    let refused = breakers.refused_records();
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (&*refused[0].name, &refused[0].error),
        ("hosts/own", &RestoreError::Config)
    );
    let rejected = hosts
        .call("open", async { Answer::Ok(1) })
        .await
        .unwrap_err();
    assert_eq!(rejected.retry_after(), Some(BREAK - SECOND));
    assert!(
        hosts
            .call("forced", async { Answer::Ok(1) })
            .await
            .unwrap_err()
            .is_rejected()
    );
    fail(&hosts.breaker("failed")).await;
    assert_eq!(hosts.breaker("failed").state(), CircuitState::Open);

    // A cap holds here, too.
    let clock = ManualClock::new();
    clock.set(noon());
    let builder = Breakers::builder().clock(Arc::new(clock)).max_keys(2);
    let small = builder.start();
    small.restore(read(text));
    assert_eq!(small.family("hosts", config(2)).unwrap().len(), 2);
    let refused = small.refused_records();
    assert!(
        refused
            .iter()
            .any(|refused| refused.error == RestoreError::Full)
    );
}
