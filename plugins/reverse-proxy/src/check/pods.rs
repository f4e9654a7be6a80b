//! Checks the fields of both kinds about their pods and their Service.

use std::collections::BTreeMap;

use pilothouse_plugin::names::{is_dns_name, is_label_value};
use pilothouse_plugin::{FieldError, ObjectMeta};

use super::{Absent, Problems};
use crate::resource::{Common, Protocol};

/// Pods and a Service that can be made.
#[derive(Debug)]
pub(crate) struct Instance<'a> {
    /// Name of all children. The definition bounds the resource's, so that this one has 63 characters at most.
    pub name: String,
    pub namespace: &'a str,
    pub image: &'a str,
    pub protocol: Protocol,
    pub common: Common<'a>,
}

pub(super) fn check<'a>(
    prefix: &str,
    metadata: &'a ObjectMeta,
    common: Common<'a>,
    protocol: Protocol,
    absent: Absent<'a>,
    problems: &mut Problems,
) -> Instance<'a> {
    check_labels("spec.nodeSelector", common.node_selector, problems);
    check_labels("spec.podLabels", common.pod_labels, problems);
    let image = match (common.image, absent) {
        ("", Absent::Refused) => {
            problems.push(FieldError::required("spec.image", "name an nginx image"));
            ""
        }
        // The Go clients of the original write an empty image for none.
        ("", Absent::Image(image)) | (image, _) => image,
    };
    Instance {
        name: format!("{prefix}{}", metadata.name),
        namespace: metadata.namespace.as_deref().unwrap_or_default(),
        image,
        protocol,
        common,
    }
}

/// Refuses labels that the server would refuse in the Deployment, so that the message names the user's field.
fn check_labels(path: &str, labels: &BTreeMap<String, String>, problems: &mut Problems) {
    for (key, value) in labels {
        let path = format!("{path}[{key}]");
        let (prefix, name) = key
            .split_once('/')
            .map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
        if name.is_empty() || !is_label_value(name) || prefix.is_some_and(|prefix| !is_dns_name(prefix)) {
            problems.add(
                path,
                "is no name of a label: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, and \
                 if need be a domain and '/' before it",
            );
        } else if !is_label_value(value) {
            problems.add(
                path,
                format_args!(
                    "has the value {value:?}; a label's has at most 63 letters, digits, '-', '_' and '.', with a letter or digit \
                     at both ends"
                ),
            );
        }
    }
}
