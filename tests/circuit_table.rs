//! Every (state, input) pair of the circuit, a row each. Longer stories are in `circuit_model.rs`.
//!
//! How to read a row: an input meets a circuit in the state that heads the table; then stand
//!
//! - the answer: of an acquire, whether a call or a probe is admitted, or why not and after what time to
//!   come again; of a settlement, whether it counted;
//! - the state after it, `due` when its break is over;
//! - by how much the epoch grew, `now` for one that begins at the input's instant (R1); the attempt;
//! - `until`: when the break or the order ends, in seconds from the input's instant;
//! - `seen`: the newest instant, likewise;
//! - what is remembered: failures while closed, and the share that a ramp-up admits; while half-open the
//!   probes that hold a slot, successes and inconclusive probes; the reason of an order;
//! - the transitions, each as cause, from, to;
//! - the rules that say so.
//!
//! The settings: three consecutive failures within 100 s trip; a break is 10 s and doubles up to 40 s;
//! two probes at once, two successes close, two inconclusive probes open; a lease is 5 s; a recovery admits
//! a quarter of the calls at once, and all of them after 10 s. What is drawn at an input is a half.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::match_same_arms,
    clippy::panic,
    clippy::too_many_lines,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test, the numbers are small, and an arm stands for a row"
)]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use actix_circuit_breaker::circuit::{Circuit, Permit, Record, Settlement};
use actix_circuit_breaker::{
    Backoff, BreakerConfig, BreakerConfigBuilder, CircuitState, Outcome, RampUp, Timestamp,
    TripPolicy,
};

/// The instant of every input.
const NOW: Timestamp = Timestamp::from_micros(2_000_000_000);

thread_local! {
    /// What the random source answers: the circuit of a row is made with all calls admitted.
    static DRAWN: Cell<f64> = const { Cell::new(0.0) };
}

/// `seconds` from the input's instant, before or after it.
fn at(seconds: f64) -> Timestamp {
    let offset = Duration::from_secs_f64(seconds.abs());
    if seconds < 0.0 {
        Timestamp::from_micros(
            (NOW.since(Timestamp::ZERO) - offset)
                .as_micros()
                .try_into()
                .unwrap(),
        )
    } else {
        NOW + offset
    }
}

fn settings() -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 3,
            within: Some(Duration::from_secs(100)),
        })
        .call_timeout(Duration::from_secs(2))
        .break_duration(Duration::from_secs(10))
        .backoff(Backoff::new(2.0, Duration::from_secs(40)))
        .max_probes(2)
        .successes_to_close(2)
        .max_inconclusive(2)
        .probe_timeout(Duration::from_secs(5))
        .ramp_up(RampUp::new(Duration::from_secs(10), 0.25))
}

/// A circuit in some state, with a permit of its epoch where there is one, and one of an earlier epoch.
struct Given {
    circuit: Circuit,
    current: Option<Permit>,
    late: Permit,
}

fn acquire(circuit: &mut Circuit, seconds: f64) -> Permit {
    circuit.try_acquire(at(seconds)).expect("admitted")
}

fn settle(circuit: &mut Circuit, permit: Permit, outcome: Outcome, seconds: f64) {
    assert_eq!(
        circuit.settle(permit, outcome, at(seconds)),
        Settlement::Counted
    );
}

fn fail(circuit: &mut Circuit, seconds: f64) {
    let permit = acquire(circuit, seconds);
    settle(circuit, permit, Outcome::Failure, seconds);
}

/// An empty circuit, and a permit of an earlier epoch.
fn closed() -> (Circuit, Permit) {
    let config = settings().build().unwrap();
    let mut circuit = Circuit::with_random(config, Arc::new(|| DRAWN.get()), at(-900.0));
    let late = acquire(&mut circuit, -900.0);
    circuit.reset(at(-900.0));
    (circuit, late)
}

/// Tripped, and a round of probes has failed: the second break, 20 s long, ends after `seconds`.
fn open(seconds: f64) -> (Circuit, Permit) {
    let (mut circuit, late) = closed();
    for _ in 0..3 {
        fail(&mut circuit, seconds - 40.0);
    }
    fail(&mut circuit, seconds - 20.0);
    (circuit, late)
}

/// Recovered `seconds` ago.
fn recovered(seconds: f64) -> (Circuit, Permit) {
    let (mut circuit, late) = open(-seconds - 1.0);
    for _ in 0..2 {
        let probe = acquire(&mut circuit, -seconds);
        settle(&mut circuit, probe, Outcome::Success, -seconds);
    }
    (circuit, late)
}

fn given(state: &str) -> Given {
    DRAWN.set(0.0);
    let (mut circuit, late) = match state {
        "closed" | "closed, with failures" => closed(),
        "open" => open(5.0),
        "open, due" => open(0.0),
        "closed, ramping up" => recovered(2.5),
        "closed, its ramp-up over" => recovered(10.0),
        _ if state.starts_with("half-open") => open(-10.0),
        _ => closed(),
    };
    let order = |circuit: &mut Circuit, open: bool, ttl: Option<u64>| {
        let ttl = ttl.map(Duration::from_secs);
        let done = if open {
            circuit.force_open(ttl, "old", at(-10.0))
        } else {
            circuit.force_closed(ttl, "old", at(-10.0))
        };
        done.unwrap();
    };
    let mut current = None;
    match state {
        "closed" => current = Some(acquire(&mut circuit, -1.0)),
        "closed, its ramp-up over" => current = Some(acquire(&mut circuit, -5.0)),
        "closed, with failures" | "closed, ramping up" => {
            current = Some(acquire(&mut circuit, -2.0));
            fail(&mut circuit, -1.0);
            fail(&mut circuit, -1.0);
        }
        "open" | "open, due" => {}
        "half-open, a slot free" => current = Some(acquire(&mut circuit, -1.0)),
        "half-open, a success short" => {
            let succeeded = acquire(&mut circuit, -2.0);
            settle(&mut circuit, succeeded, Outcome::Success, -2.0);
            current = Some(acquire(&mut circuit, -1.0));
        }
        "half-open, no slot free" => {
            current = Some(acquire(&mut circuit, -4.6));
            let _ = acquire(&mut circuit, -1.0);
        }
        "half-open, a lease over" => {
            current = Some(acquire(&mut circuit, -5.0));
            let _ = acquire(&mut circuit, -1.0);
        }
        "half-open, inconclusive" => {
            current = Some(acquire(&mut circuit, -1.0));
            for _ in 0..2 {
                let ignored = acquire(&mut circuit, -1.0);
                settle(&mut circuit, ignored, Outcome::Ignored, -1.0);
            }
        }
        "forced open" => order(&mut circuit, true, None),
        "forced open, with a ttl" => order(&mut circuit, true, Some(17)),
        "forced open, its ttl over" => order(&mut circuit, true, Some(10)),
        "forced closed" | "forced closed, with a ttl" | "forced closed, its ttl over" => {
            let ttl = match state {
                "forced closed" => None,
                "forced closed, with a ttl" => Some(17),
                _ => Some(10),
            };
            order(&mut circuit, false, ttl);
            current = Some(acquire(&mut circuit, -5.0));
        }
        _ => panic!("no such state: {state}"),
    }
    while circuit.pop_transition().is_some() {}
    DRAWN.set(0.5);
    Given {
        circuit,
        current,
        late,
    }
}

const INPUTS: [&str; 26] = [
    "acquire",
    "acquire, clock 60 s back",
    "success",
    "failure",
    "ignored",
    "reclaim",
    "late success",
    "late failure",
    "late ignored",
    "late reclaim",
    "advance",
    "advance, clock 60 s back",
    "force open",
    "force open, ttl 3 s",
    "force open, ttl 0",
    "force closed",
    "force closed, ttl 3 s",
    "force closed, ttl 0",
    "release",
    "reset",
    "reconfigure, equal",
    "reconfigure, other policy",
    "reconfigure, breaks of 2 s",
    "restore",
    "restore, clock 60 s back",
    "look",
];

/// Inputs that need a permit of the present epoch.
const NEED_CURRENT: [&str; 4] = ["success", "failure", "ignored", "reclaim"];

fn seconds(span: Duration) -> String {
    format!("{}", span.as_micros() as f64 / 1e6)
}

fn from_now(instant: Timestamp) -> String {
    let micros = instant.as_micros() as i64 - NOW.as_micros() as i64;
    format!("{}", micros as f64 / 1e6)
}

fn answer_to_acquire(circuit: &mut Circuit, now: Timestamp) -> String {
    match circuit.try_acquire(now) {
        Ok(permit) => {
            assert_eq!(permit.epoch(), circuit.record().epoch());
            if permit.is_probe() { "probe" } else { "call" }.to_owned()
        }
        Err(refused) => {
            assert_eq!(refused.epoch(), circuit.record().epoch());
            let retry = refused.retry_after().map_or("never".to_owned(), seconds);
            format!("{:?} {retry}", refused.reason())
        }
    }
}

/// Does the input and writes down the row, but for the rules.
fn row(state: &str, input: &str) -> String {
    let Given {
        mut circuit,
        current,
        late,
    } = given(state);
    let before = circuit.record().clone();
    let back = input.ends_with("60 s back");
    let now = if back { at(-60.0) } else { NOW };
    let settled = |settlement: Settlement| format!("{settlement:?}").to_lowercase();
    let invalid = |done: Result<(), actix_circuit_breaker::ConfigError>| match done {
        Ok(()) => "done".to_owned(),
        Err(error) => format!("invalid {}", error.field()),
    };
    let three = Some(Duration::from_secs(3));
    let zero = Some(Duration::ZERO);
    let done = || "done".to_owned();
    let permit = || {
        if input.starts_with("late") {
            late
        } else {
            current.expect("a permit")
        }
    };
    let answer = match input
        .trim_end_matches(", clock 60 s back")
        .trim_start_matches("late ")
    {
        "acquire" => answer_to_acquire(&mut circuit, now),
        "success" => settled(circuit.settle(permit(), Outcome::Success, now)),
        "failure" => settled(circuit.settle(permit(), Outcome::Failure, now)),
        "ignored" => settled(circuit.settle(permit(), Outcome::Ignored, now)),
        "reclaim" => settled(circuit.reclaim(permit(), now)),
        "advance" => {
            circuit.advance(now);
            done()
        }
        "force open" => invalid(circuit.force_open(None, "new", now)),
        "force open, ttl 3 s" => invalid(circuit.force_open(three, "new", now)),
        "force open, ttl 0" => invalid(circuit.force_open(zero, "new", now)),
        "force closed" => invalid(circuit.force_closed(None, "new", now)),
        "force closed, ttl 3 s" => invalid(circuit.force_closed(three, "new", now)),
        "force closed, ttl 0" => invalid(circuit.force_closed(zero, "new", now)),
        "release" => {
            circuit.release(now);
            done()
        }
        "reset" => {
            circuit.reset(now);
            done()
        }
        "reconfigure, equal" => {
            circuit.reconfigure(settings().build().unwrap(), now);
            done()
        }
        "reconfigure, other policy" => {
            let other = settings().trip(TripPolicy::default()).build().unwrap();
            circuit.reconfigure(other, now);
            done()
        }
        "reconfigure, breaks of 2 s" => {
            let length = Duration::from_secs(2);
            let backoff = Backoff::new(2.0, length);
            let shorter = settings().break_duration(length).backoff(backoff);
            circuit.reconfigure(shorter.build().unwrap(), now);
            done()
        }
        "restore" => {
            let text = serde_json::to_string(circuit.record()).unwrap();
            let record: Record = serde_json::from_str(&text).unwrap();
            circuit = Circuit::restore(settings().build().unwrap(), record, now);
            done()
        }
        "look" => {
            let peek = circuit.peek(now);
            let snapshot = circuit.snapshot(now);
            let _ = (circuit.lifetime(now), circuit.next_deadline());
            assert_eq!(circuit.record(), &before);
            assert_eq!(
                (peek.state, peek.probe_due),
                (snapshot.state, snapshot.probe_due)
            );
            assert_eq!(peek.retry_after, snapshot.retry_after);
            let retry = peek.retry_after.map_or("never".to_owned(), seconds);
            peek.refusal
                .map_or("admits".to_owned(), |reason| format!("{reason:?} {retry}"))
        }
        _ => panic!("no such input: {input}"),
    };

    let record = circuit.record();
    let shown = circuit.snapshot(now);
    if input != "look" {
        let over = circuit.next_deadline().is_some_and(|until| until <= NOW);
        assert!(over || shown.state == record.state());
    }
    let due = if shown.probe_due { ", due" } else { "" };
    let remembers = match shown.state {
        CircuitState::Closed => {
            let share = shown
                .ramp_share
                .map_or_else(String::new, |share| format!(", share {share}"));
            format!("{} failures{share}", shown.failures)
        }
        CircuitState::HalfOpen => format!(
            "{} held, {} ok, {} inconclusive",
            shown.probes_in_flight, shown.successes, shown.inconclusive
        ),
        CircuitState::Open => "-".to_owned(),
        _ => shown.reason.as_deref().unwrap().to_owned(),
    };
    let (state, attempt) = (shown.state, record.attempt());
    let epoch = if record.epoch() == now.as_micros() {
        "now".to_owned()
    } else {
        format!("+{}", record.epoch() - before.epoch())
    };
    let until = shown.until.map_or("-".to_owned(), from_now);
    let seen = from_now(record.newest());
    let end_epoch = record.epoch();
    let mut transitions = Vec::new();
    let mut last = before.epoch();
    while let Some(transition) = circuit.pop_transition() {
        assert!(
            transition.epoch > last && transition.epoch <= end_epoch,
            "{transition:?}"
        );
        assert_eq!(transition.at, now.max(before.newest()), "{transition:?}");
        last = transition.epoch;
        transitions.push(format!(
            "{}, {}, {}",
            transition.cause, transition.from, transition.to
        ));
    }
    let transitions = if transitions.is_empty() {
        "-".to_owned()
    } else {
        transitions.join("; ")
    };
    format!(
        "{input} | {answer} | {state}{due} | {epoch} | {attempt} | {until} | {seen} | {remembers} | {transitions}"
    )
}

/// Compares a table with what the circuit does, and sees that no pair is missing.
#[track_caller]
fn check(state: &str, table: &str) {
    let mut rows: Vec<&str> = table
        .lines()
        .map(str::trim)
        .filter(|row| !row.is_empty())
        .collect();
    assert!(rows.remove(0).starts_with("input "), "a heading");
    let expected: Vec<String> = rows
        .iter()
        .map(|row| {
            let mut cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let rules = cells.pop().unwrap();
            let rule = |rule: &str| {
                rule.strip_prefix('R')
                    .is_some_and(|id| id.parse::<u8>().is_ok())
            };
            assert!(rules.split(' ').all(rule), "rules at the end: {row}");
            cells.join(" | ")
        })
        .collect();
    let has_current = given(state).current.is_some();
    let actual: Vec<String> = INPUTS
        .iter()
        .filter(|input| has_current || !NEED_CURRENT.contains(input))
        .map(|input| row(state, input))
        .collect();
    let differs: Vec<String> = (0..actual.len().max(expected.len()))
        .filter(|i| actual.get(*i) != expected.get(*i))
        .map(|i| {
            format!(
                "expected: {:?}\n  actual: {:?}",
                expected.get(i),
                actual.get(i)
            )
        })
        .collect();
    assert!(
        differs.is_empty(),
        "{state}:\n{}\n\n{}",
        differs.join("\n"),
        actual.join("\n")
    );
}

#[test]
fn every_input_while_closed() {
    check(
        "closed",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers  | transitions                   | rules
        acquire                    | call        | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R6
        acquire, clock 60 s back   | call        | closed        | +0    | 0       | -     | -1   | 0 failures | -                             | R3 R6
        success                    | counted     | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R17
        failure                    | counted     | closed        | +0    | 0       | -     | 0    | 1 failures | -                             | R17 R18
        ignored                    | counted     | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R17
        reclaim                    | counted     | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R10 R19
        late success               | late        | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R11
        late failure               | late        | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R11
        late ignored               | late        | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R11
        late reclaim               | late        | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R11
        advance                    | done        | closed        | +0    | 0       | -     | -1   | 0 failures | -                             | R28
        advance, clock 60 s back   | done        | closed        | +0    | 0       | -     | -1   | 0 failures | -                             | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new        | forced, closed, forced open   | R23
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new        | forced, closed, forced open   | R23
        force open, ttl 0          | invalid ttl | closed        | +0    | 0       | -     | -1   | 0 failures | -                             | R33
        force closed               | done        | forced closed | +1    | 0       | -     | 0    | new        | forced, closed, forced closed | R23
        force closed, ttl 3 s      | done        | forced closed | +1    | 0       | 3     | 0    | new        | forced, closed, forced closed | R23
        force closed, ttl 0        | invalid ttl | closed        | +0    | 0       | -     | -1   | 0 failures | -                             | R33
        release                    | done        | closed        | +0    | 0       | -     | -1   | 0 failures | -                             | R23
        reset                      | done        | closed        | +1    | 0       | -     | 0    | 0 failures | -                             | R24
        reconfigure, equal         | done        | closed        | +0    | 0       | -     | -1   | 0 failures | -                             | R35
        reconfigure, other policy  | done        | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R35
        reconfigure, breaks of 2 s | done        | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R35
        restore                    | done        | closed        | now   | 0       | -     | -1   | 0 failures | -                             | R29
        restore, clock 60 s back   | done        | closed        | now   | 0       | -     | -60  | 0 failures | -                             | R29
        look                       | admits      | closed        | +0    | 0       | -     | -1   | 0 failures | -                             | R8
        ",
    );
}

#[test]
fn every_input_while_closed_with_failures() {
    check(
        "closed, with failures",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers  | transitions                   | rules
        acquire                    | call        | closed        | +0    | 0       | -     | 0    | 2 failures | -                             | R6
        acquire, clock 60 s back   | call        | closed        | +0    | 0       | -     | -1   | 2 failures | -                             | R3 R6
        success                    | counted     | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R17
        failure                    | counted     | open          | +1    | 0       | 10    | 0    | -          | tripped, closed, open         | R17 R18 R22
        ignored                    | counted     | closed        | +0    | 0       | -     | 0    | 2 failures | -                             | R17
        reclaim                    | counted     | closed        | +0    | 0       | -     | 0    | 2 failures | -                             | R10 R19
        late success               | late        | closed        | +0    | 0       | -     | 0    | 2 failures | -                             | R11
        late failure               | late        | closed        | +0    | 0       | -     | 0    | 2 failures | -                             | R11
        late ignored               | late        | closed        | +0    | 0       | -     | 0    | 2 failures | -                             | R11
        late reclaim               | late        | closed        | +0    | 0       | -     | 0    | 2 failures | -                             | R11
        advance                    | done        | closed        | +0    | 0       | -     | -1   | 2 failures | -                             | R28
        advance, clock 60 s back   | done        | closed        | +0    | 0       | -     | -1   | 2 failures | -                             | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new        | forced, closed, forced open   | R23
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new        | forced, closed, forced open   | R23
        force open, ttl 0          | invalid ttl | closed        | +0    | 0       | -     | -1   | 2 failures | -                             | R33
        force closed               | done        | forced closed | +1    | 0       | -     | 0    | new        | forced, closed, forced closed | R23
        force closed, ttl 3 s      | done        | forced closed | +1    | 0       | 3     | 0    | new        | forced, closed, forced closed | R23
        force closed, ttl 0        | invalid ttl | closed        | +0    | 0       | -     | -1   | 2 failures | -                             | R33
        release                    | done        | closed        | +0    | 0       | -     | -1   | 2 failures | -                             | R23
        reset                      | done        | closed        | +1    | 0       | -     | 0    | 0 failures | -                             | R24
        reconfigure, equal         | done        | closed        | +0    | 0       | -     | -1   | 2 failures | -                             | R35
        reconfigure, other policy  | done        | closed        | +0    | 0       | -     | 0    | 0 failures | -                             | R35
        reconfigure, breaks of 2 s | done        | closed        | +0    | 0       | -     | 0    | 2 failures | -                             | R35
        restore                    | done        | closed        | now   | 0       | -     | -1   | 2 failures | -                             | R29
        restore, clock 60 s back   | done        | closed        | now   | 0       | -     | -60  | 2 failures | -                             | R29
        look                       | admits      | closed        | +0    | 0       | -     | -1   | 2 failures | -                             | R8
        ",
    );
}

#[test]
fn every_input_while_ramping_up() {
    check(
        "closed, ramping up",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers                | transitions                   | rules
        acquire                    | RampUp 1    | closed        | +0    | 0       | -     | -1   | 2 failures, share 0.4375 | -                             | R9 R36
        acquire, clock 60 s back   | RampUp 1    | closed        | +0    | 0       | -     | -1   | 2 failures, share 0.3625 | -                             | R3 R36
        success                    | counted     | closed        | +0    | 0       | -     | 0    | 0 failures, share 0.4375 | -                             | R17 R36
        failure                    | counted     | open          | +1    | 0       | 10    | 0    | -                        | tripped, closed, open         | R17 R18 R22
        ignored                    | counted     | closed        | +0    | 0       | -     | 0    | 2 failures, share 0.4375 | -                             | R17
        reclaim                    | counted     | closed        | +0    | 0       | -     | 0    | 2 failures, share 0.4375 | -                             | R10 R19
        late success               | late        | closed        | +0    | 0       | -     | 0    | 2 failures, share 0.4375 | -                             | R11
        late failure               | late        | closed        | +0    | 0       | -     | 0    | 2 failures, share 0.4375 | -                             | R11
        late ignored               | late        | closed        | +0    | 0       | -     | 0    | 2 failures, share 0.4375 | -                             | R11
        late reclaim               | late        | closed        | +0    | 0       | -     | 0    | 2 failures, share 0.4375 | -                             | R11
        advance                    | done        | closed        | +0    | 0       | -     | -1   | 2 failures, share 0.4375 | -                             | R28
        advance, clock 60 s back   | done        | closed        | +0    | 0       | -     | -1   | 2 failures, share 0.3625 | -                             | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new                      | forced, closed, forced open   | R23 R36
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new                      | forced, closed, forced open   | R23
        force open, ttl 0          | invalid ttl | closed        | +0    | 0       | -     | -1   | 2 failures, share 0.4375 | -                             | R33
        force closed               | done        | forced closed | +1    | 0       | -     | 0    | new                      | forced, closed, forced closed | R23 R36
        force closed, ttl 3 s      | done        | forced closed | +1    | 0       | 3     | 0    | new                      | forced, closed, forced closed | R23
        force closed, ttl 0        | invalid ttl | closed        | +0    | 0       | -     | -1   | 2 failures, share 0.4375 | -                             | R33
        release                    | done        | closed        | +0    | 0       | -     | -1   | 2 failures, share 0.4375 | -                             | R23
        reset                      | done        | closed        | +1    | 0       | -     | 0    | 0 failures               | -                             | R24 R36
        reconfigure, equal         | done        | closed        | +0    | 0       | -     | -1   | 2 failures, share 0.4375 | -                             | R35
        reconfigure, other policy  | done        | closed        | +0    | 0       | -     | 0    | 0 failures, share 0.4375 | -                             | R35 R36
        reconfigure, breaks of 2 s | done        | closed        | +0    | 0       | -     | 0    | 2 failures, share 0.4375 | -                             | R35
        restore                    | done        | closed        | now   | 0       | -     | -1   | 2 failures, share 0.4375 | -                             | R29 R36
        restore, clock 60 s back   | done        | closed        | now   | 0       | -     | -60  | 2 failures, share 0.25   | -                             | R29 R36
        look                       | admits      | closed        | +0    | 0       | -     | -1   | 2 failures, share 0.4375 | -                             | R8 R36
        ",
    );
}

#[test]
fn every_input_while_closed_its_ramp_up_over() {
    check(
        "closed, its ramp-up over",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers               | transitions                   | rules
        acquire                    | call        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R4 R6 R36
        acquire, clock 60 s back   | call        | closed        | +0    | 0       | -     | -5   | 0 failures, share 0.625 | -                             | R3 R36
        success                    | counted     | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R17
        failure                    | counted     | closed        | +0    | 0       | -     | 0    | 1 failures              | -                             | R17 R18
        ignored                    | counted     | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R17
        reclaim                    | counted     | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R10 R19
        late success               | late        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R11
        late failure               | late        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R11
        late ignored               | late        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R11
        late reclaim               | late        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R11
        advance                    | done        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R28 R36
        advance, clock 60 s back   | done        | closed        | +0    | 0       | -     | -5   | 0 failures, share 0.625 | -                             | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new                     | forced, closed, forced open   | R23
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new                     | forced, closed, forced open   | R23
        force open, ttl 0          | invalid ttl | closed        | +0    | 0       | -     | -5   | 0 failures              | -                             | R33
        force closed               | done        | forced closed | +1    | 0       | -     | 0    | new                     | forced, closed, forced closed | R23
        force closed, ttl 3 s      | done        | forced closed | +1    | 0       | 3     | 0    | new                     | forced, closed, forced closed | R23
        force closed, ttl 0        | invalid ttl | closed        | +0    | 0       | -     | -5   | 0 failures              | -                             | R33
        release                    | done        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R23
        reset                      | done        | closed        | +1    | 0       | -     | 0    | 0 failures              | -                             | R24
        reconfigure, equal         | done        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R35 R36
        reconfigure, other policy  | done        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R35
        reconfigure, breaks of 2 s | done        | closed        | +0    | 0       | -     | 0    | 0 failures              | -                             | R35
        restore                    | done        | closed        | now   | 0       | -     | -5   | 0 failures              | -                             | R29
        restore, clock 60 s back   | done        | closed        | now   | 0       | -     | -60  | 0 failures, share 0.25  | -                             | R29 R36
        look                       | admits      | closed        | +0    | 0       | -     | -5   | 0 failures              | -                             | R8 R36
        ",
    );
}

#[test]
fn every_input_while_open() {
    check(
        "open",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers  | transitions                 | rules
        acquire                    | Open 5      | open          | +0    | 1       | 5     | -15  | -          | -                           | R6 R9
        acquire, clock 60 s back   | Open 20     | open          | +0    | 1       | 5     | -15  | -          | -                           | R3 R6 R9
        late success               | late        | open          | +0    | 1       | 5     | 0    | -          | -                           | R11 R12
        late failure               | late        | open          | +0    | 1       | 5     | 0    | -          | -                           | R11 R12
        late ignored               | late        | open          | +0    | 1       | 5     | 0    | -          | -                           | R11 R12
        late reclaim               | late        | open          | +0    | 1       | 5     | 0    | -          | -                           | R11 R12
        advance                    | done        | open          | +0    | 1       | 5     | -15  | -          | -                           | R28
        advance, clock 60 s back   | done        | open          | +0    | 1       | 5     | -15  | -          | -                           | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new        | forced, open, forced open   | R23
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new        | forced, open, forced open   | R23
        force open, ttl 0          | invalid ttl | open          | +0    | 1       | 5     | -15  | -          | -                           | R33
        force closed               | done        | forced closed | +1    | 0       | -     | 0    | new        | forced, open, forced closed | R23
        force closed, ttl 3 s      | done        | forced closed | +1    | 0       | 3     | 0    | new        | forced, open, forced closed | R23
        force closed, ttl 0        | invalid ttl | open          | +0    | 1       | 5     | -15  | -          | -                           | R33
        release                    | done        | open          | +0    | 1       | 5     | -15  | -          | -                           | R23
        reset                      | done        | closed        | +1    | 0       | -     | 0    | 0 failures | reset, open, closed         | R24
        reconfigure, equal         | done        | open          | +0    | 1       | 5     | -15  | -          | -                           | R35
        reconfigure, other policy  | done        | open          | +0    | 1       | 5     | 0    | -          | -                           | R35
        reconfigure, breaks of 2 s | done        | open          | +0    | 1       | 2     | 0    | -          | -                           | R3 R35
        restore                    | done        | open          | now   | 1       | 5     | -15  | -          | -                           | R29
        restore, clock 60 s back   | done        | open          | now   | 1       | -20   | -60  | -          | -                           | R3 R29
        look                       | Open 5      | open          | +0    | 1       | 5     | -15  | -          | -                           | R8
        ",
    );
}

#[test]
fn every_input_while_open_due() {
    check(
        "open, due",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers                    | transitions                 | rules
        acquire                    | probe       | half-open     | +1    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | probe due, open, half-open  | R6 R8
        acquire, clock 60 s back   | Open 20     | open          | +0    | 1       | 0     | -20  | -                            | -                           | R3 R6 R9
        late success               | late        | open, due     | +0    | 1       | 0     | 0    | -                            | -                           | R11 R12
        late failure               | late        | open, due     | +0    | 1       | 0     | 0    | -                            | -                           | R11 R12
        late ignored               | late        | open, due     | +0    | 1       | 0     | 0    | -                            | -                           | R11 R12
        late reclaim               | late        | open, due     | +0    | 1       | 0     | 0    | -                            | -                           | R11 R12
        advance                    | done        | open, due     | +0    | 1       | 0     | -20  | -                            | -                           | R28
        advance, clock 60 s back   | done        | open          | +0    | 1       | 0     | -20  | -                            | -                           | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new                          | forced, open, forced open   | R23
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new                          | forced, open, forced open   | R23
        force open, ttl 0          | invalid ttl | open, due     | +0    | 1       | 0     | -20  | -                            | -                           | R33
        force closed               | done        | forced closed | +1    | 0       | -     | 0    | new                          | forced, open, forced closed | R23
        force closed, ttl 3 s      | done        | forced closed | +1    | 0       | 3     | 0    | new                          | forced, open, forced closed | R23
        force closed, ttl 0        | invalid ttl | open, due     | +0    | 1       | 0     | -20  | -                            | -                           | R33
        release                    | done        | open, due     | +0    | 1       | 0     | -20  | -                            | -                           | R23
        reset                      | done        | closed        | +1    | 0       | -     | 0    | 0 failures                   | reset, open, closed         | R24
        reconfigure, equal         | done        | open, due     | +0    | 1       | 0     | -20  | -                            | -                           | R35
        reconfigure, other policy  | done        | open, due     | +0    | 1       | 0     | 0    | -                            | -                           | R35
        reconfigure, breaks of 2 s | done        | open, due     | +0    | 1       | 0     | 0    | -                            | -                           | R3 R35
        restore                    | done        | open, due     | now   | 1       | 0     | -20  | -                            | -                           | R29
        restore, clock 60 s back   | done        | open          | now   | 1       | -20   | -60  | -                            | -                           | R3 R29
        look                       | admits      | open, due     | +0    | 1       | 0     | -20  | -                            | -                           | R8
        ",
    );
}

#[test]
fn every_input_while_half_open_a_slot_free() {
    check(
        "half-open, a slot free",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers                    | transitions                      | rules
        acquire                    | probe       | half-open     | +0    | 1       | -     | 0    | 2 held, 0 ok, 0 inconclusive | -                                | R7
        acquire, clock 60 s back   | probe       | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R3 R7
        success                    | counted     | half-open     | +0    | 1       | -     | 0    | 0 held, 1 ok, 0 inconclusive | -                                | R13
        failure                    | counted     | open          | +1    | 2       | 40    | 0    | -                            | probe failed, half-open, open    | R14 R22
        ignored                    | counted     | half-open     | +0    | 1       | -     | 0    | 0 held, 0 ok, 1 inconclusive | -                                | R15
        reclaim                    | counted     | half-open     | +0    | 1       | -     | 0    | 0 held, 0 ok, 0 inconclusive | -                                | R10 R15
        late success               | late        | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R11
        late failure               | late        | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R11
        late ignored               | late        | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R11
        late reclaim               | late        | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R11
        advance                    | done        | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R28
        advance, clock 60 s back   | done        | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 0          | invalid ttl | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R33
        force closed               | done        | forced closed | +1    | 0       | -     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 3 s      | done        | forced closed | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 0        | invalid ttl | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R33
        release                    | done        | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R23
        reset                      | done        | closed        | +1    | 0       | -     | 0    | 0 failures                   | reset, half-open, closed         | R24
        reconfigure, equal         | done        | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R35
        reconfigure, other policy  | done        | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R35
        reconfigure, breaks of 2 s | done        | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R35
        restore                    | done        | open, due     | now   | 1       | -10   | -1   | -                            | -                                | R29
        restore, clock 60 s back   | done        | open, due     | now   | 1       | -60   | -60  | -                            | -                                | R29
        look                       | admits      | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R8
        ",
    );
}

#[test]
fn every_input_while_half_open_no_slot_free() {
    check(
        "half-open, no slot free",
        "
        input                      | answer          | state         | epoch | attempt | until | seen | remembers                    | transitions                      | rules
        acquire                    | ProbesInUse 0.4 | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R7 R9
        acquire, clock 60 s back   | ProbesInUse 1   | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R3 R7 R9
        success                    | counted         | half-open     | +0    | 1       | -     | 0    | 1 held, 1 ok, 0 inconclusive | -                                | R13
        failure                    | counted         | open          | +1    | 2       | 40    | 0    | -                            | probe failed, half-open, open    | R14 R22
        ignored                    | counted         | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 1 inconclusive | -                                | R15
        reclaim                    | counted         | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R10 R15
        late success               | late            | half-open     | +0    | 1       | -     | 0    | 2 held, 0 ok, 0 inconclusive | -                                | R11
        late failure               | late            | half-open     | +0    | 1       | -     | 0    | 2 held, 0 ok, 0 inconclusive | -                                | R11
        late ignored               | late            | half-open     | +0    | 1       | -     | 0    | 2 held, 0 ok, 0 inconclusive | -                                | R11
        late reclaim               | late            | half-open     | +0    | 1       | -     | 0    | 2 held, 0 ok, 0 inconclusive | -                                | R11
        advance                    | done            | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R28
        advance, clock 60 s back   | done            | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R3 R28
        force open                 | done            | forced open   | +1    | 0       | -     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 3 s        | done            | forced open   | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 0          | invalid ttl     | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R33
        force closed               | done            | forced closed | +1    | 0       | -     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 3 s      | done            | forced closed | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 0        | invalid ttl     | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R33
        release                    | done            | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R23
        reset                      | done            | closed        | +1    | 0       | -     | 0    | 0 failures                   | reset, half-open, closed         | R24
        reconfigure, equal         | done            | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R35
        reconfigure, other policy  | done            | half-open     | +0    | 1       | -     | 0    | 2 held, 0 ok, 0 inconclusive | -                                | R35
        reconfigure, breaks of 2 s | done            | half-open     | +0    | 1       | -     | 0    | 2 held, 0 ok, 0 inconclusive | -                                | R35
        restore                    | done            | open, due     | now   | 1       | -10   | -1   | -                            | -                                | R29
        restore, clock 60 s back   | done            | open, due     | now   | 1       | -60   | -60  | -                            | -                                | R29
        look                       | ProbesInUse 0.4 | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R8
        ",
    );
}

#[test]
fn every_input_while_half_open_a_lease_over() {
    check(
        "half-open, a lease over",
        "
        input                      | answer        | state         | epoch | attempt | until | seen | remembers                    | transitions                      | rules
        acquire                    | probe         | half-open     | +0    | 1       | -     | 0    | 2 held, 0 ok, 0 inconclusive | -                                | R16
        acquire, clock 60 s back   | ProbesInUse 1 | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R3 R7 R9
        success                    | counted       | half-open     | +0    | 1       | -     | 0    | 1 held, 1 ok, 0 inconclusive | -                                | R13 R16
        failure                    | counted       | open          | +1    | 2       | 40    | 0    | -                            | probe failed, half-open, open    | R14 R16 R22
        ignored                    | counted       | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R15
        reclaim                    | counted       | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R10 R15
        late success               | late          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R11
        late failure               | late          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R11
        late ignored               | late          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R11
        late reclaim               | late          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R11
        advance                    | done          | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R28
        advance, clock 60 s back   | done          | half-open     | +0    | 1       | -     | -1   | 2 held, 0 ok, 0 inconclusive | -                                | R3 R28
        force open                 | done          | forced open   | +1    | 0       | -     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 3 s        | done          | forced open   | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 0          | invalid ttl   | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R33
        force closed               | done          | forced closed | +1    | 0       | -     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 3 s      | done          | forced closed | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 0        | invalid ttl   | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R33
        release                    | done          | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R23
        reset                      | done          | closed        | +1    | 0       | -     | 0    | 0 failures                   | reset, half-open, closed         | R24
        reconfigure, equal         | done          | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R35
        reconfigure, other policy  | done          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R35
        reconfigure, breaks of 2 s | done          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 0 inconclusive | -                                | R35
        restore                    | done          | open, due     | now   | 1       | -10   | -1   | -                            | -                                | R29
        restore, clock 60 s back   | done          | open, due     | now   | 1       | -60   | -60  | -                            | -                                | R29
        look                       | admits        | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 0 inconclusive | -                                | R8
        ",
    );
}

#[test]
fn every_input_while_half_open_inconclusive() {
    check(
        "half-open, inconclusive",
        "
        input                      | answer        | state         | epoch | attempt | until | seen | remembers                    | transitions                      | rules
        acquire                    | ProbesInUse 1 | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 2 inconclusive | -                                | R9 R15
        acquire, clock 60 s back   | ProbesInUse 1 | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 2 inconclusive | -                                | R3 R9 R15
        success                    | counted       | half-open     | +0    | 1       | -     | 0    | 0 held, 1 ok, 0 inconclusive | -                                | R13
        failure                    | counted       | open          | +1    | 2       | 40    | 0    | -                            | probe failed, half-open, open    | R14 R22
        ignored                    | counted       | open          | +1    | 1       | 20    | 0    | -                            | inconclusive, half-open, open    | R15
        reclaim                    | counted       | half-open     | +0    | 1       | -     | 0    | 0 held, 0 ok, 2 inconclusive | -                                | R10 R15
        late success               | late          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 2 inconclusive | -                                | R11
        late failure               | late          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 2 inconclusive | -                                | R11
        late ignored               | late          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 2 inconclusive | -                                | R11
        late reclaim               | late          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 2 inconclusive | -                                | R11
        advance                    | done          | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 2 inconclusive | -                                | R28
        advance, clock 60 s back   | done          | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 2 inconclusive | -                                | R3 R28
        force open                 | done          | forced open   | +1    | 0       | -     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 3 s        | done          | forced open   | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 0          | invalid ttl   | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 2 inconclusive | -                                | R33
        force closed               | done          | forced closed | +1    | 0       | -     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 3 s      | done          | forced closed | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 0        | invalid ttl   | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 2 inconclusive | -                                | R33
        release                    | done          | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 2 inconclusive | -                                | R23
        reset                      | done          | closed        | +1    | 0       | -     | 0    | 0 failures                   | reset, half-open, closed         | R24
        reconfigure, equal         | done          | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 2 inconclusive | -                                | R35
        reconfigure, other policy  | done          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 2 inconclusive | -                                | R35
        reconfigure, breaks of 2 s | done          | half-open     | +0    | 1       | -     | 0    | 1 held, 0 ok, 2 inconclusive | -                                | R35
        restore                    | done          | open, due     | now   | 1       | -10   | -1   | -                            | -                                | R29
        restore, clock 60 s back   | done          | open, due     | now   | 1       | -60   | -60  | -                            | -                                | R29
        look                       | ProbesInUse 1 | half-open     | +0    | 1       | -     | -1   | 1 held, 0 ok, 2 inconclusive | -                                | R8
        ",
    );
}

#[test]
fn every_input_while_forced_open() {
    check(
        "forced open",
        "
        input                      | answer           | state         | epoch | attempt | until | seen | remembers  | transitions                        | rules
        acquire                    | ForcedOpen never | forced open   | +0    | 0       | -     | -10  | old        | -                                  | R9 R23
        acquire, clock 60 s back   | ForcedOpen never | forced open   | +0    | 0       | -     | -10  | old        | -                                  | R3 R9 R23
        late success               | late             | forced open   | +0    | 0       | -     | 0    | old        | -                                  | R11
        late failure               | late             | forced open   | +0    | 0       | -     | 0    | old        | -                                  | R11
        late ignored               | late             | forced open   | +0    | 0       | -     | 0    | old        | -                                  | R11
        late reclaim               | late             | forced open   | +0    | 0       | -     | 0    | old        | -                                  | R11
        advance                    | done             | forced open   | +0    | 0       | -     | -10  | old        | -                                  | R28
        advance, clock 60 s back   | done             | forced open   | +0    | 0       | -     | -10  | old        | -                                  | R3 R28
        force open                 | done             | forced open   | +0    | 0       | -     | 0    | new        | -                                  | R23
        force open, ttl 3 s        | done             | forced open   | +0    | 0       | 3     | 0    | new        | -                                  | R23
        force open, ttl 0          | invalid ttl      | forced open   | +0    | 0       | -     | -10  | old        | -                                  | R33
        force closed               | done             | forced closed | +1    | 0       | -     | 0    | new        | forced, forced open, forced closed | R23
        force closed, ttl 3 s      | done             | forced closed | +1    | 0       | 3     | 0    | new        | forced, forced open, forced closed | R23
        force closed, ttl 0        | invalid ttl      | forced open   | +0    | 0       | -     | -10  | old        | -                                  | R33
        release                    | done             | closed        | +1    | 0       | -     | 0    | 0 failures | released, forced open, closed      | R23
        reset                      | done             | forced open   | +1    | 0       | -     | 0    | old        | -                                  | R24
        reconfigure, equal         | done             | forced open   | +0    | 0       | -     | -10  | old        | -                                  | R35
        reconfigure, other policy  | done             | forced open   | +0    | 0       | -     | 0    | old        | -                                  | R35
        reconfigure, breaks of 2 s | done             | forced open   | +0    | 0       | -     | 0    | old        | -                                  | R35
        restore                    | done             | forced open   | now   | 0       | -     | -10  | old        | -                                  | R29
        restore, clock 60 s back   | done             | forced open   | now   | 0       | -     | -60  | old        | -                                  | R29
        look                       | ForcedOpen never | forced open   | +0    | 0       | -     | -10  | old        | -                                  | R8
        ",
    );
}

#[test]
fn every_input_while_forced_open_with_a_ttl() {
    check(
        "forced open, with a ttl",
        "
        input                      | answer        | state         | epoch | attempt | until | seen | remembers  | transitions                        | rules
        acquire                    | ForcedOpen 7  | forced open   | +0    | 0       | 7     | -10  | old        | -                                  | R9 R23
        acquire, clock 60 s back   | ForcedOpen 17 | forced open   | +0    | 0       | 7     | -10  | old        | -                                  | R3 R9 R23
        late success               | late          | forced open   | +0    | 0       | 7     | 0    | old        | -                                  | R11
        late failure               | late          | forced open   | +0    | 0       | 7     | 0    | old        | -                                  | R11
        late ignored               | late          | forced open   | +0    | 0       | 7     | 0    | old        | -                                  | R11
        late reclaim               | late          | forced open   | +0    | 0       | 7     | 0    | old        | -                                  | R11
        advance                    | done          | forced open   | +0    | 0       | 7     | -10  | old        | -                                  | R28
        advance, clock 60 s back   | done          | forced open   | +0    | 0       | 7     | -10  | old        | -                                  | R3 R28
        force open                 | done          | forced open   | +0    | 0       | -     | 0    | new        | -                                  | R23
        force open, ttl 3 s        | done          | forced open   | +0    | 0       | 3     | 0    | new        | -                                  | R23
        force open, ttl 0          | invalid ttl   | forced open   | +0    | 0       | 7     | -10  | old        | -                                  | R33
        force closed               | done          | forced closed | +1    | 0       | -     | 0    | new        | forced, forced open, forced closed | R23
        force closed, ttl 3 s      | done          | forced closed | +1    | 0       | 3     | 0    | new        | forced, forced open, forced closed | R23
        force closed, ttl 0        | invalid ttl   | forced open   | +0    | 0       | 7     | -10  | old        | -                                  | R33
        release                    | done          | closed        | +1    | 0       | -     | 0    | 0 failures | released, forced open, closed      | R23
        reset                      | done          | forced open   | +1    | 0       | 7     | 0    | old        | -                                  | R24
        reconfigure, equal         | done          | forced open   | +0    | 0       | 7     | -10  | old        | -                                  | R35
        reconfigure, other policy  | done          | forced open   | +0    | 0       | 7     | 0    | old        | -                                  | R35
        reconfigure, breaks of 2 s | done          | forced open   | +0    | 0       | 7     | 0    | old        | -                                  | R35
        restore                    | done          | forced open   | now   | 0       | 7     | -10  | old        | -                                  | R29
        restore, clock 60 s back   | done          | forced open   | now   | 0       | 7     | -60  | old        | -                                  | R29
        look                       | ForcedOpen 7  | forced open   | +0    | 0       | 7     | -10  | old        | -                                  | R8
        ",
    );
}

#[test]
fn every_input_while_forced_open_its_ttl_over() {
    check(
        "forced open, its ttl over",
        "
        input                      | answer        | state         | epoch | attempt | until | seen | remembers                    | transitions                                             | rules
        acquire                    | probe         | half-open     | +2    | 0       | -     | 0    | 1 held, 0 ok, 0 inconclusive | expired, forced open, open; probe due, open, half-open  | R6 R8 R23
        acquire, clock 60 s back   | ForcedOpen 10 | forced open   | +0    | 0       | 0     | -10  | old                          | -                                                       | R3 R9 R23
        late success               | late          | open, due     | +1    | 0       | 0     | 0    | -                            | expired, forced open, open                              | R8 R11
        late failure               | late          | open, due     | +1    | 0       | 0     | 0    | -                            | expired, forced open, open                              | R8 R11
        late ignored               | late          | open, due     | +1    | 0       | 0     | 0    | -                            | expired, forced open, open                              | R8 R11
        late reclaim               | late          | open, due     | +1    | 0       | 0     | 0    | -                            | expired, forced open, open                              | R8 R11
        advance                    | done          | open, due     | +1    | 0       | 0     | 0    | -                            | expired, forced open, open                              | R23 R28
        advance, clock 60 s back   | done          | forced open   | +0    | 0       | 0     | -10  | old                          | -                                                       | R3 R28
        force open                 | done          | forced open   | +2    | 0       | -     | 0    | new                          | expired, forced open, open; forced, open, forced open   | R8 R23
        force open, ttl 3 s        | done          | forced open   | +2    | 0       | 3     | 0    | new                          | expired, forced open, open; forced, open, forced open   | R8 R23
        force open, ttl 0          | invalid ttl   | open, due     | +0    | 0       | 0     | -10  | -                            | -                                                       | R33
        force closed               | done          | forced closed | +2    | 0       | -     | 0    | new                          | expired, forced open, open; forced, open, forced closed | R8 R23
        force closed, ttl 3 s      | done          | forced closed | +2    | 0       | 3     | 0    | new                          | expired, forced open, open; forced, open, forced closed | R8 R23
        force closed, ttl 0        | invalid ttl   | open, due     | +0    | 0       | 0     | -10  | -                            | -                                                       | R33
        release                    | done          | open, due     | +1    | 0       | 0     | 0    | -                            | expired, forced open, open                              | R8 R23
        reset                      | done          | closed        | +2    | 0       | -     | 0    | 0 failures                   | expired, forced open, open; reset, open, closed         | R8 R24
        reconfigure, equal         | done          | open, due     | +1    | 0       | 0     | 0    | -                            | expired, forced open, open                              | R8 R35
        reconfigure, other policy  | done          | open, due     | +1    | 0       | 0     | 0    | -                            | expired, forced open, open                              | R8 R35
        reconfigure, breaks of 2 s | done          | open, due     | +1    | 0       | 0     | 0    | -                            | expired, forced open, open                              | R8 R35
        restore                    | done          | open, due     | now   | 0       | 0     | -10  | -                            | -                                                       | R29
        restore, clock 60 s back   | done          | forced open   | now   | 0       | 0     | -60  | old                          | -                                                       | R29
        look                       | admits        | open, due     | +0    | 0       | 0     | -10  | -                            | -                                                       | R8
        ",
    );
}

#[test]
fn every_input_while_forced_closed() {
    check(
        "forced closed",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers  | transitions                        | rules
        acquire                    | call        | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R23
        acquire, clock 60 s back   | call        | forced closed | +0    | 0       | -     | -5   | old        | -                                  | R3 R23
        success                    | counted     | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R23
        failure                    | counted     | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R23
        ignored                    | counted     | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R23
        reclaim                    | counted     | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R23
        late success               | late        | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R11
        late failure               | late        | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R11
        late ignored               | late        | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R11
        late reclaim               | late        | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R11
        advance                    | done        | forced closed | +0    | 0       | -     | -5   | old        | -                                  | R28
        advance, clock 60 s back   | done        | forced closed | +0    | 0       | -     | -5   | old        | -                                  | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new        | forced, forced closed, forced open | R23
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new        | forced, forced closed, forced open | R23
        force open, ttl 0          | invalid ttl | forced closed | +0    | 0       | -     | -5   | old        | -                                  | R33
        force closed               | done        | forced closed | +0    | 0       | -     | 0    | new        | -                                  | R23
        force closed, ttl 3 s      | done        | forced closed | +0    | 0       | 3     | 0    | new        | -                                  | R23
        force closed, ttl 0        | invalid ttl | forced closed | +0    | 0       | -     | -5   | old        | -                                  | R33
        release                    | done        | closed        | +1    | 0       | -     | 0    | 0 failures | released, forced closed, closed    | R23
        reset                      | done        | forced closed | +1    | 0       | -     | 0    | old        | -                                  | R24
        reconfigure, equal         | done        | forced closed | +0    | 0       | -     | -5   | old        | -                                  | R35
        reconfigure, other policy  | done        | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R35
        reconfigure, breaks of 2 s | done        | forced closed | +0    | 0       | -     | 0    | old        | -                                  | R35
        restore                    | done        | forced closed | now   | 0       | -     | -5   | old        | -                                  | R29
        restore, clock 60 s back   | done        | forced closed | now   | 0       | -     | -60  | old        | -                                  | R29
        look                       | admits      | forced closed | +0    | 0       | -     | -5   | old        | -                                  | R8
        ",
    );
}

#[test]
fn every_input_while_forced_closed_with_a_ttl() {
    check(
        "forced closed, with a ttl",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers  | transitions                        | rules
        acquire                    | call        | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R23
        acquire, clock 60 s back   | call        | forced closed | +0    | 0       | 7     | -5   | old        | -                                  | R3 R23
        success                    | counted     | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R23
        failure                    | counted     | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R23
        ignored                    | counted     | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R23
        reclaim                    | counted     | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R23
        late success               | late        | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R11
        late failure               | late        | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R11
        late ignored               | late        | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R11
        late reclaim               | late        | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R11
        advance                    | done        | forced closed | +0    | 0       | 7     | -5   | old        | -                                  | R28
        advance, clock 60 s back   | done        | forced closed | +0    | 0       | 7     | -5   | old        | -                                  | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new        | forced, forced closed, forced open | R23
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new        | forced, forced closed, forced open | R23
        force open, ttl 0          | invalid ttl | forced closed | +0    | 0       | 7     | -5   | old        | -                                  | R33
        force closed               | done        | forced closed | +0    | 0       | -     | 0    | new        | -                                  | R23
        force closed, ttl 3 s      | done        | forced closed | +0    | 0       | 3     | 0    | new        | -                                  | R23
        force closed, ttl 0        | invalid ttl | forced closed | +0    | 0       | 7     | -5   | old        | -                                  | R33
        release                    | done        | closed        | +1    | 0       | -     | 0    | 0 failures | released, forced closed, closed    | R23
        reset                      | done        | forced closed | +1    | 0       | 7     | 0    | old        | -                                  | R24
        reconfigure, equal         | done        | forced closed | +0    | 0       | 7     | -5   | old        | -                                  | R35
        reconfigure, other policy  | done        | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R35
        reconfigure, breaks of 2 s | done        | forced closed | +0    | 0       | 7     | 0    | old        | -                                  | R35
        restore                    | done        | forced closed | now   | 0       | 7     | -5   | old        | -                                  | R29
        restore, clock 60 s back   | done        | forced closed | now   | 0       | 7     | -60  | old        | -                                  | R29
        look                       | admits      | forced closed | +0    | 0       | 7     | -5   | old        | -                                  | R8
        ",
    );
}

#[test]
fn every_input_while_forced_closed_its_ttl_over() {
    check(
        "forced closed, its ttl over",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers  | transitions                                                   | rules
        acquire                    | call        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R23
        acquire, clock 60 s back   | call        | forced closed | +0    | 0       | 0     | -5   | old        | -                                                             | R3 R23
        success                    | late        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R11
        failure                    | late        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R11
        ignored                    | late        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R11
        reclaim                    | late        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R11
        late success               | late        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R11
        late failure               | late        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R11
        late ignored               | late        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R11
        late reclaim               | late        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R11
        advance                    | done        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R23 R28
        advance, clock 60 s back   | done        | forced closed | +0    | 0       | 0     | -5   | old        | -                                                             | R3 R28
        force open                 | done        | forced open   | +2    | 0       | -     | 0    | new        | expired, forced closed, closed; forced, closed, forced open   | R8 R23
        force open, ttl 3 s        | done        | forced open   | +2    | 0       | 3     | 0    | new        | expired, forced closed, closed; forced, closed, forced open   | R8 R23
        force open, ttl 0          | invalid ttl | closed        | +0    | 0       | -     | -5   | 0 failures | -                                                             | R33
        force closed               | done        | forced closed | +2    | 0       | -     | 0    | new        | expired, forced closed, closed; forced, closed, forced closed | R8 R23
        force closed, ttl 3 s      | done        | forced closed | +2    | 0       | 3     | 0    | new        | expired, forced closed, closed; forced, closed, forced closed | R8 R23
        force closed, ttl 0        | invalid ttl | closed        | +0    | 0       | -     | -5   | 0 failures | -                                                             | R33
        release                    | done        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R23
        reset                      | done        | closed        | +2    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R24
        reconfigure, equal         | done        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R35
        reconfigure, other policy  | done        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R35
        reconfigure, breaks of 2 s | done        | closed        | +1    | 0       | -     | 0    | 0 failures | expired, forced closed, closed                                | R8 R35
        restore                    | done        | closed        | now   | 0       | -     | -5   | 0 failures | -                                                             | R29
        restore, clock 60 s back   | done        | forced closed | now   | 0       | 0     | -60  | old        | -                                                             | R29
        look                       | admits      | closed        | +0    | 0       | -     | -5   | 0 failures | -                                                             | R8
        ",
    );
}

#[test]
fn every_input_while_half_open_a_success_short() {
    check(
        "half-open, a success short",
        "
        input                      | answer      | state         | epoch | attempt | until | seen | remembers                    | transitions                      | rules
        acquire                    | probe       | half-open     | +0    | 1       | -     | 0    | 2 held, 1 ok, 0 inconclusive | -                                | R7
        acquire, clock 60 s back   | probe       | half-open     | +0    | 1       | -     | -1   | 2 held, 1 ok, 0 inconclusive | -                                | R3 R7
        success                    | counted     | closed        | +1    | 0       | -     | 0    | 0 failures, share 0.25       | recovered, half-open, closed     | R13 R36
        failure                    | counted     | open          | +1    | 2       | 40    | 0    | -                            | probe failed, half-open, open    | R14 R22
        ignored                    | counted     | half-open     | +0    | 1       | -     | 0    | 0 held, 1 ok, 1 inconclusive | -                                | R15
        reclaim                    | counted     | half-open     | +0    | 1       | -     | 0    | 0 held, 1 ok, 0 inconclusive | -                                | R10 R15
        late success               | late        | half-open     | +0    | 1       | -     | 0    | 1 held, 1 ok, 0 inconclusive | -                                | R11
        late failure               | late        | half-open     | +0    | 1       | -     | 0    | 1 held, 1 ok, 0 inconclusive | -                                | R11
        late ignored               | late        | half-open     | +0    | 1       | -     | 0    | 1 held, 1 ok, 0 inconclusive | -                                | R11
        late reclaim               | late        | half-open     | +0    | 1       | -     | 0    | 1 held, 1 ok, 0 inconclusive | -                                | R11
        advance                    | done        | half-open     | +0    | 1       | -     | -1   | 1 held, 1 ok, 0 inconclusive | -                                | R28
        advance, clock 60 s back   | done        | half-open     | +0    | 1       | -     | -1   | 1 held, 1 ok, 0 inconclusive | -                                | R3 R28
        force open                 | done        | forced open   | +1    | 0       | -     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 3 s        | done        | forced open   | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced open   | R23
        force open, ttl 0          | invalid ttl | half-open     | +0    | 1       | -     | -1   | 1 held, 1 ok, 0 inconclusive | -                                | R33
        force closed               | done        | forced closed | +1    | 0       | -     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 3 s      | done        | forced closed | +1    | 0       | 3     | 0    | new                          | forced, half-open, forced closed | R23
        force closed, ttl 0        | invalid ttl | half-open     | +0    | 1       | -     | -1   | 1 held, 1 ok, 0 inconclusive | -                                | R33
        release                    | done        | half-open     | +0    | 1       | -     | -1   | 1 held, 1 ok, 0 inconclusive | -                                | R23
        reset                      | done        | closed        | +1    | 0       | -     | 0    | 0 failures                   | reset, half-open, closed         | R24
        reconfigure, equal         | done        | half-open     | +0    | 1       | -     | -1   | 1 held, 1 ok, 0 inconclusive | -                                | R35
        reconfigure, other policy  | done        | half-open     | +0    | 1       | -     | 0    | 1 held, 1 ok, 0 inconclusive | -                                | R35
        reconfigure, breaks of 2 s | done        | half-open     | +0    | 1       | -     | 0    | 1 held, 1 ok, 0 inconclusive | -                                | R35
        restore                    | done        | open, due     | now   | 1       | -10   | -1   | -                            | -                                | R29
        restore, clock 60 s back   | done        | open, due     | now   | 1       | -60   | -60  | -                            | -                                | R29
        look                       | admits      | half-open     | +0    | 1       | -     | -1   | 1 held, 1 ok, 0 inconclusive | -                                | R8
        ",
    );
}
