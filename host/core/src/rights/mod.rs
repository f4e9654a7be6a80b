//! Derives the RBAC rights that a plugin needs from its manifest, confined to the namespaces of its Plugin.
//!
//! [`confinement`] restricts the namespaces. [`rules`] models RBAC's rules. [`built_in`] and [`resources`] find the
//! resources of kinds. [`objects`] builds the objects that grant the rights, and [`installed`] reads from these for
//! which host they were made. [`words`] explains the rights to users, and [`escalation`] reads the API server's refusal
//! of a grant.
//!
//! The rights are those of the requests that a host makes for the plugin, and no more. Owner references are written
//! without `blockOwnerDeletion`, so no right to the subresource `finalizers` is needed. Events, CRDs and webhook
//! configurations are the host's own requests.

pub mod built_in;
mod confinement;
pub mod escalation;
pub mod installed;
pub mod objects;
pub mod published;
pub mod resources;
pub mod rules;
#[cfg(test)]
mod tests;
pub mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::kubernetes::key::Kind;
use crate::kubernetes::served::ServedKind;
use crate::plugin::manifest::{Access, CheckedManifest, Controller, Touch, TouchScope, is_label, is_subdomain};
use crate::reads::reach::Reach;
pub use confinement::Confinement;
use resources::Resources;
use rules::{Place, Resource, Rules, Verb};

/// The highest number of namespaces in one Plugin.
pub const MAX_NAMESPACES: usize = 1000;

/// Uses of a kind by a controller that need further rights than list and watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct KindUse {
    /// Set if its objects are reconciled.
    pub is_primary: bool,
    /// Set if its objects get a finalizer, or a note of what was made once.
    pub is_marked: bool,
    /// Set if the plugin owns objects of the kind.
    pub is_owned: bool,
    /// Set if the plugin contributes to objects of the kind.
    pub is_contributed: bool,
}

impl KindUse {
    /// The verbs of the requests for single objects. Reads are served from the cache, so they need none. Server-side
    /// apply is a patch, and needs `create` where the object is absent.
    pub fn verbs(self) -> &'static [Verb] {
        let patches = self.is_contributed || (self.is_primary && self.is_marked);
        match self {
            Self { is_owned: true, .. } => &[Verb::Get, Verb::Create, Verb::Patch, Verb::Delete],
            _ if patches => &[Verb::Get, Verb::Patch],
            Self { is_primary: true, .. } => &[Verb::Get],
            _ => &[],
        }
    }
}

/// The properties of a controller that decide which rights it needs.
#[derive(Clone, Debug)]
pub struct ControllerNeeds<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its primary kind.
    pub kind: &'a Kind,
    /// Set if it waits for its primary kind where that is not served.
    pub is_optional: bool,
    /// Set if its primaries get a finalizer, or a note of what was made once.
    pub is_marked: bool,
    /// Set if the plugin brings the CRD of its primaries, so that their status is written.
    pub brings_crd: bool,
    /// The webhooks that review its primaries.
    pub asked: AdmissionExports,
    /// The other kinds that it touches.
    pub touches: Vec<&'a Touch>,
}

/// The admission functions that a component exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionExports {
    /// Set if it defaults objects.
    pub defaulter: bool,
    /// Set if it validates objects.
    pub validator: bool,
}

impl AdmissionExports {
    /// The functions that the manifest does not disable for a controller.
    #[must_use]
    pub fn about(self, controller: &Controller) -> Self {
        let Self { defaulter, validator } = self;
        Self {
            defaulter: defaulter && controller.defaulter != Some(false),
            validator: validator && controller.validator != Some(false),
        }
    }

    /// Reports whether there are no functions.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The verbs that allow the functions.
    fn verbs(self) -> Vec<Verb> {
        let verbs = [(self.defaulter, Verb::Default), (self.validator, Verb::Validate)];
        let asked = verbs.into_iter().filter(|(is_asked, _)| *is_asked);
        asked.map(|(_, verb)| verb).collect()
    }
}

/// All rights that must be granted for a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Rules for the plugin's account.
    pub account: Rules,
    /// Rules for the host's account, for the watches that plugins share: they are wider where a Plugin is confined.
    pub watches: Rules,
    /// The kinds of primaries whose CRDs the plugin brings, for the people who use them.
    pub offered: BTreeSet<OfferedResource>,
    /// Declared accesses that are not granted, because of the confinement or of the cluster.
    pub remarks: Vec<Remark>,
}

/// The resource of a kind that a plugin brings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfferedResource {
    /// The API group.
    pub group: String,
    /// The resource, such as `websites`.
    pub plural: String,
    /// Set if its objects have the subresource `status`.
    pub has_status: bool,
}

/// A declared access that is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// The manifest names namespaces that the Plugin is not confined to.
    Outside {
        /// The controller.
        controller: String,
        /// The kind.
        kind: Kind,
        /// The namespaces.
        namespaces: Vec<String>,
    },
    /// Cluster-scoped primaries are in none of the namespaces that the Plugin names.
    SelectsNothing {
        /// The controller.
        controller: String,
        /// Its primary kind.
        kind: Kind,
    },
    /// The cluster does not serve an optional kind.
    NotServed(Kind),
}

/// The reason why the rights cannot be derived.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    /// The text is not the name of a namespace.
    #[error("namespace {0:?} is not a DNS label: 1 to 63 of a-z, 0-9 and -, not - at an end; correct it")]
    Namespace(String),
    /// There are too many namespaces for one Plugin.
    #[error("{0} namespaces are named; a Plugin names {MAX_NAMESPACES} at most")]
    TooMany(usize),
    /// The access namespaces have no effect without namespaces.
    #[error(
        "access namespaces have no use without namespaces: a Plugin without namespaces reaches all of them; leave them out, or name namespaces too"
    )]
    NothingConfined,
    /// The resource's name would have another meaning in a rule: `*` means everything.
    #[error(
        "the resource of {0} is {1:?} in the API group {2:?}, and no rule can name it; correct the plugin's manifest"
    )]
    Unnameable(Kind, String, String),
    /// A rule for an empty name would hold for requests without a name: those for all objects.
    #[error("the manifest touches {0} named {1:?}, which is no name of an object; correct the plugin's manifest")]
    Name(Kind, String),
    /// The cluster's resources for these kinds are not known.
    #[error("only a cluster knows the resources of {}", listed(.0))]
    Unknown(Vec<Kind>),
}

impl fmt::Display for Remark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside {
                controller,
                kind,
                namespaces,
            } => write!(
                formatter,
                "controller {controller} uses {kind} in {0}, outside the Plugin's namespaces, and gets no right to it there; \
                 with --access-namespaces {0} it does",
                namespaces.join(","),
            ),
            Self::SelectsNothing { controller, kind } => write!(
                formatter,
                "controller {controller} reconciles nothing: {kind} is cluster-scoped, and the Plugin names namespaces; \
                 leave out the namespaces if it is to reconcile"
            ),
            Self::NotServed(kind) => write!(
                formatter,
                "the cluster does not serve {kind}, which is optional, so no right to it is granted; once it is served, \
                 grant the rights again"
            ),
        }
    }
}

impl<'a> ControllerNeeds<'a> {
    /// The needs of each controller of a plugin whose component has these exports.
    pub fn of(checked: &'a CheckedManifest, exports: AdmissionExports) -> Vec<Self> {
        let needs = |controller: &'a Controller| {
            let brings_crd = checked.brings(&controller.kind);
            Self {
                name: &controller.name,
                kind: &controller.kind,
                is_optional: controller.optional,
                is_marked: controller.is_marked(),
                brings_crd,
                asked: match controller.effective_admission(brings_crd) {
                    Some(_) => exports.about(controller),
                    None => AdmissionExports::default(),
                },
                touches: controller.touches.iter().collect(),
            }
        };
        checked.manifest.controllers.iter().map(needs).collect()
    }

    /// Every kind that it names, and whether it is optional.
    fn kinds(&self) -> impl Iterator<Item = (&'a Kind, bool)> {
        let is_optional = self.is_optional;
        let touched = self.touches.iter();
        let touched = touched.map(move |touch| (&touch.kind, touch.optional || is_optional));
        std::iter::once((self.kind, is_optional)).chain(touched)
    }
}

impl Rights {
    /// The rights that controllers need, given the resources of their kinds.
    pub fn of(
        controllers: &[ControllerNeeds<'_>],
        confinement: &Confinement,
        resources: &Resources,
    ) -> Result<Self, RightsError> {
        let unknown = resources.unknown(controllers.iter().flat_map(ControllerNeeds::kinds));
        if !unknown.is_empty() {
            return Err(RightsError::Unknown(unknown));
        }
        for controller in controllers {
            check_names(controller, resources)?;
        }
        let mut derivation = Derivation {
            confinement,
            resources,
            rules: Rules::default(),
            reaches: BTreeMap::new(),
            offered: BTreeSet::new(),
            remarks: Vec::new(),
        };
        for controller in controllers {
            derivation.controller(controller);
        }
        Ok(derivation.finish())
    }
}

/// The rights found so far.
struct Derivation<'a> {
    confinement: &'a Confinement,
    resources: &'a Resources,
    rules: Rules,
    /// The watched objects of each kind.
    reaches: BTreeMap<Kind, Reach>,
    offered: BTreeSet<OfferedResource>,
    remarks: Vec<Remark>,
}

impl Derivation<'_> {
    fn controller(&mut self, controller: &ControllerNeeds<'_>) {
        let Some(primary) = self.resources.get(controller.kind) else {
            // The other kinds are watched meanwhile.
            self.remark_not_served(controller.kind);
            for touch in &controller.touches {
                self.touch(controller, touch, false);
            }
            return;
        };
        if controller.brings_crd {
            let _ = self.offered.insert(OfferedResource {
                group: primary.kind.group.clone(),
                plural: primary.plural.clone(),
                has_status: primary.facts.has_status,
            });
        }
        let selects_nothing = self.confinement.is_confined() && !primary.facts.namespaced;
        if selects_nothing {
            self.remarks.push(Remark::SelectsNothing {
                controller: controller.name.to_owned(),
                kind: controller.kind.clone(),
            });
        }
        let places = if primary.facts.namespaced {
            self.confinement.own()
        } else {
            vec![Place::Cluster]
        };
        let primary_use = KindUse {
            is_primary: true,
            is_marked: controller.is_marked,
            ..KindUse::default()
        };
        self.watch(primary, &Reach::all());
        let verbs = if selects_nothing { &[] } else { primary_use.verbs() };
        self.grant(primary, &[], &places, verbs);
        if !selects_nothing {
            let resource = Resource::new(&primary.kind.group, primary.plural.clone(), &[]);
            for place in &places {
                self.rules
                    .add(place.clone(), resource.clone(), &controller.asked.verbs());
            }
        }
        if controller.brings_crd && primary.facts.has_status && !selects_nothing {
            let status = Resource::new(&primary.kind.group, format!("{}/status", primary.plural), &[]);
            for place in places {
                self.rules.add(place, status.clone(), &[Verb::Patch]);
            }
        }
        for touch in &controller.touches {
            self.touch(controller, touch, selects_nothing);
        }
    }

    fn touch(&mut self, controller: &ControllerNeeds<'_>, touch: &Touch, selects_nothing: bool) {
        let Some(served) = self.resources.get(&touch.kind) else {
            self.remark_not_served(&touch.kind);
            return;
        };
        let allows = |access| touch.access.contains(&access);
        let kind_use = KindUse {
            is_owned: allows(Access::Owned),
            is_contributed: allows(Access::Contributed),
            ..KindUse::default()
        };
        // A touch in the primary's own namespace reaches no cluster-scoped object.
        let reaches_nothing = !served.facts.namespaced && touch.scope == TouchScope::Namespace;
        let verbs = if selects_nothing || reaches_nothing {
            &[]
        } else {
            kind_use.verbs()
        };
        // Where its primary is also touched, it is watched everywhere all the same.
        let reach = if touch.kind == *controller.kind {
            Reach::all()
        } else {
            Reach::of(touch)
        };
        self.watch(served, &reach);
        let places = self.places_of(controller, touch, served);
        self.grant(served, &touch.names, &places, verbs);
    }

    fn remark_not_served(&mut self, kind: &Kind) {
        let remark = Remark::NotServed(kind.clone());
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    fn places_of(&mut self, controller: &ControllerNeeds<'_>, touch: &Touch, served: &ServedKind) -> Vec<Place> {
        if !served.facts.namespaced {
            return vec![Place::Cluster];
        }
        if touch.scope == TouchScope::Namespace {
            return self.confinement.own();
        }
        if touch.namespaces.is_empty() {
            return self.confinement.whole();
        }
        let (within, outside): (Vec<_>, Vec<_>) = touch
            .namespaces
            .iter()
            .cloned()
            .partition(|namespace| self.confinement.reaches(namespace));
        if !outside.is_empty() {
            self.remarks.push(Remark::Outside {
                controller: controller.name.to_owned(),
                kind: touch.kind.clone(),
                namespaces: outside,
            });
        }
        within.into_iter().map(Place::Namespace).collect()
    }

    fn grant(&mut self, served: &ServedKind, names: &[String], places: &[Place], verbs: &[Verb]) {
        let resource = Resource::new(&served.kind.group, served.plural.clone(), names);
        for place in places {
            self.rules
                .add(place.clone(), resource.clone(), &[Verb::List, Verb::Watch]);
            self.rules.add(place.clone(), resource.clone(), verbs);
        }
    }

    fn watch(&mut self, served: &ServedKind, reach: &Reach) {
        let before = self.reaches.remove(&*served.kind);
        let both = before.map_or_else(|| reach.clone(), |before| before.union(reach));
        self.reaches.insert((*served.kind).clone(), both);
    }

    fn finish(self) -> Rights {
        let Self {
            confinement,
            resources,
            rules,
            reaches,
            offered,
            remarks,
        } = self;
        let mut watches = Rules::default();
        for (kind, reach) in reaches {
            let Some(served) = resources.get(&kind) else { continue };
            let scopes = confinement.seen(reach).scopes(served.facts.namespaced);
            for scope in scopes.into_iter().filter(|scope| !scope.is_empty()) {
                let names: Vec<String> = scope.name.into_iter().collect();
                let resource = Resource::new(&kind.group, served.plural.clone(), &names);
                let place = scope.namespace.map_or(Place::Cluster, Place::Namespace);
                watches.add(place, resource, &[Verb::List, Verb::Watch]);
            }
        }
        Rights {
            account: rules.simplified(),
            watches: watches.simplified(),
            offered,
            remarks,
        }
    }
}

/// Refuses names from the plugin that would have another meaning in a rule, or in the path of a role.
fn check_names(controller: &ControllerNeeds<'_>, resources: &Resources) -> Result<(), RightsError> {
    for (kind, _) in controller.kinds() {
        let Some(served) = resources.get(kind) else { continue };
        let has_group = kind.group.is_empty() || is_subdomain(&kind.group);
        if !has_group || !is_label(&served.plural) {
            let (plural, group) = (served.plural.clone(), kind.group.clone());
            return Err(RightsError::Unnameable(kind.clone(), plural, group));
        }
    }
    for touch in &controller.touches {
        if let Some(name) = touch.names.iter().find(|name| !is_object_name(name)) {
            return Err(RightsError::Name(touch.kind.clone(), name.clone()));
        }
    }
    let mut namespaces = controller.touches.iter().flat_map(|touch| &touch.namespaces);
    match namespaces.find(|namespace| !is_label(namespace)) {
        Some(namespace) => Err(RightsError::Namespace(namespace.clone())),
        None => Ok(()),
    }
}

/// Reports whether an object may have this name, which becomes part of a path. The rules of a kind are left to the API
/// server; see `IsValidPathSegmentName` in
/// <https://github.com/kubernetes/apimachinery/blob/v0.36.0/pkg/api/validation/path/name.go>.
fn is_object_name(name: &str) -> bool {
    let is_odd =
        |character: char| matches!(character, '/' | '%') || character.is_control() || character.is_whitespace();
    !matches!(name, "" | "." | "..") && name.len() <= 253 && !name.contains(is_odd)
}

fn listed<'a, T: ToString + 'a>(items: impl IntoIterator<Item = &'a T>) -> String {
    let items: Vec<String> = items.into_iter().map(ToString::to_string).collect();
    items.join(", ")
}
