//! Describes a component with its configuration, checks the manifest, and makes lanes of it. Calls the guest once and
//! makes no request.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::write::FieldManagerClient;
use pilothouse_cluster::write::events::EventRecorder;
use pilothouse_cluster::write::identity::Impersonation;
use pilothouse_core::plugin::description;
use pilothouse_core::plugin::description::Exports;
use pilothouse_core::plugin::grants::Grants;
use pilothouse_core::plugin::inventory::Inventory;
use pilothouse_core::plugin::manifest;
use pilothouse_core::plugin::manifest::{BroughtCrd, CheckedManifest, Controller, ManifestError};
use pilothouse_core::rights::AdmissionExports;
use pilothouse_core::text::printable::first_few;
use pilothouse_core::{Blame, Failure, Kind, Limits, status};
use pilothouse_crds::plugin::DeletionPolicy;
use pilothouse_metrics::CallMetrics;
use pilothouse_sandbox::{LogSink, Optional, PluginComponent};
use serde_json::Value;

use crate::context::HostContext;
use crate::lanes::access::LaneAccess;
use crate::lanes::health::PluginHealth;
use crate::lanes::lane::{Lane, title_of};
use crate::lanes::primary::LaneId;
use crate::plugins::resource::desired::DesiredPlugin;
use crate::process::call_slots::CallSlots;

/// Parts of a plugin that all its versions share.
pub struct PluginIdentity {
    /// Its name, used for field manager, lanes, events and log.
    pub name: Arc<str>,
    /// Writes under its name.
    pub writer: FieldManagerClient,
    /// Writes what it contributes.
    pub contributor: FieldManagerClient,
    /// Emits events under its name.
    pub recorder: Arc<EventRecorder>,
    /// Health of the plugin.
    pub health: Arc<PluginHealth>,
    /// Metrics of its calls.
    pub call_metrics: CallMetrics,
    /// Slots for concurrent calls, over all versions.
    pub calls: Arc<CallSlots>,
}

/// A component with its description and configuration.
#[derive(Clone)]
pub struct DescribedPlugin {
    /// The component.
    pub component: PluginComponent,
    /// Version in its manifest.
    pub version: String,
    /// Name in its manifest.
    pub name: String,
    /// The CRDs that it brings.
    pub crds: Vec<BroughtCrd>,
    controllers: Vec<Controller>,
    config: String,
    /// The parts of the configuration's schema that the host does not check.
    unjudged: Vec<String>,
}

/// Reason why a component cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// The call failed.
    #[error("its describe call failed: {0}")]
    Describe(Failure),
    /// The plugin rejects its configuration.
    #[error("{0}")]
    Refused(Failure),
    /// Its manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A controller names a finalizer, but the component does not export the interface.
    #[error(
        "controller {0} names a finalizer, but the component does not export the interface finalizer; export it, or leave the name out of the manifest"
    )]
    Finalizer(String),
    /// A limit is out of its range.
    #[error(transparent)]
    Limit(#[from] pilothouse_core::plugin::limits::LimitError),
}

impl DescribeError {
    /// Reason of the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_)
            | Self::Manifest(ManifestError::NoConfiguration(_) | ManifestError::Configuration { .. }) => {
                "InvalidConfiguration"
            }
            Self::Describe(_) => "DescribeFailed",
            Self::Manifest(_) | Self::Finalizer(_) => "InvalidManifest",
            Self::Limit(_) => "InvalidSpec",
        }
    }
}

/// Describes a component. It then sleeps until it has something to reconcile: describing runs more of its code than
/// anything else, and all of that would stay mapped. Each call gets a log of its own.
pub fn describe(
    component: &PluginComponent,
    config: Option<&Value>,
    limits: &Limits,
    log: impl Fn() -> LogSink,
) -> Result<DescribedPlugin, DescribeError> {
    let described = ask(component, config, limits, log);
    component.sleep();
    described
}

fn ask(
    component: &PluginComponent,
    config: Option<&Value>,
    limits: &Limits,
    log: impl Fn() -> LogSink,
) -> Result<DescribedPlugin, DescribeError> {
    limits.check()?;
    let text = config.map(Value::to_string);
    let described = match component.describe_with_log(text.as_deref(), limits, log()) {
        Ok(described) => described,
        Err(failure) if failure.blame == Blame::User => {
            // A plugin without configuration reports its members as unknown, which is less clear.
            if let Ok(bare) = component.describe_with_log(None, limits, log())
                && let Ok(checked) = manifest::parse(&bare)
                && checked.manifest.configuration_schema.is_none()
            {
                checked.manifest.check_configuration(config)?;
            }
            return Err(DescribeError::Refused(failure));
        }
        Err(failure) => return Err(DescribeError::Describe(failure)),
    };
    let CheckedManifest { manifest, crds } = manifest::parse(&described)?;
    let unjudged = manifest.check_configuration(config)?;
    let mut controllers = manifest.controllers.iter();
    if let Some(controller) = controllers.find(|it| it.finalizer.is_some() && !component.optional().finalizer) {
        return Err(DescribeError::Finalizer(controller.name.clone()));
    }
    Ok(DescribedPlugin {
        component: component.clone(),
        version: manifest.version,
        name: manifest.name,
        crds,
        controllers: manifest.controllers,
        config: text.unwrap_or_else(|| "{}".to_owned()),
        unjudged,
    })
}

impl DescribedPlugin {
    /// Returns `true` if its primaries get finalizers.
    pub fn has_finalizers(&self) -> bool {
        self.controllers.iter().any(|controller| controller.finalizer.is_some())
    }

    /// Fields that the host writes and the plugin's CRDs do not accept, by kind.
    pub fn gaps(&self) -> impl Iterator<Item = (&Kind, String)> {
        let gaps = |controller| self.gaps_of(controller);
        self.controllers
            .iter()
            .filter_map(move |controller| Some((&controller.kind, gaps(controller)?)))
    }

    /// Other inconsistencies in its description, for people.
    pub fn findings(&self) -> Vec<String> {
        let Optional {
            finalizer,
            defaulter,
            validator,
            converter,
        } = self.component.optional();
        let exports = Exports {
            finalizer,
            defaulter,
            validator,
            converter,
        };
        let findings = description::check_parts(&self.controllers, &self.crds, exports);
        let findings = findings.into_iter().map(|finding| finding.message);
        let unjudged = (!self.unjudged.is_empty()).then(|| {
            format!(
                "the host does not check all of the configuration, because it does not follow this in configurationSchema: {}; \
                 the plugin has to check that itself",
                first_few(self.unjudged.iter().map(String::as_str))
            )
        });
        findings.chain(unjudged).collect()
    }

    fn gaps_of(&self, controller: &Controller) -> Option<String> {
        status::gaps(self.crd_of(controller)?, &controller.kind.version)
    }

    fn crd_of(&self, controller: &Controller) -> Option<&BroughtCrd> {
        self.crd_of_kind(&controller.kind)
    }

    fn crd_of_kind(&self, kind: &Kind) -> Option<&BroughtCrd> {
        let mut crds = self.crds.iter();
        crds.find(|crd| crd.group == kind.group && crd.kind == kind.kind)
    }

    /// Returns how a kind will be served once its CRD is installed, if the plugin brings it.
    pub fn serves(&self, kind: &Kind) -> Option<ServedKind> {
        ServedKind::of_crd(self.crd_of_kind(kind)?, kind)
    }

    /// CRDs that it has to itself: names, and the kinds for people.
    pub fn exclusive(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        let crds = self.crds.iter();
        crds.map(|crd| (crd.name.as_str().into(), crd.kind.as_str().into()))
            .collect()
    }

    /// The lanes of its controllers, with new numbers, and of controllers that earlier versions had, according to the
    /// inventory.
    pub fn lanes(
        &self,
        identity: &PluginIdentity,
        wanted: &DesiredPlugin,
        acting: Option<&Impersonation>,
        known: &Inventory,
        host: &HostContext,
    ) -> Vec<Arc<Lane>> {
        let converted: Arc<[String]> = self
            .crds
            .iter()
            .filter(|crd| crd.has_several_versions())
            .map(|crd| crd.name.clone())
            .collect();
        let Optional {
            defaulter, validator, ..
        } = self.component.optional();
        let exports = AdmissionExports { defaulter, validator };
        let lane = |controller: &Controller| {
            let title: Arc<str> = title_of(&identity.name, &controller.name).into();
            let writer = |writer: &FieldManagerClient| {
                let writer = writer.clone().acting_as(acting.cloned());
                writer.working_for(title.clone())
            };
            let brings_crd = self.crd_of(controller).is_some();
            let asked = exports.about(controller);
            let admission = controller.effective_admission(brings_crd);
            let grants = Grants::confined(controller, &wanted.confinement);
            Arc::new(Lane {
                id: host.state.reserve_lane(),
                plugin: identity.name.clone(),
                controller: controller.name.clone(),
                former: known.former(&grants).into(),
                is_former: false,
                is_optional: controller.optional,
                grants,
                filter: controller.filter.clone(),
                finalizer: controller.finalizer.clone(),
                former_finalizers: known
                    .former_finalizers(&controller.kind, controller.finalizer.as_deref())
                    .into(),
                mode: wanted.mode,
                former_managers: wanted.former_managers.clone(),
                namespaces: wanted.namespaces.clone(),
                prunes_unselected: wanted.deletion_policy == DeletionPolicy::Delete,
                asked,
                admission: admission.filter(|_| !asked.is_empty()),
                converted: converted.clone(),
                brings_crd,
                failure_reason: controller.failure_reason.as_deref().map(Arc::from),
                asks_for_schema: self.gaps_of(controller).is_some(),
                component: self.component.clone(),
                config: self.config.clone(),
                limits: wanted.limits.clone(),
                concurrency: wanted.concurrency,
                writer: writer(&identity.writer),
                contributor: writer(&identity.contributor),
                recorder: identity.recorder.clone(),
                health: identity.health.clone(),
                calls: identity.calls.clone(),
                served: host.kinds.served(),
                access: Arc::new(match acting {
                    Some(_) => LaneAccess::unreviewed(),
                    None => LaneAccess::Unlimited,
                }),
                cached: host.cached.clone(),
            })
        };
        let mut lanes: Vec<_> = self.controllers.iter().map(lane).collect();
        lanes.extend(former_lanes(&lanes, known, host));
        lanes
    }
}

/// The lanes of controllers that the plugin no longer has, as far as the inventory lists something of theirs.
pub fn former_lanes(lanes: &[Arc<Lane>], known: &Inventory, host: &HostContext) -> Vec<Arc<Lane>> {
    let own = lanes.iter().filter(|lane| !lane.is_former);
    let Some(template) = own.clone().next() else {
        return Vec::new();
    };
    let left = known.without_controller(own.map(|lane| &lane.grants));
    let lane = |(primary, finalizer): (Kind, Option<String>)| {
        let id = host.state.reserve_lane();
        Arc::new(template.of_former_controller(id, &primary, finalizer, known))
    };
    left.into_iter().map(lane).collect()
}

/// A copy of the lane under the number of another.
pub fn in_place_of(lane: &Lane, id: LaneId) -> Arc<Lane> {
    Arc::new(Lane { id, ..lane.clone() })
}
