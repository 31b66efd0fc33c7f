//! Conformance: the behaviour required of every store, as one table of short stories.
//!
//! ```text
//!   story   limits   steps: at, act, charges  -->  admitted, one outcome a charge
//! ```
//!
//! A store passes if [`check`] returns; for details, run the [`rows`] against it one by one.
//! Each story sets the time, so stores that keep their own clock must offer a test clock.

mod bans;
mod chains;
mod grants;
mod loans;
mod odds;
mod stories;
mod telling;
mod versions;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use ratekeeper_core::{
    Charge, Decision, GrantId, Granted, Key, LeaseId, Lend, Limit, Mode, Nanos, Permits, Time,
    Verdict,
};

use crate::{ActualCost, Decisions, GrantAnswer, Hold, Settled, Store, StoreError};
use stories::stories;
pub use telling::{charge, limit};

/// Runs every story against a new store.
///
/// # Panics
/// If an answer of a store differs from the table's.
pub fn check<S: Store>(new_store: impl Fn() -> S) {
    for row in rows() {
        let compared = block_on(row.compare(&new_store()));
        compared.unwrap_or_else(|difference| panic!("{difference}"));
    }
}

/// Returns the stories, in order.
pub fn rows() -> Vec<ConformanceRow> {
    stories().into_iter().map(ConformanceRow).collect()
}

/// A story of the table: a sequence of calls and their expected answers.
///
/// # Examples
/// ```
/// # use ratekeeper_store::{MemoryConfig, MemoryStore, conformance};
/// # async fn example() -> Result<(), conformance::Difference> {
/// for row in conformance::rows() {
///     let store = MemoryStore::new(MemoryConfig::default());
///     let calls = row.compare(&store).await?;
///     assert!(calls > 0, "{}", row.name());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ConformanceRow(Story);

impl ConformanceRow {
    /// Returns the name, which describes the behaviour under test.
    pub const fn name(&self) -> &'static str {
        self.0.name
    }

    /// Runs the story against a store for the first time; returns the number of calls compared.
    ///
    /// # Errors
    /// The first answer that differs from the table's.
    pub async fn compare<S: Store>(&self, subject: &S) -> Result<usize, Difference> {
        let story = &self.0;
        for (number, step) in story.steps.iter().enumerate() {
            let answered = ask(subject, story, step).await;
            if answered.as_ref() != Ok(&step.answer) {
                return Err(Difference {
                    row: story.name,
                    call: format!(
                        "call {}, {:?} at {}",
                        number + 1,
                        step.act,
                        step.since_start()
                    ),
                    expected: step.answer.to_string(),
                    answered: match answered {
                        Ok(answer) => answer.to_string(),
                        Err(error) => error.to_string(),
                    },
                });
            }
        }
        Ok(story.steps.len())
    }

    /// Resets every key of the story in a store that has run it, wherever the run ended.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn erase<S: Store>(&self, subject: &S) -> Result<(), StoreError> {
        let story = &self.0;
        let now = story.steps.last().map_or(Time::ZERO, |step| step.at);
        for step in &story.steps {
            for &(limit, key, _, _) in &step.charges {
                let charge = story.charge(&(limit, key, 0, Mode::Enforce));
                subject.reset(&[charge], now).await?;
            }
        }
        Ok(())
    }
}

/// An answer of a store that differs from the table's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Name of the story.
    pub row: &'static str,
    /// The call: its number, act and time.
    pub call: String,
    /// The table's answer.
    pub expected: String,
    /// The store's answer, or its error.
    pub answered: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            row,
            call,
            expected,
            answered,
        } = self;
        write!(f, "{row}; {call}: expected {expected}, received {answered}")
    }
}

impl std::error::Error for Difference {}

/// A sequence of calls, and their expected answers.
#[derive(Debug)]
struct Story {
    name: &'static str,
    limits: Vec<Limit>,
    steps: Vec<StoryStep>,
}

impl Story {
    fn charge(&self, &(limit, key, cost, mode): &StoryCharge) -> Charge<'_> {
        Charge {
            limit: &self.limits[limit],
            key: Key::from_bytes(key.as_bytes()),
            cost: Permits::new(cost),
            mode,
        }
    }
}

#[derive(Debug)]
struct StoryStep {
    at: Time,
    act: StoryAct,
    charges: Vec<StoryCharge>,
    answer: StoryAnswer,
}

impl StoryStep {
    fn since_start(&self) -> Nanos {
        self.at.since(Time::ZERO)
    }
}

#[derive(Clone, Copy, Debug)]
enum StoryAct {
    Decide,
    Look,
    Refund,
    /// Corrects each charge to this cost.
    Settle(&'static [Option<u64>]),
    Reset,
    /// Lends to the lease of this name.
    Acquire(u8),
    /// Lends nothing.
    Watch,
    Release(u8),
    Renew(u8),
    /// Grants the costs, under this id.
    Grant(&'static str),
}

/// A charge: index into the story's limits, key, cost, mode.
type StoryCharge = (usize, &'static str, u64, Mode);

#[derive(PartialEq, Eq, Debug)]
enum StoryAnswer {
    Decided {
        admitted: bool,
        each: Vec<StoryOutcome>,
    },
    /// The answer of a refund or a settlement.
    Refunded,
    WereThere(Vec<bool>),
    /// Number of permits that each charge returned.
    Released(Vec<u64>),
    /// Time left of each renewed lease, in ms.
    Renewed(Vec<Option<u64>>),
    /// Credits added, `None` if the grant was repeated, and the balance.
    Granted(Vec<(Option<u64>, u64)>),
}

impl fmt::Display for StoryAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided { admitted, each } => {
                let overall = if *admitted { "admitted" } else { "refused" };
                write!(f, "{overall} {each:?}")
            }
            Self::Refunded => f.write_str("refunded"),
            Self::WereThere(there) => write!(f, "existed {there:?}"),
            Self::Released(back) => write!(f, "released {back:?}"),
            Self::Renewed(spans) => write!(f, "renewed for ms {spans:?}"),
            Self::Granted(each) => write!(f, "granted {each:?}"),
        }
    }
}

/// The outcome of a charge: the verdict, and the remaining quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StoryOutcome {
    Allow(u64),
    AllowAfter(u64, u64),
    /// Milliseconds until a retry, and the remaining quota.
    Deny(u64, u64),
    /// As `Deny`, and a ban of the key begins.
    Ban(u64),
    /// As `Deny`, because the key is banned.
    Banned(u64),
    Never(u64),
}

impl From<Decision> for StoryOutcome {
    fn from(decision: Decision) -> Self {
        let remaining = decision.remaining.get();
        match decision.verdict {
            Verdict::Allow => Self::Allow(remaining),
            Verdict::AllowAfter(wait) => Self::AllowAfter(wait.as_millis_ceil(), remaining),
            Verdict::Deny { retry_after } => Self::Deny(retry_after.as_millis_ceil(), remaining),
            Verdict::Ban { retry_after } => Self::Ban(retry_after.as_millis_ceil()),
            Verdict::Banned { retry_after } => Self::Banned(retry_after.as_millis_ceil()),
            Verdict::DenyForever => Self::Never(remaining),
        }
    }
}

async fn ask<S: Store>(
    subject: &S,
    story: &Story,
    step: &StoryStep,
) -> Result<StoryAnswer, StoreError> {
    let now = step.at;
    let charges = step.charges.iter().map(|asked| story.charge(asked));
    let charges: Vec<_> = charges.collect();
    let answered = |decisions: Decisions| StoryAnswer::Decided {
        admitted: decisions.admitted,
        each: decisions.each.into_iter().map(StoryOutcome::from).collect(),
    };
    match step.act {
        StoryAct::Decide => subject.decide(&charges, now).await.map(answered),
        StoryAct::Look => subject.look(&charges, now).await.map(answered),
        StoryAct::Refund => subject
            .refund(&charges, now)
            .await
            .map(|()| StoryAnswer::Refunded),
        StoryAct::Settle(used) => {
            // As if they were made now: the receipts have the clock of the store.
            let made = subject.look(&charges, now).await?;
            let settled = charges.iter().zip(used).enumerate();
            let settled = settled.filter_map(|(at, (&charge, used))| {
                let permits = |used| ActualCost::Permits(Permits::new(used));
                let used = used.map_or(ActualCost::Reset, permits);
                let origin = made.origin(at)?;
                Some(Settled {
                    charge,
                    used,
                    origin,
                })
            });
            let settled: Vec<_> = settled.collect();
            let corrected = subject.correct(&settled, now).await;
            corrected.map(|()| StoryAnswer::Refunded)
        }
        StoryAct::Reset => {
            let reset = subject.reset(&charges, now).await;
            reset.map(|there| StoryAnswer::WereThere(there.into_vec()))
        }
        StoryAct::Acquire(name) => {
            let lend = Lend::To(lease(name));
            subject.acquire(&charges, lend, now).await.map(answered)
        }
        StoryAct::Watch => subject
            .acquire(&charges, Lend::Nothing, now)
            .await
            .map(answered),
        StoryAct::Release(name) => {
            let released = subject.release(&holds(&charges, name), now).await;
            let numbers = |permits: &Permits| permits.get();
            released.map(|each| StoryAnswer::Released(each.iter().map(numbers).collect()))
        }
        StoryAct::Renew(name) => {
            let renewed = subject.renew(&holds(&charges, name), now).await;
            let millis = |each: Option<Nanos>| each.map(Nanos::as_millis_ceil);
            renewed.map(|each| StoryAnswer::Renewed(each.into_iter().map(millis).collect()))
        }
        StoryAct::Grant(id) => {
            let granted = subject.grant(&charges, GrantId::of(id), now).await;
            let numbers = |answer: &GrantAnswer| {
                let added = match answer.granted {
                    Some(Granted::Added(credits)) => Some(credits.get()),
                    _ => None,
                };
                (added, answer.decision.remaining.get())
            };
            granted.map(|each| StoryAnswer::Granted(each.iter().map(numbers).collect()))
        }
    }
}

fn lease(name: u8) -> LeaseId {
    LeaseId::from_bytes([name; 16])
}

/// Returns the hold of the named lease on each limit and key.
fn holds<'a>(charges: &[Charge<'a>], name: u8) -> Vec<Hold<'a>> {
    let hold = |charge: &Charge<'a>| Hold {
        limit: charge.limit,
        key: charge.key,
        lease: lease(name),
    };
    charges.iter().map(hold).collect()
}

/// Runs a future to completion on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
