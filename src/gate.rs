//! What the breaker's actor publishes to its handles, and what they leave for it without a message.
//! The gate decides nothing: it repeats the circuit's last word, which may be one message old.
//!
//! # Memory order
//!
//! The actor is the only writer of [`Gate::word`] and of the deadlines. Each publication first stores
//! the deadline of the new word into the slot that the present word does *not* name (release), then
//! stores the word (`SeqCst`, hence release). A handle loads the word (acquire), the deadline in the slot
//! it names (acquire), and the word again. If the deadline was overwritten meanwhile, it was for the
//! word after the next one, whose store comes after that of the next word; so the second load sees at
//! least the next word, whose slot differs, and the handle tries again. It never pairs a state with
//! another state's deadline.
//!
//! Successes that a rate policy counts are added to a stripe (`SeqCst`) before the word is loaded
//! (`SeqCst`); the actor stores a word that asks for reports (`SeqCst`) before it folds the stripes once
//! more (`SeqCst`). In the one order of all four, either the handle sees the request or the actor sees
//! the success, so none that could trip is overlooked.
//!
//! Who counts or leaves something and then finds that the actor is asked to look already asks no more.
//! The actor ends that (`SeqCst`) before it looks; what was left, the mark on the letterbox and the
//! request are all in the same one order, so it finds what it was not asked for once more.
//!
//! A message that may wait goes straight to its target only if nothing is on its way to the actor, and then
//! the word says that nothing waits. The actor takes a message off the count (`AcqRel`) after it published
//! that it waits, and publishes that nothing waits after it sent the last. So who finds the count at zero
//! (acquire), and only then loads the word (acquire), overtakes none of its own.
//!
//! `gate/model.rs` has loom check all this:
//! `RUSTFLAGS="--cfg breaker_loom" cargo test --release --lib gate::model`.

mod end;
mod letters;
mod meter;
#[cfg(all(test, breaker_loom))]
mod model;
mod stripe;
mod sync;
mod word;

use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

pub(crate) use end::{End, Took};
pub(crate) use letters::{Held, Left, Letters, OnItsWay, Taken, end_of_drop};
pub(crate) use meter::{Account, Meter};
#[cfg(feature = "metrics")]
pub(crate) use meter::{Change, Counts};
pub(crate) use word::{Flags, Word};

use crate::caught::quietly;
use crate::circuit::{CircuitState, Panicked, Permit, Reason};
use crate::clock::{Clock, Timestamp, micros};
use crate::config::BreakerConfig;
use crate::error::{Dial, Origin, Rejected};
use crate::random::RandomSource;
use crate::report;
use stripe::Stripes;
use sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};

/// Stands for "no instant"; above every [`Timestamp`].
const NEVER: u64 = u64::MAX;

/// Every so many rejections on a stripe, one looks at the clock: the net under a lost timer.
const LOOK_EVERY: u64 = 64;

/// How many settlements may wait for the actor as messages of their own; more are added up. And how many
/// questions may wait, if fewer probes may run; more are rejected.
const MOST_ON_THEIR_WAY: u32 = 1024;

/// After what time a caller should come again whose question found no room.
const NO_ROOM_RETRY: Duration = Duration::from_secs(1);

/// What the actor publishes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notice {
    pub(crate) state: CircuitState,
    pub(crate) epoch: u64,
    pub(crate) flags: Flags,
    /// When the state ends by itself.
    pub(crate) until: Option<Timestamp>,
    /// When a closed circuit remembers nothing any more.
    pub(crate) empty_at: Option<Timestamp>,
}

/// What a handle finds.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The call may go straight to its target.
    Pass(Word),
    /// The call is rejected right here.
    Reject(Rejected),
    /// The mailbox decides.
    Ask(OnItsWay),
}

/// How many calls ended without a message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unsent {
    pub(crate) rejected: u64,
    pub(crate) late: u64,
    pub(crate) ignored: u64,
    /// Those that were refused and went to their targets all the same, whoever found so.
    pub(crate) simulated: u64,
}

/// The part of a breaker that its actor and its handles share.
pub(crate) struct Gate {
    word: AtomicU64,
    deadlines: [AtomicU64; 2],
    call_timeout: AtomicU64,
    /// The limit on slow calls in microseconds; [`NEVER`] without one.
    slow_call: AtomicU64,
    empty_at: AtomicU64,
    /// Whether the actor's timers mark deadlines; else handles look at the clock themselves.
    timed: bool,
    /// Whether a request to fold the stripes is under way.
    sampling: AtomicBool,
    warned: AtomicBool,
    /// Whether the actor is gone for good.
    retired: AtomicBool,
    /// Settlements on their way to the actor.
    owed: AtomicU32,
    /// Questions on their way to the actor: asks to be made by it, and permits to be given out.
    asked: AtomicU32,
    /// How many permits are held outside the actor: of probes, and of the asks it makes itself.
    held: AtomicU32,
    restarts: AtomicU32,
    stripes: Stripes,
    meter: Meter,
    /// In whose name calls are rejected, and which of those that are refused.
    origin: Arc<Origin>,
    /// Whether there is something in `letters`.
    has_letters: AtomicBool,
    letters: Mutex<Option<Box<Letters>>>,
    config: Mutex<BreakerConfig>,
    watch: OnceLock<watch::Sender<CircuitState>>,
}

impl Gate {
    pub(crate) fn new(
        name: &Arc<str>,
        clock: &Arc<dyn Clock>,
        random: &Arc<dyn RandomSource>,
        config: BreakerConfig,
        timed: bool,
        notice: Notice,
        meter: Meter,
    ) -> Self {
        let gate = Self {
            word: AtomicU64::new(Word::new(notice.state, notice.epoch, notice.flags).bits()),
            // The first word names the even one.
            deadlines: [
                AtomicU64::new(notice.until.map_or(NEVER, Timestamp::as_micros)),
                AtomicU64::new(NEVER),
            ],
            call_timeout: AtomicU64::new(0),
            slow_call: AtomicU64::new(NEVER),
            empty_at: AtomicU64::new(notice.empty_at.map_or(NEVER, Timestamp::as_micros)),
            timed,
            sampling: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            owed: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            retired: AtomicBool::new(false),
            held: AtomicU32::new(0),
            restarts: AtomicU32::new(0),
            stripes: Stripes::new(notice.epoch),
            meter,
            origin: Origin::new(
                Arc::clone(name),
                Arc::clone(clock),
                Dial::new(Arc::clone(random)),
            ),
            has_letters: AtomicBool::new(false),
            letters: Mutex::default(),
            config: Mutex::new(config.clone()),
            watch: OnceLock::new(),
        };
        gate.set_config(config);
        gate
    }

    // For handles.

    #[inline]
    pub(crate) fn load(&self) -> Word {
        Word::from_bits(self.word.load(Ordering::Acquire))
    }

    /// Decides by the published state, as `word` showed it not to be passed; counts what it rejects.
    #[expect(
        clippy::inline_always,
        reason = "counted: inlined with `admit`, a rejected call takes 111 instructions, not 145"
    )]
    #[inline(always)]
    pub(crate) fn admit_restrained(self: &Arc<Self>, mut word: Word) -> Admission {
        loop {
            if word.asks() || word.has(Flags::DUE) {
                return self.admit_rarely(word);
            }
            let reason = match word.state() {
                CircuitState::Open => Reason::Open,
                CircuitState::ForcedOpen => Reason::ForcedOpen,
                // Half-open has asked above.
                CircuitState::Closed | CircuitState::ForcedClosed | CircuitState::HalfOpen => {
                    return Admission::Pass(word);
                }
            };
            let until = self.deadline(word).load(Ordering::Acquire);
            let again = self.load();
            if again != word {
                word = again;
                continue;
            }
            let rejecting = self.stripes.for_rejection();
            let looks = !self.timed || word.has(Flags::NEAR) || rejecting.is_nth(LOOK_EVERY);
            if looks && self.is_over(until) {
                return self.question(word);
            }
            rejecting.count();
            self.meter.reject(reason);
            let until = (until != NEVER).then(|| Timestamp::from_micros(until));
            return Admission::Reject(Rejected::new(&self.origin, reason, word.epoch(), until));
        }
    }

    /// Decides where the word does not tell.
    #[cold]
    fn admit_rarely(self: &Arc<Self>, word: Word) -> Admission {
        let dialled = word.is_dialled() && !word.has(Flags::DUE);
        let admission = dialled.then(|| self.admit_dialled(word)).flatten();
        admission.unwrap_or_else(|| self.question(word))
    }

    /// Decides about a call that an open breaker refuses and may not reject (R37); `None` if the break is over
    /// or the word is no longer the present one, so that the mailbox has to decide.
    fn admit_dialled(&self, word: Word) -> Option<Admission> {
        let until = self.deadline(word).load(Ordering::Acquire);
        if self.load() != word {
            return None;
        }
        let rejecting = self.stripes.for_rejection();
        // Those that are not rejected are not counted among those that are.
        let looks = !self.timed
            || word.has(Flags::NEAR)
            || rejecting.is_nth(LOOK_EVERY)
            || self.stripes.mine().is_nth_simulated(LOOK_EVERY);
        if looks && self.is_over(until) {
            return None;
        }
        if self.spares(Reason::Open) {
            return Some(Admission::Pass(Word::SPARED));
        }
        rejecting.count();
        let until = (until != NEVER).then(|| Timestamp::from_micros(until));
        Some(Admission::Reject(self.rejection(
            Reason::Open,
            word.epoch(),
            until,
        )))
    }

    /// Draws whether a call that is refused for `reason` goes to its target all the same, and counts it then
    /// (R37).
    pub(crate) fn spares(&self, reason: Reason) -> bool {
        let panicked = || report::decision_panicked(self.name(), Panicked::RandomSource);
        let spares = self.origin.dial.spares(reason, panicked);
        if spares {
            self.stripes.mine().simulated();
            self.meter.simulate(reason);
        }
        spares
    }

    /// The share of refused calls that is rejected.
    pub(crate) fn enforcement(&self) -> f64 {
        self.origin.dial.share()
    }

    /// Whether nothing is rejected for `reason`.
    pub(crate) fn spares_all(&self, reason: Reason) -> bool {
        self.origin.dial.spares_all(reason)
    }

    /// Leaves the decision to the mailbox. Where too many wait for one already, which means that the
    /// actor's arbiter is blocked, there cannot be a probe for all of them; nor is it the time to send
    /// more calls after a recovery.
    #[cold]
    fn question(self: &Arc<Self>, word: Word) -> Admission {
        let config = self.config();
        let most = config.max_probes().max(MOST_ON_THEIR_WAY);
        if let Some(question) = OnItsWay::new(self, |gate| &gate.asked, most) {
            return Admission::Ask(question);
        }
        // Without a ramp-up it is a closed breaker that asks its store first, and would let all of them pass.
        if word.is_ramping() && config.ramp_up().is_none() {
            return Admission::Pass(word);
        }
        let reason = if word.is_ramping() {
            Reason::RampUp
        } else {
            Reason::ProbesInUse
        };
        if self.spares(reason) {
            return Admission::Pass(Word::SPARED);
        }
        self.stripes.for_rejection().count();
        let until = Some(self.clock().now() + NO_ROOM_RETRY);
        self.meter.reject(reason);
        let rejected = Rejected::new(&self.origin, reason, word.epoch(), until);
        Admission::Reject(rejected)
    }

    /// Whether questions are on their way to the actor. Who finds none sees all that came of those before.
    pub(crate) fn has_questions(&self) -> bool {
        self.asked.load(Ordering::Acquire) > 0
    }

    /// Announces a message that may wait where `capacity` may; `None` if too many are on their way.
    pub(crate) fn ask_to_hold(self: &Arc<Self>, capacity: u32) -> Option<OnItsWay> {
        OnItsWay::new(self, |gate| &gate.asked, capacity.max(MOST_ON_THEIR_WAY))
    }

    /// Whether the clock has reached `until`.
    #[cold]
    fn is_over(&self, until: u64) -> bool {
        until <= self.clock().now().as_micros()
    }

    #[inline]
    fn deadline(&self, word: Word) -> &AtomicU64 {
        let [even, odd] = &self.deadlines;
        if word.has(Flags::ODD) { odd } else { even }
    }

    /// Counts a success of `epoch` on the thread's stripe.
    #[inline]
    pub(crate) fn tally(&self, epoch: u64) {
        if !self.stripes.mine().tally(epoch) {
            self.meter.late();
        }
    }

    /// The word, in the one order with [`tally`](Self::tally).
    #[inline]
    pub(crate) fn load_after_tally(&self) -> Word {
        Word::from_bits(self.word.load(Ordering::SeqCst))
    }

    /// Claims the right to ask the actor to fold the stripes; `false` if somebody has it.
    pub(crate) fn begin_sampling(&self) -> bool {
        // Who finds it under way has counted before; the actor ends it before it folds. A load tells as
        // well as a swap, in the same one order, and does not take the line from others.
        !self.sampling.load(Ordering::SeqCst) && !self.sampling.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn count_late(&self) {
        self.stripes.mine().late();
        self.meter.late();
    }

    pub(crate) fn count_ignored(&self) {
        self.stripes.mine().ignored();
        self.meter.ignored();
    }

    pub(crate) fn call_timeout(&self) -> Duration {
        Duration::from_micros(self.call_timeout.load(Ordering::Relaxed))
    }

    /// How much of its time a probe has had, on a clock that timers follow.
    pub(crate) fn spent(&self, probe: &Held) -> Duration {
        match probe.admitted() {
            Some(admitted) if self.clock().drives_timers() => self.clock().now().since(admitted),
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn slow_call(&self) -> Option<Duration> {
        let limit = self.slow_call.load(Ordering::Relaxed);
        (limit != NEVER).then(|| Duration::from_micros(limit))
    }

    pub(crate) fn config(&self) -> BreakerConfig {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        config.clone()
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.origin.name
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.origin.clock
    }

    /// Whether this gate's breaker made a rejection.
    pub(crate) fn rejected(&self, rejected: &Rejected) -> bool {
        rejected.is_by(&self.origin)
    }

    /// The state as a caller meets it: a breaker whose actor is gone for good lets all calls pass.
    pub(crate) fn state(&self) -> CircuitState {
        if self.is_retired() {
            CircuitState::Closed
        } else {
            self.load().state()
        }
    }

    /// What the actor published last: the state, and when it ends by itself.
    pub(crate) fn published(&self) -> (CircuitState, Option<Timestamp>) {
        let mut word = self.load();
        loop {
            let until = self.deadline(word).load(Ordering::Acquire);
            let again = self.load();
            if again == word {
                let until = (until != NEVER).then(|| Timestamp::from_micros(until));
                return (word.state(), until);
            }
            word = again;
        }
    }

    /// Announces one question after the state; `None` if too many wait already.
    pub(crate) fn inquire(self: &Arc<Self>) -> Option<OnItsWay> {
        OnItsWay::new(self, |gate| &gate.asked, MOST_ON_THEIR_WAY)
    }

    /// Whether the actor's timers mark deadlines.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Makes known that the actor is gone for good.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.refresh_watch();
    }

    /// `true` the first time.
    pub(crate) fn warn_once(&self) -> bool {
        !self.warned.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn watch(&self) -> watch::Receiver<CircuitState> {
        let sender = self.watch.get_or_init(|| watch::Sender::new(self.state()));
        let receiver = sender.subscribe();
        // The actor may have published before it could see the sender.
        self.refresh_watch();
        receiver
    }

    /// Under the sender's lock, so that of two refreshes the later one reads the later word.
    fn refresh_watch(&self) {
        if let Some(sender) = self.watch.get() {
            // It wakes receivers, whose wakers may panic (R26).
            quietly(|| {
                sender.send_if_modified(|shown| {
                    let state = self.state();
                    std::mem::replace(shown, state) != state
                });
            });
        }
    }

    /// Announces one settlement by message; `None` if too many are under way.
    pub(crate) fn owe(self: &Arc<Self>) -> Option<OnItsWay> {
        OnItsWay::new(self, |gate| &gate.owed, MOST_ON_THEIR_WAY)
    }

    /// Leaves something for the actor to find before its next message.
    pub(crate) fn leave(&self, write: impl FnOnce(&mut Letters)) {
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        write(letters.get_or_insert_default());
        // Under the lock, so that it is never lost between a letter and the emptying of the box.
        self.has_letters.store(true, Ordering::SeqCst);
    }

    /// Tells whether the breaker could be forgotten without a difference: it is closed and, at `now`,
    /// remembers nothing, and nothing is under way to its actor or by it.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        // In this order: what is handled meanwhile is seen in what is read after it. What the actor took
        // out and has not handled yet is seen in `empty_at`, the last.
        self.asked.load(Ordering::Acquire) == 0
            && !self.load().has(Flags::WAITING)
            && self.held.load(Ordering::Acquire) == 0
            && self.owed.load(Ordering::Acquire) == 0
            && !self.has_letters.load(Ordering::Acquire)
            && self.stripes.tallied() == 0
            && self.load().state() == CircuitState::Closed
            && self.empty_at.load(Ordering::Acquire) <= now.as_micros()
    }

    /// Whether something was left for the actor.
    pub(crate) fn has_letters(&self) -> bool {
        self.has_letters.load(Ordering::Acquire)
    }

    /// Whether nothing was left for the actor, and nobody watches.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_letters()
            && self.stripes.tallied() == 0
            && self.watch.get().is_none_or(watch::Sender::is_closed)
    }

    pub(crate) fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        self.meter.restarted();
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed).into()
    }

    // For the actor alone.

    /// Makes the circuit's state known. Returns the successes of the epoch that ended with it which
    /// nobody had folded.
    pub(crate) fn publish(&self, notice: Notice) -> u64 {
        let present = self.load();
        let unfolded = if present.epoch() == notice.epoch {
            0
        } else {
            self.stripes.begin_epoch(notice.epoch)
        };
        self.empty_at.store(
            notice.empty_at.map_or(NEVER, Timestamp::as_micros),
            Ordering::Release,
        );
        let until = notice.until.map_or(NEVER, Timestamp::as_micros);
        let same_slot = Flags::ODD.when(present.has(Flags::ODD));
        let unchanged = Word::new(notice.state, notice.epoch, notice.flags.with(same_slot));
        if unchanged == present && self.deadline(present).load(Ordering::Relaxed) == until {
            return unfolded;
        }
        let slot = Flags::ODD.without(same_slot);
        let next = Word::new(notice.state, notice.epoch, notice.flags.with(slot));
        self.deadline(next).store(until, Ordering::Release);
        self.word.store(next.bits(), Ordering::SeqCst);
        self.refresh_watch();
        unfolded
    }

    /// Empties the letterbox.
    #[inline]
    pub(crate) fn take_letters(&self) -> Option<Taken> {
        if !self.has_letters.load(Ordering::SeqCst) {
            return None;
        }
        let mut letters = self.letters.lock().unwrap_or_else(PoisonError::into_inner);
        self.remember();
        self.has_letters.store(false, Ordering::SeqCst);
        letters.take().map(|letters| letters.taken())
    }

    /// Takes the successes of the present epoch that were counted on the stripes.
    pub(crate) fn fold(&self) -> u64 {
        if self.stripes.tallied() == 0 {
            return 0;
        }
        self.remember();
        self.stripes.fold(self.load().epoch())
    }

    /// Before something is taken out of the gate: until the next publication, which tells what the
    /// circuit made of it, the breaker is not idle.
    fn remember(&self) {
        self.empty_at.store(NEVER, Ordering::Relaxed);
    }

    pub(crate) fn end_sampling(&self) {
        self.sampling.store(false, Ordering::SeqCst);
    }

    pub(crate) fn set_config(&self, config: BreakerConfig) {
        self.call_timeout
            .store(micros(config.call_timeout()), Ordering::Relaxed);
        self.slow_call.store(
            config
                .slow_call()
                .map_or(NEVER, |slow| micros(slow.duration)),
            Ordering::Relaxed,
        );
        self.origin.dial.set(config.enforcement());
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// A rejection by the circuit, as its caller gets it.
    pub(crate) fn rejection(
        &self,
        reason: Reason,
        epoch: u64,
        until: Option<Timestamp>,
    ) -> Rejected {
        self.meter.reject(reason);
        Rejected::new(&self.origin, reason, epoch, until)
    }

    /// A probe's permit that gives its slot back when it is dropped.
    pub(crate) fn hold(self: &Arc<Self>, permit: Permit) -> Held {
        Held::new(Arc::clone(self), permit)
    }

    pub(crate) fn unsent(&self) -> Unsent {
        self.stripes.unsent()
    }

    /// What counts for people, and is empty without the feature `metrics`.
    #[inline]
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    fn held(&self) -> &AtomicU32 {
        &self.held
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("name", self.name())
            .field("word", &self.load())
            .finish_non_exhaustive()
    }
}
