//! Derives the ports of the container from those of the Service.

use pilothouse_plugin::k8s::core::v1;

use crate::resource::{IntOrString, Protocol, ServicePort};

/// One port of the container.
#[derive(Debug, PartialEq, Eq)]
pub struct ContainerPort<'a> {
    /// Name that the Service refers to.
    pub name: Option<&'a str>,
    /// Number that the process listens on.
    pub number: i32,
    /// The IP protocol.
    pub protocol: Protocol,
}

impl ContainerPort<'_> {
    /// Returns the container port for the pod template.
    pub fn build(&self) -> v1::ContainerPort {
        v1::ContainerPort::new(self.number)
            .name(self.name)
            .protocol(self.protocol.as_str())
    }
}

/// One name is used for two protocols.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "spec.ports[{index}].targetPort is {name:?} with {protocol}, which stands for {taken} already: a container has a port's \
     name once; use another name or a number"
)]
pub struct PortError {
    /// Index of the port.
    index: usize,
    /// The name.
    name: String,
    /// Protocol for which it is used again.
    protocol: Protocol,
    /// Protocol for which it is used already.
    taken: Protocol,
}

/// Returns the ports of the container: one for each distinct number and protocol.
pub fn of_container(ports: &[ServicePort]) -> Result<Vec<ContainerPort<'_>>, PortError> {
    let mut container_ports: Vec<ContainerPort<'_>> = Vec::with_capacity(ports.len());
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol();
        let (name, number) = match target_of(port) {
            Target::Number(number) => (None, number),
            Target::Name(name) => match container_ports.iter().find(|known| known.name == Some(name)) {
                Some(known) if known.protocol == protocol => continue,
                Some(known) => {
                    let (name, taken) = (name.to_owned(), known.protocol);
                    return Err(PortError {
                        index,
                        name,
                        protocol,
                        taken,
                    });
                }
                None => (Some(name), port.port.into()),
            },
        };
        let same = container_ports
            .iter_mut()
            .find(|known| known.number == number && known.protocol == protocol);
        match same {
            // There is no second name for the number: the definition has each number and protocol once.
            Some(known) => known.name = known.name.or(name),
            None => container_ports.push(ContainerPort { name, number, protocol }),
        }
    }
    Ok(container_ports)
}

/// Target of a Service's port.
enum Target<'a> {
    Number(i32),
    Name(&'a str),
}

/// Returns the target; as for a Service, 0 and the empty name mean none.
fn target_of(port: &ServicePort) -> Target<'_> {
    match &port.target_port {
        Some(IntOrString::Int(number)) if *number != 0 => Target::Number(*number),
        Some(IntOrString::String(name)) if !name.is_empty() => Target::Name(name),
        _ => Target::Number(port.port.into()),
    }
}
