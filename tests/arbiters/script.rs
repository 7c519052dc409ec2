//! Scripts: what is done, on which arbiter, and what at the same time.
//! How it is done is in `play`; what may come of it in `model`.

use std::time::Duration;

use actix_circuit_breaker::{
    Backoff, BreakerConfig, BreakerConfigBuilder, Outcome, TripPolicy, Window,
};

/// How many arbiters there are beside the breaker's own.
pub(crate) const ARBITERS: u8 = 3;

/// The breaker's own arbiter. Who calls from there reads the clock there, so not in scripts with traps.
pub(crate) const HOME: u8 = ARBITERS;

/// At most so many at once, so that all their orders can be searched.
const AT_ONCE: usize = 5;

/// One step of a script, as it prints. Steps up to the next `Then` run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// By whoever is on that arbiter.
    On(u8, Op),
    /// By the one of the step before, when that is answered.
    And(Op),
    /// When all is quiet, time passes, in milliseconds.
    Then(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A call that begins and ends.
    Call(Way, End),
    /// A call that begins and waits.
    Begin(Way),
    /// A call whose caller looks once and goes away.
    Early(Way),
    /// One of those that wait ends.
    Finish(usize, End),
    /// The breaker's own actor will panic over its next message.
    Trap,
    ForceOpen(Option<u32>),
    ForceClosed(Option<u32>),
    Release,
    Reset,
    Reconfigure(usize),
    Subscribe(Kind),
    /// One of the subscribers stops.
    Kill(usize),
    Stream,
    /// A snapshot, while others are at it.
    Look,
    /// The state, by the gate.
    State,
    /// Time passes while others are at it, in milliseconds.
    Tick(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Ask,
    Guard,
    /// The message `Ask`, to the breaker's address.
    Message,
    /// A guarded future.
    Future,
    /// A two-step permit.
    Permit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Good,
    Bad,
    /// Says nothing about the target.
    Neutral,
    /// The target panics, or the guarded future, or the permit's holder.
    Panic,
    /// The target stops without an answer.
    Stop,
    /// The target never answers.
    Hang,
    /// The caller goes away.
    Gone,
    /// A permit's failure that nobody waits for.
    Careless,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// Handles its first event at the very end.
    Slow,
    /// Panics over its second event and is gone.
    Panics,
    /// Panics over its second event and is restarted.
    Restarts,
    /// Stops at its second event.
    Dies,
}

impl Way {
    pub(crate) fn has_target(self) -> bool {
        matches!(self, Self::Ask | Self::Guard | Self::Message)
    }

    /// The end that a call made this way can have.
    pub(crate) fn fit(self, end: End, waited: bool) -> End {
        match (self, end) {
            (_, End::Stop) if !self.has_target() => End::Bad,
            // On time of its own, which only these can have.
            (Self::Ask | Self::Future | Self::Permit, End::Hang) => End::Bad,
            (_, End::Hang) if waited => End::Bad,
            (Self::Permit, _) => end,
            (_, End::Careless) => End::Bad,
            (_, End::Gone) if !waited => End::Bad,
            _ => end,
        }
    }
}

impl End {
    /// What it says of the target, unless the caller went away.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Good => Outcome::Success,
            Self::Neutral | Self::Gone => Outcome::Ignored,
            _ => Outcome::Failure,
        }
    }
}

fn config(trip: TripPolicy) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(trip)
        .break_duration(Duration::from_secs(10))
        // On the clock of the runtime, which the scripts do not move: nothing ends by it.
        .call_timeout(Duration::from_secs(600))
        .probe_timeout(Duration::from_secs(700))
}

fn consecutive(failures: u32) -> BreakerConfigBuilder {
    config(TripPolicy::ConsecutiveFailures {
        failures,
        within: None,
    })
}

fn rate(minimum_calls: u32, window: Window) -> BreakerConfigBuilder {
    config(TripPolicy::FailureRate {
        rate: 0.5,
        minimum_calls,
        window,
        slow_call: None,
    })
}

fn count(failures: u32, reset_on_success: bool) -> BreakerConfigBuilder {
    config(TripPolicy::FailureCount {
        failures,
        within: Duration::from_secs(30),
        reset_on_success,
    })
}

/// The settings that scripts start from and change to.
pub(crate) fn configs() -> Vec<BreakerConfig> {
    let seconds = Duration::from_secs;
    [
        consecutive(2),
        consecutive(1)
            .max_probes(3)
            .successes_to_close(2)
            .max_inconclusive(2),
        count(2, false)
            .backoff(Backoff::new(2.0, seconds(25)))
            .max_inconclusive(1),
        count(3, true).max_probes(3).jitter(0.5),
        rate(2, Window::Calls(4))
            .successes_to_close(2)
            .max_inconclusive(1),
        rate(3, Window::Time(seconds(20)))
            .max_probes(3)
            .backoff(Backoff::new(1.5, seconds(60)))
            .jitter(1.0),
    ]
    .map(|config| config.build().unwrap())
    .into()
}

/// A script out of a seed.
pub(crate) fn generate(rng: &mut fastrand::Rng) -> Vec<Step> {
    let mut script = Vec::new();
    // Some scripts restart the breaker often, some never: without, no slot may leak.
    let traps = rng.bool();
    for _ in 0..rng.usize(6..14) {
        let mut left = rng.usize(1..=AT_ONCE);
        while left > 0 {
            let mut ops = if rng.u8(..3) == 0 {
                chain(rng, traps)
            } else {
                vec![op(rng, traps)]
            };
            ops.truncate(left);
            left -= ops.len();
            let mut ops = ops.into_iter();
            let places = if traps { ARBITERS } else { HOME + 1 };
            script.extend(ops.next().map(|op| Step::On(rng.u8(..places), op)));
            script.extend(ops.map(Step::And));
        }
        // Handles are told 50 ms ahead that the end of a break is near.
        let times = [0, 0, 1, 40, 3_000, 9_970, 10_000, 12_000, 25_000, 700_000];
        script.push(Step::Then(times[rng.usize(..times.len())]));
    }
    script
}

/// What one does right after another is what the guarantees are about.
fn chain(rng: &mut fastrand::Rng, traps: bool) -> Vec<Op> {
    let call = |rng: &mut _| Op::Call(way(rng), end(rng));
    let first = match rng.u8(..6) {
        // A slot that is given back is free for the next.
        0 => Op::Call(Way::Permit, End::Gone),
        1 => Op::Finish(rng.usize(..4), End::Gone),
        2 => Op::Call(Way::Permit, End::Panic),
        // R21
        3 => Op::Call(way(rng), End::Bad),
        4 if traps => Op::Trap,
        _ => op(rng, traps),
    };
    let second = if rng.u8(..3) > 0 {
        call(rng)
    } else {
        op(rng, traps)
    };
    let third = rng.bool().then(|| call(rng));
    [first, second].into_iter().chain(third).collect()
}

fn op(rng: &mut fastrand::Rng, traps: bool) -> Op {
    let ttl = |rng: &mut fastrand::Rng| rng.bool().then(|| rng.u32(1..4) * 5_000);
    match rng.u8(..100) {
        0..46 => Op::Call(way(rng), end(rng)),
        46..57 => Op::Begin(way(rng)),
        57 | 85 => Op::Release,
        58..62 => Op::Early(way(rng)),
        62..76 => Op::Finish(rng.usize(..4), end(rng)),
        76..79 if traps => Op::Trap,
        76..81 => Op::Look,
        81..83 => Op::State,
        83 => Op::ForceOpen(ttl(rng)),
        84 => Op::ForceClosed(ttl(rng)),
        86 => Op::Reset,
        87 | 88 => Op::Reconfigure(rng.usize(..configs().len())),
        89..93 => Op::Subscribe(
            [
                Kind::Plain,
                Kind::Slow,
                Kind::Panics,
                Kind::Restarts,
                Kind::Dies,
            ][rng.usize(..5)],
        ),
        93 => Op::Kill(rng.usize(..3)),
        94 | 95 => Op::Stream,
        _ => Op::Tick([1, 40, 5_000, 10_000][rng.usize(..4)]),
    }
}

fn way(rng: &mut fastrand::Rng) -> Way {
    [Way::Ask, Way::Guard, Way::Message, Way::Future, Way::Permit][rng.usize(..5)]
}

fn end(rng: &mut fastrand::Rng) -> End {
    match rng.u8(..20) {
        0..6 => End::Good,
        6..12 => End::Bad,
        12 | 13 => End::Neutral,
        14 | 15 => End::Panic,
        16 => End::Stop,
        17 => End::Hang,
        18 => End::Gone,
        _ => End::Careless,
    }
}
