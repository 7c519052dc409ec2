//! A connection that sends exactly what it is told to, so that its commands can be told from those of others.
//! What to send is left to the others here.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use redis::{Cmd, Parser, RedisResult, Value};

use super::PATIENCE;

pub(crate) struct Wire {
    stream: TcpStream,
    parser: Parser,
}

impl Wire {
    /// Connects, and says the password where there is one.
    pub(crate) fn connect(port: u16, password: Option<&str>) -> RedisResult<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        let mut wire = Self {
            stream,
            parser: Parser::new(),
        };
        wire.wait_for(PATIENCE);
        if let Some(password) = password {
            wire.request(&["AUTH", password])?;
        }
        Ok(wire)
    }

    /// How long an answer is waited for.
    pub(crate) fn wait_for(&mut self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).unwrap();
    }

    /// Where the server sees it come from.
    pub(crate) fn address(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    /// Sends a command and waits for the answer. An error of the server's is an error.
    pub(crate) fn request(&mut self, words: &[&str]) -> RedisResult<Value> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        self.stream.write_all(&command.get_packed_command())?;
        self.read()
    }

    /// Waits for the next of what the server sends.
    pub(crate) fn read(&mut self) -> RedisResult<Value> {
        self.parser
            .parse_value(Uninterrupted(&self.stream))?
            .extract_error()
    }
}

/// Reads on after an interruption. Where several threads start and end processes, a wait with a timeout is interrupted
/// now and then, though nobody handles a signal.
pub(crate) struct Uninterrupted<'a>(pub(crate) &'a TcpStream);

impl Read for Uninterrupted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}
