//! Bans: strikes, lengths, bans by hand, and what outlives a change of the limit.

use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::stored_form::StoredForm as _;
use crate::{Gcra, UnixMicros, Window};

const HOUR: u64 = 3_600;

fn secs(secs: u64) -> Nanos {
    Nanos::from_secs(secs)
}

fn at(seconds: u64) -> Time {
    Time::ZERO + secs(seconds)
}

/// Three strikes in a day: an hour, then twice as long each time, up to four hours.
fn terms() -> BanTerms {
    BanTerms {
        strikes: "3/24h".parse().unwrap(),
        first: secs(HOUR),
        growth_thousandths: 2_000,
        longest: secs(4 * HOUR),
    }
}

/// One request a minute.
fn logins(terms: BanTerms) -> WithBans<Gcra> {
    WithBans::new(Gcra::token_bucket("1/1m".parse().unwrap()).unwrap(), terms).unwrap()
}

/// What a request at a second meets, with its wait in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Met {
    Pass,
    Deny(u64),
    Ban(u64),
    Banned(u64),
    Never,
}

impl From<Verdict> for Met {
    fn from(verdict: Verdict) -> Self {
        let secs = |wait: Nanos| wait.as_nanos() / 1_000_000_000;
        match verdict {
            Verdict::Allow | Verdict::AllowAfter(_) => Self::Pass,
            Verdict::Deny { retry_after } => Self::Deny(secs(retry_after)),
            Verdict::Ban { retry_after } => Self::Ban(secs(retry_after)),
            Verdict::Banned { retry_after } => Self::Banned(secs(retry_after)),
            Verdict::DenyForever => Self::Never,
        }
    }
}

fn check<A: Algorithm>(limit: &WithBans<A>, rows: &[(u64, u64, Met)]) -> BanState<A::State> {
    let mut state = BanState::default();
    for &(second, cost, met) in rows {
        let decision = limit.decide(&mut state, at(second), Permits::new(cost));
        assert_eq!(Met::from(decision.verdict), met, "{cost} at {second} s");
        assert!(decision.remaining == Permits::ZERO || !decision.verdict.is_ban());
    }
    state
}

use Met::{Ban, Banned, Deny, Never, Pass};

#[test]
fn the_third_refusal_bans_and_the_ban_is_not_prolonged() {
    check(
        &logins(terms()),
        &[
            (0, 1, Pass),
            (1, 1, Deny(59)),
            (2, 1, Deny(58)),
            (2, 0, Pass), // a look is no strike
            (2, 2, Never),
            (3, 1, Ban(HOUR)),
            (4, 1, Banned(HOUR - 1)),
            (3_000, 1, Banned(603)),
            (3_000, 0, Banned(603)),
            (3_000, 2, Never),
            (3_602, 1, Banned(1)),
            (3_603, 1, Pass),
        ],
    );
}

#[test]
fn strikes_leave_one_by_one() {
    let day = 24 * HOUR;
    check(
        &logins(terms()),
        &[
            (0, 1, Pass),
            (10, 1, Deny(50)),
            (day - 20, 1, Pass),
            (day - 10, 1, Deny(50)), // two in the day before
            (day + 10, 1, Deny(30)), // the first has just left
            (day + 20, 1, Ban(HOUR)),
        ],
    );
}

#[test]
fn each_further_ban_is_longer_up_to_the_longest() {
    let mut rows = Vec::new();
    let mut now = 0;
    for hours in [1, 2, 4, 4] {
        rows.extend([(now, 1, Pass), (now, 1, Deny(60)), (now, 1, Deny(60))]);
        rows.push((now, 1, Ban(hours * HOUR)));
        now += hours * HOUR;
    }
    now += 24 * HOUR; // a day after the end of the last
    rows.extend([(now, 1, Pass), (now, 1, Deny(60)), (now, 1, Deny(60))]);
    rows.push((now, 1, Ban(HOUR)));
    check(&logins(terms()), &rows);
}

#[test]
fn one_strike_may_be_enough() {
    let terms = BanTerms {
        strikes: "1/1h".parse().unwrap(),
        growth_thousandths: 1_500,
        ..terms()
    };
    check(
        &logins(terms),
        &[
            (0, 1, Pass),
            (0, 1, Ban(HOUR)),
            (HOUR, 1, Pass),
            (HOUR, 1, Ban(HOUR + HOUR / 2)),
            (HOUR, 1, Banned(HOUR + HOUR / 2)),
        ],
    );
}

#[test]
fn a_limit_that_denies_for_longer_than_the_ban_sets_the_wait() {
    let daily = Window::fixed("1/24h".parse().unwrap(), Nanos::ZERO).unwrap();
    let limit = WithBans::new(daily, terms()).unwrap();
    let rest = |now: u64| 24 * HOUR - now;
    let state = check(
        &limit,
        &[
            (10, 1, Pass),
            (11, 1, Deny(rest(11))),
            (12, 1, Deny(rest(12))),
            (13, 1, Ban(rest(13))),
            (13 + HOUR, 1, Deny(rest(13 + HOUR))), // the ban is over, the limit still denies
        ],
    );
    let standing = limit.look(&state, at(20), Permits::ZERO);
    assert_eq!(
        standing.verdict,
        Verdict::Banned {
            retry_after: secs(HOUR - 7)
        }
    );
    assert_eq!(standing.more_after, secs(rest(20)));
}

#[test]
fn a_clock_that_steps_back_prolongs_the_ban_by_the_step() {
    check(
        &logins(terms()),
        &[
            (5_000, 1, Pass),
            (5_000, 1, Deny(60)),
            (4_995, 1, Deny(65)), // at the newest strike
            (5_000, 1, Ban(HOUR)),
            (2_000, 1, Banned(3_000 + HOUR)),
            (5_000 + HOUR, 1, Pass),
        ],
    );
}

#[test]
fn bans_by_hand_and_their_lifting() {
    let limit = logins(terms());
    let one = Permits::ONE;
    let mut state = BanState::default();
    let ask = |state: &mut BanState<_>, second| -> Met {
        limit.decide(state, at(second), one).verdict.into()
    };
    limit.ban(&mut state, at(0), secs(600));
    assert_eq!(ask(&mut state, 1), Banned(599), "a key never seen");
    limit.ban(&mut state, at(1), secs(60));
    assert_eq!(ask(&mut state, 1), Banned(60), "the last one stands");
    limit.ban(&mut state, at(1), Nanos::ZERO);
    assert_eq!(state, BanState::of_limit(crate::Tat::default()));
    assert_eq!([ask(&mut state, 2), ask(&mut state, 2)], [Pass, Deny(60)]);
    limit.ban(&mut state, at(2), Nanos::ZERO);
    let met = [0; 4].map(|_| ask(&mut state, 2));
    assert_eq!(
        met[..3],
        [Deny(60), Deny(60), Ban(HOUR)],
        "strikes are lifted, usage stays"
    );
    limit.ban(&mut state, at(2), Nanos::MAX);
    assert_eq!(
        ask(&mut state, 2),
        Banned(MAX_BAN.as_nanos() / 1_000_000_000)
    );
    let expires = limit.expires_at(&state, at(2));
    assert_eq!(
        expires,
        at(2) + MAX_BAN,
        "known to the end of the longest ban"
    );
}

#[test]
fn a_ban_by_hand_changes_nothing_of_the_next_one() {
    let limit = Banning::new(AnyAlgorithm::from(*logins(terms()).limit()), terms()).unwrap();
    // Hours of a ban by hand, and of the next strikes; the first ban ends at the hour 1.
    for (by_hand, then, length) in [
        (0..0, 2, 2 * HOUR),
        (2..3, 4, 2 * HOUR),
        (2..40, 41, HOUR), // the first is forgotten by then
        (0..0, 41, HOUR),
    ] {
        let mut state = BanState::default();
        let strike = |state: &mut BanState<_>, second: u64| {
            let asked = [0; 4].map(|_| limit.decide(state, at(second), Permits::ONE).verdict);
            Met::from(asked[3])
        };
        assert_eq!(strike(&mut state, 0), Ban(HOUR));
        if !by_hand.is_empty() {
            limit.ban(
                &mut state,
                at(by_hand.start * HOUR),
                secs((by_hand.end - by_hand.start) * HOUR),
            );
            let (mut bytes, now) = (Vec::new(), UnixMicros::new(0));
            limit.write(&state, now, &mut bytes);
            assert_eq!(limit.read(&bytes, now).as_ref(), Some(&state));
        }
        assert_eq!(
            strike(&mut state, then * HOUR),
            Ban(length),
            "{by_hand:?}, {then}"
        );
    }
}

#[test]
fn the_ends_of_time_and_length_saturate() {
    let terms = BanTerms {
        strikes: "1/1h".parse().unwrap(),
        first: MAX_BAN,
        growth_thousandths: u32::MAX,
        longest: MAX_BAN,
    };
    assert_eq!(terms.after_ban_of(Nanos::MAX), MAX_BAN);
    let daily = Window::fixed("1/24h".parse().unwrap(), Nanos::ZERO).unwrap();
    let limit = WithBans::new(daily, terms).unwrap();
    let mut state = BanState::default();
    for _ in 0..3 {
        let now = Time::MAX - Nanos::from_nanos(5);
        let _ = limit.decide(&mut state, now, Permits::ONE);
        limit.ban(&mut state, Time::MAX, MAX_BAN);
        let _ = limit.look(&state, Time::MAX, Permits::ONE);
        assert!(limit.expires_at(&state, now) <= Time::MAX);
    }
}

#[test]
fn a_ban_outlives_a_change_of_the_limit() {
    let gcra = |text: &str| AnyAlgorithm::from(Gcra::token_bucket(text.parse().unwrap()).unwrap());
    let fixed = Window::fixed("10/1m".parse().unwrap(), Nanos::ZERO).unwrap();
    let old = Banning::new(gcra("4/1m"), terms()).unwrap();
    let mut state = BanState::default();
    let _ = old.decide(&mut state, at(0), Permits::new(3));
    old.ban(&mut state, at(0), secs(30));
    for limit in [gcra("8/1m"), fixed.into()] {
        let new = Banning::new(limit, terms()).unwrap();
        let mut state = state.clone();
        assert!(new.keeps_state_of(&old));
        new.rescale(&mut state, &old, at(0), Nanos::ZERO);
        let met = new.decide(&mut state, at(10), Permits::ONE).verdict;
        assert_eq!(Met::from(met), Banned(20), "{new:?}");
        assert!(new.usage(&state, at(0)) >= Permits::new(3), "{new:?}");
    }
    // A limit that drops its bans takes the usage over, not the ban.
    let without = gcra("4/1m");
    let banning = AnyAlgorithm::from(old);
    let state = crate::AnyState::Banning(state);
    assert!(!without.keeps_state_of(&banning));
    assert_eq!(banning.usage(&state, at(0)), Permits::new(3));
}

#[test]
fn one_evicted_ban_does_not_shut_out_newcomers() {
    let limit = logins(terms());
    let mut floor = BanState::default();
    limit.ban(&mut floor, at(0), secs(HOUR));
    let _ = limit.decide(&mut floor, at(0), Permits::ONE);
    let carried = limit.state_with_usage(limit.usage(&floor, at(1)), at(1));
    assert_eq!(
        Met::from(limit.look(&carried, at(1), Permits::ONE).verdict),
        Pass
    );
}

#[test]
fn terms_out_of_bounds_are_refused() {
    let gcra = || Gcra::token_bucket("1/1m".parse().unwrap()).unwrap();
    for wrong in [
        BanTerms {
            strikes: "101/24h".parse().unwrap(),
            ..terms()
        },
        BanTerms {
            first: Nanos::ZERO,
            ..terms()
        },
        BanTerms {
            first: secs(5 * HOUR),
            ..terms()
        },
        BanTerms {
            longest: MAX_BAN + Nanos::from_nanos(1),
            ..terms()
        },
        BanTerms {
            growth_thousandths: 999,
            ..terms()
        },
    ] {
        assert_eq!(WithBans::new(gcra(), wrong), Err(Error::Ban), "{wrong:?}");
    }
    let counting = gcra().with_denials(Denials::Counted);
    assert_eq!(WithBans::new(counting, terms()), Err(Error::Ban));
}

#[test]
fn refunds_and_reservations_are_those_of_the_limit() {
    let gcra = Gcra::token_bucket("2/1m".parse().unwrap()).unwrap();
    let limit = AnyAlgorithm::from(gcra.with_patience(secs(60)));
    let limit = AnyAlgorithm::from(Banning::new(limit, terms()).unwrap());
    let (one, wait) = (Permits::ONE, secs(60));
    let mut state = crate::AnyState::default();
    limit.try_refund(&mut state, at(0), one).unwrap();
    let _ = limit.decide(&mut state, at(0), Permits::new(2));
    limit.try_refund(&mut state, at(0), one).unwrap();
    assert_eq!(limit.usage(&state, at(0)), one);
    for expected in [
        Verdict::Allow,
        Verdict::AllowAfter(secs(30)),
        Verdict::AllowAfter(wait),
    ] {
        let decision = limit.try_reserve(&mut state, at(0), one, wait).unwrap();
        assert_eq!(decision.verdict, expected);
    }
    for _ in 0..5 {
        let denied = limit.try_reserve(&mut state, at(0), one, wait).unwrap();
        assert_eq!(Met::from(denied.verdict), Deny(30), "no strike");
    }
    limit.try_ban(&mut state, at(0), secs(7)).unwrap();
    let denied = limit.try_reserve(&mut state, at(0), one, wait).unwrap();
    assert!(denied.verdict.is_ban());
    let log = AnyAlgorithm::from(Log::sliding("2/1m".parse().unwrap()).unwrap());
    let refused = log
        .try_ban(&mut crate::AnyState::default(), at(0), secs(7))
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("does not support bans; hint: add `ban` to the limit")
    );
}
