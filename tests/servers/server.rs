//! One Redis server: a process of its own, started, ended, stopped and asked.
//! Which servers belong together is left to `cluster.rs`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use redis::{FromRedisValue, RedisResult, Value};

use super::wire::Wire;
use super::{Patience, free_port, wait_until};

/// How often another port is tried.
const TRIES: usize = 10;

/// A server without persistence in a folder of its own, both gone when it is dropped.
pub(crate) struct Server {
    port: u16,
    folder: PathBuf,
    /// What comes after our own settings.
    settings: Vec<String>,
    /// The password among them.
    password: Option<String>,
    running: Mutex<Running>,
}

/// The process, and our connection to it.
#[derive(Default)]
struct Running {
    process: Option<Process>,
    wire: Option<Wire>,
    /// How many commands this process has had from us.
    commands: u64,
    /// Where we have come from.
    addresses: Vec<SocketAddr>,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with settings as of its command line, such as `["--requirepass", "secret"]`.
    #[track_caller]
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let mut words = settings.iter();
        let password = words
            .find(|word| **word == "--requirepass")
            .and_then(|_| words.next());
        let mut log = String::new();
        for _ in 0..TRIES {
            let port = free_port();
            let name = format!("breaker-redis-{}-{port}", std::process::id());
            let server = Self {
                port,
                folder: std::env::temp_dir().join(name),
                settings: settings.iter().map(|word| (*word).to_owned()).collect(),
                password: password.map(|password| (*password).to_owned()),
                running: Mutex::default(),
            };
            fs::create_dir_all(&server.folder).unwrap();
            match server.run() {
                Ok(()) => return server,
                Err(last) => log = last,
            }
        }
        panic!("redis-server does not start: {log}");
    }

    /// Starts the process and waits until it answers. Its log, where it ends instead.
    fn run(&self) -> Result<(), String> {
        let log = self.folder.join("log");
        let mut process = Process::watched(self.spawn(&log), &self.folder);
        let patience = Patience::new();
        loop {
            if process.server.try_wait().unwrap().is_some() {
                return Err(fs::read_to_string(&log).unwrap_or_default());
            }
            let mut running = Running::default();
            // On a port that was taken in between, somebody else may answer.
            let answer = self.ask(&mut running, &["INFO", "server"]);
            let id = answer.map(|info| field(&info, "process_id"));
            if id.is_ok_and(|id| id.as_deref() == Some(&*process.server.id().to_string())) {
                running.process = Some(process);
                *self.lock() = running;
                return Ok(());
            }
            patience.nap();
        }
    }

    fn spawn(&self, log: &Path) -> Child {
        let spawned = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&self.folder)
            .arg("--logfile")
            .arg(log)
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match spawned {
            Ok(process) => process,
            Err(error) if error.kind() == io::ErrorKind::NotFound => panic!(
                "there is no redis-server on the PATH: install it, on Debian with \
                 `apt-get install redis-server`, as tests/run.sh does"
            ),
            Err(error) => panic!("redis-server: {error}"),
        }
    }

    /// The address for clients, with the password where there is one.
    pub(crate) fn url(&self) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}/", self.port),
            None => format!("redis://127.0.0.1:{}/", self.port),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends the process as a crash would, with SIGKILL. Nothing listens on the port when this returns.
    pub(crate) fn kill(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    /// Starts again on the same port, with no keys, no scripts and counters at zero; kills what still runs. A node
    /// of a cluster knows its place again.
    #[track_caller]
    pub(crate) fn restart_empty(&self) {
        self.kill();
        drop(fs::remove_file(self.folder.join("dump.rdb")));
        for _ in 0..TRIES {
            if self.run().is_ok() {
                return;
            }
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("redis-server does not start again: {log}");
    }

    /// Stops the process with SIGSTOP: connections stay, new ones are made, and nothing is answered.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        wait_until(|| self.is_stopped() != Some(false));
    }

    /// Lets a stopped process go on, with what it was sent meanwhile.
    pub(crate) fn cont(&self) {
        self.signal("CONT");
        wait_until(|| self.is_stopped() != Some(true));
    }

    fn id(&self) -> u32 {
        let running = self.lock();
        running.process.as_ref().expect("it runs").server.id()
    }

    fn signal(&self, name: &str) {
        let order = format!("kill -{name} {}", self.id());
        assert!(
            Command::new("sh")
                .args(["-c", &order])
                .status()
                .unwrap()
                .success()
        );
    }

    /// None where the system does not say.
    fn is_stopped(&self) -> Option<bool> {
        let status = fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
        let (_, after_name) = status.rsplit_once(") ")?;
        Some(after_name.starts_with('T'))
    }

    /// Sends a command and gives the answer as text: a line for each element, nothing for nil. Panics where the
    /// server refuses it.
    #[track_caller]
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        match self.try_cli(words) {
            Ok(answer) => answer,
            Err(error) => panic!("{:?}: {error}", &words[..words.len().min(4)]),
        }
    }

    /// [`cli`](Self::cli), with what the server refuses as an error.
    pub(crate) fn try_cli(&self, words: &[&str]) -> RedisResult<String> {
        self.query(words).map(|answer| text(&answer))
    }

    /// Sends a command and reads the answer as a type.
    pub(crate) fn query<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut running = self.lock();
        Ok(redis::from_redis_value(self.send(&mut running, words)?)?)
    }

    /// One field of `INFO`, such as `connected_clients`.
    #[track_caller]
    pub(crate) fn info(&self, name: &str) -> String {
        let info = self.cli(&["INFO", "everything"]);
        field(&info, name).unwrap_or_else(|| panic!("INFO has no {name}"))
    }

    /// How often a command was run since the start, by anyone, scripts included; refused ones are not counted, those
    /// that failed are. In lower case; a subcommand as `script|load`.
    #[track_caller]
    pub(crate) fn calls(&self, command: &str) -> u64 {
        self.calls_of(|name| name == command)
    }

    /// How often scripts were run or loaded: all of `EVAL`, `EVALSHA`, `FCALL` and `SCRIPT`. An `EVALSHA` of a
    /// script that the server does not know counts.
    #[track_caller]
    pub(crate) fn script_calls(&self) -> u64 {
        let families = ["eval", "fcall", "script"];
        self.calls_of(|name| families.iter().any(|family| name.starts_with(family)))
    }

    #[track_caller]
    fn calls_of(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        let info = self.cli(&["INFO", "commandstats"]);
        let lines = info.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let (calls, _) = rest.split_once(',')?;
            wanted(name).then(|| calls.parse::<u64>().unwrap())
        });
        lines.sum()
    }

    /// How many commands were run since the start, without those that were sent by this value. What scripts run
    /// counts as well, and so does what a client sends when it connects; [`monitor`](Self::monitor) tells them apart.
    pub(crate) fn commands_processed(&self) -> u64 {
        let mut running = self.lock();
        let info = self.ask(&mut running, &["INFO", "stats"]).unwrap();
        // It does not count itself yet.
        let ours = running.commands - 1;
        let all = field(&info, "total_commands_processed").unwrap();
        all.parse::<u64>().unwrap() - ours
    }

    /// Writes down what clients send from now on, in the order in which the server runs it.
    pub(crate) fn monitor(&self) -> Monitor<'_> {
        let mut wire = self.connect(&mut self.lock()).unwrap();
        wire.request(&["MONITOR"]).unwrap();
        self.lock().commands += 1;
        Monitor { server: self, wire }
    }

    fn connect(&self, running: &mut Running) -> RedisResult<Wire> {
        let wire = Wire::connect(self.port, self.password.as_deref())?;
        running.commands += u64::from(self.password.is_some());
        running.addresses.push(wire.address());
        Ok(wire)
    }

    /// Sends a command over our connection. After an error of the line, the next one gets a new connection.
    fn send(&self, running: &mut Running, words: &[&str]) -> RedisResult<Value> {
        let mut wire = match running.wire.take() {
            Some(wire) => wire,
            None => self.connect(running)?,
        };
        let answer = wire.request(words);
        running.commands += u64::from(answer.is_ok());
        if answer
            .as_ref()
            .map_or_else(|error| !error.is_io_error(), |_| true)
        {
            running.wire = Some(wire);
        }
        answer
    }

    fn ask(&self, running: &mut Running, words: &[&str]) -> RedisResult<String> {
        self.send(running, words).map(|answer| text(&answer))
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// A server that ends with this value; and with us, should nobody come to drop it.
struct Process {
    server: Child,
    /// Reads from us until we are gone.
    watcher: Child,
}

impl Process {
    fn watched(server: Child, folder: &Path) -> Self {
        let script = r#"trap "" HUP INT TERM; read -r _; kill -KILL "$1"; rm -rf "$2""#;
        let watcher = Command::new("sh")
            .args(["-c", script, "sh", &server.id().to_string()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            server,
            watcher: watcher.unwrap(),
        }
    }
}

impl Drop for Process {
    // The watcher first: the number of its server may be another's soon. Stopped processes end as well.
    fn drop(&mut self) {
        for process in [&mut self.watcher, &mut self.server] {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

/// What clients send to a server; see [`Server::monitor`].
pub(crate) struct Monitor<'a> {
    server: &'a Server,
    wire: Wire,
}

impl Monitor<'_> {
    /// The commands run since the last look, each as its words. Not what scripts run, nor what the server was sent by
    /// its own value; nor passwords and orders of an operator such as `CONFIG`, which Redis does not show.
    pub(crate) fn commands(&mut self) -> Vec<Vec<String>> {
        // Once our mark comes by, all before it has.
        let mark = format!("mark-{}", fastrand::u64(..));
        self.server.cli(&["ECHO", &mark]);
        let ours = self.server.lock().addresses.clone();
        let mut commands = Vec::new();
        loop {
            let line = text(&self.wire.read().unwrap());
            let (client, words) = seen(&line);
            if words.last() == Some(&mark) {
                return commands;
            }
            let is_ours = client.parse().is_ok_and(|client| ours.contains(&client));
            if client != "lua" && !is_ours {
                commands.push(words);
            }
        }
    }
}

/// A line of `MONITOR`, `1339518083.107412 [0 127.0.0.1:60866] "get" "a\"b"`: who, and the words.
fn seen(line: &str) -> (&str, Vec<String>) {
    let (head, tail) = line.split_once("] ").unwrap();
    let (_, client) = head.rsplit_once(' ').unwrap();
    let mut words = Vec::new();
    let mut letters = tail.chars();
    while letters.find(|letter| *letter == '"').is_some() {
        let mut word = String::new();
        loop {
            match letters.next().unwrap() {
                '"' => break,
                '\\' => match letters.next().unwrap() {
                    'n' => word.push('\n'),
                    'r' => word.push('\r'),
                    't' => word.push('\t'),
                    'x' => {
                        let digits: String = letters.by_ref().take(2).collect();
                        word.push(char::from(u8::from_str_radix(&digits, 16).unwrap()));
                    }
                    other => word.push(other),
                },
                other => word.push(other),
            }
        }
        words.push(word);
    }
    (client, words)
}

/// A value of `INFO`.
fn field(info: &str, name: &str) -> Option<String> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(field, _)| *field == name)
        .map(|(_, value)| value.to_owned())
}

fn text(answer: &Value) -> String {
    match answer {
        Value::Nil => String::new(),
        Value::Okay => "OK".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text).collect::<Vec<_>>().join("\n"),
        other => format!("{other:?}"),
    }
}
