//! What only the crate itself can call: starting behind a mailbox made beforehand.
//! What users see is tested in `tests/backoff_supervisor.rs`.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use actix::{Arbiter, Handler, MailboxError, Message, WrapFuture};

use super::*;

struct Tally(u32);

impl Actor for Tally {
    type Context = Context<Self>;
}

impl Supervised for Tally {}

#[derive(Message)]
#[rtype(result = "u32")]
struct Count;

#[derive(Message)]
#[rtype(result = "()")]
struct Crash;

impl Handler<Count> for Tally {
    type Result = u32;

    fn handle(&mut self, _: Count, _: &mut Context<Self>) -> u32 {
        self.0 = self.0.saturating_add(1);
        self.0
    }
}

impl Handler<Crash> for Tally {
    type Result = ();

    fn handle(&mut self, _: Crash, ctx: &mut Context<Self>) {
        ctx.spawn(async {}.into_actor(self));
        panic!("crash {}", self.0);
    }
}

#[actix::test]
async fn mailbox_made_beforehand_is_unbounded_and_keeps_what_was_sent_early() {
    let (tx, rx) = channel::channel(0);
    let addr = Addr::new(tx);
    let early: Vec<_> = (0..100).map(|_| addr.send(Count)).collect();
    for _ in 0..100 {
        addr.try_send(Count).unwrap();
    }
    let end = BackoffSupervisor::start_with_receiver(
        &Arbiter::current(),
        rx,
        Arc::new(RestartPolicy::new()),
        |_, _| {},
        |_, _| Tally(0),
    )
    .unwrap();
    for (request, n) in early.into_iter().zip(1..) {
        assert_eq!(request.await, Ok(n));
    }
    end.end();
    assert_eq!(addr.send(Count).await, Err(MailboxError::Closed));
}

#[actix::test]
async fn observer_is_told_each_restart_and_its_panic_is_caught() {
    tokio::time::pause();
    let (tx, rx) = channel::channel(0);
    let addr = Addr::new(tx);
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    BackoffSupervisor::start_with_receiver(
        &Arbiter::current(),
        rx,
        Arc::new(RestartPolicy::new()),
        move |restarts, cause| {
            seen.lock().unwrap().push((restarts, cause.to_owned()));
            panic!("trap in the observer");
        },
        |_, _| Tally(0),
    )
    .unwrap();
    addr.do_send(Crash);
    addr.do_send(Count);
    addr.do_send(Crash);
    assert_eq!(addr.send(Count).await, Ok(2));
    assert_eq!(
        *told
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner),
        [(1, "crash 0".to_owned()), (2, "crash 1".to_owned())]
    );
}

#[actix::test]
async fn stopped_arbiter_takes_nothing() {
    let arbiter = Arbiter::new();
    let handle = arbiter.handle();
    arbiter.stop();
    arbiter.join().unwrap();
    let made = Arc::new(AtomicU32::new(0));
    let (tx, rx) = channel::channel(0);
    let addr = Addr::new(tx);
    let end = BackoffSupervisor::start_with_receiver(
        &handle,
        rx,
        Arc::new(RestartPolicy::new()),
        |_, _| {},
        {
            let made = Arc::clone(&made);
            move |_, _| Tally(made.fetch_add(1, Ordering::Relaxed))
        },
    );
    assert!(end.is_none());
    assert!(!addr.connected());
    assert_eq!(made.load(Ordering::Relaxed), 0);
}
