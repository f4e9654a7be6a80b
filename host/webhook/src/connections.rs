//! Bounds the open connections, of one peer and of all, and decides which one gives way to a new one. Does no I/O;
//! [`server`](crate::server) carries out the decisions.
//!
//! A new connection is nearly always accepted. If there is no free slot for it, the connection that is least in use
//! gives way: one without a request so far, else one that is idle, else one whose request is still being read. A
//! request that is being answered is never given up for another.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::budget::ByteBudget;

/// Most connections at the same time. An API server keeps one for each webhook that it calls.
pub const MAX_CONNECTIONS: usize = 512;

/// Most connections of one peer at the same time. All API servers behind one proxy or tunnel are one peer.
pub const MAX_CONNECTIONS_OF_A_PEER: usize = 128;

/// Timeouts of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionTimeouts {
    /// Time from the connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// Time from the handshake to the end of the head of the first request; over HTTP/1.1, of each request.
    pub head: Duration,
    /// Time for the smallest body. A larger one has a second more for each MiB.
    pub body: Duration,
    /// Time between two requests. API servers open a new connection when they need one.
    pub idle: Duration,
}

impl Default for ConnectionTimeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(10),
            body: Duration::from_secs(2),
            idle: Duration::from_mins(1),
        }
    }
}

/// Stage of a connection; the earlier gives way first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionStage {
    /// No request so far.
    Fresh,
    /// All requests are answered.
    Idle,
    /// A request is being read.
    Reading,
    /// A request is being answered.
    Answering,
}

/// The connections that are open.
#[derive(Debug, Default)]
pub struct Connections {
    patience: ConnectionTimeouts,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    next: u64,
    entries: BTreeMap<u64, ConnectionEntry>,
    peers: HashMap<IpAddr, Peer>,
}

#[derive(Debug)]
struct Peer {
    connections: usize,
    budget: Arc<ByteBudget>,
}

#[derive(Debug)]
struct ConnectionEntry {
    peer: IpAddr,
    /// Numbers of requests that are being read, and answered.
    reading: usize,
    answering: usize,
    /// Set once the head of a request was read.
    has_asked: bool,
    /// Time of the last begin or end of a request.
    since: Instant,
    gives_way: Arc<Notify>,
}

impl ConnectionEntry {
    fn stage(&self) -> ConnectionStage {
        match (self.answering, self.reading) {
            (1.., _) => ConnectionStage::Answering,
            (0, 1..) => ConnectionStage::Reading,
            (0, 0) if self.has_asked => ConnectionStage::Idle,
            (0, 0) => ConnectionStage::Fresh,
        }
    }
}

/// Slot of one open connection, free again once this is dropped.
#[derive(Debug)]
pub struct Slot {
    connections: Arc<Connections>,
    id: u64,
    /// Bytes that its peer may still hold.
    pub budget: Arc<ByteBudget>,
    gives_way: Arc<Notify>,
}

impl Connections {
    /// Returns an empty set of connections.
    pub fn new(patience: ConnectionTimeouts) -> Self {
        Self {
            patience,
            table: Mutex::default(),
        }
    }

    /// Returns a slot for a new connection of a peer; none if all that it could have are answering requests.
    pub fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Slot> {
        let peer = peer.to_canonical();
        let mut table = self.table();
        let of_peer = table.peers.get(&peer).map_or(0, |peer| peer.connections);
        if of_peer >= MAX_CONNECTIONS_OF_A_PEER {
            table.give_way(Some(peer))?;
        }
        if table.entries.len() >= MAX_CONNECTIONS {
            table.give_way(None)?;
        }
        let id = table.next;
        table.next += 1;
        let gives_way = Arc::<Notify>::default();
        table.entries.insert(
            id,
            ConnectionEntry {
                peer,
                reading: 0,
                answering: 0,
                has_asked: false,
                since: Instant::now(),
                gives_way: gives_way.clone(),
            },
        );
        let known = table.peers.entry(peer).or_insert_with(|| Peer {
            connections: 0,
            budget: Arc::new(ByteBudget::of_a_peer()),
        });
        known.connections += 1;
        Some(Slot {
            connections: self.clone(),
            id,
            budget: known.budget.clone(),
            gives_way,
        })
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionTable {
    /// Takes the slot of the connection that is least in use, of one peer or of all, and notifies that connection.
    fn give_way(&mut self, of: Option<IpAddr>) -> Option<()> {
        let connections_of = |peer: &IpAddr| self.peers.get(peer).map_or(0, |peer| peer.connections);
        let candidates = self.entries.iter().filter(|(_, entry)| {
            of.is_none_or(|peer| entry.peer == peer) && entry.stage() < ConnectionStage::Answering
        });
        // Among connections of the same stage, one of the peer that has the most; of these, the one that waits longest.
        let rank = |(_, entry): &(&u64, &ConnectionEntry)| {
            let others = usize::MAX - connections_of(&entry.peer);
            (entry.stage(), others, entry.since)
        };
        let id = *candidates.min_by_key(rank)?.0;
        self.remove(id)?.gives_way.notify_one();
        Some(())
    }

    fn remove(&mut self, id: u64) -> Option<ConnectionEntry> {
        let entry = self.entries.remove(&id)?;
        if let Some(peer) = self.peers.get_mut(&entry.peer) {
            peer.connections -= 1;
        }
        // A peer that disconnected during a call gets the rest of its budget when it connects again.
        self.peers
            .retain(|_, peer| peer.connections > 0 || !peer.budget.is_whole());
        Some(entry)
    }
}

impl Slot {
    /// Resolves once the connection has to make room for another one.
    pub async fn gives_way(&self) {
        self.gives_way.notified().await;
    }

    /// Returns the time at which the connection ends if nothing happens on it; none while a request is under way.
    pub fn due(&self) -> Option<Instant> {
        let table = self.connections.table();
        let entry = table.entries.get(&self.id)?;
        match entry.stage() {
            ConnectionStage::Fresh => Some(entry.since + self.connections.patience.head),
            ConnectionStage::Idle => Some(entry.since + self.connections.patience.idle),
            ConnectionStage::Reading | ConnectionStage::Answering => None,
        }
    }

    /// Records the end of the handshake: the time for the first request begins.
    pub fn set_established(&self) {
        self.change(|_| {});
    }

    fn change(&self, change: impl FnOnce(&mut ConnectionEntry)) {
        if let Some(entry) = self.connections.table().entries.get_mut(&self.id) {
            change(entry);
            entry.since = Instant::now();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.table().remove(self.id);
    }
}

/// A request whose body is being read.
pub struct ReadingGuard(Arc<Slot>);

/// A request that is being answered.
pub struct AnsweringGuard(Arc<Slot>);

impl ReadingGuard {
    /// Records that the head of a request was read.
    pub fn begin(slot: Arc<Slot>) -> Self {
        slot.change(|entry| {
            entry.has_asked = true;
            entry.reading += 1;
        });
        Self(slot)
    }

    /// Records that the body was read too.
    pub fn ends(self) -> AnsweringGuard {
        self.0.change(|entry| entry.answering += 1);
        AnsweringGuard(self.0.clone())
    }
}

impl Drop for ReadingGuard {
    fn drop(&mut self) {
        self.0.change(|entry| entry.reading -= 1);
    }
}

impl Drop for AnsweringGuard {
    fn drop(&mut self) {
        self.0.change(|entry| entry.answering -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, number))
    }

    fn entered(connections: &Arc<Connections>, number: u8, count: usize) -> Vec<Arc<Slot>> {
        (0..count)
            .map(|_| Arc::new(connections.enter(peer(number)).unwrap()))
            .collect()
    }

    fn is_there(slot: &Slot) -> bool {
        slot.connections.table().entries.contains_key(&slot.id)
    }

    fn answering(slot: &Arc<Slot>) -> AnsweringGuard {
        ReadingGuard::begin(slot.clone()).ends()
    }

    #[test]
    fn a_peer_at_its_limit_displaces_only_its_own_connections() {
        let connections = Arc::<Connections>::default();
        let other = entered(&connections, 2, 1);
        let slots = entered(&connections, 1, MAX_CONNECTIONS_OF_A_PEER);
        let next = connections.enter(peer(1)).unwrap();
        assert!(!is_there(&slots[0]), "the longest silent one gives way");
        assert!(is_there(&slots[1]) && is_there(&next) && is_there(&other[0]));
    }

    #[test]
    fn idle_connections_are_displaced_before_ones_with_requests() {
        let connections = Arc::<Connections>::default();
        let slots = entered(&connections, 1, MAX_CONNECTIONS_OF_A_PEER);
        drop(answering(&slots[0]));
        let reading = ReadingGuard::begin(slots[1].clone());
        let calls: Vec<_> = slots[2..].iter().map(answering).collect();
        let first = connections.enter(peer(1)).unwrap();
        assert!(!is_there(&slots[0]), "the idle one goes before one that sends");
        let call = answering(&Arc::new(first));
        let second = connections.enter(peer(1)).unwrap();
        assert!(!is_there(&slots[1]), "before a call, one that sends goes");
        let last = answering(&Arc::new(second));
        assert!(connections.enter(peer(1)).is_none(), "no call is given up");
        drop((calls, reading, call, last));
    }

    #[test]
    fn when_all_slots_are_taken_the_peer_with_the_most_gives_way() {
        let connections = Arc::<Connections>::default();
        let few = entered(&connections, 9, 1);
        let mut many = Vec::new();
        for number in 1..5 {
            let left = MAX_CONNECTIONS - connections.table().entries.len();
            many.extend(entered(&connections, number, left.min(MAX_CONNECTIONS_OF_A_PEER)));
        }
        let next = connections.enter(peer(8)).unwrap();
        assert!(is_there(&few[0]) && is_there(&next));
        assert_eq!(connections.table().entries.len(), MAX_CONNECTIONS);
    }

    #[test]
    fn nothing_is_remembered_of_a_peer_that_is_gone() {
        let connections = Arc::<Connections>::default();
        let slots = entered(&connections, 1, 3);
        let call = answering(&slots[0]);
        drop(slots);
        assert_eq!(connections.table().peers.len(), 1, "a call holds its slot");
        drop(call);
        assert!(connections.table().peers.is_empty() && connections.table().entries.is_empty());
    }

    #[tokio::test]
    async fn a_connection_is_told_to_give_way_and_its_time_is_known() {
        let connections = Arc::<Connections>::default();
        let slots = entered(&connections, 1, MAX_CONNECTIONS_OF_A_PEER);
        let (began, head) = (Instant::now(), ConnectionTimeouts::default().head);
        assert!(slots[0].due().is_some_and(|due| due <= began + head));
        let call = answering(&slots[0]);
        assert_eq!(slots[0].due(), None, "a call has a time of its own");
        drop(call);
        assert!(slots[0].due().is_some_and(|due| due > began + head));
        let _next = connections.enter(peer(1)).unwrap();
        slots[1].gives_way().await;
    }
}
