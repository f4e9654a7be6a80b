//! Owns `--identity`: in whose name the host makes a plugin's requests.

use anyhow::bail;
use clap::ValueEnum;
use pilothouse_core::manifest::is_label;
use pilothouse_core::rights::objects::Acting;
use pilothouse_runtime::Identity;

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
    /// Whom the host acts as. Accounts are in its own namespace.
    pub fn of_host(self, namespace: Option<&str>) -> anyhow::Result<Identity> {
        let (Some(namespace), false) = (namespace, self == Self::None) else {
            if self == Self::None {
                return Ok(Identity::Host);
            }
            bail!(
                "--identity {self} needs the namespace that the plugins' ServiceAccounts are in, and this is no pod; give it with \
                 --namespace"
            )
        };
        if !is_label(namespace) {
            bail!("--namespace {namespace:?} is not a DNS label; give the namespace that the plugins' accounts are in")
        }
        Ok(Identity::ServiceAccounts {
            namespace: namespace.to_owned(),
            by_token: self == Self::Token,
        })
    }

    /// What the host's account needs for it.
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
