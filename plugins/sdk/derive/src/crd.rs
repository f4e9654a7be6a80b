//! Owns the CustomResourceDefinition of a type: what its attribute `#[crd]` says.
