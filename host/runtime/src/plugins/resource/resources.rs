//! Follows the Plugin resources of the cluster: each selected one gets a task that runs its plugin, and one that writes
//! its status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::resources::host_resources::{HostResource, HostResourceApi, HostResources};
use pilothouse_cluster::resources::install::{CrdPolicy, install_crd};
use pilothouse_cluster::write::permissions::user;
use pilothouse_core::Kind;
use pilothouse_core::ownership::takeover::shared_managers;
use pilothouse_core::plugin::manifest::BroughtCrd;
use pilothouse_core::rights::installed::{INSTALLED_FOR, InstalledHost, OwnHost};
use pilothouse_core::status::annotations::is_request;
use pilothouse_core::text::printable::shorten;
use pilothouse_crds::plugin::{GROUP, RECONCILE_FAILING, VERSION, plugin_definition};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::desired::PluginRequest;
use super::state::PluginState;
use super::status_writer::PluginStatusWriter;
use crate::lanes::health::PluginHealth;
use crate::plugins::PluginContext;
use crate::plugins::plugin::{PluginResourceHandle, PluginTask};
use crate::process::log_limit::ChosenLevel;

/// Resource name (plural).
pub(super) const PLURAL: &str = "plugins";

/// Annotation of a Plugin: minimum level of its guests' log lines.
const LOG_LEVEL: &str = "pilothouse.dev/log-level";

/// Subject of the warning about a former manager that other clients use, too.
const FORMER_MANAGERS: &str = "formerManagers";

/// The longest part of a wrong value that a warning quotes, in bytes.
const LONGEST_LEVEL: usize = 64;

/// Time between attempts to install the CRD.
const CRD_WAIT: Duration = Duration::from_secs(5);

/// A plugin defined by a resource.
struct FollowedPlugin {
    requests: watch::Sender<Option<Arc<PluginRequest>>>,
    live: watch::Sender<Arc<HostResource>>,
    plugin_state: Arc<PluginState>,
    health: Arc<PluginHealth>,
    status_writer: AbortHandle,
}

/// Follows the Plugin resources for ever.
pub async fn follow(context: Arc<PluginContext>) {
    if context.options.install_crds.has_own() {
        install(&context).await;
    }
    let kind = HostResourceApi::new(context.client.clone(), Kind::new(GROUP, VERSION, "Plugin"), PLURAL);
    let (sender, mut known) = watch::channel::<HostResources>(None);
    let follow = kind.follow(sender, log_watch_problem());
    tokio::pin!(follow);
    let mut lives: JoinSet<Arc<str>> = JoinSet::new();
    let mut tellers: JoinSet<()> = JoinSet::new();
    let mut followed: BTreeMap<Arc<str>, FollowedPlugin> = BTreeMap::new();
    let mut own = OwnHost {
        namespace: context.options.namespace.clone(),
        account: None,
    };
    let mut left_to_others = BTreeMap::new();
    loop {
        tokio::select! {
            () = &mut follow => unreachable!("a kind is followed for ever"),
            changed = known.changed() => if changed.is_err() { return },
            Some(ended) = lives.join_next(), if !lives.is_empty() => match ended {
                // Its resource may have been created again meanwhile.
                Ok(name) => if let Some(ended) = followed.remove(&name) {
                    ended.status_writer.abort();
                },
                Err(error) => tracing::error!(%error, "the task of a plugin ended; restart the host"),
            },
        }
        let Some(resources) = known.borrow_and_update().clone() else {
            continue;
        };
        let are_recorded = resources
            .values()
            .any(|resource| resource.annotations[INSTALLED_FOR].is_string());
        if are_recorded && own.account.is_none() {
            own.account = user(&context.client).await;
        }
        let (resources, elsewhere) = divided(&context, &own, &resources);
        context.registry.expect(resources.keys().cloned().collect());
        // Before a plugin is removed; otherwise no plugin would seem to apply its objects for a moment, and another one
        // would take them over.
        context.host.plugins.add_elsewhere(&elsewhere.keys().cloned().collect());
        for (name, plugin) in &followed {
            if !resources.contains_key(name) {
                plugin.requests.send_if_modified(|request| request.take().is_some());
            }
        }
        for (name, resource) in &resources {
            let request = PluginRequest::from_resource(resource, &context.options.watch_namespaces);
            if let Some(plugin) = followed.get(name) {
                plugin.update(&context, name, resource, request);
                continue;
            }
            let live = watch::Sender::new(resource.clone());
            let own = PluginResourceHandle {
                kind: kind.clone(),
                live: live.subscribe(),
            };
            let plugin_task = PluginTask::new(context.clone(), name.clone(), Some(own));
            let health = plugin_task.identity.health.clone();
            choose_log_level(&health, resource);
            warn_of_shared_managers(&health, resource);
            let status_writer = PluginStatusWriter {
                kind: kind.clone(),
                live: live.subscribe(),
                plugin_state: plugin_task.plugin_state.clone(),
                health: health.clone(),
                host: context.host.clone(),
            };
            let plugin_state = plugin_task.plugin_state.clone();
            let requests = watch::Sender::new(Some(Arc::new(request)));
            let (name, receiver) = (name.clone(), requests.subscribe());
            let plugin = FollowedPlugin {
                requests,
                live,
                plugin_state,
                health,
                status_writer: tellers.spawn(status_writer.run()),
            };
            followed.insert(name.clone(), plugin);
            lives.spawn(async move {
                plugin_task.run(receiver).await;
                name
            });
        }
        leave_to_others(&context, elsewhere, &mut left_to_others);
        context.host.plugins.set_complete();
        context.host.unstarted.set_known();
        context.registry.set_entered(true);
        while tellers.try_join_next().is_some() {}
    }
}

/// Sets the plugin's log level from the annotation of its resource. The level is not in the spec because it does not
/// change what the plugin does: no new generation, nothing to reconcile.
fn choose_log_level(health: &PluginHealth, resource: &HostResource) {
    let asked = resource.annotations[LOG_LEVEL].as_str();
    let level = asked.map(str::parse::<ChosenLevel>);
    health.log_limiter.choose(level.and_then(Result::ok));
    match (level, asked) {
        (Some(Err(())), Some(asked)) => {
            let asked = shorten(asked.to_owned(), LONGEST_LEVEL);
            let warning = format!(
                "the annotation {LOG_LEVEL} is {asked:?}, so the host's log filter decides; give off, error, warn, info, debug or trace"
            );
            health.set_warning(LOG_LEVEL, &warning);
        }
        _ => {
            health.clear(LOG_LEVEL);
        }
    }
}

impl FollowedPlugin {
    /// Passes a change of the resource on.
    fn update(&self, context: &PluginContext, name: &str, resource: &Arc<HostResource>, request: PluginRequest) {
        choose_log_level(&self.health, resource);
        warn_of_shared_managers(&self.health, resource);
        let before = self.live.send_replace(resource.clone());
        if is_retry_asked(&before, resource) {
            self.retry_failing(context, name);
        }
        self.requests.send_if_modified(|before| {
            // A plugin that is ending must end before it starts anew.
            let differs = before.as_ref().is_some_and(|before| !before.is_same(&request));
            if differs {
                *before = Some(Arc::new(request));
            }
            differs
        });
    }

    /// Reconciles the failing objects now.
    fn retry_failing(&self, context: &PluginContext, name: &str) {
        tracing::info!(
            plugin = name,
            "reconciling the objects that fail, as the annotation {RECONCILE_FAILING} asks"
        );
        for lane in &self.plugin_state.known().lanes {
            context.host.state.push_failing(lane);
        }
    }
}

/// Returns `true` if somebody has asked for another reconcile of the plugin's failing objects.
fn is_retry_asked(before: &HostResource, now: &HostResource) -> bool {
    let [before, now] = [before, now].map(|resource| resource.annotations[RECONCILE_FAILING].as_str());
    is_request(before, now)
}

/// Warns of former field managers that are not used by the earlier operator alone.
fn warn_of_shared_managers(health: &PluginHealth, resource: &HostResource) {
    let former = resource.spec["formerManagers"].as_array().into_iter().flatten();
    let former: Vec<&str> = former.filter_map(Value::as_str).collect();
    match shared_managers(&former) {
        Some(warning) => {
            if health.warn(FORMER_MANAGERS, &warning) {
                tracing::warn!(plugin = &*resource.name, "{warning}");
            }
        }
        None => {
            health.clear(FORMER_MANAGERS);
        }
    }
}

/// Plugin resources by name.
type Resources = BTreeMap<Arc<str>, Arc<HostResource>>;

/// Divides the Plugins into those that this host runs, and those of others, with the reasons.
fn divided(context: &PluginContext, own: &OwnHost, resources: &Resources) -> (Resources, BTreeMap<Arc<str>, String>) {
    let (mut here, mut elsewhere) = (BTreeMap::new(), BTreeMap::new());
    for (name, resource) in resources {
        if let Some(reason) = run_elsewhere(context, own, resource) {
            elsewhere.insert(name.clone(), reason);
        } else {
            here.insert(name.clone(), resource.clone());
        }
    }
    (here, elsewhere)
}

/// Returns why another host of the cluster runs a Plugin, and not this one; `None`: this host runs it.
fn run_elsewhere(context: &PluginContext, own: &OwnHost, resource: &HostResource) -> Option<String> {
    let labels = &resource.labels;
    let selector = &context.options.plugin_selector;
    if !selector.matches(|key| labels.get(key).map(String::as_str)) {
        return Some("--plugin-selector does not match its labels".to_owned());
    }
    let record = resource.annotations[INSTALLED_FOR].as_str()?;
    // An annotation that cannot be read names no other host.
    let installed = InstalledHost::parse(record).ok()?;
    own.is_another(&installed).then(|| {
        let InstalledHost { namespace, account, .. } = &installed;
        let host = account.as_ref().map_or_else(
            || format!("the host in namespace {namespace}"),
            |account| format!("the host with the ServiceAccount {namespace}/{account}"),
        );
        format!(
            "it is installed for {host}, as its annotation {INSTALLED_FOR} says; to have this host run it, install it for this \
             host with `pilothouse upgrade`, --host-namespace and --host-account, or remove the annotation"
        )
    })
}

/// Records the Plugins that other hosts run, and logs each once.
fn leave_to_others(
    context: &PluginContext,
    elsewhere: BTreeMap<Arc<str>, String>,
    said: &mut BTreeMap<Arc<str>, String>,
) {
    if elsewhere == *said {
        return;
    }
    for name in &context.host.plugins.set_elsewhere(elsewhere.keys().cloned().collect()) {
        context.host.state.competing_plugin_left(name);
    }
    for (plugin, reason) in &elsewhere {
        if said.get(plugin) != Some(reason) {
            tracing::info!(plugin = &**plugin, reason, "another host runs this Plugin");
        }
    }
    *said = elsewhere;
}

/// Installs the CRD of Plugin itself.
async fn install(context: &PluginContext) {
    let crd = BroughtCrd {
        name: format!("{PLURAL}.{GROUP}"),
        group: GROUP.to_owned(),
        kind: "Plugin".to_owned(),
        definition: plugin_definition(),
    };
    let mut said = None;
    loop {
        match install_crd(&context.client, &crd, CrdPolicy::Leave, None).await {
            Ok(wrote) => {
                if wrote {
                    tracing::info!(crd = crd.name, "installed the CRD");
                }
                return;
            }
            Err(error) => {
                let problem = chain(&error);
                // Replicas that do not lead wait for the leader's CRD.
                if context.host.leadership.leads() && said.as_ref() != Some(&problem) {
                    tracing::warn!("waiting: {problem}");
                    said = Some(problem);
                }
            }
        }
        tokio::time::sleep(CRD_WAIT).await;
    }
}

/// Logs each problem with the Plugin resources once, and its end.
fn log_watch_problem() -> impl FnMut(Option<&str>) {
    let mut said: Option<String> = None;
    move |trouble| match trouble {
        Some(trouble) if said.as_deref() != Some(trouble) => {
            tracing::warn!(trouble, "cannot list and watch the Plugin resources; retrying");
            said = Some(trouble.to_owned());
        }
        None if said.take().is_some() => tracing::info!("the Plugin resources are seen"),
        _ => {}
    }
}
