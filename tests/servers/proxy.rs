//! A network between clients and a server that can be made to misbehave, one way or another, at any moment.
//! What the bytes mean it does not know.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::wire::Uninterrupted;
use super::{PATIENCE, free_port, wait_until};

/// A proxy on loopback, which passes everything until it is told otherwise. An order is in force when its method
/// returns, for connections there are and those to come. A connection of which bytes were lost is closed as soon as
/// bytes are passed again, so that no answer meets the wrong question.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    /// Takes connections; there is none while they are refused.
    door: Mutex<Option<JoinHandle<()>>>,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    Delay(Duration),
    Cut,
    Hang,
    SwallowReplies,
}

impl Mode {
    fn loses(self, to: Side) -> bool {
        match self {
            Self::Pass | Self::Delay(_) => false,
            Self::Cut | Self::Hang => true,
            Self::SwallowReplies => to == Side::Client,
        }
    }
}

struct Shared {
    upstream: u16,
    accepted: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    mode: Mode,
    /// How often it was given a mode.
    epoch: u64,
    links: Vec<Arc<Link>>,
    threads: Vec<JoinHandle<()>>,
}

struct Link {
    client: TcpStream,
    /// None where the server could not be reached while nothing was passed on anyway.
    server: Option<TcpStream>,
    lost: Mutex<bool>,
    /// Whether it leads nowhere any more.
    stranded: AtomicBool,
}

impl Proxy {
    /// Starts a proxy before the server on a port of loopback.
    pub(crate) fn start(upstream: u16) -> Self {
        let shared = Shared {
            upstream,
            accepted: AtomicU64::new(0),
            state: Mutex::new(State {
                mode: Mode::Pass,
                epoch: 0,
                links: Vec::new(),
                threads: Vec::new(),
            }),
            changed: Condvar::new(),
        };
        let (port, listener) = loop {
            let port = free_port();
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                break (port, listener);
            }
        };
        let proxy = Self {
            port,
            shared: Arc::new(shared),
            door: Mutex::new(None),
        };
        proxy.open(listener);
        proxy
    }

    /// The address for clients; a password has to be put in by the test.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections were taken since the start.
    pub(crate) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections there are, from the side of the clients.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lock().links.len()
    }

    /// Passes everything, as at the start.
    pub(crate) fn pass(&self) {
        self.set(Mode::Pass);
    }

    /// Keeps each chunk for a while before it is passed on, in both directions: a round trip takes at least twice as
    /// long. What waits is passed on at once when the mode changes to one that passes.
    pub(crate) fn delay(&self, by: Duration) {
        self.set(Mode::Delay(by));
    }

    /// Closes all connections, both ends of them, and refuses new ones.
    pub(crate) fn cut(&self) {
        self.set(Mode::Cut);
    }

    /// Takes connections and swallows what both sides send, also that they close theirs.
    pub(crate) fn hang(&self) {
        self.set(Mode::Hang);
    }

    /// Passes commands to the server and swallows what it answers, also that it closes a connection.
    pub(crate) fn swallow_replies(&self) {
        self.set(Mode::SwallowReplies);
    }

    /// Shuts down the write half towards one side, of the connections there are. `Side::Client`: the client reads an
    /// end, while what it sends still reaches the server. `Side::Server`: the server reads an end; Redis then closes the
    /// connection, and the client reads an end, too.
    pub(crate) fn half_close(&self, towards: Side) {
        for link in &self.shared.lock().links {
            link.end(towards);
        }
    }

    /// Has everything vanish from now on that goes over the connections there are, as when the machine at the other end
    /// is gone: neither side is told. New ones are as ever.
    pub(crate) fn strand(&self) {
        for link in &self.shared.lock().links {
            link.stranded.store(true, Ordering::SeqCst);
        }
    }

    fn set(&self, mode: Mode) {
        let mut state = self.shared.lock();
        state.mode = mode;
        state.epoch += 1;
        for link in &state.links {
            let stranded = link.stranded.load(Ordering::SeqCst);
            let passes = !stranded && !mode.loses(Side::Client) && !mode.loses(Side::Server);
            if mode == Mode::Cut || (passes && *link.lost.lock().unwrap()) {
                link.close();
            }
        }
        drop(state);
        self.shared.changed.notify_all();
        if mode == Mode::Cut {
            self.close();
        } else if self.door.lock().unwrap().is_none() {
            let mut again = None;
            wait_until(|| {
                again = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).ok();
                again.is_some()
            });
            self.open(again.unwrap());
        }
    }

    fn open(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        let door = thread::spawn(move || {
            shared.take(&listener);
            // Not only dropped: a process that is started at this moment has a copy, until it is itself.
            let listener = TcpStream::from(OwnedFd::from(listener));
            drop(listener.shutdown(Shutdown::Both));
        });
        *self.door.lock().unwrap() = Some(door);
    }

    /// The mode is `Cut` already.
    fn close(&self) {
        if let Some(door) = self.door.lock().unwrap().take() {
            // It waits for a connection, so it gets one.
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
            door.join().unwrap();
        }
        // Those that were just being made are closed by now.
        let threads = std::mem::take(&mut self.shared.lock().threads);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Mode::Cut);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes clients until they are refused.
    fn take(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            let mut state = self.lock();
            if state.mode == Mode::Cut {
                return;
            }
            let Ok(client) = client else { continue };
            self.accepted.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(self);
            state
                .threads
                .push(thread::spawn(move || shared.join(client)));
        }
    }

    /// Joins a client to the server, for as long as both or the mode want it.
    fn join(&self, client: TcpStream) {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.upstream)).ok();
        for stream in server.iter().chain([&client]) {
            drop(stream.set_nodelay(true));
            drop(stream.set_write_timeout(Some(PATIENCE)));
        }
        let link = Arc::new(Link {
            lost: Mutex::new(server.is_none()),
            stranded: AtomicBool::new(false),
            client,
            server,
        });
        {
            let mut state = self.lock();
            if state.mode == Mode::Cut || (link.server.is_none() && state.mode != Mode::Hang) {
                return;
            }
            state.links.push(Arc::clone(&link));
        }
        thread::scope(|scope| {
            scope.spawn(|| self.pump(&link, Side::Client));
            self.pump(&link, Side::Server);
        });
        let mut state = self.lock();
        state.links.retain(|other| !Arc::ptr_eq(other, &link));
    }

    /// Passes on what comes from the other side until that ends.
    fn pump(&self, link: &Link, to: Side) {
        let from = match to {
            Side::Client => link.server.as_ref(),
            Side::Server => Some(&link.client),
        };
        let mut buffer = [0; 16 * 1024];
        loop {
            // One that breaks ends.
            let read = from.map_or(0, |from| Uninterrupted(from).read(&mut buffer).unwrap_or(0));
            self.deliver(link, to, &buffer[..read]);
            if read == 0 {
                return;
            }
        }
    }

    /// Passes on a chunk, or an end where it is empty, as the mode is.
    fn deliver(&self, link: &Link, to: Side, chunk: &[u8]) {
        let mut state = self.lock();
        if let Mode::Delay(by) = state.mode {
            let epoch = state.epoch;
            let waits = self
                .changed
                .wait_timeout_while(state, by, |state| state.epoch == epoch);
            state = waits.unwrap_or_else(PoisonError::into_inner).0;
        }
        // The lock is held, so that no chunk is passed on by a mode of before.
        if link.stranded.load(Ordering::SeqCst) {
        } else if state.mode.loses(to) {
            *link.lost.lock().unwrap() = true;
        } else if chunk.is_empty() {
            link.end(to);
        } else if let Some(mut stream) = link.stream(to) {
            // One that takes no more is found out by who reads from it.
            drop(stream.write_all(chunk));
        }
    }
}

impl Link {
    fn stream(&self, side: Side) -> Option<&TcpStream> {
        match side {
            Side::Client => Some(&self.client),
            Side::Server => self.server.as_ref(),
        }
    }

    fn end(&self, side: Side) {
        if let Some(stream) = self.stream(side) {
            drop(stream.shutdown(Shutdown::Write));
        }
    }

    fn close(&self) {
        for stream in self.server.iter().chain([&self.client]) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}
