//! Derives of `pilothouse-plugin`, which re-exports them; its documentation describes them.
//!
//! `serde` parses the attributes about deserialization, `fields` derives from them the paths that a type reads,
//! `resource` adds the kind, and `crd` the CustomResourceDefinition.

#![forbid(unsafe_code)]

mod crd;
mod fields;
mod names;
mod resource;
mod serde;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `Resource`: the kind of a type, and the fields of it that the type reads.
#[proc_macro_derive(Resource, attributes(resource, crd, kube))]
pub fn derive_resource(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    resource::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Implements `Fields`: the fields that a type below a resource reads.
#[proc_macro_derive(Fields, attributes(resource))]
pub fn derive_fields(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    fields::expand(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
