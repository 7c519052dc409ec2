//! Orders that come with who gave them and why, from the HTTP interface.
//! What they do to the circuit is the same as without a note.

use std::sync::Arc;

use actix::{Context, Handler};

use super::BreakerActor;
use super::outbox::{Order, Told};
use crate::circuit::Cause;
use crate::message::{Noted, NotedOrder};

impl Handler<Noted> for BreakerActor {
    type Result = Told<()>;

    fn handle(&mut self, Noted { order, note }: Noted, ctx: &mut Context<Self>) -> Told<()> {
        let name = match &order {
            NotedOrder::Release => "release",
            NotedOrder::Reset => "reset",
            NotedOrder::Reconfigure(_) => "reconfigure",
        };
        let gate = Arc::clone(&self.gate);
        let ((), mut outbox) = self.step(ctx, |circuit, now| match order {
            NotedOrder::Release => circuit.release(now),
            NotedOrder::Reset => circuit.reset(now),
            NotedOrder::Reconfigure(config) => {
                circuit.reconfigure(config.clone(), now);
                gate.set_config(config);
            }
        });
        let news = outbox.news(self);
        for event in &mut news.events {
            // Not what came due in the same step: a ttl that was over, a probe.
            if matches!(event.cause, Cause::Released | Cause::Reset) {
                event.evidence.reason = Some(Arc::clone(&note));
            }
        }
        news.order = Some(Order::new(name).given(None, note));
        Told::new((), outbox)
    }
}
