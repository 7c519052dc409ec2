//! The Redis of the example: a server of its own on a free port, which writes nothing to the disk and ends
//! with its parent.

use std::env;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Where it is told that another `redis-server` is to be used than the one on the PATH.
pub(crate) const VARIABLE: &str = "REDIS_SERVER";

const PATIENCE: Duration = Duration::from_secs(10);
const TRIES: u32 = 10;

pub(crate) struct RedisServer {
    client: redis::Client,
    port: u16,
    running: Option<Running>,
}

struct Running {
    server: Child,
    /// Ends the server when we are gone, whichever way.
    watcher: Child,
}

impl Drop for Running {
    // The watcher first: the number of its server may be another's soon.
    fn drop(&mut self) {
        for process in [&mut self.watcher, &mut self.server] {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

impl RedisServer {
    /// Starts a server; an error of the kind `NotFound` where none is installed.
    pub(crate) async fn start() -> io::Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let url = format!("redis://127.0.0.1:{port}/");
        let mut server = Self {
            client: redis::Client::open(url).map_err(io::Error::other)?,
            port,
            running: None,
        };
        server.run().await?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Starts the process, with no keys and on the same port, and waits until it answers.
    pub(crate) async fn run(&mut self) -> io::Result<()> {
        let program = env::var(VARIABLE).unwrap_or_else(|_| "redis-server".to_owned());
        let mut server = Command::new(program)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let watcher = Command::new("sh")
            .args(["-c", r#"trap "" HUP INT TERM; read -r _; kill -KILL "$1""#])
            .args(["sh", &server.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let watcher = watcher.inspect_err(|_| drop(server.kill()))?;
        let running = self.running.insert(Running { server, watcher });
        let answers = async {
            loop {
                if let Some(status) = running.server.try_wait()? {
                    return Err(io::Error::other(format!("redis-server ended: {status}")));
                }
                if ask::<()>(&self.client, &["PING"]).await.is_ok() {
                    return Ok(());
                }
            }
        };
        timeout(PATIENCE, answers)
            .await
            .unwrap_or_else(|_| Err(io::Error::other("redis-server does not answer")))
    }

    /// Ends the process as a crash would.
    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    /// Whether it has a key of the breaker.
    pub(crate) async fn knows(&self, breaker: &str) -> io::Result<bool> {
        let key = format!("{{circuit-breaker:{breaker}}}");
        ask(&self.client, &["EXISTS", &key]).await
    }

    /// How many steps of breakers this process has made, each of which took one round trip.
    pub(crate) async fn steps(&self) -> io::Result<u64> {
        let info: String = ask(&self.client, &["INFO", "commandstats"]).await?;
        let mut lines = info.lines();
        let calls = lines.find_map(|line| {
            let (calls, _) = line
                .strip_prefix("cmdstat_evalsha:calls=")?
                .split_once(',')?;
            calls.parse().ok()
        });
        Ok(calls.unwrap_or(0))
    }
}

/// Asks, a few times where it has to be, on a machine however busy.
async fn ask<T: redis::FromRedisValue>(client: &redis::Client, words: &[&str]) -> io::Result<T> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    let mut tries = 0;
    loop {
        let answer = async {
            let mut connection = client.get_multiplexed_async_connection().await?;
            command.query_async(&mut connection).await
        };
        match answer.await {
            Err(_) if tries < TRIES => tries += 1,
            answer => return answer.map_err(io::Error::other),
        }
        sleep(Duration::from_millis(10)).await;
    }
}
