//! Models what Kubernetes defines: names, kinds, field paths, label selectors, field sets, and how values are merged and compared.

pub mod crd_change;
pub mod crd_difference;
pub mod crd_superset;
pub mod crd_view;
pub mod fields;
pub mod key;
pub mod path;
pub mod selector;
pub mod served;
pub mod token;
pub mod types;
pub mod values;
