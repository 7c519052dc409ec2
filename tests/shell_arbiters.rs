//! Random schedules over several arbiters, and whether the pure circuit explains what was seen of them.
//!
//! `SHELL_SEED` and `SHELL_RUNS` say where to begin and how many scripts to play.

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

mod arbiters;

use std::collections::BTreeMap;
use std::time::Duration;

use actix_circuit_breaker::{Cause, CircuitState, Reason, StateChanged};
use arbiters::explain::explain;
use arbiters::play::play;
use arbiters::script::{End, Kind, Op, Step, Way, configs, generate};
use arbiters::shrink::shrink;
use arbiters::stage::Stage;
use arbiters::witness::{Answer, Batch, History, OPEN_END};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// The settings of a run, and whether its clock says that timers follow it.
fn setup(seed: u64) -> (usize, bool) {
    let seed = usize::try_from(seed).unwrap();
    (seed % configs().len(), seed / configs().len() % 2 == 1)
}

/// What is wrong with a script, if it shows in so many attempts: threads do not meet alike each time.
async fn fault(
    stage: &Stage,
    (config, timers): (usize, bool),
    script: &[Step],
    attempts: u32,
) -> Option<String> {
    for _ in 0..attempts {
        let fault = explain(&play(stage, config, timers, script).await).err();
        if fault.is_some() {
            return fault;
        }
    }
    None
}

/// How often what is worth seeing was seen.
#[derive(Debug, Default)]
struct Met(BTreeMap<String, u32>);

impl Met {
    fn add(&mut self, history: &History) {
        let mut add = |what: String| *self.0.entry(what).or_default() += 1;
        for batch in &history.batches {
            batch
                .events
                .iter()
                .for_each(|event| add(event.cause.to_string()));
            for (index, seen) in batch.seen.iter().enumerate() {
                match &seen.answer {
                    Answer::Rejected { reason, .. } => add(reason.to_string()),
                    Answer::Lost => add("lost".into()),
                    Answer::Dropped { orphan: true } => add("orphan".into()),
                    Answer::Dropped { orphan: false } => add("withdrawn".into()),
                    Answer::Admitted { probe: Some(true) } => add("probe".into()),
                    _ => {}
                }
                let others = &batch.seen[..index];
                let meets = others
                    .iter()
                    .any(|other| other.began < seen.answered && seen.began < other.answered);
                if meets && seen.answered != OPEN_END {
                    add("at the same time".into());
                }
            }
        }
        if let Some(last) = history.batches.last() {
            (0..last.end.calls.late).for_each(|_| add("late".into()));
            (0..last.end.calls.lost_probes).for_each(|_| add("lost probe".into()));
        }
    }
}

// R6, R10, R11, R21, R25, R26, R29: whatever meets whatever, nobody saw what the circuit would not have done.
#[actix::test]
async fn circuit_explains_what_is_seen_of_random_schedules() {
    let stage = Stage::new().await;
    let mut met = Met::default();
    let first = setting("SHELL_SEED", 1);
    let runs = setting("SHELL_RUNS", 40);
    for seed in first..first + runs {
        if (seed - first) % 500 == 499 {
            println!("{} runs", seed - first);
        }
        let (config, timers) = setup(seed);
        let script = generate(&mut fastrand::Rng::with_seed(seed));
        let history = play(&stage, config, timers, &script).await;
        met.add(&history);
        let Err(mut found) = explain(&history) else {
            continue;
        };
        let short = shrink(script, 300, async |script| {
            match fault(&stage, (config, timers), script, 5).await {
                Some(fault) => found = fault,
                None => return false,
            }
            true
        })
        .await;
        let steps: Vec<_> = short.iter().map(|step| format!("{step:?},\n")).collect();
        panic!(
            "seed {seed}, config {config}, timers {timers}:\n{}{found}",
            steps.concat()
        );
    }
    println!("{met:?}");
    if runs >= 40 {
        let rare = [
            "inconclusive",
            "released",
            "reset",
            "expired",
            "lost probe",
            "orphan",
        ];
        let often = [
            "tripped",
            "probe due",
            "probe failed",
            "recovered",
            "forced",
            "open",
            "forced open",
            "half-open with all probes in use",
            "lost",
            "withdrawn",
            "probe",
            "late",
            "at the same time",
        ];
        for what in often {
            assert!(met.0.contains_key(what), "never seen: {what}, {met:?}");
        }
        if runs >= 400 {
            for what in rare {
                assert!(met.0.contains_key(what), "never seen: {what}, {met:?}");
            }
        }
    }
    stage.end();
}

// What was printed of faults that were put into the shell by hand; scripts can be pasted in here.
#[actix::test]
async fn circuit_explains_scripts_that_found_faults() {
    #[allow(clippy::enum_glob_use, reason = "as scripts are printed")]
    use {End::*, Kind::*, Op::*, Step::*, Way::*};
    let stage = Stage::new().await;
    let scripts: [(usize, bool, &[Step]); 6] = [
        // Letters were looked at after the decision.
        (
            4,
            false,
            &[
                On(0, Call(Permit, Bad)),
                On(0, Call(Permit, Good)),
                Then(10_000),
                On(2, Begin(Permit)),
                Then(0),
                On(0, Finish(0, Gone)),
                And(Call(Permit, Good)),
            ],
        ),
        // Of two events of one step the second waited for the next.
        (
            4,
            false,
            &[
                On(0, ForceOpen(Some(15_000))),
                Then(25_000),
                On(0, Call(Ask, Good)),
            ],
        ),
        // The end of a break was never told to be near.
        (
            0,
            true,
            &[
                On(0, Call(Permit, Bad)),
                And(Call(Permit, Bad)),
                Then(9_970),
                Then(10_000),
                On(0, Call(Permit, Good)),
            ],
        ),
        // A success that trips was not noticed.
        (
            5,
            true,
            &[
                On(0, Call(Permit, Bad)),
                On(0, Call(Permit, Bad)),
                On(0, Begin(Permit)),
                Then(0),
                On(0, Finish(0, Good)),
            ],
        ),
        // A probe that panicked was found by the next message only.
        (
            1,
            false,
            &[
                On(0, Call(Permit, Bad)),
                Then(12_000),
                On(0, Call(Permit, Panic)),
            ],
        ),
        // A subscriber that died was kept; one that panicked was lost.
        (
            4,
            false,
            &[
                On(0, Subscribe(Dies)),
                On(1, Subscribe(Restarts)),
                Then(0),
                On(0, Trap),
                And(Reset),
            ],
        ),
    ];
    for (config, timers, script) in scripts {
        let found = fault(&stage, (config, timers), script, 5).await;
        assert_eq!(found, None, "{script:?}");
    }
    stage.end();
}

/// A permit that outlasts a trip, the trip, a break, two that want to be the probe, and an order that is
/// lost with the actor's panic; the indices of its steps are used below.
const STORY: [Step; 18] = [
    Step::On(0, Op::Begin(Way::Permit)),
    Step::On(1, Op::Subscribe(Kind::Plain)),
    Step::Then(0),
    Step::On(0, Op::Call(Way::Ask, End::Bad)),
    Step::And(Op::Call(Way::Ask, End::Bad)),
    Step::And(Op::Call(Way::Ask, End::Good)),
    Step::Then(0),
    Step::On(1, Op::Finish(0, End::Good)),
    Step::Then(10_000),
    Step::On(2, Op::Begin(Way::Permit)),
    Step::And(Op::Call(Way::Future, End::Good)),
    Step::Then(0),
    Step::On(1, Op::Finish(0, End::Good)),
    Step::Then(0),
    Step::On(2, Op::Trap),
    Step::And(Op::ForceOpen(None)),
    Step::Then(0),
    Step::On(0, Op::State),
];

/// Another event after the last one of a batch.
fn follow(batch: &mut Batch, event: &StateChanged, to: CircuitState, cause: Cause) {
    let mut next = batch.events.last().unwrap_or(event).clone();
    (next.from, next.to, next.cause) = (next.to, to, cause);
    next.seq += 1;
    next.epoch += 1;
    next.at = batch.now;
    batch.events.push(next);
    batch.state = to;
    batch.watched = to;
    batch.end.circuit.state = to;
    batch.end.circuit.epoch += 1;
}

type Lie = (&'static str, fn(&mut [Batch]));

/// What no honest breaker shows.
const LIES: [Lie; 26] = [
    ("an event is missing", |b| b[1].events.clear()),
    ("an event comes twice", |b| {
        let event = b[1].events[0].clone();
        b[1].events.push(event);
    }),
    ("a seq is left out", |b| b[1].events[0].seq += 1),
    ("a seq is used twice", |b| b[3].events[0].seq -= 1),
    ("an epoch is used twice", |b| b[1].events[0].epoch -= 1),
    ("a cause is another", |b| {
        b[4].events[0].cause = Cause::Reset;
    }),
    ("an event is of another time", |b| {
        b[3].events[0].at = b[3].events[0].at + Duration::from_millis(1);
    }),
    ("the evidence is another", |b| {
        b[1].events[0].evidence.failures -= 1;
    }),
    ("the last event is not told yet", |b| {
        let event = b[4].events.pop().unwrap();
        b[5].events.push(event);
    }),
    // R27
    ("an event is told a message late", |b| b[1].prompt -= 1),
    // R21
    ("a call is admitted while open", |b| {
        b[1].seen[2].answer = Answer::Admitted { probe: None };
        b[1].end.circuit.calls.rejected -= 1;
        b[1].end.circuit.calls.late += 1;
    }),
    ("a call is rejected while closed", |b| {
        b[1].seen[0].answer = b[1].seen[2].answer.clone();
        b[1].end.circuit.calls.rejected += 1;
    }),
    // R7
    ("two probes are admitted", |b| {
        b[3].seen[1].answer = Answer::Admitted { probe: None };
        b[3].end.circuit.calls.rejected -= 1;
    }),
    ("a permit is no probe", |b| {
        b[3].seen[0].answer = Answer::Admitted { probe: Some(false) };
    }),
    // R11, R12
    ("a late success closes", |b| {
        let event = b[1].events[0].clone();
        follow(&mut b[2], &event, CircuitState::HalfOpen, Cause::ProbeDue);
        follow(&mut b[2], &event, CircuitState::Closed, Cause::Recovered);
    }),
    ("a late success counts", |b| {
        b[2].end.circuit.calls.late -= 1;
        b[2].end.circuit.calls.successes += 1;
    }),
    // R10
    ("an end is not counted", |b| {
        b[2].end.circuit.calls.late -= 1;
    }),
    ("an end is counted twice", |b| {
        b[1].end.circuit.calls.failures += 1;
    }),
    ("a slot is not given back", |b| {
        b[3].end.circuit.probes_in_flight += 1;
    }),
    ("a rejection is of another epoch", |b| {
        if let Answer::Rejected { epoch, .. } = &mut b[1].seen[2].answer {
            *epoch -= 1;
        }
    }),
    ("a rejection names another time", |b| {
        if let Answer::Rejected { until, .. } = &mut b[1].seen[2].answer {
            *until = until.map(|until| until + Duration::from_micros(1));
        }
    }),
    // R25
    ("a subscriber is told of a change that is to come", |b| {
        if let Answer::Present(present) = &mut b[0].seen[1].answer {
            present.seq += 1;
        }
    }),
    // R29
    ("a lost order is done", |b| {
        b[5].seen[1].answer = Answer::Done;
    }),
    ("a restart is not counted", |b| b[5].end.restarts -= 1),
    ("the actor looks only when asked", |b| {
        b[1].idle = CircuitState::Closed;
    }),
    ("the gate shows another state", |b| {
        b[5].state = CircuitState::Open;
    }),
];

// The checker can fail: of an honest history each lie is noticed.
#[actix::test]
async fn circuit_does_not_explain_lies() {
    let stage = Stage::new().await;
    let history = play(&stage, 0, false, &STORY).await;
    explain(&history).unwrap();
    let rejected = |seen: usize, batch: usize| match &history.batches[batch].seen[seen].answer {
        Answer::Rejected { reason, .. } => Some(*reason),
        _ => None,
    };
    assert_eq!(rejected(2, 1), Some(Reason::Open));
    assert_eq!(rejected(1, 3), Some(Reason::ProbesInUse));
    for (what, lie) in LIES {
        let mut history = history.clone();
        lie(&mut history.batches);
        assert!(explain(&history).is_err(), "explained: {what}");
    }
    stage.end();
}

// One message old: had the third call begun before the second was answered, it might have slipped through.
#[actix::test]
async fn circuit_explains_a_call_that_slips_through_while_the_trip_is_under_way() {
    let stage = Stage::new().await;
    let mut history = play(&stage, 0, false, &STORY).await;
    let seen = &mut history.batches[1].seen;
    seen[2].began = seen[1].began;
    seen[2].answer = Answer::Admitted { probe: None };
    for batch in &mut history.batches[1..] {
        batch.end.circuit.calls.rejected -= 1;
        batch.end.circuit.calls.late += 1;
    }
    explain(&history).unwrap();
    stage.end();
}

#[actix::test]
async fn failing_script_shrinks_to_what_it_takes() {
    let mut script = generate(&mut fastrand::Rng::with_seed(7));
    script.extend(generate(&mut fastrand::Rng::with_seed(8)));
    script.push(Step::And(Op::Trap));
    script.push(Step::On(2, Op::Call(Way::Message, End::Bad)));
    script.extend(generate(&mut fastrand::Rng::with_seed(9)));
    let op = |step: &Step| match step {
        Step::On(_, op) | Step::And(op) => Some(*op),
        Step::Then(_) => None,
    };
    let short = shrink(script, 10_000, async |script| {
        let mut ops = script.iter().filter_map(op);
        ops.any(|op| op == Op::Trap) && ops.any(|op| matches!(op, Op::Call(_, End::Bad)))
    })
    .await;
    let expected = [
        Step::On(0, Op::Trap),
        Step::On(0, Op::Call(Way::Permit, End::Bad)),
    ];
    assert_eq!(short, expected);
}

// Played for real, with a fault: a breaker that should trip at the first failure, and does at the second.
#[actix::test]
async fn fault_of_a_breaker_shrinks_to_one_step() {
    let stage = Stage::new().await;
    let script = generate(&mut fastrand::Rng::with_seed(3));
    let wrong = configs().swap_remove(1);
    let short = shrink(script, 300, async |script| {
        let mut history = play(&stage, 0, false, script).await;
        history.config = wrong.clone();
        for batch in &mut history.batches {
            batch.end.config = wrong.clone();
        }
        explain(&history).is_err()
    })
    .await;
    assert_eq!(short, [Step::On(0, Op::Call(Way::Permit, End::Bad))]);
    stage.end();
}
