//! A certificate authority, and a server's certificate by it.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;

pub(crate) struct Authority {
    pub(crate) pem: String,
    /// With a certificate for `localhost`, 127.0.0.1 and `registry.invalid`.
    pub(crate) acceptor: TlsAcceptor,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["registry.example".to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = parameters.self_signed(&key).unwrap();
        let issuer = rcgen::Issuer::new(parameters, key);
        let leaf_key = rcgen::KeyPair::generate().unwrap();
        let names = ["localhost", "127.0.0.1", "registry.invalid"].map(str::to_owned);
        let leaf = rcgen::CertificateParams::new(names.to_vec()).unwrap();
        let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap();
        let private = rustls::pki_types::PrivateKeyDer::try_from(leaf_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], private)
            .unwrap();
        Self {
            pem: authority.pem(),
            acceptor: TlsAcceptor::from(Arc::new(config)),
        }
    }
}
