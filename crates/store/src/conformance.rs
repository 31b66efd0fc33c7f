//! Conformance: what every store must do, as one table of short stories.
//!
//! ```text
//!   story   limits   steps: at, act, charges  -->  admitted, one outcome a charge
//! ```
//!
//! A store passes if [`check`] returns; whoever wants to know more tells [`rows`] to it, one
//! by one. Time is the story's; stores that keep their own clock must offer a test clock.

mod loans;
mod odds;
mod stories;
mod telling;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use ratekeeper_core::{
    Charge, Decision, Key, LeaseId, Lend, Limit, Mode, Nanos, Permits, Time, Verdict,
};

use crate::{Decisions, Hold, Store, StoreError};
use stories::stories;

/// Tells every story to a store of its own.
///
/// # Panics
/// If a store does otherwise.
pub fn check<S: Store>(new_store: impl Fn() -> S) {
    for row in rows() {
        let told = block_on(row.tell(&new_store()));
        told.unwrap_or_else(|difference| panic!("{difference}"));
    }
}

/// The stories, in their order.
pub fn rows() -> Vec<ConformanceRow> {
    stories().into_iter().map(ConformanceRow).collect()
}

/// A story of the table.
///
/// # Examples
/// ```
/// # use ratekeeper_store::{MemoryConfig, MemoryStore, conformance};
/// # async fn example() -> Result<(), conformance::Difference> {
/// for row in conformance::rows() {
///     let store = MemoryStore::new(MemoryConfig::default());
///     let calls = row.tell(&store).await?;
///     assert!(calls > 0, "{}", row.name());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ConformanceRow(Story);

impl ConformanceRow {
    /// What it is about.
    pub const fn name(&self) -> &'static str {
        self.0.name
    }

    /// Tells it to a store that has not heard it, and says how many calls were compared.
    ///
    /// # Errors
    /// The first answer that is another than the table's.
    pub async fn tell<S: Store>(&self, subject: &S) -> Result<usize, Difference> {
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

    /// Makes a store that has heard it forget it, wherever the telling ended.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn unsay<S: Store>(&self, subject: &S) -> Result<(), StoreError> {
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

/// An answer of a store that is another than the table's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The story.
    pub row: &'static str,
    /// Which of its calls.
    pub call: String,
    /// The table's answer.
    pub expected: String,
    /// The store's answer, or why it gave none.
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
        write!(
            f,
            "{row}; {call}: expected {expected}, was answered {answered}"
        )
    }
}

impl std::error::Error for Difference {}

/// A sequence of calls, and what they answer.
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
    Reset,
    /// Lends to a name.
    Acquire(u8),
    /// Lends nothing.
    Watch,
    Release(u8),
    Renew(u8),
}

/// A charge: index into the story's limits, key, cost, mode.
type StoryCharge = (usize, &'static str, u32, Mode);

#[derive(PartialEq, Eq, Debug)]
enum StoryAnswer {
    Decided {
        admitted: bool,
        each: Vec<StoryOutcome>,
    },
    Refunded,
    WereThere(Vec<bool>),
    /// So many came back.
    Released(Vec<u32>),
    /// For so many ms.
    Renewed(Vec<Option<u64>>),
}

impl fmt::Display for StoryAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided { admitted, each } => {
                let overall = if *admitted { "admitted" } else { "refused" };
                write!(f, "{overall} {each:?}")
            }
            Self::Refunded => f.write_str("refunded"),
            Self::WereThere(there) => write!(f, "were there {there:?}"),
            Self::Released(back) => write!(f, "released {back:?}"),
            Self::Renewed(spans) => write!(f, "renewed for ms {spans:?}"),
        }
    }
}

/// What a charge is told: the verdict, and what remains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StoryOutcome {
    Allow(u32),
    AllowAfter(u64, u32),
    /// Retry after so many ms.
    Deny(u64, u32),
    Never(u32),
}

impl From<Decision> for StoryOutcome {
    fn from(decision: Decision) -> Self {
        let remaining = decision.remaining.get();
        match decision.verdict {
            Verdict::Allow => Self::Allow(remaining),
            Verdict::AllowAfter(wait) => Self::AllowAfter(wait.as_millis_ceil(), remaining),
            Verdict::Deny { retry_after } => Self::Deny(retry_after.as_millis_ceil(), remaining),
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
    }
}

fn lease(name: u8) -> LeaseId {
    LeaseId::from_bytes([name; 16])
}

/// What the name holds of each limit and key.
fn holds<'a>(charges: &[Charge<'a>], name: u8) -> Vec<Hold<'a>> {
    let hold = |charge: &Charge<'a>| Hold {
        limit: charge.limit,
        key: charge.key,
        lease: lease(name),
    };
    charges.iter().map(hold).collect()
}

/// Waits for a future on this thread.
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
