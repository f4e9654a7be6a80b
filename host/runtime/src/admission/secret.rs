//! Content and ownership of the Secret with the webhooks' certificates: the host writes only into a Secret that is
//! empty or its own, including those made by an earlier version of the host. Makes no request.

use std::collections::BTreeMap;

use pilothouse_cluster::resources::webhooks::{CertificateSecret, SecretPlace};
use pilothouse_core::admission::configuration::HOST_LABEL;
use pilothouse_webhook::certificates::Certificates;

/// The keys of the Secret; the first two are those of every Secret of its type.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const KEYS: [&str; 4] = [CERTIFICATE, KEY, BUNDLE, AUTHORITY_KEY];

/// A Secret made by other software.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the Secret {place} is not the webhooks' own, because {why}, and is left as it is; name another one with --webhook-secret, or delete it if nothing needs it"
)]
pub(super) struct NotOurs {
    place: String,
    why: String,
}

/// The label that shows the owner of a Secret. It names the Secret, so that a copy of it elsewhere is not ours.
pub(super) fn label(place: &SecretPlace) -> (String, String) {
    (HOST_LABEL.to_owned(), place.label())
}

/// Returns `true` if a Secret has that label.
pub(super) fn is_labelled(place: &SecretPlace, kept: &CertificateSecret) -> bool {
    let (name, value) = label(place);
    kept.labels().get(&name) == Some(&value)
}

/// Rejects a Secret that is neither empty nor the host's own. The host's has no other keys than those that the host
/// writes, and either the label, or, if made by an earlier version, an authority that only the host makes.
pub(super) fn check(place: &SecretPlace, kept: &CertificateSecret) -> Result<(), NotOurs> {
    let refused = |why: String| {
        Err(NotOurs {
            place: format!("{}/{}", place.namespace, place.name),
            why,
        })
    };
    let filled = || kept.keys().filter(|(_, is_empty)| !is_empty).map(|(key, _)| key);
    if filled().next().is_none() {
        return Ok(());
    }
    let foreign: Vec<&str> = filled().filter(|key| !KEYS.contains(key)).collect();
    if !foreign.is_empty() {
        return refused(format!("it also holds {}", foreign.join(", ")));
    }
    let has_our_authority = || certificates_in(kept).is_some_and(|certificates| certificates.have_our_authority());
    if is_labelled(place, kept) || has_our_authority() {
        return Ok(());
    }
    let (name, value) = label(place);
    let holds: Vec<&str> = filled().collect();
    refused(format!(
        "it holds {} without the label {name}={value}",
        holds.join(", ")
    ))
}

/// The certificates in a Secret; `None` if they are incomplete or not text.
pub(super) fn certificates_in(kept: &CertificateSecret) -> Option<Certificates> {
    let text = |key: &str| kept.text(key);
    Some(Certificates {
        bundle: text(BUNDLE)?,
        authority_key: text(AUTHORITY_KEY)?,
        certificate: text(CERTIFICATE)?,
        key: text(KEY)?,
    })
}

/// Content of a Secret with these certificates.
pub(super) fn texts_of(certificates: &Certificates) -> BTreeMap<String, String> {
    let Certificates {
        bundle,
        authority_key,
        certificate,
        key,
    } = certificates;
    [
        (BUNDLE, bundle),
        (AUTHORITY_KEY, authority_key),
        (CERTIFICATE, certificate),
        (KEY, key),
    ]
    .into_iter()
    .map(|(key, text)| (key.to_owned(), text.clone()))
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use pilothouse_webhook::certificates::Lifetimes;
    use serde_json::{Value, json};

    use super::*;

    fn place() -> SecretPlace {
        SecretPlace {
            namespace: "harbour".to_owned(),
            name: "webhooks".to_owned(),
        }
    }

    /// A Secret with texts by their keys.
    fn secret(labels: &Value, texts: &[(&str, &str)]) -> CertificateSecret {
        use base64::Engine as _;
        let data: BTreeMap<&str, String> = texts
            .iter()
            .map(|(key, text)| (*key, base64::engine::general_purpose::STANDARD.encode(text)))
            .collect();
        let metadata =
            json!({"name": "webhooks", "namespace": "harbour", "uid": "1", "resourceVersion": "2", "labels": labels});
        CertificateSecret::read(&json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": data}).to_string())
            .unwrap()
    }

    fn problem(kept: &CertificateSecret) -> String {
        check(&place(), kept).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_secret_may_be_filled() {
        assert_eq!(check(&place(), &secret(&json!({}), &[])), Ok(()));
        let placeholder = secret(&json!({}), &[("tls.crt", ""), ("tls.key", "")]);
        assert_eq!(check(&place(), &placeholder), Ok(()));
    }

    #[test]
    fn what_somebody_else_keeps_is_refused_and_named() {
        let tls = secret(&json!({}), &[("tls.crt", "x"), ("tls.key", "y")]);
        let said = problem(&tls);
        assert!(
            said.contains("the Secret harbour/webhooks is not the webhooks' own"),
            "{said}"
        );
        assert!(said.contains("it holds tls.crt, tls.key without the label pilothouse.dev/webhooks=harbour.webhooks"));
        assert!(said.contains("--webhook-secret"));
        let keys = KEYS.map(|key| (key, "x"));
        assert!(
            problem(&secret(&json!({}), &keys)).contains("without the label"),
            "its keys prove nothing"
        );
        let copied = json!({"pilothouse.dev/webhooks": "elsewhere.webhooks"});
        assert!(
            problem(&secret(&copied, &keys)).contains("without the label"),
            "a copy is not ours"
        );
        let own = json!({"pilothouse.dev/webhooks": "harbour.webhooks"});
        let more = secret(&own, &[("tls.crt", "x"), ("password", "y")]);
        let said = problem(&more);
        assert!(said.contains("it also holds password") && !said.contains('y'.to_string().repeat(2).as_str()));
    }

    #[test]
    fn the_hosts_own_is_known_by_its_label_or_by_its_authority() {
        let own = json!({"pilothouse.dev/webhooks": "harbour.webhooks"});
        assert_eq!(check(&place(), &secret(&own, &[("tls.crt", "garbled")])), Ok(()));
        let made = Certificates::make(&["a.b.svc".to_owned()], SystemTime::now(), &Lifetimes::default()).unwrap();
        let texts = texts_of(&made);
        let texts: Vec<_> = texts.iter().map(|(key, text)| (&**key, &**text)).collect();
        let earlier = secret(&json!({}), &texts);
        assert_eq!(check(&place(), &earlier), Ok(()), "an earlier version set no label");
        assert!(!is_labelled(&place(), &earlier));
        // cert-manager keeps the same certificate without the key of its authority.
        let without: Vec<_> = texts.iter().copied().filter(|(key, _)| *key != "ca.key").collect();
        assert!(problem(&secret(&json!({}), &without)).contains("without the label"));
    }
}
