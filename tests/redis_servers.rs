//! That the servers, the cluster and the proxy of the tests do what they say, before tests of ours rely on them.
//! Nothing of this crate is used here.
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is a failed test, and other processes know real time only"
)]

mod servers;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use redis::{Client, Cmd, Connection, RedisError, RedisResult, ServerErrorKind, cmd};
use servers::*;

/// Longer than any answer takes that comes.
const SOON: Duration = Duration::from_millis(200);

fn connect(url: &str) -> Connection {
    Client::open(url).unwrap().get_connection().unwrap()
}

/// A connection that gives up soon.
fn impatient(port: u16) -> Wire {
    let mut wire = Wire::connect(port, None).unwrap();
    wire.wait_for(SOON);
    wire
}

fn words(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
    cmd
}

fn send(connection: &mut Connection, command: &[&str]) -> RedisResult<String> {
    words(command).query(connection)
}

fn is_refused(port: u16) -> bool {
    let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// A server and a proxy before it.
fn behind_a_proxy() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    (server, proxy)
}

#[test]
fn server_is_asked_by_word_and_by_type() {
    let server = Server::start();
    assert_eq!(server.cli(&["SET", "a", "1"]), "OK");
    assert_eq!(server.cli(&["GET", "a"]), "1");
    assert_eq!(server.cli(&["GET", "none"]), "");
    server.cli(&["HSET", "h", "x", "1", "y", "2"]);
    assert_eq!(server.cli(&["HGETALL", "h"]), "x\n1\ny\n2");
    assert_eq!(server.cli(&["TYPE", "h"]), "hash");
    assert_eq!(server.query::<i64>(&["PTTL", "a"]), Ok(-1));
    server.cli(&["CONFIG", "SET", "maxmemory", "1gb"]);
    assert_eq!(server.info("maxmemory"), "1073741824");
    let wrong = server.try_cli(&["INCR", "h"]).unwrap_err();
    assert_eq!(wrong.code(), Some("WRONGTYPE"));
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    assert_eq!(server.cli(&["KEYS", "*"]), "");
    assert_eq!(
        send(&mut connect(&server.url()), &["PING"]).unwrap(),
        "PONG"
    );
}

#[test]
fn servers_at_the_same_time_are_apart() {
    let (one, other) = (Server::start(), Server::start());
    assert_ne!(one.port(), other.port());
    one.cli(&["SET", "a", "1"]);
    assert_eq!(other.cli(&["GET", "a"]), "");
}

#[test]
fn server_takes_a_password() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    assert_eq!(server.cli(&["PING"]), "PONG");
    assert_eq!(
        send(&mut connect(&server.url()), &["PING"]).unwrap(),
        "PONG"
    );
    let stranger = format!("redis://127.0.0.1:{}/", server.port());
    let refused = send(&mut connect(&stranger), &["PING"]).unwrap_err();
    assert_eq!(refused.code(), Some("NOAUTH"));
}

#[test]
fn killed_server_is_gone_and_comes_back_empty() {
    let server = Server::start();
    server.cli(&["SET", "a", "1"]);
    let script = server.cli(&["SCRIPT", "LOAD", "return 1"]);
    let mut connection = connect(&server.url());
    server.kill();
    assert!(is_refused(server.port()));
    assert!(server.try_cli(&["PING"]).is_err());
    assert!(send(&mut connection, &["PING"]).is_err());

    for _ in 0..2 {
        server.restart_empty();
        assert_eq!(server.cli(&["GET", "a"]), "");
        assert_eq!(server.cli(&["SCRIPT", "EXISTS", &script]), "0");
        assert_eq!(server.calls("set"), 0);
        assert_eq!(
            send(&mut connect(&server.url()), &["PING"]).unwrap(),
            "PONG"
        );
        // Whatever still runs, and whatever was saved.
        server.cli(&["SET", "a", "1"]);
        server.cli(&["SAVE"]);
    }
}

#[test]
fn dropped_server_is_gone_stopped_or_not() {
    for stopped in [false, true] {
        let server = Server::start();
        let folder = server.cli(&["CONFIG", "GET", "dir"]);
        let folder = folder.lines().last().unwrap().to_owned();
        assert!(std::fs::exists(&folder).unwrap());
        if stopped {
            server.stop();
        }
        let port = server.port();
        drop(server);
        assert!(is_refused(port));
        assert!(!std::fs::exists(&folder).unwrap());
    }
}

#[test]
fn server_ends_with_a_process_that_aborts() {
    let name = "server_ends_with_a_process_that_aborts";
    if std::env::var_os(name).is_some() {
        let server = Server::start();
        server.stop();
        eprintln!("{}", server.port());
        std::process::abort();
    }
    let mut aborts = Command::new(std::env::current_exe().unwrap());
    aborts.args(["--exact", "--nocapture", name]).env(name, "");
    let said = aborts.output().unwrap().stderr;
    let said = String::from_utf8(said).unwrap();
    let port = said.lines().find_map(|line| line.parse().ok());
    let port = port.unwrap_or_else(|| panic!("no port: {said}"));
    wait_until(|| is_refused(port));
}

#[test]
fn stopped_server_answers_once_it_goes_on() {
    let server = Server::start();
    let mut connection = impatient(server.port());
    server.stop();
    let timeout = connection.request(&["SET", "a", "1"]).unwrap_err();
    assert!(timeout.is_timeout(), "{timeout}");
    // The port is open all the same.
    assert!(!is_refused(server.port()));
    server.cont();
    assert_eq!(server.cli(&["PING"]), "PONG");
    wait_until(|| server.cli(&["GET", "a"]) == "1");
}

#[test]
fn scripts_and_commands_are_counted() {
    let server = Server::start();
    let mut connection = connect(&server.url());
    let before = server.commands_processed();
    assert_eq!(server.commands_processed(), before);
    send(&mut connection, &["SET", "a", "1"]).unwrap();
    assert_eq!(server.commands_processed(), before + 1);

    let body = "return redis.call('GET', KEYS[1])";
    let sha = redis::Script::new(body).get_hash().to_owned();
    let run = ["EVALSHA", &sha, "1", "a"];
    let unknown = send(&mut connection, &run).unwrap_err();
    assert_eq!(unknown.kind(), ServerErrorKind::NoScript.into());
    assert_eq!((server.calls("evalsha"), server.script_calls()), (1, 1));
    send(&mut connection, &["SCRIPT", "LOAD", body]).unwrap();
    assert_eq!(server.script_calls(), 2);
    for _ in 0..3 {
        assert_eq!(send(&mut connection, &run).unwrap(), "1");
    }
    send(&mut connection, &["EVAL", body, "1", "a"]).unwrap();
    assert_eq!((server.calls("evalsha"), server.calls("eval")), (4, 1));
    assert_eq!(server.script_calls(), 6);
    // Those of scripts, too.
    assert_eq!(server.calls("get"), 4);
}

#[test]
fn monitor_shows_what_clients_send_in_order() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let mut connection = connect(&server.url());
    let mut monitor = server.monitor();
    let body = "redis.call('SET', KEYS[1], ARGV[1]) return \"\\n\"";
    let sent = [
        vec!["SET", "a b", "\"\\ \n\u{1}"],
        vec!["EVAL", body, "1", "k", ""],
        vec!["get", "k"],
    ];
    for command in &sent {
        send(&mut connection, command).unwrap();
    }
    server.cli(&["GET", "ours"]);
    assert_eq!(monitor.commands(), sent);
    assert_eq!(monitor.commands(), [[""; 0]; 0]);
    send(&mut connection, &["PING"]).unwrap();
    assert_eq!(monitor.commands(), [["PING"]]);
}

#[test]
fn cluster_has_all_slots_and_moves_keys() {
    let cluster = Cluster::start();
    let keys = ["a", "b", "c", "d", "e", "f"];
    let client = redis::cluster::ClusterClient::new(cluster.urls()).unwrap();
    let mut connection = client.get_connection().unwrap();
    for key in keys {
        let set: RedisResult<String> = words(&["SET", key, key]).query(&mut connection);
        assert_eq!(set.unwrap(), "OK");
        assert_eq!(cluster.node_of(key).cli(&["GET", key]), key);
    }
    let mut places: Vec<_> = keys.iter().map(|key| cluster.place_of(key)).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places, [0, 1, 2]);

    let from = cluster.place_of("a");
    let to = (from + 1) % 3;
    let asked_there = || -> RedisError {
        let asked = cluster.node(from).try_cli(&["GET", "a"]);
        asked.unwrap_err()
    };
    cluster.begin_move("a", to);
    assert_eq!(asked_there().kind(), ServerErrorKind::Ask.into());
    assert_eq!(cluster.place_of("a"), from);
    cluster.end_move("a", to);
    assert_eq!(asked_there().kind(), ServerErrorKind::Moved.into());
    assert_eq!(cluster.place_of("a"), to);
    assert_eq!(cluster.node(to).cli(&["GET", "a"]), "a");
    let got: RedisResult<String> = cmd("GET").arg("a").query(&mut connection);
    assert_eq!(got.unwrap(), "a");
    cluster.move_key("b", (cluster.place_of("b") + 2) % 3);
    assert_eq!(cluster.node_of("b").cli(&["GET", "b"]), "b");

    cluster.node(to).restart_empty();
    cluster.wait_until_whole();
    assert_eq!(cluster.place_of("a"), to);
    assert_eq!(cluster.node(to).cli(&["GET", "a"]), "");
}

#[test]
fn proxy_passes() {
    let (server, proxy) = behind_a_proxy();
    let long = "x".repeat(1_000_000);
    let mut connection = connect(&proxy.url());
    send(&mut connection, &["SET", "a", &long]).unwrap();
    assert_eq!(send(&mut connection, &["GET", "a"]).unwrap(), long);
    assert_eq!(server.cli(&["STRLEN", "a"]), "1000000");
    assert_eq!((proxy.accepted(), proxy.connections()), (1, 1));
    drop(connection);
    wait_until(|| proxy.connections() == 0);
    // Ours.
    wait_until(|| server.info("connected_clients") == "1");
    server.kill();
    let closed = Client::open(proxy.url()).unwrap().get_connection();
    assert!(closed.is_err() || send(&mut closed.unwrap(), &["PING"]).is_err());
}

#[test]
fn proxy_delays() {
    let (_server, proxy) = behind_a_proxy();
    let mut connection = connect(&proxy.url());
    let mut took = || {
        let began = Instant::now();
        send(&mut connection, &["PING"]).unwrap();
        began.elapsed()
    };
    proxy.delay(SOON);
    assert!(took() >= SOON * 2);
    // What waits does not wait for the time of before.
    proxy.delay(Duration::from_secs(3_600));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(took);
        proxy.pass();
        assert!(waiting.join().unwrap() < Duration::from_secs(60));
    });
}

#[test]
fn proxy_cuts_and_refuses() {
    let (server, proxy) = behind_a_proxy();
    let mut connection = connect(&proxy.url());
    proxy.cut();
    proxy.cut();
    assert_eq!(proxy.connections(), 0);
    assert!(send(&mut connection, &["PING"]).is_err());
    assert!(is_refused(proxy.port()));
    wait_until(|| server.info("connected_clients") == "1");
    proxy.pass();
    assert_eq!(send(&mut connect(&proxy.url()), &["PING"]).unwrap(), "PONG");
}

// A process that is being started has a copy of all that is open.
#[test]
fn proxy_refuses_while_processes_are_started() {
    let (_server, proxy) = behind_a_proxy();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| {
            for _ in 0..200 {
                Command::new("true").status().unwrap();
            }
        });
        while !starting.is_finished() {
            proxy.cut();
            assert!(is_refused(proxy.port()));
            proxy.pass();
        }
    });
}

#[test]
fn proxy_hangs() {
    let (server, proxy) = behind_a_proxy();
    let mut connection = impatient(proxy.port());
    let mut other = connect(&proxy.url());
    proxy.hang();
    let timeout = connection.request(&["SET", "a", "1"]).unwrap_err();
    assert!(timeout.is_timeout(), "{timeout}");
    // Taken, and not greeted; whether the server is there or not.
    for _ in 0..2 {
        let late = impatient(proxy.port()).request(&["PING"]).unwrap_err();
        assert!(late.is_timeout(), "{late}");
        server.kill();
    }
    server.restart_empty();
    proxy.pass();
    assert_eq!(server.cli(&["GET", "a"]), "");
    // What was lost does not shift the answers to what comes.
    assert!(connection.request(&["PING"]).is_err());
    assert!(send(&mut other, &["PING"]).is_err());
    assert_eq!(send(&mut connect(&proxy.url()), &["PING"]).unwrap(), "PONG");
}

#[test]
fn proxy_swallows_replies() {
    let (server, proxy) = behind_a_proxy();
    let mut connection = impatient(proxy.port());
    let mut idle = connect(&proxy.url());
    proxy.swallow_replies();
    let timeout = connection.request(&["INCR", "a"]).unwrap_err();
    assert!(timeout.is_timeout(), "{timeout}");
    wait_until(|| server.cli(&["GET", "a"]) == "1");
    proxy.pass();
    assert!(connection.request(&["PING"]).is_err());
    // Nothing of it was lost.
    assert_eq!(send(&mut idle, &["PING"]).unwrap(), "PONG");
}

#[test]
fn proxy_closes_half() {
    let (server, proxy) = behind_a_proxy();
    let mut connection = connect(&proxy.url());
    proxy.half_close(Side::Client);
    let ended = send(&mut connection, &["INCR", "a"]).unwrap_err();
    assert!(ended.is_connection_dropped(), "{ended}");
    wait_until(|| server.cli(&["GET", "a"]) == "1");

    let mut connection = connect(&proxy.url());
    proxy.half_close(Side::Server);
    let ended = send(&mut connection, &["INCR", "a"]).unwrap_err();
    assert!(ended.is_connection_dropped(), "{ended}");
    assert_eq!(server.cli(&["GET", "a"]), "1");
    assert_eq!(send(&mut connect(&proxy.url()), &["PING"]).unwrap(), "PONG");
}

#[tokio::test(start_paused = true)]
async fn paused_time_stands_still_while_something_is_waited_for() {
    let server = Server::start();
    let began = tokio::time::Instant::now();
    let timer = tokio::spawn(tokio::time::sleep(Duration::from_millis(1)));
    let client = Client::open(server.url()).unwrap();
    let pinged = tokio::spawn(async move {
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        cmd("SET")
            .arg("a")
            .arg("1")
            .exec_async(&mut connection)
            .await
    });
    eventually(|| server.cli(&["GET", "a"]) == "1").await;
    eventually_async(async || pinged.is_finished()).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(!timer.is_finished());
}
