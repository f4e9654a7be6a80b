//! Owns the list of targets; each is in a file of its name.

mod admission;
mod cache;
mod component;
mod configuration;
mod kubeconfig;
mod manifest;
mod plugins;
mod resource;
mod watch;

/// One target.
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// What its bytes are.
    pub about: &'static str,
    /// The longest input that is worth trying.
    pub longest: usize,
    /// Takes one input. Panics if the host breaks a promise.
    pub run: fn(&[u8]),
}

/// All of them.
pub const ALL: &[Target] = &[
    Target {
        name: "admission",
        about: "AdmissionReviews and ConversionReviews",
        longest: 16_384,
        run: admission::run,
    },
    Target {
        name: "cache",
        about: "files in the directory of compiled plugins",
        longest: 4096,
        run: cache::run,
    },
    Target {
        name: "component",
        about: "component files",
        longest: 65_536,
        run: component::run,
    },
    Target {
        name: "configuration",
        about: "configurations and their schemas",
        longest: 8192,
        run: configuration::run,
    },
    Target {
        name: "kubeconfig",
        about: "kubeconfigs",
        longest: 8192,
        run: kubeconfig::run,
    },
    Target {
        name: "manifest",
        about: "manifests that plugins describe themselves with",
        longest: 16_384,
        run: manifest::run,
    },
    Target {
        name: "plugins",
        about: "custom resources made by the CRDs' schemas, reconciled by the plugins",
        longest: 2048,
        run: plugins::run,
    },
    Target {
        name: "resource",
        about: "Plugin resources, listed and watched",
        longest: 8192,
        run: resource::run,
    },
    Target {
        name: "watch",
        about: "lists and watch streams",
        longest: 16_384,
        run: watch::run,
    },
];
