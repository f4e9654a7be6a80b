//! Owns plugins as they come, change and go: what is wanted of each, its way up, its exchange for another version, its
//! end, and what is told of all that.
//!
//! `wanted` is what somebody asked for, `resources` and `given` say where from; `life` is what happens to one plugin, by
//! way of `source`, `looks`, `prepare`, `bring` and `finish`; `claims` keeps two from having the same kind, `memory` knows
//! what earlier versions owned; `standing`, `account` and `tell` make the status of the Plugin resource; `talk` bounds what
//! guests log.

pub mod account;
mod bring;
mod claims;
mod finish;
pub mod given;
mod life;
mod looks;
mod memory;
mod prepare;
pub mod resources;
mod rights;
pub mod said;
mod source;
pub mod standing;
pub mod talk;
mod tell;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_cluster::Client;
use pilothouse_sandbox::Sandbox;
use tokio::sync::Semaphore;

pub use self::wanted::check_plugin;

use self::claims::Claims;
use self::looks::Looks;
use self::standing::{Fact, Standing, Step};
use crate::host::HostOptions;
use crate::hub::Hub;
use crate::watches::Watches;

/// Components that are compiled at the same time. The compiler uses two threads, and the others have to go on.
const COMPILERS: usize = 1;

/// Plugins that are asked at the same time what they are: what that takes of memory is given back after each.
const DESCRIBERS: usize = 2;

/// Plugins that make the requests of a start at the same time. Each takes a connection, which is kept for a while: a hundred
/// plugins would have a hundred.
const STARTERS: usize = 4;

/// Where the components of Plugin resources come from, and who loads them.
#[derive(Clone)]
pub struct Library {
    /// Who loads them.
    pub sandbox: Sandbox,
    /// `spec.source.file` is below this directory.
    pub directory: PathBuf,
}

/// What all plugins of a host have in common.
pub struct Fleet {
    client: Client,
    options: HostOptions,
    hub: Arc<Hub>,
    watches: Watches,
    library: Option<Library>,
    looks: Looks,
    claims: Claims,
    compiling: Semaphore,
    describing: Semaphore,
    starting: Semaphore,
    roster: Arc<Roster>,
}

impl Fleet {
    /// A fleet without plugins; without a library only those can come that are loaded.
    pub fn new(
        client: Client,
        options: HostOptions,
        hub: Arc<Hub>,
        roster: Arc<Roster>,
        library: Option<Library>,
    ) -> Self {
        Self {
            watches: Watches::new(client.clone(), hub.clone()),
            looks: Looks::new(options.blocking.clone()),
            client,
            options,
            hub,
            library,
            claims: Claims::default(),
            compiling: Semaphore::new(COMPILERS),
            describing: Semaphore::new(DESCRIBERS),
            starting: Semaphore::new(STARTERS),
            roster,
        }
    }
}

/// The plugins that are there, by name, for those who look at the host; and those that are wanted, whether they run or not.
#[derive(Default)]
pub struct Roster {
    standings: Mutex<BTreeMap<Arc<str>, Arc<Standing>>>,
    expected: Mutex<Option<Arc<BTreeSet<Arc<str>>>>>,
}

/// A look at one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginLook {
    /// Its name.
    pub name: Arc<str>,
    /// The version that runs.
    pub version: Option<String>,
    /// The digest of its component, in hexadecimal digits.
    pub digest: Option<String>,
    /// The reason of its condition `Ready`, if that is true.
    pub ready: Option<&'static str>,
    /// Whether its code is mapped.
    pub is_awake: bool,
}

impl Roster {
    fn enter(&self, name: Arc<str>, standing: Arc<Standing>) {
        self.standings.lock().insert(name, standing);
    }

    fn leave(&self, name: &str) {
        self.standings.lock().remove(name);
    }

    /// These plugins are wanted, and no others.
    pub fn expect(&self, names: BTreeSet<Arc<str>>) {
        *self.expected.lock() = Some(Arc::new(names));
    }

    /// The plugins that are wanted, whether they run, start, are suspended or were stopped; none before all are known.
    pub fn expected(&self) -> Option<Arc<BTreeSet<Arc<str>>>> {
        self.expected.lock().clone()
    }

    /// Whether a plugin is wanted; none before all are known.
    pub fn expects(&self, name: &str) -> Option<bool> {
        self.expected().map(|expected| expected.contains(name))
    }

    /// Says something in the status of a plugin's resource, beside what its own life says; none takes it back.
    pub fn warn(&self, name: &str, warning: Option<Fact>) {
        if let Some(standing) = self.standings.lock().get(name)
            && standing.known().warning != warning
        {
            standing.set(|known| known.warning = warning);
        }
    }

    /// Whether there is a plugin, or none is wanted, and none is on its way to something else.
    pub fn is_settled(&self) -> bool {
        let none_is_wanted = self.expected().is_some_and(|expected| expected.is_empty());
        let roster = self.standings.lock();
        (!roster.is_empty() || none_is_wanted) && roster.values().all(|standing| standing.known().busy.is_none())
    }

    /// A look at each.
    pub fn look(&self) -> Vec<PluginLook> {
        let roster = self.standings.lock();
        let look = |(name, standing): (&Arc<str>, &Arc<Standing>)| {
            let known = standing.known();
            let ready = known.fact(Step::Ready);
            PluginLook {
                name: name.clone(),
                ready: (ready.holds == Some(true)).then_some(ready.reason),
                is_awake: known.lanes.iter().any(|lane| lane.component.is_awake()),
                version: known.version,
                digest: known.digest,
            }
        };
        roster.iter().map(look).collect()
    }
}
