//! Owns what is generated from types: the CustomResourceDefinition in `crds/`, and the schema of the configuration.
//!
//! Both are made by tests and nowhere else, so nothing that makes schemas is in the component.

use kube::CustomResourceExt as _;

use crate::resource::Definition;
use crate::settings::Settings;

#[test]
fn the_definition_that_is_kept_is_the_one_that_the_types_give() {
    pilothouse_definitions::keep_definition(env!("CARGO_MANIFEST_DIR"), &Definition::crd());
}

#[test]
fn the_schema_that_is_kept_is_the_one_that_the_type_gives() {
    pilothouse_definitions::keep_configuration::<Settings>(env!("CARGO_MANIFEST_DIR"));
}
