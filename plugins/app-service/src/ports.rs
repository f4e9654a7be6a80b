//! Owns the ports: which the container has, given those of the Service, and which no Service can have.

use pilothouse_plugin::k8s::core::v1;

use crate::resource::{IntOrString, Protocol, ServicePort};

/// The longest name of a container's port, in bytes (IANA service name, RFC 6335).
const LONGEST_PORT_NAME: usize = 15;

/// One port of the container.
#[derive(Debug, PartialEq, Eq)]
pub struct ContainerPort<'a> {
    /// The name that the Service refers to.
    pub name: Option<&'a str>,
    /// The number that the process listens on.
    pub number: u16,
    /// The IP protocol.
    pub protocol: Protocol,
}

impl ContainerPort<'_> {
    /// The port as a container has it.
    pub fn build(&self) -> v1::ContainerPort {
        v1::ContainerPort::new(self.number)
            .name(self.name)
            .protocol(self.protocol.as_str())
    }
}

/// Why no Service can have these ports.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// Ports begin with 1.
    #[error("spec.ports[{0}].port is 0; give a number from 1 to 65535")]
    ZeroPort(usize),
    /// A target outside the range of ports.
    #[error("spec.ports[{index}].targetPort is {number}; give a number from 1 to 65535, or the name of a port")]
    TargetOutOfRange {
        /// Which port.
        index: usize,
        /// What was given.
        number: i64,
    },
    /// A target's name that containers can't have.
    #[error(
        "spec.ports[{index}].targetPort is {name:?}; a port's name has 1 to 15 characters a-z, 0-9 and single '-' inside, and \
         at least one letter"
    )]
    UnusableTargetName {
        /// Which port.
        index: usize,
        /// What was given.
        name: String,
    },
    /// A Service with several ports needs to tell them apart.
    #[error("spec.ports[{0}].name is missing; with more than one port, each needs a name")]
    MissingName(usize),
    /// Two ports with the same name.
    #[error(
        "spec.ports[{index}].name is {name:?}, as is that of spec.ports[{first}]; give each port a name of its own"
    )]
    RepeatedName {
        /// The earlier port.
        first: usize,
        /// The later port.
        index: usize,
        /// Their name.
        name: String,
    },
    /// Two ports with the same number and protocol.
    #[error(
        "spec.ports[{index}] offers {number}/{protocol}, as does spec.ports[{first}]; a Service offers each number once \
         per protocol"
    )]
    RepeatedPort {
        /// The earlier port.
        first: usize,
        /// The later port.
        index: usize,
        /// Their number.
        number: u16,
        /// Their protocol.
        protocol: Protocol,
    },
    /// One name for two protocols.
    #[error(
        "spec.ports[{index}].targetPort is {name:?} with {protocol}, which stands for {taken} already: a container has a port's \
         name once; use another name or a number"
    )]
    NameOfOtherProtocol {
        /// Which port.
        index: usize,
        /// The name.
        name: String,
        /// What it should also stand for.
        protocol: Protocol,
        /// What it stands for.
        taken: Protocol,
    },
}

/// Checks the ports of a Service and says which ports the container has: one for each distinct number and protocol.
pub fn check(ports: &[ServicePort]) -> Result<Vec<ContainerPort<'_>>, PortError> {
    let mut container_ports: Vec<ContainerPort<'_>> = Vec::with_capacity(ports.len());
    for (index, port) in ports.iter().enumerate() {
        check_against_earlier(ports, index)?;
        let protocol = port.protocol();
        let (name, number) = match target_of(index, port)? {
            Target::Number(number) => (None, number),
            Target::Name(name) => match container_ports.iter().find(|known| known.name == Some(name)) {
                Some(known) if known.protocol == protocol => continue,
                Some(known) => {
                    let (name, taken) = (name.to_owned(), known.protocol);
                    return Err(PortError::NameOfOtherProtocol {
                        index,
                        name,
                        protocol,
                        taken,
                    });
                }
                None => (Some(name), port.port),
            },
        };
        let same = container_ports
            .iter_mut()
            .find(|known| known.number == number && known.protocol == protocol);
        match same {
            // A number that a second name stands for has been refused: it would be offered twice.
            Some(known) => known.name = known.name.or(name),
            None => container_ports.push(ContainerPort { name, number, protocol }),
        }
    }
    Ok(container_ports)
}

/// What a Service's port leads to.
enum Target<'a> {
    Number(u16),
    Name(&'a str),
}

/// As for a Service, 0 and the empty name are as good as none.
fn target_of(index: usize, port: &ServicePort) -> Result<Target<'_>, PortError> {
    match &port.target_port {
        None | Some(IntOrString::Int(0)) => Ok(Target::Number(port.port)),
        Some(IntOrString::Int(number)) => match u16::try_from(*number) {
            Ok(number) => Ok(Target::Number(number)),
            Err(_) => Err(PortError::TargetOutOfRange { index, number: *number }),
        },
        Some(IntOrString::String(name)) if name.is_empty() => Ok(Target::Number(port.port)),
        Some(IntOrString::String(name)) if is_port_name(name) => Ok(Target::Name(name)),
        Some(IntOrString::String(name)) => Err(PortError::UnusableTargetName {
            index,
            name: name.clone(),
        }),
    }
}

/// Checks what the server would refuse in a Service, so that the message names the user's field.
fn check_against_earlier(ports: &[ServicePort], index: usize) -> Result<(), PortError> {
    let port = &ports[index];
    if port.port == 0 {
        return Err(PortError::ZeroPort(index));
    }
    let name = port.name.as_deref().unwrap_or_default();
    if ports.len() > 1 && name.is_empty() {
        return Err(PortError::MissingName(index));
    }
    for (first, earlier) in ports[..index].iter().enumerate() {
        if earlier.port == port.port && earlier.protocol() == port.protocol() {
            return Err(PortError::RepeatedPort {
                first,
                index,
                number: port.port,
                protocol: port.protocol(),
            });
        }
        if earlier.name == port.name {
            return Err(PortError::RepeatedName {
                first,
                index,
                name: name.to_owned(),
            });
        }
    }
    Ok(())
}

/// Whether a container's port can have this name.
fn is_port_name(name: &str) -> bool {
    name.len() <= LONGEST_PORT_NAME
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}
