//! Answer: what an act returns, and how the answers about parts of a request become one.

use std::fmt::Debug;

use ratekeeper_core::{Decision, Mode, Nanos, Permits, Time, Verdict};
use smallvec::SmallVec;

use super::GrantAnswer;
use crate::{Decisions, modes};

/// The answer of an act.
pub trait ActAnswer: TryFrom<AnyAnswer> + Into<AnyAnswer> + Debug + Send + 'static {
    /// Joins the answers about parts of a request, each with the positions of its items.
    fn join<'p>(parts: impl Iterator<Item = (&'p [usize], Self)>) -> Self;

    /// Returns the answer about charges in these modes, given that about each charge by itself.
    #[must_use]
    fn chained(self, _modes: &[Mode]) -> Self {
        self
    }

    /// Returns the decisions that the answer consists of, if it does.
    fn decisions(&self) -> Option<&Decisions> {
        None
    }
}

macro_rules! any_answer {
    ($($name:ident($answer:ty),)*) => {
        /// The answer of any act.
        #[derive(Debug)]
        pub enum AnyAnswer {
            $($name($answer),)*
        }

        $(impl From<$answer> for AnyAnswer {
            fn from(answer: $answer) -> Self {
                Self::$name(answer)
            }
        }

        impl TryFrom<AnyAnswer> for $answer {
            type Error = AnyAnswer;

            fn try_from(answer: AnyAnswer) -> Result<Self, AnyAnswer> {
                match answer {
                    AnyAnswer::$name(answer) => Ok(answer),
                    other => Err(other),
                }
            }
        })*
    };
}

any_answer! {
    Decisions(Decisions),
    Nothing(()),
    Had(SmallVec<[bool; 4]>),
    Released(SmallVec<[Permits; 4]>),
    Renewed(SmallVec<[Option<Nanos>; 4]>),
    Banned(SmallVec<[Decision; 4]>),
    Granted(SmallVec<[GrantAnswer; 4]>),
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

impl<T: Debug + Send + 'static> ActAnswer for SmallVec<[T; 4]>
where
    Self: TryFrom<AnyAnswer> + Into<AnyAnswer>,
{
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
