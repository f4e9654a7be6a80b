//! Converts the contract's JSON to an author's types and back, for `describe` and `reconcile`; `optional` has the rest.

pub(crate) mod optional;

use crate::call::{Call, read_config};
use crate::cluster::Cluster;
use crate::manifest::Manifest;
use crate::object::Kind;
use crate::optional::{ExportedPlugin, Interfaces};
use crate::outcome::{Failure, Outcome};
use crate::plugin::{Controllers, Plugin};
use crate::raw::types;

/// Returns the manifest of a plugin under a configuration, or an error if the configuration can't be used.
pub(crate) fn describe<P: ExportedPlugin>(config: Option<&str>) -> Result<String, String> {
    let manifest = manifest::<P>(config)?;
    let json = serde_json::to_string(&manifest);
    // The instance ends with the call, so code that drops the manifest would only enlarge the component.
    std::mem::forget(manifest);
    json.map_err(|error| format!("the manifest cannot be written as JSON: {error}"))
}

/// Returns the manifest before it is serialized.
pub(crate) fn manifest<P: ExportedPlugin>(config: Option<&str>) -> Result<Manifest, String> {
    let config = read_config::<P::Config>(config.unwrap_or_default())?;
    P::check(&config)?;
    let mut manifest = P::manifest(&config);
    check_kinds::<P>(&manifest)?;
    declare_interfaces(&mut manifest, P::interfaces())?;
    Ok(manifest)
}

/// Checks that the plugin's controllers are those that the manifest has or the configuration switches off.
fn check_kinds<P: Plugin>(manifest: &Manifest) -> Result<(), String> {
    let mut implemented = Vec::new();
    P::Controllers::kinds(&mut implemented);
    let declared = || {
        let enabled = manifest.controllers.iter().map(|controller| controller.kind);
        enabled.chain(manifest.switched_off.iter().copied())
    };
    let missing = |kind: Kind, has: &str, lacks: &str| {
        Err(format!(
            "{kind} is among the plugin's {has} and not among its {lacks}; its author has to add it"
        ))
    };
    if let Some(kind) = declared().find(|kind| !implemented.contains(kind)) {
        return missing(kind, "manifest's controllers", "Controllers");
    }
    if let Some(kind) = implemented
        .iter()
        .find(|kind| declared().all(|declared| declared != **kind))
    {
        return missing(*kind, "Controllers", "manifest's controllers");
    }
    Ok(())
}

/// Declares in the manifest the kinds with defaulter and validator, and refuses a finalizer without implementation.
fn declare_interfaces(manifest: &mut Manifest, interfaces: Interfaces) -> Result<(), String> {
    let Interfaces {
        finalizer,
        defaulter,
        validator,
        converter: _,
    } = interfaces;
    for controller in &mut manifest.controllers {
        let kind = controller.kind;
        let is_for = |kinds: &Option<Vec<Kind>>| kinds.as_ref().map(|kinds| kinds.contains(&kind));
        controller.defaulter = is_for(&defaulter);
        controller.validator = is_for(&validator);
        if controller.finalizer.is_some() && is_for(&finalizer) == Some(false) {
            return Err(format!(
                "the controller of {kind} names a finalizer, and none of the types behind `finalizer:` in export! is for that \
                 kind; its author has to add one"
            ));
        }
    }
    Ok(())
}

/// Calls the plugin's controller for the object's kind.
pub(crate) fn reconcile<P: Plugin>(request: &types::Request, cluster: &Cluster) -> Result<types::Outcome, Failure> {
    let call = Call::read(request)?;
    let config = read_config::<P::Config>(&request.configuration)
        .map_err(|error| Failure::Permanent(format!("configuration: {error}")))?;
    match P::Controllers::reconcile(&call, config, cluster) {
        Ok(answer) => answer.and_then(Outcome::lower),
        Err(_) => Err(Failure::Permanent(format!(
            "{call} is of a kind that this plugin has no controller for"
        ))),
    }
}
