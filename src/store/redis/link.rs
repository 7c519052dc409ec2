//! The connection of a store to its server, or to its Cluster: made when it is needed, made again when it is
//! lost, shared by all requests. What is sent over it: [`script`](super::script).
//!
//! A request is sent once. While there is no connection, one attempt at a time is made to get one; whoever
//! comes meanwhile waits for it, which is bounded. After an attempt that failed there is a rest, longer each
//! time; who comes meanwhile is told so at once.
//!
//! Breakers do not wait for as long as it takes to know that nothing comes over a connection any more. When a
//! request is given up, the connection has to prove that it is there, once at a time.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult,
    ServerErrorKind, Value, cmd,
};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::super::StoreError;

const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(2);

/// Where the records are.
#[derive(Clone)]
pub(super) enum Server {
    One(Box<Client>),
    Cluster(Box<ClusterClient>),
}

#[derive(Clone)]
enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// An attempt to connect.
    pub(super) connect: Duration,
    /// The answer to one request.
    pub(super) response: Duration,
}

pub(super) struct Link {
    server: Server,
    limits: Limits,
    state: Mutex<State>,
    /// Whether a connection is just now asked for a proof.
    doubted: AtomicBool,
}

enum State {
    /// Whoever comes first makes an attempt, the so many before having failed in a row.
    Idle {
        failed: u32,
    },
    /// It is told when the attempt is over.
    Connecting(watch::Receiver<()>),
    Connected {
        connection: Connection,
        number: u64,
    },
    /// No attempt is made for a while.
    Resting(StoreError),
}

impl State {
    fn failed(&self) -> u32 {
        match self {
            Self::Idle { failed } => *failed,
            _ => 0,
        }
    }
}

impl Link {
    pub(super) fn new(server: Server, limits: Limits) -> Self {
        Self {
            server,
            limits,
            state: Mutex::new(State::Idle { failed: 0 }),
            doubted: AtomicBool::new(false),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request once, and reads the answer.
    pub(super) async fn request<T: FromRedisValue>(
        self: &Arc<Self>,
        request: &Cmd,
    ) -> Result<T, Failure> {
        let (mut connection, number) = self.connected().await.map_err(Failure::Unsent)?;
        let waits = Waits::new(self, &connection, number);
        let answer = match &mut connection {
            Connection::One(connection) => request.query_async(connection).await,
            Connection::Cluster(connection) => request.query_async(connection).await,
        };
        waits.answered();
        answer.map_err(|error| {
            if self.is_useless_after(&error) {
                self.lose(number);
            }
            Failure::Answered(error)
        })
    }

    /// Waits until an attempt to connect is over, if one is needed.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        self.connected().await.map(drop)
    }

    async fn connected(self: &Arc<Self>) -> Result<(Connection, u64), StoreError> {
        let mut waited = false;
        loop {
            let (mut over, attempt) = match &mut *self.state() {
                State::Connected { connection, number } => {
                    return Ok((connection.clone(), *number));
                }
                State::Resting(error) => return Err(error.clone()),
                State::Connecting(over) => (over.clone(), None),
                State::Idle { .. } if waited => {
                    return Err(StoreError::Unreachable("no connection".into()));
                }
                state @ State::Idle { .. } => {
                    let (tell, over) = watch::channel(());
                    let before = mem::replace(state, State::Connecting(over.clone()));
                    (over, Some((tell, before)))
                }
            };
            if let Some((tell, before)) = attempt {
                let attempt = Attempt {
                    link: Arc::clone(self),
                    failed: before.failed(),
                    next: State::Idle { failed: 0 },
                    tell: Some(tell),
                };
                // In a task of its own, so that it goes on when who asked for it does not wait.
                drop(tokio::spawn(attempt.make()));
            }
            // It is told by being dropped, whatever becomes of the attempt.
            while over.changed().await.is_ok() {}
            waited = true;
        }
    }

    /// Whether a connection is of no use after that error: it is gone, nothing comes over it in time, or it
    /// leads to a server that is no longer the one that takes writes. That of a Cluster mends itself.
    fn is_useless_after(&self, error: &RedisError) -> bool {
        match self.server {
            Server::One(_) => {
                error.is_io_error()
                    || error.is_unrecoverable_error()
                    || matches!(
                        error.kind(),
                        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
                    )
            }
            Server::Cluster(_) => error.kind() == ErrorKind::ClusterConnectionNotFound,
        }
    }

    /// Gives up a connection, unless there is a newer one already.
    fn lose(&self, lost: u64) {
        let mut state = self.state();
        if let State::Connected { number, .. } = *state
            && number == lost
        {
            *state = State::Idle { failed: 0 };
        }
    }

    async fn open(&self) -> Result<Connection, StoreError> {
        let Limits { connect, response } = self.limits;
        let opening = async {
            Ok(match &self.server {
                Server::One(client) => {
                    let config = AsyncConnectionConfig::new()
                        .set_connection_timeout(Some(connect))
                        .set_response_timeout(Some(response));
                    let connection = client.get_multiplexed_async_connection_with_config(&config);
                    Connection::One(connection.await?)
                }
                Server::Cluster(client) => {
                    Connection::Cluster(client.get_async_connection().await?)
                }
            })
        };
        let opened: RedisResult<_> = match tokio::time::timeout(connect, opening).await {
            Ok(opened) => opened,
            Err(_) => return Err(StoreError::Unreachable("no connection in time".into())),
        };
        opened.map_err(|error| store_error(&error))
    }
}

/// Somebody waits for an answer. When it is dropped before that, the connection is in doubt. That of a Cluster
/// looks after its own.
struct Waits(Option<(Arc<Link>, MultiplexedConnection, u64)>);

impl Waits {
    fn new(link: &Arc<Link>, connection: &Connection, number: u64) -> Self {
        Self(match connection {
            Connection::One(connection) => Some((Arc::clone(link), connection.clone(), number)),
            Connection::Cluster(_) => None,
        })
    }

    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let Some((link, connection, number)) = self.0.take() else {
            return;
        };
        // Where the runtime is gone, so is the connection.
        if let Ok(runtime) = Handle::try_current()
            && !link.doubted.swap(true, Ordering::AcqRel)
        {
            let doubt = Doubt(link);
            drop(runtime.spawn(doubt.settle(connection, number)));
        }
    }
}

/// A connection that has to prove that it is there. One at a time, whatever becomes of the task.
struct Doubt(Arc<Link>);

impl Doubt {
    async fn settle(self, mut connection: MultiplexedConnection, number: u64) {
        // It has as long as any answer.
        let proof: RedisResult<Value> = cmd("PING").query_async(&mut connection).await;
        if proof.is_err_and(|error| self.0.is_useless_after(&error)) {
            self.0.lose(number);
        }
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        self.0.doubted.store(false, Ordering::Release);
    }
}

/// One attempt to connect, with the rest after it. When it is dropped, whatever became of it, the link goes
/// on with what is next, and those who wait are told.
struct Attempt {
    link: Arc<Link>,
    failed: u32,
    next: State,
    tell: Option<watch::Sender<()>>,
}

impl Attempt {
    async fn make(mut self) {
        match self.link.open().await {
            Ok(connection) => {
                self.next = State::Connected {
                    connection,
                    number: fastrand::u64(..),
                };
            }
            Err(error) => {
                let failed = self.failed.saturating_add(1);
                *self.link.state() = State::Resting(error);
                self.next = State::Idle { failed };
                self.tell = None;
                tokio::time::sleep(rest_after(failed)).await;
            }
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let next = mem::replace(&mut self.next, State::Idle { failed: 0 });
        *self.link.state() = next;
    }
}

/// How long no attempt is made after so many that failed in a row; not all processes come back at once.
pub(super) fn rest_after(failed: u32) -> Duration {
    let doubled = 1_u32
        .checked_shl(failed.saturating_sub(1))
        .unwrap_or(u32::MAX);
    let longest = FIRST_REST.saturating_mul(doubled).min(LONGEST_REST);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Why there is no answer to a request.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was not sent.
    Unsent(StoreError),
    /// It may have been sent.
    Answered(RedisError),
}

impl Failure {
    /// Whether the server said that it does not know the script, so that nothing was done.
    pub(super) fn is_unknown_script(&self) -> bool {
        self.is(ServerErrorKind::NoScript)
    }

    /// Whether the server said that another one has the keys, so that nothing was done.
    pub(super) fn is_moved(&self) -> bool {
        self.is(ServerErrorKind::Moved)
    }

    fn is(&self, kind: ServerErrorKind) -> bool {
        matches!(self, Self::Answered(error) if error.kind() == ErrorKind::Server(kind))
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsent(error) => error,
            Failure::Answered(error) => store_error(&error),
        }
    }
}

/// What an error of the client means to a breaker.
pub(super) fn store_error(error: &RedisError) -> StoreError {
    let text = error.to_string().into();
    match error.kind() {
        ErrorKind::Io
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask,
        ) => StoreError::Unreachable(text),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => StoreError::Unreadable(text),
        _ => StoreError::Refused(text),
    }
}
