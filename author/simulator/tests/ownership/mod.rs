//! Compares what a real API server says that an applier still holds, after somebody else has changed its object in every
//! way and at every place, with what the simulated one says, and with what the host reads out of it.
//!
//! `ownership/structures.yaml` has the structures of a schema, with what is applied. Each case is an object of its own:
//! we apply, somebody edits, and we apply the same again. `ownership/golden.json` has what a real server made of it;
//! `UPDATE_GOLDEN=1` writes it anew from the one that `PILOTHOUSE_REAL_URL` and `PILOTHOUSE_REAL_TOKEN` name, as in
//! `differential.rs`.

mod edits;
mod flat;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use edits::{Edit, edits};
use pilothouse_core::Kind;
use pilothouse_core::kubernetes::fields::{FieldSet, LeafSemantics};
use pilothouse_core::kubernetes::types::Types;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::harness::{Answer, Real, Server, Simulated, request};

const OURS: &str = "ours";
const THEIRS: &str = "somebody";

/// Time that a real server may take to serve a new kind.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Structure {
    name: String,
    schema: Value,
    desired: Value,
    other: Value,
}

/// Form of another client's edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    /// The whole object is replaced.
    Update,
    /// The edited structure is applied with force.
    Force,
    /// The same, and then given up again: what only they held by then goes.
    Drop,
}

const WAYS: [Way; 3] = [Way::Update, Way::Force, Way::Drop];

/// Our entry and the structure, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Moment {
    fields: Value,
    live: Value,
}

/// Recorded result of one edit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Case {
    edit: String,
    way: Way,
    /// Right after the edit; none where the server refused it.
    after: Option<Moment>,
    /// After we have applied the same again; none where that changed nothing.
    again: Option<Moment>,
}

/// Recorded results of one structure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Recorded {
    /// Right after our apply.
    applied: Moment,
    cases: Vec<Case>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Golden {
    /// The kind's schema and what it refers to, as the server publishes them.
    schemas: Value,
    structures: BTreeMap<String, Recorded>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ownership")
}

fn structures() -> Result<Vec<Structure>> {
    let text = std::fs::read_to_string(folder().join("structures.yaml"))?;
    Ok(serde_saphyr::from_str(&text)?)
}

/// Returns the real server's results, which are recorded anew if the golden file is to be written: once for both tests.
fn golden() -> Result<&'static Golden> {
    static READ: LazyLock<Result<Golden, String>> =
        LazyLock::new(|| read_golden().map_err(|error| format!("{error:#}")));
    READ.as_ref().map_err(|error| anyhow!("{error}"))
}

fn read_golden() -> Result<Golden> {
    let path = folder().join("golden.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let real =
            Real::from_environment().context("a golden file is written from a real server: set PILOTHOUSE_REAL_URL")?;
        let golden = Recorder::start(&real)?.record()?;
        // A line for each case: a change of one is a change of a line.
        let text = serde_json::to_string(&golden)?;
        let text = text
            .replace("{\"edit\":", "\n{\"edit\":")
            .replace("\"applied\":", "\n\"applied\":");
        std::fs::write(&path, text + "\n")?;
        return Ok(golden);
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

#[test]
fn the_simulated_server_leaves_an_applier_what_a_real_one_does() -> Result<()> {
    let golden = golden()?;
    let simulated = Simulated::new()?;
    let simulated = Recorder::start(&simulated)?.record()?;
    let mut differences = Vec::new();
    for (name, real) in &golden.structures {
        let ours = simulated
            .structures
            .get(name)
            .with_context(|| format!("{name} was not played"))?;
        if real.applied != ours.applied {
            differences.push(format!(
                "{name}, as applied\n- {}\n+ {}",
                json!(real.applied),
                json!(ours.applied)
            ));
        }
        ensure!(
            real.cases.len() == ours.cases.len(),
            "{name} has other cases: write the golden file anew with UPDATE_GOLDEN=1"
        );
        for (real, ours) in real.cases.iter().zip(&ours.cases) {
            if real != ours {
                differences.push(format!("{name}\n- {}\n+ {}", json!(real), json!(ours)));
            }
        }
    }
    ensure!(
        differences.is_empty(),
        "{} cases differ (- real, + simulated):\n{}",
        differences.len(),
        differences.join("\n")
    );
    Ok(())
}

#[test]
fn what_is_missing_is_what_was_lost() -> Result<()> {
    let golden = golden()?;
    let kind = Kind::new("g1.example.com", "v1", "Thing");
    let document = json!({"components": {"schemas": golden.schemas}}).to_string();
    let types = Types::parse(&document, &kind)?;
    let (mut wrong, mut lost_cases, mut whole_cases) = (Vec::new(), 0, 0);
    for Structure { name, desired, .. } in structures()? {
        let recorded = &golden.structures[&name];
        let body = json!({"spec": {name.as_str(): desired}});
        let as_applied = missing(&name, &recorded.applied, &body, LeafSemantics::By(&types))?;
        if !as_applied.0.is_empty() {
            wrong.push(format!("{name}, as applied: {:?} is not missing", as_applied.0));
        }
        for case in &recorded.cases {
            let Some(after) = &case.after else { continue };
            let was_lost = after.fields != recorded.applied.fields || is_reordered(&recorded.applied, after);
            let (found, _) = missing(&name, after, &body, LeafSemantics::By(&types))?;
            let (alone, unclear) = missing(&name, after, &body, LeafSemantics::of(&kind, None))?;
            let is_right = was_lost != found.is_empty()
                // Without the types the host must not say that nothing is missing where something is.
                && (was_lost || alone.is_empty()) && (!was_lost || !alone.is_empty() || unclear);
            if !is_right {
                wrong.push(format!(
                    "{name}: lost: {was_lost}, missing: {found:?}, alone: {alone:?} ({unclear})\n  as applied {}\n  {}",
                    json!(recorded.applied),
                    json!(case)
                ));
            }
            let healed = case.again.as_ref().unwrap_or(after);
            if healed.fields != recorded.applied.fields {
                wrong.push(format!("{name}: applying again does not heal {}", json!(case)));
            }
            if was_lost {
                lost_cases += 1;
            } else {
                whole_cases += 1;
            }
        }
    }
    ensure!(
        wrong.is_empty(),
        "{} cases are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    ensure!(
        lost_cases > 300 && whole_cases > 100,
        "{lost_cases} losses and {whole_cases} others are few"
    );
    Ok(())
}

/// Returns the parts of its body that the host misses, with the lists of its entry in the order of the live object as
/// the cache keeps them.
fn missing(name: &str, moment: &Moment, body: &Value, reading: LeafSemantics<'_>) -> Result<(Vec<String>, bool)> {
    let mut set: FieldSet = serde_json::from_value(moment.fields.clone())?;
    set.order_as(&json!({"spec": {name: moment.live}}));
    let body = body.as_object().context("a body is an object")?;
    let missing = set.missing(body, reading);
    Ok((missing.paths, missing.unclear))
}

/// Returns `true` if our items are in another order than right after our apply.
fn is_reordered(applied: &Moment, after: &Moment) -> bool {
    fn order<'a>(fields: &'a Value, live: &Value, orders: &mut Vec<Vec<&'a str>>) {
        let members = fields.as_object().into_iter().flatten();
        let mut items = Vec::new();
        for (name, below) in members {
            let item = |is_it: &dyn Fn(&Value) -> bool| live.as_array().and_then(|items| items.iter().position(is_it));
            let found = if let Some(name) = name.strip_prefix("f:") {
                live.get(name)
            } else if let Some(key) = name.strip_prefix("k:") {
                let key: Value = serde_json::from_str(key).unwrap_or_default();
                let has_key = |item: &Value| {
                    key.as_object()
                        .is_some_and(|key| key.iter().all(|(name, value)| item.get(name) == Some(value)))
                };
                let position = item(&has_key);
                items.extend(position.map(|position| (position, name.as_str())));
                position.and_then(|position| live.get(position))
            } else {
                let value: Value = serde_json::from_str(name.trim_start_matches("v:")).unwrap_or_default();
                items.extend(item(&|item| *item == value).map(|position| (position, name.as_str())));
                None
            };
            order(below, found.unwrap_or(&Value::Null), orders);
        }
        items.sort_unstable();
        orders.push(items.into_iter().map(|(_, name)| name).collect());
    }
    let orders = |moment: &Moment| {
        let mut orders = Vec::new();
        let structure = moment.fields["f:spec"]
            .as_object()
            .and_then(|spec| spec.values().next());
        order(structure.unwrap_or(&Value::Null), &moment.live, &mut orders);
        orders
            .iter()
            .map(|order| order.iter().map(|name| (*name).to_owned()).collect())
            .collect::<Vec<Vec<String>>>()
    };
    orders(applied) != orders(after)
}

/// Plays the cases against a server.
struct Recorder<'a> {
    server: &'a dyn Server,
    namespace: String,
    group: String,
    structures: Vec<Structure>,
    made: std::cell::Cell<u32>,
}

impl<'a> Recorder<'a> {
    /// Makes a namespace and a kind.
    fn start(server: &'a dyn Server) -> Result<Self> {
        let (namespace, group) = server.names();
        let recorder = Self {
            server,
            namespace,
            group,
            structures: structures()?,
            made: std::cell::Cell::new(0),
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": recorder.namespace}});
        recorder.created("/api/v1/namespaces", &namespace)?;
        let properties: serde_json::Map<String, Value> = recorder
            .structures
            .iter()
            .map(|structure| (structure.name.clone(), structure.schema.clone()))
            .collect();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{}", recorder.group)},
            "spec": {
                "group": recorder.group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}}],
            },
        });
        recorder.created("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)?;
        Ok(recorder)
    }

    fn created(&self, path: &str, object: &Value) -> Result<()> {
        let answer = self
            .server
            .send(&request("POST", path, "application/json", Some(object.to_string())))?;
        ensure!(answer.status == 201, "POST {path}: {}", answer.body);
        Ok(())
    }

    fn record(&self) -> Result<Golden> {
        let mut structures = BTreeMap::new();
        for structure in &self.structures {
            let recorded = self.structure(structure).with_context(|| structure.name.clone())?;
            structures.insert(structure.name.clone(), recorded);
        }
        Ok(Golden {
            schemas: self.schemas()?,
            structures,
        })
    }

    /// The kind's own part of the document of its group, under one name whatever the group is.
    fn schemas(&self) -> Result<Value> {
        let path = format!("/openapi/v3/apis/{}/v1", self.group);
        let answer = self.server.send(&request("GET", &path, "application/json", None))?;
        let schemas = answer.body["components"]["schemas"]
            .as_object()
            .context("a document has schemas")?
            .clone();
        let kept = schemas
            .into_iter()
            .filter(|(name, _)| name.ends_with(".Thing") || name.contains(".meta.v1."));
        let text = Value::Object(kept.collect()).to_string();
        let mut reversed: Vec<&str> = self.group.split('.').collect();
        reversed.reverse();
        let text = text
            .replace(&self.group, "g1.example.com")
            .replace(&reversed.join("."), "com.example.g1");
        Ok(serde_json::from_str(&text)?)
    }

    fn structure(&self, structure: &Structure) -> Result<Recorded> {
        let Structure {
            name, desired, other, ..
        } = structure;
        let (_, applied) = self.apply_ours(name, desired)?;
        let mut cases = Vec::new();
        for edit in edits(desired, other) {
            for way in WAYS {
                cases.push(self.case(name, desired, &edit, way)?);
            }
        }
        Ok(Recorded {
            applied: moment(name, &applied),
            cases,
        })
    }

    fn case(&self, name: &str, desired: &Value, edit: &Edit, way: Way) -> Result<Case> {
        let (path, mut object) = self.apply_ours(name, desired)?;
        let edited = match way {
            Way::Update => {
                // The edit is of what is there, defaults and all.
                let Some(value) = edit.of(&object["spec"][name]) else {
                    bail!("{} cannot be made of {}", edit.name, object["spec"][name])
                };
                object["spec"][name] = value;
                let path = format!("{path}?fieldManager={THEIRS}");
                self.server
                    .send(&request("PUT", &path, "application/json", Some(object.to_string())))?
            }
            Way::Force | Way::Drop => {
                let Some(value) = edit.of(desired) else {
                    bail!("{} cannot be made of {desired}", edit.name)
                };
                let forced = self.apply(&path, THEIRS, &json!({"spec": {name: value}}))?;
                if way == Way::Drop && forced.status < 400 {
                    self.apply(&path, THEIRS, &json!({}))?
                } else {
                    forced
                }
            }
        };
        let mut case = Case {
            edit: edit.name.clone(),
            way,
            after: None,
            again: None,
        };
        if edited.status >= 400 {
            return Ok(case);
        }
        let again = self.apply(&path, OURS, &json!({"spec": {name: desired}}))?;
        ensure!(again.status == 200, "apply again: {}", again.body);
        let version = |body: &Value| body["metadata"]["resourceVersion"].to_string();
        if version(&again.body) != version(&edited.body) {
            case.again = Some(moment(name, &again.body));
        }
        case.after = Some(moment(name, &edited.body));
        Ok(case)
    }

    /// Applies what is desired to an object that nobody has used.
    fn apply_ours(&self, name: &str, desired: &Value) -> Result<(String, Value)> {
        self.made.set(self.made.get() + 1);
        let path = format!(
            "/apis/{}/v1/namespaces/{}/things/t{}",
            self.group,
            self.namespace,
            self.made.get()
        );
        let start = Instant::now();
        loop {
            let answer = self.apply(&path, OURS, &json!({"spec": {name: desired}}))?;
            match answer.status {
                201 => return Ok((path, answer.body)),
                // A new kind is served a moment after its definition says so; there is nothing else to wait for.
                404 | 429 | 503 if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(50)),
                _ => bail!("apply {desired}: {}", answer.body),
            }
        }
    }

    fn apply(&self, path: &str, manager: &str, rest: &Value) -> Result<Answer> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut body = json!({"apiVersion": format!("{}/v1", self.group), "kind": "Thing", "metadata": {"name": name}});
        if let Some(spec) = rest.get("spec") {
            body["spec"] = spec.clone();
        }
        let path = format!("{path}?fieldManager={manager}&force=true");
        self.server.send(&request(
            "PATCH",
            &path,
            "application/apply-patch+yaml",
            Some(body.to_string()),
        ))
    }
}

fn moment(name: &str, object: &Value) -> Moment {
    let entries = object["metadata"]["managedFields"].as_array();
    let ours = |entry: &&Value| entry["manager"] == OURS && entry["operation"] == "Apply";
    Moment {
        fields: entries
            .and_then(|entries| entries.iter().find(ours))
            .map_or_else(|| json!({}), |entry| entry["fieldsV1"].clone()),
        live: object["spec"][name].clone(),
    }
}
