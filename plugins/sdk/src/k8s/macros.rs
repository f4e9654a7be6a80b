//! Common code of all builders; the generated files call these macros.

/// Defines a part of an object: every type but a kind.
macro_rules! part {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[must_use]
        pub struct $name(pub(in crate::k8s) $crate::k8s::value::Members);

        $crate::k8s::macros::builder!($name);

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::k8s::value::Members::deserialize(deserializer).map(Self)
            }
        }

        /// Uses the schema of the API server, without descriptions.
        #[cfg(feature = "crd")]
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let module = module_path!().split_once("::k8s::").map_or("", |(_, module)| module);
                $crate::crd::built_in::schema_of(&format!("{module}::{}", stringify!($name)))
            }
        }

        impl $crate::Fields for $name {
            fn fields_at(path: &str, fields: &mut Vec<String>) {
                $crate::fields::whole(path, fields);
            }
        }
    };
}

/// Defines a kind, with the setters of its metadata.
macro_rules! kind {
    ($(#[$attribute:meta])* $name:ident, $group:literal, $version:literal, $api_version:literal) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq)]
        #[must_use]
        pub struct $name(pub(in crate::k8s) $crate::k8s::value::Members);

        $crate::k8s::macros::builder!($name);
        $crate::k8s::macros::metadata!($name);

        impl $crate::Resource for $name {
            const KIND: $crate::Kind = $crate::Kind::new($group, $version, stringify!($name));
        }

        impl $name {
            /// Returns an object with this name, or without one if the server is to generate it.
            pub fn new(name: impl $crate::k8s::Field<String>) -> Self {
                Self($crate::k8s::members::object($api_version, stringify!($name), name.into_value()))
            }

            /// Sets the object's namespace. A primary's own, an `Option<String>`, can be passed directly.
            pub fn namespace(self, namespace: impl $crate::k8s::Field<String>) -> Self {
                self.put(&["metadata", "namespace"], namespace)
            }
        }
    };
}

macro_rules! metadata {
    ($name:ident) => {
        impl $name {
            /// Sets these labels and keeps others.
            pub fn labels(
                self,
                labels: impl IntoIterator<Item = (impl Into<String>, impl $crate::k8s::Field<String>)>,
            ) -> Self {
                self.put_map(&["metadata", "labels"], labels)
            }

            /// Sets one label.
            pub fn label(self, key: impl Into<String>, value: impl $crate::k8s::Field<String>) -> Self {
                self.put_entry(&["metadata", "labels"], key, value)
            }

            /// Sets these annotations and keeps others.
            pub fn annotations(
                self,
                annotations: impl IntoIterator<Item = (impl Into<String>, impl $crate::k8s::Field<String>)>,
            ) -> Self {
                self.put_map(&["metadata", "annotations"], annotations)
            }

            /// Sets one annotation.
            pub fn annotation(self, key: impl Into<String>, value: impl $crate::k8s::Field<String>) -> Self {
                self.put_entry(&["metadata", "annotations"], key, value)
            }

            /// Sets these members of the metadata and keeps others.
            pub fn metadata(mut self, metadata: impl $crate::k8s::Field<$crate::k8s::meta::v1::ObjectMeta>) -> Self {
                $crate::k8s::members::merge(&mut self.0, &["metadata"], metadata.into_value());
                self
            }
        }
    };
}

macro_rules! builder {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }

        impl From<$name> for serde_json::Value {
            fn from(builder: $name) -> Self {
                Self::Object(builder.0.into())
            }
        }

        impl $crate::k8s::Field<$name> for $name {
            fn into_value(self) -> $crate::k8s::FieldValue {
                $crate::k8s::FieldValue($crate::k8s::value::Node::Map(self.0))
            }
        }

        impl $crate::k8s::Field<$name> for &$name {
            fn into_value(self) -> $crate::k8s::FieldValue {
                self.clone().into_value()
            }
        }

        #[allow(dead_code, reason = "not every object has fields of each form")]
        impl $name {
            /// Sets a field that has no setter, by its name in JSON.
            pub fn field(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
                $crate::k8s::members::put_other(&mut self.0, name, value.into().into());
                self
            }

            pub(in crate::k8s) fn put<T>(
                mut self,
                path: $crate::k8s::members::FieldPath,
                value: impl $crate::k8s::Field<T>,
            ) -> Self {
                $crate::k8s::members::put(&mut self.0, path, value.into_value());
                self
            }

            pub(in crate::k8s) fn put_list<T>(
                mut self,
                path: $crate::k8s::members::FieldPath,
                items: impl IntoIterator<Item = impl $crate::k8s::Field<T>>,
            ) -> Self {
                let items = items.into_iter().map(|item| item.into_value().0).collect();
                $crate::k8s::members::put_list(&mut self.0, path, items);
                self
            }

            pub(in crate::k8s) fn push<T>(
                mut self,
                path: $crate::k8s::members::FieldPath,
                item: impl $crate::k8s::Field<T>,
            ) -> Self {
                $crate::k8s::members::push(&mut self.0, path, item.into_value());
                self
            }

            pub(in crate::k8s) fn put_map<T>(
                mut self,
                path: $crate::k8s::members::FieldPath,
                entries: impl IntoIterator<Item = (impl Into<String>, impl $crate::k8s::Field<T>)>,
            ) -> Self {
                for (key, value) in entries {
                    $crate::k8s::members::insert(&mut self.0, path, key.into(), value.into_value());
                }
                self
            }

            pub(in crate::k8s) fn put_entry<T>(
                mut self,
                path: $crate::k8s::members::FieldPath,
                key: impl Into<String>,
                value: impl $crate::k8s::Field<T>,
            ) -> Self {
                $crate::k8s::members::insert(&mut self.0, path, key.into(), value.into_value());
                self
            }
        }
    };
}

pub(super) use {builder, kind, metadata, part};
