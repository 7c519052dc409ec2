//! Where the members of a family are kept, by key: awake while somebody holds them, else at rest.
//! What a member is, and what is kept of one at rest, is left to others.
//!
//! Each shard is locked for a moment by whoever looks a member up. Before that, a count of the members
//! with a like hash tells of most keys that there is nothing to be found.

#[cfg(feature = "metrics")]
mod states;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::rest::{Fate, Rest};
use crate::actor::BreakerActor;
use crate::breaker::{Breaker, can_wake};
use crate::clock::Timestamp;
use crate::config::BreakerConfig;
use crate::message::Sampled;
use crate::policy::TripPolicy;

/// How many locks there are; a power of two.
const SHARDS: usize = 16;

/// How many counts of members there are; a power of two. Each key has two of them.
const COUNTS: usize = 1 << 14;

/// How many members in turn are looked at for each that wakes, so that those that nobody holds any more
/// never pile up.
const LOOKED_AT: usize = 2;

/// How often a full table is searched for records that do not matter any more.
const PURGE_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Table {
    shards: [Mutex<Shard>; SHARDS],
    /// How many members there are of each hash.
    counts: Box<[AtomicU32]>,
    members: AtomicUsize,
    max: usize,
    purged_at: AtomicU64,
    /// The highest epoch of a member that was forgotten; 0 for none.
    highest_epoch: AtomicU64,
    /// Whether successes are samples, so that every call leaves something to remember.
    counts_successes: AtomicBool,
    /// Whether a success makes a closed breaker forget its failures.
    success_forgets: AtomicBool,
}

#[derive(Default)]
struct Shard {
    slots: HashMap<Arc<str>, Slot>,
    /// The members that are awake, in the order in which they are looked at. Some were put away since.
    awake: VecDeque<(Arc<str>, Turn)>,
    next: Turn,
}

/// Tells one waking of a member from another.
type Turn = u64;

enum Slot {
    Awake(Breaker, Turn),
    AtRest(Box<Rest>),
}

/// A member, to be looked at where it is.
pub(super) enum Seen<'a> {
    Awake(&'a Breaker),
    AtRest(&'a Rest),
}

pub(super) enum Found {
    Known(Breaker),
    /// It was made or woken now.
    Woken(Breaker),
}

/// Where a key belongs.
#[derive(Clone, Copy)]
struct Place(u64);

impl Place {
    /// By a hash that is quick and no more. Keys of a like hash cost each other a look under a lock; the
    /// maps, where they could cost more, have a hash of their own with a secret.
    #[inline]
    fn of(key: &str) -> Self {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: [u8; 8]| {
            let hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
            hash ^ (hash >> 32)
        };
        let key = key.as_bytes();
        let (words, rest) = key.as_chunks();
        let hash = words.iter().fold(0, |hash, word| mix(hash, *word));
        // The end, with what lies before it where there is something.
        let end = key.last_chunk().copied().unwrap_or_else(|| short(rest));
        let hash = mix(hash, end);
        Self(hash >> 24)
    }

    /// Which counts a key has, by different bits of its hash.
    #[inline]
    fn counts(self) -> [usize; 2] {
        [index(self.0 >> 16, COUNTS), index(self.0, COUNTS)]
    }

    fn shard(self) -> usize {
        index(self.0 >> 16, SHARDS)
    }
}

/// The last bits of a hash, as an index into so many, which is a power of two.
#[inline]
fn index(hash: u64, length: usize) -> usize {
    usize::try_from(hash & u64::from(u32::MAX)).unwrap_or_default() & length.saturating_sub(1)
}

/// Fewer than eight bytes as eight.
#[cold]
fn short(bytes: &[u8]) -> [u8; 8] {
    let mut eight = [0xff; 8];
    for (to, from) in eight.iter_mut().zip(bytes) {
        *to = *from;
    }
    eight
}

impl Table {
    pub(super) fn new(max: usize, highest_epoch: u64, config: &BreakerConfig) -> Self {
        let table = Self {
            shards: Default::default(),
            counts: (0..COUNTS).map(|_| AtomicU32::new(0)).collect(),
            members: AtomicUsize::new(0),
            max,
            purged_at: AtomicU64::new(0),
            highest_epoch: AtomicU64::new(highest_epoch),
            counts_successes: AtomicBool::new(false),
            success_forgets: AtomicBool::new(false),
        };
        table.set_config(config);
        table
    }

    pub(super) fn set_config(&self, config: &BreakerConfig) {
        let rated = matches!(config.trip(), TripPolicy::FailureRate { .. });
        self.counts_successes.store(rated, Ordering::Relaxed);
        self.success_forgets
            .store(config.success_forgets(), Ordering::Relaxed);
    }

    /// Whether there is surely no such member, and a call that is done at once and succeeds would leave
    /// none.
    #[inline]
    pub(super) fn knows_nothing_of(&self, key: &str) -> bool {
        !self.counts_successes.load(Ordering::Relaxed) && self.is_absent(key)
    }

    /// Whether a success means nothing to a key that was not known when the call began.
    #[inline]
    pub(super) fn forgets_nothing_of(&self, key: &str) -> bool {
        !self.success_forgets.load(Ordering::Relaxed) || self.is_absent(key)
    }

    #[inline]
    fn is_absent(&self, key: &str) -> bool {
        let [first, second] = self.counts_of(Place::of(key));
        // Rarely does a key share the first with a member, and hardly ever both.
        first.load(Ordering::Acquire) == 0 || second.load(Ordering::Acquire) == 0
    }

    fn shard(&self, place: Place) -> MutexGuard<'_, Shard> {
        let [first, ..] = &self.shards;
        lock(self.shards.get(place.shard()).unwrap_or(first))
    }

    /// Finds a member that is awake.
    pub(super) fn find(&self, key: &str) -> Option<Breaker> {
        match self.shard(Place::of(key)).slots.get(key)? {
            Slot::Awake(member, _) => Some(member.clone()),
            Slot::AtRest(_) => None,
        }
    }

    /// Finds a member, or has it made; `None` if there is no room for it.
    pub(super) fn find_or_wake(
        &self,
        key: &str,
        now: Timestamp,
        family: &BreakerConfig,
        make: impl FnOnce(&Arc<str>, Option<Rest>) -> Breaker,
    ) -> Option<Found> {
        let place = Place::of(key);
        let mut made_room = false;
        // What goes is dropped when the shard is free again: some of it is the user's.
        let mut over = None;
        let mut gone = Vec::new();
        let (mut shard, key, rest) = loop {
            let mut shard = self.shard(place);
            match shard.slots.get(key) {
                Some(Slot::Awake(member, _)) => return Some(Found::Known(member.clone())),
                Some(Slot::AtRest(_)) => {
                    let (key, slot) = shard.slots.remove_entry(key)?;
                    let rest = match slot {
                        Slot::AtRest(rest) if rest.is_over(now) => {
                            self.pass(rest.epoch());
                            over = Some(rest);
                            None
                        }
                        Slot::AtRest(rest) => Some(*rest),
                        Slot::Awake(..) => None,
                    };
                    break (shard, key, rest);
                }
                None if self.reserve() => {
                    self.count(place);
                    break (shard, Arc::from(key), None);
                }
                None if made_room => return None,
                None => {
                    drop(shard);
                    self.make_room(family, now);
                    made_room = true;
                }
            }
        };
        let member = make(&key, rest);
        let turn = shard.next;
        shard.next = turn.wrapping_add(1);
        shard
            .slots
            .insert(Arc::clone(&key), Slot::Awake(member.clone(), turn));
        for _ in 0..LOOKED_AT {
            gone.extend(self.look_at_next(&mut shard, family, now));
        }
        shard.awake.push_back((key, turn));
        drop(shard);
        drop((over, gone));
        Some(Found::Woken(member))
    }

    /// Adds a member at rest under a free key; `None` if there is no room.
    pub(super) fn lay_down(&self, key: &str, rest: Box<Rest>) -> Option<()> {
        let place = Place::of(key);
        let mut shard = self.shard(place);
        if shard.slots.contains_key(key) || !self.reserve() {
            return None;
        }
        self.count(place);
        shard.slots.insert(key.into(), Slot::AtRest(rest));
        Some(())
    }

    /// Counts one more member, if there may be one more.
    fn reserve(&self) -> bool {
        self.members
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |members| {
                (members < self.max).then(|| members.saturating_add(1))
            })
            .is_ok()
    }

    #[inline]
    fn counts_of(&self, place: Place) -> [&AtomicU32; 2] {
        // There are always counts; an empty slice is not made.
        static NONE: AtomicU32 = AtomicU32::new(0);
        place
            .counts()
            .map(|at| self.counts.get(at).unwrap_or(&NONE))
    }

    /// Counts a member, before it can be found.
    fn count(&self, place: Place) {
        for count in self.counts_of(place) {
            count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Counts a member no longer, once it is gone.
    fn uncount(&self, place: Place) {
        for count in self.counts_of(place) {
            count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Looks for a member that nobody would miss.
    fn make_room(&self, family: &BreakerConfig, now: Timestamp) {
        for shard in &self.shards {
            for _ in 0..LOOKED_AT {
                let gone = self.look_at_next(&mut lock(shard), family, now);
                drop(gone);
                if self.len() < self.max {
                    return;
                }
            }
        }
        let purged_at = self.purged_at.load(Ordering::Relaxed);
        if Timestamp::from_micros(purged_at).is_over(PURGE_EVERY, now) {
            self.purged_at.store(now.as_micros(), Ordering::Relaxed);
            self.tidy(family, now);
        }
    }

    /// Looks at the member that was awake longest without a look, and puts it away if nobody holds it.
    /// What is left of it is to be dropped where the shard is not locked.
    fn look_at_next(
        &self,
        shard: &mut Shard,
        family: &BreakerConfig,
        now: Timestamp,
    ) -> Option<BreakerActor> {
        let (key, turn) = shard.awake.pop_front()?;
        match shard.slots.get(&key) {
            Some(Slot::Awake(_, present)) if *present == turn => {}
            // It was put away meanwhile.
            _ => return None,
        }
        let (key, Slot::Awake(member, _)) = shard.slots.remove_entry(&key)? else {
            return None;
        };
        // In this order: nobody can come to send it a message whom the first look has not seen.
        let fate = if member.is_held_elsewhere() {
            Err(member)
        } else if member.is_open() || member.gate().has_letters() {
            // There may be messages that only the head sees.
            if can_wake() && member.gate().begin_sampling() {
                member.addr().do_send(Sampled);
            }
            Err(member)
        } else {
            Rest::of(member, family, now)
        };
        match fate {
            Ok((fate, left)) => {
                self.put(shard, key, fate);
                Some(left)
            }
            Err(member) => {
                shard.awake.push_back((Arc::clone(&key), turn));
                shard.slots.insert(key, Slot::Awake(member, turn));
                None
            }
        }
    }

    /// Keeps what there is to keep of a member that was taken out.
    fn put(&self, shard: &mut Shard, key: Arc<str>, fate: Fate) {
        match fate {
            Fate::Rest(rest) => {
                shard.slots.insert(key, Slot::AtRest(rest));
            }
            Fate::Forgotten { epoch } => self.forget(&key, epoch),
        }
    }

    /// Makes sure that no member begins with this epoch or an earlier one.
    fn pass(&self, epoch: u64) {
        self.highest_epoch.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Counts one member less, whose epoch was this.
    fn forget(&self, key: &str, epoch: u64) {
        self.pass(epoch);
        self.members.fetch_sub(1, Ordering::AcqRel);
        self.uncount(Place::of(key));
    }

    /// Puts a member away that nobody holds; `is_idle` is asked when nobody can come to hold it any more.
    /// Tells whether it is away.
    pub(super) fn put_away(
        &self,
        key: &str,
        family: &BreakerConfig,
        now: Timestamp,
        is_idle: impl FnOnce(&Breaker) -> bool,
    ) -> bool {
        let mut shard = self.shard(Place::of(key));
        match shard.slots.get(key) {
            Some(Slot::Awake(member, _)) if member.is_unused() && is_idle(member) => {}
            _ => return false,
        }
        let Some((key, Slot::Awake(member, turn))) = shard.slots.remove_entry(key) else {
            return false;
        };
        match Rest::of(member, family, now) {
            Ok((fate, left)) => {
                self.put(&mut shard, key, fate);
                drop(shard);
                drop(left);
                true
            }
            Err(member) => {
                shard.slots.insert(key, Slot::Awake(member, turn));
                false
            }
        }
    }

    /// Puts all members away that nobody holds, and forgets the records that do not matter any more.
    pub(super) fn tidy(&self, family: &BreakerConfig, now: Timestamp) {
        for shard in &self.shards {
            let mut gone = Vec::new();
            let mut shard = lock(shard);
            for _ in 0..shard.awake.len() {
                gone.extend(self.look_at_next(&mut shard, family, now));
            }
            let is_over = |slot: &Slot| matches!(slot, Slot::AtRest(rest) if rest.is_over(now));
            let over: Vec<_> = shard.slots.extract_if(|_, slot| is_over(slot)).collect();
            for (key, slot) in &over {
                if let Slot::AtRest(rest) = slot {
                    self.forget(key, rest.epoch());
                }
            }
            if shard.slots.len() < shard.slots.capacity() / 4 {
                shard.slots.shrink_to_fit();
            }
            if shard.awake.len() < shard.awake.capacity() / 4 {
                shard.awake.shrink_to_fit();
            }
            drop(shard);
            drop((over, gone));
        }
    }

    /// All members that are awake.
    pub(super) fn awake(&self) -> Vec<Breaker> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(lock(shard).slots.values().filter_map(|slot| match slot {
                Slot::Awake(member, _) => Some(member.clone()),
                Slot::AtRest(_) => None,
            }));
        }
        all
    }

    /// Shows every member, a shard's at a time under its lock.
    pub(super) fn each(&self, mut look: impl FnMut(&Arc<str>, Seen<'_>)) {
        for shard in &self.shards {
            for (key, slot) in &lock(shard).slots {
                let seen = match slot {
                    Slot::Awake(member, _) => Seen::Awake(member),
                    Slot::AtRest(rest) => Seen::AtRest(rest),
                };
                look(key, seen);
            }
        }
    }

    /// Keeps those at rest for so much longer.
    pub(super) fn keep_longer(&self, longer: Duration) {
        if longer.is_zero() {
            return;
        }
        for shard in &self.shards {
            for slot in lock(shard).slots.values_mut() {
                if let Slot::AtRest(rest) = slot {
                    rest.keep_longer(longer);
                }
            }
        }
    }

    /// Whether there is such a member, awake or at rest.
    pub(super) fn contains(&self, key: &str) -> bool {
        self.shard(Place::of(key)).slots.contains_key(key)
    }

    pub(super) fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            keys.extend(lock(shard).slots.keys().map(ToString::to_string));
        }
        keys
    }

    /// The highest epoch of those that were forgotten; 0 for none.
    pub(super) fn highest_forgotten(&self) -> u64 {
        self.highest_epoch.load(Ordering::Acquire)
    }

    /// The highest epoch given out; 0 for none.
    pub(super) fn highest_epoch(&self) -> u64 {
        for shard in &self.shards {
            for slot in lock(shard).slots.values() {
                self.pass(match slot {
                    Slot::Awake(member, _) => member.gate().load().epoch(),
                    Slot::AtRest(rest) => rest.epoch(),
                });
            }
        }
        self.highest_forgotten()
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    pub(super) fn len(&self) -> usize {
        self.members.load(Ordering::Acquire)
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
