//! Makes the document about each plugin's resource usage.

use super::documents::{PluginUsageDocument, UsageDocument};
use super::status::{ProcessFacts, host, objects as count};
use crate::context::HostContext;
use crate::plugins::PluginRegistry;
use crate::process::clock::rfc3339;

/// Usage of the plugins since the process started.
pub fn usage(process: &ProcessFacts, context: &HostContext, registry: &PluginRegistry) -> UsageDocument {
    let (lanes, _) = context.state.figures();
    let plugins = registry.summaries().into_iter().map(|summary| {
        let used = context.usage.get(&summary.name);
        let of_plugin = lanes.iter().filter(|figures| figures.lane.plugin == summary.name);
        let (objects, dependency_bytes) = of_plugin.fold((0, 0), |(objects, bytes), figures| {
            (objects + count(context, &figures.lane), bytes + figures.reads.1)
        });
        PluginUsageDocument {
            plugin: summary.name.to_string(),
            reconciles: used.reconciles,
            failures: used.failures,
            reconcile_seconds: used.reconcile_time.as_secs_f64(),
            call_seconds: used.call_time.as_secs_f64(),
            requests: used.requests(),
            largest_call_bytes: used.largest_memory,
            dependency_bytes: dependency_bytes as u64,
            objects: objects as u64,
            awake: summary.is_awake,
        }
    });
    UsageDocument {
        plugins: plugins.collect(),
        host: host(process, context, registry),
        at: rfc3339(context.clock.now()),
    }
}
