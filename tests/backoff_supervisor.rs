//! `BackoffSupervisor` seen from outside: every place a panic may come from, every way to end.
//! The count and the delays as numbers are tested beside `restarts`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "panics are what is tested, the time is tokio's, paused, and a test may fail"
)]

use std::{
    cell::{Cell, RefCell},
    fmt::{self, Write as _},
    panic::{self, AssertUnwindSafe},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actix::prelude::*;
use actix_circuit_breaker::{BackoffSupervisor, EndHandle, GaveUp, RestartPolicy};
use tokio::time::{self, Instant, sleep};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// What happened to an actor, in order, shared with the test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn push(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|entry| **entry == what).count()
    }
}

/// An actor that panics wherever it was told to, once unless `always`.
#[derive(Default)]
struct Worker {
    log: Log,
    handled: u32,
    trap: Option<&'static str>,
    always: bool,
    refuses_to_stop: bool,
    end: Option<EndHandle>,
}

impl Worker {
    fn new(log: &Log) -> Self {
        let mut worker = Self::default();
        worker.log = log.clone();
        worker
    }

    /// Panics in that place each time.
    fn always(log: &Log, trap: &'static str) -> Self {
        let mut worker = Self::new(log);
        worker.trap = Some(trap);
        worker.always = true;
        worker
    }

    fn at(&mut self, place: &'static str) {
        self.log.push(place);
        if self.trap == Some(place) {
            if !self.always {
                self.trap = None;
            }
            panic!("trap in {place}");
        }
    }
}

impl Actor for Worker {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.at("started");
    }

    fn stopping(&mut self, _: &mut Context<Self>) -> Running {
        self.at("stopping");
        if self.refuses_to_stop {
            Running::Continue
        } else {
            Running::Stop
        }
    }

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.at("stopped");
    }
}

impl Supervised for Worker {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.at("restarting");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.at("dropped");
    }
}

/// Does one thing and answers how many messages were handled so far, those that panic left out.
#[derive(Message)]
#[rtype(result = "u32")]
enum Do {
    Count,
    Panic,
    PanicWith(PanickingPayload),
    Stop,
    Terminate,
    EndIn,
    End,
    PanicInFuture,
    PanicInWait,
    /// Spawns a future whose destructor panics, then panics.
    LeaveBomb,
}

struct PanickingPayload;

impl Drop for PanickingPayload {
    fn drop(&mut self) {
        panic!("trap in the payload of a panic");
    }
}

/// Its destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("trap in the destructor of a future");
    }
}

impl Handler<Do> for Worker {
    type Result = u32;

    fn handle(&mut self, msg: Do, ctx: &mut Context<Self>) -> u32 {
        match msg {
            Do::Count => {}
            Do::Panic => panic!("trap in a handler"),
            Do::PanicWith(payload) => panic::panic_any(payload),
            Do::Stop => ctx.stop(),
            Do::Terminate => ctx.terminate(),
            Do::EndIn => self.end.as_ref().unwrap().end_in(ctx),
            Do::End => self.end.as_ref().unwrap().end(),
            Do::PanicInFuture => {
                ctx.spawn(async { panic!("trap in a future") }.into_actor(self));
            }
            Do::PanicInWait => ctx.wait(async { panic!("trap in a wait future") }.into_actor(self)),
            Do::LeaveBomb => {
                let bomb = Bomb;
                ctx.spawn(
                    async move {
                        std::future::pending::<()>().await;
                        drop(bomb);
                    }
                    .into_actor(self),
                );
                panic!("trap in a handler");
            }
        }
        self.handled += 1;
        self.handled
    }
}

/// Counts the calls of the give-up hook, keeps the last.
#[derive(Clone, Default)]
struct GiveUps(Arc<Mutex<Vec<GaveUp>>>);

impl GiveUps {
    fn hooked(&self, policy: RestartPolicy) -> RestartPolicy {
        let seen = self.clone();
        policy.on_give_up(move |gave_up| seen.0.lock().unwrap().push(gave_up))
    }

    fn all(&self) -> Vec<GaveUp> {
        self.0.lock().unwrap().clone()
    }
}

fn quick() -> RestartPolicy {
    RestartPolicy::new().backoff(10 * MS)
}

/// Lets everything run that is due in this much paused time.
async fn pass(time: Duration) {
    sleep(time).await;
}

async fn count(addr: &Addr<Worker>) -> Result<u32, MailboxError> {
    addr.send(Do::Count).await
}

// ---- every place a panic may come from

/// Runs an actor with that trap through one message, and says what it went through up to its answer
/// to the next.
async fn lives(trap: Option<&'static str>, msg: Do) -> Vec<&'static str> {
    time::pause();
    let log = Log::default();
    let mut worker = Worker::new(&log);
    worker.trap = trap;
    let addr = BackoffSupervisor::start(quick(), |_| worker);
    let _lost_or_not = addr.send(msg).await;
    pass(SECOND).await;
    assert!(count(&addr).await.is_ok(), "the actor is there again");
    log.all()
}

#[actix::test]
async fn panic_in_a_handler_restarts() {
    assert_eq!(
        lives(None, Do::Panic).await,
        ["started", "restarting", "started"]
    );
}

#[actix::test]
async fn panic_in_started_restarts() {
    assert_eq!(
        lives(Some("started"), Do::Count).await,
        ["started", "restarting", "started"]
    );
}

#[actix::test]
async fn panic_in_restarting_restarts_once_more() {
    assert_eq!(
        lives(Some("restarting"), Do::Panic).await,
        ["started", "restarting", "restarting", "started"]
    );
}

#[actix::test]
async fn panic_in_stopping_restarts() {
    assert_eq!(
        lives(Some("stopping"), Do::Stop).await,
        ["started", "stopping", "restarting", "started"]
    );
}

#[actix::test]
async fn panic_in_stopped_restarts() {
    assert_eq!(
        lives(Some("stopped"), Do::Stop).await,
        ["started", "stopping", "stopped", "restarting", "started"]
    );
}

#[actix::test]
async fn panic_in_an_actor_future_restarts_and_the_future_is_gone() {
    assert_eq!(
        lives(None, Do::PanicInFuture).await,
        ["started", "restarting", "started"]
    );
}

#[actix::test]
async fn panic_in_a_wait_future_restarts_and_the_future_is_gone() {
    assert_eq!(
        lives(None, Do::PanicInWait).await,
        ["started", "restarting", "started"]
    );
}

#[actix::test]
async fn panic_with_a_payload_that_panics_when_dropped_restarts() {
    assert_eq!(
        lives(None, Do::PanicWith(PanickingPayload)).await,
        ["started", "restarting", "started"]
    );
}

#[actix::test]
async fn panic_in_the_destructor_of_an_old_future_restarts_once_more() {
    // The first attempt drops the future and gets no further: no `restarting`.
    assert_eq!(
        lives(None, Do::LeaveBomb).await,
        ["started", "restarting", "started"]
    );
}

#[actix::test]
async fn stop_restarts() {
    assert_eq!(
        lives(None, Do::Stop).await,
        ["started", "stopping", "stopped", "restarting", "started"]
    );
}

#[actix::test]
async fn terminate_restarts() {
    assert_eq!(
        lives(None, Do::Terminate).await,
        ["started", "stopped", "restarting", "started"]
    );
}

// ---- what a restart keeps

#[actix::test]
async fn only_the_message_being_handled_is_lost() {
    time::pause();
    let log = Log::default();
    let addr = BackoffSupervisor::start(quick(), |_| Worker::new(&log));
    let asks = [Do::Count, Do::Panic, Do::Count, Do::Stop, Do::Count].map(|msg| addr.send(msg));
    let answers = futures::future::join_all(asks).await;
    assert_eq!(
        answers,
        [Ok(1), Err(MailboxError::Closed), Ok(2), Ok(3), Ok(4)],
        "the queue, the address and the counter in the value are kept"
    );
    assert_eq!(log.count("dropped"), 0);
}

#[actix::test]
async fn messages_wait_in_the_mailbox_during_the_delay() {
    time::pause();
    let log = Log::default();
    let addr = BackoffSupervisor::start(quick().backoff(SECOND), |_| Worker::new(&log));
    addr.do_send(Do::Panic);
    pass(MS).await;
    let asked = Instant::now();
    let ask = addr.send(Do::Count);
    assert!(addr.connected());
    assert_eq!(ask.await, Ok(1));
    assert!(asked.elapsed() >= 998 * MS, "{:?}", asked.elapsed());
}

// ---- delays

/// The gaps between the starts of an actor that panics as soon as it is started.
async fn gaps(policy: RestartPolicy, starts: usize) -> Vec<Duration> {
    struct Doomed(Rc<RefCell<Vec<Instant>>>);
    impl Actor for Doomed {
        type Context = Context<Self>;
        fn started(&mut self, _: &mut Context<Self>) {
            self.0.borrow_mut().push(Instant::now());
            panic!("doomed");
        }
    }
    impl Supervised for Doomed {}

    time::pause();
    let starts_at = Rc::<RefCell<Vec<Instant>>>::default();
    let addr = BackoffSupervisor::start(policy, |_| Doomed(Rc::clone(&starts_at)));
    while starts_at.borrow().len() < starts {
        sleep(MS).await;
    }
    drop(addr);
    let at = starts_at.borrow();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn about(gaps: &[Duration], expected_ms: &[u32]) {
    assert_eq!(gaps.len(), expected_ms.len());
    for (gap, ms) in gaps.iter().zip(expected_ms) {
        let expected = MS * *ms;
        // Timers round up to the next millisecond.
        assert!(
            *gap >= expected && *gap <= expected + 2 * MS,
            "{gaps:?}, expected about {expected_ms:?}"
        );
    }
}

#[actix::test]
async fn delay_doubles_up_to_the_ceiling() {
    let policy = RestartPolicy::new().backoff(100 * MS).max_backoff(SECOND);
    about(&gaps(policy, 7).await, &[100, 200, 400, 800, 1000, 1000]);
}

#[actix::test]
async fn ceiling_below_the_first_delay_lowers_it() {
    let policy = RestartPolicy::new().backoff(SECOND).max_backoff(50 * MS);
    about(&gaps(policy, 4).await, &[50, 50, 50]);
}

#[actix::test]
async fn zero_delay_is_a_millisecond_and_stays_so() {
    let policy = RestartPolicy::new().backoff(Duration::ZERO);
    about(&gaps(policy, 4).await, &[1, 1, 1]);
}

#[actix::test]
async fn zero_ceiling_is_a_millisecond() {
    let policy = RestartPolicy::new().max_backoff(Duration::ZERO);
    about(&gaps(policy, 4).await, &[1, 1, 1]);
}

#[actix::test]
async fn zero_period_counts_nothing() {
    let policy = RestartPolicy::new()
        .backoff(50 * MS)
        .within(Duration::ZERO)
        .max_restarts(1);
    about(&gaps(policy, 4).await, &[50, 50, 50]);
}

#[actix::test]
async fn greatest_durations_do_not_panic() {
    time::pause();
    let log = Log::default();
    let policy = RestartPolicy::new()
        .within(Duration::MAX)
        .backoff(Duration::MAX)
        .max_backoff(Duration::MAX)
        .max_restarts(u32::MAX);
    let (addr, end) = BackoffSupervisor::start_with_handle(policy, |_, _| Worker::new(&log));
    addr.do_send(Do::Panic);
    pass(24 * HOUR).await;
    assert!(addr.connected());
    assert_eq!(log.all(), ["started"], "still in its delay");
    end.end();
    pass(MS).await;
    assert!(!addr.connected());
}

#[actix::test]
async fn delay_starts_anew_when_the_actor_has_lived_through_the_period() {
    time::pause();
    let policy = RestartPolicy::new().backoff(100 * MS).within(10 * SECOND);
    let addr = BackoffSupervisor::start(policy, |_| Worker::new(&Log::default()));
    let restart_takes = async || {
        addr.do_send(Do::Panic);
        let asked = Instant::now();
        count(&addr).await.unwrap();
        asked.elapsed().as_millis() / 50 * 50
    };
    assert_eq!(restart_takes().await, 100);
    assert_eq!(restart_takes().await, 200);
    pass(9 * SECOND).await;
    assert_eq!(restart_takes().await, 400, "9 s are not enough");
    pass(10 * SECOND).await;
    assert_eq!(restart_takes().await, 100);
}

// ---- giving up

#[actix::test]
async fn limit_within_the_period_gives_up_once() {
    time::pause();
    let log = Log::default();
    let give_ups = GiveUps::default();
    let policy = give_ups.hooked(quick().max_restarts(3));
    let addr = BackoffSupervisor::start(policy, |_| Worker::new(&log));
    for _ in 0..3 {
        assert_eq!(addr.send(Do::Panic).await, Err(MailboxError::Closed));
    }
    assert_eq!(count(&addr).await, Ok(1), "three restarts are allowed");
    assert!(give_ups.all().is_empty());

    let (last, queued) = (addr.send(Do::Panic), addr.send(Do::Count));
    assert_eq!(last.await, Err(MailboxError::Closed));
    assert_eq!(queued.await, Err(MailboxError::Closed));
    pass(HOUR).await;
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    assert!(!addr.connected());

    let given_up = give_ups.all();
    assert_eq!(given_up.len(), 1);
    assert!(
        given_up[0].actor().ends_with("Worker"),
        "{}",
        given_up[0].actor()
    );
    assert_eq!(given_up[0].restarts(), 3);
    assert_eq!(given_up[0].cause(), "trap in a handler");
    assert_eq!(
        log.all()[7..],
        ["stopping", "stopped", "dropped"],
        "the hooks a panic skipped are made up for: {:?}",
        log.all()
    );
}

#[actix::test]
async fn hook_sees_a_closed_mailbox_and_the_cause_stopped() {
    time::pause();
    let addr = Arc::new(Mutex::new(None::<Addr<Worker>>));
    let seen = Arc::new(Mutex::new(None));
    let policy = quick().max_restarts(0).on_give_up({
        let (addr, seen) = (Arc::clone(&addr), Arc::clone(&seen));
        move |gave_up| {
            let connected = addr.lock().unwrap().as_ref().unwrap().connected();
            *seen.lock().unwrap() = Some((connected, gave_up.cause().to_owned()));
        }
    });
    let worker = BackoffSupervisor::start(policy, |_| Worker::new(&Log::default()));
    *addr.lock().unwrap() = Some(worker.clone());
    worker.do_send(Do::Stop);
    pass(MS).await;
    assert_eq!(*seen.lock().unwrap(), Some((false, "stopped".to_owned())));
}

#[actix::test]
async fn restarts_older_than_the_period_do_not_count() {
    time::pause();
    let give_ups = GiveUps::default();
    let policy = give_ups.hooked(quick().max_restarts(2).within(10 * SECOND));
    let addr = BackoffSupervisor::start(policy, |_| Worker::new(&Log::default()));
    for _ in 0..10 {
        addr.do_send(Do::Panic);
        pass(6 * SECOND).await;
    }
    assert!(count(&addr).await.is_ok(), "never three within 10 s");
    for _ in 0..2 {
        addr.do_send(Do::Panic);
    }
    pass(SECOND).await;
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    assert_eq!(give_ups.all().len(), 1);
}

#[actix::test]
async fn panicking_hook_is_caught() {
    time::pause();
    let calls = Arc::new(AtomicUsize::new(0));
    let policy = quick().max_restarts(0).on_give_up({
        let calls = Arc::clone(&calls);
        move |_| {
            calls.fetch_add(1, Ordering::Relaxed);
            panic!("trap in the give-up hook");
        }
    });
    let (events, _guard) = Events::capture();
    let addr = BackoffSupervisor::start(policy, |_| Worker::new(&Log::default()));
    addr.do_send(Do::Panic);
    pass(SECOND).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(!addr.connected());
    assert!(events.last().contains("trap in the give-up hook"));
}

#[actix::test]
async fn restart_on_stop_false_ends_on_stop_and_restarts_on_panic() {
    time::pause();
    let log = Log::default();
    let give_ups = GiveUps::default();
    let policy = give_ups.hooked(quick().restart_on_stop(false));
    let addr = BackoffSupervisor::start(policy, |_| Worker::new(&log));
    addr.do_send(Do::Panic);
    assert_eq!(count(&addr).await, Ok(1), "a panic restarts");
    assert_eq!(addr.send(Do::Stop).await, Ok(2));
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    assert_eq!(log.all()[3..], ["stopping", "stopped", "dropped"]);
    assert!(give_ups.all().is_empty(), "asked for, not given up");
}

// ---- ending for good

fn endable(log: &Log) -> (Addr<Worker>, EndHandle) {
    BackoffSupervisor::start_with_handle(quick().backoff(HOUR), |_, end| {
        let mut worker = Worker::new(log);
        worker.end = Some(end.clone());
        worker
    })
}

#[actix::test]
async fn end_in_a_handler_handles_no_further_message() {
    time::pause();
    let log = Log::default();
    let (addr, _end) = endable(&log);
    let (last, queued) = (addr.send(Do::EndIn), addr.send(Do::Count));
    assert_eq!(last.await, Ok(1), "the message itself is answered");
    assert_eq!(queued.await, Err(MailboxError::Closed));
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    assert_eq!(log.all(), ["started", "stopping", "stopped", "dropped"]);
}

#[actix::test]
async fn end_without_the_context_ends_from_a_handler_too() {
    time::pause();
    let log = Log::default();
    let (addr, _end) = endable(&log);
    assert_eq!(addr.send(Do::End).await, Ok(1));
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    assert_eq!(log.all(), ["started", "stopping", "stopped", "dropped"]);
}

#[actix::test]
async fn end_from_another_thread() {
    let log = Log::default();
    let (addr, end) = endable(&log);
    count(&addr).await.unwrap();
    std::thread::spawn(move || {
        end.end();
        end.end();
    });
    while addr.connected() {
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    assert_eq!(log.all(), ["started", "stopping", "stopped", "dropped"]);
}

#[actix::test]
async fn end_during_the_delay_after_a_panic_runs_the_hooks() {
    time::pause();
    let log = Log::default();
    let (addr, end) = endable(&log);
    addr.do_send(Do::Panic);
    let queued = addr.send(Do::Count);
    pass(SECOND).await;
    assert_eq!(log.all(), ["started"]);
    end.end();
    assert_eq!(queued.await, Err(MailboxError::Closed));
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    assert_eq!(log.all(), ["started", "stopping", "stopped", "dropped"]);
}

#[actix::test]
async fn end_during_the_delay_after_a_stop_does_not_repeat_the_hooks() {
    time::pause();
    let log = Log::default();
    let (addr, end) = endable(&log);
    addr.send(Do::Stop).await.unwrap();
    pass(SECOND).await;
    assert_eq!(log.all(), ["started", "stopping", "stopped"]);
    end.end();
    pass(MS).await;
    assert!(!addr.connected());
    assert_eq!(log.all(), ["started", "stopping", "stopped", "dropped"]);
}

#[actix::test]
async fn end_before_the_first_poll() {
    let log = Log::default();
    let (addr, end) = endable(&log);
    end.end();
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    assert_eq!(log.all(), ["started", "stopping", "stopped", "dropped"]);
}

#[actix::test]
async fn end_does_not_heed_an_actor_that_refuses_to_stop() {
    let log = Log::default();
    let (addr, end) = BackoffSupervisor::start_with_handle(quick(), |_, _| {
        let mut worker = Worker::new(&log);
        worker.refuses_to_stop = true;
        worker
    });
    assert_eq!(addr.send(Do::Stop).await, Ok(1));
    assert_eq!(count(&addr).await, Ok(2), "it refuses");
    let queued = addr.send(Do::Count);
    end.end();
    assert_eq!(queued.await, Err(MailboxError::Closed), "nor is it handled");
    assert!(!addr.connected());
    assert_eq!(
        log.all(),
        ["started", "stopping", "stopping", "stopped", "dropped"]
    );
}

#[actix::test]
async fn dropping_the_handle_does_nothing() {
    time::pause();
    let (addr, end) =
        BackoffSupervisor::start_with_handle(quick(), |_, _| Worker::new(&Log::default()));
    drop(end);
    pass(SECOND).await;
    addr.do_send(Do::Panic);
    assert_eq!(count(&addr).await, Ok(1));
}

// ---- panics where actix would abort or be lost

#[actix::test]
async fn panic_in_every_hook_at_the_end_is_caught() {
    time::pause();
    for trap in ["stopping", "stopped", "dropped"] {
        let log = Log::default();
        let (addr, end) =
            BackoffSupervisor::start_with_handle(quick(), |_, _| Worker::always(&log, trap));
        count(&addr).await.unwrap();
        end.end();
        assert_eq!(count(&addr).await, Err(MailboxError::Closed), "{trap}");
        assert_eq!(log.count(trap), 1, "{trap}: {:?}", log.all());
        assert_eq!(log.count("dropped"), 1, "{trap}: {:?}", log.all());
    }
}

/// An actor that panics in its handler, in `stopped` and in `Drop`: two panics in mid-unwind, where
/// `actix::Supervisor` aborts the process.
#[actix::test]
async fn panics_on_the_way_out_do_not_abort() {
    struct Vicious(Log);
    impl Actor for Vicious {
        type Context = Context<Self>;
        fn stopped(&mut self, _: &mut Context<Self>) {
            self.0.push("stopped");
            panic!("trap in stopped");
        }
    }
    impl Supervised for Vicious {}
    impl Handler<Do> for Vicious {
        type Result = u32;
        fn handle(&mut self, _: Do, _: &mut Context<Self>) -> u32 {
            panic!("trap in a handler");
        }
    }
    impl Drop for Vicious {
        fn drop(&mut self) {
            self.0.push(if std::thread::panicking() {
                "dropped in mid-unwind"
            } else {
                "dropped"
            });
            panic!("trap in Drop");
        }
    }

    time::pause();
    let log = Log::default();
    let policy = quick().max_restarts(0);
    let addr = BackoffSupervisor::start(policy, |_| Vicious(log.clone()));
    assert_eq!(addr.send(Do::Count).await, Err(MailboxError::Closed));
    pass(SECOND).await;
    assert!(!addr.connected());
    assert_eq!(log.all(), ["stopped", "dropped"]);
}

#[test]
fn actor_lost_to_an_unwinding_thread_runs_no_hook_and_does_not_abort() {
    let log = Log::default();
    let worker = Worker::always(&log, "dropped");
    let outside_a_system = panic::catch_unwind(AssertUnwindSafe(|| {
        drop(BackoffSupervisor::start(quick(), |_| worker));
    }));
    assert!(outside_a_system.is_err());
    assert_eq!(log.all(), ["dropped"]);
}

#[test]
fn system_that_ends_takes_a_living_actor_through_its_hooks() {
    for trap in ["", "stopping", "stopped", "dropped"] {
        let log = Log::default();
        let system = System::new();
        let addr = system.block_on(async {
            let addr = BackoffSupervisor::start(quick(), |_| Worker::always(&log, trap));
            count(&addr).await.unwrap();
            addr
        });
        drop(system);
        assert!(!addr.connected(), "{trap}");
        assert_eq!(log.count("stopping"), 1, "{trap}");
        assert_eq!(log.count("dropped"), 1, "{trap}");
    }
}

#[actix::test]
async fn arbiter_stopped_during_the_delay() {
    let log = Log::default();
    let give_ups = GiveUps::default();
    let arbiter = Arbiter::new();
    let policy = give_ups.hooked(RestartPolicy::new().backoff(HOUR));
    let worker = Worker::new(&log);
    let addr = BackoffSupervisor::start_in_arbiter(&arbiter.handle(), policy, |_| worker);
    assert_eq!(addr.send(Do::Panic).await, Err(MailboxError::Closed));
    let queued = addr.send(Do::Count);
    arbiter.stop();
    arbiter.join().unwrap();
    assert_eq!(queued.await, Err(MailboxError::Closed));
    assert!(!addr.connected());
    assert_eq!(log.all(), ["started", "stopping", "stopped", "dropped"]);
    assert!(give_ups.all().is_empty());
}

// ---- addresses

#[actix::test]
async fn actor_without_addresses_ends_unreported() {
    time::pause();
    let (events, _guard) = Events::capture();
    let log = Log::default();
    let give_ups = GiveUps::default();
    let policy = give_ups.hooked(quick().max_restarts(0));
    let addr = BackoffSupervisor::start(policy, |_| Worker::new(&log));
    count(&addr).await.unwrap();
    drop(addr);
    pass(SECOND).await;
    assert_eq!(log.all(), ["started", "stopping", "stopped", "dropped"]);
    assert!(give_ups.all().is_empty());
    assert_eq!(events.all(), [""; 0]);
}

#[actix::test]
async fn actor_that_loses_its_addresses_during_the_delay_is_not_restarted() {
    time::pause();
    let log = Log::default();
    let give_ups = GiveUps::default();
    let addr = BackoffSupervisor::start(give_ups.hooked(quick()), |_| Worker::new(&log));
    addr.send(Do::Panic).await.unwrap_err();
    drop(addr);
    pass(SECOND).await;
    assert_eq!(log.all(), ["started", "stopping", "stopped", "dropped"]);
    assert!(give_ups.all().is_empty());
}

// ---- arbiters

#[actix::test]
async fn start_in_arbiter_from_another_thread() {
    let arbiter = Arbiter::new();
    let handle = arbiter.handle();
    let log = Log::default();
    let (addr, end) = std::thread::spawn({
        let log = log.clone();
        move || {
            BackoffSupervisor::start_in_arbiter_with_handle(
                &handle,
                RestartPolicy::new().backoff(MS),
                move |_, _| Worker::new(&log),
            )
        }
    })
    .join()
    .unwrap();
    assert_eq!(count(&addr).await, Ok(1));
    assert_eq!(addr.send(Do::Panic).await, Err(MailboxError::Closed));
    assert_eq!(count(&addr).await, Ok(2));
    end.end();
    arbiter.stop();
    arbiter.join().unwrap();
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    assert_eq!(log.count("stopped"), 1);
    assert_eq!(log.count("dropped"), 1);
}

#[actix::test]
async fn stopped_arbiter_gives_a_closed_address() {
    let arbiter = Arbiter::new();
    let handle = arbiter.handle();
    arbiter.stop();
    arbiter.join().unwrap();
    let (addr, end) =
        BackoffSupervisor::start_in_arbiter_with_handle(&handle, quick(), |_, _| Worker::default());
    assert!(!addr.connected());
    end.end();
}

#[actix::test]
async fn factory_that_panics_on_the_arbiter_gives_a_closed_address() {
    let arbiter = Arbiter::new();
    let addr = BackoffSupervisor::start_in_arbiter(&arbiter.handle(), quick(), |_| -> Worker {
        panic!("trap in the factory")
    });
    assert_eq!(count(&addr).await, Err(MailboxError::Closed));
    arbiter.stop();
    arbiter.join().unwrap();
}

#[actix::test]
async fn crash_loop_without_delay_leaves_the_arbiter_to_others() {
    // Real time: under paused time a loop that never waits would not even be noticed.
    let log = Log::default();
    let policy = RestartPolicy::new().backoff(Duration::ZERO);
    let addr = BackoffSupervisor::start(policy, |_| Worker::always(&log, "started"));
    let turns = Rc::new(Cell::new(0));
    actix::spawn({
        let turns = Rc::clone(&turns);
        async move {
            loop {
                turns.set(turns.get() + 1);
                tokio::task::yield_now().await;
            }
        }
    });
    while log.count("started") < 20 {
        tokio::task::yield_now().await;
    }
    assert!(turns.get() > 20, "{}", turns.get());
    assert!(addr.connected());
}

// ---- long crash loops

#[cfg(target_os = "linux")]
#[actix::test]
async fn crash_loop_of_ten_thousand_restarts_keeps_memory_flat() {
    /// Each life holds 4 KiB in a future.
    struct Holder(Rc<Cell<u32>>);
    impl Actor for Holder {
        type Context = Context<Self>;
        fn started(&mut self, ctx: &mut Context<Self>) {
            self.0.set(self.0.get() + 1);
            let held = vec![1_u8; 4_096];
            ctx.spawn(
                async move {
                    std::future::pending::<()>().await;
                    drop(held);
                }
                .into_actor(self),
            );
            panic!("silent");
        }
    }
    impl Supervised for Holder {}

    fn resident_pages() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    }

    let former = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"silent") {
            former(info);
        }
    }));
    time::pause();
    let lives = Rc::new(Cell::new(0));
    let policy = RestartPolicy::new()
        .backoff(Duration::ZERO)
        .max_restarts(u32::MAX);
    let addr = BackoffSupervisor::start(policy, |_| Holder(Rc::clone(&lives)));
    let lives_reach = async |count| {
        while lives.get() < count {
            assert!(addr.connected(), "gone after {} lives", lives.get());
            sleep(100 * MS).await;
        }
    };
    lives_reach(5_000).await;
    let before = resident_pages();
    lives_reach(15_000).await;
    let grown = resident_pages().saturating_sub(before);
    // One page a life leaked would be 10,000.
    assert!(grown < 1_000, "{grown} pages more");
    assert!(addr.connected());
}

// ---- telemetry

/// A subscriber that keeps each event as a line, or panics instead.
#[derive(Clone, Default)]
struct Events {
    lines: Arc<Mutex<Vec<String>>>,
    panics: bool,
}

impl Events {
    fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        let events = Self::default();
        let guard = tracing::subscriber::set_default(events.clone());
        (events, guard)
    }

    fn all(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    fn last(&self) -> String {
        self.all().pop().unwrap_or_default()
    }
}

struct Line(String);

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl tracing::Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("actix_circuit_breaker")
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        assert!(!self.panics, "trap in the subscriber");
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.lines.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[actix::test]
async fn each_restart_and_giving_up_is_an_event() {
    time::pause();
    let (events, _guard) = Events::capture();
    let policy = RestartPolicy::new().backoff(100 * MS).max_restarts(2);
    let addr = BackoffSupervisor::start(policy, |_| Worker::new(&Log::default()));
    addr.do_send(Do::Panic);
    addr.do_send(Do::Stop);
    addr.do_send(Do::PanicInFuture);
    pass(SECOND).await;
    let events = events.all();
    assert_eq!(events.len(), 3, "{events:#?}");
    let expect = |line: &str, parts: &[&str]| {
        for part in parts {
            assert!(line.contains(part), "{part} in {line}");
        }
    };
    expect(
        &events[0],
        &[
            "WARN",
            "restarts=0",
            "cause=\"trap in a handler\"",
            "delay_ms=100",
            "Worker",
        ],
    );
    expect(
        &events[1],
        &["WARN", "restarts=1", "cause=\"stopped\"", "delay_ms=200"],
    );
    expect(
        &events[2],
        &[
            "ERROR",
            "restarts=2",
            "cause=\"trap in a future\"",
            "Worker",
        ],
    );
}

#[actix::test]
async fn panicking_subscriber_cannot_end_the_supervision() {
    time::pause();
    let _guard = tracing::subscriber::set_default(Events {
        panics: true,
        ..Events::default()
    });
    let give_ups = GiveUps::default();
    let policy = give_ups.hooked(quick().max_restarts(2));
    let addr = BackoffSupervisor::start(policy, |_| Worker::new(&Log::default()));
    for _ in 0..2 {
        addr.do_send(Do::Panic);
    }
    assert_eq!(count(&addr).await, Ok(1));
    addr.do_send(Do::Panic);
    pass(SECOND).await;
    assert_eq!(give_ups.all().len(), 1);
}

#[test]
fn policy_prints_its_hook_as_dots() {
    let policy = RestartPolicy::default().max_restarts(7).on_give_up(drop);
    let text = format!("{policy:?}");
    assert!(text.contains("max_restarts: Some(7)"), "{text}");
    assert!(text.contains("on_give_up: Some(..)"), "{text}");
}
