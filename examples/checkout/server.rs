//! The payment server: real TCP, and a switch for what is wrong with it.
//! When the switch is thrown is left to the script in `checkout.rs`.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use actix_circuit_breaker::Timestamp;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::story::Story;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Healthy,
    /// Answers every charge with an error.
    Failing,
    /// Accepts connections and never answers.
    Hanging,
    /// Does not listen: connections are refused.
    Down,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) mode: watch::Receiver<Mode>,
    /// Gets the number of each ask that arrives, and when it does.
    pub(crate) arrivals: mpsc::UnboundedSender<(u64, Timestamp)>,
    pub(crate) story: Story,
}

impl Server {
    /// Listens whenever it is not down, until nobody can change its mode any more.
    pub(crate) async fn serve(mut self, address: SocketAddr) -> io::Result<()> {
        while self.mode.wait_for(|mode| *mode != Mode::Down).await.is_ok() {
            let listener = TcpListener::bind(address).await?;
            let mut mode = self.mode.clone();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        actix::spawn(self.clone().answer(accepted?.0));
                    }
                    _ = mode.wait_for(|mode| *mode == Mode::Down) => break,
                }
            }
        }
        Ok(())
    }

    /// Reads one `charge <number> <cents>` and answers it, as the mode is.
    async fn answer(mut self, connection: TcpStream) -> io::Result<()> {
        let mut connection = BufReader::new(connection);
        let mut request = String::new();
        connection.read_line(&mut request).await?;
        if let Some(number) = request.split(' ').nth(1).and_then(|it| it.parse().ok()) {
            let _ = self.arrivals.send((number, self.story.now()));
        }
        let mode = *self.mode.borrow_and_update();
        match mode {
            Mode::Healthy => connection.write_all(b"paid\n").await,
            Mode::Failing => connection.write_all(b"out of order\n").await,
            Mode::Hanging | Mode::Down => {
                // Keeps the connection open and says nothing.
                let _ = self.mode.changed().await;
                Ok(())
            }
        }
    }
}

/// Which asks reached the server, by their number, and when.
pub(crate) struct Arrivals {
    new: mpsc::UnboundedReceiver<(u64, Timestamp)>,
    by_number: BTreeMap<u64, Timestamp>,
}

impl Arrivals {
    pub(crate) fn new(new: mpsc::UnboundedReceiver<(u64, Timestamp)>) -> Self {
        let by_number = BTreeMap::new();
        Self { new, by_number }
    }

    pub(crate) fn so_far(&mut self) -> &BTreeMap<u64, Timestamp> {
        while let Ok((number, at)) = self.new.try_recv() {
            self.by_number.insert(number, at);
        }
        &self.by_number
    }
}
