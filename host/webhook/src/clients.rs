//! Owns client authentication: the CA certificates that client certificates must chain to, if the administrator
//! configures any.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

/// The authorities that vouch for clients, as they were read: PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthorities(String);

/// Why authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientAuthoritiesError {
    /// Not PEM, or a certificate that is none.
    #[error("it is not PEM with certificates: {0}")]
    Shape(String),
    /// No certificate in it.
    #[error("it has no certificate; put the CA that signs the API servers' client certificates into it")]
    Empty,
}

impl ClientAuthorities {
    /// Reads the certificates of a PEM file.
    pub fn parse(pem: &str) -> Result<Self, ClientAuthoritiesError> {
        let authorities = Self(pem.to_owned());
        authorities.verifier()?;
        Ok(authorities)
    }

    /// Verifies the certificates that clients show. A client that shows none may connect: API servers have no
    /// certificate for conversion webhooks, which alone such a client may ask.
    pub(crate) fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, ClientAuthoritiesError> {
        let shape = |error: &dyn std::fmt::Display| ClientAuthoritiesError::Shape(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.0.as_bytes()) {
            let certificate = certificate.map_err(|error| shape(&error))?;
            roots.add(certificate).map_err(|error| shape(&error))?;
        }
        if roots.is_empty() {
            return Err(ClientAuthoritiesError::Empty);
        }
        WebPkiClientVerifier::builder_with_provider(roots.into(), ring::default_provider().into())
            .allow_unauthenticated()
            .build()
            .map_err(|error| shape(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_authority_is_refused_and_says_why() {
        let problem = |pem: &str| ClientAuthorities::parse(pem).unwrap_err().to_string();
        assert!(problem("").contains("has no certificate"));
        assert!(problem("nonsense").contains("has no certificate"));
        let broken = "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n";
        assert!(
            problem(broken).contains("not PEM with certificates"),
            "{}",
            problem(broken)
        );
    }
}
