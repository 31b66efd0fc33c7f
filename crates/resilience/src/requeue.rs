//! Requeue: refused items wait in line, and go again when the server is ready.
//!
//! A worker that sends items to a limited service should not retry each on its own: the limit is
//! one, so the line is one. A refused item returns to its head, and the whole line waits for as
//! long as the server asked.
//!
//! ```text
//!   offer -->  | e | d | c | b | --> take --> sent --> done
//!   full:        bounded         ^              |
//!   given back                   +---- refused -+   none leaves before the stated wait + jitter
//! ```
//!
//! * Order is kept: first in, first out; a refused item goes before those that never left.
//! * After a refusal one item leaves as a probe; the others follow when it is through.
//!   Otherwise every wait would end in as many refusals as there are senders.
//! * An item has a deadline; past it, it is handed out as expired when it reaches the head,
//!   and never sent.
//! * A ticket that is dropped without a report (its sender panicked, or was cancelled) takes
//!   its item with it, and makes room. If it was the probe, the next one is.
//! * Bounds: `capacity` items that wait or are under way; further items are handed back. The
//!   wait of the line is bounded by its source:
//!   [`RetryAfter::longest`](crate::RetryAfter::longest), or a backoff's cap.
//! * Shutdown: take until nothing is due, or drop the line with the items in it.
//! * Trade-off: one line for one limit. Services with limits of several keys need a line for
//!   each, or the slowest key holds up all.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use ratekeeper_core::{Nanos, Time};

use crate::deadline::Deadline;

/// Result of [`Requeue::take`].
#[derive(Debug)]
pub enum Next<T> {
    /// Send it, and report by [`Requeue::done`] or [`Requeue::refused`].
    Send(Ticket<T>),
    /// Its deadline passed while it waited; it has left the line.
    Expired(T),
    /// No item may leave before then.
    Wait(Time),
    /// A probe is under way: ask again when it has been reported, or dropped.
    Probing,
    /// No item waits.
    Empty,
}

/// An item under way, to be reported to the line that it came from.
#[derive(Debug)]
#[must_use = "report how the call ended"]
pub struct Ticket<T> {
    /// The item to send.
    pub item: T,
    place: ItemPlace,
    leave: Arc<TicketGuard>,
}

/// Lives as long as a ticket does.
#[derive(Debug)]
struct TicketGuard {
    /// Counts the tickets that are out.
    _out: Arc<()>,
}

/// Place of an item in line, and its deadline.
#[derive(Clone, Copy, Debug)]
struct ItemPlace {
    sequence: u64,
    deadline: Deadline,
}

/// A bounded line of items to be sent to one limited service.
///
/// ```
/// use std::time::Duration;
/// use ratekeeper_core::{Nanos, Time};
/// use ratekeeper_resilience::{Deadline, Next, Requeue};
///
/// let (mut line, now) = (Requeue::new(1_000), Time::ZERO);
/// line.offer("a", Deadline::unset(now)).unwrap();
/// let Next::Send(ticket) = line.take(now) else { panic!("it may leave at once") };
/// // The server answered 429, Retry-After: 2.
/// line.refused(ticket, now, Duration::from_secs(2));
/// let again = now + Nanos::from_secs(2);
/// assert!(matches!(line.take(now), Next::Wait(until) if until == again));
/// let Next::Send(ticket) = line.take(again) else { panic!("the wait is over") };
/// assert_eq!(line.done(ticket), "a");
/// ```
#[derive(Debug)]
pub struct Requeue<T> {
    /// By their sequence, oldest first.
    waiting: VecDeque<(ItemPlace, T)>,
    capacity: usize,
    /// One reference for each ticket that is out, and this one.
    out: Arc<()>,
    sequence: u64,
    not_before: Time,
    flow: Flow,
}

/// Which items may leave the line.
#[derive(Debug)]
enum Flow {
    /// All items.
    Free,
    /// One item, once the wait is over.
    Probe,
    /// No item until this one is reported, or lost.
    Probing(Weak<TicketGuard>),
}

impl<T> Requeue<T> {
    /// Creates an empty line for at most `capacity` items, those under way included.
    pub fn new(capacity: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            capacity,
            out: Arc::default(),
            sequence: 0,
            not_before: Time::ZERO,
            flow: Flow::Free,
        }
    }

    /// Returns the number of items that wait or are under way.
    pub fn len(&self) -> usize {
        self.waiting.len() + Arc::strong_count(&self.out) - 1 // its own
    }

    /// Returns true if no item waits or is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts an item at the end of the line.
    ///
    /// # Errors
    /// The item itself if the line is full: slow down its producer.
    pub fn offer(&mut self, item: T, deadline: Deadline) -> Result<(), T> {
        if self.len() >= self.capacity {
            return Err(item);
        }
        let place = ItemPlace {
            sequence: self.sequence,
            deadline,
        };
        self.sequence += 1;
        self.waiting.push_back((place, item));
        Ok(())
    }

    /// Takes the item at the head, if it may leave.
    pub fn take(&mut self, now: Time) -> Next<T> {
        if matches!(&self.flow, Flow::Probing(probe) if probe.strong_count() == 0) {
            self.flow = Flow::Probe; // it was lost
        }
        let Some((place, item)) = self.waiting.pop_front() else {
            return Next::Empty;
        };
        let stays = if place.deadline.time() <= now {
            return Next::Expired(item);
        } else if let Flow::Probing(_) = self.flow {
            Next::Probing
        } else if now < self.not_before {
            // It is found when it expires, not later.
            Next::Wait(self.not_before.min(place.deadline.time()))
        } else {
            let leave = Arc::new(TicketGuard {
                _out: Arc::clone(&self.out),
            });
            if let Flow::Probe = self.flow {
                self.flow = Flow::Probing(Arc::downgrade(&leave));
            }
            return Next::Send(Ticket { item, place, leave });
        };
        self.waiting.push_front((place, item));
        stays
    }

    /// Removes an item that was accepted, or given up, and returns it. If it was the probe, the
    /// line moves again.
    pub fn done(&mut self, ticket: Ticket<T>) -> T {
        if self.is_probe(&ticket) {
            self.flow = Flow::Free;
        }
        ticket.item
    }

    /// Returns a refused item to its place. No item leaves for `wait`, which is the wait given
    /// by the server and some jitter, or a backoff. With a wait of zero the line asks as fast as
    /// the server refuses.
    pub fn refused(&mut self, ticket: Ticket<T>, now: Time, wait: impl Into<Nanos>) {
        self.not_before = self.not_before.max(now + wait.into());
        // A refusal of an item that left earlier keeps the probe under way, which decides.
        if self.is_probe(&ticket) || !matches!(self.flow, Flow::Probing(_)) {
            self.flow = Flow::Probe;
        }
        let Ticket { item, place, .. } = ticket;
        let index = self
            .waiting
            .partition_point(|(waiting, _)| waiting.sequence < place.sequence);
        self.waiting.insert(index, (place, item));
    }

    fn is_probe(&self, ticket: &Ticket<T>) -> bool {
        match &self.flow {
            Flow::Probing(probe) => std::ptr::eq(probe.as_ptr(), Arc::as_ptr(&ticket.leave)),
            Flow::Free | Flow::Probe => false,
        }
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
        assert!(matches!(line.take(secs(1)), Next::Wait(until) if until == secs(2)));
        let probe = sent(&mut line, secs(2));
        assert_eq!(probe.item, 'a');
        assert!(matches!(line.take(secs(2)), Next::Probing));
        line.refused(probe, secs(2), Nanos::from_secs(3));
        let probe = sent(&mut line, secs(5));
        assert_eq!(line.done(probe), 'a');
        for expected in ['b', 'd'] {
            let ticket = sent(&mut line, secs(5));
            assert_eq!(line.done(ticket), expected);
        }
        assert!(matches!(line.take(secs(5)), Next::Empty));
        assert!(line.is_empty());
    }

    #[test]
    fn a_full_queue_returns_the_item() {
        let mut line = Requeue::new(2);
        line.offer('a', NEVER).unwrap();
        line.offer('b', NEVER).unwrap();
        let a = sent(&mut line, secs(0));
        assert_eq!(
            line.offer('c', NEVER),
            Err('c'),
            "an item in flight may be refused and return"
        );
        line.done(a);
        assert_eq!(line.offer('c', NEVER), Ok(()));
    }

    #[test]
    fn an_item_that_waited_too_long_is_not_sent() {
        let mut line = Requeue::new(3);
        line.offer('a', NEVER).unwrap();
        let a = sent(&mut line, secs(0));
        line.offer('b', Deadline::at(secs(4))).unwrap();
        line.offer('c', NEVER).unwrap();
        line.refused(a, secs(0), Nanos::from_secs(3));
        let probe = sent(&mut line, secs(3));
        assert!(matches!(line.take(secs(3)), Next::Probing));
        assert!(matches!(line.take(secs(4)), Next::Expired('b')));
        line.done(probe);
        assert_eq!(sent(&mut line, secs(4)).item, 'c');
    }

    #[test]
    fn a_lost_ticket_makes_room_and_the_queue_moves_on() {
        let mut line = line(&['a', 'b', 'c', 'd']);
        let (a, b) = (sent(&mut line, secs(0)), sent(&mut line, secs(0)));
        drop(b); // its sender panicked
        assert_eq!(line.len(), 3);
        line.refused(a, secs(0), Nanos::from_secs(1));
        let probe = sent(&mut line, secs(1));
        assert!(matches!(line.take(secs(1)), Next::Probing));
        drop(probe);
        let probe = sent(&mut line, secs(1));
        assert_eq!(probe.item, 'c', "the next one probes");
        assert!(matches!(line.take(secs(1)), Next::Probing));
        assert_eq!(line.done(probe), 'c');
        drop(sent(&mut line, secs(1)));
        assert!(line.is_empty());
    }

    #[test]
    fn a_late_refusal_leaves_the_probe_alone() {
        let mut line = line(&['a', 'b', 'c']);
        let (a, b) = (sent(&mut line, secs(0)), sent(&mut line, secs(0)));
        line.refused(a, secs(0), Nanos::from_secs(1));
        let probe = sent(&mut line, secs(1));
        line.refused(b, secs(1), Nanos::from_secs(5));
        assert!(matches!(line.take(secs(9)), Next::Probing));
        assert_eq!(line.done(probe), 'a');
        assert!(matches!(line.take(secs(5)), Next::Wait(until) if until == secs(6)));
        assert_eq!(sent(&mut line, secs(6)).item, 'b');
    }

    proptest! {
        /// Whatever senders do with their tickets: the line is bounded, each item ends once, and
        /// a sender that keeps asking gets all.
        #[test]
        fn nothing_is_lost_or_held_for_ever(
            steps in prop::collection::vec((0_u8..5, 0_u64..3_000, 0_u64..5_000), 1..200),
            capacity in 1_usize..20,
        ) {
            let mut line = Requeue::new(capacity);
            let (mut now, mut held, mut offered, mut ended) = (Time::ZERO, Vec::new(), 0, 0);
            for (step, millis, more) in steps {
                let (span, more) = (Nanos::from_millis(millis), Nanos::from_millis(more));
                match (step, held.pop()) {
                    (0, ticket) => {
                        held.extend(ticket);
                        offered += usize::from(line.offer(offered, Deadline::within(now, more)).is_ok());
                    }
                    (1, Some(ticket)) => line.refused(ticket, now, span),
                    (2, Some(ticket)) => {
                        line.done(ticket);
                        ended += 1;
                    }
                    (3, Some(ticket)) => {
                        drop::<Ticket<_>>(ticket);
                        ended += 1;
                    }
                    (_, ticket) => {
                        held.extend(ticket);
                        match line.take(now) {
                            Next::Send(ticket) => {
                                prop_assert!(ticket.place.deadline.time() > now);
                                held.push(ticket);
                            }
                            Next::Expired(_) => ended += 1,
                            Next::Wait(until) => prop_assert!(until > now),
                            Next::Probing => prop_assert!(!held.is_empty()),
                            Next::Empty => prop_assert_eq!(line.len(), held.len()),
                        }
                        now = now + span;
                    }
                }
                prop_assert!(line.len() <= capacity);
                prop_assert_eq!(line.len(), offered - ended);
            }
            held.clear();
            while !line.is_empty() {
                match line.take(now) {
                    Next::Wait(until) => now = until,
                    Next::Probing | Next::Empty => prop_assert!(false, "the queue stands still"),
                    Next::Send(_) | Next::Expired(_) => {}
                }
            }
        }

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
                prop_assert!(!batch.is_empty(), "the queue never stands still");
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
