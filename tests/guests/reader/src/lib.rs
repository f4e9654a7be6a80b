//! A plugin that reads. Which kinds it may read its configuration says, as a manifest would; what it reads, and whether
//! it is to run again after a time, each of its objects says in annotations. What it saw it keeps in a ConfigMap of the
//! object's name and labels, and each run is logged.
//!
//! Its objects are service accounts with a label, so that it brings no CRD and may be installed twice. It is written
//! without the SDK's types: its touches and the kinds that it reads are JSON that it is given.

#![forbid(unsafe_code)]

use pilothouse_plugin::raw::RawPlugin;
use pilothouse_plugin::raw::types::{self, Desired, Failure, Lifecycle, ListOptions, Outcome, Ownership, Request};
use pilothouse_plugin::raw::{clock, cluster, log};
use serde::Deserialize;
use serde_json::{Value, json};

/// The annotation with the reads, as a JSON list of [`Read`].
const READS: &str = "reader.test.dev/reads";

/// The annotation with the milliseconds after which to run again.
const AGAIN: &str = "reader.test.dev/again";

/// The plugin.
#[derive(Debug)]
pub struct Reader;

/// The configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// A label selector: which service accounts are its objects.
    objects: String,
    /// Read rights: entries of a manifest's `touches`. One of ConfigMaps covers those that it writes, too.
    touches: Vec<Value>,
}

/// One read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Read {
    /// One object.
    Get {
        #[serde(with = "Kind")]
        kind: types::GroupVersionKind,
        namespace: Option<String>,
        name: String,
        /// It is read again until it has this text; what was there at first is what was seen.
        until: Option<String>,
    },
    /// Those that the options match.
    List {
        #[serde(with = "Kind")]
        kind: types::GroupVersionKind,
        namespace: Option<String>,
        labels: Option<String>,
        #[serde(default)]
        fields: Vec<(String, String)>,
        limit: Option<u32>,
    },
    /// Reached time, in milliseconds since the epoch.
    Reached(u64),
    /// The same, and if it has come the call ends in a trap.
    TrapAfter(u64),
}

/// A kind in the contract's words.
#[derive(Debug, Deserialize)]
#[serde(remote = "types::GroupVersionKind")]
#[allow(clippy::struct_field_names, reason = "a kind's kind is what Kubernetes calls it")]
struct Kind {
    group: String,
    version: String,
    kind: String,
}

impl RawPlugin for Reader {
    fn describe(config: Option<String>) -> Result<String, String> {
        let config: Config = serde_json::from_str(config.as_deref().unwrap_or_default())
            .map_err(|error| format!("configuration: {error}; give objects and touches"))?;
        let mut touches = config.touches;
        if !touches.iter().any(|touch| touch["kind"]["kind"] == "ConfigMap") {
            touches.push(json!({"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["owned"]}));
        }
        for touch in &mut touches {
            // The resources here are about reading; those about where say it.
            if touch["scope"].is_null() {
                touch["scope"] = json!("Any");
            }
        }
        let manifest = json!({
            "name": env!("CARGO_PKG_NAME"),
            "version": env!("CARGO_PKG_VERSION"),
            "description": env!("CARGO_PKG_DESCRIPTION"),
            "controllers": [{
                "name": "reader",
                "kind": {"group": "", "version": "v1", "kind": "ServiceAccount"},
                "filter": {"labelSelector": config.objects},
                "touches": touches,
            }],
            "configurationSchema": {"type": "object"},
        });
        Ok(manifest.to_string())
    }

    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        let object: Value = serde_json::from_str(&request.object).map_err(|error| permanent(&error))?;
        let metadata = &object["metadata"];
        let reads: Vec<Read> = match metadata["annotations"][READS].as_str() {
            Some(reads) => serde_json::from_str(reads).map_err(|error| permanent(&error))?,
            None => Vec::new(),
        };
        let again = metadata["annotations"][AGAIN].as_str();
        let requeue_after = again.and_then(|milliseconds| milliseconds.parse().ok());
        log::log(log::Level::Info, "it reads", &[]);
        let seen: Vec<Value> = reads.into_iter().map(read).collect();
        let kept = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": metadata["labels"]},
            "data": {"names": names(&seen), "seen": Value::Array(seen).to_string()},
        });
        Ok(Outcome {
            desired: vec![Desired {
                object: kept.to_string(),
                ownership: Ownership::Owned,
                lifecycle: Lifecycle::empty(),
                options: "{}".to_owned(),
            }],
            status: None,
            conditions: Vec::new(),
            events: Vec::new(),
            requeue_after,
            extensions: None,
        })
    }
}

pilothouse_plugin::export_raw!(Reader);

fn permanent(error: &serde_json::Error) -> Failure {
    Failure::Permanent(format!(
        "the annotation {READS} cannot be read: {error}; give a list of reads"
    ))
}

/// The names of what was seen, for those who want to know no more.
fn names(seen: &[Value]) -> String {
    let each = seen.iter().flat_map(|answer| match answer {
        Value::Array(found) => found.as_slice(),
        object => std::slice::from_ref(object),
    });
    let names: Vec<&str> = each.filter_map(|object| object["metadata"]["name"].as_str()).collect();
    names.join(",")
}

/// Lets some time pass without a read: of those a call has not many.
fn dawdle() {
    for step in 0..1_000_000_u32 {
        std::hint::black_box(step);
    }
}

/// Returns the cluster's answer; an object that is not there is null.
fn read(read: Read) -> Value {
    let parsed = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
    match read {
        Read::Get {
            kind,
            namespace,
            name,
            until,
        } => {
            let get = || cluster::get(&kind, namespace.as_deref(), &name);
            let first = get();
            if let Some(text) = until {
                log::log(log::Level::Info, "it reads again", &[]);
                while !get().is_some_and(|object| object.contains(&text)) {
                    dawdle();
                }
            }
            first.map_or(Value::Null, parsed)
        }
        Read::List {
            kind,
            namespace,
            labels,
            fields,
            limit,
        } => {
            let options = ListOptions {
                namespace,
                label_selector: labels,
                field_selector: fields,
                limit,
            };
            cluster::list(&kind, &options).into_iter().map(parsed).collect()
        }
        Read::Reached(moment) => Value::Bool(clock::reached(moment)),
        Read::TrapAfter(moment) => {
            assert!(!clock::reached(moment), "the moment has come");
            Value::Bool(false)
        }
    }
}
