//! How the keys of a family are, for whoever asks after all of them: counted all, listed a few.
//! What is made of it is left to `health.rs`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Sleep;

use super::Family;
use super::table::Seen;
use crate::breaker::Breaker;
use crate::circuit::Snapshot;
use crate::clock::Timestamp;
use crate::health::{ActorHealth, BreakerHealth, FamilyHealth, Question};

/// What is known of a family's keys before those that are listed have answered.
pub(crate) struct Survey {
    health: FamilyHealth,
    listed: Vec<Listed>,
}

enum Listed {
    Asked(Question),
    /// At rest: nobody else writes to it.
    Known(BreakerHealth),
}

enum Found {
    Awake(Breaker),
    AtRest(Snapshot),
}

impl Family {
    /// Counts the keys by their state and asks the first that are not closed.
    pub(crate) fn survey(&self, now: Timestamp) -> Survey {
        let shared = &self.shared;
        let mut health = FamilyHealth::new(Arc::clone(&shared.name), ActorHealth::Answers);
        let config = shared.config();
        health.keys = shared.table.len();
        health.unguarded = self.unguarded();
        // With the share of what each refuses that is rejected.
        let mut first: BTreeMap<Arc<str>, (Found, f64)> = BTreeMap::new();
        let mut not_closed: usize = 0;
        shared.table.each(|key, seen| {
            let (state, enforcement) = match &seen {
                Seen::Awake(member) => (member.gate().state(), member.gate().enforcement()),
                Seen::AtRest(rest) => (rest.state(now), rest.enforcement(&config)),
            };
            if !health.count(state, enforcement) {
                return;
            }
            not_closed = not_closed.saturating_add(1);
            let is_full = first.len() >= FamilyHealth::LISTED;
            if is_full && first.last_key_value().is_some_and(|(last, _)| last < key) {
                return;
            }
            let found = match seen {
                Seen::Awake(member) => Found::Awake(member.clone()),
                Seen::AtRest(rest) => Found::AtRest(rest.look(&shared.random, now)),
            };
            first.insert(Arc::clone(key), (found, enforcement));
            if is_full {
                first.pop_last();
            }
        });
        health.more = not_closed.saturating_sub(first.len());
        // Outside the locks of the table.
        let listed = first
            .into_iter()
            .map(|(key, (found, enforcement))| match found {
                Found::Awake(member) => Listed::Asked(Question::ask(&member)),
                Found::AtRest(snapshot) => {
                    let name = [&shared.name, "/", &key].concat().into();
                    Listed::Known(BreakerHealth::of(name, snapshot, enforcement))
                }
            });
        let listed = listed.collect();
        Survey { health, listed }
    }
}

impl Survey {
    /// Waits for the answers, that of the family's actor with them, until the deadline.
    pub(crate) async fn answer(
        self,
        head: Question,
        mut deadline: Pin<&mut Sleep>,
    ) -> FamilyHealth {
        let Self { mut health, listed } = self;
        health.actor = head.answer(deadline.as_mut()).await.actor;
        for listed in listed {
            let breaker = match listed {
                Listed::Asked(question) => question.answer(deadline.as_mut()).await,
                Listed::Known(breaker) => breaker,
            };
            if breaker.is_worth_listing() {
                health.listed.push(breaker);
            }
        }
        health
    }
}
