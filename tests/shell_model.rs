//! The shell against the circuit it is built around: the same steps, the same decisions.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::items_after_statements,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod harness;

use std::sync::{Arc, Mutex};

use actix_circuit_breaker::circuit::{self, Circuit};
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    AskError, Backoff, BreakerConfig, Breakers, Clock, ManualClock, Outcome, Permit, RampUp,
    RandomSource, SlowCall, TripPolicy, Window,
};
use harness::*;

fn configs() -> Vec<BreakerConfig> {
    let probes = |config: actix_circuit_breaker::BreakerConfigBuilder| {
        config
            .max_probes(2)
            .successes_to_close(3)
            .max_inconclusive(2)
            .probe_timeout(3 * SECOND)
    };
    [
        consecutive(2),
        probes(consecutive(3)).backoff(Backoff::new(2.0, 25 * SECOND)),
        probes(count(3, 4 * SECOND)),
        consecutive(2).trip(TripPolicy::FailureCount {
            failures: 3,
            within: 10 * SECOND,
            reset_on_success: true,
        }),
        probes(rate(0.5, 4, Window::Calls(6))),
        rate(0.4, 3, Window::Time(5 * SECOND)),
        consecutive(2).ramp_up(RampUp::new(8 * SECOND, 0.25)),
        rate(0.5, 4, Window::Calls(6)).ramp_up(RampUp::new(60 * SECOND, 0.1)),
        probes(consecutive(1)).trip(TripPolicy::FailureRate {
            rate: 0.6,
            minimum_calls: 3,
            window: Window::Calls(5),
            slow_call: Some(SlowCall::new(700 * MS, 0.5)),
        }),
    ]
    .map(|config| config.build().unwrap())
    .into()
}

/// The same numbers in the same order, for each of the two.
struct Draws(Mutex<fastrand::Rng>);

impl Draws {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(fastrand::Rng::with_seed(seed))))
    }
}

impl RandomSource for Draws {
    fn uniform(&self) -> f64 {
        self.0.lock().unwrap().f64()
    }
}

/// One step after another, taken by both.
struct Both {
    clock: ManualClock,
    world: World,
    model: Circuit,
    held: Vec<(Permit, circuit::Permit)>,
    rng: fastrand::Rng,
    log: Vec<String>,
}

impl Both {
    fn outcome(&mut self) -> Outcome {
        match self.rng.u8(..8) {
            0..3 => Outcome::Success,
            3..7 => Outcome::Failure,
            _ => Outcome::Ignored,
        }
    }

    fn take(&mut self) -> Option<(Permit, circuit::Permit)> {
        let index = self.rng.usize(..self.held.len().max(1));
        (index < self.held.len()).then(|| self.held.swap_remove(index))
    }

    async fn acquire(&mut self) {
        let permit = self.world.breaker.acquire().await;
        match (permit, self.model.try_acquire(self.clock.now())) {
            (Ok(permit), Ok(expected)) => {
                assert_eq!(permit.is_probe(), expected.is_probe(), "{:#?}", self.log);
                self.held.push((permit, expected));
            }
            (Err(AskError::Rejected(rejected)), Err(refused)) => {
                let got = (rejected.reason(), rejected.epoch(), rejected.retry_after());
                let expected = (refused.reason(), refused.epoch(), refused.retry_after());
                assert_eq!(got, expected, "{:#?}", self.log);
            }
            (got, expected) => panic!("{got:?} {expected:?} {:#?}", self.log),
        }
    }

    async fn step(&mut self) {
        let now = self.clock.now();
        let breaker = self.world.breaker.clone();
        let op = self.rng.u8(..40);
        self.log.push(format!("{op} at {now}"));
        match op {
            0..12 => self.acquire().await,
            12..20 => {
                let outcome = self.outcome();
                if let Some((permit, expected)) = self.take() {
                    match outcome {
                        Outcome::Success => permit.success().await,
                        Outcome::Failure => permit.failure().await,
                        _ => permit.ignore().await,
                    }
                    self.model.settle(expected, outcome, now);
                }
            }
            20..22 => {
                if let Some((permit, expected)) = self.take() {
                    drop(permit);
                    self.model.reclaim(expected, now);
                }
            }
            22..29 => {
                let outcome = self.outcome();
                let ask = self
                    .world
                    .breaker
                    .ask_with(&self.world.target, Job::Good, move |_: &Answer| outcome)
                    .await;
                match self.model.try_acquire(now) {
                    Ok(permit) => {
                        assert_eq!(ask, Ok(Ok(1)), "{:#?}", self.log);
                        self.model.settle(permit, outcome, now);
                    }
                    Err(_) => assert!(ask.unwrap_err().is_rejected(), "{:#?}", self.log),
                }
            }
            29..36 => {
                let span = [MS, 300 * MS, 900 * MS, 3 * SECOND, BREAK];
                self.clock.advance(span[self.rng.usize(..span.len())]);
            }
            36 => {
                if self.rng.bool() {
                    breaker
                        .force_open(ForceOpen::new("x"))
                        .await
                        .unwrap()
                        .unwrap();
                    self.model.force_open(None, "x", now).unwrap();
                } else {
                    let order = ForceClosed::new("x");
                    breaker.force_closed(order).await.unwrap().unwrap();
                    self.model.force_closed(None, "x", now).unwrap();
                }
            }
            37 => {
                if self.rng.u8(..3) == 0 {
                    breaker.reset().await.unwrap();
                    self.model.reset(now);
                }
            }
            _ => {
                breaker.release().await.unwrap();
                self.model.release(now);
            }
        }
        assert_eq!(
            breaker.state(),
            self.model.record().state(),
            "{:#?}",
            self.log
        );
        if self.rng.u8(..3) == 0 {
            self.compare().await;
        }
    }

    async fn compare(&mut self) {
        let mut shown = self.world.snapshot().await.circuit;
        let mut expected = self.model.snapshot(self.clock.now());
        // The shell is not told of a success that changes nothing, nor of an epoch's last ones.
        shown.calls.successes = 0;
        expected.calls.successes = 0;
        assert_eq!(shown, expected, "{:#?}", self.log);
    }
}

// R2, R6–R17, R27 and R36: by permits and asks, probes and orders, the shell adds nothing of its own.
#[actix::test]
async fn shell_decides_as_its_circuit_does() {
    pause();
    for config in configs() {
        for seed in 0..60 {
            let clock = ManualClock::new();
            let breakers = Breakers::builder()
                .clock(Arc::new(clock.clone()))
                .random(Draws::new(seed))
                .start();
            let breaker = breakers.create("b", config.clone()).unwrap();
            let (target, seen) = target();
            let mut both = Both {
                model: Circuit::with_random(config.clone(), Draws::new(seed), clock.now()),
                clock,
                world: World {
                    breakers,
                    breaker,
                    target,
                    seen,
                },
                held: Vec::new(),
                rng: fastrand::Rng::with_seed(seed),
                log: vec![format!("seed {seed}, {config:?}")],
            };
            for _ in 0..200 {
                both.step().await;
            }
            both.compare().await;
        }
    }
}
