//! Renders the webhook configurations of a plugin without a cluster, for an installer or a GitOps repository. The CA
//! bundles are not known then; the host fills them in.

use serde_json::Value;

use super::configuration::{Hook, WebhookContext, conversion, mutating, validating};
use crate::plugin::manifest::{CheckedManifest, Controller};
use crate::rights::AdmissionExports;

/// The optional interfaces that a plugin exports.
#[derive(Clone, Copy, Debug)]
pub struct WebhookInterfaces {
    /// Set if the plugin fills in defaults.
    pub defaulter: bool,
    /// Set if the plugin validates.
    pub validator: bool,
    /// Set if the plugin converts between versions.
    pub converter: bool,
}

/// The reason why nothing can be rendered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The plugin does not bring the CRD of the kind, so the name of its resource is unknown.
    #[error(
        "controller {controller} judges {kind}, which the plugin does not bring: only an API server knows the plural of that; let the host make the configurations"
    )]
    Foreign {
        /// The controller that validates or defaults the kind.
        controller: String,
        /// The kind.
        kind: String,
    },
}

/// The configurations, and the complete CRDs whose objects the plugin converts.
pub fn rendered(
    common: &WebhookContext<'_>,
    exports: WebhookInterfaces,
    checked: &CheckedManifest,
) -> Result<Vec<Value>, RenderError> {
    let WebhookInterfaces {
        defaulter,
        validator,
        converter,
    } = exports;
    let exports = AdmissionExports { defaulter, validator };
    let hooks = |is_asked: fn(AdmissionExports) -> bool| {
        let controllers = checked.manifest.controllers.iter();
        let asked = controllers.filter(|controller| is_asked(exports.about(controller)));
        let hooks = asked.filter_map(|controller| hook(controller, checked).transpose());
        hooks.collect::<Result<Vec<_>, _>>()
    };
    let (defaulted, validated) = (hooks(|asked| asked.defaulter)?, hooks(|asked| asked.validator)?);
    let mut documents = Vec::new();
    if !defaulted.is_empty() {
        documents.push(mutating(common, &defaulted));
    }
    if !validated.is_empty() {
        documents.push(validating(common, &validated));
    }
    let converted = checked
        .crds
        .iter()
        .filter(|crd| converter && crd.has_several_versions());
    documents.extend(converted.map(|crd| {
        let mut definition = crd.definition.clone();
        definition["spec"]["conversion"] = conversion(common, &crd.name)["spec"]["conversion"].take();
        definition
    }));
    Ok(documents)
}

fn hook(controller: &Controller, checked: &CheckedManifest) -> Result<Option<Hook>, RenderError> {
    let kind = &controller.kind;
    let Some(admission) = controller.effective_admission(checked.brings(kind)) else {
        return Ok(None);
    };
    let brought = checked
        .crds
        .iter()
        .find(|crd| crd.group == kind.group && crd.kind == kind.kind);
    let plural = brought.and_then(|crd| crd.definition["spec"]["names"]["plural"].as_str());
    let foreign = || RenderError::Foreign {
        controller: controller.name.clone(),
        kind: kind.to_string(),
    };
    Ok(Some(Hook {
        controller: controller.name.clone(),
        kind: kind.clone(),
        plural: plural.ok_or_else(foreign)?.to_owned(),
        filter: controller.filter.clone(),
        namespaces: Vec::new(),
        admission,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::configuration::Endpoint;
    use crate::plugin::manifest;

    const ALL: WebhookInterfaces = WebhookInterfaces {
        defaulter: true,
        validator: true,
        converter: true,
    };

    fn documents(controller: &Value, exports: WebhookInterfaces) -> Result<Vec<Value>, RenderError> {
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "oxen.x.dev"},
            "spec": {"group": "x.dev", "scope": "Namespaced", "names": {"kind": "Ox", "plural": "oxen"}, "versions": [version("v1", true), version("v2", false)]},
        });
        let manifest =
            json!({"name": "farm", "version": "1.0.0", "controllers": [controller], "crds": [crd.to_string()]});
        let checked = manifest::parse(&manifest.to_string()).unwrap();
        let endpoint = Endpoint::Url("https://host".to_owned());
        let common = WebhookContext {
            plugin: "farm",
            endpoint: &endpoint,
            bundle: "",
            own_namespace: "harbour",
            host: "harbour.webhooks",
        };
        rendered(&common, exports, &checked)
    }

    fn ox() -> Value {
        json!({"name": "oxen", "kind": {"group": "x.dev", "version": "v1", "kind": "Ox"}, "fields": [".spec"], "touches": []})
    }

    #[test]
    fn a_plugin_is_asked_for_what_it_exports_and_nobody_vouches_yet() {
        let all = documents(&ox(), ALL).unwrap();
        let kinds: Vec<&str> = all.iter().filter_map(|document| document["kind"].as_str()).collect();
        assert_eq!(
            kinds,
            [
                "MutatingWebhookConfiguration",
                "ValidatingWebhookConfiguration",
                "CustomResourceDefinition"
            ]
        );
        assert_eq!(all[0]["webhooks"][0]["rules"][0]["resources"], json!(["oxen"]));
        assert_eq!(
            all[0]["webhooks"][0]["clientConfig"],
            json!({"url": "https://host/default/farm/oxen"})
        );
        assert_eq!(all[2]["spec"]["names"]["plural"], "oxen");
        assert_eq!(all[2]["spec"]["conversion"]["strategy"], "Webhook");
        let none = WebhookInterfaces {
            defaulter: false,
            validator: false,
            converter: false,
        };
        assert_eq!(documents(&ox(), none), Ok(Vec::new()));
    }

    #[test]
    fn of_a_kind_that_somebody_else_brings_the_plural_is_not_known() {
        let mut foreign = ox();
        foreign["kind"] = json!({"group": "", "version": "v1", "kind": "Service"});
        assert_eq!(
            documents(
                &foreign,
                WebhookInterfaces {
                    converter: false,
                    ..ALL
                }
            ),
            Ok(Vec::new())
        );
        foreign["admission"] = json!({});
        let error = documents(&foreign, ALL).unwrap_err().to_string();
        assert!(error.contains("only an API server knows the plural"), "{error}");
    }
}
