//! List of targets; each is in a file of its name.

mod admission;
mod cache;
mod component;
mod kubeconfig;
mod manifest;
mod plugins;
mod resource;
mod watch;

/// One target.
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Takes one input. Panics if the host breaks a promise.
    pub run: fn(&[u8]),
    /// The most memory that it may take over rest, in bytes.
    pub memory: usize,
}

/// Memory for reading.
const READING: usize = 256 * 1024 * 1024;

/// Memory for compiling or running a component.
const COMPILING: usize = 1024 * 1024 * 1024;

/// All of them.
pub const ALL: &[Target] = &[
    Target {
        name: "admission",
        run: admission::run,
        memory: READING,
    },
    Target {
        name: "cache",
        run: cache::run,
        memory: COMPILING,
    },
    Target {
        name: "component",
        run: component::run,
        memory: COMPILING,
    },
    Target {
        name: "kubeconfig",
        run: kubeconfig::run,
        memory: READING,
    },
    Target {
        name: "manifest",
        run: manifest::run,
        memory: READING,
    },
    Target {
        name: "plugins",
        run: plugins::run,
        memory: COMPILING,
    },
    Target {
        name: "resource",
        run: resource::run,
        memory: READING,
    },
    Target {
        name: "watch",
        run: watch::run,
        memory: READING,
    },
];
