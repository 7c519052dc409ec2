//! The breakers over HTTP: every route, what is refused, who and why, and listeners that are slow or gone.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod harness;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_circuit_breaker::admin::{Admin, Command, CommandKind, Denied};
use actix_circuit_breaker::message::ForceOpen;
use actix_circuit_breaker::{
    AskError, BreakerConfig, Breakers, CallError, Cause, CircuitState, Timestamp, TripPolicy,
    TripRule,
};
use actix_web::body::to_bytes;
use actix_web::dev::{Service, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::test::{TestRequest, init_service};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, Responder, ResponseError, web};
use harness::*;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Lets everybody who says a name, but not over `forbidden`.
fn named(request: &HttpRequest, command: &Command) -> Result<String, Denied> {
    if command.breaker() == "forbidden" {
        return Err(Denied::new("not this one"));
    }
    let who = request.headers().get("x-user");
    let who = who.and_then(|who| who.to_str().ok()).map(str::to_owned);
    who.ok_or_else(|| Denied::new("who are you?"))
}

fn trips_at_once() -> BreakerConfig {
    consecutive(1).build().unwrap()
}

struct Answer {
    status: StatusCode,
    body: Value,
    headers: actix_web::http::header::HeaderMap,
}

impl Answer {
    /// The answer is an error about that field.
    fn is_about(&self, field: &str) {
        assert_eq!(self.status, StatusCode::BAD_REQUEST, "{}", self.body);
        assert_eq!(self.body["field"], field, "{}", self.body);
        let text = self.body["error"].as_str().unwrap();
        assert!(text.contains(field) || field == "body", "{text}");
    }
}

async fn call(admin: &Admin, request: TestRequest) -> Answer {
    let app = init_service(App::new().service(admin.scope("/breakers"))).await;
    let response: ServiceResponse<_> = app.call(request.to_request()).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let body = to_bytes(response.into_body()).await.ok().unwrap();
    Answer {
        status,
        headers,
        body: serde_json::from_slice(&body)
            .unwrap_or_else(|_| String::from_utf8_lossy(&body).into()),
    }
}

async fn get(admin: &Admin, path: &str) -> Answer {
    call(admin, TestRequest::get().uri(&format!("/breakers/{path}"))).await
}

fn order(path: &str, body: &Value) -> TestRequest {
    TestRequest::post()
        .uri(&format!("/breakers/{path}"))
        .insert_header(("x-circuit-breaker", "1"))
        .insert_header(("x-user", "ann"))
        .insert_header(("content-type", "application/json"))
        .set_payload(body.to_string())
}

async fn post(admin: &Admin, path: &str, body: Value) -> Answer {
    call(admin, order(path, &body)).await
}

#[actix::test]
async fn lists_named_breakers_in_parts() {
    let breakers = Breakers::start();
    for name in ["a", "b one", "b two", "c"] {
        breakers.create(name, trips_at_once()).unwrap();
    }
    let b = breakers.get("b two").unwrap();
    drop(b.call(async { Err::<(), _>("down") }).await);
    let admin = Admin::new(breakers.clone());
    let names = |answer: &Answer| -> Vec<String> {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        let list = answer.body["breakers"].as_array().unwrap();
        let name = |one: &Value| one["breaker"].as_str().unwrap().to_owned();
        list.iter().map(name).collect()
    };

    let all = get(&admin, "list").await;
    assert_eq!(names(&all), ["a", "b one", "b two", "c"]);
    assert_eq!(all.body["states"], json!({"closed": 3, "open": 1}));
    assert_eq!(all.body["total"], 4);
    assert_eq!(all.body["next"], Value::Null);
    assert_eq!(all.body["read_only"], true);
    assert_eq!(all.headers.get("cache-control").unwrap(), "no-store");
    assert_eq!(
        all.headers.get("x-content-type-options").unwrap(),
        "nosniff"
    );

    let first = get(&admin, "list?q=B%20&limit=1").await;
    assert_eq!(names(&first), ["b one"]);
    assert_eq!(first.body["matching"], 2);
    assert_eq!(first.body["next"], "b one");
    let second = get(&admin, "list?q=B%20&limit=1&after=b%20one").await;
    assert_eq!(names(&second), ["b two"]);
    assert_eq!(second.body["next"], Value::Null);

    assert_eq!(names(&get(&admin, "list?state=open").await), ["b two"]);
    let two = get(&admin, "list?state=open,half_open,closed").await;
    assert_eq!(names(&two).len(), 4);
    assert_eq!(names(&get(&admin, "list?state=forced_open").await).len(), 0);

    get(&admin, "list?limit=0").await.is_about("limit");
    get(&admin, "list?limit=many").await.is_about("limit");
    get(&admin, "list?state=broken").await.is_about("state");
    get(&admin, "list?frobnicate=1")
        .await
        .is_about("frobnicate");
    get(&admin, "list?limit=1&limit=2").await.is_about("limit");
}

#[actix::test]
async fn shows_one_breaker_in_full() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let admin = Admin::new(w.breakers.clone()).history(2);
    w.trip().await;
    w.rejected().await;
    quiet().await;

    let one = get(&admin, "breaker?name=b").await.body;
    assert_eq!(one["breaker"], "b");
    assert_eq!(one["state"], "open");
    assert_eq!(one["epoch"], w.snapshot().await.epoch);
    assert!(one["until"].as_u64() > one["at"].as_u64(), "{one}");
    assert_eq!(one["calls"]["failures"], 2);
    assert_eq!(one["calls"]["rejected"], 1);
    assert_eq!(one["config"]["break_duration"], "10s");
    let tripped = &one["transitions"][0];
    assert_eq!(tripped["cause"], "tripped");
    assert_eq!(tripped["evidence"]["failures"], 2);

    // The newest are kept, and no more than asked for are told.
    w.breaker.reset().await.unwrap();
    w.trip().await;
    quiet().await;
    let causes = |one: &Value| -> Vec<Value> {
        let changes = one["transitions"].as_array().unwrap();
        changes.iter().map(|one| one["cause"].clone()).collect()
    };
    let one = get(&admin, "breaker?name=b").await.body;
    assert_eq!(causes(&one), ["reset", "tripped"]);
    let one = get(&admin, "breaker?name=b&transitions=1").await.body;
    assert_eq!(causes(&one), ["tripped"]);
    let list = get(&admin, "list?transitions=2").await.body;
    assert_eq!(causes(&list["breakers"][0]), ["reset", "tripped"]);
}

#[actix::test]
async fn what_does_not_exist_is_a_404() {
    let breakers = Breakers::start();
    breakers.family("hosts", trips_at_once()).unwrap();
    let admin = Admin::new(breakers).authorize(named);
    for path in [
        "breaker?name=none",
        "breaker?name=",
        "breaker?name=hosts",
        "breaker?name=hosts%2F",
        "breaker?name=hosts%2Fidle.example",
        "keys?family=none",
        "no/such/route",
    ] {
        let answer = get(&admin, path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(answer.body["error"].is_string(), "{}", answer.body);
    }
    get(&admin, "breaker").await.is_about("name");
    get(&admin, "keys").await.is_about("family");
    let body = json!({"breaker": "none", "reason": "r"});
    let answer = post(&admin, "release", body).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.body["error"], "there is no breaker `none`");
}

#[actix::test]
async fn any_name_can_be_looked_at_and_steered() {
    let breakers = Breakers::start();
    let admin = Admin::new(breakers.clone()).authorize(named);
    let names = [
        "hosts/example.org",
        "a b",
        "50%25",
        "..",
        "a//b/",
        "Ünïcode ☂",
        "?q=1&name=x#y",
        "<script>alert(1)</script>",
        "line\nbreak \"quoted\" \\",
    ];
    for name in names {
        let breaker = breakers.create(name, trips_at_once()).unwrap();
        let body = json!({"breaker": name, "reason": "test"});
        let answer = post(&admin, "force_open", body).await;
        assert_eq!(answer.status, StatusCode::OK, "{name}");
        assert_eq!(breaker.state(), CircuitState::ForcedOpen, "{name}");

        let query: Vec<String> = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let query = query.concat();
        let one = get(&admin, &format!("breaker?name={query}")).await;
        assert_eq!(one.body["breaker"], name);
    }
    let slash = get(&admin, "breaker?name=hosts/example.org").await;
    assert_eq!(slash.body["breaker"], "hosts/example.org");
}

// R23, R24, R35
#[actix::test]
async fn orders_are_obeyed_and_say_who_and_why() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let (_recorder, told) = w.record().await;
    let admin = Admin::new(w.breakers.clone()).authorize(named);

    let body = json!({"breaker": "b", "reason": " disk swap ", "ttl": "5m"});
    let forced = post(&admin, "force_open", body).await;
    assert_eq!(forced.status, StatusCode::OK, "{}", forced.body);
    assert_eq!(forced.body["state"], "forced_open");
    assert_eq!(forced.body["reason"], "disk swap (by ann)");
    let left = forced.body["until"].as_u64().unwrap() - forced.body["at"].as_u64().unwrap();
    assert!(left <= 300_000_000 && left > 290_000_000, "{left}");
    assert_eq!(w.state(), CircuitState::ForcedOpen);

    let body = json!({"breaker": "b", "reason": "disk is in"});
    let released = post(&admin, "release", body).await;
    assert_eq!(released.body["state"], "closed");

    let body = json!({"breaker": "b", "reason": "must pass", "ttl": null});
    let forced = post(&admin, "force_closed", body).await;
    assert_eq!(forced.body["state"], "forced_closed");
    assert_eq!(forced.body["until"], Value::Null);
    let body = json!({"breaker": "b", "reason": "enough"});
    post(&admin, "release", body).await;

    w.trip().await;
    let body = json!({"breaker": "b", "reason": "it is well"});
    let reset = post(&admin, "reset", body).await;
    assert_eq!(reset.body["state"], "closed");

    quiet().await;
    let reasons: Vec<_> = told
        .all()
        .into_iter()
        .map(|event| {
            (
                event.cause,
                event.evidence.reason.as_deref().map(str::to_owned),
            )
        })
        .collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        reasons,
        [
            (Cause::Present, None),
            (Cause::Forced, some("disk swap (by ann)")),
            (Cause::Released, some("disk is in (by ann)")),
            (Cause::Forced, some("must pass (by ann)")),
            (Cause::Released, some("enough (by ann)")),
            (Cause::Tripped, None),
            (Cause::Reset, some("it is well (by ann)")),
        ]
    );
    // The history says the same.
    let one = get(&admin, "breaker?name=b").await.body;
    assert_eq!(
        one["transitions"][5]["evidence"]["reason"],
        "it is well (by ann)"
    );
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Takes in what is logged on this thread, for as long as the guard lives.
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn holds(&self, parts: &[&str]) {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let found = text
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line with {parts:?} in\n{text}");
    }
}

#[actix::test]
async fn the_log_says_who_and_why_and_who_was_denied() {
    let (log, _guard) = Log::start();
    let w = world_of(Breakers::builder(), consecutive(2));
    let admin = Admin::new(w.breakers.clone()).authorize(named);
    for path in ["force_open", "force_closed", "release", "reset"] {
        let body = json!({"breaker": "b", "reason": format!("why {path}")});
        let answer = post(&admin, path, body).await;
        assert_eq!(answer.status, StatusCode::OK);
        let order = path.replace('_', " ");
        log.holds(&["order", &order, &format!("why {path} (by ann)")]);
    }
    let body = json!({"breaker": "b", "reason": "too slow", "config": {"call_timeout": "2s"}});
    post(&admin, "reconfigure", body).await;
    log.holds(&["reconfigure", "too slow (by ann)"]);

    let body = json!({"breaker": "forbidden", "reason": "I want to"});
    post(&admin, "reset", body).await;
    log.holds(&[
        "WARN",
        "denied",
        "forbidden",
        "reset",
        "I want to",
        "not this one",
    ]);
}

// R35
#[actix::test]
async fn reconfigure_changes_what_is_given_and_nothing_else() {
    #[derive(Debug)]
    struct Never;
    impl TripRule for Never {
        fn lookback(&self) -> Duration {
            SECOND
        }
        fn trips(&self, _: &[Timestamp], _: Timestamp) -> bool {
            false
        }
    }
    let w = world_of(
        Breakers::builder(),
        consecutive(2).jitter(0.25).max_probes(3),
    );
    let admin = Admin::new(w.breakers.clone()).authorize(named);
    let change = |breaker: &str, config: Value| {
        let body = json!({"breaker": breaker, "reason": "r", "config": config});
        let admin = admin.clone();
        async move { post(&admin, "reconfigure", body).await }
    };
    let answer = change("b", json!({"break_duration": "1m", "jitter": null})).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let config = w.snapshot().await.config;
    assert_eq!(config.break_duration(), Duration::from_secs(60));
    assert!(config.jitter().abs() < f64::EPSILON, "back to the default");
    assert_eq!(config.max_probes(), 3);
    let trip = json!({"trip": {"consecutive_failures": {"failures": 7}}});
    assert_eq!(change("b", trip).await.status, StatusCode::OK);

    // A rule of the user's own stays, though it cannot be written as text.
    let own = consecutive(1)
        .trip(TripPolicy::Custom(Arc::new(Never)))
        .build()
        .unwrap();
    let own = w.breakers.create("own", own).unwrap();
    let answer = change("own", json!({"call_timeout": "2s"})).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let config = own.snapshot().await.unwrap().config;
    assert!(matches!(config.trip(), TripPolicy::Custom(_)));
    assert_eq!(config.call_timeout(), Duration::from_secs(2));

    for (config, named) in [
        (json!({"call_timeout": "0s"}), "call_timeout"),
        (json!({"call_timeout": 5}), "call_timeout"),
        (json!({"jitter": 2}), "jitter"),
        (json!({"max_probes": 0}), "max_probes"),
        (json!({"trip": "custom"}), "trip"),
        (
            json!({"trip": {"consecutive_failures": {"failures": 0}}}),
            "trip.failures",
        ),
        (json!({"frobnicate": 1}), "frobnicate"),
        (json!({}), "config"),
        (json!("fast"), "config"),
    ] {
        let answer = change("b", config.clone()).await;
        answer.is_about("config");
        let text = answer.body["error"].as_str().unwrap().to_owned();
        assert!(text.contains(named), "{config}: {text}");
    }
}

// R35: all keys of a family at once, but those with settings of their own.
#[actix::test]
async fn a_whole_family_is_reconfigured() {
    let (log, _guard) = Log::start();
    let w = world_of(Breakers::builder(), consecutive(2));
    let config = consecutive(2).max_probes(3).build().unwrap();
    let hosts = w.breakers.family("hosts", config).unwrap();
    let (a, own) = (hosts.breaker("a"), hosts.breaker("own"));
    own.reconfigure(trips_at_once()).await.unwrap().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let admin = Admin::new(w.breakers.clone()).authorize(move |request, command| {
        noted.lock().unwrap().push(command.clone());
        named(request, command)
    });
    let change = |family: &str, config: Value| {
        let body = json!({"family": family, "reason": "too eager", "config": config});
        let admin = admin.clone();
        async move { post(&admin, "reconfigure", body).await }
    };
    let answer = change("hosts", json!({"break_duration": "1m"})).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    assert_eq!(answer.body["family"], "hosts");
    assert_eq!(answer.body["config"]["break_duration"], "1m");
    log.holds(&["reconfigure all keys", "too eager (by ann)"]);
    let command = seen.lock().unwrap().pop().unwrap();
    assert!(command.is_for_family());
    assert_eq!(command.breaker(), "hosts");
    let config = a.snapshot().await.unwrap().config;
    assert_eq!(config.break_duration(), Duration::from_secs(60));
    assert_eq!(config.max_probes(), 3);
    let config = own.snapshot().await.unwrap().config;
    assert_ne!(config.break_duration(), Duration::from_secs(60));

    change("hosts", json!({"jitter": 2}))
        .await
        .is_about("config");
    let answer = change("nobody", json!({"jitter": 0})).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    // Other orders are for one key at a time.
    let body = json!({"family": "hosts", "reason": "r"});
    post(&admin, "reset", body).await.is_about("breaker");
}

// R37, R35: the dial, live over HTTP.
#[actix::test]
async fn the_dial_is_turned_by_reconfigure_and_shown() {
    let w = world_of(Breakers::builder(), consecutive(1));
    let admin = Admin::new(w.breakers.clone()).authorize(named);
    let dial = |share: Value| {
        let config = json!({"enforcement": share});
        let body = json!({"breaker": "b", "reason": "r", "config": config});
        let admin = admin.clone();
        async move { post(&admin, "reconfigure", body).await }
    };
    w.trip().await;
    w.rejected().await;
    let answer = dial(json!(0)).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    w.good().await;
    let body = get(&admin, "breaker?name=b").await.body;
    assert_eq!(body["state"], "open");
    assert_eq!(body["config"]["enforcement"], json!(0.0));
    assert_eq!(body["calls"]["rejected"], 1);
    assert_eq!(body["simulated_rejections"], 1);
    let told = |body: &Value| body["transitions"][0]["simulated"].clone();
    assert_eq!(told(&body), false, "it was none when it tripped");
    w.breaker.reset().await.unwrap();
    w.trip().await;
    quiet().await;
    let body = get(&admin, "breaker?name=b&transitions=1").await.body;
    assert_eq!(told(&body), true);
    dial(json!(1.01)).await.is_about("config");
    assert_eq!(dial(json!(null)).await.status, StatusCode::OK);
    w.rejected().await;
}

#[actix::test]
async fn bad_bodies_are_refused_naming_the_field() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let admin = Admin::new(w.breakers.clone()).authorize(named);
    let long = "x".repeat(501);
    for (body, field) in [
        (json!([]), "body"),
        (json!({"reason": "r"}), "breaker"),
        (json!({"breaker": 1, "reason": "r"}), "breaker"),
        (json!({"breaker": "b"}), "reason"),
        (json!({"breaker": "b", "reason": null}), "reason"),
        (json!({"breaker": "b", "reason": " "}), "reason"),
        (json!({"breaker": "b", "reason": "two\nlines"}), "reason"),
        (json!({"breaker": "b", "reason": long}), "reason"),
        (json!({"breaker": "b", "reason": "r", "ttl": 5}), "ttl"),
        (json!({"breaker": "b", "reason": "r", "ttl": "soon"}), "ttl"),
        (json!({"breaker": "b", "reason": "r", "ttl": "0s"}), "ttl"),
        (
            json!({"breaker": "b", "reason": "r", "ttl": "400years"}),
            "ttl",
        ),
        (
            json!({"breaker": "b", "reason": "r", "until": "x"}),
            "until",
        ),
        (
            json!({"breaker": "b", "reason": "r", "config": {}}),
            "config",
        ),
    ] {
        post(&admin, "force_open", body).await.is_about(field);
    }
    let ttl = json!({"breaker": "b", "reason": "r", "ttl": "5s"});
    post(&admin, "release", ttl).await.is_about("ttl");
    for body in ["", "{", "\"text\"", "{\"breaker\": \"\\ud800\"}", "\u{0}"] {
        let request = order("reset", &Value::Null).set_payload(body);
        call(&admin, request).await.is_about("body");
    }
    let deep = "[".repeat(10_000);
    let request = order("reset", &Value::Null).set_payload(deep);
    call(&admin, request).await.is_about("body");
    assert_eq!(w.state(), CircuitState::Closed);
}

#[actix::test]
async fn a_body_that_is_too_large_is_a_413() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let admin = Admin::new(w.breakers.clone()).authorize(named);
    let small = admin.clone().max_body(100);
    let body = json!({"breaker": "b", "reason": "r".repeat(100)});
    let answer = post(&small, "force_open", body.clone()).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(answer.body["error"].as_str().unwrap().contains("100 bytes"));
    assert_eq!(
        post(&admin, "force_open", body).await.status,
        StatusCode::OK
    );

    let body = json!({"breaker": "b", "reason": "r".repeat(70_000)});
    let answer = post(&admin, "force_open", body).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[actix::test]
async fn nobody_gives_orders_without_an_authorizer() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let admin = Admin::new(w.breakers.clone());
    for path in [
        "force_open",
        "force_closed",
        "release",
        "reset",
        "reconfigure",
    ] {
        let body = json!({"breaker": "b", "reason": "r"});
        let answer = post(&admin, path, body).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        assert!(answer.body["error"].as_str().unwrap().contains("read-only"));
    }
    assert_eq!(w.state(), CircuitState::Closed);
}

#[actix::test]
async fn whoever_is_denied_is_told_why_and_nothing_happens() {
    let w = world_of(Breakers::builder(), consecutive(2));
    w.breakers.create("forbidden", trips_at_once()).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let admin = Admin::new(w.breakers.clone()).authorize(move |request, command| {
        noted.lock().unwrap().push(command.clone());
        assert_ne!(command.reason(), "trap", "trap in the authorizer");
        named(request, command)
    });
    let body = json!({"breaker": "forbidden", "reason": "r", "ttl": "5s"});
    let answer = post(&admin, "force_open", body).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(answer.body["error"], "not this one");
    let command = seen.lock().unwrap().pop().unwrap();
    assert_eq!(command.breaker(), "forbidden");
    assert_eq!(command.kind(), CommandKind::ForceOpen);
    assert_eq!(command.ttl(), Some(Duration::from_secs(5)));

    // Who may not, does not learn what exists.
    let mut request = order("reset", &json!({"breaker": "none", "reason": "r"}));
    request = request.insert_header(("x-user", "\u{e9}"));
    assert_eq!(call(&admin, request).await.status, StatusCode::FORBIDDEN);

    let body = json!({"breaker": "b", "reason": "trap"});
    let answer = post(&admin, "force_open", body).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(w.state(), CircuitState::Closed);

    // A name cannot break the log, and a missing one is no empty parenthesis.
    let odd = Admin::new(w.breakers.clone()).authorize(|_, _| Ok(" a\nb ".to_owned()));
    let body = json!({"breaker": "b", "reason": "r"});
    let answer = post(&odd, "force_open", body.clone()).await;
    assert_eq!(answer.body["reason"], "r (by a\u{fffd}b)");
    let blank = Admin::new(w.breakers.clone()).authorize(|_, _| Ok(" ".to_owned()));
    let answer = post(&blank, "force_open", body).await;
    assert_eq!(answer.body["reason"], "r (by unnamed)");
}

#[actix::test]
async fn a_foreign_page_cannot_give_orders() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let admin = Admin::new(w.breakers.clone()).authorize(named);
    let body = json!({"breaker": "b", "reason": "r"});
    let bare = || {
        TestRequest::post()
            .uri("/breakers/force_open")
            .insert_header(("x-user", "ann"))
            .set_payload(body.to_string())
    };
    let json_type = ("content-type", "application/json; charset=utf-8");

    let without = call(&admin, bare().insert_header(json_type)).await;
    assert_eq!(without.status, StatusCode::FORBIDDEN);
    assert!(
        without.body["error"]
            .as_str()
            .unwrap()
            .contains("X-Circuit-Breaker")
    );

    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let request = bare()
            .insert_header(("x-circuit-breaker", "1"))
            .insert_header(("content-type", kind));
        let answer = call(&admin, request).await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    let untyped = bare().insert_header(("x-circuit-breaker", "1"));
    let answer = call(&admin, untyped).await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);

    let foreign = bare()
        .insert_header(json_type)
        .insert_header(("x-circuit-breaker", "1"))
        .insert_header(("sec-fetch-site", "cross-site"));
    assert_eq!(call(&admin, foreign).await.status, StatusCode::FORBIDDEN);
    assert_eq!(w.state(), CircuitState::Closed);

    let own = bare()
        .insert_header(json_type)
        .insert_header(("x-circuit-breaker", "1"))
        .insert_header(("sec-fetch-site", "same-origin"));
    assert_eq!(call(&admin, own).await.status, StatusCode::OK);

    // Neither by another method.
    let by_get = TestRequest::get().uri("/breakers/reset?breaker=b&reason=r");
    assert_eq!(
        call(&admin, by_get).await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[actix::test]
async fn families_and_their_keys_are_listed_in_parts() {
    let breakers = Breakers::start();
    let hosts = breakers.family("hosts", trips_at_once()).unwrap();
    let admin = Admin::new(breakers.clone()).authorize(named);
    for key in ["c.example", "a.example", "b.example"] {
        drop(hosts.call(key, async { Err::<(), _>("down") }).await);
    }
    let ok: Result<_, CallError<()>> = hosts.call("well.example", async { Ok(()) }).await;
    ok.unwrap();

    let families = get(&admin, "families").await.body;
    assert_eq!(families["families"][0]["family"], "hosts");
    assert_eq!(families["families"][0]["keys"], 3);
    assert_eq!(families["families"][0]["unguarded"], 0);

    let keys = get(&admin, "keys?family=hosts&limit=2").await.body;
    assert_eq!(keys["total"], 3);
    assert_eq!(keys["next"], "b.example");
    assert_eq!(keys["breakers"][1]["breaker"], "hosts/b.example");
    assert_eq!(keys["breakers"][1]["state"], "open");
    let keys = get(&admin, "keys?family=hosts&after=b.example&transitions=5")
        .await
        .body;
    assert_eq!(keys["breakers"][0]["breaker"], "hosts/c.example");
    assert_eq!(keys["breakers"][0]["transitions"][0]["cause"], "tripped");
    assert_eq!(keys["next"], Value::Null);

    // Looking makes no key; an order does.
    assert_eq!(
        get(&admin, "breaker?name=hosts/new.example").await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(hosts.len(), 3);
    let body = json!({"breaker": "hosts/new.example", "reason": "abuse"});
    let forced = post(&admin, "force_open", body).await;
    assert_eq!(forced.body["state"], "forced_open", "{}", forced.body);
    let one = get(&admin, "breaker?name=hosts/new.example").await.body;
    assert_eq!(one["reason"], "abuse (by ann)");
    assert!(hosts.contains("new.example") && !hosts.contains("well.example"));
    let body = json!({"breaker": "hosts/new.example", "reason": "paid"});
    assert_eq!(post(&admin, "release", body).await.body["state"], "closed");

    // A key that cannot be guarded has no breaker that could obey.
    let long = format!("hosts/{}", "k".repeat(2_000));
    let body = json!({"breaker": long, "reason": "r"});
    let answer = post(&admin, "force_open", body).await;
    assert!(!answer.status.is_success(), "{}", answer.body);
}

#[actix::test]
async fn of_families_whose_names_begin_alike_the_longer_name_is_meant() {
    let breakers = Breakers::start();
    breakers.family("a", trips_at_once()).unwrap();
    let inner = breakers.family("a/b", trips_at_once()).unwrap();
    let admin = Admin::new(breakers).authorize(named);
    let body = json!({"breaker": "a/b/c", "reason": "r"});
    post(&admin, "force_open", body).await;
    assert_eq!(inner.breaker("c").state(), CircuitState::ForcedOpen);
}

// R29
#[actix::test]
async fn a_breaker_that_does_not_answer_is_a_503() {
    let system = actix::Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&system.handle());
    breakers.create("b", trips_at_once()).unwrap();
    let admin = Admin::new(breakers.clone()).authorize(named);
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    system.spawn_fn(move || receiver.recv().unwrap_or_default());
    let one = get(&admin, "breaker?name=b").await;
    assert_eq!(one.status, StatusCode::SERVICE_UNAVAILABLE);
    let list = get(&admin, "list").await;
    assert_eq!(list.status, StatusCode::OK);
    assert_eq!(list.body["silent"], json!(["b"]));
    drop(sender);
    assert_eq!(get(&admin, "breaker?name=b").await.status, StatusCode::OK);
}

// The page; how it behaves in a browser is in `page.rs`.

#[actix::test]
async fn the_page_is_served_with_a_policy_that_lets_nothing_else_in() {
    let admin = Admin::new(Breakers::start());
    let page = get(&admin, "").await;
    assert_eq!(page.status, StatusCode::OK);
    let header = |answer: &Answer, name: &str| {
        let value = answer.headers.get(name).unwrap();
        value.to_str().unwrap().to_owned()
    };
    let policy = header(&page, "content-security-policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let nonce = policy.split("script-src 'nonce-").nth(1).unwrap();
    let nonce = nonce.split('\'').next().unwrap();
    assert_eq!(nonce.len(), 32);
    assert!(header(&page, "content-type").starts_with("text/html"));
    assert_eq!(header(&page, "x-frame-options"), "DENY");
    let html = page.body.as_str().unwrap();
    assert!(html.contains(&format!("<script nonce=\"{nonce}\">")));
    assert!(html.contains(&format!("<style nonce=\"{nonce}\">")));
    assert!(!html.contains("{{"), "a place is left open");
    let again = get(&admin, "").await;
    assert_ne!(header(&again, "content-security-policy"), policy);

    // Names and reasons are put in as text, and nothing is loaded from elsewhere.
    for bad in [
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "src=",
        "@import",
        "url(",
    ] {
        assert!(!html.contains(bad), "{bad}");
    }

    // Its questions are relative to it.
    let bare = call(&admin, TestRequest::get().uri("/breakers")).await;
    assert_eq!(bare.status, StatusCode::PERMANENT_REDIRECT);
    assert_eq!(header(&bare, "location"), "./breakers/");
}

// What an application's own handlers answer.

#[actix::test]
async fn rejections_become_503_with_retry_after() {
    async fn ask(breaker: web::Data<actix_circuit_breaker::Breaker>) -> impl Responder {
        let permit = breaker.acquire().await?;
        permit.success().await;
        Ok::<_, AskError>(HttpResponse::Ok())
    }
    let w = world_of(Breakers::builder(), consecutive(2));
    let breaker = web::Data::new(w.breaker.clone());
    let app = App::new().app_data(breaker).route("/", web::get().to(ask));
    let app = init_service(app).await;
    let answer = async || app.call(TestRequest::default().to_request()).await.unwrap();
    assert_eq!(answer().await.status(), StatusCode::OK);
    w.trip().await;
    let rejected = answer().await;
    assert_eq!(rejected.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(rejected.headers().get("retry-after").unwrap(), "10");

    let rejected = w.rejected().await;
    assert_eq!(rejected.status_code(), StatusCode::SERVICE_UNAVAILABLE);
    let response = rejected.error_response();
    assert_eq!(response.headers().get("retry-after").unwrap(), "10");
    let failed: CallError<std::io::Error> = CallError::Failed(std::io::ErrorKind::NotFound.into());
    assert_eq!(failed.error_response().status(), StatusCode::NOT_FOUND);
    let rejected: CallError<std::io::Error> = rejected.into();
    assert_eq!(
        rejected
            .error_response()
            .headers()
            .get("retry-after")
            .unwrap(),
        "10"
    );

    // Where nobody knows when, nothing is promised.
    let order = ForceOpen::new("maintenance");
    w.breaker.force_open(order).await.unwrap().unwrap();
    let response = w.rejected().await.error_response();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().get("retry-after").is_none());
    assert_eq!(
        AskError::Closed.status_code(),
        StatusCode::SERVICE_UNAVAILABLE
    );
}

// Events, over a real socket.

struct Served {
    address: SocketAddr,
    handle: actix_web::dev::ServerHandle,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.handle.stop(false));
    }
}

fn serve(admin: &Admin) -> Served {
    let admin = admin.clone();
    let server = HttpServer::new(move || App::new().service(admin.scope("/breakers")))
        .workers(1)
        .bind(("127.0.0.1", 0))
        .unwrap();
    let address = server.addrs()[0];
    let server = server.disable_signals().run();
    let handle = server.handle();
    actix::spawn(server);
    Served { address, handle }
}

/// A listener that reads as a browser does.
struct Listener {
    stream: TcpStream,
    text: String,
}

impl Listener {
    async fn connect(served: &Served) -> Self {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let request = "GET /breakers/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        Self {
            stream,
            text: String::new(),
        }
    }

    /// Reads up to a text; returns what stands before it.
    async fn up_to(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.text.find(end) {
                let rest = self.text.split_off(at + end.len());
                let mut text = std::mem::replace(&mut self.text, rest);
                text.truncate(at);
                return text;
            }
            let mut bytes = [0; 4_096];
            let read = self.stream.read(&mut bytes);
            let read = tokio::time::timeout(Duration::from_secs(20), read);
            let read = read.await.unwrap().unwrap();
            assert!(read > 0, "the stream ended after {}", self.text);
            self.text
                .push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
    }

    async fn event(&mut self) -> (String, Value) {
        self.up_to("event: ").await;
        let name = self.up_to("\n").await;
        self.up_to("data: ").await;
        let data = self.up_to("\n\n").await;
        // A chunk of the transfer may begin anywhere, but each frame is one chunk.
        (name, serde_json::from_str(&data).unwrap())
    }
}

/// Goes on changing the breaker's state until there are so many listeners: one that is gone is noticed when
/// something is written to it.
async fn flap_until(w: &World, admin: &Admin, clients: usize) {
    for _ in 0..2_000 {
        if admin.clients() == clients {
            return;
        }
        let order = ForceOpen::new("flap");
        w.breaker.force_open(order).await.unwrap().unwrap();
        w.breaker.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("there are {} listeners", admin.clients());
}

// R25
#[actix::test]
async fn events_begin_with_the_present_state() {
    let w = world_of(Breakers::builder(), consecutive(2));
    w.trip().await;
    for other in 0..120 {
        w.breakers
            .create(format!("other {other:03}"), trips_at_once())
            .unwrap();
    }
    let admin = Admin::new(w.breakers.clone()).authorize(named);
    let served = serve(&admin);
    let mut listener = Listener::connect(&served).await;
    let head = listener.up_to("\r\n\r\n").await.to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");

    let (name, present) = listener.event().await;
    assert_eq!(name, "present");
    assert_eq!(present["breakers"][0]["breaker"], "b");
    assert_eq!(present["breakers"][0]["state"], "open");
    assert_eq!(present["breakers"].as_array().unwrap().len(), 100);
    assert_eq!(present["more"], true);
    let (name, rest) = listener.event().await;
    assert_eq!(name, "present");
    assert_eq!(rest["breakers"].as_array().unwrap().len(), 21);
    assert_eq!(rest["more"], false);

    let body = json!({"breaker": "b", "reason": "two\u{2028}words"});
    post(&admin, "force_open", body).await;
    loop {
        // The first told each breaker's state to the history, too.
        let (name, change) = listener.event().await;
        assert_eq!(name, "changed");
        if change["cause"] != "present" {
            assert_eq!(change["breaker"], "b");
            assert_eq!(change["to"], "forced_open");
            assert_eq!(change["evidence"]["reason"], "two\u{2028}words (by ann)");
            assert!(change["epoch"].as_u64() > present["breakers"][0]["epoch"].as_u64());
            break;
        }
    }
    let late = w.breakers.create("made later", trips_at_once()).unwrap();
    let (_, change) = listener.event().await;
    assert_eq!(change["breaker"], "made later");
    assert_eq!(change["cause"], "present");
    drop(late);
}

#[actix::test]
async fn listeners_are_counted_and_those_who_vanish_make_room() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let admin = Admin::new(w.breakers.clone()).max_clients(2);
    let served = serve(&admin);
    let mut first = Listener::connect(&served).await;
    first.event().await;
    let mut second = Listener::connect(&served).await;
    second.event().await;
    assert_eq!(admin.clients(), 2);

    let mut third = Listener::connect(&served).await;
    let head = third.up_to("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    third.up_to("too many listeners").await;

    drop(first);
    flap_until(&w, &admin, 1).await;
    let mut fourth = Listener::connect(&served).await;
    assert_eq!(fourth.event().await.0, "present");
}

#[actix::test]
async fn one_who_reads_nothing_loses_its_place_to_the_next() {
    pause();
    let breakers = Breakers::start();
    let admin = Admin::new(breakers.clone()).max_clients(1);
    let app = init_service(App::new().service(admin.scope(""))).await;
    let events = || TestRequest::get().uri("/events").to_request();
    let stalled = app.call(events()).await.unwrap();
    assert_eq!(stalled.status(), StatusCode::OK);
    pass(Duration::from_secs(59)).await;
    let early = app.call(events()).await.unwrap();
    assert_eq!(early.status(), StatusCode::SERVICE_UNAVAILABLE);
    pass(Duration::from_secs(2)).await;
    let next = app.call(events()).await.unwrap();
    assert_eq!(next.status(), StatusCode::OK);
    assert_eq!(admin.clients(), 1);
    // The one that lost its place ends at its next look.
    let body = to_bytes(stalled.into_body()).await.ok().unwrap();
    assert!(body.is_empty());
    assert_eq!(admin.clients(), 1);
    drop(next);
    assert_eq!(admin.clients(), 0);
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_usize) * 4_096
}

// R26
#[actix::test]
async fn a_slow_listener_is_not_felt_and_misses_events() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let admin = Admin::new(w.breakers.clone());
    let served = serve(&admin);
    let mut slow = Listener::connect(&served).await;
    slow.event().await;
    // Reads nothing from here on, while another keeps up.
    let mut quick = Listener::connect(&served).await;
    quick.event().await;
    let reason: Arc<str> = "x".repeat(2_000).into();
    let flap = async |rounds: usize| {
        for _ in 0..rounds {
            let order = ForceOpen::new(Arc::clone(&reason));
            w.breaker.force_open(order).await.unwrap().unwrap();
            w.breaker.release().await.unwrap();
            quiet().await;
        }
    };
    flap(500).await;
    let before = resident();
    flap(3_000).await;
    let grown = resident().saturating_sub(before);
    assert!(
        grown < 16 << 20,
        "{grown} bytes more for one who does not read"
    );
    assert_eq!(w.snapshot().await.subscribers, 1, "the history alone");

    // Both go on with the newest: the slow one is told what it missed.
    w.breakers.create("marker", trips_at_once()).unwrap();
    for listener in [&mut slow, &mut quick] {
        let mut missed = 0;
        loop {
            let (name, data) = listener.event().await;
            if name == "lagged" {
                missed += data["missed"].as_u64().unwrap();
            }
            if data["breaker"] == "marker" {
                break;
            }
        }
        assert!(missed > 100, "{missed}");
    }
}

#[actix::test]
async fn many_listeners_that_vanish_leave_nothing_behind() {
    let w = world_of(Breakers::builder(), consecutive(2));
    let admin = Admin::new(w.breakers.clone());
    let served = serve(&admin);
    for _ in 0..3 {
        let mut all = Vec::new();
        for _ in 0..10 {
            let mut listener = Listener::connect(&served).await;
            listener.up_to("present").await;
            all.push(listener);
        }
        assert_eq!(admin.clients(), 10);
        drop(all);
        flap_until(&w, &admin, 0).await;
    }
}
