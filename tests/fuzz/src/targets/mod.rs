//! Owns the list of targets; each is in a file of its name.

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
}

/// All of them.
pub const ALL: &[Target] = &[
    Target {
        name: "admission",
        run: admission::run,
    },
    Target {
        name: "cache",
        run: cache::run,
    },
    Target {
        name: "component",
        run: component::run,
    },
    Target {
        name: "kubeconfig",
        run: kubeconfig::run,
    },
    Target {
        name: "manifest",
        run: manifest::run,
    },
    Target {
        name: "plugins",
        run: plugins::run,
    },
    Target {
        name: "resource",
        run: resource::run,
    },
    Target {
        name: "watch",
        run: watch::run,
    },
];
