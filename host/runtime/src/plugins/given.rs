//! Owns plugins that the command line gives: they are there from the start, in the order in which they are given, and for
//! good.

use std::sync::Arc;

use pilothouse_core::manifest::is_label;
use pilothouse_crds::plugin::DeletionPolicy;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Fleet;
use super::account::Account;
use super::life::Life;
use super::prepare::{DescribeError, describe};
use super::talk::without_object;
use super::wanted::{Order, Source, Wanted};
use crate::lane::PluginSpec;

/// Why a plugin of the command line cannot be used.
#[derive(Debug, thiserror::Error)]
enum GivenError {
    #[error(transparent)]
    Describe(#[from] DescribeError),
    #[error("it is called {0}, as another plugin is; give it a name with --plugin NAME=FILE")]
    NameTaken(String),
    #[error("the name {0:?} cannot be used; it must be a DNS label")]
    Name(String),
}

/// Starts every plugin that can be used; the others are named in the log. What is returned ends for each plugin that
/// turns out to be of no use.
pub fn start(fleet: &Arc<Fleet>, specs: Vec<PluginSpec>) -> JoinSet<()> {
    let mut lives = JoinSet::new();
    let mut names: Vec<String> = Vec::with_capacity(specs.len());
    let mut are_all_known = true;
    for (index, spec) in specs.into_iter().enumerate() {
        let component = spec.component.name().to_owned();
        match name_of(&spec, &names) {
            Ok(name) => {
                let order = order(index, spec);
                let life = Life::new(fleet.clone(), name.as_str().into(), None);
                names.push(name);
                lives.spawn(async move {
                    // The sender stays: nobody will ever want something else.
                    let (_sender, orders) = watch::channel(Some(Arc::new(order)));
                    life.run(orders).await;
                });
            }
            Err(error) => {
                are_all_known = false;
                tracing::error!(component, %error, "the plugin cannot be used");
            }
        }
    }
    // What a plugin is called that cannot even be asked is not known, so none can be told to be gone.
    if are_all_known {
        fleet
            .roster
            .expect(names.iter().map(|name| name.as_str().into()).collect());
    }
    lives
}

fn name_of(spec: &PluginSpec, others: &[String]) -> Result<String, GivenError> {
    let name = if let Some(name) = &spec.name {
        name.clone()
    } else {
        // Until it has said its name, its log lines carry its digest.
        let (digest, account): (Arc<str>, _) = (spec.component.digest().into(), Arc::<Account>::default());
        let log = || without_object(digest.clone(), account.clone());
        describe(&spec.component, spec.config.as_ref(), &spec.limits, log)?.name
    };
    if !is_label(&name) {
        return Err(GivenError::Name(name));
    }
    if others.contains(&name) {
        return Err(GivenError::NameTaken(name));
    }
    Ok(name)
}

fn order(index: usize, spec: PluginSpec) -> Order {
    let PluginSpec {
        name: _,
        component,
        config,
        limits,
        concurrency,
        mode,
        former_managers,
    } = spec;
    Order {
        resource: None,
        wanted: Ok(Wanted {
            // Those that are given first are the oldest.
            age: (format!("{index:010}").into(), "".into()),
            source: Source::Loaded(component),
            config,
            limits,
            concurrency,
            namespaces: Vec::new(),
            mode,
            is_suspended: false,
            former_managers,
            deletion_policy: DeletionPolicy::Orphan,
        }),
    }
}
