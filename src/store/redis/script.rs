//! The script that makes a step, and what it is given: the step, and what it needs of the settings.
//! The rules are in the files of Lua; [`Stored`](crate::circuit::Stored) is their reference (R34).

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Cmd, Script, cmd};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::{Action, Step, StoreError, View};
use crate::clock::micros;
use crate::config::{BreakerConfig, span};
use crate::policy::{TripPolicy, Window};
use crate::random::draw;

/// One script, so that a step is one round trip and one unit.
const TEXT: &str = concat!(
    include_str!("numbers.lua"),
    include_str!("window.lua"),
    include_str!("read.lua"),
    include_str!("circuit.lua"),
    include_str!("view.lua"),
    include_str!("write.lua"),
    include_str!("step.lua"),
);

/// Proves that scripts may write here, and asks for the time; no rule depends on it.
const CONTACT: &str = "redis.call('SET', KEYS[1], '', 'PX', ARGV[1]) return redis.call('TIME')";

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(TEXT));

/// A call of the script by its hash, and the same with its text for a server that does not know it yet.
#[derive(Debug, Clone)]
pub(super) struct Call {
    keys: [String; 3],
    input: String,
}

impl Call {
    pub(super) fn new(
        keys: [String; 3],
        channel: &str,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: &Step,
    ) -> Result<Self, StoreError> {
        let breaker = json(breaker)?;
        let input = Input {
            step: &plausible(step.clone()),
            rules: Rules::of(config),
            channel,
            told: &format!(r#"{{"breaker":{breaker},"by":{},"view":"#, step.process),
        };
        Ok(Self {
            keys,
            input: json(&input)?,
        })
    }

    pub(super) fn by_hash(&self) -> Cmd {
        self.with("EVALSHA", SCRIPT.get_hash())
    }

    pub(super) fn with_text(&self) -> Cmd {
        self.with("EVAL", TEXT)
    }

    fn with(&self, name: &str, script: &str) -> Cmd {
        let mut call = cmd(name);
        call.arg(script)
            .arg(self.keys.len())
            .arg(&self.keys)
            .arg(&self.input);
        call
    }
}

/// The command that finds out whether a server takes writes, and what time it has.
pub(super) fn contact(key: &str, ttl: Duration) -> Cmd {
    let mut call = cmd("EVAL");
    call.arg(CONTACT)
        .arg(1)
        .arg(key)
        .arg(ttl.as_millis().to_string());
    call
}

/// Reads what the script answered.
pub(super) fn read_view(answer: &[u8]) -> Result<View, StoreError> {
    read(answer)
}

/// A change as the script tells it.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    pub(super) breaker: Arc<str>,
    pub(super) by: u64,
    pub(super) view: View,
}

pub(super) fn read_told(message: &[u8]) -> Result<Told, StoreError> {
    read(message)
}

/// Bytes that are no text are replaced: an operator's reason may have been written by something else.
fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, StoreError> {
    let text = String::from_utf8_lossy(answer);
    serde_json::from_str(&text).map_err(|error| StoreError::Unreadable(error.to_string().into()))
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<String, StoreError> {
    // Nothing that is written here can fail; if it does, it is told.
    serde_json::to_string(value).map_err(|error| StoreError::Unreadable(error.to_string().into()))
}

/// A step as the script can read it: with a number that is one, and a ttl out of range as one that is refused.
fn plausible(mut step: Step) -> Step {
    let random = step.random;
    step.random = draw(&move || random).unwrap_or_default();
    if let Action::Force { ttl: Some(ttl), .. } = &mut step.action
        && span("ttl", *ttl).is_err()
    {
        *ttl = Duration::ZERO;
    }
    step
}

#[derive(Serialize)]
struct Input<'a> {
    step: &'a Step,
    rules: Rules,
    channel: &'a str,
    /// How a message to the others begins; the view and a brace follow.
    told: &'a str,
}

/// What the script needs of the settings: spans in whole microseconds.
#[derive(Serialize)]
struct Rules {
    /// What the window remembers.
    memory: &'static str,
    custom: bool,
    /// How many failures trip, where they are counted.
    failures: Option<u32>,
    lookback: Option<u64>,
    success_forgets: bool,
    rate: Option<f64>,
    slow_rate: Option<f64>,
    minimum_calls: Option<u32>,
    window_calls: Option<u32>,
    break_duration: u64,
    factor: Option<f64>,
    /// The longest break, jitter apart.
    longest: Option<u64>,
    jitter: f64,
    longest_break: u64,
    max_probes: u32,
    successes_to_close: u32,
    max_inconclusive: u32,
    ramp_up: Option<u64>,
    margin: u64,
}

impl Rules {
    fn of(config: &BreakerConfig) -> Self {
        let backoff = config.backoff();
        let mut rules = Self {
            memory: "instants",
            custom: false,
            failures: None,
            lookback: config.lookback().map(micros),
            success_forgets: config.success_forgets(),
            rate: None,
            slow_rate: None,
            minimum_calls: None,
            window_calls: None,
            break_duration: micros(config.break_duration()),
            factor: backoff.map(|backoff| backoff.factor),
            longest: backoff.map(|backoff| micros(backoff.max)),
            jitter: config.jitter(),
            longest_break: micros(config.longest_break()),
            max_probes: config.max_probes(),
            successes_to_close: config.successes_to_close(),
            max_inconclusive: config.max_inconclusive(),
            ramp_up: config.ramp_up().map(|ramp_up| micros(ramp_up.duration)),
            margin: micros(config.margin()),
        };
        match config.trip() {
            TripPolicy::ConsecutiveFailures { failures, within } => {
                if within.is_none() {
                    rules.memory = "run";
                }
                rules.failures = Some(*failures);
            }
            TripPolicy::FailureCount { failures, .. } => rules.failures = Some(*failures),
            TripPolicy::FailureRate {
                rate,
                minimum_calls,
                window,
                slow_call,
            } => {
                rules.rate = Some(*rate);
                rules.slow_rate = slow_call.map(|slow| slow.rate);
                rules.minimum_calls = Some(*minimum_calls);
                match window {
                    Window::Calls(calls) => {
                        rules.memory = "calls";
                        rules.window_calls = Some(*calls);
                    }
                    Window::Time(_) => rules.memory = "buckets",
                }
            }
            TripPolicy::Custom(_) => rules.custom = true,
        }
        rules
    }
}
