//! Requeue: what was refused waits in line, and goes again when the server is ready.
//!
//! A worker that sends items to a limited service should not retry each on its own: the
//! limit is one, so the line is one. What was refused returns to its head, and the whole
//! line waits for as long as the server told.
//!
//! ```text
//!   offer -->  | e | d | c | b | --> take --> sent --> done
//!   full:        bounded         ^              |
//!   given back                   +---- refused -+   nobody leaves until told + jitter
//! ```
//!
//! * Order is kept: first in, first out; a refused item goes before those that never left.
//! * After a refusal one item leaves as a probe; the others follow when it is through.
//!   Otherwise every wait would end in as many refusals as there are senders.
//! * An item has a deadline; past it, it is handed out as expired, never sent.
//! * Bounds: `capacity` items that wait or are under way; what is over is given back.
//! * Trade-off: one line for one limit. Services with limits of several keys need a line for
//!   each, or the slowest key holds up all.

use std::collections::VecDeque;

use ratekeeper_core::{Nanos, Time};

use crate::deadline::Deadline;

/// What [`Requeue::take`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next<T> {
    /// Send it, and report by [`Requeue::done`] or [`Requeue::refused`].
    Send(Ticket<T>),
    /// Its deadline passed while it waited; it has left the line.
    Expired(T),
    /// Nobody may leave before then.
    Wait(Time),
    /// A probe is under way: ask again when it has been reported.
    Probing,
    /// Nobody waits.
    Empty,
}

/// An item under way.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "report how it ended"]
pub struct Ticket<T> {
    /// What to send.
    pub item: T,
    deadline: Deadline,
    sequence: u64,
}

/// A bounded line of what waits to be sent to one limited service.
///
/// ```
/// use ratekeeper_core::{Nanos, Time};
/// use ratekeeper_resilience::{Deadline, Next, Requeue};
///
/// let (mut line, now) = (Requeue::new(1_000), Time::ZERO);
/// line.offer("a", Deadline::unset(now)).unwrap();
/// let Next::Send(ticket) = line.take(now) else { panic!("it may leave at once") };
/// // The server answered 429, Retry-After: 2.
/// line.refused(ticket, now, Nanos::from_secs(2));
/// let again = now + Nanos::from_secs(2);
/// assert_eq!(line.take(now), Next::Wait(again));
/// let Next::Send(ticket) = line.take(again) else { panic!("the wait is over") };
/// assert_eq!(line.done(ticket), "a");
/// ```
#[derive(Debug)]
pub struct Requeue<T> {
    /// By their sequence, oldest first.
    waiting: VecDeque<Ticket<T>>,
    capacity: usize,
    under_way: usize,
    sequence: u64,
    not_before: Time,
    flow: Flow,
}

/// Who may leave the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    /// Everybody.
    Free,
    /// One, once the wait is over.
    Probe,
    /// Nobody until the item of this sequence is reported.
    Probing(u64),
}

impl<T> Requeue<T> {
    /// An empty line for at most `capacity` items, those under way included.
    pub fn new(capacity: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            capacity,
            under_way: 0,
            sequence: 0,
            not_before: Time::ZERO,
            flow: Flow::Free,
        }
    }

    /// Items that wait or are under way.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.under_way
    }

    /// Whether nothing waits or is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts an item at the end of the line.
    ///
    /// # Errors
    /// The item itself if the line is full: slow down whoever makes them.
    pub fn offer(&mut self, item: T, deadline: Deadline) -> Result<(), T> {
        if self.len() >= self.capacity {
            return Err(item);
        }
        let ticket = Ticket {
            item,
            deadline,
            sequence: self.sequence,
        };
        self.sequence += 1;
        self.waiting.push_back(ticket);
        Ok(())
    }

    /// Takes the item at the head, if it may leave.
    pub fn take(&mut self, now: Time) -> Next<T> {
        let Some(head) = self.waiting.front() else {
            return Next::Empty;
        };
        if head.deadline.time() > now {
            if let Flow::Probing(_) = self.flow {
                return Next::Probing;
            }
            if now < self.not_before {
                // Expired items are found when their time comes, not later.
                return Next::Wait(self.not_before.min(head.deadline.time()));
            }
        }
        match self.waiting.pop_front() {
            None => Next::Empty,
            Some(head) if head.deadline.time() <= now => Next::Expired(head.item),
            Some(head) => {
                if self.flow == Flow::Probe {
                    self.flow = Flow::Probing(head.sequence);
                }
                self.under_way += 1;
                Next::Send(head)
            }
        }
    }

    /// The item was accepted, or given up: it leaves for good. If it was the probe, the line
    /// moves again.
    pub fn done(&mut self, ticket: Ticket<T>) -> T {
        self.under_way = self.under_way.saturating_sub(1);
        if self.flow == Flow::Probing(ticket.sequence) {
            self.flow = Flow::Free;
        }
        ticket.item
    }

    /// The item was refused: it returns to its place, and nobody leaves for `wait`, which is
    /// what the server told and some jitter, or a backoff.
    pub fn refused(&mut self, ticket: Ticket<T>, now: Time, wait: Nanos) {
        self.under_way = self.under_way.saturating_sub(1);
        self.not_before = self.not_before.max(now + wait);
        match self.flow {
            // One of many that left before: the probe that is under way knows better.
            Flow::Probing(probe) if probe != ticket.sequence => {}
            _ => self.flow = Flow::Probe,
        }
        let place = self
            .waiting
            .partition_point(|waiting| waiting.sequence < ticket.sequence);
        self.waiting.insert(place, ticket);
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEVER: Deadline = Deadline::at(Time::MAX);

    fn secs(secs: u64) -> Time {
        Time::ZERO + Nanos::from_secs(secs)
    }

    fn line(items: &[char]) -> Requeue<char> {
        let mut line = Requeue::new(10);
        for item in items {
            line.offer(*item, NEVER).unwrap();
        }
        line
    }

    fn sent(line: &mut Requeue<char>, now: Time) -> Ticket<char> {
        match line.take(now) {
            Next::Send(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refused_items_keep_their_order_and_one_probes() {
        let mut line = line(&['a', 'b', 'c', 'd']);
        let now = secs(0);
        let (a, b, c) = (
            sent(&mut line, now),
            sent(&mut line, now),
            sent(&mut line, now),
        );
        line.refused(b, now, Nanos::from_secs(2));
        line.refused(a, now, Nanos::from_secs(1));
        assert_eq!(line.done(c), 'c');
        assert_eq!(line.take(secs(1)), Next::Wait(secs(2)));
        let probe = sent(&mut line, secs(2));
        assert_eq!(probe.item, 'a');
        assert_eq!(line.take(secs(2)), Next::Probing);
        line.refused(probe, secs(2), Nanos::from_secs(3));
        let probe = sent(&mut line, secs(5));
        assert_eq!(line.done(probe), 'a');
        for expected in ['b', 'd'] {
            let ticket = sent(&mut line, secs(5));
            assert_eq!(line.done(ticket), expected);
        }
        assert_eq!(line.take(secs(5)), Next::Empty);
        assert!(line.is_empty());
    }

    #[test]
    fn a_full_line_gives_back() {
        let mut line = Requeue::new(2);
        line.offer('a', NEVER).unwrap();
        line.offer('b', NEVER).unwrap();
        let a = sent(&mut line, secs(0));
        assert_eq!(
            line.offer('c', NEVER),
            Err('c'),
            "what is under way may come back"
        );
        line.done(a);
        assert_eq!(line.offer('c', NEVER), Ok(()));
    }

    #[test]
    fn who_waited_too_long_is_not_sent() {
        let mut line = Requeue::new(3);
        line.offer('a', NEVER).unwrap();
        let a = sent(&mut line, secs(0));
        line.offer('b', Deadline::at(secs(4))).unwrap();
        line.offer('c', NEVER).unwrap();
        line.refused(a, secs(0), Nanos::from_secs(3));
        let probe = sent(&mut line, secs(3));
        assert_eq!(line.take(secs(3)), Next::Probing);
        assert_eq!(line.take(secs(4)), Next::Expired('b'));
        line.done(probe);
        assert_eq!(sent(&mut line, secs(4)).item, 'c');
    }

    proptest! {
        /// A server of one permit a second, several senders: nothing is lost or sent twice,
        /// order is kept, and refusals stay few.
        #[test]
        fn everything_gets_through_in_order(items in 1_usize..60, senders in 1_usize..6) {
            let mut line = Requeue::new(items);
            (0..items).for_each(|item| line.offer(item, NEVER).unwrap());
            let (mut now, mut free_at, mut refusals) = (Time::ZERO, Time::ZERO, 0);
            let mut accepted = Vec::new();
            while !line.is_empty() {
                let mut batch = Vec::new();
                while batch.len() < senders {
                    match line.take(now) {
                        Next::Send(ticket) => batch.push(ticket),
                        Next::Wait(until) if batch.is_empty() => now = until,
                        _ => break,
                    }
                }
                prop_assert!(!batch.is_empty(), "the line never stands still");
                for ticket in batch {
                    if now >= free_at {
                        free_at = now + Nanos::SECOND;
                        accepted.push(line.done(ticket));
                    } else {
                        refusals += 1;
                        line.refused(ticket, now, free_at.since(now));
                    }
                }
            }
            prop_assert_eq!(accepted, (0..items).collect::<Vec<_>>());
            prop_assert!(refusals <= items * senders);
        }
    }
}
