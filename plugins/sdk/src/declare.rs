//! Declarations of a manifest that follow from types: the kinds that a controller owns, reads and contributes to.

use crate::fields::Fields;
use crate::manifest::{ControllerManifest, Touch};
use crate::object::{Kind, Resource};

/// Declares the kinds that a controller reads or writes, by their types. Several declarations of one kind are merged
/// into one, and an option of one holds for all of them:
///
/// ```
/// use pilothouse_plugin::{ControllerManifest, Fields, Kind, ObjectMeta, Resource};
///
/// # #[derive(serde::Deserialize, Resource)]
/// # #[resource(group = "kosmos.io", version = "v1", kind = "AppService")]
/// # struct AppService {}
/// # struct Deployment {}
/// # impl Resource for Deployment { const KIND: Kind = Kind::new("apps", "v1", "Deployment"); }
/// #[derive(serde::Deserialize, Resource)]
/// #[resource(group = "apps", version = "v1", kind = "Deployment")]
/// struct LiveDeployment {
///     metadata: ObjectMeta,
///     status: Option<serde_json::Value>,
/// }
///
/// #[derive(serde::Deserialize, Resource)]
/// #[resource(group = "", version = "v1", kind = "Secret")]
/// struct Secret {
///     data: std::collections::BTreeMap<String, String>,
/// }
///
/// let controller = ControllerManifest::of::<AppService>("app-service")
///     .owns::<Deployment>()
///     .reads::<LiveDeployment>()
///     .reads_with::<Secret>(|touch| touch.with_labels("app-service.kosmos.io/certificate"));
/// # drop(controller);
/// ```
impl ControllerManifest {
    /// Declares that objects of this kind are created for a resource, and belong to it.
    pub fn owns<T: Resource>(self) -> Self {
        self.owns_with::<T>(|touch| touch)
    }

    /// Declares a kind like [`owns`](Self::owns), with the options of [`Touch`].
    pub fn owns_with<T: Resource>(self, options: impl FnOnce(Touch) -> Touch) -> Self {
        self.touch(T::KIND, |touch| options(touch.owned()))
    }

    /// Declares that objects of this kind are read: their metadata and the fields that the type reads.
    pub fn reads<T: Resource + Fields>(self) -> Self {
        self.reads_with::<T>(|touch| touch)
    }

    /// Declares a kind like [`reads`](Self::reads), with the options of [`Touch`].
    pub fn reads_with<T: Resource + Fields>(self, options: impl FnOnce(Touch) -> Touch) -> Self {
        self.touch(T::KIND, |touch| options(touch.read(T::fields())))
    }

    /// Declares that fields are contributed to objects of this kind that belong to another owner.
    pub fn contributes<T: Resource>(self) -> Self {
        self.contributes_with::<T>(|touch| touch)
    }

    /// Declares a kind like [`contributes`](Self::contributes), with the options of [`Touch`].
    pub fn contributes_with<T: Resource>(self, options: impl FnOnce(Touch) -> Touch) -> Self {
        self.touch(T::KIND, |touch| options(touch.contributed()))
    }

    /// Changes the declaration of a kind, which is added if there is none.
    fn touch(mut self, kind: Kind, change: impl FnOnce(Touch) -> Touch) -> Self {
        match self.touches.iter().position(|touch| touch.kind == kind) {
            Some(index) => {
                let touch = self.touches.remove(index);
                self.touches.insert(index, change(touch));
            }
            None => self.touches.push(change(Touch::new(kind))),
        }
        self
    }
}

/// Reports whether a path is that of the status, or below it.
pub(crate) fn is_of_status(path: &str) -> bool {
    path.strip_prefix(".status")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
