//! Owns how many bytes of requests the server holds at the same time. A request reserves its bytes before its body is
//! read, and gives them back once nobody holds the body any more. Small requests have a budget of their own, so that
//! a few large ones never make them wait, and one peer gets at most half of each budget.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A request of at most this size is small. Reviews of nearly all objects are.
pub const SMALL_BODY_BYTES: usize = 256 * 1024;

/// The bytes of small requests that are held at the same time, and of one peer's.
const SMALL_BYTES: usize = 4 * 1024 * 1024;
const SMALL_BYTES_OF_A_PEER: usize = SMALL_BYTES / 2;

/// The bytes of large requests that are held at the same time, and of one peer's: the largest request just fits.
const LARGE_BYTES: usize = 16 * 1024 * 1024;
const LARGE_BYTES_OF_A_PEER: usize = LARGE_BYTES / 2;

const _: () = assert!(crate::server::MAX_BODY_BYTES <= LARGE_BYTES_OF_A_PEER);

/// What may still be held: by the whole server, or by one of its peers.
#[derive(Debug)]
pub struct ByteBudget {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// What both have while nothing is held.
    whole: usize,
}

impl ByteBudget {
    /// The budget of the server.
    pub fn of_all() -> Self {
        Self::new(SMALL_BYTES, LARGE_BYTES)
    }

    /// The budget of one peer.
    pub fn of_a_peer() -> Self {
        Self::new(SMALL_BYTES_OF_A_PEER, LARGE_BYTES_OF_A_PEER)
    }

    fn new(small: usize, large: usize) -> Self {
        Self {
            small: Arc::new(Semaphore::new(small)),
            large: Arc::new(Semaphore::new(large)),
            whole: small + large,
        }
    }

    /// Whether nothing is held.
    pub fn is_whole(&self) -> bool {
        self.small.available_permits() + self.large.available_permits() == self.whole
    }

    fn pool(&self, bytes: usize) -> &Arc<Semaphore> {
        if bytes <= SMALL_BODY_BYTES {
            &self.small
        } else {
            &self.large
        }
    }
}

/// Bytes that a request holds until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    _of_peer: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Reservation {
    /// Waits for so many bytes, at most [`MAX_BODY_BYTES`](crate::server::MAX_BODY_BYTES). Who waits is served in order;
    /// a peer's own budget comes first, so that its requests queue up among themselves.
    pub async fn make(all: &ByteBudget, peer: &ByteBudget, bytes: usize) -> Self {
        let permits = u32::try_from(bytes).expect("a body has less than 4 GiB");
        let take = async |pool: &Arc<Semaphore>| {
            let taken = pool.clone().acquire_many_owned(permits).await;
            taken.expect("the semaphore is never closed")
        };
        let of_peer = take(peer.pool(bytes)).await;
        Self {
            _of_peer: of_peer,
            _of_all: take(all.pool(bytes)).await,
        }
    }
}

/// A body that holds its reservation: the bytes are given back with the last copy of the body.
pub struct ReservedBody {
    bytes: Vec<u8>,
    _reservation: Arc<Reservation>,
}

impl ReservedBody {
    /// A body, and what it has reserved.
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
    use crate::server::MAX_BODY_BYTES;

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
        assert_eq!(held.len() * SMALL_BODY_BYTES, SMALL_BYTES_OF_A_PEER);
        assert!(
            timeout(SOON, Reservation::make(&all, &other, SMALL_BODY_BYTES))
                .await
                .is_ok()
        );
    }
}
