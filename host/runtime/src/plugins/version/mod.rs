//! Prepares one version of a plugin to run: describes and checks it, waits for what it needs, and lets it take over.
//!
//! A kind that is not served delays its plugin alone; so does, where the host installs no CRDs, another CRD. Of plugins that bring one kind,
//! the one that runs keeps it; when the host starts, the oldest that has its rights gets it. A version that would delete what
//! another one made in its place is refused until somebody consents (`consent`).
//!
//! A new version goes the same way beside the old one, its lanes only widening the watches. It answers for some primaries on trial, because
//! plugins are pure; it is refused if it fails where the old one does not. Then each lane takes the number of the old lane of the same
//! primary kind, and everything is reconciled again. A loaded version is supervised in each state (`running`): if its calls crash, it
//! loses a kind to another plugin, or the inventory changes, it is examined again.

pub mod consent;
pub mod crd_wait;
pub mod exclusive_kinds;
pub mod permissions;
pub mod prepare;
pub mod running;
pub mod staging;
