//! Shortcuts to the pods of workloads, beside the generated setters.

use super::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use super::core::v1::{Container, Volume};
use super::value::Members;
use super::{Field, FieldValue, members};

macro_rules! workloads {
    ($($workload:ident)+) => {
        $(
            impl $workload {
                /// Labels the pods, and selects them: sets `spec.selector.matchLabels` and
                /// `spec.template.metadata.labels`.
                pub fn pod_labels(
                    mut self,
                    labels: impl IntoIterator<Item = (impl Into<String>, impl Field<String>)>,
                ) -> Self {
                    for (key, value) in labels {
                        pod_label(&mut self.0, key.into(), value.into_value());
                    }
                    self
                }

                /// Adds a container to the pods: to `spec.template.spec.containers`.
                pub fn container(self, container: impl Field<Container>) -> Self {
                    self.push(&["spec", "template", "spec", "containers"], container)
                }

                /// Adds an init container to the pods: to `spec.template.spec.initContainers`.
                pub fn init_container(self, container: impl Field<Container>) -> Self {
                    self.push(&["spec", "template", "spec", "initContainers"], container)
                }

                /// Adds a volume to the pods: to `spec.template.spec.volumes`.
                pub fn volume(self, volume: impl Field<Volume>) -> Self {
                    self.push(&["spec", "template", "spec", "volumes"], volume)
                }
            }
        )+
    };
}

workloads!(DaemonSet Deployment ReplicaSet StatefulSet);

#[inline(never)]
fn pod_label(workload: &mut Members, key: String, value: FieldValue) {
    members::insert(
        workload,
        &["spec", "selector", "matchLabels"],
        key.clone(),
        value.clone(),
    );
    members::insert(workload, &["spec", "template", "metadata", "labels"], key, value);
}
