//! The machines of the three seeds, in a few lines each, walked beside ours through every short story: they
//! decide alike, but for what the rules decide otherwise. What is told otherwise is not told to them: an
//! outcome of a call from an earlier epoch (R11, R12), unless they would ignore it as well.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the stories are short, and what goes wrong fails the test"
)]

mod common;

use std::fmt;
use std::time::Duration;

use actix_circuit_breaker::circuit::{CircuitState, Permit, Settlement};
use actix_circuit_breaker::{BreakerConfig, BreakerConfigBuilder, Outcome, TripPolicy};
use common::{Story as _, at_ms, circuit, cons};

use CircuitState::{Closed, HalfOpen, Open};

/// A machine that knows no calls, only outcomes; time in milliseconds.
trait Seed: fmt::Debug {
    /// Admits, or says after what time to come again, if it says anything.
    fn ask(&mut self, now: u64) -> Result<(), Option<u64>>;
    fn end(&mut self, failed: bool, now: u64);
    fn state(&self) -> CircuitState;
    /// The failures that count while closed.
    fn failures(&self, now: u64) -> usize;
    /// Whether an outcome would change nothing now.
    fn ignores(&self, failed: bool) -> bool;
}

/// Fedify, with a release interval of a second.
#[derive(Debug)]
struct Fedify {
    threshold: usize,
    window: u64,
    recovery: u64,
    state: CircuitState,
    failures: Vec<u64>,
    opened: u64,
    half_opened: u64,
}

impl Fedify {
    fn new(threshold: usize, window: u64, recovery: u64) -> Self {
        Self {
            threshold,
            window,
            recovery,
            state: Closed,
            failures: Vec::new(),
            opened: 0,
            half_opened: 0,
        }
    }
}

impl Seed for Fedify {
    fn ask(&mut self, now: u64) -> Result<(), Option<u64>> {
        match self.state {
            Closed => Ok(()),
            Open if now < self.opened + self.recovery => {
                Err(Some(self.opened + self.recovery - now))
            }
            HalfOpen if now < self.half_opened + self.recovery => {
                let stale = self.half_opened + self.recovery;
                Err(Some((now + 1_000).min(stale) - now))
            }
            _ => {
                self.state = HalfOpen;
                self.half_opened = now;
                Ok(())
            }
        }
    }

    fn end(&mut self, failed: bool, now: u64) {
        if !failed {
            self.state = Closed;
            self.failures.clear();
            return;
        }
        if self.state == Open {
            return;
        }
        self.failures.push(now);
        self.failures.retain(|then| *then + self.window >= now);
        let surplus = self.failures.len().saturating_sub(self.threshold);
        self.failures.drain(..surplus);
        if self.state == HalfOpen || self.failures.len() >= self.threshold {
            self.state = Open;
            self.opened = now;
        }
    }

    fn state(&self) -> CircuitState {
        self.state
    }

    fn failures(&self, now: u64) -> usize {
        self.failures
            .iter()
            .filter(|then| **then + self.window >= now)
            .count()
    }

    fn ignores(&self, failed: bool) -> bool {
        self.state == Open && failed
    }
}

/// The pure core of `RedisX`.
#[derive(Debug)]
struct RedisX {
    threshold: usize,
    window: u64,
    open_for: u64,
    max_probes: usize,
    successes_to_close: u32,
    probe_timeout: u64,
    state: CircuitState,
    failures: Vec<u64>,
    opened: u64,
    starts: Vec<u64>,
    successes: u32,
}

impl RedisX {
    fn new(
        threshold: usize,
        max_probes: usize,
        successes_to_close: u32,
        probe_timeout: u64,
    ) -> Self {
        Self {
            threshold,
            window: 2_000,
            open_for: 2_000,
            max_probes,
            successes_to_close,
            probe_timeout,
            state: Closed,
            failures: Vec::new(),
            opened: 0,
            starts: Vec::new(),
            successes: 0,
        }
    }

    fn enter(&mut self, state: CircuitState) {
        self.state = state;
        self.failures.clear();
        self.starts.clear();
        self.successes = 0;
    }

    fn expire(&mut self, now: u64) {
        let timeout = self.probe_timeout;
        self.starts.retain(|start| start + timeout > now);
    }
}

impl Seed for RedisX {
    fn ask(&mut self, now: u64) -> Result<(), Option<u64>> {
        if self.state == Closed {
            return Ok(());
        }
        if self.state == Open {
            if now - self.opened < self.open_for {
                return Err(None);
            }
            self.enter(HalfOpen);
        }
        self.expire(now);
        if self.starts.len() >= self.max_probes {
            return Err(None);
        }
        self.starts.push(now);
        Ok(())
    }

    fn end(&mut self, failed: bool, now: u64) {
        match (self.state, failed) {
            (Closed, true) => {
                self.failures.push(now);
                self.failures.retain(|then| *then + self.window > now);
                if self.failures.len() >= self.threshold {
                    self.enter(Open);
                    self.opened = now;
                }
            }
            (HalfOpen, true) => {
                self.enter(Open);
                self.opened = now;
            }
            (HalfOpen, false) => {
                self.expire(now);
                self.starts.sort_unstable();
                self.starts.pop();
                self.successes += 1;
                if self.successes >= self.successes_to_close {
                    self.enter(Closed);
                }
            }
            _ => {}
        }
    }

    fn state(&self) -> CircuitState {
        self.state
    }

    fn failures(&self, now: u64) -> usize {
        self.failures
            .iter()
            .filter(|then| **then + self.window > now)
            .count()
    }

    fn ignores(&self, _failed: bool) -> bool {
        self.state == Open
    }
}

/// actor-ts, which admits all in half-open: so one call at a time.
#[derive(Debug)]
struct ActorTs {
    max_failures: usize,
    reset: u64,
    state: CircuitState,
    failures: usize,
    next_probe_at: u64,
}

impl ActorTs {
    fn new(max_failures: usize, reset: u64) -> Self {
        Self {
            max_failures,
            reset,
            state: Closed,
            failures: 0,
            next_probe_at: 0,
        }
    }

    fn set(&mut self, state: CircuitState, now: u64) {
        self.state = state;
        self.failures = 0;
        self.next_probe_at = now + self.reset;
    }
}

impl Seed for ActorTs {
    fn ask(&mut self, now: u64) -> Result<(), Option<u64>> {
        if self.state == Open {
            if now < self.next_probe_at {
                return Err(Some(self.next_probe_at - now));
            }
            self.set(HalfOpen, now);
        }
        Ok(())
    }

    fn end(&mut self, failed: bool, now: u64) {
        match (self.state, failed) {
            (HalfOpen, false) => self.set(Closed, now),
            (HalfOpen, true) => self.set(Open, now),
            (_, false) => self.failures = 0,
            (_, true) => {
                self.failures += 1;
                if self.failures >= self.max_failures {
                    self.set(Open, now);
                }
            }
        }
    }

    fn state(&self) -> CircuitState {
        self.state
    }

    fn failures(&self, _now: u64) -> usize {
        self.failures
    }

    fn ignores(&self, _failed: bool) -> bool {
        self.state == Open
    }
}

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Second,
    Ask,
    Oldest(Outcome),
    Newest(Outcome),
}

/// What the walk met, so that a walk which meets nothing fails.
#[derive(Debug, Default)]
struct Met {
    stories: u32,
    probes: u32,
    late: u32,
    late_but_told: u32,
    closed_again: u32,
}

/// Plays a story on both and compares after the last step; returns how many calls are under way.
fn play(
    story: &[Step],
    settings: &BreakerConfigBuilder,
    seed: &mut dyn Seed,
    met: &mut Met,
) -> usize {
    let mut ours = circuit(settings.clone());
    let mut under_way: Vec<Permit> = Vec::new();
    let mut now = 0;
    for (index, step) in story.iter().enumerate() {
        let last = index + 1 == story.len();
        match *step {
            Step::Second => now += 1_000,
            Step::Ask => {
                let theirs = seed.ask(now);
                match (ours.try_acquire(at_ms(now)), theirs) {
                    (Ok(permit), Ok(())) => {
                        met.probes += u32::from(last && permit.is_probe());
                        under_way.push(permit);
                    }
                    (Err(refused), Err(wait)) => {
                        let wait = wait.map(Duration::from_millis);
                        if wait.is_some() {
                            assert_eq!(refused.retry_after(), wait, "{story:?} {seed:?}");
                        }
                    }
                    (ours, theirs) => {
                        panic!("{story:?}: we say {ours:?}, the seed {theirs:?} {seed:?}")
                    }
                }
            }
            Step::Oldest(outcome) | Step::Newest(outcome) => {
                let permit = match step {
                    Step::Oldest(_) => under_way.remove(0),
                    _ => under_way.pop().unwrap(),
                };
                let failed = outcome == Outcome::Failure;
                let before = seed.state();
                let settled = ours.settle(permit, outcome, at_ms(now));
                let told = settled == Settlement::Counted || seed.ignores(failed);
                if told {
                    seed.end(failed, now);
                }
                if last {
                    met.late += u32::from(settled == Settlement::Late);
                    met.late_but_told += u32::from(settled == Settlement::Late && told);
                    met.closed_again += u32::from(before == HalfOpen && seed.state() == Closed);
                }
            }
        }
    }
    assert_eq!(ours.state(), seed.state(), "{story:?} {seed:?}");
    if ours.state() == Closed {
        let failures = ours.snapshot(at_ms(now)).failures;
        assert_eq!(
            failures,
            u64::try_from(seed.failures(now)).unwrap(),
            "{story:?} {seed:?}"
        );
    }
    met.stories += 1;
    under_way.len()
}

/// Plays every story of up to `depth` steps with at most `at_once` calls under way.
fn walk<S: Seed>(
    depth: usize,
    at_once: usize,
    settings: &BreakerConfigBuilder,
    seed: impl Fn() -> S,
) -> Met {
    const ENDS: [Outcome; 2] = [Outcome::Success, Outcome::Failure];
    let mut met = Met::default();
    let mut open = vec![Vec::new()];
    while let Some(story) = open.pop() {
        let under_way = play(&story, settings, &mut seed(), &mut met);
        if story.len() == depth {
            continue;
        }
        let mut steps = Vec::new();
        // A story that begins by waiting is another one, later.
        if !story.is_empty() {
            steps.push(Step::Second);
        }
        if under_way < at_once {
            steps.push(Step::Ask);
        }
        if under_way > 0 {
            steps.extend(ENDS.map(Step::Oldest));
        }
        if under_way > 1 {
            steps.extend(ENDS.map(Step::Newest));
        }
        for step in steps {
            let mut longer = story.clone();
            longer.push(step);
            open.push(longer);
        }
    }
    met
}

fn fedify_settings(threshold: u32) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures: threshold,
            // Its edge is inclusive (R4), so no two steps are so far apart.
            within: Duration::from_millis(2_500),
            reset_on_success: true,
        })
        .call_timeout(Duration::from_secs(1))
        .break_duration(Duration::from_secs(3))
        .probe_timeout(Duration::from_secs(3))
}

#[test]
fn fedify_decides_alike_in_every_short_story() {
    // check 31
    for (threshold, depth) in [(1, 10), (2, 11)] {
        let settings = fedify_settings(threshold);
        let threshold = usize::try_from(threshold).unwrap();
        let met = walk(depth, 2, &settings, || Fedify::new(threshold, 2_500, 3_000));
        assert!(met.stories > 25_000, "{met:?}");
        assert!(met.probes > 0 && met.closed_again > 0, "{met:?}");
        assert!(met.late > met.late_but_told, "{met:?}");
        assert!(met.late_but_told > 0, "{met:?}");
    }
}

#[test]
fn redisx_decides_alike_in_every_short_story() {
    let settings = |failures, probes, successes, timeout| {
        BreakerConfig::builder()
            .trip(TripPolicy::FailureCount {
                failures,
                within: Duration::from_secs(2),
                reset_on_success: false,
            })
            .call_timeout(Duration::from_millis(500))
            .break_duration(Duration::from_secs(2))
            .max_probes(probes)
            .successes_to_close(successes)
            .probe_timeout(Duration::from_millis(timeout))
    };
    // Whose slot a success frees differs (R13), which shows only where a lease ends before the round:
    // so either a lease that outlasts the stories, or one success to close.
    for (failures, probes, successes, timeout) in
        [(1, 2, 2, 600_000), (1, 1, 2, 600_000), (2, 1, 1, 1_000)]
    {
        let threshold = usize::try_from(failures).unwrap();
        let at_once = usize::try_from(probes).unwrap();
        let settings = settings(failures, probes, successes, timeout);
        let met = walk(10, 2, &settings, || {
            RedisX::new(threshold, at_once, successes, timeout)
        });
        assert!(met.stories > 25_000, "{met:?}");
        assert!(met.probes > 0 && met.late_but_told > 0, "{met:?}");
        assert!(met.closed_again > 0, "{met:?}");
    }
}

#[test]
fn actor_ts_decides_alike_in_every_short_story() {
    let settings = |failures| {
        cons(failures)
            .break_duration(Duration::from_secs(2))
            .call_timeout(Duration::from_secs(60))
    };
    for (failures, depth) in [(1, 13), (2, 13)] {
        let most = usize::try_from(failures).unwrap();
        let met = walk(depth, 1, &settings(failures), || ActorTs::new(most, 2_000));
        assert!(met.stories > 10_000, "{met:?}");
        assert!(met.probes > 0 && met.closed_again > 0, "{met:?}");
        assert_eq!(met.late, 0);
    }
}
