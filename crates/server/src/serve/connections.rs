//! Connections: their number, their peers, and which of them makes room.
//!
//! ```text
//!   accepted --> a seat is free? --> taken
//!                    | no
//!                    +--> the peer with the most connections loses the one that has been
//!                         idle longest, if there is one; or, if that peer has at least two
//!                         more than the newcomer's, one in use; else the newcomer is closed
//! ```
//!
//! A peer is an IPv4 address or an IPv6 /64. So one client may use every free seat, but none
//! that another client needs: 10,000 kept connections of one address shut out no other client.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::pulse::{Idle, Pulse};
use crate::counter::Counter;

/// Connections of a door, or of two.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts {
    pub(crate) open: Counter,
    /// Closed to make room for others.
    pub(crate) closed: Counter,
    /// Closed at once, because there was no room.
    pub(crate) refused: Counter,
}

/// Maximum number of connections still ending while others have their seats.
const ENDING: u32 = 64;
/// Time between two looks at a connection that has to end.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Connections of a peer that are compared to find the one that has been idle longest.
const COMPARED: usize = 64;

/// The seats of one door, or of several.
#[derive(Debug)]
pub(crate) struct Connections {
    most: u32,
    /// One permit for each open connection, including those that are ending.
    open: Arc<Semaphore>,
    table: Mutex<ConnectionTable>,
    counts: Arc<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    peers: HashMap<IpAddr, Vec<Arc<Pulse>>>,
    taken: usize,
    /// Where the next comparison begins.
    cursor: usize,
}

/// The seat of one connection; dropping it leaves it.
#[derive(Debug)]
pub(crate) struct Seat {
    connections: Arc<Connections>,
    peer: IpAddr,
    pub(crate) pulse: Arc<Pulse>,
    _open: OwnedSemaphorePermit,
}

impl Connections {
    /// Creates `most` seats, at least one.
    pub(crate) fn new(most: u32, counts: Arc<ConnectionCounts>) -> Arc<Self> {
        let most = most.max(1);
        Arc::new(Self {
            most,
            open: Arc::new(Semaphore::new((most + ENDING) as usize)),
            table: Mutex::default(),
            counts,
        })
    }

    /// Waits until one more connection may be open.
    pub(crate) async fn room(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.open).acquire_owned().await
    }

    /// Like `room`, without waiting.
    pub(crate) fn room_now(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.open).try_acquire_owned().ok()
    }

    /// Returns when all connections have ended.
    pub(crate) async fn ended(&self) {
        // An error: the semaphore is closed, which it never is.
        let _ = self.open.acquire_many(self.most + ENDING).await;
    }

    /// Returns the connections that are open.
    pub(crate) fn open(&self) -> Vec<Weak<Pulse>> {
        let table = self.table.lock();
        table.peers.values().flatten().map(Arc::downgrade).collect()
    }

    /// Returns the connections that are open, without those of `before`.
    pub(crate) fn open_since(&self, before: &[Weak<Pulse>]) -> Vec<Weak<Pulse>> {
        let mut open = self.open();
        open.retain(|open| !before.iter().any(|before| before.ptr_eq(open)));
        open
    }

    /// Returns a seat for a connection from `from`; `None` if the connection must be closed.
    pub(crate) fn seat(self: &Arc<Self>, from: IpAddr, open: OwnedSemaphorePermit) -> Option<Seat> {
        let peer = peer(from);
        let pulse = Arc::new(Pulse::default());
        {
            let mut table = self.table.lock();
            if table.taken >= self.most as usize && !self.make_room(&mut table, peer) {
                self.counts.refused.add(1);
                return None;
            }
            table.insert(peer, &pulse);
            self.counts.open.add(1);
        }
        Some(Seat {
            connections: Arc::clone(self),
            peer,
            pulse,
            _open: open,
        })
    }

    fn make_room(&self, table: &mut ConnectionTable, newcomer: IpAddr) -> bool {
        let Some((largest, count)) = table.largest() else {
            return false;
        };
        let own = table.peers.get(&newcomer).map_or(0, Vec::len);
        // Among equals the newcomer's own peer pays.
        let payer = if own >= count { newcomer } else { largest };
        let longest = table.longest_idle(payer);
        let may_close = |idle: &Idle| *idle != Idle::InUse || count >= own + 2;
        let Some((_, pulse)) = longest.filter(|(idle, _)| may_close(idle)) else {
            return false;
        };
        table.remove(payer, &pulse);
        pulse.close();
        self.counts.closed.add(1);
        true
    }
}

/// Returns when these connections have ended.
pub(crate) async fn all_ended(connections: &[Weak<Pulse>]) {
    for connection in connections {
        while connection.strong_count() > 0 {
            sleep(LOOK_AGAIN).await;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.table.lock().remove(self.peer, &self.pulse);
        self.connections.counts.open.subtract(1);
    }
}

impl ConnectionTable {
    fn insert(&mut self, peer: IpAddr, pulse: &Arc<Pulse>) {
        let seats = self.peers.entry(peer).or_default();
        pulse.place.store(seats.len(), Ordering::Relaxed);
        seats.push(Arc::clone(pulse));
        self.taken += 1;
    }

    /// Removes the connection, unless it has made room already.
    fn remove(&mut self, peer: IpAddr, pulse: &Arc<Pulse>) {
        let place = pulse.place.swap(usize::MAX, Ordering::Relaxed);
        let Some(seats) = self.peers.get_mut(&peer) else {
            return;
        };
        if place >= seats.len() {
            return;
        }
        seats.swap_remove(place);
        if let Some(moved) = seats.get(place) {
            moved.place.store(place, Ordering::Relaxed);
        }
        if seats.is_empty() {
            self.peers.remove(&peer);
        }
        self.taken -= 1;
    }

    /// Returns the peer with the largest number of connections, and that number.
    fn largest(&self) -> Option<(IpAddr, usize)> {
        let counts = self.peers.iter().map(|(peer, seats)| (*peer, seats.len()));
        counts.max_by_key(|(_, count)| *count)
    }

    /// Returns the connection that has been idle longest among some of that peer's.
    fn longest_idle(&mut self, peer: IpAddr) -> Option<(Idle, Arc<Pulse>)> {
        let seats = self.peers.get(&peer)?;
        let compared = seats.len().min(COMPARED);
        let first = self.cursor % seats.len();
        self.cursor = first + compared;
        let some = (first..first + compared).map(|index| &seats[index % seats.len()]);
        let idle = some.map(|pulse| (pulse.idle(), pulse));
        // Among equals the first, which has been there longest.
        let found = idle.rev().max_by_key(|(idle, _)| *idle);
        found.map(|(idle, pulse)| (idle, Arc::clone(pulse)))
    }
}

/// Returns the address that counts as one client: an IPv4 address, or 64 bits of an IPv6 address.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::pulse::MaxTicks;

    struct Hall {
        connections: Arc<Connections>,
        counts: Arc<ConnectionCounts>,
    }

    impl Hall {
        fn new(most: u32) -> Self {
            let counts = Arc::new(ConnectionCounts::default());
            let connections = Connections::new(most, Arc::clone(&counts));
            Self {
                connections,
                counts,
            }
        }

        fn enter(&self, from: &str) -> Option<Seat> {
            let open = self.connections.room_now()?;
            self.connections.seat(from.parse().unwrap(), open)
        }

        fn holds(&self, from: &str) -> usize {
            let table = self.connections.table.lock();
            table
                .peers
                .get(&peer(from.parse().unwrap()))
                .map_or(0, Vec::len)
        }
    }

    const MANY: &str = "192.0.2.1";
    const FEW: &str = "192.0.2.2";

    #[test]
    fn one_peer_may_have_every_free_connection_but_none_that_another_needs() {
        let hall = Hall::new(4);
        let seats: Vec<_> = (0..4).map(|_| hall.enter(MANY).unwrap()).collect();
        let few = hall.enter(FEW).unwrap();
        assert_eq!((hall.holds(MANY), hall.holds(FEW)), (3, 1));
        let again = hall.enter(FEW).unwrap();
        assert_eq!((hall.holds(MANY), hall.holds(FEW)), (2, 2));
        // Both peers have equal counts: the one that wants more loses a connection.
        let more = hall.enter(MANY).unwrap();
        assert_eq!((hall.holds(MANY), hall.holds(FEW)), (2, 2));
        drop((seats, few, again, more));
        assert_eq!((hall.holds(MANY), hall.holds(FEW)), (0, 0));
        assert_eq!(hall.counts.open.count(), 0);
        assert_eq!(hall.counts.closed.count(), 3);
    }

    #[test]
    fn the_longest_idle_connection_is_closed_and_a_busy_one_only_for_a_smaller_peer() {
        let hall = Hall::new(3);
        let [busy, idle, fresh] = [(); 3].map(|()| hall.enter(MANY).unwrap());
        busy.pulse.begin();
        idle.pulse.begin();
        idle.pulse.end();
        for _ in 0..3 {
            let max = MaxTicks {
                head: u32::MAX,
                idle: u32::MAX,
            };
            idle.pulse.expired(max);
        }
        let first = hall.enter(MANY).unwrap();
        assert!(idle.pulse.is_closing() && !busy.pulse.is_closing() && !fresh.pulse.is_closing());
        fresh.pulse.begin();
        first.pulse.begin();
        assert!(
            hall.enter(MANY).is_none(),
            "requests of the same peer are not interrupted"
        );
        assert_eq!(hall.counts.refused.count(), 1);
        let other = hall.enter(FEW).unwrap();
        assert_eq!((hall.holds(MANY), hall.holds(FEW)), (2, 1));
        other.pulse.begin();
        assert!(
            hall.enter(FEW).is_none(),
            "two connections and one are an equal share of three"
        );
    }

    #[test]
    fn connections_that_are_ending_are_bounded_too() {
        let hall = Hall::new(1);
        let seats: Vec<_> = (0..=ENDING).map_while(|_| hall.enter(MANY)).collect();
        assert_eq!(seats.len(), 1 + ENDING as usize);
        assert!(hall.enter(FEW).is_none());
        drop(seats);
        assert!(hall.enter(FEW).is_some());
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        let same = |a: &str, b: &str| peer(a.parse().unwrap()) == peer(b.parse().unwrap());
        assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
