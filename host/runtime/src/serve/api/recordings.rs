//! Makes the document about a recording: selects the plugin, begins the recording or reports its progress, and ends it.
//! Like a watch, a recording lasts as long as a client asks for it, which is why a GET begins it: no other right to the
//! API server's proxy is needed than for the rest of the API.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pilothouse_cluster::write::permissions::Permission;
use pilothouse_core::{Kind, Name};

use super::access::Refusal;
use super::documents::RecordingDocument;
use super::objects::{UnknownObject, placed, resolve};
use super::status::{ProcessFacts, host};
use crate::context::HostContext;
use crate::plugins::PluginRegistry;
use crate::process::clock::rfc3339;
use crate::telemetry::recording::{LONGEST, MOST_CALLS, RecordingError, RecordingProgress, RecordingQuestion};

/// The longest value in a query, in bytes.
const MOST_TEXT: usize = 512;

/// Duration and number of calls of a recording, unless the query sets them.
const DEFAULT_SECONDS: u64 = 60;
const DEFAULT_CALLS: u64 = 1000;

/// A query for a recording, before its plugin is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedRecording {
    /// Identifier that the client chose.
    pub id: String,
    /// The plugin's name.
    plugin: Option<String>,
    /// A kind as people write it, and an object of it.
    object: Option<(String, Name)>,
    within: Duration,
    count: u64,
    /// Set if the recording has to end.
    pub finish: bool,
}

impl From<RecordingError> for Refusal {
    fn from(error: RecordingError) -> Self {
        let code = match error {
            RecordingError::NotAllowed => 403,
            RecordingError::TooMany => 429,
            RecordingError::Taken => 400,
            RecordingError::Unknown => 404,
            RecordingError::NoKey(_) | RecordingError::NoMask(_) => 503,
        };
        Self::new(code, error.to_string())
    }
}

impl AskedRecording {
    /// Reads the query of a request.
    pub fn read(query: &str) -> Result<Self, Refusal> {
        let no_question = || {
            Refusal::new(
                400,
                format!(
                    "ask for id=ID and plugin=NAME, or kind=KIND, name=NAME and, for an object in a namespace, \
                     namespace=NAMESPACE, without escapes; seconds may be 1 to {}, count 1 to {MOST_CALLS}",
                    LONGEST.as_secs()
                ),
            )
        };
        let mut members = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (member, value) = pair.split_once('=').ok_or_else(no_question)?;
            let is_plain = value.len() <= MOST_TEXT && !value.contains(['%', '+', '/']);
            if !is_plain || members.insert(member, value).is_some() {
                return Err(no_question());
            }
        }
        let mut take = |member| {
            members
                .remove(member)
                .filter(|value| !value.is_empty())
                .map(str::to_owned)
        };
        let (id, plugin, kind, name, namespace) = (
            take("id"),
            take("plugin"),
            take("kind"),
            take("name"),
            take("namespace"),
        );
        let (seconds, count, finish) = (take("seconds"), take("count"), take("finish"));
        let number = |text: Option<String>, default: u64, most: u64| match text {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(number) if (1..=most).contains(&number) => Ok(number),
                _ => Err(no_question()),
            },
        };
        let object = match (kind, name) {
            (Some(kind), Some(name)) => Some((kind, Name::new(namespace.as_deref(), &name))),
            (None, None) if namespace.is_none() => None,
            _ => return Err(no_question()),
        };
        if plugin.is_none() && object.is_none() {
            return Err(no_question());
        }
        Ok(Self {
            id: id.ok_or_else(no_question)?,
            plugin,
            object,
            within: Duration::from_secs(number(seconds, DEFAULT_SECONDS, LONGEST.as_secs())?),
            count: number(count, DEFAULT_CALLS, MOST_CALLS)?,
            finish: finish.as_deref() == Some("true"),
        })
    }

    /// Resolves the plugin and the object.
    pub fn meant(&self, context: &HostContext) -> Result<RecordingQuestion, Refusal> {
        context.recordings.check_allowed()?;
        let object = match &self.object {
            Some((kind, name)) => {
                let kind = resolve(context, kind)?;
                let name = placed(context, &kind, name.clone());
                Some((kind, name))
            }
            None => None,
        };
        let kind: Option<&Kind> = object.as_ref().map(|(kind, _)| kind);
        let lanes = context.state.lanes();
        let plugins: BTreeSet<&str> = lanes
            .iter()
            .filter(|lane| kind.is_none_or(|kind| kind.same_kind(lane.grants.primary())))
            .map(|lane| &*lane.plugin)
            .filter(|plugin| self.plugin.as_deref().is_none_or(|wanted| wanted == *plugin))
            .collect();
        let plugins: Vec<&str> = plugins.into_iter().collect();
        match (plugins.as_slice(), &self.plugin, kind) {
            ([plugin], _, _) => Ok(RecordingQuestion {
                plugin: (*plugin).to_owned(),
                object,
                within: self.within,
                count: self.count,
            }),
            ([], Some(plugin), Some(kind)) => Err(Refusal::new(
                404,
                format!(
                    "no plugin {plugin} of this host reconciles {kind}; `pilothouse status` lists plugins and kinds"
                ),
            )),
            ([], Some(plugin), None) => Err(Refusal::new(
                404,
                format!("no plugin {plugin} runs at this host; `pilothouse status` lists the plugins"),
            )),
            ([], None, _) => Err(UnknownObject::Kind(kind.map_or_else(String::new, ToString::to_string)).into()),
            (several, _, _) => Err(Refusal::new(
                400,
                format!("{} reconcile this kind; name one with --plugin", several.join(" and ")),
            )),
        }
    }
}

/// The right to record the calls of a plugin. It is separate, because a recording has all that the plugin reads,
/// independent of who may see that otherwise.
pub fn to_record(plugin: &str) -> Permission {
    Permission {
        group: pilothouse_crds::plugin::GROUP.to_owned(),
        resource: "plugins".to_owned(),
        namespace: None,
        name: Some(plugin.to_owned()),
        verb: "record",
    }
}

/// Begins a recording if this process works, and reports its progress.
pub fn begin(
    process: &ProcessFacts,
    context: &HostContext,
    registry: &PluginRegistry,
    id: &str,
    question: RecordingQuestion,
) -> Result<RecordingDocument, Refusal> {
    let works = context.leadership.leads() || context.shards.lock().is_some();
    let progress = if works {
        let lanes = context.state.lanes();
        let lane = lanes.iter().find(|lane| *lane.plugin == *question.plugin).cloned();
        let lane = lane.ok_or_else(|| Refusal::new(404, format!("plugin {} has just ended", question.plugin)))?;
        let begun = rfc3339(context.clock.now());
        context.recordings.begin(id, question, lane, begun)?
    } else {
        RecordingProgress::default()
    };
    Ok(document(process, context, registry, works, progress))
}

/// The document about a recording, without its lines.
pub fn document(
    process: &ProcessFacts,
    context: &HostContext,
    registry: &PluginRegistry,
    works: bool,
    progress: RecordingProgress,
) -> RecordingDocument {
    let mut host = host(process, context, registry);
    // They name plugins, which takes a right of its own.
    host.not_ready.clear();
    let RecordingProgress {
        calls,
        dropped,
        bytes,
        is_over,
    } = progress;
    RecordingDocument {
        host,
        reconciled_here: works,
        over: is_over,
        calls,
        dropped,
        bytes,
        lines: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_a_plugin_or_an_object() {
        let read = |query: &str| AskedRecording::read(query);
        let asked = read("id=1&kind=appservice&name=web&namespace=shop&seconds=5&count=2&finish=true").unwrap();
        assert_eq!(
            asked,
            AskedRecording {
                id: "1".to_owned(),
                plugin: None,
                object: Some(("appservice".to_owned(), Name::new(Some("shop"), "web"))),
                within: Duration::from_secs(5),
                count: 2,
                finish: true,
            }
        );
        let asked = read("id=1&plugin=a").unwrap();
        assert_eq!(
            (asked.within, asked.count, asked.finish),
            (Duration::from_mins(1), 1000, false)
        );
        for refused in [
            "",
            "plugin=a",
            "id=1",
            "id=1&kind=a",
            "id=1&plugin=a&namespace=b",
            "id=1&plugin=a&seconds=0",
            "id=1&plugin=a&seconds=3601",
            "id=1&plugin=a&count=x",
            "id=1&plugin=a%2F",
            "id=1&plugin=a&plugin=b",
        ] {
            assert_eq!(read(refused).unwrap_err().code, 400, "{refused}");
        }
    }
}
