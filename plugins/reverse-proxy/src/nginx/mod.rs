//! Owns what nginx takes: which variables it knows, what its values look like, and how its configuration is written.

pub(crate) mod address;
pub(crate) mod http;
pub(crate) mod regex;
pub(crate) mod stream;
pub(crate) mod syntax;
pub mod variables;
mod writer;

/// What a configuration of nginx is made of, checked.
pub(crate) trait Configuration {
    /// The text of `nginx.conf`.
    fn text(&self) -> String;

    /// What nginx takes, and what will not work all the same.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
