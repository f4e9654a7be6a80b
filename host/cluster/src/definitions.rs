//! Owns following the CustomResourceDefinitions of the cluster by their metadata: which there are, and when one's
//! specification changes. What that means for kinds is left to host/runtime.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};

use crate::error::RequestError;
use crate::read_timeout::with_read_timeout;
use crate::watch_backoff::watch_backoff;

/// Definitions in a page of a list: the metadata of one may be as large as the definition itself.
const PAGE: u32 = 50;

/// How long a host without the right to see definitions waits before it asks again.
const FORBIDDEN: Duration = Duration::from_mins(10);

/// What has become of definitions. They are called by their names, `plural.group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinitionEvent {
    /// All of them have been listed for the first time.
    Listed,
    /// There is a new one, or one has another specification.
    Changed(String),
    /// Something else about one has changed: that it is served, say.
    Touched(String),
    /// One is gone.
    Gone(String),
    /// The host may not see them.
    Forbidden(String),
}

/// A definition as far as it is told from another: uid, generation, and the version in which it was seen.
type DefinitionStamp = (String, i64, String);

/// Tells what becomes of definitions, for ever.
pub async fn follow(client: Client, mut tell: impl FnMut(DefinitionEvent)) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(with_read_timeout(client), &resource);
    let mut known: Option<HashMap<String, DefinitionStamp>> = None;
    loop {
        let config = watcher::Config::default().page_size(PAGE);
        let stream = watcher::watcher(api.clone(), config).backoff(watch_backoff("definitions"));
        let mut stream = std::pin::pin!(stream);
        let mut listed = HashMap::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    let (name, stamp) = read(object.metadata);
                    listed.insert(name, stamp);
                }
                Ok(Event::InitDone) => {
                    let now = std::mem::take(&mut listed);
                    match known.replace(now) {
                        None => tell(DefinitionEvent::Listed),
                        Some(before) => compare(&before, known.as_ref().unwrap_or(&before), &mut tell),
                    }
                }
                Ok(Event::Apply(object)) => {
                    let (name, stamp) = read(object.metadata);
                    let before = known.get_or_insert_default().insert(name.clone(), stamp.clone());
                    if let Some(news) = news(&name, before.as_ref(), &stamp) {
                        tell(news);
                    }
                }
                Ok(Event::Delete(object)) => {
                    let (name, _) = read(object.metadata);
                    known.get_or_insert_default().remove(&name);
                    tell(DefinitionEvent::Gone(name));
                }
                Err(error) => {
                    if let Some(words) = forbidden(error) {
                        tell(DefinitionEvent::Forbidden(words));
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(FORBIDDEN).await;
    }
}

/// What a list shows that was not seen.
fn compare(
    before: &HashMap<String, DefinitionStamp>,
    now: &HashMap<String, DefinitionStamp>,
    tell: &mut impl FnMut(DefinitionEvent),
) {
    for name in before.keys().filter(|name| !now.contains_key(*name)) {
        tell(DefinitionEvent::Gone(name.clone()));
    }
    for (name, stamp) in now {
        if let Some(news) = news(name, before.get(name), stamp) {
            tell(news);
        }
    }
}

fn news(name: &str, before: Option<&DefinitionStamp>, now: &DefinitionStamp) -> Option<DefinitionEvent> {
    match before {
        Some(before) if before == now => None,
        Some((uid, generation, _)) if *uid == now.0 && *generation == now.1 => {
            Some(DefinitionEvent::Touched(name.to_owned()))
        }
        _ => Some(DefinitionEvent::Changed(name.to_owned())),
    }
}

fn read(metadata: ObjectMeta) -> (String, DefinitionStamp) {
    let stamp = (
        metadata.uid.unwrap_or_default(),
        metadata.generation.unwrap_or_default(),
        metadata.resource_version.unwrap_or_default(),
    );
    (metadata.name.unwrap_or_default(), stamp)
}

/// The words of the server, if it does not let definitions be seen.
fn forbidden(error: watcher::Error) -> Option<String> {
    let error = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => RequestError::from(error),
        watcher::Error::WatchError(status) => RequestError::Answered(status),
        watcher::Error::NoResourceVersion => return None,
    };
    (error.code() == Some(403)).then(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_after_a_gap_tells_what_was_missed() {
        let stamp = |generation, version: &str| ("u".to_owned(), generation, version.to_owned());
        let map = |entries: &[(&str, DefinitionStamp)]| -> HashMap<String, DefinitionStamp> {
            entries
                .iter()
                .map(|(name, stamp)| ((*name).to_owned(), stamp.clone()))
                .collect()
        };
        let before = map(&[
            ("a", stamp(1, "1")),
            ("b", stamp(1, "2")),
            ("c", stamp(1, "3")),
            ("d", stamp(1, "4")),
        ]);
        let now = map(&[
            ("a", stamp(1, "1")),
            ("b", stamp(2, "5")),
            ("c", stamp(1, "6")),
            ("e", stamp(1, "7")),
        ]);
        let mut told = Vec::new();
        compare(&before, &now, &mut |news| told.push(format!("{news:?}")));
        told.sort();
        assert_eq!(
            told,
            [r#"Changed("b")"#, r#"Changed("e")"#, r#"Gone("d")"#, r#"Touched("c")"#]
        );
    }
}
