//! What moves bytes, against registries in this process: good ones, broken ones and hostile ones.

mod authorization;
mod copying;
mod hostile;
mod pulling;
mod pushing;
mod registry;
mod signatures;
