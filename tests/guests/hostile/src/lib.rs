//! A plugin that misbehaves in every way that a plugin can: what it does, each of its resources says in
//! `spec.behaviour`, and its configuration says what `describe` does, and what all of its resources do.
//!
//! `behaviour` names them all; `exhaust` has those that use up what the host limits, `objects` and `words` those that
//! give an answer that the host or the API server refuses, and `answers` the good one. It stands on the SDK's low level, because the typed one makes no broken JSON.

#![forbid(unsafe_code)]

mod answers;
mod behaviour;
mod exhaust;
mod objects;
#[cfg(test)]
mod tests;
mod words;

use pilothouse_plugin::raw::RawPlugin;
use pilothouse_plugin::raw::types::{Failure, Outcome, Request};
use pilothouse_plugin::{ControllerManifest, Kind, Manifest, Touch};
use serde::Deserialize;

use crate::behaviour::{Behaviour, Given};

const HOSTILE: Kind = Kind::new("hostile.test.dev", "v1", "Hostile");
const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap");
const SECRET: Kind = Kind::new("", "v1", "Secret");
const DEPLOYMENT: Kind = Kind::new("apps", "v1", "Deployment");

/// The lines that `describe` logs where it floods, a kilobyte each.
const SAID: usize = 60;

/// The plugin.
#[derive(Debug)]
pub struct Hostile;

/// The configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    describe: Describe,
    /// Behaviour of every resource, instead of its own.
    behaviour: Option<Behaviour>,
    /// The text of every resource, whatever it says itself.
    text: Option<String>,
}

impl Config {
    fn read(given: Option<&str>) -> Result<Self, String> {
        match given {
            None | Some("" | "null") => Ok(Self::default()),
            Some(given) => serde_json::from_str(given).map_err(|error| format!("configuration: {error}")),
        }
    }
}

/// Behaviour of `describe`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Describe {
    /// Gives the manifest.
    #[default]
    Normal,
    /// Traps.
    Trap,
    /// Never ends.
    Loop,
    /// Gives something that is no JSON.
    Garbage,
    /// Gives a manifest with a member that no contract has.
    UnknownMember,
    /// Touches a kind that no cluster serves.
    UnservedKind,
    /// Says that the configuration can't be used.
    Refuse,
    /// Logs as much as a call may, then gives the manifest.
    LogFlood,
    /// Looks at the status of its resources, too.
    SeesStatus,
}

impl RawPlugin for Hostile {
    fn describe(config: Option<String>) -> Result<String, String> {
        match Config::read(config.as_deref())?.describe {
            Describe::Normal => Ok(manifest([])),
            Describe::Trap => exhaust::trap(),
            Describe::Loop => exhaust::spin(),
            Describe::Garbage => Ok("{\"name\": hostile".to_owned()),
            Describe::UnknownMember => Ok(manifest([]).replacen('{', "{\"surprise\":true,", 1)),
            Describe::UnservedKind => Ok(manifest([Touch::new(Kind::new("unserved.test.dev", "v1", "Unserved"))
                .read(["."])
                .anywhere()])),
            Describe::LogFlood => {
                exhaust::flood(SAID);
                Ok(manifest([]))
            }
            Describe::SeesStatus => Ok(manifest_of(
                [".spec", ".status"],
                [Touch::new(HOSTILE).read([".status"])],
            )),
            Describe::Refuse => Err("describe: this configuration is to be refused; choose another".to_owned()),
        }
    }

    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        let Config {
            describe: _,
            behaviour,
            text,
        } = Config::read(Some(&request.configuration)).map_err(Failure::Permanent)?;
        let mut given = Given::read(&request).map_err(Failure::Permanent)?;
        given.behaviour = behaviour.unwrap_or(given.behaviour);
        given.text = text.unwrap_or(given.text);
        match given.behaviour {
            Behaviour::TransientFailure => return Err(Failure::Transient(given.text)),
            Behaviour::FailAtFirst if given.attempt < 2 => return Err(Failure::Transient(given.text)),
            Behaviour::PermanentFailure => return Err(Failure::Permanent(given.text)),
            _ => {}
        }
        Ok(exhaust::of(given.behaviour, &given)
            .or_else(|| objects::of(given.behaviour, &given))
            .or_else(|| words::of(given.behaviour, &given))
            .unwrap_or_else(|| answers::config_map(&given)))
    }
}

pilothouse_plugin::export_raw!(Hostile);

fn manifest(touches: impl IntoIterator<Item = Touch>) -> String {
    manifest_of([".spec"], touches)
}

fn manifest_of<const FIELDS: usize>(
    fields: [&'static str; FIELDS],
    touches: impl IntoIterator<Item = Touch>,
) -> String {
    let controller = ControllerManifest::new("hostile", HOSTILE)
        .fields(fields)
        .touches(Touch::new(CONFIG_MAP).owned().read([".data"]).anywhere())
        .touches(Touch::new(DEPLOYMENT).owned());
    let controller = touches.into_iter().fold(controller, ControllerManifest::touches);
    let manifest = Manifest::new(
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_DESCRIPTION"),
    )
    .controller(controller)
    .crd(include_str!("../crds/hostiles.hostile.test.dev.yaml"))
    .configuration_schema(serde_json::json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "describe": {"enum": ["normal", "trap", "loop", "garbage", "unknown-member", "unserved-kind", "refuse", "log-flood", "sees-status"]},
            "behaviour": {"type": "string"},
            "text": {"type": "string", "maxLength": 1000}
        }
    }));
    serde_json::to_string(&manifest).expect("a manifest has only text for keys")
}
