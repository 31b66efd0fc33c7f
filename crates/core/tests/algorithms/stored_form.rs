//! States in a shared store: written states are read back to the bit; other bytes are refused;
//! limits on a grid mean the same moments on any clock.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::any::type_name;
use std::fmt::Debug;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Balance, BanTerms, Banning, Concurrency, Denials, Edge,
    Exponential, Gcra, Hybrid, Interval, LeaseId, Lend, Log, Nanos, Origin, Permits, Quota,
    QuotaReset, StoredForm, SubBuckets, Time, UnixMicros, WarmUp, Window,
};

/// 2026, in microseconds since 1970.
const NOW: u64 = 1_767_225_600_000_000;

/// A life of charges of all sizes; after each, the state comes back from its bytes.
fn check<A: StoredForm + Debug>(algorithm: &A) {
    check_in(algorithm, 1);
}

/// As [`check`], with charges of up to three times `unit`.
fn check_in<A: StoredForm + Debug>(algorithm: &A, unit: u64) {
    let mut random = Random::new(9);
    let mut now = UnixMicros::new(NOW);
    let mut state = A::State::default();
    let mut bytes = Vec::new();
    algorithm.write(&state, now, &mut bytes);
    assert!(bytes.is_empty(), "a fresh state takes no bytes");
    for number in 0..2_000_u32 {
        now = UnixMicros::new(now.get() + random.below(1 << 20));
        let cost = Permits::new(unit * (1 + random.below(3)) - random.below(unit));
        let lend = match random.below(2) {
            0 => Lend::Unnamed,
            _ => Lend::To(LeaseId::from_bytes(u128::from(number).to_le_bytes())),
        };
        // GCRA reads its states on a clock that stands still: every reading moves them.
        if let Some(read) = algorithm.read(&bytes, now) {
            state = read;
        }
        let _ = algorithm.lend(&mut state, now.time(), cost, lend);
        bytes.clear();
        algorithm.write(&state, now, &mut bytes);
        if state == A::State::default() {
            assert!(bytes.is_empty());
            continue;
        }
        assert_eq!(
            algorithm.read(&bytes, now),
            Some(state.clone()),
            "{algorithm:?}"
        );
        check_invalid_bytes_are_refused(algorithm, &bytes, &mut random);
    }
}

fn check_invalid_bytes_are_refused<A: StoredForm + Debug>(
    algorithm: &A,
    bytes: &[u8],
    random: &mut Random,
) {
    let now = UnixMicros::new(NOW);
    assert_eq!(algorithm.read(&[], now), None);
    let longer = [bytes, b"?"].concat();
    assert_eq!(algorithm.read(&longer, now), None, "{algorithm:?}");
    // The mark of the form; that of a bucket stands behind its moment.
    let is_bucket = type_name::<A>() == type_name::<Gcra>();
    let mut other = bytes.to_vec();
    other[if is_bucket { 8 } else { 0 }] = b'?';
    assert_eq!(algorithm.read(&other, now), None, "{algorithm:?}");
    // Damage may be read as another state; it is never a panic, here or in deciding.
    let mut damaged = bytes.to_vec();
    let at = usize::try_from(random.below(damaged.len() as u64)).unwrap();
    damaged[at] ^= u8::try_from(1 + random.below(255)).unwrap();
    damaged.truncate(damaged.len() - usize::try_from(random.below(2)).unwrap());
    if let Some(mut state) = algorithm.read(&damaged, now) {
        let _ = algorithm.decide(&mut state, now.time(), Permits::ONE);
        let _ = algorithm.expires_at(&state, Time::ZERO);
    }
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

#[test]
fn stored_states_are_read_back_bit_for_bit() {
    let phase = Nanos::from_millis(37);
    let (six, three) = (Permits::new(6), Permits::new(3));
    for denials in [Denials::Free, Denials::Counted] {
        check(
            &Gcra::token_bucket(quota("7/3s"))
                .unwrap()
                .with_denials(denials),
        );
        check(
            &Gcra::leaky_queue(quota("7/3s"), six)
                .unwrap()
                .with_denials(denials),
        );
        check(&Log::sliding(quota("9/2s")).unwrap().with_denials(denials));
        check(
            &Exponential::new(quota("9/2s"))
                .unwrap()
                .with_denials(denials),
        );
        for edge in [Edge::Drop, Edge::Full, Edge::Weighted] {
            let window = SubBuckets::sub_buckets(quota("9/2s"), 5, edge, phase).unwrap();
            check(&window.with_denials(denials));
        }
        let concurrency = Concurrency::new(six, Nanos::from_secs(5)).unwrap();
        check(&concurrency.with_denials(denials));
    }
    let terms = BanTerms {
        strikes: quota("3/2s"),
        first: Nanos::from_millis(900),
        growth_thousandths: 1_500,
        longest: Nanos::from_secs(2),
    };
    check(&Banning::new(Log::sliding(quota("2/1s")).unwrap().into(), terms).unwrap());
    let counter = Window::two_window(quota("2/1s"), phase).unwrap();
    check(&Banning::new(counter.into(), terms).unwrap());
    check(&Window::fixed(quota("9/2s"), phase).unwrap());
    check(&Window::two_window(quota("9/2s"), phase).unwrap());
    check(&QuotaReset::new(quota("9/2s")).unwrap());
    check(&Balance::new(three, six).unwrap());
    check(&Interval::on_grid(six, three, Nanos::SECOND, phase).unwrap());
    check(&Interval::from_first(six, three, Nanos::SECOND).unwrap());
    check(&Hybrid::quota_linear(quota("9/2s")).unwrap());
    check(&WarmUp::bursty(5.0, 2.0).unwrap());
    check(&WarmUp::warming_up(5.0, Nanos::from_secs(3)).unwrap());
}

#[test]
fn states_of_large_limits_are_read_back_bit_for_bit() {
    const UNIT: u64 = Quota::MAX_PERMITS / 9;
    let phase = Nanos::from_millis(37);
    let most = Permits::new(Quota::MAX_PERMITS);
    for unit in [3, UNIT >> 20, UNIT] {
        let quota = Quota::new(Permits::new(9 * unit), Nanos::from_secs(200_000)).unwrap();
        for denials in [Denials::Free, Denials::Counted] {
            let bucket = Gcra::token_bucket(quota).unwrap().with_denials(denials);
            check_in(&bucket, unit);
            if let Ok(exponential) = Exponential::new(quota) {
                check_in(&exponential.with_denials(denials), unit);
            }
            let quota = Quota::new(quota.permits(), Nanos::from_secs(2)).unwrap();
            for edge in [Edge::Drop, Edge::Full, Edge::Weighted] {
                let window = SubBuckets::sub_buckets(quota, 5, edge, phase).unwrap();
                check_in(&window.with_denials(denials), unit);
            }
            let reset = QuotaReset::new(quota).unwrap();
            check_in(&reset.with_denials(denials), unit);
            let window = Window::two_window(quota, phase).unwrap();
            check_in(&window.with_denials(denials), unit);
        }
        check_in(&Hybrid::quota_linear(quota).unwrap(), unit);
        let refill = Permits::new(2 * unit);
        check_in(
            &Interval::from_first(quota.permits(), refill, Nanos::SECOND).unwrap(),
            unit,
        );
        check_in(&Balance::new(most, most).unwrap(), unit >> 6);
    }
}

/// Counts take four bytes each while all of them fit, so that versions that counted in 32 bits
/// read them, and eight otherwise.
#[test]
fn small_counts_take_four_bytes_and_large_ones_eight() {
    let now = UnixMicros::new(NOW);
    let day = Quota::per_day(Quota::MAX_PERMITS);
    let widest = Permits::new(u32::MAX.into());
    // Of permits used, and of permits left.
    let used = [widest, Permits::new(1 << 32)];
    let left = [day.permits() - widest, Permits::ONE];
    let reset = QuotaReset::new(day).unwrap();
    assert_eq!(lengths(&reset, used, now), [13, 17]);
    let window = Window::fixed(day, Nanos::ZERO).unwrap();
    assert_eq!(lengths(&window, used, now), [17, 25]);
    let buckets = SubBuckets::sub_buckets(day, 5, Edge::Drop, Nanos::ZERO).unwrap();
    assert_eq!(lengths(&buckets, used, now), [33, 57]);
    let interval = Interval::from_first(day.permits(), Permits::ONE, Nanos::from_nanos(1));
    assert_eq!(lengths(&interval.unwrap(), used, now), [13, 17]);
    let balance = Balance::new(day.permits(), day.permits()).unwrap();
    assert_eq!(lengths(&balance, left, now), [5, 9]);
    let hybrid = Hybrid::quota_linear(day).unwrap();
    assert_eq!(lengths(&hybrid, left, now), [14, 18]);
    // A state of a version that counted in 32 bits.
    let mut old = vec![b'q'];
    old.extend_from_slice(&NOW.to_le_bytes());
    old.extend_from_slice(&7_u32.to_le_bytes());
    let state = reset.read(&old, now).unwrap();
    let left = reset.look(&state, now.time(), Permits::ZERO).remaining;
    assert_eq!(left, day.permits() - Permits::new(7));
    // No count is above the maximum.
    let mut beyond = vec![b'q'];
    beyond.extend_from_slice(&NOW.to_le_bytes());
    beyond.extend_from_slice(&(Permits::MAX.get() + 1).to_le_bytes());
    assert_eq!(reset.read(&beyond, now), None);
}

/// The bytes that a state takes after each of two first costs.
fn lengths<A: StoredForm>(algorithm: &A, costs: [Permits; 2], now: UnixMicros) -> [usize; 2] {
    costs.map(|cost| {
        let mut state = A::State::default();
        let decision = algorithm.decide(&mut state, now.time(), cost);
        assert!(decision.verdict.allows());
        let mut bytes = Vec::new();
        algorithm.write(&state, now, &mut bytes);
        assert_eq!(algorithm.read(&bytes, now), Some(state));
        bytes.len()
    })
}

/// Two processes that were started at different times see the same windows.
#[test]
fn grids_denote_the_same_moments_on_any_clock() {
    let (per, wall) = (Nanos::from_nanos(7_000_001), Origin::from_unix_nanos(3));
    let all: [fn(Quota, Nanos) -> AnyAlgorithm; 3] = [
        |quota, phase| Window::fixed(quota, phase).unwrap().into(),
        |quota, phase| {
            let window = SubBuckets::sub_buckets(quota, 7, Edge::Full, phase);
            window.unwrap().into()
        },
        |quota, phase| {
            let (most, refill) = (quota.permits(), Permits::ONE);
            Interval::on_grid(most, refill, quota.per(), phase)
                .unwrap()
                .into()
        },
    ];
    for make in all {
        let quota = Quota::new(Permits::new(7), per).unwrap();
        let width = |algorithm: &AnyAlgorithm| match algorithm {
            AnyAlgorithm::SubBuckets(_) => Nanos::from_nanos(per.as_nanos().div_ceil(7)),
            _ => per,
        };
        let early = Origin::from_unix_nanos(1_763_712_345_678_901_234);
        let late = Origin::from_unix_nanos(1_763_999_999_999_999_999);
        let made = |origin: Origin| {
            let width = width(&make(quota, Nanos::ZERO));
            make(quota, origin.phase(width))
        };
        let unix = made(Origin::UNIX);
        assert_eq!(made(early).on_clock(early, Origin::UNIX), unix);
        assert_eq!(made(late).on_clock(late, Origin::UNIX), unix);
        assert_eq!(made(early).on_clock(early, late), made(late));
        let odd = make(quota, Nanos::from_nanos(5));
        assert_eq!(odd.on_clock(wall, early).on_clock(early, wall), odd);
    }
}

#[test]
fn store_timestamps_saturate() {
    assert_eq!(UnixMicros::new(1).time(), Time::from_nanos(1_000));
    assert_eq!(UnixMicros::new(u64::MAX).time(), Time::MAX);
}
