//! The option `--identity`: the identity of the host's requests for a plugin.

use anyhow::bail;
use clap::ValueEnum;
use pilothouse_core::plugin::manifest::is_label;
use pilothouse_core::rights::objects::Acting;

/// The values of `--identity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IdentityMode {
    /// In its own
    None,
    /// In that of the plugin's ServiceAccount, by impersonation
    Impersonate,
    /// In that of the plugin's ServiceAccount, with tokens from TokenRequest
    Token,
}

impl IdentityMode {
    /// Returns the namespace of the plugins' accounts, which is the host's own; none if the host makes all requests as
    /// itself. Outside of a cluster, with Plugin resources, it is the default namespace of `pilothouse install`.
    pub fn namespace(self, namespace: Option<&str>, by_resources: bool) -> anyhow::Result<Option<String>> {
        if self == Self::None {
            return Ok(None);
        }
        let Some(namespace) = namespace.or(by_resources.then_some(HOST_NAMESPACE)) else {
            bail!(
                "--identity {self} needs the namespace that the plugins' ServiceAccounts are in, and this is no pod; give it with \
                 --namespace"
            )
        };
        if !is_label(namespace) {
            bail!("--namespace {namespace:?} is not a DNS label; give the namespace that the plugins' accounts are in")
        }
        Ok(Some(namespace.to_owned()))
    }

    /// Returns the rights that the host's account needs for it.
    pub fn acting(self) -> Acting {
        match self {
            Self::None => Acting::Host,
            Self::Impersonate => Acting::Impersonation,
            Self::Token => Acting::Token,
        }
    }
}

impl std::fmt::Display for IdentityMode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::None => "none",
            Self::Impersonate => "impersonate",
            Self::Token => "token",
        })
    }
}

/// The host's namespace unless it is given.
pub const HOST_NAMESPACE: &str = "pilothouse-system";
