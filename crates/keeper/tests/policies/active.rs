//! Active hours, end to end in virtual time: balances where limits begin and end, and a wall clock
//! that is set.

use std::net::{IpAddr, Ipv4Addr};

use ratekeeper::core::{Nanos, Origin, Time};
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Clock, Keeper, ManualClock, Scope, at_once};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

const HOUR: Nanos = Nanos::from_secs(3_600);

/// 2026-11-21 00:00 in Oslo.
const MIDNIGHT: Origin = Origin::from_unix_nanos(1_795_215_600_000_000_000);

/// A limit by night and one by day, with one key.
fn keeper(night: &str, day: &str) -> TestKeeper {
    let text = format!(
        "version = 1\ntimezone = \"Europe/Oslo\"\n\
         [[limit]]\nname = \"night\"\nkey = [\"ip\"]\n{night}\nactive = {{ hours = \"01:00-06:00\" }}\n\
         [[limit]]\nname = \"day\"\nkey = [\"ip\"]\n{day}\nactive = {{ hours = \"06:00-01:00\" }}\n"
    );
    let policy = config::parse(&text, config::Context::from(MIDNIGHT));
    let policy = policy
        .unwrap_or_else(|findings| panic!("{findings:?}"))
        .policy;
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy, store, ManualClock::at(MIDNIGHT))
}

fn facts() -> Facts<'static> {
    Facts {
        ip: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
        ..Facts::default()
    }
}

/// Returns the limits of the next request, with the permits that remain under each.
fn shown(keeper: &TestKeeper) -> Vec<(String, u64)> {
    let answer = at_once(keeper.peek(&facts(), Scope::All)).expect("the memory store answers");
    let outcomes = answer.outcomes();
    let each = outcomes.map(|one| {
        (
            one.rule.limit.name.to_string(),
            one.decision.remaining.get(),
        )
    });
    each.collect()
}

/// Sends requests until one is refused; returns how many passed.
fn drain(keeper: &TestKeeper) -> usize {
    let check = || keeper.check_now(&facts(), Scope::All).allowed();
    (0..1_000).take_while(|_| check()).count()
}

/// Moves the clock to an hour after the first midnight.
fn go_to(keeper: &TestKeeper, hour: u64) {
    let moment = Time::ZERO + Nanos::from_secs(hour * 3_600);
    keeper.clock().advance(moment.since(keeper.clock().now()));
}

fn only(name: &str, remaining: u64) -> Vec<(String, u64)> {
    vec![(name.to_owned(), remaining)]
}

#[test]
fn limits_take_turns_with_counters_of_their_own() {
    let keeper = keeper("limit = \"10/24h\"", "limit = \"100/24h\"");
    assert_eq!(drain(&keeper), 100, "by day, until 01:00");
    keeper.clock().advance(HOUR);
    assert_eq!(shown(&keeper), only("night", 10), "the night begins full");
    assert_eq!(drain(&keeper), 10);
    keeper.clock().advance(HOUR);
    assert_eq!(drain(&keeper), 0, "02:00: the night is still spent");
}

#[test]
fn a_limit_regains_permits_while_it_does_not_apply() {
    // A permit each hour by night, ten each hour by day.
    let keeper = keeper(
        "bucket = { size = 24, refill = \"1/1h\" }",
        "bucket = { size = 240, refill = \"10/1h\" }",
    );
    go_to(&keeper, 1);
    assert_eq!(drain(&keeper), 24);
    go_to(&keeper, 5);
    assert_eq!(shown(&keeper), only("night", 4), "a permit an hour");
    assert_eq!(drain(&keeper), 4);
    go_to(&keeper, 6);
    assert_eq!(drain(&keeper), 240);
    go_to(&keeper, 24);
    assert_eq!(shown(&keeper), only("day", 180), "18 hours of day");
    go_to(&keeper, 24 + 1);
    assert_eq!(
        shown(&keeper),
        only("night", 20),
        "20 hours, 19 of them by day"
    );
    go_to(&keeper, 24 + 6);
    assert_eq!(
        shown(&keeper),
        only("day", 240),
        "full again, as after any day"
    );
}

#[test]
fn a_window_goes_on_over_hours_at_which_its_limit_does_not_apply() {
    let keeper = keeper("limit = \"10/day\"", "limit = \"100/day\"");
    assert_eq!(drain(&keeper), 100, "00:00");
    go_to(&keeper, 6);
    assert_eq!(drain(&keeper), 0, "06:00 is of the same day");
    go_to(&keeper, 24);
    assert_eq!(drain(&keeper), 100, "the next day");
}

#[test]
fn loans_come_back_while_their_limit_does_not_apply() {
    let keeper = keeper(
        "concurrency = { max = 1, lease = \"20h\" }",
        "concurrency = { max = 1, lease = \"20h\" }",
    );
    go_to(&keeper, 1);
    let lease = ratekeeper::core::LeaseId::from_bytes([7; 16]);
    let taken = at_once(keeper.acquire(&facts(), Scope::All, lease)).unwrap();
    let permits: Vec<_> = taken.permits().map(|(permit, _)| permit).collect();
    assert_eq!(permits.len(), 1);
    assert_eq!(shown(&keeper), only("night", 0));
    go_to(&keeper, 7);
    assert_eq!(shown(&keeper), only("day", 1));
    let released = at_once(keeper.release(&permits)).unwrap();
    assert_eq!(released[0].get(), 1, "the permit of the night");
}

#[test]
fn a_wall_clock_that_is_set_is_followed() {
    let keeper = keeper("limit = \"10/1h\"", "limit = \"100/1h\"");
    assert_eq!(shown(&keeper), only("day", 100));
    let later =
        |hours: u64| Origin::from_unix_nanos(MIDNIGHT.as_unix_nanos() + hours * HOUR.as_nanos());
    keeper.set_origin(later(2));
    assert_eq!(
        shown(&keeper),
        only("night", 10),
        "02:00, by the same policy"
    );
    keeper.set_wall_origin(later(8));
    assert_eq!(shown(&keeper), only("day", 100), "08:00");
    assert_eq!(keeper.wall_origin(), later(8));
    keeper.set_wall_origin(Origin::UNIX);
    let both: Vec<_> = shown(&keeper).into_iter().map(|(name, _)| name).collect();
    assert_eq!(both, ["night", "day"], "an unknown time: both apply");
}
