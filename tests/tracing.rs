//! What is told to `tracing`, and that a subscriber which panics or asks back is felt by nobody.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::items_after_statements,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "panics are among what is tested, and a test may fail"
)]

mod harness;

use std::fmt::{self, Write as _};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use actix_circuit_breaker::message::Ask;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{Breakers, CircuitState, Hold, Outcome, TripPolicy, TripRule};
use futures::FutureExt;
use harness::*;
use tracing::level_filters::LevelFilter;
use tracing::span;

/// Writes down events and spans of this crate; may panic at each.
#[derive(Clone, Default)]
struct Capture {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<Mutex<Vec<String>>>,
    panics: Arc<AtomicBool>,
    calls: Counter,
    inside: Arc<AtomicU64>,
    next: Arc<AtomicU64>,
    up_to: Option<LevelFilter>,
}

impl Capture {
    fn panicking() -> Self {
        let capture = Self::default();
        capture.panics.store(true, Ordering::SeqCst);
        capture
    }

    fn on(&self) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(self.clone())
    }

    fn called(&self) {
        self.calls.add();
        assert!(
            !self.panics.load(Ordering::SeqCst),
            "trap in the subscriber"
        );
    }

    /// Takes the events so far.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

struct Line(String);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl tracing::Subscriber for Capture {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("actix_circuit_breaker")
            && self.up_to.is_none_or(|level| *metadata.level() <= level)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.up_to
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        self.called();
        let mut line = Line(format!(
            "{} {}",
            span.metadata().level(),
            span.metadata().name()
        ));
        span.record(&mut line);
        self.spans.lock().unwrap().push(line.0);
        span::Id::from_u64(self.next.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        self.called();
        let mut line = Line(String::new());
        values.record(&mut line);
        let nth = usize::try_from(id.into_u64() - 1).unwrap();
        if let Some(span) = self.spans.lock().unwrap().get_mut(nth) {
            span.push_str(&line.0);
        }
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        self.called();
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {
        self.called();
        self.inside.fetch_add(1, Ordering::SeqCst);
    }

    fn exit(&self, _: &span::Id) {
        self.called();
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    fn try_close(&self, _: span::Id) -> bool {
        self.called();
        true
    }
}

fn assert_line(lines: &[String], parts: &[&str]) {
    let found = lines
        .iter()
        .any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "{parts:?} in {lines:#?}");
}

#[actix::test]
async fn each_transition_is_one_event() {
    let capture = Capture::default();
    let _on = capture.on();
    let w = world(consecutive(2));
    w.trip().await;
    pass(BREAK + MS).await;
    w.bad().await;
    pass(BREAK + MS).await;
    w.good().await;
    let lines: Vec<_> = capture
        .take()
        .into_iter()
        .filter(|line| line.contains("changed its state"))
        .collect();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    let expected = [
        ["closed", "open", "tripped", "seq=1"],
        ["open", "half-open", "probe due", "seq=2"],
        ["half-open", "open", "probe failed", "seq=3"],
        ["open", "half-open", "probe due", "seq=4"],
        ["half-open", "closed", "recovered", "seq=5"],
    ];
    for (line, [from, to, cause, seq]) in lines.iter().zip(expected) {
        for part in [
            "INFO",
            "breaker=\"b\"",
            &format!("from={from} "),
            &format!("to={to} "),
            &format!("cause={cause} "),
            seq,
            "epoch=",
            "at=",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
    assert!(lines[0].contains("failures=2"), "{}", lines[0]);
    assert!(lines[0].contains("until="), "{}", lines[0]);
    assert!(lines[2].contains("attempt=1"), "{}", lines[2]);
}

#[actix::test]
async fn orders_are_told_with_reason_and_ttl_and_refused_ones_are_not() {
    let capture = Capture::default();
    let w = world(consecutive(2));
    let _on = capture.on();
    let order = ForceOpen::new("drill").ttl(5 * SECOND);
    w.breaker.force_open(order).await.unwrap().unwrap();
    assert_line(
        &capture.take(),
        &[
            "INFO",
            "breaker=\"b\"",
            "order=\"force open\"",
            "ttl=5s",
            "reason=\"drill\"",
        ],
    );
    let order = ForceClosed::new("launch");
    w.breaker.force_closed(order).await.unwrap().unwrap();
    assert_line(
        &capture.take(),
        &["order=\"force closed\"", "reason=\"launch\""],
    );
    w.breaker.release().await.unwrap();
    assert_line(&capture.take(), &["order=\"release\""]);
    w.breaker.reset().await.unwrap();
    let config = consecutive(3).build().unwrap();
    w.breaker.reconfigure(config).await.unwrap().unwrap();
    let lines = capture.take();
    assert_line(&lines, &["order=\"reset\""]);
    assert_line(&lines, &["order=\"reconfigure\""]);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    let order = ForceOpen::new("x").ttl(std::time::Duration::ZERO);
    w.breaker.force_open(order).await.unwrap().unwrap_err();
    assert_eq!(capture.take(), [""; 0]);
}

struct Panics;

impl TripRule for Panics {
    fn trips(
        &self,
        _: &[actix_circuit_breaker::Timestamp],
        _: actix_circuit_breaker::Timestamp,
    ) -> bool {
        panic!("trap in the rule")
    }

    fn lookback(&self) -> std::time::Duration {
        SECOND
    }
}

// R18, R22, R19: panics of the user's code are reported, and decide as the rules say.
#[actix::test]
async fn panics_of_user_code_are_told() {
    let capture = Capture::default();
    let _on = capture.on();
    let w = world(consecutive(1).trip(TripPolicy::Custom(Arc::new(Panics))));
    for _ in 0..3 {
        w.bad().await;
    }
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(w.snapshot().await.failures, 3);
    let lines = capture.take();
    assert_line(&lines, &["ERROR", "breaker=\"b\"", "code=\"trip rule\""]);
    let ask = w
        .breaker
        .ask_with(&w.target, Job::Good, |_: &Answer| -> Outcome {
            panic!("trap in the classifier")
        });
    assert_eq!(ask.await, Ok(Ok(1)));
    assert_line(
        &capture.take(),
        &[
            "ERROR",
            "code=\"classifier\"",
            "cause=\"trap in the classifier\"",
        ],
    );

    let random = Arc::new(|| -> f64 { panic!("trap in the random source") });
    let builder = Breakers::builder().random(random);
    let w = world_of(builder, consecutive(1).jitter(0.5));
    w.trip().await;
    assert_line(&capture.take(), &["ERROR", "code=\"random source\""]);
    assert_eq!(w.rejected().await.retry_after(), Some(BREAK));
    assert_eq!(w.snapshot().await.restarts, 0);
}

#[actix::test]
async fn lost_probe_is_told_once() {
    let capture = Capture::default();
    let _on = capture.on();
    let (clock, w) = manual(consecutive(1).max_probes(2));
    w.trip().await;
    clock.advance(BREAK);
    let held = [
        w.breaker.acquire().await.unwrap(),
        w.breaker.acquire().await.unwrap(),
    ];
    capture.take();
    clock.advance(BREAK);
    w.breaker.acquire().await.unwrap().ignore().await;
    let lines = capture.take();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_line(&lines, &["WARN", "breaker=\"b\"", "probes=2"]);
    drop(held);
}

#[actix::test]
async fn messages_that_wait_and_are_not_sent_are_told() {
    let capture = Capture::default();
    let _on = capture.on();
    let w = world(consecutive(1).hold(Hold::new(1, SECOND, SECOND)));
    w.trip().await;
    let guard = w.breaker.guard(w.target.clone());
    let held = guard.send_or_hold(Job::Good);
    quiet().await;
    capture.take();
    // That there is no room is told once, not to each.
    for _ in 0..5 {
        assert!(guard.send_or_hold(Job::Good).await.is_err());
    }
    let lines = capture.take();
    let lines: Vec<_> = lines
        .into_iter()
        .filter(|line| line.contains("WARN"))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_line(
        &lines,
        &["WARN", "breaker=\"b\"", "why=full", "held_for=0s"],
    );
    assert!(held.await.is_err());
    assert_line(
        &capture.take(),
        &["WARN", "breaker=\"b\"", "why=expired", "held_for=1s"],
    );
}

#[actix::test]
async fn life_of_breakers_is_told() {
    let capture = Capture::default();
    let _on = capture.on();
    pause();
    let trap = Trap::default();
    let breakers = Breakers::builder()
        .clock(Arc::new(trap.clone()))
        .max_breakers(1)
        .start();
    let config = || consecutive(1).build().unwrap();
    let a = breakers.create("a", config()).unwrap();
    assert_line(&capture.take(), &["DEBUG", "breaker=\"a\"", "made"]);
    breakers.create("b", config()).unwrap_err();
    assert_line(&capture.take(), &["WARN", "breaker=\"b\"", "max=1"]);
    a.snapshot().await.unwrap();
    trap.set();
    a.snapshot().await.unwrap_err();
    pass(SECOND).await;
    let lines = capture.take();
    assert_line(
        &lines,
        &[
            "WARN",
            "breaker=\"a\"",
            "restarts=1",
            "cause=\"trap in the clock\"",
        ],
    );
    drop(a);
    let b = breakers.create("b", config()).unwrap();
    let lines = capture.take();
    assert_line(&lines, &["INFO", "breaker=\"a\"", "evicted"]);
    assert_line(&lines, &["DEBUG", "breaker=\"b\"", "made"]);
    // R29: one warning, however many calls pass.
    breakers.remove("b");
    quiet().await;
    for _ in 0..5 {
        let failed = b.call(async { Err::<(), _>(BAD) }).await;
        assert!(!failed.unwrap_err().is_rejected());
    }
    let lines = capture.take();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_line(&lines, &["WARN", "breaker=\"b\"", "gone for good"]);
}

#[actix::test]
async fn guarded_calls_run_in_a_span_at_debug_level() {
    for (level, spans) in [(LevelFilter::DEBUG, 3), (LevelFilter::INFO, 0)] {
        let capture = Capture {
            up_to: Some(level),
            ..Capture::default()
        };
        let _on = capture.on();
        let w = world(consecutive(9));
        w.good().await;
        let inside = Arc::clone(&capture.inside);
        let call = w.breaker.call(async {
            pass(MS).await;
            Ok::<_, Oops>(inside.load(Ordering::SeqCst))
        });
        assert_eq!(call.await, Ok(u64::from(spans > 0)));
        let guard = w.breaker.guard(w.target.clone());
        guard.send(Job::Good).await.unwrap().unwrap();
        let seen = capture.spans.lock().unwrap().clone();
        assert_eq!(seen.len(), spans, "{seen:?}");
        let results = ["replied", "ok", "replied"];
        for (span, result) in seen.iter().zip(results) {
            let told = format!("DEBUG guarded_call breaker=\"b\" result=\"{result}\"");
            assert_eq!(*span, told);
        }
        assert_eq!(capture.inside.load(Ordering::SeqCst), 0);
    }
}

// Case 107, R26: a subscriber that panics at every event and every span.
#[actix::test]
async fn panicking_subscriber_is_felt_by_nobody() {
    let capture = Capture::panicking();
    let _on = capture.on();
    let w = world(consecutive(1).max_probes(1));
    let (_recorder, told) = w.record().await;
    for _ in 0..3 {
        w.trip().await;
        w.rejected().await;
        pass(BREAK + MS).await;
        w.good().await;
        w.good().await;
        w.breaker.acquire().await.unwrap().success().await;
        let call = w.breaker.call(async {
            pass(MS).await;
            Ok::<_, Oops>(1)
        });
        assert_eq!(call.await, Ok(1));
        let trap = |_: &Answer| -> Outcome { panic!("trap in the classifier") };
        let ask = w.breaker.ask_with(&w.target, Job::Good, trap);
        assert_eq!(ask.await, Ok(Ok(1)));
        assert_eq!(w.state(), CircuitState::Open);
        w.breaker
            .force_open(ForceOpen::new("x"))
            .await
            .unwrap()
            .unwrap();
        w.breaker.release().await.unwrap();
        let ask = Ask::new(w.target.clone().recipient(), Job::Good);
        let reply = w.breaker.addr().send(ask).await.unwrap();
        assert_eq!(reply, Ok(Ok(1)));
    }
    pass(MS).await;
    assert_eq!(told.seqs(), (0..=18).collect::<Vec<_>>());
    assert!(capture.calls.get() > 20);
    let snapshot = w.snapshot().await;
    assert_eq!(
        (snapshot.restarts, snapshot.state),
        (0, CircuitState::Closed)
    );
    w.breakers.remove("b");
    quiet().await;
    w.good().await;
}

// Case 107: spans that panic from their first use on, with a guarded future that panics too.
#[actix::test]
async fn subscriber_that_panics_at_exit_lets_a_panic_of_the_call_through() {
    let capture = Capture::default();
    let _on = capture.on();
    let w = world(consecutive(1));
    let panics = Arc::clone(&capture.panics);
    let call = w.breaker.call(async {
        pass(MS).await;
        panics.store(true, Ordering::SeqCst);
        panic!("trap in the future") as Answer
    });
    let payload = AssertUnwindSafe(call).catch_unwind().await.unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"trap in the future"));
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// Case 107: a future that is given up.
#[actix::test]
async fn subscriber_that_panics_at_close_does_not_reach_who_drops_a_future() {
    let capture = Capture::default();
    let _on = capture.on();
    let w = world(consecutive(1));
    let ask = w.breaker.ask(&w.target, Job::Hang);
    let mut call = Box::pin(w.breaker.call(std::future::pending::<Answer>()));
    assert!(poll_once(&mut call).await.is_pending());
    capture.panics.store(true, Ordering::SeqCst);
    let calls = capture.calls.get();
    drop(ask);
    drop(call);
    assert_eq!(capture.calls.get(), calls + 2);
    w.good().await;
}

/// Asks the owner of breakers back at every event.
struct Curious {
    breakers: Mutex<Option<Breakers>>,
    asked: Counter,
}

impl tracing::Subscriber for Curious {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("actix_circuit_breaker")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        let breakers = self.breakers.lock().unwrap().clone();
        if let Some(breakers) = breakers {
            breakers.names();
            drop(breakers.get("a"));
            self.asked.add();
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

// R26, R27: no lock is held while something is told.
#[actix::test]
async fn subscriber_may_ask_the_owner_back() {
    pause();
    let breakers = Breakers::builder().max_breakers(1).start();
    let asked = Counter::default();
    let _on = tracing::subscriber::set_default(Curious {
        breakers: Mutex::new(Some(breakers.clone())),
        asked: asked.clone(),
    });
    let config = || consecutive(1).build().unwrap();
    // On a thread of its own, so that a deadlock is seen as one.
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    let (done, finished) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        tracing::dispatcher::with_default(&dispatch, || {
            drop(breakers.create("a", config()).unwrap());
            let b = breakers.create("b", config()).unwrap();
            breakers.create("c", config()).unwrap_err();
            drop(b);
            breakers.remove("b");
        });
        done.send(()).unwrap();
    });
    tokio::time::resume();
    tokio::time::timeout(20 * SECOND, finished)
        .await
        .expect("deadlock")
        .unwrap();
    assert_eq!(asked.get(), 4);
}
