//! How an owner asks after all its breakers, with a bound.
//! What is made of the answers is left to `health.rs`.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::Breakers;
use crate::health::{ActorHealth, Health, Question};

/// How long [`Breakers::health`] waits for answers: a quarter of what a readiness probe is often given.
const ANSWER_WITHIN: Duration = Duration::from_millis(250);

impl Breakers {
    /// Asks how the breakers are: for readiness probes, status pages and alerts. It answers within 250 ms;
    /// see [`health_within`](Self::health_within).
    ///
    /// # Examples
    ///
    /// A readiness probe, whatever the web framework is:
    ///
    /// ```
    /// use actix_circuit_breaker::{BreakerConfig, Breakers, message::ForceOpen};
    ///
    /// async fn readiness(breakers: &Breakers) -> (u16, String) {
    ///     let health = breakers.health().await;
    ///     let code = if health.is_ready() { 200 } else { 503 };
    ///     (code, serde_json::to_string(&health).unwrap_or_default())
    /// }
    ///
    /// # #[actix::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let breakers = Breakers::start();
    /// let search = breakers.create("search", BreakerConfig::default())?;
    /// assert_eq!(readiness(&breakers).await.0, 200);
    ///
    /// search.force_open(ForceOpen::new("index is rebuilt")).await??;
    /// let (code, body) = readiness(&breakers).await;
    /// assert_eq!(code, 503);
    /// assert!(body.contains(r#""status":"down""#) && body.contains("index is rebuilt"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An instance that can do without the search is ready without it:
    /// `health.breaker("payments").is_none_or(|payments| payments.status() < HealthStatus::Down)`.
    ///
    /// Think twice before a shared target decides on readiness: when it goes down, all instances cease to be
    /// ready at once, and those of their requests that did not need it fail as well.
    pub fn health(&self) -> impl Future<Output = Health> + Send + 'static + use<> {
        self.health_within(ANSWER_WITHIN)
    }

    /// Asks as [`health`](Self::health) does, and waits no longer than `bound`, however many breakers there
    /// are.
    ///
    /// Every named breaker's actor is sent one small question, and each family's one; of a family's keys,
    /// at most [`FamilyHealth::LISTED`](crate::FamilyHealth::LISTED) are asked, and all that are kept are
    /// looked at where they are. An actor that does not answer in time shows as
    /// [`Silent`](ActorHealth::Silent), with the state it published last and without what only it knows; one
    /// that is gone for good as [`Gone`](ActorHealth::Gone). Questions to a blocked arbiter do not pile up.
    ///
    /// The questions are sent and the keys looked at now: 1,000 breakers, or 10,000 keys that are kept, take
    /// about 2 ms. The future collects the answers, and needs tokio's time. Dropping it loses nothing.
    pub fn health_within(
        &self,
        bound: Duration,
    ) -> impl Future<Output = Health> + Send + 'static + use<> {
        let now = self.shared.clock.now();
        let (asked, families) = {
            let registry = self.registry();
            let asked: Vec<_> = registry.breakers().map(Question::ask).collect();
            let families: Vec<_> = registry
                .families_and_heads()
                .map(|(family, head)| (family.clone(), Question::ask(head)))
                .collect();
            (asked, families)
        };
        // Outside the lock: there may be very many keys.
        let surveys: Vec<_> = families
            .into_iter()
            .map(|(family, head)| (family.survey(now), head))
            .collect();
        let away = self.shared.link.as_ref().and_then(|link| link.away());
        let owner = self.clone();
        async move {
            let mut deadline = pin!(tokio::time::sleep(bound));
            let mut health = Health::new(now);
            if let Some((since, error)) = away {
                health.lose_store(since, &error);
            }
            for question in asked {
                let gate = Arc::clone(question.gate());
                let breaker = question.answer(deadline.as_mut()).await;
                // One that was removed meanwhile is none of theirs any more.
                if breaker.actor != ActorHealth::Gone || owner.registry().has(&gate) {
                    health.add(breaker);
                }
            }
            for (survey, head) in surveys {
                health.add_family(survey.answer(head, deadline.as_mut()).await);
            }
            health
        }
    }
}
