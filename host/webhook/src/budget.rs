//! Bounds the memory of requests: the bytes that are read at the same time, and the memory that these bytes take once
//! they are parsed, which may be a hundred times as much. A request reserves before it is read, and again before it is
//! parsed. Small requests have budgets of their own, so that large ones never delay them, and each peer gets a part.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::handler::MAX_BODY_BYTES;

/// A request of at most this size is small. Reviews of nearly all objects are.
pub const SMALL_BODY_BYTES: usize = 256 * 1024;

/// Largest memory of a parsed request that counts as small.
pub const SMALL_PARSED_BYTES: usize = 4 * 1024 * 1024;

const MEBIBYTE: usize = 1024 * 1024;

/// Bytes of requests that are held at the same time. The largest request just fits into a peer's half.
const BODIES: Sizes = Sizes {
    small: SMALL_BODY_BYTES,
    small_of_all: 4 * MEBIBYTE,
    small_of_a_peer: 2 * MEBIBYTE,
    large_of_all: 16 * MEBIBYTE,
    large_of_a_peer: MAX_BODY_BYTES,
};

/// Memory of requests that are parsed at once. An API server's largest, an update of 1.5 MiB, takes about 60 MiB.
const PARSED: Sizes = Sizes {
    small: SMALL_PARSED_BYTES,
    small_of_all: 32 * MEBIBYTE,
    small_of_a_peer: 16 * MEBIBYTE,
    large_of_all: 112 * MEBIBYTE,
    large_of_a_peer: MAX_PARSED_BYTES,
};

/// Most memory that one parsed request may take.
pub const MAX_PARSED_BYTES: usize = 80 * MEBIBYTE;

/// The sizes of a budget, in bytes.
struct Sizes {
    /// A request of at most this size is small.
    small: usize,
    small_of_all: usize,
    small_of_a_peer: usize,
    large_of_all: usize,
    large_of_a_peer: usize,
}

/// Bytes that may still be held: by the whole server, or by one of its peers.
#[derive(Debug)]
pub struct ByteBudget {
    bodies: Pools,
    parsed: Pools,
}

impl ByteBudget {
    /// Returns the budget of the server.
    pub fn of_all() -> Self {
        let pools = |sizes: Sizes| Pools::new(sizes.small, sizes.small_of_all, sizes.large_of_all);
        Self {
            bodies: pools(BODIES),
            parsed: pools(PARSED),
        }
    }

    /// Returns the budget of one peer.
    pub fn of_a_peer() -> Self {
        let pools = |sizes: Sizes| Pools::new(sizes.small, sizes.small_of_a_peer, sizes.large_of_a_peer);
        Self {
            bodies: pools(BODIES),
            parsed: pools(PARSED),
        }
    }

    /// Reports whether nothing is held.
    pub fn is_whole(&self) -> bool {
        self.bodies.is_whole() && self.parsed.is_whole()
    }
}

/// Bytes that small and large requests may still hold.
#[derive(Debug)]
struct Pools {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    small_bytes: usize,
    /// Bytes of both while nothing is held.
    whole: usize,
}

impl Pools {
    fn new(small_bytes: usize, small: usize, large: usize) -> Self {
        Self {
            small: Arc::new(Semaphore::new(small)),
            large: Arc::new(Semaphore::new(large)),
            small_bytes,
            whole: small + large,
        }
    }

    fn is_whole(&self) -> bool {
        self.small.available_permits() + self.large.available_permits() == self.whole
    }

    async fn acquire(&self, bytes: usize) -> OwnedSemaphorePermit {
        let pool = if bytes <= self.small_bytes {
            &self.small
        } else {
            &self.large
        };
        let permits = u32::try_from(bytes).expect("a request has less than 4 GiB");
        let taken = pool.clone().acquire_many_owned(permits).await;
        taken.expect("the semaphore is never closed")
    }
}

/// Bytes that a request holds until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    _of_peer: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Reservation {
    /// Waits for so many bytes, at most [`MAX_BODY_BYTES`], in order of arrival. A peer's own budget comes first, so
    /// that its requests queue up among themselves.
    pub async fn make(all: &ByteBudget, peer: &ByteBudget, bytes: usize) -> Self {
        Self {
            _of_peer: peer.bodies.acquire(bytes).await,
            _of_all: all.bodies.acquire(bytes).await,
        }
    }
}

/// Memory for parsing a request, of the whole server and of its peer.
#[derive(Clone, Debug)]
pub struct ParsedMemory {
    all: Arc<ByteBudget>,
    peer: Arc<ByteBudget>,
}

/// Memory that a request holds until this is dropped.
#[derive(Debug)]
pub struct ParsedReservation {
    _held: Reservation,
    bytes: usize,
}

impl ParsedReservation {
    /// Reports whether it is more than nearly all requests take.
    pub fn is_large(&self) -> bool {
        self.bytes > SMALL_PARSED_BYTES
    }
}

impl ParsedMemory {
    /// Returns the memory for a peer's requests.
    pub fn new(all: Arc<ByteBudget>, peer: Arc<ByteBudget>) -> Self {
        Self { all, peer }
    }

    /// Waits for so much memory. None if it is more than one request may take.
    pub async fn reserve(&self, bytes: usize) -> Option<ParsedReservation> {
        if bytes > MAX_PARSED_BYTES {
            return None;
        }
        let held = Reservation {
            _of_peer: self.peer.parsed.acquire(bytes).await,
            _of_all: self.all.parsed.acquire(bytes).await,
        };
        Some(ParsedReservation { _held: held, bytes })
    }
}

/// A body that holds its reservation: the bytes are given back with the last copy of the body.
pub struct ReservedBody {
    bytes: Vec<u8>,
    _reservation: Arc<Reservation>,
}

impl ReservedBody {
    /// Returns a body with its reservation.
    pub fn new(bytes: Vec<u8>, reservation: Arc<Reservation>) -> Self {
        Self {
            bytes,
            _reservation: reservation,
        }
    }
}

impl AsRef<[u8]> for ReservedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn large_requests_wait_for_each_other_and_small_ones_never() {
        let (all, peers) = (ByteBudget::of_all(), [0; 3].map(|_| ByteBudget::of_a_peer()));
        let large = Reservation::make(&all, &peers[0], MAX_BODY_BYTES).await;
        let second = timeout(SOON, Reservation::make(&all, &peers[0], MAX_BODY_BYTES)).await;
        assert!(second.is_err(), "a peer has half of the budget");
        let other = Reservation::make(&all, &peers[1], MAX_BODY_BYTES).await;
        let third = timeout(SOON, Reservation::make(&all, &peers[2], MAX_BODY_BYTES)).await;
        assert!(third.is_err(), "the whole budget is taken");
        let small = timeout(SOON, Reservation::make(&all, &peers[2], SMALL_BODY_BYTES)).await;
        assert!(small.is_ok());
        drop((large, other));
        Reservation::make(&all, &peers[2], MAX_BODY_BYTES).await;
    }

    #[tokio::test]
    async fn one_peer_leaves_small_requests_of_others_their_half() {
        let (all, [flood, other]) = (ByteBudget::of_all(), [0; 2].map(|_| ByteBudget::of_a_peer()));
        let mut held = Vec::new();
        while let Ok(reservation) = timeout(SOON, Reservation::make(&all, &flood, SMALL_BODY_BYTES)).await {
            held.push(reservation);
        }
        assert_eq!(held.len() * SMALL_BODY_BYTES, BODIES.small_of_a_peer);
        assert!(
            timeout(SOON, Reservation::make(&all, &other, SMALL_BODY_BYTES))
                .await
                .is_ok()
        );
    }

    #[tokio::test]
    async fn parsed_requests_have_a_budget_of_which_a_peer_gets_a_part() {
        let all = Arc::new(ByteBudget::of_all());
        let [flood, other] = [0; 2].map(|_| ParsedMemory::new(all.clone(), Arc::new(ByteBudget::of_a_peer())));
        assert!(flood.reserve(MAX_PARSED_BYTES + 1).await.is_none());
        let mut held = Vec::new();
        for bytes in [MAX_PARSED_BYTES, SMALL_PARSED_BYTES] {
            while let Ok(reservation) = timeout(SOON, flood.reserve(bytes)).await {
                held.push(reservation.unwrap());
            }
        }
        let taken: usize = held.iter().map(|reservation| reservation.bytes).sum();
        assert_eq!(taken, PARSED.large_of_a_peer + PARSED.small_of_a_peer);
        let large = PARSED.large_of_all - PARSED.large_of_a_peer;
        assert!(timeout(SOON, other.reserve(large)).await.is_ok());
        assert!(timeout(SOON, other.reserve(SMALL_PARSED_BYTES)).await.is_ok());
        drop(held);
        assert!(flood.peer.is_whole() && all.is_whole());
    }
}
