//! List of the demo's acts, in order. Each file is one plugin's, or that of one of its kinds.

mod app_service;
mod ecs_binding;
mod reverse_proxy;
mod service_ingress;
mod stream_ingress;
mod tcp_reverse_proxy;

use crate::act::Act;

/// All acts, in the order in which they are played.
pub fn acts() -> Vec<Act> {
    vec![
        app_service::act(),
        reverse_proxy::act(),
        tcp_reverse_proxy::act(),
        service_ingress::act(),
        stream_ingress::act(),
        ecs_binding::act(),
    ]
}
