//! Client authentication: the CA certificates that client certificates must chain to, if configured.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

/// CA certificates of clients, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuthorities(String);

/// Reasons why CA certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientAuthoritiesError {
    /// The text is not PEM, or contains an invalid certificate.
    #[error("it is not PEM with certificates: {0}")]
    Shape(String),
    /// The text has no certificate.
    #[error("it has no certificate; put the CA that signs the API servers' client certificates into it")]
    Empty,
}

impl ClientAuthorities {
    /// Parses the certificates of a PEM file.
    pub fn parse(pem: &str) -> Result<Self, ClientAuthoritiesError> {
        let authorities = Self(pem.to_owned());
        authorities.verifier()?;
        Ok(authorities)
    }

    /// Returns a verifier of client certificates. A client without one may connect: API servers have no certificate for
    /// conversion webhooks, and such a client may only call those.
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
