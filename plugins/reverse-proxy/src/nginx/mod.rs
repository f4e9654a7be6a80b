//! Rules of nginx: its variables, the syntax of its values, and the form of its configuration.

pub(crate) mod address;
pub(crate) mod http;
pub(crate) mod regex;
pub(crate) mod stream;
pub(crate) mod syntax;
pub mod variables;
mod writer;

/// Checked values of a configuration of nginx.
pub(crate) trait Configuration {
    /// Returns the text of `nginx.conf`.
    fn text(&self) -> String;

    /// Returns warnings about values that nginx accepts but that will not work.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
