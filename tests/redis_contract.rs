//! What every store promises, on the one in memory and on the one in Redis alike; and what only real keys can show.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test"
)]

mod servers;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use actix_circuit_breaker::circuit::Cause;
use actix_circuit_breaker::store::{
    Action, Answer, CallId, Change, Forced, ProbeEnding, Sample, SharedPhase, Step, View,
};
use actix_circuit_breaker::{
    BreakerConfig, CircuitState, MemoryStore, RedisStore, Store, StoreError, Timestamp, TripPolicy,
    Window,
};
use futures::StreamExt;
use servers::{Cluster, Server};

const DAY: u64 = 1_764_528_957_000_000;
const SECOND: u64 = 1_000_000;

/// One process at one store.
#[derive(Clone)]
struct Process {
    store: Arc<dyn Store>,
    number: u64,
    config: BreakerConfig,
    breaker: Arc<str>,
}

impl Process {
    fn other(&self, number: u64) -> Self {
        Self {
            number,
            ..self.clone()
        }
    }

    fn of(&self, breaker: &str) -> Self {
        Self {
            breaker: breaker.into(),
            ..self.clone()
        }
    }

    fn call(&self, number: u64) -> CallId {
        CallId {
            process: self.number,
            number,
        }
    }

    async fn make(&self, step: Step) -> View {
        self.store
            .step(&self.breaker, &self.config, step)
            .await
            .unwrap()
    }

    /// At so many microseconds of the day.
    async fn step(&self, at: u64, version: u64, action: Action) -> View {
        let now = Timestamp::from_micros(DAY + at);
        self.make(Step::new(self.number, version, now, action))
            .await
    }

    async fn look(&self, at: u64) -> View {
        self.step(at, 0, Action::Look).await
    }

    fn failure(&self, number: u64) -> Action {
        Action::Record {
            call: self.call(number),
            successes: 0,
            sample: Some(Sample::new(true, false)),
        }
    }

    async fn fail(&self, at: u64, version: u64, number: u64) -> View {
        self.step(at, version, self.failure(number)).await
    }

    async fn probe(&self, at: u64, version: u64, number: u64) -> View {
        let action = Action::Acquire {
            call: self.call(number),
            lease: Duration::from_secs(10),
        };
        self.step(at, version, action).await
    }

    async fn settle(&self, at: u64, version: u64, number: u64, ending: ProbeEnding) -> View {
        let action = Action::Settle {
            call: self.call(number),
            ending,
        };
        self.step(at, version, action).await
    }

    /// Fails as often as it takes; the version of the break.
    async fn open(&self, at: u64) -> u64 {
        for number in 1_000.. {
            let version = self.look(at).await.record.version;
            let view = self.fail(at, version, number).await;
            if state(&view) == CircuitState::Open {
                return view.record.version;
            }
        }
        unreachable!("it trips")
    }
}

fn state(view: &View) -> CircuitState {
    view.record.phase.state()
}

fn config() -> BreakerConfig {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures: 2,
            within: Duration::from_secs(10),
            reset_on_success: false,
        })
        .break_duration(Duration::from_secs(10))
        .successes_to_close(2)
        .max_probes(2)
        .build()
        .unwrap()
}

async fn redis(server: &Server) -> Process {
    process(Arc::new(RedisStore::connect(server.url()).await.unwrap()))
}

fn process(store: Arc<dyn Store>) -> Process {
    Process {
        store,
        number: 1,
        config: config(),
        breaker: "payments".into(),
    }
}

/// A process at each kind of store.
async fn each() -> (Server, [Process; 2]) {
    let server = Server::start();
    let redis = redis(&server).await;
    (server, [process(Arc::new(MemoryStore::new())), redis])
}

fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.query(&["KEYS", "*"]).unwrap();
    keys.sort_unstable();
    keys
}

fn rest(server: &Server, key: &str) -> i64 {
    server.query(&["PTTL", key]).unwrap()
}

// case 148; R34
#[tokio::test]
async fn what_was_written_under_an_old_view_changes_nothing() {
    let (server, each) = each().await;
    for a in each {
        let b = a.other(2);
        let open = a.open(0).await;
        let v5 = a.probe(10 * SECOND, open, 1).await.record.version;
        assert!(v5 > open);
        b.probe(10 * SECOND, v5, 1).await;
        let v6 = b.settle(10 * SECOND, v5, 1, ProbeEnding::Failure).await;
        assert_eq!(state(&v6), CircuitState::Open);
        let ends = || -> Vec<i64> {
            let keys = keys(&server);
            keys.iter()
                .map(|key| server.query(&["PEXPIRETIME", key]).unwrap())
                .collect()
        };
        let before = ends();
        for action in [
            Action::Settle {
                call: a.call(1),
                ending: ProbeEnding::Success,
            },
            a.failure(7),
            Action::Trip,
            Action::Reset,
            Action::Release,
        ] {
            let late = a.step(11 * SECOND, v5, action).await;
            assert_eq!(late.answer, Answer::Stale);
            assert_eq!(late.record, v6.record, "it is told what holds now");
        }
        assert_eq!(ends(), before);
    }
}

// case 155; R16
#[tokio::test]
async fn what_comes_twice_counts_once() {
    let (_server, each) = each().await;
    for a in each {
        assert_eq!(a.fail(0, 0, 1).await.answer, Answer::Done);
        for at in [0, 1, SECOND] {
            let again = a.fail(at, 0, 1).await;
            assert_eq!(again.answer, Answer::Known);
            assert_eq!(state(&again), CircuitState::Closed);
        }
        let open = a.fail(2, 0, 2).await.record.version;
        assert_eq!(a.fail(2, 0, 2).await.answer, Answer::Stale, "it tripped");

        // A probe that asks twice has one slot of the two, and one vote.
        let round = a.probe(10 * SECOND + 2, open, 1).await.record.version;
        assert_eq!(
            a.probe(10 * SECOND + 2, open, 1).await.answer,
            Answer::Stale
        );
        let again = a.probe(10 * SECOND + 2, round, 1).await;
        assert_eq!(again.answer, Answer::Done);
        let SharedPhase::HalfOpen { probes, .. } = &again.record.phase else {
            panic!("{again:?}");
        };
        assert_eq!(probes.len(), 1);
        for answer in [Answer::Done, Answer::Known] {
            let view = a
                .settle(10 * SECOND + 3, round, 1, ProbeEnding::Success)
                .await;
            assert_eq!(view.answer, answer);
            assert_eq!(state(&view), CircuitState::HalfOpen);
        }
        a.probe(10 * SECOND + 4, round, 2).await;
        let closed = a
            .settle(10 * SECOND + 5, round, 2, ProbeEnding::Success)
            .await;
        assert_eq!(state(&closed), CircuitState::Closed);
    }
}

// case 146
#[tokio::test]
async fn of_three_that_race_one_trips() {
    let (_server, each) = each().await;
    for a in each {
        a.fail(0, 0, 1).await;
        let racing = (10..13).map(|number| {
            let process = a.other(number);
            async move { process.fail(SECOND, 0, 1).await }
        });
        let views = futures::future::join_all(racing).await;
        let winners: Vec<_> = views
            .iter()
            .filter(|view| view.answer == Answer::Done)
            .collect();
        assert_eq!(winners.len(), 1);
        assert_eq!(winners[0].transitions.len(), 1);
        assert_eq!(winners[0].transitions[0].cause, Cause::Tripped);
        for view in &views {
            assert_eq!(view.record, winners[0].record);
            let last = view.record.last.as_ref().unwrap();
            assert_eq!(
                (last.cause, last.epoch),
                (Cause::Tripped, view.record.version)
            );
        }
    }
}

// case 143
#[tokio::test]
async fn breakers_share_nothing_whatever_their_names() {
    let (server, each) = each().await;
    for a in each {
        let names = [
            "a", "b", "a:b", "{x}", "x", "{a}:f", "a}", "", "ä {%7D}", "\0\r\n",
        ];
        a.of("a").open(0).await;
        for name in &names[1..] {
            assert_eq!(a.of(name).look(0).await.record.version, 0, "{name:?}");
            a.of(name).open(0).await;
        }
        let open: Vec<_> = futures::future::join_all(names.map(|name| {
            let a = a.of(name);
            async move { state(&a.look(0).await) }
        }))
        .await;
        assert_eq!(open, [CircuitState::Open; 10]);
    }
    assert_eq!(keys(&server).len(), 10);
}

// case 142; R18
#[tokio::test]
async fn the_same_instant_is_in_the_same_bucket_for_all() {
    let (_server, each) = each().await;
    for mut a in each {
        a.config = BreakerConfig::builder()
            .trip(TripPolicy::FailureRate {
                rate: 1.0,
                minimum_calls: 2,
                window: Window::Time(Duration::from_secs(10)),
                slow_call: None,
            })
            .build()
            .unwrap();
        // Whoever comes first makes no origin: a bucket leaves at the multiple of a second that it began at.
        a.fail(SECOND - 1, 0, 1).await;
        let b = a.other(2);
        assert_eq!(
            state(&b.fail(10 * SECOND - 1, 0, 1).await),
            CircuitState::Open
        );

        let late = a.of("late");
        late.fail(SECOND - 1, 0, 1).await;
        let b = b.of("late");
        assert_eq!(
            state(&b.fail(10 * SECOND, 0, 1).await),
            CircuitState::Closed
        );
    }
}

// R18
#[tokio::test]
async fn a_window_of_time_is_ten_buckets() {
    let server = Server::start();
    let mut a = redis(&server).await;
    a.config = BreakerConfig::builder()
        .trip(TripPolicy::FailureRate {
            rate: 1.0,
            minimum_calls: 100,
            window: Window::Time(Duration::from_secs(10)),
            slow_call: None,
        })
        .build()
        .unwrap();
    for number in 0..40 {
        a.fail(number * SECOND / 2, 0, number).await;
        let buckets: String = server.cli(&["HGET", "{circuit-breaker:payments}", "buckets"]);
        let buckets = buckets.split(',').count();
        assert!(buckets <= 10, "{buckets}");
    }
}

// case 158
#[tokio::test]
async fn one_sick_process_opens_nothing_where_two_have_to_report() {
    let (_server, each) = each().await;
    for a in each {
        let step = |process: &Process, number| {
            let now = Timestamp::from_micros(DAY + number);
            Step::new(process.number, 0, now, process.failure(number)).min_reporters(2)
        };
        for number in 0..100 {
            let view = a.make(step(&a, number)).await;
            assert_eq!(state(&view), CircuitState::Closed);
        }
        let b = a.other(2);
        assert_eq!(state(&b.make(step(&b, 100)).await), CircuitState::Open);
    }
}

#[tokio::test]
async fn names_and_processes_are_remembered_up_to_a_number() {
    let (_server, each) = each().await;
    for mut a in each {
        a.config = BreakerConfig::builder()
            .trip(TripPolicy::ConsecutiveFailures {
                failures: 1,
                within: None,
            })
            .build()
            .unwrap();
        let fail = async |number, min_reporters| {
            let process = a.other(number);
            let now = Timestamp::from_micros(DAY + number);
            let step = Step::new(number, 0, now, process.failure(1)).min_reporters(min_reporters);
            a.make(step).await
        };
        for number in 1..=200 {
            let view = fail(number, 129).await;
            assert_eq!(
                (view.answer, state(&view)),
                (Answer::Done, CircuitState::Closed)
            );
        }
        for number in 73..=200 {
            assert_eq!(fail(number, 129).await.answer, Answer::Known);
        }
        assert_eq!(fail(72, 129).await.answer, Answer::Done);
        assert_eq!(state(&fail(201, 128).await), CircuitState::Open);
    }
}

// case 151; R14
#[tokio::test]
async fn a_round_begins_with_nothing_of_the_one_before() {
    let (_server, each) = each().await;
    for a in each {
        let open = a.open(0).await;
        let round = a.probe(10 * SECOND, open, 1).await.record.version;
        a.probe(10 * SECOND, round, 2).await;
        a.settle(10 * SECOND, round, 1, ProbeEnding::Success).await;
        let open = a.settle(10 * SECOND, round, 2, ProbeEnding::Failure).await;
        let version = open.record.version;
        let round = a.probe(20 * SECOND, version, 3).await.record.version;
        let view = a.settle(20 * SECOND, round, 3, ProbeEnding::Success).await;
        assert_eq!(state(&view), CircuitState::HalfOpen);
        let SharedPhase::HalfOpen {
            probes, successes, ..
        } = view.record.phase
        else {
            panic!("half-open");
        };
        assert_eq!((probes.len(), successes), (0, 1));
    }
}

// case 154
#[tokio::test]
async fn a_record_that_was_lost_is_taken_back_from_who_remembers_it() {
    let server = Server::start();
    let memory = MemoryStore::new();
    let both: [(Process, &dyn Fn()); 2] = [
        (process(Arc::new(memory.clone())), &|| {
            memory.forget("payments");
        }),
        (redis(&server).await, &|| drop(server.cli(&["FLUSHALL"]))),
    ];
    for (a, lose) in both {
        a.open(0).await;
        let known = a.look(0).await.record;
        lose();
        assert_eq!(a.look(1).await.record.version, 0);
        let offer = || Action::Offer {
            record: known.clone(),
        };
        let back = a.step(10 * SECOND - 1, 0, offer()).await;
        assert_eq!(
            (back.answer, back.record.phase.state()),
            (Answer::Done, CircuitState::Open)
        );
        assert_eq!(back.record.phase, known.phase);
        assert_eq!(back.record.last, known.last);
        let twice = a.step(10 * SECOND - 1, 0, offer()).await;
        assert_eq!(twice.answer, Answer::Stale);
        let probe = a.probe(10 * SECOND, known.version, 1).await;
        assert_eq!(state(&probe), CircuitState::HalfOpen);
        let failed = a
            .settle(10 * SECOND, probe.record.version, 1, ProbeEnding::Failure)
            .await;
        assert_eq!(state(&failed), CircuitState::Open);
    }
}

// cases 152, 154 and 163; R31
#[tokio::test]
async fn every_key_has_a_lifetime_after_every_step_in_any_order() {
    let server = Server::start();
    let a = redis(&server).await;
    let b = a.other(2);
    let force = |ttl| Action::Force {
        kind: Forced::Open,
        ttl,
        reason: "drill".into(),
    };
    let acquire = |process: &Process| Action::Acquire {
        call: process.call(1),
        lease: Duration::from_secs(10),
    };
    let settle = |process: &Process, ending| Action::Settle {
        call: process.call(1),
        ending,
    };
    let steps = [
        (&a, a.failure(1)),
        (&b, b.failure(1)),
        (
            &b,
            Action::Record {
                call: b.call(9),
                successes: 3,
                sample: Some(Sample::new(false, false)),
            },
        ),
        (&a, acquire(&a)),
        (&b, settle(&b, ProbeEnding::Success)),
        (&a, settle(&a, ProbeEnding::Failure)),
        (&b, force(Some(Duration::from_secs(90)))),
    ];
    for order in orders(steps.len()) {
        let breaker = format!("{order:?}");
        let mut at = 0;
        for place in order {
            let (process, action) = &steps[place];
            let process = process.of(&breaker);
            at += 5 * SECOND;
            let version = process.look(at).await.record.version;
            let view = process.step(at, version, action.clone()).await;
            assert_ne!(view.answer, Answer::Known);
        }
    }
    let left = keys(&server);
    assert!(left.len() > 1_000);
    let mut pipeline = ::redis::pipe();
    for key in &left {
        pipeline.cmd("PTTL").arg(key);
    }
    let client = ::redis::Client::open(server.url()).unwrap();
    let rests: Vec<i64> = pipeline
        .query(&mut client.get_connection().unwrap())
        .unwrap();
    for (key, rest) in left.iter().zip(rests) {
        // Until the end of the order, and twice the longest of break, window and lease, and a minute.
        assert!(
            (1..=90_000 + 80_000 + 35_000).contains(&rest),
            "{key} {rest}"
        );
    }
}

/// All orders of so many.
fn orders(number: usize) -> Vec<Vec<usize>> {
    if number == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in orders(number - 1) {
        for place in 0..=shorter.len() {
            let mut longer = shorter.clone();
            longer.insert(place, number - 1);
            all.push(longer);
        }
    }
    all
}

// R31, R23
#[tokio::test]
async fn the_lifetime_is_the_derived_one_and_there_is_none_only_for_orders_without_an_end() {
    let server = Server::start();
    let a = redis(&server).await;
    let [record, failures, probes] = RedisStore::connect(server.url())
        .await
        .unwrap()
        .keys("payments");
    let margin = 2 * 10_000 + 60_000;
    let near = |key: &str, expected: i64| {
        let rest = rest(&server, key);
        assert!(
            (expected - 5_000..=expected).contains(&rest),
            "{key}: {rest}, not {expected}"
        );
    };
    a.fail(0, 0, 1).await;
    near(&record, margin);
    near(&failures, margin);
    let open = a.open(0).await;
    near(&record, 10_000 + margin);
    assert_eq!(keys(&server), std::slice::from_ref(&record));
    let round = a.probe(10 * SECOND, open, 1).await.record.version;
    near(&record, 10_000 + margin);
    near(&probes, 10_000 + margin);
    let force = |kind, ttl| Action::Force {
        kind,
        ttl,
        reason: "drill".into(),
    };
    let forced = a.step(10 * SECOND, round, force(Forced::Open, None)).await;
    assert_eq!(keys(&server), std::slice::from_ref(&record));
    assert_eq!(rest(&server, &record), -1);
    let version = forced.record.version;
    let day = Some(Duration::from_secs(86_400));
    a.step(10 * SECOND, version, force(Forced::Open, day)).await;
    near(&record, 86_400_000 + margin);
    let closed = a
        .step(10 * SECOND, version, force(Forced::Closed, day))
        .await;
    near(&record, 86_400_000);
    // That it was closed by a change is remembered for a while.
    a.step(10 * SECOND, closed.record.version, Action::Release)
        .await;
    near(&record, margin);
}

// cases 164 and 166
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a list of all that can be spoilt")]
async fn what_cannot_be_read_counts_as_absent_and_is_replaced() {
    let server = Server::start();
    let a = redis(&server).await;
    let store = RedisStore::connect(server.url()).await.unwrap();
    let [record, failures, probes] = &store.keys("payments");
    let (record, failures, probes) = (record.as_str(), failures.as_str(), probes.as_str());
    let mut spoilt: Vec<Vec<Vec<&str>>> = vec![
        vec![vec!["SET", record, "abc"]],
        vec![vec!["RPUSH", record, "1", "2"]],
        vec![vec!["ZADD", record, "1", "2"]],
        vec![vec![
            "HSET",
            record,
            "state",
            "open",
            "opened_at",
            "yesterday",
        ]],
        vec![vec!["HSET", record, "format", "2", "version", "1"]],
        vec![vec!["HSET", record, "format", "1"]],
        vec![vec!["SET", failures, "abc"]],
        vec![vec!["SET", probes, "abc"]],
        vec![vec!["HSET", probes, "a", "b"]],
    ];
    // Half-open, with one field spoilt, or gone.
    for field in [
        "version",
        "revision",
        "attempt",
        "newest",
        "kept",
        "phase",
        "due",
        "successes",
        "inconclusive",
        "last",
        "format",
    ] {
        for value in ["", "x", "-1", "1.5", "99999999999999999999", "{}"] {
            spoilt.push(vec![vec!["OPEN"], vec!["HSET", record, field, value]]);
        }
        if field != "last" && field != "kept" {
            spoilt.push(vec![vec!["OPEN"], vec!["HDEL", record, field]]);
        }
    }
    for field in ["attempt", "successes", "inconclusive"] {
        spoilt.push(vec![
            vec!["OPEN"],
            vec!["HSET", record, field, "4294967296"],
        ]);
    }
    for field in [
        "memory",
        "sampled",
        "length",
        "seen",
        "samples",
        "failures",
        "slow",
        "buckets",
        "reporters",
        "since",
    ] {
        for value in ["x", "-1", "1:2", "0000000000000001:x", "1:1:1:1,1:1:1:1"] {
            spoilt.push(vec![vec!["FAIL"], vec!["HSET", record, field, value]]);
        }
    }
    for spoil in [
        vec!["HSET", record, "order", "ajar"],
        vec!["HSET", record, "until", "soon"],
        vec!["HDEL", record, "order"],
        vec!["HDEL", record, "reason"],
    ] {
        spoilt.push(vec![vec!["FORCE"], spoil]);
    }
    spoilt.push(vec![vec!["OPEN"], vec!["ZADD", probes, "1.5", "nobody"]]);
    spoilt.push(vec![
        vec!["OPEN"],
        vec!["DEL", probes],
        vec!["SET", probes, "x"],
    ]);
    for orders in spoilt {
        server.cli(&["FLUSHALL"]);
        for order in &orders {
            if order[0] == "OPEN" {
                let open = a.open(0).await;
                a.probe(10 * SECOND, open, 1).await;
            } else if order[0] == "FORCE" {
                let order = Action::Force {
                    kind: Forced::Open,
                    ttl: Some(Duration::from_secs(60)),
                    reason: "drill".into(),
                };
                a.step(0, 0, order).await;
            } else if order[0] == "FAIL" {
                a.fail(0, 0, 1).await;
            } else {
                server.cli(order);
            }
        }
        for _ in 0..2 {
            let view = a.look(10 * SECOND).await;
            assert!(view.corrupt, "{orders:?}");
            assert_eq!(
                (state(&view), view.record.version),
                (CircuitState::Closed, 0)
            );
        }
        let view = a.fail(10 * SECOND, 0, 1).await;
        assert!(
            view.corrupt && view.answer == Answer::Done,
            "{orders:?}: {view:?}"
        );
        let view = a.fail(10 * SECOND, 0, 2).await;
        assert!(!view.corrupt, "{orders:?}");
        assert_eq!(state(&view), CircuitState::Open, "{orders:?}");
    }
    // Without the record, what belongs to it is nobody's.
    server.cli(&["FLUSHALL"]);
    a.fail(0, 0, 1).await;
    server.cli(&["DEL", record]);
    let view = a.fail(0, 0, 1).await;
    assert_eq!(
        (view.answer, state(&view), view.corrupt),
        (Answer::Done, CircuitState::Closed, false)
    );
}

#[tokio::test]
async fn changes_are_told_to_other_processes() {
    let (server, each) = each().await;
    for a in each {
        let mut changes = a.store.changes();
        let is_redis = format!("{:?}", a.store).starts_with("Redis");
        if is_redis {
            assert!(matches!(changes.next().await, Some(Change::Missed)));
        }
        let looked = a.of("other\"{}").look(0).await;
        assert_eq!(looked.answer, Answer::Done);
        let a = Process {
            number: u64::MAX,
            ..a.of("other\"{}")
        };
        a.fail(0, 0, 1).await;
        let tripped = a.fail(0, 0, 2).await;
        // Neither looks nor steps that change nothing are told.
        a.fail(0, 0, 2).await;
        a.step(0, tripped.record.version, Action::Reset).await;
        let mut told = Vec::new();
        while told.len() < 3 {
            let Some(Change::Made { breaker, by, view }) = changes.next().await else {
                panic!("nothing was missed");
            };
            assert_eq!((&*breaker, by), ("other\"{}", u64::MAX));
            told.push(view);
        }
        assert_eq!(told[1], tripped);
        assert_eq!(told[2].transitions[0].cause, Cause::Reset);
        if is_redis {
            server.cli(&["PUBLISH", "circuit-breaker:changes", "what?"]);
            assert!(matches!(changes.next().await, Some(Change::Missed)));
            server.restart_empty();
            assert!(matches!(changes.next().await, Some(Change::Missed)));
        }
    }
}

// case 169
#[tokio::test]
async fn a_server_that_does_not_know_the_script_is_told() {
    let server = Server::start();
    let a = redis(&server).await;
    a.fail(0, 0, 1).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(state(&a.fail(0, 0, 2).await), CircuitState::Open);
}

#[tokio::test]
async fn contact_tells_the_servers_time_and_whether_it_takes_writes() {
    let server = Server::start();
    let a = redis(&server).await;
    let wall = || Timestamp::ZERO + SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let before = wall();
    let there = a.store.contact().await.unwrap().unwrap();
    // The half of the way that is added may be more than the way back was.
    let after = wall();
    assert!(before <= there && there <= after + after.since(before));
    for key in keys(&server) {
        assert!(rest(&server, &key) > 0, "{key}");
    }
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let refused = a.store.contact().await;
    assert!(
        matches!(refused, Err(StoreError::Refused(_))),
        "{refused:?}"
    );
    let step = Step::new(1, 0, Timestamp::from_micros(DAY), a.failure(1));
    let refused = a.store.step(&a.breaker, &a.config, step).await;
    assert!(
        matches!(refused, Err(StoreError::Refused(_))),
        "{refused:?}"
    );
    assert_eq!(a.look(0).await.record.revision, 0);
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let step = Step::new(1, 0, Timestamp::from_micros(DAY), a.failure(1));
    let refused = a.store.step(&a.breaker, &a.config, step).await;
    assert!(
        matches!(refused, Err(StoreError::Refused(_))),
        "{refused:?}"
    );
    assert_eq!(a.look(0).await.record.revision, 0);
}

// case 167
#[tokio::test]
async fn a_server_that_is_away_is_told_at_once_and_found_again() {
    let server = Server::start();
    let a = redis(&server).await;
    a.fail(0, 0, 1).await;
    server.kill();
    let began = Instant::now();
    for _ in 0..1_000 {
        let step = Step::new(1, 0, Timestamp::from_micros(DAY), Action::Look);
        let away = a.store.step(&a.breaker, &a.config, step).await;
        assert!(matches!(away, Err(StoreError::Unreachable(_))), "{away:?}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    // Without it a store is made all the same.
    let late = process(Arc::new(RedisStore::connect(server.url()).await.unwrap()));
    server.restart_empty();
    for process in [a, late] {
        servers::eventually_async(async || process.store.contact().await.is_ok()).await;
        assert_eq!(process.look(0).await.record.version, 0);
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_waited_for_for_a_short_time() {
    let server = Server::start();
    let store = RedisStore::builder(server.url())
        .connect_timeout(Duration::from_millis(100))
        .response_timeout(Duration::from_millis(100))
        .connect()
        .await
        .unwrap();
    let a = process(Arc::new(store));
    a.fail(0, 0, 1).await;
    server.stop();
    let began = Instant::now();
    for _ in 0..3 {
        let away = a.store.contact().await;
        assert!(matches!(away, Err(StoreError::Unreachable(_))), "{away:?}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    server.cont();
    servers::eventually_async(async || a.store.contact().await.is_ok()).await;
    assert_eq!(a.fail(0, 0, 1).await.answer, Answer::Known);
}

#[tokio::test]
async fn both_protocols_and_a_password_do() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    for protocol in ["2", "resp3"] {
        let url = format!("{}?protocol={protocol}", server.url());
        let store = RedisStore::builder(url)
            .prefix(protocol)
            .connect()
            .await
            .unwrap();
        assert!(!format!("{store:?}").contains("secret"));
        let a = process(Arc::new(store));
        let mut changes = a.store.changes();
        assert!(matches!(changes.next().await, Some(Change::Missed)));
        a.open(0).await;
        assert!(matches!(changes.next().await, Some(Change::Made { .. })));
        a.store.contact().await.unwrap();
    }
    let url = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let a = process(Arc::new(RedisStore::connect(url).await.unwrap()));
    let Err(StoreError::Refused(why)) = a.store.contact().await else {
        panic!("it knows another password");
    };
    assert!(!why.contains("wrong:") && !why.contains('@'), "{why}");
}

/// An arbiter may end before the others.
#[test]
fn the_end_of_the_runtime_that_connected_is_not_the_end_of_the_store() {
    let server = Server::start();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let first = runtime();
    let a = first.block_on(async {
        let a = redis(&server).await;
        a.fail(0, 0, 1).await;
        a
    });
    drop(first);
    runtime().block_on(async {
        servers::eventually_async(async || a.store.contact().await.is_ok()).await;
        assert_eq!(a.fail(0, 0, 1).await.answer, Answer::Known);
    });
}

// Memory stays flat where nobody reads.
#[tokio::test]
async fn who_listens_slowly_is_told_that_changes_were_missed() {
    let server = Server::start();
    let a = redis(&server).await;
    let mut changes = a.store.changes();
    assert!(matches!(changes.next().await, Some(Change::Missed)));
    for _ in 0..3_000 {
        a.step(0, 0, Action::Look).await;
        server.cli(&["PUBLISH", "circuit-breaker:changes", "{}"]);
    }
    let version = a.open(0).await;
    let mut read = 0;
    loop {
        read += 1;
        match changes.next().await {
            Some(Change::Made { view, .. }) if view.record.version == version => break,
            Some(_) => {}
            None => panic!("it ends with the store"),
        }
    }
    assert!(read <= 1_100, "{read}");
}

// The list of the documentation.
#[tokio::test]
async fn a_user_may_be_allowed_little() {
    let server = Server::start();
    let documented = "on >secret ~{circuit-breaker* &circuit-breaker:changes -@all +eval +evalsha +type +hmget \
        +hset +hdel +del +zadd +zscore +zcard +zcount +zrange +zrangebyscore +zremrangebyrank \
        +zremrangebyscore +pexpire +persist +publish +set +time +subscribe +ping";
    let words: Vec<_> = ["ACL", "SETUSER", "breakers"]
        .into_iter()
        .chain(documented.split_whitespace())
        .collect();
    server.cli(&words);
    let url = format!("redis://breakers:secret@127.0.0.1:{}", server.port());
    let a = process(Arc::new(RedisStore::connect(url).await.unwrap()));
    let mut changes = a.store.changes();
    assert!(matches!(changes.next().await, Some(Change::Missed)));
    a.store.contact().await.unwrap();
    let open = a.open(0).await;
    assert!(matches!(changes.next().await, Some(Change::Made { .. })));
    let round = a.probe(10 * SECOND, open, 1).await.record.version;
    a.settle(10 * SECOND, round, 1, ProbeEnding::Success).await;
    let force = Action::Force {
        kind: Forced::Open,
        ttl: None,
        reason: "drill".into(),
    };
    let forced = a.step(10 * SECOND, round, force).await;
    assert_eq!(forced.answer, Answer::Done);
    // Windows of all kinds forget.
    for (name, trip) in [
        (
            "calls",
            TripPolicy::FailureRate {
                rate: 1.0,
                minimum_calls: 2,
                window: Window::Calls(2),
                slow_call: None,
            },
        ),
        (
            "run",
            TripPolicy::ConsecutiveFailures {
                failures: 1_000,
                within: None,
            },
        ),
    ] {
        let mut a = a.of(name);
        a.config = BreakerConfig::builder().trip(trip).build().unwrap();
        for number in 0..200 {
            let action = Action::Record {
                call: a.call(number),
                successes: 1,
                sample: Some(Sample::new(true, false)),
            };
            assert_eq!(a.step(number, 0, action).await.answer, Answer::Done);
        }
    }
}

#[tokio::test]
async fn settings_that_are_none_are_refused_without_telling_a_password() {
    for url in [
        "",
        "localhost",
        "http://me:secret@host",
        "redis://me:secret@host:port",
        "redis://me:secret",
    ] {
        let error = RedisStore::connect(url).await.unwrap_err();
        let StoreError::Invalid(invalid) = &error else {
            panic!("{error:?}");
        };
        assert_eq!(invalid.field(), "url");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
    let builder = || RedisStore::builder("redis://me:secret@localhost");
    assert!(!format!("{:?}", builder()).contains("secret"));
    for (builder, field) in [
        (builder().prefix(""), "prefix"),
        (builder().connect_timeout(Duration::ZERO), "connect_timeout"),
        (
            builder().response_timeout(Duration::MAX),
            "response_timeout",
        ),
        (RedisStore::cluster_builder([""; 0]), "urls"),
    ] {
        let StoreError::Invalid(invalid) = builder.connect().await.unwrap_err() else {
            panic!("{field}");
        };
        assert_eq!(invalid.field(), field);
    }
}

#[tokio::test]
async fn a_cluster_keeps_each_breaker_in_one_place() {
    let cluster = Cluster::start();
    let store = RedisStore::connect_cluster(cluster.urls()).await.unwrap();
    let a = process(Arc::new(store.clone()));
    let mut changes = a.store.changes();
    assert!(matches!(changes.next().await, Some(Change::Missed)));
    a.store.contact().await.unwrap().unwrap();
    for name in ["a", "b", "c", "d", "{e}"] {
        let a = a.of(name);
        let open = a.open(0).await;
        assert!(matches!(changes.next().await, Some(Change::Made { .. })));
        assert!(matches!(changes.next().await, Some(Change::Made { .. })));
        a.probe(10 * SECOND, open, 1).await;
        assert!(matches!(changes.next().await, Some(Change::Made { .. })));
    }
    // A key that moved is found.
    let [key, ..] = store.keys("a");
    let place = cluster.place_of(&key);
    cluster.move_key(&key, (place + 1) % 3);
    assert_eq!(
        state(&a.of("a").look(10 * SECOND).await),
        CircuitState::HalfOpen
    );
}

/// What a breaker takes, for the documentation.
#[tokio::test]
async fn memory_per_breaker_is_as_documented() {
    let server = Server::start();
    let mut a = redis(&server).await;
    let bytes = || -> i64 {
        let keys = keys(&server);
        keys.iter()
            .map(|key| {
                server
                    .query::<i64>(&["MEMORY", "USAGE", key, "SAMPLES", "0"])
                    .unwrap()
            })
            .sum()
    };
    a.config = BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures: 6,
            within: Duration::from_secs(10),
            reset_on_success: false,
        })
        .build()
        .unwrap();
    for number in 1..6 {
        a.fail(number, 0, number).await;
    }
    let closed = bytes();
    let opened = a.fail(6, 0, 6).await.record;
    let open = bytes();
    a.probe(60 * SECOND, opened.version, 1).await;
    let half_open = bytes();
    println!("bytes: closed with 5 failures {closed}, open {open}, half-open {half_open}");
    for bytes in [closed, open, half_open] {
        assert!(bytes < 2_048, "{bytes}");
    }
}
