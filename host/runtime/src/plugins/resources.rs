//! Owns following the Plugin resources of the cluster: each has a life, and somebody who tells how it fares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::install::install_crd;
use pilothouse_cluster::own::{Known, OwnKind, OwnResource};
use pilothouse_core::Kind;
use pilothouse_core::manifest::BroughtCrd;
use pilothouse_crds::plugin::{GROUP, VERSION, plugin_definition};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::Fleet;
use super::finish::Own;
use super::life::Life;
use super::tell::Teller;
use super::wanted::Order;

/// The resource's name.
const PLURAL: &str = "plugins";

/// How long to wait before the CRD is tried again.
const CRD_WAIT: Duration = Duration::from_secs(5);

/// One plugin of which a resource tells.
struct Followed {
    orders: watch::Sender<Option<Arc<Order>>>,
    live: watch::Sender<Arc<OwnResource>>,
    teller: AbortHandle,
}

/// Follows the Plugin resources for ever.
pub async fn follow(fleet: Arc<Fleet>) {
    if fleet.options.install_crds {
        install(&fleet).await;
    }
    let kind = OwnKind::new(fleet.client.clone(), Kind::new(GROUP, VERSION, "Plugin"), PLURAL);
    let (sender, mut known) = watch::channel::<Known>(None);
    let follow = kind.follow(sender, say_trouble());
    tokio::pin!(follow);
    let mut lives: JoinSet<Arc<str>> = JoinSet::new();
    let mut tellers: JoinSet<()> = JoinSet::new();
    let mut followed: BTreeMap<Arc<str>, Followed> = BTreeMap::new();
    loop {
        tokio::select! {
            () = &mut follow => unreachable!("a kind is followed for ever"),
            changed = known.changed() => if changed.is_err() { return },
            Some(ended) = lives.join_next(), if !lives.is_empty() => match ended {
                // Its resource may have come back meanwhile.
                Ok(name) => if let Some(ended) = followed.remove(&name) {
                    ended.teller.abort();
                },
                Err(error) => tracing::error!(%error, "the life of a plugin ended; restart the host"),
            },
        }
        let Some(resources) = known.borrow_and_update().clone() else {
            continue;
        };
        fleet.roster.expect(resources.keys().cloned().collect());
        for (name, plugin) in &followed {
            if !resources.contains_key(name) {
                plugin.orders.send_if_modified(|order| order.take().is_some());
            }
        }
        for (name, resource) in resources.iter() {
            let order = Order::from_resource(resource);
            if let Some(plugin) = followed.get(name) {
                plugin.live.send_replace(resource.clone());
                plugin.orders.send_if_modified(|before| {
                    // One that is on its way out comes to its end before it begins anew.
                    let differs = before.as_ref().is_some_and(|before| !before.is_same(&order));
                    if differs {
                        *before = Some(Arc::new(order));
                    }
                    differs
                });
                continue;
            }
            let live = watch::Sender::new(resource.clone());
            let own = Own {
                kind: kind.clone(),
                live: live.subscribe(),
            };
            let life = Life::new(fleet.clone(), name.clone(), Some(own));
            let teller = Teller {
                kind: kind.clone(),
                live: live.subscribe(),
                standing: life.standing.clone(),
                account: life.identity.account.clone(),
                hub: fleet.hub.clone(),
            };
            let orders = watch::Sender::new(Some(Arc::new(order)));
            let (name, receiver) = (name.clone(), orders.subscribe());
            let plugin = Followed {
                orders,
                live,
                teller: tellers.spawn(teller.run()),
            };
            followed.insert(name.clone(), plugin);
            lives.spawn(async move {
                life.run(receiver).await;
                name
            });
        }
        fleet.hub.plugins.are_complete();
        while tellers.try_join_next().is_some() {}
    }
}

/// Brings the CRD of Plugin itself.
async fn install(fleet: &Fleet) {
    let crd = BroughtCrd {
        name: format!("{PLURAL}.{GROUP}"),
        group: GROUP.to_owned(),
        kind: "Plugin".to_owned(),
        definition: plugin_definition(),
    };
    let mut said = None;
    loop {
        match install_crd(&fleet.client, &crd).await {
            Ok(wrote) => {
                if wrote {
                    tracing::info!(crd = crd.name, "installed the CRD");
                }
                return;
            }
            Err(error) => {
                let problem = chain(&error);
                if said.as_ref() != Some(&problem) {
                    tracing::warn!("waiting: {problem}");
                    said = Some(problem);
                }
            }
        }
        tokio::time::sleep(CRD_WAIT).await;
    }
}

/// Says each trouble with the Plugin resources once, and when it is over.
fn say_trouble() -> impl FnMut(Option<&str>) {
    let mut said: Option<String> = None;
    move |trouble| match trouble {
        Some(trouble) if said.as_deref() != Some(trouble) => {
            tracing::warn!(trouble, "cannot see the Plugin resources; it is tried again");
            said = Some(trouble.to_owned());
        }
        None if said.take().is_some() => tracing::info!("the Plugin resources are seen"),
        _ => {}
    }
}
