//! Conformance: what every store must do, as one table of short stories.
//!
//! ```text
//!   story   limits   steps: at, act, charges  -->  admitted, one outcome a charge
//! ```
//!
//! A store passes if [`check`] returns. Time is the story's; stores that keep their own
//! clock must offer a test clock.

mod loans;
mod odds;
mod stories;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use ratekeeper_core::{
    Charge, Decision, Key, LeaseId, Lend, Limit, Mode, Nanos, Permits, Time, Verdict,
};

use crate::{Decisions, Hold, Store};
use stories::stories;

/// Tells every story to a store of its own.
///
/// # Panics
/// If a store does otherwise.
pub fn check<S: Store>(new_store: impl Fn() -> S) {
    for story in stories() {
        let store = new_store();
        for (number, step) in story.steps.iter().enumerate() {
            tell(&store, &story, number, step);
        }
    }
}

/// A sequence of calls, and what they answer.
struct Story {
    name: &'static str,
    limits: Vec<Limit>,
    steps: Vec<Step>,
}

struct Step {
    at: Time,
    act: Act,
    charges: Vec<Asked>,
    answer: Answer,
}

#[derive(Clone, Copy, Debug)]
enum Act {
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
type Asked = (usize, &'static str, u32, Mode);

enum Answer {
    Decided {
        admitted: bool,
        each: Vec<Outcome>,
    },
    Refunded,
    WereThere(Vec<bool>),
    /// So many came back.
    Released(Vec<u32>),
    /// For so many ms.
    Renewed(Vec<Option<u64>>),
}

/// What a charge is told: the verdict, and what remains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Allow(u32),
    AllowAfter(u64, u32),
    /// Retry after so many ms.
    Deny(u64, u32),
    Never(u32),
}

impl From<Decision> for Outcome {
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

fn tell<S: Store>(subject: &S, story: &Story, number: usize, step: &Step) {
    let charge = |&(limit, key, cost, mode): &Asked| Charge {
        limit: &story.limits[limit],
        key: Key::from_bytes(key.as_bytes()),
        cost: Permits::new(cost),
        mode,
    };
    let charges: Vec<_> = step.charges.iter().map(charge).collect();
    let context = format!(
        "{}, step {number}: {:?} at {:?}",
        story.name, step.act, step.at
    );
    let answered = |decisions: Decisions| Answer::Decided {
        admitted: decisions.admitted,
        each: decisions.each.into_iter().map(Outcome::from).collect(),
    };
    let answer = match step.act {
        Act::Decide => block_on(subject.decide(&charges, step.at)).map(answered),
        Act::Look => block_on(subject.look(&charges, step.at)).map(answered),
        Act::Refund => block_on(subject.refund(&charges, step.at)).map(|()| Answer::Refunded),
        Act::Reset => {
            let reset = block_on(subject.reset(&charges, step.at));
            reset.map(|there| Answer::WereThere(there.into_vec()))
        }
        Act::Acquire(name) => {
            let lend = Lend::To(lease(name));
            block_on(subject.acquire(&charges, lend, step.at)).map(answered)
        }
        Act::Watch => block_on(subject.acquire(&charges, Lend::Nothing, step.at)).map(answered),
        Act::Release(name) => {
            let released = block_on(subject.release(&holds(&charges, name), step.at));
            let numbers = |permits: &Permits| permits.get();
            released.map(|each| Answer::Released(each.iter().map(numbers).collect()))
        }
        Act::Renew(name) => {
            let renewed = block_on(subject.renew(&holds(&charges, name), step.at));
            let millis = |each: Option<Nanos>| each.map(Nanos::as_millis_ceil);
            renewed.map(|each| Answer::Renewed(each.into_iter().map(millis).collect()))
        }
    };
    let answer = answer.unwrap_or_else(|error| panic!("{context}: {error}"));
    match (&answer, &step.answer) {
        (
            Answer::Decided { admitted, each },
            Answer::Decided {
                admitted: expected,
                each: outcomes,
            },
        ) => {
            assert_eq!(each, outcomes, "{context}");
            assert_eq!(admitted, expected, "{context}");
        }
        (Answer::WereThere(there), Answer::WereThere(expected)) => {
            assert_eq!(there, expected, "{context}");
        }
        (Answer::Released(back), Answer::Released(expected)) => {
            assert_eq!(back, expected, "{context}");
        }
        (Answer::Renewed(each), Answer::Renewed(expected)) => {
            assert_eq!(each, expected, "{context}");
        }
        (Answer::Refunded, Answer::Refunded) => {}
        _ => panic!("{context}: the story asks for another kind of answer"),
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
