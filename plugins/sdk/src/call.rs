//! Calls of the plugin: their object, read no further than necessary.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _, de};

use crate::locate;
use crate::object::Kind;
use crate::outcome::Failure;
use crate::raw::types;

/// A request whose object's kind is known.
#[derive(Debug)]
pub struct Call<'a> {
    kind: KindOf<'a>,
    request: &'a types::Request,
}

impl<'a> Call<'a> {
    pub(crate) fn read(request: &'a types::Request) -> Result<Self, Failure> {
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
pub(crate) struct KindOf<'a> {
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

pub(crate) struct OfKind<'k, 'a>(&'k mut Option<KindOf<'a>>);

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
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

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
pub(crate) struct Header<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: HeaderMeta<'a>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct HeaderMeta<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
}

pub(crate) fn read_config<Config: DeserializeOwned + Default>(json: &str) -> Result<Config, String> {
    match json.trim() {
        "" | "null" => Ok(Config::default()),
        // A derived type would accept a list as its fields in their order.
        given if given.starts_with('[') => Err("it is a list; give an object with members".to_owned()),
        given => serde_json::from_str(given).map_err(|error| locate::explain(given, &error)),
    }
}
