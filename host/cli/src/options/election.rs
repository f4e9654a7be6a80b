//! Options of leader election among the host's replicas.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use pilothouse_cluster::fence::WriteFence;
use pilothouse_core::replicas::lease::LeaseTimes;
use pilothouse_core::replicas::shards::MOST_SHARDS;
use pilothouse_runtime::{ElectionOptions, LONGEST_LEASE_SUFFIX};

use crate::options::settings;

/// The longest name of a Lease.
const LONGEST_NAME: usize = 253;

/// Longest name with `--shards`: the Leases of replicas and shards have a suffix.
const LONGEST_NAME_WITH_SHARDS: usize = LONGEST_NAME - LONGEST_LEASE_SUFFIX;

/// Which replica writes.
#[derive(Args)]
pub struct ElectionArguments {
    /// Run as one of several replicas: the holder of a Lease in the host's namespace (--namespace) writes, the others keep
    /// their caches, answer webhooks and take over
    #[arg(long)]
    leader_election: bool,

    /// The name of the Lease. Hosts that run different Plugins in the same namespace need different names
    #[arg(long, value_name = "NAME", default_value = "pilothouse", requires = "leader_election", value_parser = lease_name)]
    lease: String,

    /// Seconds after which another replica takes the Lease if its holder does not renew it
    #[arg(long, value_name = "SECONDS", default_value_t = 15, requires = "leader_election", value_parser = clap::value_parser!(u32).range(1..))]
    lease_duration: u32,

    /// Seconds after which the holder stops writing if it cannot renew the Lease
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "leader_election", value_parser = clap::value_parser!(u32).range(1..))]
    lease_renew_deadline: u32,

    /// Seconds between two attempts to take or renew the Lease
    #[arg(long, value_name = "SECONDS", default_value_t = 2, requires = "leader_election", value_parser = clap::value_parser!(u32).range(1..))]
    lease_retry_period: u32,

    /// Divide the work by namespace into so many shards, each with a Lease, so that all replicas work; a few for each
    /// replica. All replicas need the same number
    #[arg(long, value_name = "NUMBER", requires = "leader_election", value_parser = clap::value_parser!(u8).range(1..=MOST_SHARDS as i64))]
    shards: Option<u8>,
}

impl ElectionArguments {
    /// Returns the options of the election, if there is one.
    pub fn options(self, namespace: Option<&str>) -> anyhow::Result<Option<ElectionOptions>> {
        let Self {
            leader_election,
            lease,
            lease_duration,
            lease_renew_deadline,
            lease_retry_period,
            shards,
        } = self;
        if !leader_election {
            return Ok(None);
        }
        anyhow::ensure!(
            shards.is_none() || lease.len() <= LONGEST_NAME_WITH_SHARDS,
            "--lease has {} characters; with --shards it has at most {LONGEST_NAME_WITH_SHARDS}, because the Leases of replicas and \
             shards have longer names; give a shorter one",
            lease.len()
        );
        let [duration, renew_deadline, retry_period] = [lease_duration, lease_renew_deadline, lease_retry_period]
            .map(|seconds| Duration::from_secs(seconds.into()));
        let times = LeaseTimes {
            duration,
            renew_deadline,
            retry_period,
        };
        let namespace = namespace.context(
            "--leader-election needs the namespace of the Lease, and this is no pod, which would have one; give it with --namespace",
        )?;
        let fence = shards.map_or_else(WriteFence::closed, |_| WriteFence::divided());
        Ok(Some(ElectionOptions {
            namespace: namespace.to_owned(),
            name: lease,
            identity: identity(),
            times: times.check()?,
            fence,
            shards: shards.map(usize::from),
        }))
    }
}

/// Returns an identity that no other process has: the pod's name stays the same when its container restarts.
fn identity() -> String {
    // Its keys are random.
    let number = RandomState::new().hash_one(std::process::id());
    format!("{}_{number:016x}", settings::instance())
}

fn lease_name(name: &str) -> Result<String, String> {
    let is_character = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.len() <= LONGEST_NAME
        && bytes.iter().copied().all(is_character)
        && is_end(bytes.first())
        && is_end(bytes.last())
    {
        Ok(name.to_owned())
    } else {
        Err(
            "a Lease's name has at most 253 characters a-z, 0-9, '-' and '.', with a letter or digit at both ends"
                .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leaves_room_for_those_of_replicas_and_shards() {
        let of = |length: usize, shards| {
            let arguments = ElectionArguments {
                leader_election: true,
                lease: "a".repeat(length),
                lease_duration: 15,
                lease_renew_deadline: 10,
                lease_retry_period: 2,
                shards,
            };
            arguments.options(Some("default")).map_err(|error| error.to_string())
        };
        assert!(of(LONGEST_NAME, None).is_ok());
        assert!(of(LONGEST_NAME_WITH_SHARDS, Some(4)).is_ok());
        let refused = of(LONGEST_NAME_WITH_SHARDS + 1, Some(4)).unwrap_err();
        assert!(refused.contains("--lease has 229 characters"), "{refused}");
    }
}
