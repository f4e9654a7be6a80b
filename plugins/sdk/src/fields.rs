//! Fields of an object that a type reads. The host's cache keeps only these.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::object::{ObjectMeta, OwnerReference};

/// A type that knows which fields of an object it reads.
///
/// Derive it for the structs below a [`Resource`](crate::Resource). A struct reads what its members read; a string, a
/// number, a map or a JSON value is read as a whole. Names and paths follow serde's attributes `rename`, `rename_all`,
/// `alias`, `flatten`, `skip`, `from` and `try_from`.
///
/// ```
/// use pilothouse_plugin::{Fields, ObjectMeta, Resource};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, Resource)]
/// #[resource(group = "", version = "v1", kind = "Service")]
/// struct Service {
///     metadata: ObjectMeta,
///     spec: ServiceSpec,
/// }
///
/// #[derive(Deserialize, Fields)]
/// #[serde(rename_all = "camelCase")]
/// struct ServiceSpec {
///     external_name: Option<String>,
///     #[serde(default)]
///     ports: Vec<ServicePort>,
/// }
///
/// #[derive(Deserialize, Fields)]
/// struct ServicePort {
///     port: u16,
/// }
///
/// assert_eq!(Service::fields(), [".spec.externalName", ".spec.ports[].port"]);
/// ```
///
/// A member of a type that does not implement this trait is annotated with `#[resource(whole)]`: it is read as a whole.
#[diagnostic::on_unimplemented(
    message = "it is not known which fields `{Self}` reads",
    label = "derive `Fields` for `{Self}`, or annotate this member with `#[resource(whole)]`"
)]
pub trait Fields {
    /// Adds the paths that are read of a value at a path, for example `.spec.ports[].port` for `.spec`.
    fn fields_at(path: &str, fields: &mut Vec<String>);
}

/// Adds the path of a value that is read as a whole.
pub fn whole(path: &str, fields: &mut Vec<String>) {
    let path = if path.is_empty() { "." } else { path };
    fields.push(path.to_owned());
}

/// Adds the paths that `T` reads at a member of the value at a path.
pub fn child<T: Fields + ?Sized>(path: &str, step: &str, fields: &mut Vec<String>) {
    T::fields_at(&[path, step].concat(), fields);
}

/// Adds the paths that `T` reads of each element of the list at a path; the list's own if `T` is read as a whole.
pub fn each<T: Fields + ?Sized>(path: &str, fields: &mut Vec<String>) {
    let before = fields.len();
    let element = [path, "[]"].concat();
    T::fields_at(&element, fields);
    if fields[before..] == [element] {
        fields.truncate(before);
        whole(path, fields);
    }
}

macro_rules! read_as_a_whole {
    ($($type:ty)+) => {
        $(
            impl Fields for $type {
                fn fields_at(path: &str, fields: &mut Vec<String>) {
                    whole(path, fields);
                }
            }
        )+
    };
}

read_as_a_whole! {
    bool char String str
    i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f32 f64
    Value Number RawValue Map<String, Value> ObjectMeta OwnerReference
}

impl<T: Fields + ?Sized> Fields for Box<T> {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        T::fields_at(path, fields);
    }
}

impl<T: Fields> Fields for Option<T> {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        T::fields_at(path, fields);
    }
}

impl<T: Fields + ToOwned + ?Sized> Fields for Cow<'_, T> {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        T::fields_at(path, fields);
    }
}

impl<T: Fields> Fields for Vec<T> {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        each::<T>(path, fields);
    }
}

impl<T: Fields, const N: usize> Fields for [T; N] {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        each::<T>(path, fields);
    }
}

impl<T: Fields> Fields for BTreeSet<T> {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        each::<T>(path, fields);
    }
}

impl<T: Fields, S> Fields for HashSet<T, S> {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        each::<T>(path, fields);
    }
}

/// Reads the map as a whole: a path has no step for every value of a map.
impl<K, V> Fields for BTreeMap<K, V> {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        whole(path, fields);
    }
}

/// Reads the map as a whole: a path has no step for every value of a map.
impl<K, V, S> Fields for HashMap<K, V, S> {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        whole(path, fields);
    }
}
