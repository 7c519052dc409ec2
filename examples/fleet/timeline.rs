//! The processes of the fleet, and all that is heard of them, in one timeline.
//! What it means is left to `verdict.rs`.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use actix_circuit_breaker::{Cause, CircuitState, Clock, SystemClock, Timestamp};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::report::{Change, Outcome, Report};
use crate::upstream::Upstream;

pub(crate) const PROCESSES: usize = 3;

/// How long the story waits for what has to happen, on a machine however busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// For how long a line waits for older ones of other processes.
const SETTLING: Duration = Duration::from_millis(40);

/// What is known of one process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) changes: Vec<Change>,
    pub(crate) outcomes: BTreeMap<u64, Outcome>,
    /// How many calls ended a second time.
    pub(crate) ended_twice: usize,
    /// When it was on its own: from, to, and the number of its newest call at the end.
    pub(crate) alone: Vec<(Timestamp, Option<(Timestamp, u64)>)>,
    /// How many calls it made, once it has ended.
    pub(crate) asked: Option<u64>,
}

impl Process {
    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.values().filter(|it| **it == outcome).count()
    }

    pub(crate) fn is(&self, state: CircuitState) -> bool {
        self.changes.last().is_some_and(|last| last.to == state)
    }

    /// How it came out of the closed state the last time.
    pub(crate) fn opening(&self) -> Option<&Change> {
        let mut changes = self.changes.iter().rev();
        changes.find(|change| change.cause == Cause::Tripped)
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.alone.last().is_some_and(|(_, end)| end.is_none())
    }

    pub(crate) fn was_alone(&self, from: Timestamp, to: Timestamp) -> bool {
        let mut spans = self.alone.iter();
        spans.any(|(began, end)| *began <= to && end.is_none_or(|(end, _)| end > from))
    }
}

/// A child that ends with this value, or with its parent: then its input ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub(crate) struct Fleet {
    pub(crate) processes: Vec<Process>,
    pub(crate) upstream: Upstream,
    clock: SystemClock,
    began: Timestamp,
    running: Vec<Running>,
    reports: mpsc::UnboundedReceiver<(usize, Report)>,
    /// Lines that were not printed yet.
    lines: Vec<(Timestamp, String, String)>,
    /// Whether what happens is written down line by line.
    told: bool,
    /// How many requests of the upstream have been looked at.
    looked_at: usize,
}

impl Fleet {
    /// Starts the processes; the clock is the one of the upstream.
    pub(crate) fn start(redis: &str, upstream: Upstream, clock: SystemClock) -> io::Result<Self> {
        let (sender, reports) = mpsc::unbounded_channel();
        let mut running = Vec::new();
        for process in 0..PROCESSES {
            let address: SocketAddr = upstream.address;
            let mut child = Command::new(env::current_exe()?)
                .args(["worker", &process.to_string(), redis, &address.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let output = child.stdout.take();
            running.push(Running(child));
            let sender = sender.clone();
            std::thread::spawn(move || {
                let lines = output.into_iter().flat_map(|it| BufReader::new(it).lines());
                for line in lines.map_while(Result::ok) {
                    match serde_json::from_str(&line) {
                        Ok(report) => drop(sender.send((process, report))),
                        Err(_) => println!("process {}: {line}", process + 1),
                    }
                }
            });
        }
        Ok(Self {
            processes: (0..PROCESSES).map(|_| Process::default()).collect(),
            upstream,
            began: clock.now(),
            clock,
            running,
            reports,
            lines: Vec::new(),
            told: true,
            looked_at: 0,
        })
    }

    /// Has what happens to the breakers printed line by line, or not.
    pub(crate) fn tell_all(&mut self, told: bool) {
        self.print_until(self.clock.now());
        self.told = told;
    }

    /// Takes in what happens, until this is so.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        is_so: impl Fn(&[Process]) -> bool,
    ) -> Result<(), Box<dyn Error>> {
        let deadline = self.clock.now() + PATIENCE;
        while !is_so(&self.processes) {
            let now = self.clock.now();
            if now >= deadline {
                self.print_until(now);
                return Err(format!("waited {PATIENCE:?} in vain until {what}").into());
            }
            self.take_in(Duration::from_millis(20)).await;
            for (at, (running, known)) in self.running.iter_mut().zip(&self.processes).enumerate() {
                // What it said last may still be on its way.
                if known.asked.is_none()
                    && let Some(status) = running.0.try_wait()?
                    && !status.success()
                {
                    return Err(format!("process {} is gone: {status}", at + 1).into());
                }
            }
        }
        Ok(())
    }

    /// Takes in what happens in that time.
    pub(crate) async fn pass(&mut self, span: Duration) {
        let end = self.clock.now() + span;
        while self.clock.now() < end {
            self.take_in(end.since(self.clock.now()).min(SETTLING))
                .await;
        }
    }

    /// Takes in the next report, if one comes in that time.
    async fn take_in(&mut self, span: Duration) {
        match timeout(span, self.reports.recv()).await {
            Ok(Some((process, report))) => self.note(process, report),
            // All processes are gone.
            Ok(None) => sleep(span).await,
            Err(_) => {}
        }
        let now = self.clock.now();
        self.print_until(Timestamp::from_micros(
            now.as_micros() - u64::try_from(SETTLING.as_micros()).unwrap_or(0),
        ));
    }

    fn note(&mut self, process: usize, report: Report) {
        let Some(known) = self.processes.get_mut(process) else {
            return;
        };
        let who = format!("process {}", process + 1);
        match report {
            Report::Call { number, outcome } => {
                if known.outcomes.insert(number, outcome).is_some() {
                    known.ended_twice += 1;
                }
            }
            Report::Change(change) => {
                let Change {
                    from,
                    to,
                    cause,
                    until,
                    ..
                } = &change;
                let what = match until {
                    _ if from == to => format!("is {to}"),
                    Some(until) => {
                        let until = until.since(self.began).as_secs_f64();
                        format!("{from} -> {to}, {cause}, until {until:.2} s")
                    }
                    None => format!("{from} -> {to}, {cause}"),
                };
                if self.told {
                    self.lines.push((change.at, who, what));
                }
                known.changes.push(change);
            }
            Report::Lost { at, error } => {
                known.alone.push((at, None));
                self.lines.push((at, who, format!("on its own: {error}")));
            }
            Report::Found { at, away, asked } => {
                if let Some((_, end)) = known.alone.last_mut() {
                    *end = Some((at, asked));
                }
                let what = format!("shares again, after {:.2} s", away.as_secs_f64());
                self.lines.push((at, who, what));
            }
            Report::End { asked } => known.asked = Some(asked),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How long after the beginning that is, in seconds.
    pub(crate) fn seconds(&self, at: Timestamp) -> f64 {
        at.since(self.began).as_secs_f64()
    }

    /// Adds a line of the story.
    pub(crate) fn say(&mut self, who: &str, what: impl Into<String>) {
        self.lines
            .push((self.clock.now(), who.to_owned(), what.into()));
    }

    /// Adds the requests that had reached the upstream by then while nobody was closed: probes, that is.
    fn look_at_upstream(&mut self, end: Timestamp) {
        for arrival in self.upstream.arrivals(self.looked_at) {
            if arrival.came > end {
                break;
            }
            self.looked_at += 1;
            let is_probe = self.processes.iter().enumerate().all(|(at, process)| {
                let asked = process.opening().map_or(0, |opening| opening.asked);
                let mut changes = process.changes.iter().rev();
                let state = changes.find(|it| it.at <= arrival.came).map(|it| it.to);
                state.is_some_and(|it| it != CircuitState::Closed)
                    && (at != arrival.process || arrival.number > asked)
            });
            if is_probe && self.told {
                let ends = if arrival.well { "ok" } else { "failed" };
                let what = format!("a probe of process {}: {ends}", arrival.process + 1);
                self.lines.push((arrival.came, "upstream".to_owned(), what));
            }
        }
    }

    fn print_until(&mut self, end: Timestamp) {
        self.look_at_upstream(end);
        self.lines.sort_by_key(|(at, ..)| *at);
        let ready = self.lines.partition_point(|(at, ..)| *at <= end);
        for (at, who, what) in self.lines.drain(..ready) {
            let at = at.since(self.began).as_secs_f64();
            println!("{at:>7.3} s  {who:<9}  {what}");
        }
    }

    /// Has the processes end: they make no new calls, and wait for those that are under way.
    pub(crate) async fn stop(&mut self) -> Result<(), Box<dyn Error>> {
        for running in &mut self.running {
            if let Some(input) = &mut running.0.stdin {
                input.write_all(b"stop\n")?;
            }
        }
        let ended = |processes: &[Process]| processes.iter().all(|it| it.asked.is_some());
        self.until("all processes have ended", ended).await?;
        self.print_until(self.clock.now());
        Ok(())
    }
}
