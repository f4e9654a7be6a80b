//! Decides who answers a review that depends on cached objects: the replica that received it, the replica that holds
//! the namespace's shard, or the API server through live reads.

use std::fmt;
use std::net::SocketAddr;

use super::hash::HashRanges;

/// The holder of each shard, by the shard's number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardHolders(pub Vec<ShardHolder>);

/// The holder of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardHolder {
    /// The hashes of its namespaces.
    pub ranges: HashRanges,
    /// The replica; none if the shard has no holder.
    pub replica: Option<HoldingReplica>,
}

/// A replica that holds a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldingReplica {
    /// Its identity in Leases.
    pub identity: String,
    /// Set if it is this replica.
    pub is_own: bool,
    /// The address on which its webhook server listens for other replicas, if published.
    pub address: Option<SocketAddr>,
}

/// The answerer of a review for which this replica lacks cached objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answerer<'a> {
    /// The replica that holds the shard, at this address.
    Holder(&'a str, SocketAddr),
    /// This replica, through live reads.
    Live(NoHolder<'a>),
}

/// The reason why the shard's holder does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoHolder<'a> {
    /// Another replica forwarded the review, so this one holds the shard, or is just taking or releasing it. The review
    /// is not forwarded again.
    Forwarded,
    /// The shard has no holder, or the plan is not known yet.
    Nobody,
    /// This replica holds the shard, but has not completed the missing list.
    Own,
    /// The holder publishes no address.
    WithoutAddress(&'a str),
}

impl fmt::Display for NoHolder<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forwarded => formatter.write_str("another replica forwarded the review here while the shard moves"),
            Self::Nobody => formatter.write_str("no replica holds the shard at the moment"),
            Self::Own => formatter.write_str("this replica has just taken the shard and still lists its objects"),
            Self::WithoutAddress(holder) => write!(
                formatter,
                "the replica {holder}, which holds the shard, publishes no address; start it with --webhook-peer-address"
            ),
        }
    }
}

impl ShardHolders {
    /// The shard of a namespace: its number and its holder. None if the plan is not known yet.
    pub fn of(&self, namespace: &str) -> Option<(usize, Option<&HoldingReplica>)> {
        let shard = self.0.iter().position(|shard| shard.ranges.has(namespace))?;
        Some((shard, self.0[shard].replica.as_ref()))
    }

    /// The answerer of a review about an object in a namespace, if the receiving replica lacks cached objects for it. A
    /// forwarded review is not forwarded again, so two replicas that each believe the other to hold the shard do not
    /// pass it back and forth.
    pub fn answerer(&self, namespace: &str, is_forwarded: bool) -> Answerer<'_> {
        let replica = self.of(namespace).and_then(|(_, replica)| replica);
        match replica {
            _ if is_forwarded => Answerer::Live(NoHolder::Forwarded),
            None => Answerer::Live(NoHolder::Nobody),
            Some(HoldingReplica { is_own: true, .. }) => Answerer::Live(NoHolder::Own),
            Some(HoldingReplica { identity, address, .. }) => match address {
                Some(address) => Answerer::Holder(identity, *address),
                None => Answerer::Live(NoHolder::WithoutAddress(identity)),
            },
        }
    }
}

/// Parses the address that a replica publishes. None if it cannot be the address of a replica.
pub fn peer_address(text: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.parse().ok()?;
    let ip = address.ip();
    let is_usable = address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast();
    is_usable.then_some(address)
}

#[cfg(test)]
mod tests {
    use super::super::HashRange;
    use super::super::hash_of;
    use super::*;

    fn address() -> SocketAddr {
        peer_address("10.0.0.1:9443").expect("it is one")
    }

    /// Two shards: that of namespace `a`, and all others.
    fn holders(of_a: Option<(&str, bool, Option<SocketAddr>)>) -> ShardHolders {
        let a = hash_of("a");
        let others = [(0, a - 1), (a + 1, u64::MAX)];
        let others = others
            .into_iter()
            .filter_map(|(first, last)| HashRange::new(first, last));
        let replica = of_a.map(|(identity, is_own, address)| HoldingReplica {
            identity: identity.to_owned(),
            is_own,
            address,
        });
        ShardHolders(vec![
            ShardHolder {
                ranges: others.collect(),
                replica: None,
            },
            ShardHolder {
                ranges: HashRanges::of_namespace("a"),
                replica,
            },
        ])
    }

    #[test]
    fn the_holder_of_the_namespaces_shard_is_asked() {
        let holders = holders(Some(("two", false, Some(address()))));
        assert_eq!(holders.answerer("a", false), Answerer::Holder("two", address()));
        assert_eq!(holders.of("a").map(|(shard, _)| shard), Some(1));
        assert_eq!(holders.answerer("b", false), Answerer::Live(NoHolder::Nobody));
    }

    #[test]
    fn a_review_that_was_forwarded_is_not_forwarded_again() {
        let holders = holders(Some(("two", false, Some(address()))));
        assert_eq!(holders.answerer("a", true), Answerer::Live(NoHolder::Forwarded));
    }

    #[test]
    fn without_a_holder_that_can_be_asked_the_api_server_is() {
        let live = |holder| {
            let holders = holders(holder);
            let Answerer::Live(cause) = holders.answerer("a", false) else {
                panic!("nobody can be asked");
            };
            cause.to_string()
        };
        assert!(live(None).contains("no replica holds the shard"));
        assert!(live(Some(("one", true, Some(address())))).contains("this replica has just taken"));
        let silent = live(Some(("two", false, None)));
        assert!(silent.contains("two") && silent.contains("--webhook-peer-address"));
        let unknown = ShardHolders::default();
        assert_eq!(unknown.answerer("a", false), Answerer::Live(NoHolder::Nobody));
    }

    #[test]
    fn what_cannot_be_the_address_of_a_replica_counts_as_none() {
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1:0",
            "0.0.0.0:1",
            "[::]:1",
            "224.0.0.1:1",
            "a:1",
            "10.0.0.1:99999",
        ] {
            assert_eq!(peer_address(text), None, "{text}");
        }
        assert!(peer_address("[fd00::1]:9443").is_some());
    }
}
