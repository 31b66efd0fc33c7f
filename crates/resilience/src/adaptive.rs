//! Adaptive: a concurrency limit that follows the time that work takes.
//!
//! A fixed concurrency limit is right for one machine on one day. Work beyond the capacity of a
//! server only waits there, so the time that work takes shows that capacity, and the limit
//! follows it.
//!
//! ```text
//!   time work takes                       limit
//!        |            /                     |      law: gradient, Vegas or AIMD
//!        |           /  waits               |    _/\__/\__      __/\_
//!   base |__________/                       |  _/         \____/
//!        +---------+-------- at work        +------------------------- windows
//!             capacity x base                        ^ capacity halves
//! ```
//!
//! ```text
//!   try_acquire --> permit --> success | dropped | ignored --> window --> sample --> law
//!        ^                                                                            |
//!        '-------------------------------- limit <------------------------------------'
//! ```
//!
//! * **Laws** ([`Law`]), each a pure function of limit and sample in a file of its own:
//!   [`Gradient`] (default) aims at a time not far above that without waiting; [`Vegas`] at a
//!   short queue; [`Aimd`] needs no times, and backs off when work is dropped.
//! * **Windows.** A sample covers the work that began and ended within one window, at least 100
//!   ms and ten pieces of work long, so that each step responds to the limit that the step
//!   before it set. Slow work makes long windows.
//! * **Bounds.** The limit never leaves `least..=most`. A permit is given only while less than
//!   the limit is in use; when the limit falls, running work finishes.
//! * An unused limit carries no information: while less than half of it is in use, it stays.
//! * A permit dropped without a report counts as ignored. Work that is given up because it takes
//!   too long must be reported as dropped.
//! * Cost: one compare-exchange for a permit; a lock and, every tenth of a second, a pass over
//!   512 numbers for a report.
//! * Trade-offs: the gradient and Vegas attribute all waiting to the server, so work of very
//!   different lengths needs separate limits. If no window was as fast as the time without waiting
//!   for 300 windows, both measure that time again, for two windows at a third or a half of the
//!   limit.
//! * Sources: L. Brakmo, S. O'Malley, L. Peterson, "TCP Vegas" (1994); D.-M. Chiu, R. Jain,
//!   "Analysis of the increase and decrease algorithms for congestion avoidance" (1989);
//!   Netflix, concurrency-limits (2018), for Gradient2 and the defaults; Envoy, adaptive
//!   concurrency filter (2019), for measuring at a low limit.

mod aimd;
mod base;
mod end;
mod gradient;
mod law;
mod permit;
mod sample;
mod vegas;
mod window;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::Time;

pub use self::aimd::Aimd;
pub use self::end::End;
pub use self::gradient::Gradient;
pub use self::law::{Bounds, Law, Level};
pub use self::permit::AdaptivePermit;
pub use self::sample::Sample;
pub use self::vegas::Vegas;
use self::window::WorkWindow;
use crate::Error;
use crate::random::Random;
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// Settings of an [`AdaptiveConcurrency`]; see the [module](self) for the reasons of the
/// defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdaptiveSettings {
    /// Law that moves the limit. Default [`Gradient`].
    pub law: Law,
    /// Initial limit, and the bounds that it never leaves. Default 20, and 20 to 200.
    pub bounds: Bounds,
    /// Minimum length of a window; at least 1 us. Default 100 ms.
    pub window: Duration,
    /// Minimum number of samples in a window; 1 to 512. Default 10.
    pub least_samples: u32,
}

impl Default for AdaptiveSettings {
    fn default() -> Self {
        Self {
            law: Law::default(),
            bounds: Bounds::default(),
            window: Duration::from_millis(100),
            least_samples: 10,
        }
    }
}

/// A concurrency limit that follows the capacity of a server, shared by threads; see the
/// [module](self).
///
/// ```
/// use ratekeeper_core::{Nanos, Time};
/// use ratekeeper_resilience::{AdaptiveConcurrency, AdaptiveSettings, SplitMix};
///
/// let limit = AdaptiveConcurrency::new(AdaptiveSettings::default(), SplitMix::seeded()).unwrap();
/// let began = Time::ZERO; // your clock
/// let permit = limit.try_acquire(began).expect("nothing is at work");
/// assert_eq!((limit.in_flight(), limit.limit()), (1, 20));
/// // The work is done:
/// permit.success(began + Nanos::from_millis(12));
/// assert_eq!(limit.in_flight(), 0);
/// ```
#[derive(Debug)]
pub struct AdaptiveConcurrency {
    /// Whole permits; a copy of the limit in `course`, read without its lock.
    limit: AtomicU64,
    in_flight: AtomicU64,
    /// Maximum number of permits in use since the window began.
    peak: AtomicU64,
    course: Mutex<AdaptiveCourse>,
}

/// State that changes with the windows.
#[derive(Debug)]
struct AdaptiveCourse {
    settings: AdaptiveSettings,
    level: Level,
    window: WorkWindow,
}

impl AdaptiveConcurrency {
    /// Creates a limit that has seen no work. Give each its own random numbers, so that the
    /// limits of a fleet do not measure at the same moment.
    ///
    /// # Errors
    /// [`Error::Bounds`], [`Error::Law`] or [`Error::Window`] for settings outside their
    /// bounds.
    pub fn new(settings: AdaptiveSettings, mut random: impl Random) -> Result<Self, Error> {
        settings.bounds.validate()?;
        settings.law.validate()?;
        let long_enough = settings.window >= Duration::from_micros(1);
        if !long_enough || !(1..=window::MAX_KEPT).contains(&settings.least_samples) {
            return Err(Error::Window);
        }
        let level = settings.law.start(settings.bounds, random.draw());
        Ok(Self {
            limit: AtomicU64::new(level.limit().into()),
            in_flight: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            course: Mutex::new(AdaptiveCourse {
                settings,
                level,
                window: WorkWindow::default(),
            }),
        })
    }

    /// Returns a permit for work that begins at `now`, or `None` if the limit is reached.
    ///
    /// ```
    /// # use ratekeeper_core::Time;
    /// # use ratekeeper_resilience::*;
    /// let bounds = Bounds { least: 1, most: 9, initial: 1 };
    /// let settings = AdaptiveSettings { bounds, ..AdaptiveSettings::default() };
    /// let limit = AdaptiveConcurrency::new(settings, SplitMix::seeded()).unwrap();
    /// let first = limit.try_acquire(Time::ZERO).unwrap();
    /// assert!(limit.try_acquire(Time::ZERO).is_none());
    /// drop(first);
    /// assert!(limit.try_acquire(Time::ZERO).is_some());
    /// ```
    pub fn try_acquire(&self, now: Time) -> Option<AdaptivePermit<&Self>> {
        Self::enter(self, 0, now)
    }

    /// Like [`try_acquire`](Self::try_acquire), for work without priority: it leaves the last
    /// `percent` of the limit, rounded down, to other work. Leave at most half, because a limit of
    /// which less than half is in use does not rise.
    ///
    /// ```
    /// # use ratekeeper_core::Time;
    /// # use ratekeeper_resilience::*;
    /// let bounds = Bounds { least: 5, most: 9, initial: 5 };
    /// let settings = AdaptiveSettings { bounds, ..AdaptiveSettings::default() };
    /// let limit = AdaptiveConcurrency::new(settings, SplitMix::seeded()).unwrap();
    /// let usual: Vec<_> = (0..9).filter_map(|_| limit.try_acquire_leaving(20, Time::ZERO)).collect();
    /// assert_eq!(usual.len(), 4);
    /// assert!(limit.try_acquire(Time::ZERO).is_some(), "the last");
    /// ```
    pub fn try_acquire_leaving(&self, percent: u32, now: Time) -> Option<AdaptivePermit<&Self>> {
        Self::enter(self, percent, now)
    }

    /// Like [`try_acquire`](Self::try_acquire), for a permit that is kept with the work.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ratekeeper_core::Time;
    /// # use ratekeeper_resilience::*;
    /// # let settings = AdaptiveSettings::default();
    /// let limit = Arc::new(AdaptiveConcurrency::new(settings, SplitMix::seeded()).unwrap());
    /// let permit = limit.try_acquire_owned(Time::ZERO).unwrap();
    /// std::thread::spawn(move || permit.success(Time::ZERO)).join().unwrap();
    /// assert_eq!(limit.in_flight(), 0);
    /// ```
    pub fn try_acquire_owned(self: &Arc<Self>, now: Time) -> Option<AdaptivePermit<Arc<Self>>> {
        Self::enter(Arc::clone(self), 0, now)
    }

    fn enter<L: Deref<Target = Self>>(
        limit: L,
        left_percent: u32,
        now: Time,
    ) -> Option<AdaptivePermit<L>> {
        let enter = |at_work: u64| {
            let most = limit.limit.load(Ordering::Relaxed);
            // Down: a limit too small for a part still rises by work without priority alone.
            let left = most * u64::from(left_percent.min(100)) / 100;
            (at_work < most - left).then_some(at_work + 1)
        };
        let order = Ordering::Relaxed;
        let next = 1 + limit.in_flight.fetch_update(order, order, enter).ok()?;
        if limit.peak.load(order) < next {
            limit.peak.fetch_max(next, order);
        }
        Some(AdaptivePermit::new(limit, now))
    }

    /// Sets the bounds, and moves the limit to the nearer one if it is outside; `initial` has no
    /// effect. Work beyond a lower limit finishes.
    ///
    /// # Errors
    /// [`Error::Bounds`] if they are not in order.
    ///
    /// ```
    /// # use ratekeeper_resilience::*;
    /// let settings = AdaptiveSettings::default();
    /// let limit = AdaptiveConcurrency::new(settings, SplitMix::seeded()).unwrap();
    /// limit.set_bounds(Bounds { least: 2, most: 9, initial: 2 }).unwrap();
    /// assert_eq!(limit.limit(), 9, "from 20");
    /// ```
    pub fn set_bounds(&self, bounds: Bounds) -> Result<(), Error> {
        bounds.validate()?;
        let mut course = lock(&self.course);
        course.settings.bounds = bounds;
        course.level = course.level.within(bounds);
        self.limit
            .store(course.level.limit().into(), Ordering::Relaxed);
        Ok(())
    }

    /// Returns the present limit.
    pub fn limit(&self) -> u32 {
        u32::try_from(self.limit.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Returns the number of permits in use; above the limit for a while after that fell.
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.in_flight.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Returns the free share of the limit, from 0 to 1: a signal of spare capacity.
    ///
    /// ```
    /// # use ratekeeper_core::Time;
    /// # use ratekeeper_resilience::*;
    /// # let settings = AdaptiveSettings::default();
    /// let limit = AdaptiveConcurrency::new(settings, SplitMix::seeded()).unwrap();
    /// let _five: Vec<_> = (0..5).map(|_| limit.try_acquire(Time::ZERO)).collect();
    /// assert!((limit.headroom() - 0.75).abs() < 1e-9, "of 20");
    /// ```
    pub fn headroom(&self) -> f64 {
        let (at_work, limit) = (f64::from(self.in_flight()), f64::from(self.limit()));
        (1.0 - at_work / limit).max(0.0) // a limit is at least 1
    }

    /// Records work that began at `began` and ended at `now`.
    fn report(&self, began: Time, now: Time, end: End) {
        let course = &mut *lock(&self.course);
        course.window.add(began, now, end);
        if !course.window.is_over(now, &course.settings) {
            return;
        }
        let at_work = self.in_flight.load(Ordering::Relaxed);
        let peak = self.peak.swap(at_work, Ordering::Relaxed).max(at_work);
        let peak = u32::try_from(peak).unwrap_or(u32::MAX);
        let (sample, settings) = (course.window.close(now, peak), &course.settings);
        course.level = settings.law.next(settings.bounds, course.level, &sample);
        self.limit
            .store(course.level.limit().into(), Ordering::Relaxed);
    }
}

/// Every schedule of two threads; `RUSTFLAGS="--cfg loom" cargo test -p ratekeeper-resilience
/// --lib schedules`.
#[cfg(loom)]
#[cfg(test)]
mod schedules {
    use super::*;
    use crate::SplitMix;
    use loom::thread;

    #[test]
    fn one_of_two_threads_gets_the_only_permit() {
        loom::model(|| {
            let bounds = Bounds {
                least: 1,
                most: 1,
                initial: 1,
            };
            let settings = AdaptiveSettings {
                bounds,
                ..AdaptiveSettings::default()
            };
            let limit = Arc::new(AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap());
            let ask = |limit: &Arc<AdaptiveConcurrency>| limit.try_acquire_owned(Time::ZERO);
            let other = {
                let limit = Arc::clone(&limit);
                thread::spawn(move || ask(&limit))
            };
            let mine = ask(&limit);
            let theirs = other.join().unwrap();
            assert!(mine.is_some() != theirs.is_some());
            assert_eq!(limit.in_flight(), 1);
            drop((mine, theirs));
            assert_eq!(limit.in_flight(), 0);
        });
    }
}
