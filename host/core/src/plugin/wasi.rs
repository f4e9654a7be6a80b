//! Defines the WASI interfaces that a plugin may import, and their names. Implementing the inert set is left to
//! host/sandbox.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a component may import of WASI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Wasi {
    /// Nothing: a component that imports an interface of WASI is refused.
    #[default]
    None,
    /// The interfaces of WASI 0.2, answered without any access: no files, no network, no environment, a clock and random
    /// numbers that are the same in every call. What is written to standard output and standard error goes to the log.
    Inert,
}

impl std::str::FromStr for Wasi {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" | "None" => Ok(Self::None),
            "inert" | "Inert" => Ok(Self::Inert),
            other => Err(format!("{other:?} is no grant of WASI; write none or inert")),
        }
    }
}

/// Reports whether an import is one of WASI, of any version.
pub fn is_wasi(import: &str) -> bool {
    import.starts_with("wasi:")
}

/// The package and interface in a WASI 0.2 name, such as `cli/exit` of `wasi:cli/exit@0.2.6`.
pub fn interface(import: &str) -> Option<&str> {
    let (interface, version) = import.strip_prefix("wasi:")?.split_once('@')?;
    version.starts_with("0.2.").then_some(interface)
}

/// The purposes of some WASI interfaces, for messages.
pub fn purposes<'a>(imports: impl IntoIterator<Item = &'a str>) -> Vec<&'static str> {
    let mut found: Vec<_> = imports.into_iter().filter_map(purpose).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn purpose(import: &str) -> Option<&'static str> {
    let (package, interface) = interface(import)?.split_once('/')?;
    match package {
        "cli" => match interface {
            "stdin" | "stdout" | "stderr" => Some("standard streams"),
            "exit" => Some("ending the process"),
            _ if interface.starts_with("terminal-") => Some("a terminal"),
            _ => Some("environment variables and arguments"),
        },
        "clocks" => Some("the time"),
        "filesystem" => Some("files"),
        "random" => Some("random numbers"),
        "sockets" | "http" => Some("the network"),
        // Streams and pollables, which the others hand out.
        "io" => None,
        _ => Some("other services of WASI"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_version_0_2_is_known() {
        assert_eq!(interface("wasi:cli/exit@0.2.6"), Some("cli/exit"));
        for name in [
            "wasi:cli/exit@0.3.0",
            "wasi:cli/exit",
            "my:cli/exit@0.2.0",
            "wasi:cli/exit@0.20.0",
        ] {
            assert_eq!(interface(name), None, "{name}");
        }
    }

    #[test]
    fn what_interfaces_are_for_is_said_once() {
        let imports = [
            "wasi:sockets/tcp@0.2.3",
            "wasi:sockets/udp@0.2.3",
            "wasi:io/poll@0.2.3",
            "wasi:cli/exit@0.2.3",
        ];
        assert_eq!(purposes(imports), ["ending the process", "the network"]);
    }

    #[test]
    fn a_grant_is_written_as_in_the_resource_or_in_lower_case() {
        assert_eq!("Inert".parse(), Ok(Wasi::Inert));
        assert_eq!("inert".parse(), Ok(Wasi::Inert));
        assert!("all".parse::<Wasi>().unwrap_err().contains("none or inert"));
    }
}
