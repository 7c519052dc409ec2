//! The breakers of one owner, by name. Making and starting them is left to `supervisor.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::WeakRecipient;

use super::EndHandle;
use super::saved::{Saved, Waiting};
use crate::breaker::Breaker;
use crate::clock::Timestamp;
use crate::event::{StateChanged, alive};
use crate::family::Family;
use crate::gate::Gate;
use crate::message::Subscribe;

/// One breaker and the way to end its actor.
pub(super) struct Entry {
    breaker: Breaker,
    end: EndHandle,
}

impl Entry {
    pub(super) fn new(breaker: Breaker, end: EndHandle) -> Self {
        Self { breaker, end }
    }

    pub(super) fn name(&self) -> &str {
        self.breaker.name()
    }
}

/// One family and the way to end its actor.
pub(super) struct FamilyEntry {
    family: Family,
    /// The actor that runs it, as a breaker of its own.
    head: Breaker,
    end: EndHandle,
}

impl FamilyEntry {
    pub(super) fn new(family: Family, head: Breaker, end: EndHandle) -> Self {
        Self { family, head, end }
    }
}

#[derive(Default)]
pub(super) struct Registry {
    entries: BTreeMap<Arc<str>, Entry>,
    families: BTreeMap<Arc<str>, FamilyEntry>,
    subscribers: Vec<WeakRecipient<StateChanged>>,
    /// What another process wrote down.
    pub(super) waiting: Waiting,
    /// The highest epoch of a breaker that is gone, so that one of the same name starts above it.
    highest_epoch: Option<u64>,
    evictions: u64,
}

impl Registry {
    /// Finds a breaker whose actor is not gone for good.
    pub(super) fn find(&self, name: &str) -> Option<Breaker> {
        let breaker = &self.entries.get(name)?.breaker;
        breaker.addr().connected().then(|| breaker.clone())
    }

    /// Has what was read wait for those whom it is about; returns how many records wait now.
    pub(super) fn restore(&mut self, saved: Saved) -> usize {
        let Self {
            entries,
            families,
            waiting,
            ..
        } = self;
        waiting.add(saved, |name| {
            entries.contains_key(name) || families.contains_key(name)
        })
    }

    /// Finds a family whose actor is not gone for good.
    pub(super) fn find_family(&self, name: &str) -> Option<Family> {
        let family = &self.families.get(name)?.family;
        family.is_alive().then(|| family.clone())
    }

    /// Adds a family under a free name.
    pub(super) fn insert_family(&mut self, entry: FamilyEntry) {
        self.prune();
        for subscriber in &self.subscribers {
            entry.family.subscribe(subscriber.clone());
        }
        self.families.insert(entry.family.name().into(), entry);
    }

    pub(super) fn remove_family(&mut self, name: &str) -> Option<FamilyEntry> {
        let entry = self.families.remove(name)?;
        entry.end.end();
        let epoch = entry.family.retire();
        self.highest_epoch = self.highest_epoch.max(Some(epoch));
        Some(entry)
    }

    pub(super) fn families(&self) -> Vec<Family> {
        let families = self.families.values();
        families.map(|entry| entry.family.clone()).collect()
    }

    /// All families with the actors that run them.
    pub(super) fn families_and_heads(&self) -> impl Iterator<Item = (&Family, &Breaker)> {
        self.families
            .values()
            .map(|entry| (&entry.family, &entry.head))
    }

    /// Whether this gate's breaker is still one of them.
    pub(super) fn has(&self, gate: &Arc<Gate>) -> bool {
        let entry = self.entries.get(gate.name());
        entry.is_some_and(|entry| Arc::ptr_eq(entry.breaker.gate(), gate))
    }

    /// Adds a breaker under a free name.
    pub(super) fn insert(&mut self, entry: Entry) -> Breaker {
        let breaker = entry.breaker.clone();
        self.prune();
        for subscriber in &self.subscribers {
            breaker.addr().do_send(Subscribe::new(subscriber.clone()));
        }
        let name = Arc::clone(breaker.gate().name());
        self.entries.insert(name, entry);
        breaker
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        entry.breaker.gate().retire();
        entry.end.end();
        let epoch = entry.breaker.gate().load().epoch();
        self.highest_epoch = self.highest_epoch.max(Some(epoch));
        Some(entry)
    }

    /// Lets a breaker go that nobody would miss.
    pub(super) fn evict_idle(&mut self, now: Timestamp) -> Option<Entry> {
        let name = self.entries.iter_mut().find_map(|(name, entry)| {
            let breaker = &mut entry.breaker;
            let idle = breaker.is_only_handle() && breaker.gate().is_idle(now);
            idle.then(|| Arc::clone(name))
        })?;
        self.evictions = self.evictions.saturating_add(1);
        self.remove(&name)
    }

    pub(super) fn subscribe(&mut self, subscriber: WeakRecipient<StateChanged>) {
        for breaker in self.breakers() {
            breaker.addr().do_send(Subscribe::new(subscriber.clone()));
        }
        for entry in self.families.values() {
            entry.family.subscribe(subscriber.clone());
        }
        self.prune();
        let Some(actor) = alive(&subscriber) else {
            return;
        };
        let mut known = self.subscribers.iter().filter_map(alive);
        if !known.any(|known| known == actor) {
            self.subscribers.push(subscriber);
        }
    }

    /// Drops the subscribers that are gone.
    fn prune(&mut self) {
        self.subscribers
            .retain(|subscriber| alive(subscriber).is_some());
    }

    pub(super) fn breakers(&self) -> impl Iterator<Item = &Breaker> {
        self.entries.values().map(|entry| &entry.breaker)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.entries.keys().map(ToString::to_string).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len().saturating_add(self.families.len())
    }

    pub(super) fn highest_epoch(&self) -> Option<u64> {
        self.highest_epoch
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }
}

#[cfg(test)]
mod tests {
    use actix::{Actor, Context, Handler};

    use super::*;

    struct Nobody;

    impl Actor for Nobody {
        type Context = Context<Self>;
    }

    impl Handler<StateChanged> for Nobody {
        type Result = ();

        fn handle(&mut self, _: StateChanged, _: &mut Context<Self>) {}
    }

    // R26
    #[actix::test]
    async fn remembers_each_living_subscriber_once_and_no_dead_one() {
        let mut registry = Registry::default();
        let living = Nobody.start();
        for _ in 0..100 {
            registry.subscribe(living.clone().into());
            registry.subscribe(Nobody.start().into());
            tokio::task::yield_now().await;
        }
        registry.subscribe(living.into());
        assert_eq!(registry.subscribers.len(), 1);
    }
}
