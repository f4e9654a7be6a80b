//! Reads and writes the objects of the webhook server: the Secret with its certificates, on which several hosts agree
//! by its resourceVersion, and the webhook configurations.

use std::collections::BTreeMap;

use http::{Method, Request};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::client::Body;
use pilothouse_core::admission::configuration::{self, HOST_LABEL, PLUGIN_LABEL};
use pilothouse_core::diff::canonical::digest;
use serde::Serialize;
use serde_json::Value;

use crate::error::RequestError;
use crate::write::send::send;

/// The field manager of these objects. It differs from that of the CRDs that the host installs, because a manager has
/// one set of fields in an object.
const MANAGER: &str = "pilothouse-webhooks";

/// The type of a Secret with a certificate and its key.
const SECRET_TYPE: &str = "kubernetes.io/tls";

/// The ClusterRoles, one of which can own the configurations.
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// The highest number of retries after conflicts with another writer.
const MAX_OVERTAKEN: usize = 3;

/// The longest value of a label, and the length of the digest that shortens a longer one.
const LONGEST_LABEL: usize = 63;
const LABEL_DIGEST: usize = 16;

/// The namespace and name of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPlace {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl SecretPlace {
    /// The host's identity, as the value of a label: all its processes share the Secret.
    pub fn label(&self) -> String {
        let label = format!("{}.{}", self.namespace, self.name);
        if label.len() <= LONGEST_LABEL {
            return label;
        }
        let digest = digest(&Value::String(label.clone()));
        let digest: String = digest
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(LABEL_DIGEST)
            .collect();
        let beginning: String = label.chars().take(LONGEST_LABEL - LABEL_DIGEST - 1).collect();
        format!("{beginning}-{digest}")
    }
}

/// The Secret as it was read or written, as a whole: members that the host does not know are preserved.
#[derive(Clone)]
pub struct CertificateSecret {
    secret: Secret,
}

impl CertificateSecret {
    /// Parses the API server's response.
    pub fn read(text: &str) -> Result<Self, RequestError> {
        let secret: Secret = serde_json::from_str(text).map_err(|error| RequestError::Garbled(error.to_string()))?;
        let ObjectMeta {
            uid, resource_version, ..
        } = &secret.metadata;
        // Without both, whatever is there by now would be written over.
        if uid.as_deref().unwrap_or_default().is_empty() || resource_version.as_deref().unwrap_or_default().is_empty() {
            let problem = "the Secret has no uid or no resourceVersion".to_owned();
            return Err(RequestError::Garbled(problem));
        }
        Ok(Self { secret })
    }

    /// Its labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.secret.metadata.labels.as_ref().unwrap_or(&NONE)
    }

    /// Its keys, each with a flag that is set if the value is empty.
    pub fn keys(&self) -> impl Iterator<Item = (&str, bool)> {
        let data = self.secret.data.iter().flatten();
        data.map(|(key, bytes)| (key.as_str(), bytes.0.is_empty()))
    }

    /// The value of a key, if it is text.
    pub fn text(&self, key: &str) -> Option<String> {
        String::from_utf8(self.secret.data.as_ref()?.get(key)?.0.clone()).ok()
    }
}

/// The result of writing a Secret.
pub enum SecretWrite {
    /// The Secret is as wanted.
    Done(Box<CertificateSecret>),
    /// Another host was faster: the Secret must be read again.
    Overtaken,
}

/// The objects that make API servers call the host, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebhookKind {
    /// MutatingWebhookConfiguration.
    Mutating,
    /// ValidatingWebhookConfiguration.
    Validating,
    /// CustomResourceDefinition; it must be there already.
    Conversion,
}

impl WebhookKind {
    /// The resource, as kubectl accepts it.
    pub fn resource(self) -> &'static str {
        self.collection().rsplit_once('/').map_or("", |(_, resource)| resource)
    }

    fn collection(self) -> &'static str {
        match self {
            Self::Mutating => "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
            Self::Validating => "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            Self::Conversion => "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        }
    }
}

/// Reads the Secret, if it exists.
pub async fn read_secret(client: &Client, place: &SecretPlace) -> Result<Option<CertificateSecret>, RequestError> {
    match request(client, Method::GET, &format!("{}/{}", secrets(place), place.name), None).await {
        Ok(text) => CertificateSecret::read(&text).map(Some),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes texts and a label into the Secret if it is unchanged, or creates it if there was none.
pub async fn write_secret(
    client: &Client,
    place: &SecretPlace,
    label: (String, String),
    texts: BTreeMap<String, String>,
    over: Option<&CertificateSecret>,
) -> Result<SecretWrite, RequestError> {
    let mut secret = over.map_or_else(|| new_secret(place), |kept| kept.secret.clone());
    secret.metadata.labels.get_or_insert_default().extend([label]);
    // The API server maintains managedFields itself.
    secret.metadata.managed_fields = None;
    let texts = texts
        .into_iter()
        .map(|(key, text)| (key, ByteString(text.into_bytes())));
    secret.data.get_or_insert_default().extend(texts);
    let body = json(&secret)?;
    let body = Some(("application/json", body));
    let sent = if over.is_none() {
        request(client, Method::POST, &secrets(place), body).await
    } else {
        let path = format!("{}/{}", secrets(place), place.name);
        request(client, Method::PUT, &path, body).await
    };
    match sent {
        Ok(text) => CertificateSecret::read(&text).map(|kept| SecretWrite::Done(Box::new(kept))),
        Err(error) if error.code() == Some(409) => Ok(SecretWrite::Overtaken),
        // It was deleted since it was read.
        Err(error) if error.is_not_found() && over.is_some() => Ok(SecretWrite::Overtaken),
        Err(error) => Err(error),
    }
}

/// The result of creating an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The object existed as wanted.
    Already,
    /// The object was created or changed.
    Now,
    /// Another host answers its requests, and has this Secret, as the value of a label. The object was not changed.
    Anothers(String),
}

/// Creates or changes an object as wanted, unless another host that still has its Secret answers its requests.
pub async fn ensure(client: &Client, asking: WebhookKind, wanted: &Value) -> Result<Made, RequestError> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{}/{name}", asking.collection());
    let mut overtaken = 0;
    loop {
        let live = match request(client, Method::GET, &path, None).await {
            Ok(text) => Some(parse(&text)?),
            Err(error) if error.is_not_found() && asking != WebhookKind::Conversion => None,
            Err(error) => return Err(error),
        };
        if live.as_ref().is_some_and(|live| is_made(live, wanted)) {
            return Ok(Made::Already);
        }
        let mut body = wanted.clone();
        if let Some(live) = &live {
            if let Some(host) = another_host(asking, live, wanted)
                && !is_gone(client, host).await
            {
                return Ok(Made::Anothers(host.to_owned()));
            }
            // Another host may be about to make it too.
            body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
        }
        match apply(client, &path, &body).await {
            Err(error) if error.code() == Some(409) && overtaken < MAX_OVERTAKEN => overtaken += 1,
            Err(error) => return Err(error),
            Ok(_) => return Ok(Made::Now),
        }
    }
}

/// The uid of a ClusterRole, if it exists.
pub async fn uid_of_cluster_role(client: &Client, name: &str) -> Result<Option<String>, RequestError> {
    match request(client, Method::GET, &format!("{CLUSTER_ROLES}/{name}"), None).await {
        Ok(text) => {
            let role = parse(&text)?;
            let uid = role["metadata"]["uid"].as_str().map(str::to_owned);
            uid.map(Some)
                .ok_or_else(|| RequestError::Garbled("the ClusterRole has no uid".to_owned()))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The host that a live object names, if it differs from the wanted object's. Objects of earlier versions, or made by
/// other means, name none. A CRD without webhook conversion calls no host, though its label stays.
fn another_host<'a>(asking: WebhookKind, live: &'a Value, wanted: &Value) -> Option<&'a str> {
    if asking == WebhookKind::Conversion && live["spec"]["conversion"]["strategy"] != "Webhook" {
        return None;
    }
    let host = live["metadata"]["labels"][HOST_LABEL].as_str()?;
    (!host.is_empty() && wanted["metadata"]["labels"][HOST_LABEL] != *host).then_some(host)
}

/// Reports whether the Secret that a label names is known to be gone. If that is not known, it counts as existing.
async fn is_gone(client: &Client, host: &str) -> bool {
    // A label of the full length may be a shortened one, and a namespace has no dot.
    let place = (host.len() < LONGEST_LABEL).then(|| host.split_once('.')).flatten();
    let Some((namespace, name)) = place else {
        return false;
    };
    let place = SecretPlace {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    matches!(read_secret(client, &place).await, Ok(None))
}

/// The result of writing the CA bundle into an object that an installer has created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaBundleUpdate {
    /// The object had the bundle already.
    Already,
    /// The bundle was written.
    Now,
    /// The object does not exist.
    Missing,
    /// The object has another endpoint than the host's.
    Differs,
}

/// Writes the host's CA bundle into an object that someone else has created, and nothing else.
pub async fn update_ca_bundle(
    client: &Client,
    asking: WebhookKind,
    wanted: &Value,
) -> Result<CaBundleUpdate, RequestError> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{}/{name}", asking.collection());
    let live = match request(client, Method::GET, &path, None).await {
        Ok(text) => parse(&text)?,
        Err(error) if error.is_not_found() => return Ok(CaBundleUpdate::Missing),
        Err(error) => return Err(error),
    };
    let mut wanted = wanted.clone();
    if asking == WebhookKind::Conversion
        && let Some(metadata) = wanted["metadata"].as_object_mut()
    {
        // Installers of earlier versions did not label a CRD with the host that converts its objects.
        metadata.remove("labels");
    }
    if contains(&live, &wanted) {
        return Ok(CaBundleUpdate::Already);
    }
    if !contains(&live, &configuration::without_bundles(&wanted)) {
        return Ok(CaBundleUpdate::Differs);
    }
    apply(client, &path, &configuration::bundles(&wanted)).await?;
    Ok(CaBundleUpdate::Now)
}

async fn apply(client: &Client, path: &str, object: &Value) -> Result<String, RequestError> {
    let path = format!("{path}?fieldManager={MANAGER}&force=true");
    let body = Some(("application/apply-patch+yaml", json(object)?));
    request(client, Method::PATCH, &path, body).await
}

/// A configuration created for a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookConfiguration {
    /// Its name.
    pub name: String,
    /// The plugin in its label.
    pub plugin: Option<String>,
}

/// The configurations that match a label selector.
pub async fn list(
    client: &Client,
    asking: WebhookKind,
    selector: &str,
) -> Result<Vec<WebhookConfiguration>, RequestError> {
    let selector = selector.replace('=', "%3D").replace(',', "%2C").replace('/', "%2F");
    let path = format!("{}?labelSelector={selector}", asking.collection());
    let list = parse(&request(client, Method::GET, &path, None).await?)?;
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let configuration = |item: &Value| {
        let metadata = &item["metadata"];
        Some(WebhookConfiguration {
            name: metadata["name"].as_str()?.to_owned(),
            plugin: metadata["labels"][PLUGIN_LABEL].as_str().map(str::to_owned),
        })
    };
    Ok(items.iter().filter_map(configuration).collect())
}

/// The URL or Service path at which a CRD has its objects converted; none without a conversion webhook or a CRD.
pub async fn converts_at(client: &Client, crd: &str) -> Result<Option<String>, RequestError> {
    let path = format!("{}/{crd}", WebhookKind::Conversion.collection());
    let definition = match request(client, Method::GET, &path, None).await {
        Ok(text) => parse(&text)?,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let client = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
    let at = client["url"].as_str().or_else(|| client["service"]["path"].as_str());
    Ok(at.map(str::to_owned))
}

/// Deletes a configuration that no host answers any more.
pub async fn remove(client: &Client, asking: WebhookKind, name: &str) -> Result<(), RequestError> {
    match request(client, Method::DELETE, &format!("{}/{name}", asking.collection()), None).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

fn secrets(place: &SecretPlace) -> String {
    format!("/api/v1/namespaces/{}/secrets", place.namespace)
}

/// A new Secret. The type of an existing one stays: no API server lets it be changed.
fn new_secret(place: &SecretPlace) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(place.name.clone()),
            namespace: Some(place.namespace.clone()),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        ..Secret::default()
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, RequestError> {
    serde_json::to_vec(value).map_err(|error| RequestError::Garbled(error.to_string()))
}

fn parse(text: &str) -> Result<Value, RequestError> {
    serde_json::from_str(text).map_err(|error| RequestError::Garbled(error.to_string()))
}

async fn request(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<(&str, Vec<u8>)>,
) -> Result<String, RequestError> {
    let mut request = Request::builder().method(method).uri(path);
    let body = body.map_or_else(Body::empty, |(kind, body)| {
        if let Some(headers) = request.headers_mut()
            && let Ok(kind) = http::HeaderValue::from_str(kind)
        {
            headers.insert(http::header::CONTENT_TYPE, kind);
        }
        Body::from(body)
    });
    let request = request
        .body(body)
        .map_err(|error| RequestError::Garbled(error.to_string()))?;
    send(client, request).await.map(|(_, text)| text)
}

/// Reports whether a live object is as wanted. It may have more owners, because owner references are a list with
/// entries of several parties.
fn is_made(live: &Value, wanted: &Value) -> bool {
    const OWNERS: &str = "ownerReferences";
    let mut rest = wanted.clone();
    let owners = rest["metadata"]
        .as_object_mut()
        .and_then(|metadata| metadata.remove(OWNERS));
    let has = |owner: &Value| {
        let live = live["metadata"][OWNERS].as_array().into_iter().flatten();
        live.into_iter().any(|live| contains(live, owner))
    };
    let mut owners = owners.iter().filter_map(Value::as_array).flatten();
    owners.all(has) && contains(live, &rest)
}

/// Reports whether a live object contains the wanted one. Lists are compared item by item: they keep their order here.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| live.get(name).is_some_and(|live| contains(live, wanted))),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| contains(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_place_is_shortened_to_a_label_of_its_own() {
        let place = |name: String| SecretPlace {
            namespace: "harbour".to_owned(),
            name,
        };
        assert_eq!(place("webhooks".to_owned()).label(), "harbour.webhooks");
        let (one, other) = (place("a".repeat(200)).label(), place("a".repeat(201)).label());
        assert!(one != other && one.len() == LONGEST_LABEL && other.len() == LONGEST_LABEL);
        assert!(one.ends_with(|letter: char| letter.is_ascii_alphanumeric()), "{one}");
    }

    #[test]
    fn whose_an_object_is_its_label_says() {
        let of = |host: &str| json!({"metadata": {"labels": {HOST_LABEL: host}}});
        assert_eq!(
            another_host(WebhookKind::Validating, &of("a.one"), &of("b.two")),
            Some("a.one")
        );
        assert_eq!(another_host(WebhookKind::Validating, &of("a.one"), &of("a.one")), None);
        for nobodys in [
            of(""),
            json!({"metadata": {}}),
            json!({"metadata": {"labels": {"x": "y"}}}),
        ] {
            assert_eq!(another_host(WebhookKind::Validating, &nobodys, &of("b.two")), None);
        }
        let mut crd = of("a.one");
        crd["spec"]["conversion"]["strategy"] = "None".into();
        assert_eq!(another_host(WebhookKind::Conversion, &crd, &of("b.two")), None);
        crd["spec"]["conversion"]["strategy"] = "Webhook".into();
        assert_eq!(another_host(WebhookKind::Conversion, &crd, &of("b.two")), Some("a.one"));
    }

    #[test]
    fn an_owner_is_wanted_by_its_uid_and_others_may_stand_beside_it() {
        let owner = |uid: &str| configuration::owner_reference("a:b", uid);
        let owned = |owners: &[Value]| json!({"metadata": {"name": "x", "ownerReferences": owners}, "webhooks": []});
        let other = json!({"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "3"});
        assert!(is_made(&owned(&[owner("1")]), &owned(&[owner("1")])));
        assert!(is_made(&owned(&[other.clone(), owner("1")]), &owned(&[owner("1")])));
        assert!(!is_made(&owned(&[owner("2")]), &owned(&[owner("1")])), "made anew");
        assert!(!is_made(&owned(&[other]), &owned(&[owner("1")])));
        let without = json!({"metadata": {"name": "x"}, "webhooks": []});
        assert!(!is_made(&without, &owned(&[owner("1")])));
        assert!(
            is_made(&owned(&[owner("1")]), &without),
            "a host without an owner leaves it"
        );
        assert!(!is_made(&json!({"metadata": {"name": "x"}, "webhooks": [1]}), &without));
    }

    #[test]
    fn an_object_that_has_all_that_is_wanted_is_left_alone() {
        let live = json!({"a": {"b": [{"c": 1, "default": 2}]}, "more": true});
        assert!(contains(&live, &json!({"a": {"b": [{"c": 1}]}})));
        assert!(!contains(&live, &json!({"a": {"b": [{"c": 2}]}})));
        assert!(
            !contains(&live, &json!({"a": {"b": []}})),
            "what is too much is not wanted"
        );
        assert!(!contains(&live, &json!({"x": 1})));
    }
}
