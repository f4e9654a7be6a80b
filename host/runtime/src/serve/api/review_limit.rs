//! Limits the reviews of tokens and rights that clients of the API cause at the API server, and orders the waiting
//! ones.
//!
//! Anybody who reaches the port can show a made-up token, so each review of an unknown token is made for a stranger.
//! Such tokens wait for turns, which rotate among peers, and among the clients that a peer names: behind the API
//! server's proxy all clients have its address, and the proxy adds theirs. A rejected client has taken nothing from
//! others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Time limit of the wait for a turn.
const PATIENCE: Duration = Duration::from_secs(8);

/// The most clients that wait for a turn, of all and of one client.
const MOST_WAITING: usize = 256;
const MOST_WAITING_OF_A_CLIENT: usize = 36;

/// One in this many turns is for tokens that do not look like those of the cluster, if both sorts wait.
const TURNS_OF_OTHERS: u64 = 6;

/// Number of clients whose last turn is remembered.
const MOST_REMEMBERED: usize = 1000;

/// A token bucket: turns per second, with a burst.
#[derive(Debug)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    left: f64,
    since: Instant,
}

impl Bucket {
    /// A full bucket.
    pub fn new(per_second: f64, burst: f64) -> Self {
        Self {
            per_second,
            burst,
            left: burst,
            since: Instant::now(),
        }
    }

    fn refill(&mut self) {
        let now = Instant::now();
        let refilled = self.left + now.duration_since(self.since).as_secs_f64() * self.per_second;
        (self.left, self.since) = (refilled.min(self.burst), now);
    }

    /// Takes a turn, if there is one.
    pub fn take(&mut self) -> bool {
        self.refill();
        let has_one = self.left >= 1.0;
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }

    /// Returns `true` if no turn was taken lately.
    pub fn is_full(&mut self) -> bool {
        self.refill();
        self.left >= self.burst
    }

    /// Returns the time of the next turn. A timer counts milliseconds.
    fn next(&self) -> Instant {
        let wait = ((1.0 - self.left) / self.per_second).max(0.0);
        self.since + Duration::from_secs_f64(wait) + Duration::from_millis(1)
    }
}

/// Address of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress {
    /// The other end of the connection.
    pub peer: IpAddr,
    /// Client named by the peer. A peer may name what it likes; that only affects its own turns.
    pub forwarded_for: Option<Arc<str>>,
}

/// Turns that clients wait for.
#[derive(Debug)]
pub struct FairTurns(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    bucket: Bucket,
    queue: Vec<Waiter>,
    /// Number of granted turns, which serves as a clock.
    turns: u64,
    peers: HashMap<IpAddr, u64>,
    clients: HashMap<ClientAddress, u64>,
}

#[derive(Debug)]
struct Waiter {
    client: ClientAddress,
    is_likely: bool,
    turn: oneshot::Sender<()>,
}

/// No turn was available in time.
#[derive(Debug, PartialEq, Eq)]
pub struct NoTurn;

impl FairTurns {
    /// Makes the turns of a bucket.
    pub fn new(bucket: Bucket) -> Self {
        Self(Mutex::new(Waiting {
            bucket,
            queue: Vec::new(),
            turns: 0,
            peers: HashMap::new(),
            clients: HashMap::new(),
        }))
    }

    /// Waits for a turn; `is_likely` is set if the token is probably valid.
    pub async fn wait(&self, client: &ClientAddress, is_likely: bool) -> Result<(), NoTurn> {
        let until = Instant::now() + PATIENCE;
        let mut turn = {
            let mut waiting = self.0.lock();
            waiting.queue.retain(|waiter| !waiter.turn.is_closed());
            if !waiting.make_place(client, is_likely) || !waiting.make_room(client) {
                return Err(NoTurn);
            }
            let (turn, wait) = oneshot::channel();
            let client = client.clone();
            waiting.queue.push(Waiter {
                client,
                is_likely,
                turn,
            });
            wait
        };
        loop {
            let next = {
                let mut waiting = self.0.lock();
                waiting.give();
                waiting.bucket.next()
            };
            match timeout_at(next.min(until), &mut turn).await {
                Ok(given) => return given.map_err(|_| NoTurn),
                Err(_) if Instant::now() >= until => return Err(NoTurn),
                Err(_) => {}
            }
        }
    }

    /// Returns a turn that was not needed.
    pub fn give_back(&self) {
        let mut waiting = self.0.lock();
        waiting.bucket.left += 1.0;
        waiting.give();
    }
}

impl Waiting {
    /// Makes a place for a client, if it has too many waiting: a likely token takes the place of an unlikely one.
    /// Returns `false` if there is none.
    fn make_place(&mut self, client: &ClientAddress, is_likely: bool) -> bool {
        let own = self
            .queue
            .iter()
            .enumerate()
            .filter(|(_, waiter)| waiter.client == *client);
        if own.clone().count() < MOST_WAITING_OF_A_CLIENT {
            return true;
        }
        let unlikely = own
            .filter(|(_, waiter)| !waiter.is_likely)
            .map(|(position, _)| position);
        match unlikely.max().filter(|_| is_likely) {
            Some(position) => {
                self.queue.remove(position);
                true
            }
            None => false,
        }
    }

    /// Makes room for a client if all places are taken: the last waiter of the peer with most of them, and of its
    /// client with most, is removed. Returns `true` if there is room.
    fn make_room(&mut self, newcomer: &ClientAddress) -> bool {
        if self.queue.len() < MOST_WAITING {
            return true;
        }
        let (mut peers, mut clients) = (HashMap::new(), HashMap::new());
        for Waiter { client, .. } in &self.queue {
            *peers.entry(client.peer).or_insert(0) += 1;
            *clients.entry(client).or_insert(0) += 1;
        }
        let places = |client: &ClientAddress| {
            let of_peer: usize = peers.get(&client.peer).copied().unwrap_or_default();
            (of_peer, clients.get(client).copied().unwrap_or_default())
        };
        let most = self.queue.iter().enumerate();
        let most = most.map(|(position, waiter)| (places(&waiter.client), position)).max();
        let own = places(newcomer);
        match most {
            Some((most, position)) if most > (own.0, own.1 + 1) => {
                self.queue.remove(position);
                true
            }
            _ => false,
        }
    }

    /// Grants turns to the next waiters.
    fn give(&mut self) {
        self.queue.retain(|waiter| !waiter.turn.is_closed());
        while !self.queue.is_empty() && self.bucket.take() {
            let position = self.next();
            let Waiter { client, turn, .. } = self.queue.remove(position);
            self.turns += 1;
            if self.clients.len() >= MOST_REMEMBERED {
                let lately = self.turns.saturating_sub(MOST_REMEMBERED as u64 / 2);
                self.clients.retain(|_, turn| *turn > lately);
                self.peers.retain(|_, turn| *turn > lately);
            }
            self.peers.insert(client.peer, self.turns);
            self.clients.insert(client, self.turns);
            if turn.send(()).is_err() {
                self.bucket.left += 1.0;
            }
        }
    }

    /// The waiter without a turn for the longest time: first among peers, then among the clients of one.
    fn next(&self) -> usize {
        let is_for_others = self.turns % TURNS_OF_OTHERS == TURNS_OF_OTHERS - 1;
        let rank = |(position, waiter): (usize, &Waiter)| {
            let Waiter { client, is_likely, .. } = waiter;
            let last_of_peer = self.peers.get(&client.peer).copied().unwrap_or_default();
            let last = self.clients.get(client).copied().unwrap_or_default();
            (*is_likely == is_for_others, last_of_peer, last, position)
        };
        let best = self.queue.iter().enumerate().map(rank).min();
        best.map_or(0, |(.., position)| position)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinSet;
    use tokio::time::sleep;

    use super::*;

    fn client(peer: u8, forwarded_for: Option<&str>) -> ClientAddress {
        ClientAddress {
            peer: Ipv4Addr::new(10, 0, 0, peer).into(),
            forwarded_for: forwarded_for.map(Arc::from),
        }
    }

    fn turns() -> Arc<FairTurns> {
        Arc::new(FairTurns::new(Bucket::new(6.0, 1.0)))
    }

    /// Requests this many turns each second, for ten seconds. Returns how many were granted.
    fn flood(
        turns: &Arc<FairTurns>,
        per_second: u32,
        who: impl Fn(u32) -> ClientAddress,
    ) -> (JoinSet<()>, Arc<AtomicUsize>) {
        let (given, mut asking) = (Arc::<AtomicUsize>::default(), JoinSet::new());
        for number in 0..10 * per_second {
            let (turns, given, who) = (turns.clone(), given.clone(), who(number));
            asking.spawn(async move {
                sleep(Duration::from_secs(1) * number / per_second).await;
                if turns.wait(&who, false).await.is_ok() {
                    given.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        (asking, given)
    }

    /// Lets twenty clients try once a second for ten seconds. Returns how many got a turn.
    async fn rightful(turns: &Arc<FairTurns>, who: impl Fn(u8) -> ClientAddress, is_likely: bool) -> usize {
        let mut clients = JoinSet::new();
        for number in 0..20 {
            let (turns, who) = (turns.clone(), who(number));
            clients.spawn(async move {
                let until = Instant::now() + Duration::from_secs(10);
                sleep(Duration::from_millis(137) * number.into()).await;
                while Instant::now() < until {
                    match timeout_at(until, turns.wait(&who, is_likely)).await {
                        Ok(Ok(())) => return true,
                        _ => sleep(Duration::from_secs(1)).await,
                    }
                }
                false
            });
        }
        clients.join_all().await.into_iter().filter(|is_in| *is_in).count()
    }

    #[tokio::test(start_paused = true)]
    async fn no_flood_of_tokens_keeps_others_from_their_turns() {
        for per_second in [13, 1000] {
            // From another address, directly while the others come through the proxy, and through the proxy.
            for flooding in [client(9, None), client(1, None), client(1, Some("198.51.100.1"))] {
                let turns = turns();
                let (_asking, _) = flood(&turns, per_second, |_| flooding.clone());
                let who = |number: u8| client(1, Some(&format!("192.0.2.{number}")));
                let got_in = rightful(&turns, who, false).await;
                assert!(got_in >= 18, "{per_second} from {flooding:?}: {got_in}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_from_many_addresses_leaves_places_to_others() {
        let turns = turns();
        let (_asking, _) = flood(&turns, 1000, |number| {
            client(100 + u8::try_from(number % 10).unwrap(), None)
        });
        assert!(rightful(&turns, |number| client(number, None), false).await >= 18);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_with_many_client_names_gets_no_more_turns() {
        let turns = turns();
        let (_asking, _) = flood(&turns, 1000, |number| client(9, Some(&number.to_string())));
        assert!(rightful(&turns, |_| client(1, None), false).await >= 18);
    }

    #[tokio::test(start_paused = true)]
    async fn likely_tokens_precede_others_of_the_same_address() {
        let turns = turns();
        let (_asking, _) = flood(&turns, 1000, |_| client(1, None));
        let tried = rightful(&turns, |_| client(1, None), true).await;
        assert!(tried >= 18, "{tried}");
    }

    #[tokio::test(start_paused = true)]
    async fn turns_stay_within_their_rate_and_rejected_clients_take_none() {
        let turns = turns();
        let (asking, given) = flood(&turns, 1000, |number| client(u8::try_from(number % 200).unwrap(), None));
        let mut before = 0;
        for _ in 0..10 {
            sleep(Duration::from_secs(1)).await;
            let now = given.load(Ordering::Relaxed);
            assert!((5..=7).contains(&(now - before)), "{now} {before}");
            before = now;
        }
        drop(asking);
    }
}
