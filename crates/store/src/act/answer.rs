//! Answer: what an act returns, and how the answers about parts of a request become one.

use std::fmt::Debug;

use ratekeeper_core::{Mode, Time, Verdict};
use smallvec::SmallVec;

use crate::{Decisions, modes};

/// The answer of an act.
pub trait ActAnswer: Debug + Send + 'static {
    /// Joins the answers about parts of a request, each with the positions of its items.
    fn join<'p>(parts: impl Iterator<Item = (&'p [usize], Self)>) -> Self
    where
        Self: Sized;

    /// Returns the answer about charges in these modes, given that about each charge by itself.
    #[must_use]
    fn chained(self, _modes: &[Mode]) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// Returns the decisions that the answer consists of, if it does.
    fn decisions(&self) -> Option<&Decisions> {
        None
    }
}

impl ActAnswer for () {
    fn join<'p>(parts: impl Iterator<Item = (&'p [usize], Self)>) {
        parts.for_each(drop);
    }
}

impl ActAnswer for Decisions {
    fn join<'p>(parts: impl Iterator<Item = (&'p [usize], Self)>) -> Self {
        let (mut admitted, mut without_store, mut made) = (true, false, Time::MAX);
        let each = parts.map(|(at, decisions)| {
            admitted &= decisions.admitted;
            without_store |= decisions.without_store;
            made = made.min(decisions.made); // the clocks of nodes differ: less comes back
            (at, decisions.each)
        });
        let each = in_order(each);
        Self {
            admitted,
            each,
            made,
            mark: None, // not of one store
            without_store,
        }
    }

    fn chained(mut self, modes: &[Mode]) -> Self {
        for at in 0..self.each.len() {
            if !self.asks(at, |at| modes[at]) {
                self.each[at].verdict = Verdict::Allow;
            }
        }
        self.admitted = modes::admits(&self.each, |at| modes[at]);
        self
    }

    fn decisions(&self) -> Option<&Decisions> {
        Some(self)
    }
}

impl<T: Debug + Send + 'static> ActAnswer for SmallVec<[T; 4]> {
    fn join<'p>(parts: impl Iterator<Item = (&'p [usize], Self)>) -> Self {
        in_order(parts)
    }
}

fn in_order<'p, T>(
    parts: impl Iterator<Item = (&'p [usize], SmallVec<[T; 4]>)>,
) -> SmallVec<[T; 4]> {
    let mut placed: Vec<_> = parts
        .flat_map(|(at, each)| at.iter().copied().zip(each))
        .collect();
    placed.sort_unstable_by_key(|(at, _)| *at);
    placed.into_iter().map(|(_, each)| each).collect()
}
