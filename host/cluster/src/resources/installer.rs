//! Sends the requests of an installer: applies a plugin's account, roles, bindings and Plugin resource one by one,
//! finds the objects of an earlier installation, and deletes. Selecting these objects is left to
//! `pilothouse_core::rights`.
//!
//! Objects without the plugin's label are never changed. Otherwise a user who may create a role could prepare one that
//! an administrator's installation then binds.

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use pilothouse_core::admission::configuration::PLUGIN_LABEL;
use pilothouse_core::kubernetes::served::{KindFacts, ServedKind};
use pilothouse_core::ownership::takeover::take_over_below;
use pilothouse_core::rights::objects::{
    MANAGED_BY, MANAGED_BY_LABEL, RBAC_GROUP, account_name, act_name, edit_name, label_selector, view_name, watch_name,
};
use pilothouse_core::rights::{built_in, escalation};
use pilothouse_core::{Kind, Name};
use serde_json::{Map, Value, json};

use crate::error::RequestError;
use crate::write::send::send;
use crate::write::{ApplyPrecondition, FieldManagerClient};

/// The field manager of an installation.
pub const MANAGER: &str = "pilothouse-install";

/// Objects in a page of a list.
const PAGE: u32 = 500;

/// Creates and removes the objects that a plugin needs in a cluster.
pub struct Installer {
    client: Client,
    writer: FieldManagerClient,
    plugin: String,
}

/// The result of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The object did not exist.
    Created,
    /// The object existed, and differed.
    Changed,
    /// The object existed as wanted.
    Unchanged,
}

/// The reason why an object is not as wanted.
#[derive(Debug, thiserror::Error)]
pub enum InstallerError {
    /// The API server refused a request, or the request failed.
    #[error("cannot {verb} {title}: {source}")]
    Request {
        /// The attempted action.
        verb: &'static str,
        /// The object.
        title: String,
        /// The error of the request.
        #[source]
        source: RequestError,
    },
    /// The user lacks the right.
    #[error(
        "cannot {verb} {title}: {message}; have somebody who may do it apply what `pilothouse install` prints with -o yaml"
    )]
    Forbidden {
        /// The attempted action.
        verb: &'static str,
        /// The object.
        title: String,
        /// The API server's message.
        message: String,
    },
    /// The user would grant more rights than they have.
    #[error(
        "cannot apply {title}: it grants rights that you do not have yourself, and the API server lets nobody grant these: \
         {missing}; have somebody who has them, or who may `escalate` and `bind` roles, apply what `pilothouse install` prints \
         with -o yaml"
    )]
    Escalation {
        /// The role or the binding.
        title: String,
        /// The rights.
        missing: String,
    },
    /// The object belongs to someone else.
    #[error(
        "{title} exists and is not one that pilothouse has made for plugin {plugin}; delete it if nobody needs it, or give the plugin another name with NAME="
    )]
    Foreign {
        /// The object.
        title: String,
        /// The plugin.
        plugin: String,
    },
    /// A binding's role cannot be changed.
    #[error(
        "{title} binds another role, and a binding's role cannot be changed; delete the binding, and run the command again"
    )]
    OtherRole {
        /// The binding.
        title: String,
    },
    /// The role was deleted meanwhile.
    #[error("{0} binds a role that does not exist; run the command again, which makes it")]
    NoRole(String),
    /// Other managers hold fields of the Plugin.
    #[error(
        "{title} exists, and others have set {fields}; have them change it, or take it over with --force-conflicts"
    )]
    Held {
        /// The Plugin.
        title: String,
        /// The fields and their managers.
        fields: String,
    },
    /// The object is being deleted.
    #[error("{0} is being deleted; run the command again when it is gone")]
    BeingDeleted(String),
    /// The object was changed at the same moment.
    #[error("{0} was changed at the same moment; run the command again")]
    Meanwhile(String),
    /// The namespace does not exist.
    #[error("there is no namespace {0}; create it, or name another")]
    NoNamespace(String),
    /// The namespace is being deleted and accepts no new objects.
    #[error("namespace {0} is being deleted and takes nothing new; create it again when it is gone, or name another")]
    Terminating(String),
    /// The CRD of Plugin is not installed.
    #[error(
        "the cluster does not serve pilothouse.dev/v1alpha1 Plugin; install the host's CRD first: run the host with \
         --install-crds, or install its chart"
    )]
    NoPluginKind,
}

impl Installer {
    /// An installer for one plugin.
    pub fn new(client: Client, plugin: &str) -> Self {
        Self {
            writer: FieldManagerClient::new(client.clone(), MANAGER.into()),
            client,
            plugin: plugin.to_owned(),
        }
    }

    /// Checks that objects can be created in a namespace. A user who may not read it gets the error at creation.
    pub async fn check_namespace(&self, namespace: &str) -> Result<(), InstallerError> {
        let served = served(&Kind::new("", "v1", "Namespace"));
        let name = Name::new(None, namespace);
        match self.writer.live_whole(&served, &name).await {
            Ok(None) => Err(InstallerError::NoNamespace(namespace.to_owned())),
            Ok(Some(live)) if is_deleting(&live) => Err(InstallerError::Terminating(namespace.to_owned())),
            Ok(Some(_)) => Ok(()),
            Err(error) if error.code() == Some(403) => Ok(()),
            Err(source) => Err(failed("look at", format!("namespace {namespace}"), source)),
        }
    }

    /// The live object, by kind, namespace and name.
    pub async fn find(&self, object: &Value) -> Result<Option<Value>, InstallerError> {
        let (served, name) = place(object);
        let live = self.writer.live_whole(&served, &name).await;
        match live {
            Ok(live) => Ok(live),
            // Without a name in the answer it is the kind that is not served.
            Err(error) if error.is_not_found() && served.kind.kind == "Plugin" => Err(InstallerError::NoPluginKind),
            Err(source) => Err(failed("look at", title(object), source)),
        }
    }

    /// Refuses to change objects that an installation must not change, before anything is applied.
    pub fn check(&self, object: &Value, live: &Value) -> Result<(), InstallerError> {
        let title = || title(object);
        if is_deleting(live) {
            return Err(InstallerError::BeingDeleted(title()));
        }
        if object["kind"] == "Plugin" {
            return Ok(());
        }
        let labels = &live["metadata"]["labels"];
        let is_ours = labels[MANAGED_BY_LABEL] == MANAGED_BY && labels[PLUGIN_LABEL] == *self.plugin;
        // A role that collects the rules of others has more than it is given here.
        if !is_ours || !live["aggregationRule"].is_null() {
            return Err(InstallerError::Foreign {
                title: title(),
                plugin: self.plugin.clone(),
            });
        }
        if object["roleRef"] != live["roleRef"] {
            return Err(InstallerError::OtherRole { title: title() });
        }
        Ok(())
    }

    /// Applies an object, if none of its name exists, or if it is the plugin's. With `force` fields of a Plugin that others
    /// have set are taken over, and all of its source.
    pub async fn apply(&self, object: &Value, force: bool) -> Result<Applied, InstallerError> {
        let live = self.find(object).await?;
        let (served, name) = place(object);
        let Some(live) = live else {
            let body = body(object, None);
            let applied = self.writer.apply(&served, &name, &body, ApplyPrecondition::Absent);
            return match applied.await {
                Ok(_) => Ok(Applied::Created),
                Err(error) => Err(refused(object, None, error)),
            };
        };
        self.check(object, &live)?;
        if force && taken_source(object, &live).is_some() {
            let found = self.writer.live(&served, &name).await;
            let found = found.map_err(|source| failed("look at", title(object), source))?;
            let managers = found.as_ref().and_then(|found| taken_over(object, &found.managers));
            if let (Some(found), Some(managers)) = (found, managers) {
                let moved = self.writer.set_managers(&served, &found.object, managers).await;
                drop(moved.map_err(|error| refused(object, Some(&live), error))?);
            }
        }
        let body = body(object, Some(&live));
        let applied = self
            .writer
            .apply(&served, &name, &body, precondition(object, &live, force));
        let applied = applied.await.map_err(|error| refused(object, Some(&live), error))?;
        if live["metadata"]["resourceVersion"] == *applied.object.resource_version {
            return Ok(Applied::Unchanged);
        }
        // The server also stores defaults that are new since the last write, and others write the status meanwhile.
        let now = self.find(object).await.ok().flatten();
        let is_same = now.map(configured) == Some(configured(live));
        Ok(if is_same { Applied::Unchanged } else { Applied::Changed })
    }

    /// Checks, by a dry run, whether the server would apply an object. Returns the reason why that cannot be tried, if
    /// there is one.
    pub async fn try_apply(
        &self,
        object: &Value,
        live: Option<&Value>,
        force: bool,
    ) -> Result<Option<String>, InstallerError> {
        let (served, name) = place(object);
        let body = body(object, live);
        let tried = match live {
            None => {
                let tried = self
                    .writer
                    .check_apply(&served, &name, &body, ApplyPrecondition::Absent);
                tried.await
            }
            Some(live) => {
                // The fields of others go before the apply, and no dry run does both.
                if let Some(wanted) = taken_source(object, live).filter(|_| force) {
                    self.writer.try_update(&served, &name, live, &wanted).await
                } else {
                    let target = precondition(object, live, force);
                    self.writer.check_apply(&served, &name, &body, target).await
                }
            }
        };
        match tried.map_err(|error| refused(object, live, error)) {
            Ok(()) => Ok(None),
            Err(InstallerError::NoRole(_)) => Ok(Some("the role that it binds is made by the same run".to_owned())),
            Err(error) if is_untriable(&error) => Ok(Some(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Checks, by a dry run, whether the server would delete an object.
    pub async fn try_delete(&self, object: &Value) -> Result<Option<String>, InstallerError> {
        let (served, name) = place(object);
        let live = self.writer.live(&served, &name).await;
        let Some(live) = live.map_err(|source| failed("look at", title(object), source))? else {
            return Ok(None);
        };
        match self.writer.try_delete(&served, &live.object).await {
            Ok(()) => Ok(None),
            Err(error) => match failed("delete", title(object), error) {
                error if is_untriable(&error) => Ok(Some(error.to_string())),
                error => Err(error),
            },
        }
    }

    /// All Plugins of the cluster.
    pub async fn plugins(&self) -> Result<Vec<Value>, InstallerError> {
        let mut found = Vec::new();
        let kind = served(&Kind::new("pilothouse.dev", "v1alpha1", "Plugin"));
        let listed = self.pages(&kind, None, "", &mut |plugin| found.push(plugin)).await;
        match listed {
            Err(error) if error.is_not_found() => Err(InstallerError::NoPluginKind),
            listed => listed
                .map(|()| found)
                .map_err(|source| failed("list", "each Plugin".to_owned(), source)),
        }
    }

    /// The accounts, roles and bindings installed for the plugin, in any namespace: bindings first, the account last.
    pub async fn installed(&self) -> Result<Vec<Value>, InstallerError> {
        let mut installed = Vec::new();
        for (group, kind) in [
            (RBAC_GROUP, "ClusterRoleBinding"),
            (RBAC_GROUP, "RoleBinding"),
            (RBAC_GROUP, "ClusterRole"),
            (RBAC_GROUP, "Role"),
            ("", "ServiceAccount"),
        ] {
            let kind = Kind::new(group, "v1", kind);
            let found = self.list(&kind).await;
            let title = || format!("each {} of plugin {}", kind.kind, self.plugin);
            installed.extend(found.map_err(|source| failed("list", title(), source))?);
        }
        let names = [
            account_name(&self.plugin),
            watch_name(&self.plugin),
            act_name(&self.plugin),
            view_name(&self.plugin),
            edit_name(&self.plugin),
        ];
        installed.retain(|object| names.iter().any(|name| object["metadata"]["name"] == **name));
        Ok(installed)
    }

    async fn list(&self, kind: &Kind) -> Result<Vec<Value>, RequestError> {
        let mut found = Vec::new();
        self.pages(&served(kind), None, &label_selector(&self.plugin), &mut |object| {
            found.push(object);
        })
        .await?;
        Ok(found)
    }

    /// Objects of a built-in kind with these labels, in one namespace or in all.
    pub async fn labelled(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<Value>, InstallerError> {
        let mut found = Vec::new();
        let (served, mut keep) = (served(kind), |object| found.push(object));
        let listed = self.pages(&served, namespace, selector, &mut keep);
        listed.await.map_err(|source| {
            let place = namespace.map(|namespace| format!(" of namespace {namespace}"));
            failed(
                "list",
                format!("each {}{}", kind.kind, place.unwrap_or_default()),
                source,
            )
        })?;
        Ok(found)
    }

    async fn pages(
        &self,
        served: &ServedKind,
        namespace: Option<&str>,
        selector: &str,
        show: &mut impl FnMut(Value),
    ) -> Result<(), RequestError> {
        let kind = &served.kind;
        let selector = utf8_percent_encode(selector, NON_ALPHANUMERIC).to_string();
        let garbled = |error: &dyn std::fmt::Display| RequestError::Garbled(error.to_string());
        let mut token = String::new();
        loop {
            let path = served.path(namespace, None);
            let request = Request::builder()
                .method(Method::GET)
                .uri(format!("{path}?labelSelector={selector}&limit={PAGE}&continue={token}"))
                .body(Body::empty())
                .map_err(|error| garbled(&error))?;
            let (_, text) = send(&self.client, request).await?;
            let mut list: Value = serde_json::from_str(&text).map_err(|error| garbled(&error))?;
            for item in list["items"].as_array_mut().into_iter().flatten() {
                // The items of a list have neither apiVersion nor kind.
                item["apiVersion"] = json!(kind.api_version());
                item["kind"] = json!(kind.kind);
                show(item.take());
            }
            match list["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => {
                    token = utf8_percent_encode(next, NON_ALPHANUMERIC).to_string();
                }
                _ => return Ok(()),
            }
        }
    }

    /// Calls `show` with each object of a kind.
    pub async fn each(&self, served: &ServedKind, mut show: impl FnMut(Value)) -> Result<(), InstallerError> {
        let title = || format!("each {}", served.kind.kind);
        self.pages(served, None, "", &mut show)
            .await
            .map_err(|source| failed("list", title(), source))
    }

    /// Deletes an object in the state in which it was found. Returns whether it still existed.
    pub async fn delete(&self, object: &Value) -> Result<bool, InstallerError> {
        let (served, name) = place(object);
        let live = self.writer.live(&served, &name).await;
        let Some(live) = live.map_err(|source| failed("look at", title(object), source))? else {
            return Ok(false);
        };
        if *live.object.uid != *object["metadata"]["uid"].as_str().unwrap_or_default() {
            return Err(InstallerError::Meanwhile(title(object)));
        }
        match self.writer.delete(&served, &live.object).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) if error.code() == Some(409) => Err(InstallerError::Meanwhile(title(object))),
            Err(source) => Err(failed("delete", title(object), source)),
        }
    }
}

/// The title in messages: `Role a/pilothouse-plugin-web`.
pub fn title(object: &Value) -> String {
    let (served, name) = place(object);
    format!("{} {name}", served.kind.kind)
}

fn place(object: &Value) -> (ServedKind, Name) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = Kind::from_api_version(&text(&object["apiVersion"]), &text(&object["kind"]));
    let metadata = &object["metadata"];
    let name = Name::new(metadata["namespace"].as_str(), &text(&metadata["name"]));
    (served(&kind), name)
}

/// The resource of a kind. An installer handles built-in kinds and the Plugin.
fn served(kind: &Kind) -> ServedKind {
    built_in::served(kind).unwrap_or_else(|| ServedKind {
        short_names: Vec::new(),
        kind: kind.clone().into(),
        plural: "plugins".to_owned(),
        facts: KindFacts {
            namespaced: false,
            has_status: true,
        },
    })
}

fn is_deleting(live: &Value) -> bool {
    !live["metadata"]["deletionTimestamp"].is_null()
}

fn failed(verb: &'static str, title: String, source: RequestError) -> InstallerError {
    if source.is_missing_right() {
        return InstallerError::Forbidden {
            verb,
            title,
            message: source.to_string(),
        };
    }
    InstallerError::Request { verb, title, source }
}

/// The body of an apply. That of a Plugin carries the uid of the live one: fields that users have changed are left to them.
fn body(object: &Value, live: Option<&Value>) -> Map<String, Value> {
    let mut body: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    if let (Some(Value::Object(metadata)), Some(live)) = (body.get_mut("metadata"), live)
        && object["kind"] == "Plugin"
    {
        metadata.insert("uid".to_owned(), live["metadata"]["uid"].clone());
    }
    body
}

fn precondition<'a>(object: &Value, live: &'a Value, force: bool) -> ApplyPrecondition<'a> {
    if object["kind"] == "Plugin" && !force {
        return ApplyPrecondition::AsInBody;
    }
    ApplyPrecondition::Uid(live["metadata"]["uid"].as_str().unwrap_or_default())
}

/// The part of an object that clients configure, without what its server counts and its controller reports.
fn configured(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for member in ["resourceVersion", "generation", "managedFields"] {
            metadata.remove(member);
        }
    }
    object
}

/// The managedFields of a live Plugin after its source was taken over; none if nobody else has set a part of it.
fn taken_over(object: &Value, managers: &[Value]) -> Option<Vec<Value>> {
    if object["kind"] != "Plugin" {
        return None;
    }
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    take_over_below(managers, &["spec", "source"], MANAGER, api_version)
}

/// The live Plugin with the source of the wanted one, if others have set a part of it.
fn taken_source(object: &Value, live: &Value) -> Option<Value> {
    let managers = live["metadata"]["managedFields"].as_array()?;
    taken_over(object, managers)?;
    let mut wanted = live.clone();
    wanted["spec"]["source"] = object["spec"]["source"].clone();
    Some(wanted)
}

/// Reports whether a webhook answers no dry runs, so that only the write itself shows what it says.
fn is_untriable(error: &InstallerError) -> bool {
    error.to_string().contains("does not support dry run")
}

/// Converts the refusal of an apply.
fn refused(object: &Value, live: Option<&Value>, error: RequestError) -> InstallerError {
    let title = title(object);
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if error.is_in_terminating_namespace() {
        return InstallerError::Terminating(namespace.to_owned());
    }
    if let Some(missing) = escalation::missing(&error.to_string()) {
        return InstallerError::Escalation { title, missing };
    }
    let held = error.held_by_others();
    if !held.is_empty() {
        let fields = held.iter().map(|held| format!("{} ({})", held.path, held.manager));
        let fields = fields.collect::<Vec<_>>().join(", ");
        return InstallerError::Held { title, fields };
    }
    // What others have set beside the new source contradicts it.
    if error.code() == Some(422) && live.is_some_and(|live| taken_source(object, live).is_some()) {
        let fields = format!(".spec.source ({error})");
        return InstallerError::Held { title, fields };
    }
    match error.code() {
        Some(409) => InstallerError::Meanwhile(title),
        Some(404) if error.to_string().starts_with("namespaces ") => InstallerError::NoNamespace(namespace.to_owned()),
        Some(404) if !object["roleRef"].is_null() => InstallerError::NoRole(title),
        _ => failed("apply", title, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(labels: &Value) -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "pilothouse-plugin-web", "labels": labels},
        })
    }

    #[tokio::test]
    async fn an_object_of_others_is_not_changed() {
        let service = tower::service_fn(async |_: Request<Body>| {
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()))
        });
        let installer = Installer::new(Client::new(service, "default"), "web");
        let ours = json!({MANAGED_BY_LABEL: MANAGED_BY, PLUGIN_LABEL: "web"});
        assert!(installer.check(&role(&ours), &role(&ours)).is_ok());
        for labels in [
            json!({}),
            json!({MANAGED_BY_LABEL: MANAGED_BY, PLUGIN_LABEL: "other"}),
            json!({PLUGIN_LABEL: "web"}),
        ] {
            let error = installer.check(&role(&ours), &role(&labels)).unwrap_err();
            assert!(matches!(error, InstallerError::Foreign { .. }), "{error}");
        }
        let mut collecting = role(&ours);
        collecting["aggregationRule"] = json!({"clusterRoleSelectors": [{}]});
        let error = installer.check(&role(&ours), &collecting).unwrap_err();
        assert!(matches!(error, InstallerError::Foreign { .. }), "{error}");
        let mut going = role(&ours);
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let error = installer.check(&role(&ours), &going).unwrap_err();
        assert!(matches!(error, InstallerError::BeingDeleted(_)), "{error}");
    }

    #[test]
    fn plurals_of_kubernetes_are_those_of_its_types() {
        use k8s_openapi::Resource;
        use k8s_openapi::api::{
            autoscaling, batch, certificates, coordination, discovery, flowcontrol, node, policy, scheduling, storage,
        };

        fn check<T: Resource>() {
            let served = built_in::served(&Kind::new(T::GROUP, T::VERSION, T::KIND));
            assert_eq!(served.map(|served| served.plural).as_deref(), Some(T::URL_PATH_SEGMENT));
        }
        check::<autoscaling::v2::HorizontalPodAutoscaler>();
        check::<batch::v1::CronJob>();
        check::<certificates::v1::CertificateSigningRequest>();
        check::<coordination::v1::Lease>();
        check::<discovery::v1::EndpointSlice>();
        check::<flowcontrol::v1::FlowSchema>();
        check::<flowcontrol::v1::PriorityLevelConfiguration>();
        check::<node::v1::RuntimeClass>();
        check::<policy::v1::PodDisruptionBudget>();
        check::<scheduling::v1::PriorityClass>();
        check::<storage::v1::VolumeAttachment>();
    }
}
