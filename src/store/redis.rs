//! A store in Redis: each step is one script there, which is all that decides.
//! How breakers live with one that is slow or away is decided in `actor/replica.rs` and `supervisor/joining.rs`.

mod changes;
mod link;
mod names;
mod script;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::FutureExt;
use redis::cluster::ClusterClient;
use redis::{Client, Cmd};

use super::{Change, Step, Store, StoreError, View};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::config::{BreakerConfig, ConfigError, span};
use link::{Limits, Link, Server};
use names::{Names, shown};
use script::Call;

const PREFIX: &str = "circuit-breaker";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the key lives that proves that writes work.
const CONTACT_TTL: Duration = Duration::from_secs(1);

/// A [`Store`] in Redis, shared by all processes that use the same server and prefix. Clones are the same
/// store, over the same connection.
///
/// A step is one call of one script, so that nothing happens in its middle. The script is given the time and
/// decides by the rules of [`circuit`](crate::circuit) (R34); it reads no clock. Any server of version 6.2 or
/// later does, with either protocol (`?protocol=resp3`).
///
/// ```no_run
/// # async fn example() -> Result<(), actix_circuit_breaker::StoreError> {
/// use actix_circuit_breaker::RedisStore;
///
/// let store = RedisStore::connect("redis://localhost:6379/0").await?;
/// let other = RedisStore::builder("redis://localhost:6379/0").prefix("billing").connect().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Keys
///
/// Three for a breaker, with one hash tag. In names, `{`, `}`, `%` and control characters are written as
/// `%7B`; in the prefix `:` as well.
///
/// | key | type | holds |
/// | --- | --- | --- |
/// | `{prefix:name}` | hash | the record |
/// | `{prefix:name}:f` | sorted set | the failed and slow calls of a closed window, by name |
/// | `{prefix:name}:p` | sorted set | the probes of a half-open round, scored by the ends of their leases |
///
/// Each has a lifetime, set by the step that writes it: a minute, and twice the longest break, window or lease,
/// whichever is longest (a window that time does not empty counts as an hour); by default two minutes. It counts
/// from the newest failure, the end of the break or that of the last lease (R31). Only an operator's order without
/// an end has none. A closed breaker that remembers nothing has no key once its last change is so long ago. What is in
/// their place and cannot be read counts as no record, is told in [`View::corrupt`], and is replaced by the
/// first step that writes. `{prefix}:contact` is there for a second after a [`contact`](Store::contact).
/// Changes are published on the channel `prefix:changes`.
///
/// A breaker takes about 600 bytes closed with 5 failures, 1,000 open and 1,300 half-open with one probe, as
/// `MEMORY USAGE` tells; what grows with the settings is what the window holds: the failures of a count, the
/// failed and slow ones of the last calls, at most 128 names in a window of time.
///
/// # What the server has to allow
///
/// A user of its own needs no more than this, with the prefix in the pattern of keys and the channel:
///
/// ```text
/// ACL SETUSER breakers on >secret ~{circuit-breaker* &circuit-breaker:changes -@all +eval +evalsha +type +hmget +hset +hdel +del +zadd +zscore +zcard +zcount +zrange +zrangebyscore +zremrangebyrank +zremrangebyscore +pexpire +persist +publish +set +time +subscribe +ping
/// ```
///
/// In a shell, quote `>secret`, `~{circuit-breaker*` and `&circuit-breaker:changes`.
/// In a Cluster also `+cluster`; with a database in the address `+select`.
///
/// A server that is full (`noeviction`) refuses steps that write, and nothing is changed. One that evicts
/// (`allkeys-*`, `volatile-*`) may forget a breaker, which is then closed for processes that do not remember
/// it; one that does offers its record again. If it is the failures alone that go, the window begins anew; if
/// it is the probes, their slots are free.
///
/// # Cluster, Sentinel, TLS
///
/// [`connect_cluster`](Self::connect_cluster) is for a Cluster. A key that has moved is found again; while its
/// slot is on the way, steps may fail.
///
/// For a server that Sentinels watch, use an address that leads to the present master, as a proxy or a name
/// that follows it; a connection is given up when its server takes no writes any more, and the next one is
/// made by that address again.
///
/// For `rediss://` switch on TLS in the crate `redis` itself, such as
/// `redis = { version = "1", features = ["tokio-native-tls-comp"] }`, or `tokio-rustls-comp` with one of its
/// sources of certificates.
///
/// # When it is away
///
/// Nothing blocks, and nothing is sent twice but to a server that said that it has done nothing: it did not
/// know the script (`NOSCRIPT`), or has not got the key any more (`MOVED`). One attempt to connect is made at
/// a time, when somebody asks; who asks meanwhile waits for it, which is bounded by
/// [`connect_timeout`](RedisStoreBuilder::connect_timeout). After one that failed there is a rest of up to two
/// seconds, in which all are told so at once. The connection lives on the runtime of whoever needed it first;
/// when that ends, the next one makes another.
///
/// # Cancel safety
///
/// The futures and the stream can be dropped at any time. A step that was sent may be made all the same.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    link: Arc<Link>,
    names: Names,
    channel: String,
    /// Each of them tells all changes.
    listening: Vec<Client>,
    shown: String,
    clock: SystemClock,
}

/// Without user and password.
impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("server", &self.inner.shown)
            .field("names", &self.inner.names)
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Connects to one server: `redis://[user[:password]@]host[:port][/database]`.
    ///
    /// A server that is away is no error, nor is one that knows another password or database: the store answers
    /// errors until it is there. This waits for the first attempt to connect, a second at most. To fail at the
    /// start instead, ask once: `store.contact().await?`, of the trait [`Store`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] when that is no address, or one that needs a feature of the crate `redis`.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Connects to a Cluster, some of whose servers are named.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_cluster(
        urls: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, StoreError> {
        Self::cluster_builder(urls).connect().await
    }

    /// Starts from one server and the defaults.
    pub fn builder(url: impl AsRef<str>) -> RedisStoreBuilder {
        RedisStoreBuilder::new(vec![url.as_ref().to_owned()], false)
    }

    /// Starts from some servers of a Cluster and the defaults.
    pub fn cluster_builder(urls: impl IntoIterator<Item = impl AsRef<str>>) -> RedisStoreBuilder {
        let urls = urls.into_iter().map(|url| url.as_ref().to_owned());
        RedisStoreBuilder::new(urls.collect(), true)
    }

    fn call(
        &self,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: &Step,
    ) -> Result<Call, StoreError> {
        let keys = self.inner.names.keys(breaker);
        Call::new(keys, &self.inner.channel, breaker, config, step)
    }

    /// The commands that make a step: by the script's hash, and with its text. For tests that send many at
    /// once.
    #[doc(hidden)]
    pub fn commands(
        &self,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: &Step,
    ) -> Result<(Cmd, Cmd), StoreError> {
        let call = self.call(breaker, config, step)?;
        Ok((call.by_hash(), call.with_text()))
    }

    /// The keys of a breaker. For tests.
    #[doc(hidden)]
    pub fn keys(&self, breaker: &str) -> [String; 3] {
        self.inner.names.keys(breaker)
    }

    /// Reads what the commands answer. For tests.
    #[doc(hidden)]
    pub fn read_view(answer: &[u8]) -> Result<View, StoreError> {
        script::read_view(answer)
    }
}

impl Inner {
    /// Makes a step once: what is sent again was refused before it did anything.
    async fn step(&self, call: Call) -> Result<View, StoreError> {
        let mut answer = self.link.request::<Vec<u8>>(&call.by_hash()).await;
        if answer.as_ref().is_err_and(link::Failure::is_moved) {
            answer = self.link.request(&call.by_hash()).await;
        }
        if answer.as_ref().is_err_and(link::Failure::is_unknown_script) {
            answer = self.link.request(&call.with_text()).await;
        }
        script::read_view(&answer?)
    }

    async fn contact(&self) -> Result<Option<Timestamp>, StoreError> {
        let request = script::contact(&self.names.contact(), CONTACT_TTL);
        // Not to measure how long a connection takes.
        self.link.connect().await?;
        let sent = self.clock.now();
        let mut answer = self.link.request::<(u64, u64)>(&request).await;
        if answer.as_ref().is_err_and(link::Failure::is_moved) {
            answer = self.link.request(&request).await;
        }
        let (seconds, micros) = answer?;
        let passed = self.clock.now().since(sent);
        let there = Timestamp::ZERO + Duration::from_secs(seconds) + Duration::from_micros(micros);
        Ok(Some(there + passed.mul_f64(0.5)))
    }
}

impl Store for RedisStore {
    fn step(
        &self,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: Step,
    ) -> BoxFuture<'static, Result<View, StoreError>> {
        let call = self.call(breaker, config, &step);
        let inner = Arc::clone(&self.inner);
        async move { inner.step(call?).await }.boxed()
    }

    fn contact(&self) -> BoxFuture<'static, Result<Option<Timestamp>, StoreError>> {
        let inner = Arc::clone(&self.inner);
        async move { inner.contact().await }.boxed()
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let Inner {
            listening,
            channel,
            link,
            ..
        } = &*self.inner;
        changes::listen(listening.clone(), channel.clone(), link.limits())
    }
}

/// Settings of a [`RedisStore`].
#[derive(Clone)]
#[must_use]
pub struct RedisStoreBuilder {
    urls: Vec<String>,
    cluster: bool,
    prefix: String,
    connect_timeout: Duration,
    response_timeout: Duration,
}

/// Without users and passwords.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("urls", &self.shown())
            .field("cluster", &self.cluster)
            .field("prefix", &self.prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish()
    }
}

impl RedisStoreBuilder {
    fn new(urls: Vec<String>, cluster: bool) -> Self {
        Self {
            urls,
            cluster,
            prefix: PREFIX.to_owned(),
            connect_timeout: CONNECT_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
        }
    }

    /// Sets what the names of keys and of the channel begin with; stores of different prefixes share
    /// nothing. Any text but an empty one. Default: `circuit-breaker`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long an attempt to connect may take. Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long the server may take to answer; after that the answer is not waited for, and the
    /// connection is made anew. Default: 500 ms.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    fn shown(&self) -> String {
        let shown: Vec<_> = self.urls.iter().map(|url| shown(url)).collect();
        shown.join(", ")
    }

    /// Makes the store, and waits for the first attempt to connect, for the connect timeout at most.
    /// Whether the server is there shows at the first use.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`], which names the setting, its value without a password, and what it must be.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.build()?;
        if let Err(error) = store.inner.link.connect().await {
            tracing::warn!(server = %store.inner.shown, %error, "the store is not there yet");
        }
        Ok(store)
    }

    fn build(self) -> Result<RedisStore, ConfigError> {
        if self.prefix.is_empty() {
            return Err(ConfigError::new(
                "prefix",
                "\"\"",
                "a text that is not empty",
            ));
        }
        let limits = Limits {
            connect: span("connect_timeout", self.connect_timeout)?,
            response: span("response_timeout", self.response_timeout)?,
        };
        let mut listening = Vec::with_capacity(self.urls.len());
        for url in &self.urls {
            let client = Client::open(url.as_str()).map_err(|error| {
                // The client says no more than what is wrong, and never what was given.
                let wrong = error.to_string();
                let tls = if wrong.contains("TLS") {
                    "; switch on one of its `tls` features in the crate `redis`"
                } else {
                    ""
                };
                let form = "redis[s]://[user[:password]@]host[:port][/database]";
                let range = format!("{form} ({wrong}{tls})");
                ConfigError::new("url", shown(url), range)
            })?;
            listening.push(client);
        }
        let server = match listening.as_slice() {
            [] => return Err(ConfigError::new("urls", "[]", "one server or more")),
            [client] if !self.cluster => Server::One(Box::new(client.clone())),
            servers => {
                let infos = servers
                    .iter()
                    .map(|client| client.get_connection_info().clone());
                let client = ClusterClient::builder(infos)
                    // What became of a request that was cut off is not known: it is not sent again.
                    .retries(0)
                    .connection_timeout(limits.connect)
                    .response_timeout(limits.response)
                    .overall_response_timeout(Some(limits.response))
                    .build();
                let wrong = |error: redis::RedisError| {
                    let range = format!("servers of one Cluster ({error})");
                    ConfigError::new("urls", self.shown(), range)
                };
                Server::Cluster(Box::new(client.map_err(wrong)?))
            }
        };
        let names = Names::new(&self.prefix);
        Ok(RedisStore {
            inner: Arc::new(Inner {
                link: Arc::new(Link::new(server, limits)),
                channel: names.channel(),
                names,
                listening,
                shown: self.shown(),
                clock: SystemClock::new(),
            }),
        })
    }
}
