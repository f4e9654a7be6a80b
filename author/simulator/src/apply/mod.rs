//! Server-side apply and field ownership: structured merge of applied objects, conflicts, and the ownership that
//! follows from any other write. Knows nothing of storage or of requests.
//!
//! The rules are those of sigs.k8s.io/structured-merge-diff v6 and k8s.io/apimachinery's managedfields, as of 1.36.

pub(crate) mod book;
mod check;
mod compare;
mod merge;
pub(crate) mod types;
pub(crate) mod update;
mod walk;

#[cfg(test)]
mod tests;
