//! Tests that need helm, kustomize or the image; each of the modules is left out where its program is missing.

mod helm;
mod image;
