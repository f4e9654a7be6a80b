//! Plugins as OCI artifacts: how they are named, pushed, pulled, copied, signed, verified and cached.
//!
//! Knows registries and signatures, and neither Kubernetes nor wasmtime. What a component contains is not this crate's
//! matter: it moves bytes whose digest and signature are known before anything parses them.
#![forbid(unsafe_code)]

mod digest;
mod signature;

pub use digest::{Digest, DigestError};
pub use signature::SignatureMaterial;
