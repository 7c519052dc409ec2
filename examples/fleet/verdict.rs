//! What came out of it: which changes were shared and how fast, how many probes there were in each round, what
//! became of the calls, and whether that is what was promised.

use std::time::Duration;

use actix_circuit_breaker::{Cause, CircuitState, Timestamp};

use crate::report::Outcome;
use crate::timeline::{PROCESSES, Process};
use crate::upstream::Arrival;
use crate::worker::{BREAK_MS, MAX_PROBES};

/// After the answer to a probe, the next round is a break away at least; what comes sooner is of the same round.
const SAME_ROUND: Duration = Duration::from_millis(BREAK_MS / 2);

/// A change that every process made.
pub(crate) struct Shared {
    pub(crate) to: CircuitState,
    pub(crate) cause: Cause,
    /// Who knew first, and when.
    pub(crate) first: usize,
    pub(crate) at: Timestamp,
    /// How long it took until the last one knew.
    pub(crate) took: Duration,
    /// The newest calls by then.
    pub(crate) asked: Vec<u64>,
}

/// The changes that all processes told under the same epoch.
pub(crate) fn shared(processes: &[Process]) -> Vec<Shared> {
    let mut shared = Vec::new();
    let first = processes
        .first()
        .map_or(&[][..], |process| &process.changes);
    for change in first.iter().filter(|change| change.from != change.to) {
        let same: Vec<_> = processes
            .iter()
            .filter_map(|process| {
                let mut changes = process.changes.iter();
                changes.find(|it| it.epoch == change.epoch && it.to == change.to)
            })
            .collect();
        let times = same.iter().map(|it| it.at);
        let (Some((first, at)), Some(last)) = (
            times.clone().enumerate().min_by_key(|(_, at)| *at),
            times.max(),
        ) else {
            continue;
        };
        if same.len() == PROCESSES {
            shared.push(Shared {
                to: change.to,
                cause: change.cause,
                first,
                at,
                took: last.since(at),
                asked: same.iter().map(|it| it.asked).collect(),
            });
        }
    }
    shared
}

/// The requests of an outage that are later than those calls and that time, up to the first good answer, by
/// rounds; and when that answer came.
pub(crate) fn rounds(
    asked: &[u64],
    since: Timestamp,
    arrivals: &[Arrival],
) -> (Vec<Vec<Arrival>>, Timestamp) {
    let mut rounds: Vec<Vec<Arrival>> = Vec::new();
    let mut end = Timestamp::MAX;
    for arrival in arrivals {
        let is_later = asked
            .get(arrival.process)
            .is_some_and(|it| arrival.number > *it);
        if !is_later || arrival.came < since {
            continue;
        }
        if arrival.came > end {
            break;
        }
        let answered = arrival.answered.unwrap_or(Timestamp::MAX);
        if arrival.well {
            end = end.min(answered);
        }
        let before = rounds.last().and_then(|round| round.last());
        let before = before.map(|it| it.answered.unwrap_or(Timestamp::MAX));
        match rounds.last_mut() {
            Some(round) if before.is_some_and(|it| arrival.came < it + SAME_ROUND) => {
                round.push(*arrival);
            }
            _ => rounds.push(vec![*arrival]),
        }
    }
    (rounds, end)
}

/// Whether all processes shared their records through all of that time.
pub(crate) fn all_shared(processes: &[Process], from: Timestamp, to: Timestamp) -> bool {
    !processes.iter().any(|it| it.was_alone(from, to))
}

pub(crate) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// How the processes came back to Redis.
pub(crate) struct Back {
    /// When all shared again, and the newest calls by then.
    pub(crate) at: Timestamp,
    pub(crate) asked: Vec<u64>,
    /// When the break ends.
    pub(crate) due: Timestamp,
}

/// What the story alone knows.
pub(crate) struct Facts {
    /// Calls that did not succeed when Redis went away while the upstream was well.
    pub(crate) harmed: usize,
    /// Calls that succeeded meanwhile.
    pub(crate) unharmed: usize,
    /// How many processes tripped by themselves without Redis.
    pub(crate) tripped_alone: usize,
    /// The break that was open when all shared again, if one was.
    pub(crate) back: Option<Back>,
    /// Whether Redis had the record again before the end of the break.
    pub(crate) remembered: bool,
    pub(crate) steps: u64,
    /// How many shared trips there had to be.
    pub(crate) trips: usize,
}

/// Says what came of it, and whether every promise was kept.
pub(crate) fn print(processes: &[Process], arrivals: &[Arrival], facts: &Facts) -> bool {
    let mut promises = print_changes(processes, arrivals, facts);
    promises.extend(print_calls(processes, arrivals, facts));
    promises.push((
        facts.harmed == 0 && facts.unharmed > 0,
        format!(
            "Redis was killed: of the calls meanwhile {} were well, {} were not",
            facts.unharmed, facts.harmed
        ),
    ));
    promises.push((
        facts.tripped_alone == processes.len(),
        format!(
            "without Redis each process trips by itself: {} of {}",
            facts.tripped_alone,
            processes.len()
        ),
    ));
    println!();
    let mut kept = true;
    for (is_so, promise) in promises {
        println!("{}  {promise}", if is_so { "ok    " } else { "BROKEN" });
        kept &= is_so;
    }
    kept
}

/// Whether it was kept, and what was promised.
type Promise = (bool, String);

/// Says what became of the calls.
fn print_calls(processes: &[Process], arrivals: &[Arrival], facts: &Facts) -> Vec<Promise> {
    let outcomes = [
        Outcome::Ok,
        Outcome::Failed,
        Outcome::Rejected,
        Outcome::Unanswered,
    ];
    println!();
    println!("              calls      ok  failed  rejected  unanswered  lost");
    let (mut calls, mut lost, mut ended_twice) = (0, 0, 0);
    for (at, process) in processes.iter().enumerate() {
        let asked = process.asked.and_then(|it| usize::try_from(it).ok());
        let asked = asked.unwrap_or(0);
        let [ok, failed, rejected, unanswered] = outcomes.map(|it| process.count(it));
        let missing = asked.saturating_sub(process.outcomes.len());
        println!(
            "process {}   {asked:>7} {ok:>7} {failed:>7} {rejected:>9} {unanswered:>11} {missing:>5}",
            at + 1
        );
        calls += asked;
        lost += missing;
        ended_twice += process.ended_twice;
    }
    println!();
    println!("Redis made {} steps for these {calls} calls", facts.steps);

    let mut seen: Vec<_> = arrivals.iter().map(|it| (it.process, it.number)).collect();
    seen.sort_unstable();
    let pairs = seen.windows(2);
    let twice = pairs.filter(|pair| pair.first() == pair.last()).count();
    let is_rejected = |it: &&Arrival| {
        let process = processes.get(it.process);
        process.and_then(|process| process.outcomes.get(&it.number)) == Some(&Outcome::Rejected)
    };
    let slipped = arrivals.iter().filter(is_rejected).count();
    vec![
        (
            lost == 0 && ended_twice == 0,
            format!("every call ends once: {lost} lost, {ended_twice} ended twice"),
        ),
        (
            twice == 0 && slipped == 0,
            format!(
                "the upstream sees a call once at most ({twice} twice), a rejected one never ({slipped})"
            ),
        ),
    ]
}

/// Says how changes were shared, and how many probes there were.
fn print_changes(processes: &[Process], arrivals: &[Arrival], facts: &Facts) -> Vec<Promise> {
    let all: Vec<_> = shared(processes);
    let trips = || all.iter().filter(|it| it.cause == Cause::Tripped);
    println!();
    println!("from the first process to the last    count        p50        p99");
    let mut slowest = Duration::ZERO;
    for (name, mut took) in [
        ("trips", trips().map(|it| it.took).collect::<Vec<_>>()),
        ("all shared changes", all.iter().map(|it| it.took).collect()),
    ] {
        took.sort_unstable();
        let [p50, p99] = [50, 99].map(|it| millis(percentile(&took, it)));
        println!("{name:<35} {:>7} {p50:>7.2} ms {p99:>7.2} ms", took.len());
        slowest = slowest.max(took.last().copied().unwrap_or_default());
    }

    // The probes of each round that all processes shared.
    let mut probes = Vec::new();
    let mut outages = 0;
    for trip in trips() {
        let (rounds, end) = rounds(&trip.asked, trip.at, arrivals);
        if all_shared(processes, trip.at, end) {
            outages += 1;
            probes.extend(rounds.iter().map(Vec::len));
        }
    }
    let back = facts.back.as_ref().and_then(|back| {
        let (rounds, end) = rounds(&back.asked, back.at, arrivals);
        all_shared(processes, back.at, end).then_some((rounds, back.due))
    });
    let early = back.map(|(rounds, due)| {
        probes.extend(rounds.iter().map(Vec::len));
        let requests = rounds.iter().flatten();
        requests.filter(|it| it.came + SAME_ROUND < due).count()
    });
    let most = probes.iter().copied().max().unwrap_or(0);
    println!();
    println!("           probes in a round    1   2   3   more");
    let count = |is_it: &dyn Fn(usize) -> bool| probes.iter().filter(|it| is_it(**it)).count();
    println!(
        "rounds of the whole fleet    {:>4} {:>3} {:>3} {:>6}",
        count(&|it| it == 1),
        count(&|it| it == 2),
        count(&|it| it == 3),
        count(&|it| it > 3)
    );
    vec![
        (
            outages >= facts.trips,
            format!("where one process trips, all do: {outages} times"),
        ),
        (
            slowest < Duration::from_secs(5),
            format!(
                "the slowest shared change was everywhere after {:.1} ms",
                millis(slowest)
            ),
        ),
        (
            most == MAX_PROBES,
            format!(
                "{MAX_PROBES} probe at most a round in the whole fleet, as the upstream counts: {most}"
            ),
        ),
        match early {
            Some(early) => (
                facts.remembered && early == 0,
                format!("a break outlives its key in Redis: {early} calls came before its end"),
            ),
            None => (
                true,
                "a break outlives its key in Redis: not seen, they shared again too late"
                    .to_owned(),
            ),
        },
    ]
}
