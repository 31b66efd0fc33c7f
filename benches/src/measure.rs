//! Measure: contenders in turn, round after round; least and median.

#![expect(clippy::disallowed_methods, reason = "benches read the clock")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::cell::Cell;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Number of decisions in one timed batch.
pub(crate) const BATCH: u64 = 50_000;

/// Batches before one that counts, of a contender that is [in use](Contender::in_use): of 100,000
/// keys at random they leave out one of seven.
const BATCHES_BEFORE: usize = 4;

/// Nanoseconds per decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    wall: f64,
    cpu: f64,
}

/// One of the things measured side by side.
pub(crate) struct Contender<'a> {
    name: &'static str,
    batch: Box<dyn FnMut() -> Sample + 'a>,
}

/// Results of a contender, in nanoseconds per decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) cpu: f64,
}

impl<'a> Contender<'a> {
    /// Creates a contender; `decide` is called with the number of the decision.
    pub(crate) fn new<T>(name: &'static str, mut decide: impl FnMut(u64) -> T + 'a) -> Self {
        let mut first = 0;
        let batch = move || {
            let sample = timed(first, &mut decide);
            first += BATCH;
            sample
        };
        Self {
            name,
            batch: Box::new(batch),
        }
    }

    /// Runs more batches before each one that counts, so that the caches hold what it reads, and
    /// not what the contender before it read.
    pub(crate) fn in_use(self) -> Self {
        let mut batch = self.batch;
        let batch = move || {
            for _ in 0..BATCHES_BEFORE {
                batch();
            }
            batch()
        };
        Self {
            name: self.name,
            batch: Box::new(batch),
        }
    }

    /// Writes `other` before each batch, so that the caches hold nothing that it reads.
    pub(crate) fn cold(self, other: &'a [Cell<u64>]) -> Self {
        let mut batch = self.batch;
        let batch = move || {
            for word in other {
                word.set(word.get() + 1);
            }
            batch()
        };
        Self {
            name: self.name,
            batch: Box::new(batch),
        }
    }

    /// Creates a contender that runs on two threads at once; the figure is that of one of them.
    pub(crate) fn pair<T>(name: &'static str, decide: impl Fn(u64) -> T + Sync + 'a) -> Self {
        let mut first = 0;
        let batch = move || {
            let barrier = Barrier::new(2);
            let (decide, barrier) = (&decide, &barrier);
            let work = move |first| {
                barrier.wait();
                timed(first, &mut |number| decide(number))
            };
            let samples = thread::scope(|scope| {
                let other = scope.spawn(move || work(first));
                let mine = work(first + BATCH);
                [mine, other.join().expect("a batch does not panic")]
            });
            first += 2 * BATCH;
            Sample {
                wall: f64::midpoint(samples[0].wall, samples[1].wall),
                cpu: f64::midpoint(samples[0].cpu, samples[1].cpu),
            }
        };
        Self {
            name,
            batch: Box::new(batch),
        }
    }
}

/// Times one batch.
fn timed<T>(first: u64, decide: &mut impl FnMut(u64) -> T) -> Sample {
    let (cpu, wall) = (cpu_nanos(), Instant::now());
    for number in first..first + BATCH {
        std::hint::black_box(decide(number));
    }
    Sample {
        wall: wall.elapsed().as_nanos() as f64 / BATCH as f64,
        cpu: (cpu_nanos() - cpu) as f64 / BATCH as f64,
    }
}

/// Returns the CPU time of this thread.
pub(crate) fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Runs all contenders in turn, `rounds` times.
pub(crate) fn measure(rounds: usize, contenders: &mut [Contender<'_>]) -> Vec<Measured> {
    let mut samples = vec![Vec::with_capacity(rounds); contenders.len()];
    for _ in 0..rounds {
        for (contender, samples) in contenders.iter_mut().zip(&mut samples) {
            samples.push((contender.batch)());
        }
    }
    let figures = |(contender, samples): (&Contender<'_>, Vec<Sample>)| {
        let sorted = |of: fn(&Sample) -> f64| {
            let mut values: Vec<f64> = samples.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let wall = sorted(|sample| sample.wall);
        Measured {
            name: contender.name,
            least: wall[0],
            median: wall[wall.len() / 2],
            cpu: sorted(|sample| sample.cpu)[0],
        }
    };
    contenders.iter().zip(samples).map(figures).collect()
}
