//! Runs a scenario's steps one after the other, in a namespace of its own. `checks` evaluates, `objects` requests,
//! `attempt` judges a write, `quiet` counts the host's writes, and `failure` words a failure.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
// The clock of the runtime, so that a test may pause it.
use tokio::time::Instant;

use super::{
    attempt::{self, Attempt},
    checks::{describe, explain_left, unmet},
    failure::{ScenarioError, StepError},
    file::{ForEach, Scenario, Step, parse_step},
    form::{Action, Check, HostAction, Propagation, Reference, Trigger, patience},
    left,
    manner::Manner,
    objects::{Objects, Write},
    path::Path,
    quiet,
    variables::Variables,
};
use crate::{
    cluster::{Cluster, Mark},
    host::{Pause, SteeredHost, SteeredPlugin},
    workloads::Nodes,
};

/// Time limit of retries of a write whose kind is not served yet: the host may still be installing it.
const KIND_PATIENCE: Duration = Duration::from_secs(30);

/// For how long something may take to be absent from a real control plane, whose garbage collector looks for new kinds each 30 s.
const ABSENT_PATIENCE: Duration = Duration::from_mins(1);

/// Time limit for deleting the scenario's objects. Longer waits are due to a finalizer that the scenario should have
/// removed.
const CLEAN_WITHIN: Duration = Duration::from_secs(30);

/// The longest part of a scenario's name that goes into the name of its namespace.
const NAMESPACE_STEM: usize = 40;

/// Maximum count of objects that a failure explains.
const MAX_EXPLAINED: usize = 5;

/// Runs all steps of a scenario in a namespace of its own, with a host that is started before and stopped after.
pub async fn run<H: SteeredHost>(scenario: &Scenario, cluster: &Cluster, host: &mut H) -> Result<(), ScenarioError> {
    run_with(scenario, cluster, host, &Manner::default()).await
}

/// The same in another manner.
pub async fn run_with<H: SteeredHost>(
    scenario: &Scenario,
    cluster: &Cluster,
    host: &mut H,
    manner: &Manner,
) -> Result<(), ScenarioError> {
    let _turn = cluster.host_turn().await;
    let (mut failed_at, mut explained) = (None, Vec::new());
    let result = match Story::begin(scenario, cluster, host, manner).await {
        Err(cause) => Err(cause),
        Ok(mut story) => {
            let told = story.tell(scenario, &mut failed_at).await;
            // Before all of it goes.
            explained = told
                .as_ref()
                .err()
                .map(|cause| story.explain(cause))
                .unwrap_or_default();
            let ended = story.end(told.is_ok()).await;
            // What went wrong first is what matters.
            told.and(ended)
        }
    };
    result.map_err(|cause| ScenarioError {
        file: scenario.file.clone(),
        step: failed_at,
        cluster: cluster.kind(),
        cause,
        explained,
        host_log: host.log_tail(),
    })
}

/// A scenario while it runs.
struct Story<'run, H> {
    cluster: &'run Cluster,
    host: &'run mut H,
    /// Plugins, with the variables in their configurations replaced.
    plugins: Vec<SteeredPlugin>,
    namespace: String,
    /// The host's own.
    host_namespace: String,
    objects: Objects,
    /// Simulated nodes that run the pods; absent: none.
    nodes: Option<Nodes>,
    variables: Variables,
    /// References to applied or created objects.
    made: Vec<Reference>,
    /// Set while the scenario has the host running.
    started: bool,
    /// Set once the host serves webhooks.
    has_webhooks: bool,
    /// Mark before the host's first start.
    since: Mark,
    manner: &'run Manner,
}

impl<'run, H: SteeredHost> Story<'run, H> {
    async fn begin(
        scenario: &'run Scenario,
        cluster: &'run Cluster,
        host: &'run mut H,
        manner: &'run Manner,
    ) -> Result<Self, StepError> {
        let unique = || unique_namespace(&scenario.name);
        let namespace = manner.namespace.clone().unwrap_or_else(unique);
        let mut objects = Objects::new(cluster.client().await?, &namespace);
        let host_namespace = format!("{namespace}-host");
        make_namespace(&mut objects, &namespace).await?;
        let since = cluster.mark()?;
        let mut variables = Variables::default();
        variables
            .set("NAMESPACE", Value::from(namespace.clone()))
            .map_err(StepError::Wording)?;
        variables
            .set("HOST_NAMESPACE", Value::from(host_namespace.clone()))
            .map_err(StepError::Wording)?;
        let unnamed = || {
            StepError::Wording("the file does not say which plugins the host runs; add `plugins: [NAME]`".to_owned())
        };
        let mut plugins = scenario.plugins.clone().ok_or_else(unnamed)?;
        for configuration in plugins.iter_mut().filter_map(|plugin| plugin.configuration.as_mut()) {
            *configuration = variables.substitute(configuration).map_err(StepError::Wording)?;
        }
        let nodes = if scenario.needs_nodes() {
            let started = Nodes::start(cluster, scenario.workloads).await;
            Some(started.map_err(|words| StepError::Wording(format!("make a node for pods: {words}")))?)
        } else {
            None
        };
        let mut story = Self {
            cluster,
            host,
            plugins,
            namespace,
            host_namespace,
            objects,
            nodes,
            variables,
            made: Vec::new(),
            started: false,
            has_webhooks: false,
            since,
            manner,
        };
        if scenario.webhooks {
            story.serve_webhooks().await?;
        }
        story
            .host
            .follow_resources(scenario.resources)
            .map_err(StepError::Host)?;
        story.start().await?;
        Ok(story)
    }

    async fn tell(&mut self, scenario: &Scenario, failed_at: &mut Option<(u64, String)>) -> Result<(), StepError> {
        for step in &scenario.steps {
            *failed_at = Some((step.line, step.to_string()));
            self.take(step).await?;
        }
        *failed_at = None;
        Ok(())
    }

    /// Returns the host's explanations of the objects of a failed step.
    fn explain(&self, cause: &StepError) -> Vec<Value> {
        let mut explained: Vec<Value> = Vec::new();
        // What is not there has no history, but those for which it should have been made do.
        for object in cause.objects().into_iter().chain(&self.made) {
            let namespace = object.namespace.clone().or_else(|| Some(self.namespace.clone()));
            let object = Reference {
                namespace,
                ..object.clone()
            };
            for document in self.host.explain(&object) {
                let is_new = !explained.iter().any(|other| other["object"] == document["object"]);
                let is_reconciled = document["controllers"]
                    .as_array()
                    .is_some_and(|views| !views.is_empty());
                if is_new && is_reconciled && explained.len() < MAX_EXPLAINED {
                    explained.push(document);
                }
            }
        }
        explained
    }

    /// Deletes the scenario's objects while the host still runs, because its finalizers may be on them, and the next
    /// host must not see them. The deletion of the namespace takes some seconds and is not awaited. After a failure, no
    /// deletion is awaited, as it may never finish.
    async fn end(&mut self, in_order: bool) -> Result<(), StepError> {
        let looked = if in_order {
            self.pause(Pause::Told).await
        } else {
            Ok(())
        };
        let cleaned = looked.and(self.clean(in_order).await);
        let stopped = if self.started { self.stop().await } else { Ok(()) };
        let silenced = if self.has_webhooks {
            left::silence(&self.cluster.client().await?).await
        } else {
            Ok(())
        };
        for name in [&self.namespace, &self.host_namespace] {
            let reference =
                Reference::of(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
            let _ = self.objects.delete(&reference, Propagation::Background).await;
        }
        if let Some(nodes) = self.nodes.take() {
            nodes.stop().await;
        }
        cleaned.and(stopped).and(silenced)
    }

    async fn clean(&mut self, wait: bool) -> Result<(), StepError> {
        let made: Vec<_> = std::mem::take(&mut self.made).into_iter().rev().collect();
        // All of it first: a child of an object that is still there comes back.
        for reference in &made {
            // It may be gone, or its kind.
            let _ = self.objects.delete(reference, Propagation::Background).await;
        }
        if wait {
            let gone: Vec<_> = made.into_iter().map(Check::absent).collect();
            if let Err(cause) = self.wait(&gone, CLEAN_WITHIN).await {
                return Err(self.held(cause).await);
            }
            self.pause(Pause::Cleaned).await?;
        }
        Ok(())
    }

    /// Adds the finalizers that hold the objects back, if that is the cause.
    async fn held(&mut self, cause: StepError) -> StepError {
        let StepError::TimeOut { after, unmet } = &cause else {
            return cause;
        };
        let mut held = Vec::new();
        for unmet in unmet {
            let found = self.objects.get(unmet.reference()).await;
            let finalizers = found
                .ok()
                .flatten()
                .map(|mut object| object["metadata"]["finalizers"].take());
            let finalizers = finalizers.and_then(|names| serde_json::from_value::<Vec<String>>(names).ok());
            if let Some(names) = finalizers.filter(|names| !names.is_empty()) {
                held.push((describe(unmet.reference()), names));
            }
        }
        if held.is_empty() {
            return cause;
        }
        StepError::Held { after: *after, held }
    }

    async fn pause(&mut self, pause: Pause) -> Result<(), StepError> {
        self.host.pause(pause).await.map_err(StepError::Host)
    }

    async fn take(&mut self, step: &Step) -> Result<(), StepError> {
        let Some(ForEach { name, from, to }) = &step.for_each else {
            return self.take_once(step).await;
        };
        for number in *from..=*to {
            self.variables
                .set(name, Value::from(number))
                .map_err(StepError::Wording)?;
            self.take_once(step).await?;
        }
        Ok(())
    }

    async fn take_once(&mut self, step: &Step) -> Result<(), StepError> {
        let raw = self.variables.substitute(&step.raw).map_err(StepError::Wording)?;
        let action = parse_step(&raw).map_err(StepError::Wording)?.action;
        match action {
            Action::Note(_) => Ok(()),
            Action::Apply(apply) => {
                for body in &apply.objects {
                    self.write(&Reference::of(body), &Attempt::apply(&apply, body)).await?;
                }
                Ok(())
            }
            Action::Create(create) => {
                for body in &create.objects {
                    self.write(&Reference::of(body), &Attempt::create(&create, body))
                        .await?;
                }
                Ok(())
            }
            Action::Patch(patch) => self.write(&patch.object, &Attempt::patch(&patch)).await,
            Action::Delete(delete) => self
                .objects
                .delete(&delete.object, delete.propagation)
                .await
                .map_err(|error| StepError::refused("delete", &delete.object, &error)),
            Action::Wait(wait) => {
                let is_long = self.cluster.is_real() && wait.until.iter().any(|check| check.absent);
                let usual = if is_long { ABSENT_PATIENCE } else { patience() };
                self.wait(&wait.until, wait.within.unwrap_or(usual)).await
            }
            Action::Expect(expect) => self.expect(&expect.that, expect.during).await,
            Action::Remember(remember) => self.remember(&remember.object, &remember.path, &remember.name).await,
            Action::Host(action) => self.steer(action).await,
            Action::Workload(step) => {
                let namespace = step.object.namespace.clone().unwrap_or_else(|| self.namespace.clone());
                if let Some(nodes) = &self.nodes {
                    nodes.decide(&step.object, &namespace, step.becomes);
                }
                Ok(())
            }
            Action::ExpectWrites(expect) => {
                let namespace = self.namespace.clone();
                self.started |= expect.after == Some(Trigger::Start);
                if self.manner.patience.is_some() {
                    self.trigger(expect.after).await?;
                    tokio::time::sleep(expect.during).await;
                    return Ok(self.manner.settle(self.host).await?);
                }
                Ok(quiet::expect_writes(self.running(), &namespace, &expect).await?)
            }
        }
    }

    async fn write(&mut self, reference: &Reference, attempt: &Attempt<'_>) -> Result<(), StepError> {
        // Only what was not there before is the scenario's to clean up.
        let is_new = attempt.makes(&mut self.objects, reference).await;
        let begun = Instant::now();
        loop {
            let result = attempt.make(&mut self.objects, reference).await;
            let patience = self.manner.within(if attempt::is_missing_kind(&result) {
                KIND_PATIENCE
            } else {
                attempt.within
            });
            match attempt.judge(reference, &result) {
                Ok(()) => {
                    if is_new && result.is_ok() {
                        self.made.push(reference.clone());
                    }
                    return Ok(());
                }
                Err(error) if begun.elapsed() >= patience => return Err(error),
                Err(_) => {}
            }
            self.alive()?;
            tokio::time::sleep(Manner::pause(begun)).await;
        }
    }

    async fn wait(&mut self, checks: &[Check], within: Duration) -> Result<(), StepError> {
        let (begun, within) = (Instant::now(), self.manner.within(within));
        let checks = &self.manner.checks(checks);
        loop {
            let unmet = unmet(&mut self.objects, checks).await;
            if unmet.is_empty() {
                return Ok(());
            }
            if begun.elapsed() >= within {
                let mut unmet = unmet;
                if self.cluster.is_real() {
                    explain_left(&mut self.objects, &mut unmet).await;
                }
                return Err(StepError::TimeOut { after: within, unmet });
            }
            self.alive()?;
            tokio::time::sleep(Manner::pause(begun)).await;
        }
    }

    async fn expect(&mut self, checks: &[Check], during: Duration) -> Result<(), StepError> {
        if let Some(patience) = self.manner.patience {
            self.wait(checks, patience).await?;
            // Who comes after this time is younger, by timestamps that have seconds.
            tokio::time::sleep(during).await;
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            let unmet = unmet(&mut self.objects, checks).await;
            if !unmet.is_empty() {
                return Err(StepError::Unmet {
                    after: begun.elapsed(),
                    unmet,
                });
            }
            self.alive()?;
            if begun.elapsed() >= during {
                return Ok(());
            }
            tokio::time::sleep(Manner::pause(begun)).await;
        }
    }

    async fn remember(&mut self, reference: &Reference, path: &str, name: &str) -> Result<(), StepError> {
        let object = self
            .objects
            .get(reference)
            .await
            .map_err(|error| StepError::refused("get", reference, &error))?;
        let object = object.ok_or_else(|| StepError::Wording(format!("{} does not exist", describe(reference))))?;
        let found = Path::parse(path).map_err(StepError::Wording)?.find(&object).cloned();
        let missing = || StepError::Wording(format!("{} has nothing at {path}", describe(reference)));
        self.variables
            .set(name, found.ok_or_else(missing)?)
            .map_err(StepError::Wording)
    }

    /// Triggers the host before counted writes; here they are not counted.
    async fn trigger(&mut self, trigger: Option<Trigger>) -> Result<(), StepError> {
        match trigger {
            None => Ok(()),
            Some(Trigger::Start) => self.start().await,
            Some(Trigger::Restart) => self.steer(HostAction::Restart).await,
            Some(Trigger::Resync) => self.steer(HostAction::Resync).await,
        }
    }

    async fn steer(&mut self, action: HostAction) -> Result<(), StepError> {
        let is_patient = self.manner.patience.is_some();
        match action {
            HostAction::Settle if is_patient => Ok(self.manner.settle(self.host).await?),
            HostAction::Restart if is_patient => {
                Ok(self.manner.restart(self.host, self.cluster, &self.plugins).await?)
            }
            HostAction::Start => self.start().await,
            HostAction::Stop => self.stop().await,
            HostAction::ServeWebhooks => self.serve_webhooks().await,
            HostAction::Resync => self.host.resync().await.map_err(StepError::Host),
            HostAction::Settle => Ok(quiet::settle(&mut self.running()).await?),
            HostAction::Restart => Ok(quiet::restart(&mut self.running()).await?),
        }
    }

    fn running(&mut self) -> quiet::Running<'_, H> {
        quiet::Running {
            cluster: self.cluster,
            host: self.host,
            nodes: self.nodes.as_ref(),
            plugins: &self.plugins,
            since: self.since,
            manner: self.manner,
        }
    }

    async fn start(&mut self) -> Result<(), StepError> {
        self.host
            .start(self.cluster, &self.plugins)
            .await
            .map_err(StepError::Host)?;
        self.started = true;
        Ok(())
    }

    async fn serve_webhooks(&mut self) -> Result<(), StepError> {
        make_namespace(&mut self.objects, &self.host_namespace).await?;
        self.has_webhooks = true;
        self.host.serve_webhooks(&self.host_namespace).map_err(StepError::Host)
    }

    async fn stop(&mut self) -> Result<(), StepError> {
        self.started = false;
        let left = self.host.stop().await.map_err(StepError::Host)?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(StepError::Left(left))
        }
    }

    fn alive(&mut self) -> Result<(), StepError> {
        let ended = if self.started { self.host.failure() } else { None };
        ended.map_or(Ok(()), |reason| Err(StepError::HostEnded(reason)))
    }
}

async fn make_namespace(objects: &mut Objects, name: &str) -> Result<(), StepError> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let (reference, attempt) = (Reference::of(&body), Attempt::new("create", Write::Create(&body)));
    attempt.judge(&reference, &attempt.make(objects, &reference).await)
}

/// A name that neither another scenario of this process nor an earlier process has used.
fn unique_namespace(scenario: &str) -> String {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let stem: String = scenario
        .chars()
        .take(NAMESPACE_STEM)
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis()
        % 1_000_000_000;
    format!(
        "{}-{now}-{}",
        stem.trim_matches('-'),
        RUNS.fetch_add(1, Ordering::Relaxed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_named_after_their_scenario_and_differ() {
        let (first, second) = (unique_namespace("Ports changed"), unique_namespace("Ports changed"));
        assert!(first.starts_with("ports-changed-"), "{first}");
        assert_ne!(first, second);
        assert!(unique_namespace(&"x".repeat(100)).len() <= 63);
    }
}
