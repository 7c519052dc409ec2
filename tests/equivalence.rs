//! The machines of the three seeds, in a few lines each, in lockstep with the real circuit: over every sequence
//! of events to some depth, and over long random ones. Where they part, a rule must say so; it is named, counted,
//! and the seed's machine is set right as the rule has it, so that the walk goes on. What each seed documents of
//! itself is in the `seed_*.rs` files.
//!
//! The last part settles what the design note says of itself: which of its forms is its machine.
//!
//! A random walk prints its seed; `CIRCUIT_SEED=… cargo test --test equivalence` walks it again.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "the numbers are small, and what goes wrong fails the test"
)]

mod common;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use actix_circuit_breaker::circuit::{Circuit, CircuitState, Permit, Settlement};
use actix_circuit_breaker::{BreakerConfig, BreakerConfigBuilder, Outcome, TripPolicy};
use common::{at_ms, circuit, cons};

use CircuitState::{Closed, HalfOpen, Open};

/// One unit of time; all waits stay below a second, where `retry_after` is cut (R9).
const UNIT_MS: u64 = 100;

/// What a machine shows of itself; `None` where it knows nothing of the kind.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    closed: bool,
    state: Option<CircuitState>,
    /// The failures that count while closed.
    failures: usize,
    /// After what time the next call is admitted.
    wait: Option<u64>,
    /// The probes that hold a slot, and those that succeeded.
    probes: Option<usize>,
    successes: Option<u32>,
}

/// A machine that knows no calls, only outcomes.
trait Seed: Clone + PartialEq + fmt::Debug {
    /// Whether a call is admitted.
    fn ask(&mut self, now: u64) -> bool;
    fn end(&mut self, failed: bool, now: u64);
    fn seen(&self, now: u64) -> Seen;
    fn state(&self) -> CircuitState;
    /// Drops the failures that are just as old as the window, where the machine keeps them (R4).
    fn drop_edge(&mut self, _now: u64) {}
    /// A probe that began at `began` succeeds and frees its own slot and no other, where the machine does
    /// otherwise (R13).
    fn succeed_own(&mut self, _began: u64, now: u64) {
        self.end(false, now);
    }
}

// ---------------------------------------------------------------------------------------------------
// The shipped machine of Fedify: state, failures, opened, half-opened.

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Shipped {
    threshold: usize,
    window: u64,
    recovery: u64,
    state: CircuitState,
    failures: Vec<u64>,
    opened: u64,
    half_opened: u64,
}

impl Shipped {
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

    fn wait(&self, now: u64) -> u64 {
        match self.state {
            Open => (self.opened + self.recovery).saturating_sub(now),
            HalfOpen => (self.half_opened + self.recovery).saturating_sub(now),
            _ => 0,
        }
    }
}

impl Seed for Shipped {
    fn ask(&mut self, now: u64) -> bool {
        if self.wait(now) > 0 {
            return false;
        }
        if self.state != Closed {
            self.state = HalfOpen;
            self.half_opened = now;
        }
        true
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
        add_inclusive(&mut self.failures, self.window, self.threshold, now);
        if self.state == HalfOpen || self.failures.len() >= self.threshold {
            self.state = Open;
            self.opened = now;
        }
    }

    fn seen(&self, now: u64) -> Seen {
        let wait = self.wait(now);
        Seen {
            closed: self.state == Closed,
            state: Some(self.state),
            failures: count_inclusive(&self.failures, self.window, now),
            wait: Some(wait),
            probes: Some(usize::from(self.state == HalfOpen && wait > 0)),
            successes: Some(0),
        }
    }

    fn state(&self) -> CircuitState {
        self.state
    }

    fn drop_edge(&mut self, now: u64) {
        let window = self.window;
        self.failures.retain(|past| past + window != now);
    }
}

/// Appends, then prunes: an age that equals the window counts, and no more than the threshold are kept.
fn add_inclusive(failures: &mut Vec<u64>, window: u64, threshold: usize, now: u64) {
    failures.push(now);
    failures.retain(|past| past + window >= now);
    let surplus = failures.len().saturating_sub(threshold);
    failures.drain(..surplus);
}

fn count_inclusive(failures: &[u64], window: u64, now: u64) -> usize {
    let young = failures.iter().filter(|past| **past + window >= now);
    young.count()
}

// ---------------------------------------------------------------------------------------------------
// The note's forms: failures and the restraint; and with a third field that tells a probe.

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Note {
    threshold: usize,
    window: u64,
    recovery: u64,
    failures: Vec<u64>,
    restrained_until: Option<u64>,
    /// `None` in the form that has no such field.
    probing: Option<bool>,
}

impl Note {
    fn two_fields(threshold: usize, window: u64, recovery: u64) -> Self {
        Self {
            threshold,
            window,
            recovery,
            failures: Vec::new(),
            restrained_until: None,
            probing: None,
        }
    }

    fn three_fields(threshold: usize, window: u64, recovery: u64) -> Self {
        Self {
            probing: Some(false),
            ..Self::two_fields(threshold, window, recovery)
        }
    }

    fn wait(&self, now: u64) -> u64 {
        self.restrained_until
            .map_or(0, |until| until.saturating_sub(now))
    }
}

impl Seed for Note {
    fn ask(&mut self, now: u64) -> bool {
        if self.wait(now) > 0 {
            return false;
        }
        if self.restrained_until.is_some() {
            self.restrained_until = Some(now + self.recovery);
            self.probing = self.probing.map(|_| true);
        }
        true
    }

    fn end(&mut self, failed: bool, now: u64) {
        if !failed {
            self.failures.clear();
            self.restrained_until = None;
            self.probing = self.probing.map(|_| false);
            return;
        }
        // The one rule that the third field is for: failures change nothing while open.
        if self.restrained_until.is_some() && self.probing == Some(false) {
            return;
        }
        add_inclusive(&mut self.failures, self.window, self.threshold, now);
        if self.restrained_until.is_some() || self.failures.len() >= self.threshold {
            self.restrained_until = Some(now + self.recovery);
            self.probing = self.probing.map(|_| false);
        }
    }

    fn seen(&self, now: u64) -> Seen {
        let closed = self.restrained_until.is_none();
        Seen {
            closed,
            state: (closed || self.probing.is_some()).then(|| self.state()),
            failures: count_inclusive(&self.failures, self.window, now),
            wait: Some(self.wait(now)),
            probes: self
                .probing
                .map(|probing| usize::from(probing && self.wait(now) > 0)),
            successes: None,
        }
    }

    /// Without the third field, the label is a guess.
    fn state(&self) -> CircuitState {
        match (self.restrained_until, self.probing) {
            (None, _) => Closed,
            (Some(_), Some(true)) => HalfOpen,
            (Some(_), _) => Open,
        }
    }

    fn drop_edge(&mut self, now: u64) {
        let window = self.window;
        self.failures.retain(|past| past + window != now);
    }
}

// ---------------------------------------------------------------------------------------------------
// The rolling-window core of `RedisX`.

#[derive(Debug, Clone, PartialEq)]
struct RollingWindow {
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

impl RollingWindow {
    fn new(
        threshold: usize,
        max_probes: usize,
        successes_to_close: u32,
        probe_timeout: u64,
    ) -> Self {
        Self {
            threshold,
            window: 2,
            open_for: 2,
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

    fn succeed(&mut self) {
        self.successes += 1;
        if self.successes >= self.successes_to_close {
            self.enter(Closed);
        }
    }
}

impl Seed for RollingWindow {
    fn ask(&mut self, now: u64) -> bool {
        match self.state {
            Closed => return true,
            Open if now - self.opened < self.open_for => return false,
            Open => self.enter(HalfOpen),
            _ => {}
        }
        self.expire(now);
        let admits = self.starts.len() < self.max_probes;
        if admits {
            self.starts.push(now);
        }
        admits
    }

    fn end(&mut self, failed: bool, now: u64) {
        match (self.state, failed) {
            (Closed, true) => {
                self.failures.push(now);
                let window = self.window;
                self.failures.retain(|past| past + window > now);
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
                self.succeed();
            }
            _ => {}
        }
    }

    fn seen(&self, now: u64) -> Seen {
        let mut then = self.clone();
        then.expire(now);
        let in_use = then.starts.len() >= self.max_probes;
        let first = then.starts.iter().min().filter(|_| in_use);
        Seen {
            closed: self.state == Closed,
            state: Some(self.state),
            failures: (self.failures.iter())
                .filter(|past| **past + self.window > now)
                .count(),
            wait: Some(match self.state {
                Open => (self.opened + self.open_for).saturating_sub(now),
                _ => first.map_or(0, |start| start + self.probe_timeout - now),
            }),
            probes: Some(then.starts.len()),
            successes: Some(self.successes),
        }
    }

    fn state(&self) -> CircuitState {
        self.state
    }

    fn succeed_own(&mut self, began: u64, now: u64) {
        self.expire(now);
        self.starts.sort_unstable();
        if let Some(own) = self.starts.iter().position(|start| *start == began) {
            self.starts.remove(own);
        }
        self.succeed();
    }
}

// ---------------------------------------------------------------------------------------------------
// The consecutive one of actor-ts, which admits all in half-open.

#[derive(Debug, Clone, PartialEq)]
struct Consecutive {
    max_failures: usize,
    reset: u64,
    state: CircuitState,
    failures: usize,
    next_probe_at: u64,
}

impl Consecutive {
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
        if self.state == state {
            return;
        }
        self.state = state;
        self.failures = 0;
        self.next_probe_at = now + self.reset;
    }
}

impl Seed for Consecutive {
    fn ask(&mut self, now: u64) -> bool {
        if self.state == Open && now >= self.next_probe_at {
            self.set(HalfOpen, now);
        }
        self.state != Open
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

    fn seen(&self, now: u64) -> Seen {
        Seen {
            closed: self.state == Closed,
            state: Some(self.state),
            failures: self.failures,
            wait: match self.state {
                Open => Some(self.next_probe_at.saturating_sub(now)),
                // It admits all; that is looked at when one asks.
                HalfOpen => None,
                _ => Some(0),
            },
            probes: None,
            successes: None,
        }
    }

    fn state(&self) -> CircuitState {
        self.state
    }
}

// ---------------------------------------------------------------------------------------------------
// Lockstep.

/// What may happen next; a number names one of the calls under way, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Unit,
    Ask,
    End(usize, Outcome),
}

/// A rule that says why a seed and ours part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// An age that equals the window is out.
    R4,
    /// No more than so many probes at once.
    R7,
    /// A late outcome moves nothing.
    R11,
    /// While open, outcomes change nothing.
    R12,
    /// A success frees its own slot and no other.
    R13,
}

/// A call under way. Its permit cannot be copied, so the circuit that gave it is kept and asked again.
#[derive(Debug, Clone)]
struct Call {
    from: Arc<Circuit>,
    began: u64,
    /// How often the state had changed when it was admitted.
    changes: usize,
}

impl Call {
    fn permit(&self) -> Permit {
        let mut from = Circuit::clone(&self.from);
        from.try_acquire(at_ms(self.began * UNIT_MS)).unwrap()
    }
}

/// A seed and ours side by side.
#[derive(Debug, Clone)]
struct Pair<S> {
    ours: Circuit,
    seed: S,
    now: u64,
    calls: Vec<Call>,
    changes: usize,
}

/// How often they parted, by rule; and how often they went together.
#[derive(Debug, Default)]
struct Met {
    events: u32,
    probes: u32,
    recovered: u32,
    parted: BTreeMap<Rule, u32>,
}

impl<S: Seed> Pair<S> {
    fn new(settings: &BreakerConfigBuilder, seed: S) -> Self {
        Self {
            ours: circuit(settings.clone()),
            seed,
            now: 0,
            calls: Vec::new(),
            changes: 0,
        }
    }

    /// What ours shows, as far as the seed can tell.
    fn ours_seen(&self, seed: &Seen) -> Seen {
        let snapshot = self.ours.snapshot(at_ms(self.now * UNIT_MS));
        let wait = snapshot.retry_after.unwrap_or_default();
        let wait = u64::try_from(wait.as_millis()).unwrap() / UNIT_MS;
        let closed = snapshot.state == Closed;
        Seen {
            closed,
            state: seed.state.map(|_| snapshot.state),
            failures: if closed {
                usize::try_from(snapshot.failures).unwrap()
            } else {
                seed.failures
            },
            wait: seed.wait.map(|_| wait),
            probes: (seed.probes).map(|_| usize::try_from(snapshot.probes_in_flight).unwrap()),
            successes: seed.successes.map(|_| snapshot.successes),
        }
    }

    fn agrees(&self, seed: &S) -> bool {
        let theirs = seed.seen(self.now);
        theirs == self.ours_seen(&theirs)
    }

    /// Takes one step on both; says what rule they part by, or why none does.
    fn step(&mut self, event: Event, met: &mut Met) -> Result<(), String> {
        let before = self.seed.state();
        let ours_before = self.ours.record().state();
        let mut seed = self.seed.clone();
        let mut rule = None;
        let under_way = self.calls.len();
        match event {
            Event::Unit => {
                self.now += 1;
                if !self.agrees(&seed) {
                    rule = Some(Rule::R4);
                    seed.drop_edge(self.now);
                }
            }
            Event::Ask => {
                let from = Arc::new(self.ours.clone());
                let theirs = seed.ask(self.now);
                let ours = self.ours.try_acquire(at_ms(self.now * UNIT_MS));
                match (&ours, theirs) {
                    (Ok(_), true) | (Err(_), false) => {}
                    (Err(_), true) if before == HalfOpen => {
                        rule = Some(Rule::R7);
                        seed = self.seed.clone();
                    }
                    _ => return Err(format!("we say {ours:?}, the seed {theirs}")),
                }
                if let Ok(permit) = ours {
                    met.probes += u32::from(permit.is_probe());
                    self.calls.push(Call {
                        from,
                        began: self.now,
                        changes: 0,
                    });
                }
            }
            Event::End(call, outcome) => {
                let call = self.calls.remove(call);
                let failed = outcome == Outcome::Failure;
                let late = call.changes != self.changes;
                let settled = (self.ours).settle(call.permit(), outcome, at_ms(self.now * UNIT_MS));
                if late != (settled == Settlement::Late) {
                    return Err(format!("{settled:?}, late {late}"));
                }
                seed.end(failed, self.now);
                if late && !self.agrees(&seed) {
                    seed = self.seed.clone();
                    rule = Some(match before {
                        Open => Rule::R12,
                        _ => Rule::R11,
                    });
                } else if !late && !failed && before == HalfOpen {
                    // What differs may show only when a lease ends.
                    let mut own = self.seed.clone();
                    own.succeed_own(call.began, self.now);
                    rule = (own != seed).then_some(Rule::R13);
                    seed = own;
                }
            }
        }
        if !self.agrees(&seed) {
            return Err(format!("no rule says so, not {rule:?}: {seed:?}"));
        }
        if let Some(rule) = rule {
            *met.parted.entry(rule).or_default() += 1;
        }
        met.events += 1;
        let after = self.ours.record().state();
        met.recovered += u32::from(ours_before == HalfOpen && after == Closed);
        self.changes += std::iter::from_fn(|| self.ours.pop_transition()).count();
        for call in self.calls.iter_mut().skip(under_way) {
            call.changes = self.changes;
        }
        self.seed = seed;
        Ok(())
    }

    fn events(&self, at_once: usize) -> Vec<Event> {
        let mut events = vec![Event::Unit];
        if self.calls.len() < at_once {
            events.push(Event::Ask);
        }
        for call in 0..self.calls.len() {
            events.push(Event::End(call, Outcome::Success));
            events.push(Event::End(call, Outcome::Failure));
        }
        events
    }

    /// Takes every sequence of so many events, with at most so many calls under way.
    fn walk(&self, depth: usize, at_once: usize) -> Met {
        let mut met = Met::default();
        let mut story = Vec::new();
        self.walk_on(depth, at_once, &mut story, &mut met);
        println!("{met:?}");
        met
    }

    fn walk_on(&self, depth: usize, at_once: usize, story: &mut Vec<Event>, met: &mut Met) {
        for event in self.events(at_once) {
            story.push(event);
            let mut next = self.clone();
            if let Err(why) = next.step(event, met) {
                panic!("{story:?}: {why}, {next:?}");
            }
            if story.len() < depth {
                next.walk_on(depth, at_once, story, met);
            }
            story.pop();
        }
    }

    /// Takes 10^4 random events.
    fn wander(&self) -> Met {
        let mut met = Met::default();
        let seed = std::env::var("CIRCUIT_SEED").map_or_else(
            |_| fastrand::u64(..),
            |seed| seed.parse().expect("a number"),
        );
        println!("CIRCUIT_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pair = self.clone();
        for number in 0..10_000 {
            let event = *random.choice(&pair.events(6)).unwrap();
            if let Err(why) = pair.step(event, &mut met) {
                panic!("CIRCUIT_SEED={seed}: event {number}, {event:?}: {why}, {pair:?}");
            }
        }
        met
    }
}

/// They part by these rules alone, so many times.
#[track_caller]
fn parted(met: &Met, by: &[(Rule, u32)]) {
    assert_eq!(met.parted, by.iter().copied().collect(), "{met:?}");
    assert!(met.probes > 0 && met.recovered > 0, "{met:?}");
}

/// They part by some of these rules alone.
#[track_caller]
fn parted_among(met: &Met, by: &[Rule]) {
    assert_eq!(met.events, 10_000);
    assert!(met.probes > 0 && met.recovered > 0, "{met:?}");
    let foreign = met.parted.keys().find(|rule| !by.contains(rule));
    assert_eq!(foreign, None, "{met:?}");
    assert!(!met.parted.is_empty(), "{met:?}");
}

fn span(units: u64) -> Duration {
    Duration::from_millis(units * UNIT_MS)
}

fn fedify_settings(threshold: u32) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures: threshold,
            within: span(2),
            reset_on_success: true,
        })
        .call_timeout(span(1))
        .break_duration(span(3))
        .probe_timeout(span(3))
}

fn redisx_settings(failures: u32, probes: u32, successes: u32) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures,
            within: span(2),
            reset_on_success: false,
        })
        .call_timeout(span(1))
        .break_duration(span(2))
        .max_probes(probes)
        .successes_to_close(successes)
        .probe_timeout(span(2))
}

fn actor_ts_settings(failures: u32) -> BreakerConfigBuilder {
    cons(failures)
        .break_duration(span(2))
        .call_timeout(span(1))
        .probe_timeout(span(2))
}

#[test]
fn the_shipped_machine() {
    // check 31
    let one = Pair::new(&fedify_settings(1), Shipped::new(1, 2, 3));
    let two = Pair::new(&fedify_settings(2), Shipped::new(2, 2, 3));
    let (first, second) = (one.walk(11, 2), two.walk(10, 3));
    parted(&first, &[(Rule::R11, 932), (Rule::R12, 14_208)]);
    parted(
        &second,
        &[(Rule::R4, 7_277), (Rule::R11, 24), (Rule::R12, 20_236)],
    );
    let rules = [Rule::R4, Rule::R11, Rule::R12];
    parted_among(&one.wander(), &rules);
    parted_among(&two.wander(), &rules);
}

#[test]
fn the_two_field_note() {
    let one = Pair::new(&fedify_settings(1), Note::two_fields(1, 2, 3));
    let two = Pair::new(&fedify_settings(2), Note::two_fields(2, 2, 3));
    let (first, second) = (one.walk(11, 2), two.walk(10, 3));
    parted(&first, &[(Rule::R11, 140), (Rule::R12, 21_792)]);
    parted(&second, &[(Rule::R4, 7_277), (Rule::R12, 26_512)]);
    let rules = [Rule::R4, Rule::R11, Rule::R12];
    parted_among(&one.wander(), &rules);
    parted_among(&two.wander(), &rules);
}

#[test]
fn the_rolling_window_core() {
    let one = Pair::new(&redisx_settings(2, 1, 1), RollingWindow::new(2, 1, 1, 2));
    let two = Pair::new(&redisx_settings(1, 2, 2), RollingWindow::new(1, 2, 2, 2));
    let (first, second) = (one.walk(11, 2), two.walk(10, 3));
    parted(&first, &[(Rule::R11, 756)]);
    parted(&second, &[(Rule::R11, 3_192), (Rule::R13, 93)]);
    let rules = [Rule::R11, Rule::R13];
    parted_among(&one.wander(), &rules);
    parted_among(&two.wander(), &rules);
}

#[test]
fn the_consecutive_one() {
    let one = Pair::new(&actor_ts_settings(1), Consecutive::new(1, 2));
    let two = Pair::new(&actor_ts_settings(2), Consecutive::new(2, 2));
    let (first, second) = (one.walk(11, 2), two.walk(10, 3));
    parted(&first, &[(Rule::R7, 5_593), (Rule::R11, 2_580)]);
    parted(&second, &[(Rule::R7, 408), (Rule::R11, 348)]);
    let rules = [Rule::R7, Rule::R11, Rule::R12];
    parted_among(&one.wander(), &rules);
    parted_among(&two.wander(), &rules);
}

// ---------------------------------------------------------------------------------------------------
// The note against the machine it starts from. Neither knows calls, so that those under way are a number.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Unit,
    Ask,
    Ok,
    Fail,
}

#[derive(Debug, Clone)]
struct Forms {
    shipped: Shipped,
    note: Note,
    now: u64,
    under_way: usize,
}

impl Forms {
    /// All that can matter later, told relative to now.
    fn key(&self) -> impl Hash + Eq + use<> {
        let now = self.now;
        let ages = |failures: &[u64], window: u64| -> Vec<u64> {
            let ages = failures.iter().map(|past| now - past);
            ages.filter(|age| *age <= window).collect()
        };
        (
            self.shipped.state,
            ages(&self.shipped.failures, self.shipped.window),
            self.shipped.wait(now),
            ages(&self.note.failures, self.note.window),
            self.note
                .restrained_until
                .map(|until| until.saturating_sub(now)),
            self.note.probing,
            self.under_way,
        )
    }

    /// Says whether they still decide and, where both have words for it, show the same.
    fn step(&mut self, word: Word) -> bool {
        let now = self.now;
        match word {
            Word::Unit => self.now += 1,
            Word::Ask => {
                let admitted = self.shipped.ask(now);
                if self.note.ask(now) != admitted {
                    return false;
                }
                self.under_way += usize::from(admitted);
            }
            Word::Ok | Word::Fail => {
                self.under_way -= 1;
                self.shipped.end(word == Word::Fail, now);
                self.note.end(word == Word::Fail, now);
            }
        }
        // The two-field form has no word for half-open, and it is only held to what it decides.
        self.note.probing.is_none() || {
            let (shipped, note) = (self.shipped.seen(self.now), self.note.seen(self.now));
            (shipped.state, shipped.wait, shipped.probes) == (note.state, note.wait, note.probes)
                && (!shipped.closed || shipped.failures == note.failures)
        }
    }

    /// Searches all that can be reached with at most so many calls under way, nearest first: the shortest way to
    /// where they part, or how many states there are if they never do.
    fn search(self, at_once: usize) -> Result<usize, Vec<Word>> {
        let mut known = HashSet::from([self.key()]);
        let mut open = VecDeque::from([(self, Vec::new())]);
        while let Some((forms, story)) = open.pop_front() {
            for word in [Word::Unit, Word::Ask, Word::Ok, Word::Fail] {
                let possible = match word {
                    Word::Unit => true,
                    Word::Ask => forms.under_way < at_once,
                    Word::Ok | Word::Fail => forms.under_way > 0,
                };
                if !possible {
                    continue;
                }
                let mut next = forms.clone();
                let mut story = story.clone();
                story.push(word);
                if !next.step(word) {
                    return Err(story);
                }
                if known.insert(next.key()) {
                    open.push_back((next, story));
                }
            }
        }
        Ok(known.len())
    }
}

fn forms(threshold: usize, note: fn(usize, u64, u64) -> Note) -> Forms {
    let (window, recovery) = (3, 2);
    Forms {
        shipped: Shipped::new(threshold, window, recovery),
        note: note(threshold, window, recovery),
        now: 0,
        under_way: 0,
    }
}

#[test]
fn three_fields_are_the_shipped_machine() {
    // R1: in every state that can be reached, whatever the number of steps
    let states = [(1, 1), (1, 4), (2, 4), (3, 4)]
        .map(|(threshold, at_once)| forms(threshold, Note::three_fields).search(at_once));
    assert_eq!(states, [Ok(13), Ok(49), Ok(125), Ok(267)]);
}

#[test]
fn two_fields_are_the_shipped_machine_for_one_call_at_a_time() {
    // R1
    let states = [1, 2, 3].map(|threshold| forms(threshold, Note::two_fields).search(1));
    assert_eq!(states, [Ok(13), Ok(35), Ok(78)]);
}

#[test]
fn two_fields_are_not_the_shipped_machine_for_two_calls_at_a_time() {
    // R1: the second failure of calls that were under way at the trip pushes the deadline out
    let story = forms(1, Note::two_fields).search(2).unwrap_err();
    println!("shortest counterexample: {story:?}");
    assert_eq!(
        story,
        [
            Word::Ask,
            Word::Ask,
            Word::Fail,
            Word::Unit,
            Word::Unit,
            Word::Fail,
            Word::Ask
        ]
    );
}
