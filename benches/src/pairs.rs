//! Measures things side by side: A, B, A, B and so on in one process, so that whatever disturbs the
//! machine disturbs all of them, and only ratios of neighbours are trusted.

use crate::subject::Subject;

/// The times of one subject: nanoseconds a call, one for each round.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<f64>);

impl Times {
    /// The median.
    pub fn median(&self) -> f64 {
        median(self.0.clone())
    }

    /// The median of the ratios to another subject's times of the same rounds.
    pub fn over(&self, other: &Self) -> f64 {
        median(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }

    /// Adds the time of a round.
    pub fn push(&mut self, nanos: f64) {
        self.0.push(nanos);
    }
}

/// Runs all subjects in every round, forwards and backwards in turn, after one round to warm up.
pub async fn rounds(subjects: &mut [Subject], rounds: usize, calls: u32) -> Vec<Times> {
    let mut times = vec![Times::default(); subjects.len()];
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let nanos = subjects[at].nanos(calls).await;
            // Lets the arbiter do what is due before the next block.
            tokio::task::yield_now().await;
            if round > 0 {
                times[at].push(nanos);
            }
        }
    }
    times
}

/// The value in the middle.
pub fn median(values: Vec<f64>) -> f64 {
    percentile(values, 0.5)
}

/// The value below which such a share of them lies.
///
/// # Panics
///
/// Panics without values.
pub fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an index into what fits in memory"
    )]
    let at = (last as f64 * share).round() as usize;
    values[at.min(last)]
}
