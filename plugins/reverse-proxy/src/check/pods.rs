//! Owns checking what both kinds say about their pods and their Service.

use std::collections::BTreeMap;

use pilothouse_plugin::{FieldError, ObjectMeta};
use serde_json::value::RawValue;

use super::{Absent, Problems};
use crate::children::{CONFIG_SUM, INSTANCE, MANAGED_BY};
use crate::resource::{Common, Protocol};

/// The longest name of a child, in bytes: it is a Service's name and a label's value.
const LONGEST_NAME: usize = 63;

/// The longest name of an image, in bytes.
const LONGEST_IMAGE: usize = 512;

/// Pods and a Service that can be made.
#[derive(Debug)]
pub(crate) struct Instance<'a> {
    /// The name of all children.
    pub name: String,
    pub namespace: &'a str,
    pub image: &'a str,
    pub replicas: i32,
    pub service_port: u16,
    pub protocol: Protocol,
    pub resources: Option<&'a RawValue>,
    pub node_selector: Option<&'a BTreeMap<String, String>>,
    pub pod_labels: Option<&'a BTreeMap<String, String>>,
    pub affinity: Option<&'a RawValue>,
    pub env: Option<&'a RawValue>,
}

pub(super) fn check<'a>(
    prefix: &str,
    metadata: &'a ObjectMeta,
    common: &Common<'a>,
    protocol: Protocol,
    absent: Absent<'a>,
    problems: &mut Problems,
) -> Instance<'a> {
    let name = format!("{prefix}{}", metadata.name);
    let usable = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.len() > LONGEST_NAME || !name.bytes().all(usable) || name.ends_with('-') {
        problems.add(
            "metadata.name",
            format_args!(
                "is part of the name of a Service, {name}, which has at most {LONGEST_NAME} characters a-z, 0-9 and '-'; create it \
                 under a name of at most {} of them",
                LONGEST_NAME - prefix.len()
            ),
        );
    }
    if metadata.namespace.is_none() {
        problems.push(FieldError::required("metadata.namespace", "create it in a namespace"));
    }
    problems.check_range("spec.replicas", common.replicas, 0, i32::MAX);
    problems.check_range(
        "spec.servicePort",
        i32::from(common.service_port),
        1,
        i32::from(u16::MAX),
    );
    check_labels("spec.nodeSelector", common.node_selector, problems);
    check_labels("spec.podLabels", common.pod_labels, problems);
    for label in [MANAGED_BY, INSTANCE, CONFIG_SUM] {
        if common.pod_labels.is_some_and(|labels| labels.contains_key(label)) {
            problems.push(FieldError::forbidden(
                format!("spec.podLabels[{label}]"),
                "the operator sets it; leave it out",
            ));
        }
    }
    Instance {
        name,
        namespace: metadata.namespace.as_deref().unwrap_or_default(),
        image: image(common.image, absent, problems),
        replicas: common.replicas,
        service_port: common.service_port,
        protocol,
        resources: common.resources,
        node_selector: common.node_selector,
        pod_labels: common.pod_labels,
        affinity: common.affinity,
        env: common.env,
    }
}

fn image<'a>(given: Option<&'a str>, absent: Absent<'a>, problems: &mut Problems) -> &'a str {
    const PATH: &str = "spec.image";
    match (given, absent) {
        (None, Absent::Image(image)) => image,
        (None, Absent::Refused) => {
            problems.push(FieldError::required(PATH, "name an nginx image"));
            ""
        }
        (Some(image), _) => {
            if image.len() > LONGEST_IMAGE || !image.bytes().all(|byte| byte.is_ascii_graphic()) {
                problems.add(
                    PATH,
                    format_args!(
                        "is no name of an image: at most {LONGEST_IMAGE} printable ASCII characters, without spaces"
                    ),
                );
            }
            image
        }
    }
}

/// Refuses what the server would refuse in the Deployment, so that the message names the user's field.
fn check_labels(path: &str, labels: Option<&BTreeMap<String, String>>, problems: &mut Problems) {
    for (key, value) in labels.into_iter().flatten() {
        let path = format!("{path}[{key}]");
        let (prefix, name) = key
            .split_once('/')
            .map_or((None, key.as_str()), |(prefix, name)| (Some(prefix), name));
        if !is_name(name) || prefix.is_some_and(|prefix| !is_domain(prefix)) {
            problems.add(
                path,
                "is no name of a label: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, and \
                 if need be a domain and '/' before it",
            );
        } else if !value.is_empty() && !is_name(value) {
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

fn is_name(text: &str) -> bool {
    text.len() <= 63
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
}

fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| is_name(label) && label.bytes().all(|byte| !byte.is_ascii_uppercase() && byte != b'_');
    text.len() <= 253 && text.split('.').all(is_label)
}
