//! Runs the plugins of the command line: they exist from the start, in the order given, and stay.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_core::plugin::manifest::is_label;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::rights::Confinement;
use pilothouse_crds::plugin::DeletionPolicy;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::PluginContext;
use super::plugin::PluginTask;
use crate::lanes::health::{PluginHealth, without_object};
use crate::lanes::lane::StaticPlugin;
use crate::plugins::resource::desired::{ComponentSource, DesiredPlugin, PluginRequest, confined};
use crate::plugins::version::prepare::{DescribeError, describe};

/// Reason why a plugin of the command line cannot be used.
#[derive(Debug, thiserror::Error)]
enum StaticPluginError {
    #[error(transparent)]
    Describe(#[from] DescribeError),
    #[error("it is called {0}, as another plugin is; give it a name with --plugin NAME=FILE")]
    NameTaken(String),
    #[error("the name {0:?} cannot be used; it must be a DNS label")]
    Name(String),
}

/// Starts every plugin that can be used; the others are logged. The returned set has one task per plugin, which ends if
/// that can never be used.
pub fn start(context: &Arc<PluginContext>, specs: Vec<StaticPlugin>) -> JoinSet<()> {
    let mut lives = JoinSet::new();
    let mut names: Vec<String> = Vec::with_capacity(specs.len());
    let mut are_all_known = true;
    for (index, spec) in specs.into_iter().enumerate() {
        let component = spec.component.name().to_owned();
        match name_of(&spec, &names) {
            Ok(name) => {
                let request = request(index, spec, &context.options.watch_namespaces);
                let plugin_task = PluginTask::new(context.clone(), name.as_str().into(), None);
                names.push(name);
                lives.spawn(async move {
                    // The sender is kept: the request never changes.
                    let (_sender, requests) = watch::channel(Some(Arc::new(request)));
                    plugin_task.run(requests).await;
                });
            }
            Err(error) => {
                are_all_known = false;
                tracing::error!(component, %error, "the plugin cannot be used");
            }
        }
    }
    context.host.unstarted.set_known();
    context.registry.set_entered(false);
    // The name of a plugin that cannot be described is unknown, so none can be declared removed.
    if are_all_known {
        context
            .registry
            .expect(names.iter().map(|name| name.as_str().into()).collect());
    }
    lives
}

fn name_of(spec: &StaticPlugin, others: &[String]) -> Result<String, StaticPluginError> {
    let name = if let Some(name) = &spec.name {
        name.clone()
    } else {
        // Until its name is known, its log lines carry its digest.
        let (digest, health): (Arc<str>, _) = (spec.component.digest().into(), Arc::<PluginHealth>::default());
        let log = || without_object(digest.clone(), health.clone());
        describe(&spec.component, spec.config.as_ref(), &spec.limits, log)?.name
    };
    if !is_label(&name) {
        return Err(StaticPluginError::Name(name));
    }
    if others.contains(&name) {
        return Err(StaticPluginError::NameTaken(name));
    }
    Ok(name)
}

fn request(index: usize, spec: StaticPlugin, seen: &BTreeSet<String>) -> PluginRequest {
    let confinement = confined(Confinement::default(), seen).expect("what is not confined may be all that is seen");
    let StaticPlugin {
        name: _,
        component,
        config,
        limits,
        concurrency,
        mode,
        former_managers,
    } = spec;
    PluginRequest {
        resource: None,
        wanted: Ok(DesiredPlugin {
            // Plugins given first are the oldest.
            age: (format!("{index:010}").into(), "".into()),
            source: ComponentSource::Loaded(component),
            config,
            limits,
            concurrency,
            namespaces: confinement.namespaces().iter().cloned().collect(),
            confinement: Arc::new(confinement),
            service_account: None,
            // The imports were granted when the component was loaded.
            wasi: Wasi::Inert,
            mode,
            is_suspended: false,
            former_managers,
            deletion_policy: DeletionPolicy::Orphan,
        }),
    }
}
