//! A limit that waits on another runtime than tokio: smol's timers, the system's time.
//!
//! `cargo run -p ratekeeper-examples --bin smol`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::core::{Gcra, Nanos, Origin, Time};
use ratekeeper::{Clock, Limiter, SystemClock, Timer, WaitError};

struct SmolClock(SystemClock);

impl Clock for SmolClock {
    fn now(&self) -> Time {
        self.0.now()
    }
    fn origin(&self) -> Origin {
        self.0.origin()
    }
}

impl Timer for SmolClock {
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        let timer = async_io::Timer::after(span.into());
        async {
            let _at = timer.await;
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = Gcra::token_bucket("1/10ms".parse()?)?;
    let limiter = Limiter::with_clock(limit, SmolClock(SystemClock::new()));
    let start = limiter.clock().now();
    async_io::block_on(async {
        for _page in 0..5 {
            limiter.acquire().await?;
        }
        Ok::<_, WaitError>(())
    })?;
    let spent = limiter.clock().now().since(start);
    println!("5 pages, 10 ms apart: {}", spent >= Nanos::from_millis(40));
    Ok(())
}
