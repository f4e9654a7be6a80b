//! Fetches the components of plugins: from a directory, or from a store of OCI artifacts.
//!
//! A start takes the digest that the Plugin's status records, from the cache or the registry, and asks what the reference means afterwards. A
//! new digest goes through the same trial as a new file. A changed trust file has what runs verified again. Files are read on at most
//! 16 threads, each waited for 10 s. The component of `run --plugin` is fetched once: a tag that moves is seen at the next start.

pub mod artifact;
pub mod artifact_memory;
pub mod directory_reader;
pub mod earlier_artifact;
pub mod source;
