//! Removes the webhook configurations that a host leaves for its next start. Where there is no next start, nobody would
//! answer the webhooks, and writes of other scenarios would fail.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::failure::StepError;

/// The label of a host's configurations.
const LABEL: &str = "pilothouse.dev/webhooks";

/// Deletes the hosts' webhook configurations: one host runs at a time, and it has stopped.
pub(super) async fn silence(client: &Client) -> Result<(), StepError> {
    let failed = |error: kube::Error| StepError::Wording(format!("remove the host's webhooks: {error}"));
    let (delete, ours) = (DeleteParams::default(), ListParams::default().labels(LABEL));
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    for configuration in mutating.list(&ours).await.map_err(failed)? {
        mutating
            .delete(&configuration.name_any(), &delete)
            .await
            .map_err(failed)?;
    }
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    for configuration in validating.list(&ours).await.map_err(failed)? {
        validating
            .delete(&configuration.name_any(), &delete)
            .await
            .map_err(failed)?;
    }
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds.list(&ListParams::default()).await.map_err(failed)? {
        if crd
            .spec
            .conversion
            .as_ref()
            .is_some_and(|conversion| conversion.strategy == "Webhook")
        {
            let none = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
            let patch = Patch::Merge(&none);
            crds.patch(&crd.name_any(), &PatchParams::default(), &patch)
                .await
                .map_err(failed)?;
        }
    }
    Ok(())
}
