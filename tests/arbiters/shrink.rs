//! Makes a failing script short: leaves out chunks, then single steps, then makes steps simpler.

use super::script::{End, Kind, Op, Step, Way};

/// The shortest script found that still fails. `fails` is asked at most `most` times.
pub(crate) async fn shrink(
    mut script: Vec<Step>,
    mut most: usize,
    mut fails: impl AsyncFnMut(&[Step]) -> bool,
) -> Vec<Step> {
    let mut attempt = async |candidate: &[Step]| {
        most = most.saturating_sub(1);
        most > 0 && fails(candidate).await
    };
    loop {
        let before = script.clone();
        leave_out(&mut script, &mut attempt).await;
        simplify(&mut script, &mut attempt).await;
        if script == before {
            return script;
        }
    }
}

async fn leave_out(script: &mut Vec<Step>, attempt: &mut impl AsyncFnMut(&[Step]) -> bool) {
    let mut chunk = script.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        while start < script.len() {
            let end = (start + chunk).min(script.len());
            let mut candidate = script.clone();
            candidate.drain(start..end);
            if attempt(&candidate).await {
                *script = candidate;
            } else {
                start = end;
            }
        }
        if chunk == 1 {
            return;
        }
        chunk = chunk.div_ceil(2);
    }
}

async fn simplify(script: &mut [Step], attempt: &mut impl AsyncFnMut(&[Step]) -> bool) {
    for index in 0..script.len() {
        for simpler in simpler(script[index]) {
            let mut candidate = script.to_vec();
            candidate[index] = simpler;
            if attempt(&candidate).await {
                script[index] = simpler;
                break;
            }
        }
    }
}

/// Simpler steps, the simplest first; none leads back.
fn simpler(step: Step) -> Vec<Step> {
    match step {
        Step::Then(0) => Vec::new(),
        Step::Then(_) => vec![Step::Then(0)],
        Step::And(op) => {
            let ops = simpler_op(op).into_iter().map(Step::And);
            [Step::On(0, op)].into_iter().chain(ops).collect()
        }
        Step::On(arbiter, op) => {
            let mut steps: Vec<_> = (arbiter > 0)
                .then_some(Step::On(0, op))
                .into_iter()
                .collect();
            steps.extend(simpler_op(op).into_iter().map(|op| Step::On(arbiter, op)));
            steps
        }
    }
}

fn simpler_op(op: Op) -> Vec<Op> {
    let ways = [Way::Permit, Way::Future, Way::Ask, Way::Guard, Way::Message];
    let ends = [End::Good, End::Bad, End::Neutral];
    let ways = |way| ways.into_iter().take_while(move |simpler| *simpler != way);
    let ends = |end| ends.into_iter().take_while(move |simpler| *simpler != end);
    match op {
        Op::Call(way, end) => ways(way)
            .map(|way| Op::Call(way, end))
            .chain(ends(end).map(|end| Op::Call(way, end)))
            .collect(),
        Op::Begin(way) => ways(way).map(Op::Begin).collect(),
        Op::Early(way) => ways(way).map(Op::Early).collect(),
        Op::Finish(which, end) => (0..which)
            .map(|which| Op::Finish(which, end))
            .chain(ends(end).map(|end| Op::Finish(which, end)))
            .collect(),
        Op::ForceOpen(Some(_)) => vec![Op::ForceOpen(None)],
        Op::ForceClosed(Some(_)) => vec![Op::ForceClosed(None)],
        Op::Subscribe(kind) if kind != Kind::Plain => vec![Op::Subscribe(Kind::Plain)],
        Op::Tick(time) if time > 1 => vec![Op::Tick(1)],
        _ => Vec::new(),
    }
}
