//! Records in Redis that are lost, spoilt, or of somebody else; what is sent there, and what is told of it.
//! What becomes of breakers while the server is away is in `redis_faults.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::format_push_string,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod fleet;
mod servers;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_circuit_breaker::{
    BreakersBuilder, CallError, CircuitState, Consistency, Reason, RedisStore, StoreEvent,
    Timestamp,
};
use fleet::{BREAK, FaultyStore, Fleet, NAME, Process, consecutive, count, slow_time};
use servers::{Server, eventually, eventually_async};
use tracing_subscriber::fmt::MakeWriter;

async fn store_of(server: &Server, prefix: &str) -> RedisStore {
    let builder = RedisStore::builder(server.url()).prefix(prefix);
    builder.connect().await.unwrap()
}

async fn remote(server: &Server, prefix: &str) -> FaultyStore {
    FaultyStore::remote(store_of(server, prefix).await, "mark")
}

/// The key of the record.
async fn key(server: &Server, prefix: &str) -> String {
    let [record, _, _] = store_of(server, prefix).await.keys(NAME);
    record
}

async fn until(process: &Process) -> Option<Timestamp> {
    process.breaker.snapshot().await.unwrap().circuit.until
}

/// Has breakers look at their records often.
fn often(builder: BreakersBuilder) -> BreakersBuilder {
    builder.store_poll(Duration::from_millis(100))
}

fn corrupt(process: &Process) -> usize {
    let events = process.store_events().seen();
    let corrupt = |event: &&StoreEvent| matches!(event, StoreEvent::Corrupt { .. });
    events.iter().filter(corrupt).count()
}

// Case 154, R31: an open deadline that a process knows outlives a record that is gone, however it went.
async fn is_given_back(lose: impl Fn(&Server, &str)) {
    slow_time();
    let server = Server::start();
    let key = key(&server, "p").await;
    let mut fleet = Fleet::share_with(remote(&server, "p").await, 2, count(1), often).await;
    fleet.process(0).fails().await;
    fleet.settle().await;
    let due = until(fleet.process(0)).await;
    lose(&server, &key);
    for process in fleet.all() {
        assert_eq!(process.rejected().await, Reason::Open);
    }
    eventually(|| {
        server
            .try_cli(&["EXISTS", &key])
            .is_ok_and(|is_there| is_there == "1")
    })
    .await;
    fleet.add();
    eventually(|| fleet.states() == [CircuitState::Open; 3]).await;
    for process in fleet.all() {
        assert_eq!(until(process).await, due);
    }
    fleet.pass(BREAK - Duration::from_millis(1));
    assert_eq!(fleet.process(2).rejected().await, Reason::Open);
    // At the deadline it is a probe, not a first failure.
    fleet.pass(Duration::from_millis(1));
    let (probe, end) = fleet.process(1).hangs();
    eventually(|| fleet.process(0).state() == CircuitState::HalfOpen).await;
    assert_eq!(fleet.process(0).rejected().await, Reason::ProbesInUse);
    end.send(Err("still")).unwrap();
    assert_eq!(probe.await.unwrap(), Err(CallError::Failed("still")));
    eventually(|| fleet.states() == [CircuitState::Open; 3]).await;
}

#[actix::test]
async fn a_record_is_given_back_to_a_server_that_was_started_empty() {
    is_given_back(|server, _| server.restart_empty()).await;
}

#[actix::test]
async fn a_record_is_given_back_to_a_server_that_was_flushed() {
    is_given_back(|server, _| drop(server.cli(&["FLUSHALL"]))).await;
}

#[actix::test]
async fn a_record_is_given_back_that_was_deleted() {
    is_given_back(|server, key| drop(server.cli(&["DEL", key]))).await;
}

// Nothing for successes and rejections, one command for a failure, and for each probe one before and one after it.
#[actix::test]
async fn commands_are_as_few_as_is_said() {
    slow_time();
    let server = Server::start();
    let key = key(&server, "p").await;
    let fleet = Fleet::share(remote(&server, "p").await, 1, count(3)).await;
    let a = fleet.process(0);
    let mut monitor = server.monitor();
    let mut sent = || -> Vec<String> {
        let commands = monitor.commands();
        assert!(commands.iter().all(|words| words[3] == key), "{commands:?}");
        commands
            .into_iter()
            .map(|mut words| words.remove(0).to_uppercase())
            .collect()
    };
    for _ in 0..1_000 {
        a.succeeds().await;
    }
    assert!(sent().is_empty());
    for _ in 0..3 {
        a.fails().await;
        assert_eq!(sent(), ["EVALSHA"]);
    }
    for _ in 0..1_000 {
        assert_eq!(a.rejected().await, Reason::Open);
    }
    assert!(sent().is_empty());
    fleet.pass(BREAK);
    a.succeeds().await;
    assert_eq!(sent(), ["EVALSHA"; 2]);
    assert_eq!(a.state(), CircuitState::Closed);
}

// `Strict`: one before each call, and one for what is to be counted.
#[actix::test]
async fn strict_sends_one_command_before_each_call() {
    slow_time();
    let server = Server::start();
    let fleet = Fleet::share_with(remote(&server, "p").await, 1, count(3), |builder| {
        builder.consistency(Consistency::Strict)
    })
    .await;
    let mut monitor = server.monitor();
    fleet.process(0).succeeds().await;
    assert_eq!(monitor.commands().len(), 1);
    fleet.process(0).fails().await;
    assert_eq!(monitor.commands().len(), 2);
}

// Case 169: a server that lost its scripts is told the script once, and nobody takes that for a failure of the store.
#[actix::test]
async fn a_server_without_scripts_is_told_once() {
    slow_time();
    let server = Server::start();
    let fleet = Fleet::share(remote(&server, "p").await, 1, count(4)).await;
    let a = fleet.process(0);
    a.fails().await;
    let mut monitor = server.monitor();
    server.cli(&["SCRIPT", "FLUSH"]);
    drop(monitor.commands());
    let mut sent = || -> Vec<String> {
        let commands = monitor.commands().into_iter();
        commands
            .map(|mut words| words.remove(0).to_uppercase())
            .collect()
    };
    a.fails().await;
    assert_eq!(sent(), ["EVALSHA", "EVAL"]);
    a.fails().await;
    assert_eq!(sent(), ["EVALSHA"]);
    a.fails().await;
    assert_eq!(a.rejected().await, Reason::Open);
    assert!(a.store_events().seen().is_empty());
}

// Cases 164, 166: what cannot be read is told of once, counts as nothing, and is replaced.
#[actix::test]
async fn what_cannot_be_read_is_replaced() {
    slow_time();
    let server = Server::start();
    let record: &[&str] = &[
        "HSET", "", "format", "1", "version", "5", "revision", "5", "attempt", "0", "newest", "5",
        "phase", "open",
    ];
    let spoilt: [&[&str]; 6] = [
        &["SET", "", "abc"],
        &["RPUSH", "", "abc", "def"],
        &["HSET", "", "colour", "blue"],
        &["HSET", "", "format", "99", "phase", "open"],
        &[
            "HSET", "", "format", "1", "version", "-1", "phase", "closed",
        ],
        // Without its deadline.
        record,
    ];
    for (index, order) in spoilt.into_iter().enumerate() {
        let prefix = index.to_string();
        let key = key(&server, &prefix).await;
        let mut order = order.to_vec();
        order[1] = &key;
        server.cli(&order);
        let mut fleet = Fleet::share(remote(&server, &prefix).await, 1, count(2)).await;
        eventually(|| corrupt(fleet.process(0)) == 1).await;
        assert_eq!(fleet.states(), [CircuitState::Closed]);
        for _ in 0..2 {
            fleet.process(0).fails().await;
        }
        assert_eq!(fleet.process(0).rejected().await, Reason::Open);
        assert_eq!(server.cli(&["TYPE", &key]), "hash");
        fleet.add();
        eventually(|| fleet.states() == [CircuitState::Open; 2]).await;
        assert_eq!(
            (corrupt(fleet.process(0)), corrupt(fleet.process(1))),
            (1, 0),
            "{order:?}"
        );
    }
}

// Cases 145, 166: a deadline far in the future is none, and one that is gone leaves no one shut out.
#[actix::test]
async fn nobody_is_shut_out_by_a_spoilt_deadline() {
    slow_time();
    let server = Server::start();
    let key = key(&server, "p").await;
    let mut fleet = Fleet::share_with(remote(&server, "p").await, 1, count(1), often).await;
    fleet.process(0).fails().await;
    let due = until(fleet.process(0)).await.unwrap();
    let far = (due + Duration::from_secs(3_600)).as_micros().to_string();
    server.cli(&["HSET", &key, "until", &far]);
    fleet.add();
    eventually(|| fleet.process(1).state() == CircuitState::Open).await;
    let peek = fleet.process(1).breaker.snapshot().await.unwrap().circuit;
    assert!(
        peek.retry_after.is_some_and(|after| after <= BREAK),
        "{peek:?}"
    );
    // Who knows the deadline gives it back.
    server.cli(&["HDEL", &key, "until"]);
    fleet.add();
    eventually(|| fleet.states() == [CircuitState::Open; 3]).await;
    for process in fleet.all() {
        assert_eq!(process.rejected().await, Reason::Open);
    }
    fleet.pass(BREAK);
    fleet.process(2).succeeds().await;
    eventually(|| fleet.states() == [CircuitState::Closed; 3]).await;
}

// Cases 152, 163, R31: every key goes by itself.
#[actix::test]
async fn of_many_breakers_every_key_has_its_time() {
    slow_time();
    let server = Server::start();
    let fleet = Fleet::share(remote(&server, "p").await, 1, count(5)).await;
    let breakers = &fleet.process(0).breakers;
    let config = count(5).build().unwrap();
    for host in 0..1_000 {
        let breaker = breakers
            .create(format!("host {host}"), config.clone())
            .unwrap();
        let result: Result<(), _> = breaker.call(async { Err("foo") }).await;
        assert_eq!(result, Err(CallError::Failed("foo")));
    }
    fleet.settle().await;
    // Twice the longest of break, window and lease, and a minute.
    let most = 2 * 60_000 + 60_000;
    let script = "local n, least, most = 0, 1e18, -1e18 \
        for _, key in ipairs(redis.call('KEYS', '*host*')) do \
            local rest = redis.call('PTTL', key) \
            n, least, most = n + 1, math.min(least, rest), math.max(most, rest) \
        end return {n, least, most}";
    let (keys, least, longest): (u64, i64, i64) = server.query(&["EVAL", script, "0"]).unwrap();
    assert!(keys >= 1_000, "{keys}");
    assert!(least > 0 && longest <= most, "{least} to {longest}");
    assert!(fleet.process(0).store_events().seen().is_empty());
}

// Prefixes are worlds of their own (case 143).
#[actix::test]
async fn two_prefixes_know_nothing_of_each_other() {
    slow_time();
    let server = Server::start();
    let one = Fleet::share(remote(&server, "one").await, 2, count(1)).await;
    let other = Fleet::share(remote(&server, "one:two").await, 2, count(1)).await;
    one.process(0).fails().await;
    one.settle().await;
    other.settle().await;
    assert_eq!(one.states(), [CircuitState::Open; 2]);
    assert_eq!(other.states(), [CircuitState::Closed; 2]);
    let (one, other) = (key(&server, "one").await, key(&server, "one:two").await);
    assert_eq!(server.cli(&["EXISTS", &one]), "1");
    assert_eq!(server.cli(&["EXISTS", &other]), "0");
}

// A run of failures that others end (R17) needs a command of its own, for successes that end nothing there is none.
#[actix::test]
async fn a_success_is_told_only_where_it_ends_a_run() {
    slow_time();
    let server = Server::start();
    let fleet = Fleet::share(remote(&server, "p").await, 1, consecutive(3)).await;
    let a = fleet.process(0);
    let mut monitor = server.monitor();
    a.succeeds().await;
    assert!(monitor.commands().is_empty());
    a.fails().await;
    assert_eq!(monitor.commands().len(), 1);
    a.succeeds().await;
    fleet.settle().await;
    drop(monitor.commands());
    a.succeeds().await;
    assert!(monitor.commands().is_empty());
}

/// What is written to the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

// A password is nobody's business, right or wrong.
#[actix::test]
async fn a_password_is_told_to_nobody() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _on = tracing::subscriber::set_default(subscriber);
    let server = Server::start_with(&["--requirepass", "topsecret"]);
    let wrong = server.url().replace("topsecret", "topsecret-not");
    let nowhere = format!("redis://me:topsecret@127.0.0.1:{}/", 1);
    let mut said = String::new();
    for url in [server.url(), wrong, nowhere] {
        let builder = RedisStore::builder(&url);
        said += &format!("{builder:?}");
        let store = builder.connect().await.unwrap();
        said += &format!("{store:?}");
        let is_right = url == server.url();
        let store = FaultyStore::remote(store, "mark");
        said += &format!("{store:?}");
        let fleet = Fleet::around(store, 1, count(1), |builder| builder);
        let a = fleet.process(0);
        if is_right {
            fleet.settle().await;
        } else {
            eventually(|| fleet.is_away(0)).await;
        }
        a.fails().await;
        eventually_async(async || a.rejected().await == Reason::Open).await;
        for event in a.store_events().seen() {
            said += &format!("{event:?}");
            if let StoreEvent::Degraded { error, .. } = event {
                said += &error.to_string();
            }
        }
        said += &format!("{:?} {:?}", a.breakers, a.breakers.health().await);
    }
    for url in [
        "redis://me:topsecret@host:port/",
        "topsecret@",
        "rediss://:topsecret@localhost",
    ] {
        said += &format!("{:?}", RedisStore::connect(url).await);
    }
    said += &String::from_utf8_lossy(&log.0.lock().unwrap());
    assert!(said.contains("does not answer"), "the log is part of it");
    assert!(!said.contains("topsecret"), "{said}");
}
