//! What the processes tell each other over a channel: a connection of its own for who listens, made again when
//! it is lost.

use std::pin::pin;
use std::time::Duration;

use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};
use redis::Client;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::{Change, StoreError};
use super::link::{Limits, rest_after, store_error};
use super::script::{Told, read_told};

/// How many changes wait for one who listens; who is slower is told that some were missed.
const WAITING: usize = 1_024;

/// How long nothing may come before the connection has to prove that it is there.
const QUIET: Duration = Duration::from_secs(5);

/// Listens from the first poll on.
pub(super) fn listen(
    servers: Vec<Client>,
    channel: String,
    limits: Limits,
) -> BoxStream<'static, Change> {
    let begin = move || {
        let (tell, told) = broadcast::channel(WAITING);
        let task = tokio::spawn(keep_listening(servers, channel, limits, tell));
        (told, Listening(task))
    };
    stream::unfold(Listener::Idle(begin), |listener| async {
        let (mut told, task) = match listener {
            Listener::Idle(begin) => begin(),
            Listener::Listening(told, task) => (told, task),
        };
        let change = match told.recv().await {
            Ok(change) => change,
            Err(RecvError::Lagged(_)) => Change::Missed,
            // The runtime that it ran on is gone.
            Err(RecvError::Closed) => return None,
        };
        Some((change, Listener::Listening(told, task)))
    })
    .boxed()
}

enum Listener<F> {
    Idle(F),
    Listening(broadcast::Receiver<Change>, Listening),
}

/// Ends the task with the stream.
struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn keep_listening(
    servers: Vec<Client>,
    channel: String,
    limits: Limits,
    tell: broadcast::Sender<Change>,
) {
    let mut failed = 0_u32;
    for server in servers.iter().cycle() {
        let mut subscribed = false;
        if let Err(error) = listen_once(server, &channel, limits, &tell, &mut subscribed).await {
            tracing::debug!(%error, "changes of shared breakers are not heard");
        }
        failed = if subscribed {
            1
        } else {
            failed.saturating_add(1)
        };
        sleep(rest_after(failed)).await;
    }
}

/// Listens until the connection is lost.
async fn listen_once(
    server: &Client,
    channel: &str,
    limits: Limits,
    tell: &broadcast::Sender<Change>,
    subscribed: &mut bool,
) -> Result<(), StoreError> {
    let late = |_| StoreError::Unreachable("no answer in time".into());
    let lost = |error| store_error(&error);
    let opening = async {
        let (mut sink, messages) = server.get_async_pubsub().await?.split();
        sink.subscribe(channel).await?;
        Ok((sink, messages))
    };
    let (mut sink, messages) = timeout(limits.connect, opening)
        .await
        .map_err(late)?
        .map_err(lost)?;
    *subscribed = true;
    // Nobody may listen any more; the task ends with the stream then.
    drop(tell.send(Change::Missed));
    let mut messages = pin!(messages);
    loop {
        match timeout(QUIET, messages.next()).await {
            Ok(Some(message)) => {
                drop(tell.send(read_change(message.get_payload_bytes())));
            }
            Ok(None) => return Err(StoreError::Unreachable("the connection was closed".into())),
            Err(_) => {
                let pong = timeout(limits.response, sink.ping::<redis::Value>()).await;
                drop(pong.map_err(late)?.map_err(lost)?);
            }
        }
    }
}

fn read_change(message: &[u8]) -> Change {
    match read_told(message) {
        Ok(Told { breaker, by, view }) => Change::Made { breaker, by, view },
        Err(error) => {
            tracing::debug!(%error, "a change of a shared breaker cannot be read");
            Change::Missed
        }
    }
}
