//! What the fleet asks: a server on a loopback socket that is well, failing or dead, and writes down every
//! request that reaches it. When it changes is left to the story in `fleet.rs`.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use actix_circuit_breaker::{Clock, SystemClock, Timestamp};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// How long it works on a request.
const WORK: Duration = Duration::from_millis(3);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Well,
    /// Answers with an error.
    Failing,
    /// Closes connections without an answer.
    Dead,
}

/// A request that reached it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) process: usize,
    pub(crate) number: u64,
    pub(crate) came: Timestamp,
    /// When it was answered, unless that is still to come.
    pub(crate) answered: Option<Timestamp>,
    pub(crate) well: bool,
}

#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    clock: SystemClock,
    mode: Rc<Cell<Mode>>,
    arrivals: Rc<RefCell<Vec<Arrival>>>,
}

impl Upstream {
    pub(crate) async fn start(clock: SystemClock) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let upstream = Self {
            address: listener.local_addr()?,
            clock,
            mode: Rc::new(Cell::new(Mode::Well)),
            arrivals: Rc::default(),
        };
        let server = upstream.clone();
        actix::spawn(async move {
            loop {
                if let Ok((connection, _)) = listener.accept().await {
                    actix::spawn(server.clone().answer(connection));
                }
            }
        });
        Ok(upstream)
    }

    pub(crate) fn turn(&self, mode: Mode) {
        self.mode.set(mode);
    }

    /// What reached it since it had seen so many, in the order in which it came.
    pub(crate) fn arrivals(&self, since: usize) -> Vec<Arrival> {
        self.arrivals.borrow().iter().skip(since).copied().collect()
    }

    async fn answer(self, connection: TcpStream) -> io::Result<()> {
        let mut connection = BufReader::new(connection);
        let mut question = String::new();
        connection.read_line(&mut question).await?;
        let number = |at| question.split_whitespace().nth(at)?.parse::<u64>().ok();
        let (Some(process), Some(call)) = (number(0), number(1)) else {
            return Ok(());
        };
        let mode = self.mode.get();
        let index = self.arrivals.borrow().len();
        self.arrivals.borrow_mut().push(Arrival {
            process: usize::try_from(process).unwrap_or(0),
            number: call,
            came: self.clock.now(),
            answered: None,
            well: mode == Mode::Well,
        });
        sleep(WORK).await;
        if let Some(arrival) = self.arrivals.borrow_mut().get_mut(index) {
            arrival.answered = Some(self.clock.now());
        }
        match mode {
            Mode::Well => connection.write_all(b"ok\n").await,
            Mode::Failing => connection.write_all(b"failed\n").await,
            Mode::Dead => Ok(()),
        }
    }
}
