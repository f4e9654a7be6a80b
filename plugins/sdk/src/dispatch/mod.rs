//! Converts the contract's JSON to an author's types and back, for `describe` and `reconcile`; `optional` has the rest.

pub(crate) mod optional;

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};

use crate::cluster::Cluster;
use crate::locate;
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

fn read_config<Config: DeserializeOwned + Default>(json: &str) -> Result<Config, String> {
    match json.trim() {
        "" | "null" => Ok(Config::default()),
        // A derived type would accept a list as its fields in their order.
        given if given.starts_with('[') => Err("it is a list; give an object with members".to_owned()),
        given => serde_json::from_str(given).map_err(|error| locate::explain(given, &error)),
    }
}

/// A request whose object's kind is known.
#[derive(Debug)]
pub struct Call<'a> {
    kind: KindOf<'a>,
    request: &'a types::Request,
}

impl<'a> Call<'a> {
    fn read(request: &'a types::Request) -> Result<Self, Failure> {
        match KindOf::read(&request.object) {
            Ok(kind) => Ok(Self { kind, request }),
            Err(error) => {
                let cause = locate::explain(&request.object, &error);
                Err(Failure::Permanent(format!("the object cannot be read: {cause}")))
            }
        }
    }

    /// Reports whether the object is of this kind.
    pub(crate) fn is_for(&self, kind: &Kind) -> bool {
        kind.is(&self.kind.api_version, &self.kind.kind)
    }

    /// Deserializes the object as the author's type.
    pub(crate) fn object<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.request.object).map_err(|error| {
            let cause = locate::explain(&self.request.object, &error);
            Failure::Permanent(format!("{self} cannot be read: {cause}; correct the field"))
        })
    }

    /// Returns the number of consecutive failures before this call.
    pub(crate) fn attempt(&self) -> u32 {
        self.request.attempt
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&name_of(&self.request.object))
    }
}

/// Kind of an object.
#[derive(Debug)]
struct KindOf<'a> {
    api_version: Cow<'a, str>,
    kind: Cow<'a, str>,
}

impl<'a> KindOf<'a> {
    /// Reads no further than necessary: the host sends both members first, and the author's type is read anew.
    fn read(json: &'a str) -> Result<Self, serde_json::Error> {
        let mut kind = None;
        let read = serde_json::Deserializer::from_str(json).deserialize_map(OfKind(&mut kind));
        // Leaving the rest unread is an error to the deserializer.
        kind.ok_or_else(|| read.err().unwrap_or_else(|| de::Error::missing_field("kind")))
    }
}

struct OfKind<'k, 'a>(&'k mut Option<KindOf<'a>>);

impl<'a> Visitor<'a> for OfKind<'_, 'a> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut api_version, mut kind) = (None, None);
        while let Some(Text(name)) = members.next_key()? {
            let text = match &*name {
                "apiVersion" => &mut api_version,
                "kind" => &mut kind,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *text = Some(members.next_value::<Text<'a>>()?.0);
            if api_version.is_some() && kind.is_some() {
                break;
            }
        }
        let api_version = api_version.ok_or_else(|| de::Error::missing_field("apiVersion"))?;
        let kind = kind.ok_or_else(|| de::Error::missing_field("kind"))?;
        *self.0 = Some(KindOf { api_version, kind });
        Ok(())
    }
}

/// A string, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns the object's kind, namespace and name, as far as it has them.
pub(crate) fn name_of(json: &str) -> String {
    serde_json::from_str::<Header<'_>>(json).map_or_else(|_| "an object".to_owned(), |header| header.to_string())
}

impl fmt::Display for Header<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header { kind, metadata } = self;
        match &metadata.namespace {
            Some(namespace) => write!(formatter, "{kind} {namespace}/{}", metadata.name),
            None => write!(formatter, "{kind} {}", metadata.name),
        }
    }
}

/// Members that identify an object.
#[derive(Debug, Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: HeaderMeta<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct HeaderMeta<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
}
