//! Something to be measured: a name, and a way to make so many calls one after another.

use std::fmt;
use std::time::Duration;

use futures::future::LocalBoxFuture;

type Block = Box<dyn FnMut(u32) -> LocalBoxFuture<'static, Duration>>;

/// Something to be measured.
pub struct Subject {
    name: String,
    block: Block,
}

impl Subject {
    /// Makes one of a function that makes so many calls and tells how long they took all together.
    pub fn new(
        name: impl Into<String>,
        block: impl FnMut(u32) -> LocalBoxFuture<'static, Duration> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            block: Box::new(block),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes so many calls and returns the time of one, in nanoseconds.
    pub async fn nanos(&mut self, calls: u32) -> f64 {
        (self.block)(calls).await.as_secs_f64() * 1e9 / f64::from(calls)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("name", &self.name).finish()
    }
}

/// Makes a [`Subject`] of a guard and a future of a `Result`, one call; a block has a clone of the
/// guard. A caller looks at the result, so that is what is done with it.
#[macro_export]
macro_rules! subject {
    ($name:expr, $guard:ident => $call:expr) => {{
        let guard = $guard.clone();
        $crate::subject::Subject::new($name, move |calls| {
            #[allow(unused_mut, reason = "some guards are called mutably")]
            let mut $guard = guard.clone();
            Box::pin(async move {
                let started = std::time::Instant::now();
                for _ in 0..calls {
                    std::hint::black_box($call.await.is_ok());
                }
                started.elapsed()
            })
        })
    }};
}
