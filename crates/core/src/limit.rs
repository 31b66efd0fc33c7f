//! Limit: a name and the algorithm chosen for it at run time.

use alloc::sync::Arc;

use crate::Algorithm;
use crate::algorithms::window::{SubBuckets, Window};
use crate::{
    Concurrency, Decision, Denials, Error, Exponential, Gcra, Hybrid, Interval, Lend, Log, Nanos,
    Origin, Permits, Quota, Time, WarmUp,
};

/// Where a store keeps the states of a limit: given once per name, kept across reloads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LimitId(u32);

impl LimitId {
    /// The id with this number; ids are dense, from 0.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A named limit.
///
/// The name is the identity of its counters across reloads; `id` stands for it on the hot
/// path. `version` grows with every reload: a store that meets a newer version converts the
/// states it holds, once.
#[derive(Clone, Debug)]
pub struct Limit {
    /// `[a-z0-9-]{1,40}`, unique in a policy.
    pub name: Arc<str>,
    /// Stands for the name.
    pub id: LimitId,
    /// Of the policy that this limit comes from.
    pub version: u32,
    /// How it decides.
    pub algorithm: AnyAlgorithm,
    /// What it does while the store that it shares with other processes fails.
    pub outage: Outage,
}

/// What a limit does while the store that it shares with other processes fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Outage {
    /// Each process holds its share of the limit.
    #[default]
    Local,
    /// Passes everything.
    Allow,
    /// Refuses everything.
    Deny,
    /// Returns the store's error, so that the caller decides.
    Error,
}

/// The algorithms that can be chosen at run time: a closed set.
#[derive(Clone, PartialEq, Debug)]
pub enum AnyAlgorithm {
    /// Token bucket, leaky bucket (meter and queue), spacing.
    Gcra(Gcra),
    /// Fixed window, sliding window counter, quota reset, calendar window.
    Window(Window),
    /// Sliding window of sub-buckets.
    SubBuckets(SubBuckets),
    /// Bucket refilled in whole steps.
    Interval(Interval),
    /// Sliding window log, strict or not, with or without a gap.
    Log(Log),
    /// Hybrid: a quota at once, then a pace.
    Hybrid(Hybrid),
    /// Exponentially fading counter.
    Exponential(Exponential),
    /// Post-paid limiters: warming up, smooth bursty.
    WarmUp(WarmUp),
    /// Permits on loan: at most so many at work at once.
    Concurrency(Concurrency),
}

/// Runs `$body` with `$algorithm` bound to whichever algorithm it is.
macro_rules! with_algorithm {
    ($any:expr, $algorithm:ident => $body:expr) => {
        match $any {
            AnyAlgorithm::Gcra($algorithm) => $body,
            AnyAlgorithm::Window($algorithm) => $body,
            AnyAlgorithm::SubBuckets($algorithm) => $body,
            AnyAlgorithm::Interval($algorithm) => $body,
            AnyAlgorithm::Log($algorithm) => $body,
            AnyAlgorithm::Hybrid($algorithm) => $body,
            AnyAlgorithm::Exponential($algorithm) => $body,
            AnyAlgorithm::WarmUp($algorithm) => $body,
            AnyAlgorithm::Concurrency($algorithm) => $body,
        }
    };
}

impl AnyAlgorithm {
    /// The largest cost that can ever be admitted; see [`Algorithm::capacity`].
    pub fn capacity(&self) -> Permits {
        with_algorithm!(self, algorithm => algorithm.capacity())
    }

    /// The most permits that any span of `window` admits; see [`Algorithm::bound`].
    pub fn bound(&self, window: Nanos) -> u64 {
        with_algorithm!(self, algorithm => algorithm.bound(window))
    }

    /// The most permits that wait at once for a moment they were promised, and the longest
    /// such wait. `None` for those that promise none: they admit or deny.
    pub fn queue(&self) -> Option<(Permits, Nanos)> {
        match self {
            Self::Gcra(gcra) => Some(gcra.queue()).filter(|(places, _)| *places > Permits::ZERO),
            _ => None,
        }
    }

    /// The algorithm's name, for people: `token bucket`, `calendar window`.
    pub fn name(&self) -> &'static str {
        with_algorithm!(self, algorithm => algorithm.name())
    }

    /// The same way of counting with other numbers: windows stay windows on the same kind of
    /// grid, those of a calendar become windows since 1970; buckets hold the quota's burst
    /// and have no queue; post-paid limits become buckets; loans keep their lease. Denials cost what they did.
    ///
    /// ```
    /// use ratekeeper_core::{AnyAlgorithm, Nanos, Origin, Permits, Window};
    /// let minute = Window::fixed("10/1m".parse().unwrap(), Nanos::ZERO).unwrap();
    /// let hour = AnyAlgorithm::from(minute).with_quota("20/1h".parse().unwrap(), Origin::UNIX);
    /// assert_eq!(hour.unwrap().capacity(), Permits::new(20));
    /// ```
    ///
    /// # Errors
    /// When the algorithm cannot keep such numbers.
    pub fn with_quota(&self, quota: Quota, origin: Origin) -> Result<Self, Error> {
        Ok(match self {
            Self::Gcra(gcra) => gcra.with_quota(quota)?.into(),
            Self::Window(window) => window.with_quota(quota, origin)?.into(),
            Self::SubBuckets(window) => window.with_quota(quota, origin)?.into(),
            Self::Interval(interval) => interval.with_quota(quota, origin)?.into(),
            Self::Log(log) => log.with_quota(quota)?.into(),
            Self::Hybrid(_) => Hybrid::quota_linear(quota)?.into(),
            Self::Exponential(exponential) => exponential.with_quota(quota)?.into(),
            Self::WarmUp(_) => Gcra::token_bucket(quota)?.into(),
            Self::Concurrency(loans) => loans.with_permits(quota.permits())?.into(),
        })
    }

    /// The same limit on a clock with another zero: windows and strokes that lie on a grid
    /// fall at the same moments of the world. The limit was constructed for `from`.
    #[must_use]
    pub fn on_clock(&self, from: Origin, to: Origin) -> Self {
        match self {
            Self::Window(window) => Self::Window(window.on_clock(from, to)),
            Self::SubBuckets(window) => Self::SubBuckets(window.on_clock(from, to)),
            Self::Interval(interval) => Self::Interval(interval.on_clock(from, to)),
            // These know spans only.
            Self::Gcra(_)
            | Self::Log(_)
            | Self::Hybrid(_)
            | Self::Exponential(_)
            | Self::WarmUp(_)
            | Self::Concurrency(_) => self.clone(),
        }
    }

    /// A time after which more than `decision.remaining` may be used, if nobody else spends
    /// meanwhile: `t` of the `RateLimit` field. `None` while nothing is used.
    ///
    /// It is `decision.more_after`; where permits come back one by one (token bucket, weighted
    /// windows, sliding log) at least the time in which the rate grants `remaining` anew, so
    /// that a client that spreads `remaining` over it keeps to the rate.
    ///
    /// ```
    /// use ratekeeper_core::{Algorithm, AnyAlgorithm, Gcra, Nanos, Permits, Time};
    /// let gcra = Gcra::token_bucket("10/1s".parse().unwrap()).unwrap();
    /// let decision = gcra.decide(&mut Default::default(), Time::ZERO, Permits::new(6));
    /// let window = AnyAlgorithm::from(gcra).effective_window(&decision);
    /// assert_eq!(window, Some(Nanos::from_millis(400)), "four more take that long");
    /// ```
    pub fn effective_window(&self, decision: &Decision) -> Option<Nanos> {
        let more = decision.more_after;
        if more == Nanos::ZERO {
            return None;
        }
        let one_by_one = match self {
            Self::Gcra(_) | Self::Log(_) => true,
            Self::Window(window) => window.slides(),
            Self::SubBuckets(window) => window.slides(),
            Self::Interval(_)
            | Self::Hybrid(_)
            | Self::Exponential(_)
            | Self::WarmUp(_)
            | Self::Concurrency(_) => false,
        };
        let anew = self.window().filter(|_| one_by_one).map(|window| {
            let share = u128::from(window.as_nanos()) * u128::from(decision.remaining.get());
            let anew = share.div_ceil(u128::from(self.capacity().get().max(1)));
            Nanos::from_nanos(u64::try_from(anew).unwrap_or(u64::MAX))
        });
        Some(anew.map_or(more, |anew| anew.max(more)))
    }

    /// The end of the window of the clock, the calendar or the key that a first request at
    /// `now` falls into; of sub-buckets the end of its sub-bucket. `None` without windows.
    pub fn window_end(&self, now: Time) -> Option<Time> {
        match self {
            Self::Window(window) => Some(window.end_at(now)),
            Self::SubBuckets(window) => Some(window.end_at(now)),
            _ => None,
        }
    }

    /// The span in which the [`capacity`](Self::capacity) is granted anew: `w` of the
    /// `RateLimit-Policy` field. `None` for spans of the calendar, for what fades or warms
    /// up, and for what is on loan.
    ///
    /// ```
    /// use ratekeeper_core::{AnyAlgorithm, Gcra, Nanos};
    /// let bucket = Gcra::token_bucket("10/1s".parse().unwrap()).unwrap();
    /// assert_eq!(AnyAlgorithm::from(bucket).window(), Some(Nanos::SECOND));
    /// ```
    pub fn window(&self) -> Option<Nanos> {
        match self {
            Self::Gcra(gcra) => Some(gcra.window()),
            Self::Window(window) => window.window(),
            Self::SubBuckets(window) => window.window(),
            Self::Interval(interval) => Some(interval.window()),
            Self::Log(log) => Some(log.window()),
            Self::Hybrid(hybrid) => Some(hybrid.window()),
            Self::Exponential(_) | Self::WarmUp(_) | Self::Concurrency(_) => None,
        }
    }

    /// The limit of what is at work at once, if it is one: then what it allows is lent, and
    /// comes back.
    #[inline]
    pub const fn concurrency(&self) -> Option<&Concurrency> {
        match self {
            Self::Concurrency(concurrency) => Some(concurrency),
            _ => None,
        }
    }
}

impl AnyAlgorithm {
    /// Whether a charge is made whatever becomes of the request: under a limit that counts
    /// denials, for a request that another limit refuses is denied too. Permits on loan only
    /// to nobody in particular: those are given back for whoever was refused as well.
    pub fn takes_regardless(&self, lend: Lend) -> bool {
        let denials = match self {
            Self::Gcra(gcra) => gcra.denials(),
            Self::Window(window) => window.denials(),
            Self::SubBuckets(window) => window.denials(),
            Self::Log(log) => log.denials(),
            Self::Exponential(exponential) => exponential.denials(),
            Self::Concurrency(limit) if lend == Lend::Unnamed => limit.denials(),
            _ => Denials::Free,
        };
        denials == Denials::Counted
    }
}

impl From<Gcra> for AnyAlgorithm {
    fn from(gcra: Gcra) -> Self {
        Self::Gcra(gcra)
    }
}

impl From<Window> for AnyAlgorithm {
    fn from(window: Window) -> Self {
        Self::Window(window)
    }
}

impl From<SubBuckets> for AnyAlgorithm {
    fn from(window: SubBuckets) -> Self {
        Self::SubBuckets(window)
    }
}

impl From<Interval> for AnyAlgorithm {
    fn from(algorithm: Interval) -> Self {
        Self::Interval(algorithm)
    }
}

impl From<Log> for AnyAlgorithm {
    fn from(algorithm: Log) -> Self {
        Self::Log(algorithm)
    }
}

impl From<Hybrid> for AnyAlgorithm {
    fn from(algorithm: Hybrid) -> Self {
        Self::Hybrid(algorithm)
    }
}

impl From<Exponential> for AnyAlgorithm {
    fn from(algorithm: Exponential) -> Self {
        Self::Exponential(algorithm)
    }
}

impl From<WarmUp> for AnyAlgorithm {
    fn from(algorithm: WarmUp) -> Self {
        Self::WarmUp(algorithm)
    }
}

impl From<Concurrency> for AnyAlgorithm {
    fn from(algorithm: Concurrency) -> Self {
        Self::Concurrency(algorithm)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::{Denials, Edge};

    #[test]
    fn a_window_is_that_of_the_quota_although_intervals_are_rounded_up() {
        for text in [
            "1/1s",
            "7/1s",
            "3/1m",
            "100/1m",
            "900/1h",
            "1/1d",
            "9999/1d",
            "7/250ms",
            "3/7us",
            "999983/1s",
        ] {
            let quota: Quota = text.parse().unwrap();
            let bucket = AnyAlgorithm::from(Gcra::token_bucket(quota).unwrap());
            assert_eq!(bucket.window(), Some(quota.per()), "{text}");
        }
        let quota: Quota = "12/1m".parse().unwrap();
        let phase = Nanos::ZERO;
        let step = |most, refill| Interval::from_first(most, refill, Nanos::SECOND).unwrap();
        let [five, two] = [Permits::new(5), Permits::new(2)];
        let rows: vec::Vec<(AnyAlgorithm, Option<Nanos>)> = vec![
            (
                Window::fixed(quota, phase).unwrap().into(),
                Some(quota.per()),
            ),
            (
                Window::quota_reset(quota).unwrap().into(),
                Some(quota.per()),
            ),
            (
                SubBuckets::sub_buckets(quota, 6, Edge::Full, phase)
                    .unwrap()
                    .into(),
                Some(quota.per()),
            ),
            (step(five, two).into(), Some(Nanos::from_secs(3))),
            (Log::sliding(quota).unwrap().into(), Some(quota.per())),
            (
                Hybrid::quota_linear(quota).unwrap().into(),
                Some(quota.per()),
            ),
            (Exponential::new(quota).unwrap().into(), None),
            (WarmUp::bursty(1.0, 1.0).unwrap().into(), None),
            (Concurrency::new(two, Nanos::SECOND).unwrap().into(), None),
        ];
        for (algorithm, expected) in rows {
            assert_eq!(algorithm.window(), expected, "{}", algorithm.name());
        }
    }

    #[test]
    fn an_algorithm_says_its_name() {
        let quota: Quota = "10/1m".parse().unwrap();
        let phase = Nanos::ZERO;
        let rows: vec::Vec<(AnyAlgorithm, &str)> = vec![
            (Gcra::token_bucket(quota).unwrap().into(), "token bucket"),
            (
                Gcra::leaky_queue(quota, Permits::ONE).unwrap().into(),
                "leaky bucket",
            ),
            (Window::fixed(quota, phase).unwrap().into(), "fixed window"),
            (
                Window::two_window(quota, phase).unwrap().into(),
                "sliding window counter",
            ),
            (Window::quota_reset(quota).unwrap().into(), "quota reset"),
            (
                SubBuckets::sub_buckets(quota, 6, Edge::Full, phase)
                    .unwrap()
                    .into(),
                "sub-buckets",
            ),
            (
                Interval::from_first(Permits::ONE, Permits::ONE, Nanos::SECOND)
                    .unwrap()
                    .into(),
                "interval bucket",
            ),
            (Log::sliding(quota).unwrap().into(), "sliding window log"),
            (
                Log::sliding(quota)
                    .unwrap()
                    .with_denials(Denials::Counted)
                    .into(),
                "strict sliding window log",
            ),
            (Hybrid::quota_linear(quota).unwrap().into(), "hybrid"),
            (Exponential::new(quota).unwrap().into(), "exponential"),
            (
                WarmUp::warming_up(1.0, Nanos::SECOND).unwrap().into(),
                "warm-up",
            ),
            (WarmUp::bursty(1.0, 1.0).unwrap().into(), "smooth bursty"),
            (
                Concurrency::new(Permits::ONE, Nanos::SECOND)
                    .unwrap()
                    .into(),
                "concurrency",
            ),
        ];
        for (algorithm, name) in rows {
            assert_eq!(algorithm.name(), name);
        }
    }

    fn millis(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    /// After `cost` at 1,300 ms: the effective window.
    fn window_of<A: Algorithm + Into<AnyAlgorithm>>(algorithm: A, cost: u32) -> Option<Nanos> {
        let now = Time::ZERO + millis(1_300);
        let decision = algorithm.decide(&mut A::State::default(), now, Permits::new(cost));
        algorithm.into().effective_window(&decision)
    }

    #[test]
    fn effective_windows_never_promise_more_than_the_rate() {
        let quota: Quota = "10/1s".parse().unwrap();
        let gcra = Gcra::token_bucket(quota).unwrap();
        for (cost, window) in [(4, 600), (9, 100), (10, 100)] {
            assert_eq!(window_of(gcra, cost), Some(millis(window)), "cost {cost}");
        }
        assert_eq!(window_of(gcra, 11), None, "nothing is spent");
        let fixed = Window::fixed(quota, Nanos::ZERO).unwrap();
        assert_eq!(window_of(fixed.clone(), 4), Some(millis(700)));
        assert_eq!(
            window_of(fixed, 0),
            None,
            "nothing is counted, so nothing tells"
        );
        let two_window = Window::two_window(quota, Nanos::ZERO).unwrap();
        assert_eq!(
            window_of(two_window, 4),
            Some(millis(700) + Nanos::from_nanos(1)),
            "less than four of the four"
        );
        assert_eq!(
            window_of(Window::quota_reset(quota).unwrap(), 4),
            Some(millis(1_000))
        );
        for (edge, after) in [(Edge::Drop, 950), (Edge::Full, 1_200)] {
            let window = SubBuckets::sub_buckets(quota, 4, edge, Nanos::ZERO).unwrap();
            assert_eq!(window_of(window, 4), Some(millis(after)), "{edge:?}");
        }
    }
}
