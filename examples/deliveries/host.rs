//! A host of the example: a server on a loopback socket that is well, down or hanging, and writes down
//! what reaches it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    Well,
    /// Nobody listens: connections are refused.
    Down,
    /// Connections are taken, and nothing is read from them.
    Hanging,
}

pub(crate) struct Host {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    arrived: Arc<Mutex<Vec<u32>>>,
}

impl Host {
    pub(crate) fn start(mode: Mode) -> io::Result<Self> {
        // Bound in every mode, so that nobody else gets the port.
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = socket.local_addr()?;
        let (mode, modes) = watch::channel(mode);
        let arrived = Arc::default();
        actix::spawn(serve(socket, modes, Arc::clone(&arrived)));
        Ok(Self {
            address,
            mode,
            arrived,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn turn(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// What reached it, in the order in which it came.
    pub(crate) fn arrived(&self) -> Vec<u32> {
        let arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.clone()
    }
}

async fn serve(
    socket: TcpSocket,
    mut modes: watch::Receiver<Mode>,
    arrived: Arc<Mutex<Vec<u32>>>,
) -> io::Result<()> {
    if modes.wait_for(|mode| *mode != Mode::Down).await.is_err() {
        return Ok(());
    }
    let listener = socket.listen(64)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let mode = *modes.borrow();
        actix::spawn(receive(stream, mode, Arc::clone(&arrived)));
    }
}

async fn receive(stream: TcpStream, mode: Mode, arrived: Arc<Mutex<Vec<u32>>>) {
    if mode == Mode::Hanging {
        sleep(Duration::from_millis(400)).await;
        return;
    }
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    if stream.read_line(&mut line).await.is_err() {
        return;
    }
    if let Ok(number) = line.trim().parse() {
        let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.push(number);
    }
    // A sender that went away has its letter delivered all the same.
    drop(stream.write_all(b"ok\n").await);
}
