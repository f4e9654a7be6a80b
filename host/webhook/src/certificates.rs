//! Certificates of the webhook server: an authority of its own, and a certificate that it signs. Decides which ones
//! have to be renewed; storing them, and publishing the authority to API servers, is left to callers.
//!
//! A renewal of the authority has two steps. First the new one is put before the old one in the bundle, while the
//! server presents a certificate of the old one. Once API servers trust both, it presents one of the new.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::clients::ClientAuthorities;

/// Name of the authority, by which a certificate refers to it.
const AUTHORITY_NAME: &str = "pilothouse webhook authority";

/// Allowance for clocks that differ: a certificate is valid from a little before it is made.
const SKEW: Duration = Duration::from_mins(5);

/// ALPN protocol. API servers call webhooks over HTTP/1.1, so that load balancers spread them
/// (kubernetes/kubernetes#75791).
const PROTOCOL: &[u8] = b"http/1.1";

/// Lifetimes of certificates. Each is renewed after two thirds of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// The authority.
    pub authority: Duration,
    /// The server's certificate.
    pub certificate: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            authority: Duration::from_hours(365 * 24),
            certificate: Duration::from_hours(90 * 24),
        }
    }
}

/// The server's certificate and its authorities, each as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificates {
    /// The authorities' certificates, the newest first.
    pub bundle: String,
    /// The key of the newest authority.
    pub authority_key: String,
    /// The server's certificate.
    pub certificate: String,
    /// The server's key.
    pub key: String,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys are not for logs.
        formatter.debug_struct("Certificates").finish_non_exhaustive()
    }
}

/// Reasons why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// They cannot be made.
    #[error("cannot make certificates for the webhook server: {0}")]
    Make(#[from] rcgen::Error),
    /// They cannot be used by a server.
    #[error("cannot use the certificates of the webhook server: {0}")]
    Use(String),
}

impl Certificates {
    /// Makes a new authority, and a certificate for these names: of DNS, or IP addresses.
    pub fn make(names: &[String], now: SystemTime, lifetimes: &Lifetimes) -> Result<Self, CertificateError> {
        let (bundle, authority_key) = authority(now, lifetimes)?;
        let (certificate, key) = issue(&authority_key, names, now, lifetimes)?;
        Ok(Self {
            bundle,
            authority_key,
            certificate,
            key,
        })
    }

    /// Returns the certificates that have to replace these ones now, or none if all is well. `trusted` means that API
    /// servers have the whole bundle by now.
    pub fn renewed(
        &self,
        names: &[String],
        now: SystemTime,
        lifetimes: &Lifetimes,
        trusted: bool,
    ) -> Result<Option<Self>, CertificateError> {
        let kept = self.living_authorities(now);
        let usable = kept.first().filter(|newest| newest.is_of(&self.authority_key));
        let Some(newest) = usable else {
            // The key is lost or not the authority's: API servers may still trust certificates of other hosts.
            let made = Self::make(names, now, lifetimes)?;
            let bundle = made.bundle + &pem_of(&kept);
            return Ok(Some(Self { bundle, ..made }));
        };
        if !self.is_shown_well(names, now, &kept) {
            return self.with_new_certificate(&kept, names, now, lifetimes).map(Some);
        }
        if newest.is_due(now) {
            let (bundle, authority_key) = authority(now, lifetimes)?;
            let bundle = bundle + &pem_of(&kept);
            return Ok(Some(Self {
                bundle,
                authority_key,
                ..self.clone()
            }));
        }
        let by_newest = self.is_shown_well(names, now, &kept[..1]);
        let due = Dated::read(&self.certificate).is_none_or(|shown| shown.is_due(now));
        if (!by_newest && trusted) || (by_newest && due) {
            return self.with_new_certificate(&kept, names, now, lifetimes).map(Some);
        }
        let bundle = pem_of(&kept);
        Ok((bundle != self.bundle).then(|| Self { bundle, ..self.clone() }))
    }

    /// Returns the time of the next check: the first moment at which a renewal is due, which may be in the past.
    pub fn due(&self) -> SystemTime {
        let shown = Dated::read(&self.certificate);
        authorities(&self.bundle)
            .iter()
            .take(1)
            .chain(&shown)
            .map(Dated::due)
            .min()
            .unwrap_or(UNIX_EPOCH)
    }

    /// Returns the ends of the server's certificate and of the newest authority; none if they cannot be read.
    pub fn ends(&self) -> Option<(SystemTime, SystemTime)> {
        let authority = authorities(&self.bundle).into_iter().next()?;
        Some((Dated::read(&self.certificate)?.until, authority.until))
    }

    /// Returns the configuration of a server that presents these certificates, and accepts every client.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        self.server_config_for(None)
    }

    /// Returns the configuration of a server that presents these, and verifies clients if authorities are given.
    pub fn server_config_for(
        &self,
        clients: Option<&ClientAuthorities>,
    ) -> Result<Arc<ServerConfig>, CertificateError> {
        let refused = |error: &dyn std::fmt::Display| CertificateError::Use(error.to_string());
        let verifier = match clients {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(clients) => clients.verifier().map_err(|error| refused(&error))?,
        };
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| refused(&error))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| refused(&error))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| refused(&error))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }

    /// Reports whether their authority was made by this file. Nothing else marks the certificates that a host keeps.
    pub fn have_our_authority(&self) -> bool {
        let newest = authorities(&self.bundle).into_iter().next();
        newest.is_some_and(|newest| newest.is_of(&self.authority_key) && newest.is_named(AUTHORITY_NAME))
    }

    fn living_authorities(&self, now: SystemTime) -> Vec<Dated> {
        let mut all = authorities(&self.bundle);
        all.retain(|authority| authority.from <= now && now < authority.until);
        all
    }

    /// Reports whether a client that trusts these authorities accepts the certificate, by all its names.
    fn is_shown_well(&self, names: &[String], now: SystemTime, authorities: &[Dated]) -> bool {
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(authorities.iter().map(|it| it.der.clone()));
        let Ok(verifier) =
            WebPkiServerVerifier::builder_with_provider(roots.into(), ring::default_provider().into()).build()
        else {
            return false;
        };
        let Ok(since) = now.duration_since(UNIX_EPOCH) else {
            return false;
        };
        let now = UnixTime::since_unix_epoch(since);
        let Ok(shown) = CertificateDer::from_pem_slice(self.certificate.as_bytes()) else {
            return false;
        };
        added > 0
            && self.server_config().is_ok()
            && names.iter().all(|name| {
                ServerName::try_from(name.as_str())
                    .is_ok_and(|name| verifier.verify_server_cert(&shown, &[], &name, &[], now).is_ok())
            })
    }

    fn with_new_certificate(
        &self,
        kept: &[Dated],
        names: &[String],
        now: SystemTime,
        lifetimes: &Lifetimes,
    ) -> Result<Self, CertificateError> {
        let (certificate, key) = issue(&self.authority_key, names, now, lifetimes)?;
        Ok(Self {
            bundle: pem_of(kept),
            authority_key: self.authority_key.clone(),
            certificate,
            key,
        })
    }
}

/// A parsed certificate, with its validity.
struct Dated {
    pem: String,
    der: CertificateDer<'static>,
    from: SystemTime,
    until: SystemTime,
    public_key: Vec<u8>,
}

impl Dated {
    fn read(pem: &str) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (_, parsed) = X509Certificate::from_der(&der).ok()?;
        let at = |seconds: i64| Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?));
        let (from, until) = (
            at(parsed.validity().not_before.timestamp())?,
            at(parsed.validity().not_after.timestamp())?,
        );
        let public_key = parsed.public_key().subject_public_key.data.to_vec();
        Some(Self {
            from,
            until,
            public_key,
            pem: tidy(pem),
            der,
        })
    }

    /// Returns the time of renewal, after two thirds of its life.
    fn due(&self) -> SystemTime {
        self.from + self.until.duration_since(self.from).unwrap_or_default() * 2 / 3
    }

    fn is_due(&self, now: SystemTime) -> bool {
        self.due() <= now
    }

    fn is_named(&self, name: &str) -> bool {
        X509Certificate::from_der(&self.der).is_ok_and(|(_, parsed)| {
            let mut names = parsed.subject().iter_common_name();
            names.next().is_some_and(|it| it.as_str() == Ok(name)) && names.next().is_none()
        })
    }

    fn is_of(&self, key: &str) -> bool {
        KeyPair::from_pem(key).is_ok_and(|key| key.public_key_raw() == self.public_key)
    }
}

/// Returns the certificates of a bundle that can be parsed, in its order.
fn authorities(bundle: &str) -> Vec<Dated> {
    bundle
        .split_inclusive("-----END CERTIFICATE-----")
        .filter_map(Dated::read)
        .collect()
}

fn pem_of(certificates: &[Dated]) -> String {
    certificates
        .iter()
        .map(|certificate| certificate.pem.as_str())
        .collect()
}

/// Removes text around the PEM blocks, so that an unchanged bundle is the same text.
fn tidy(pem: &str) -> String {
    format!("{}\n", pem.trim())
}

fn authority_params(now: SystemTime, lifetimes: &Lifetimes) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
    date(&mut params, now, lifetimes.authority);
    params
}

/// Makes a new authority: its certificate and its key.
fn authority(now: SystemTime, lifetimes: &Lifetimes) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(now, lifetimes).self_signed(&key)?;
    Ok((tidy(&certificate.pem()), key.serialize_pem()))
}

/// Issues a new certificate of the authority that has this key, and its own key.
fn issue(
    authority_key: &str,
    names: &[String],
    now: SystemTime,
    lifetimes: &Lifetimes,
) -> Result<(String, String), rcgen::Error> {
    let issuer = Issuer::new(authority_params(now, lifetimes), KeyPair::from_pem(authority_key)?);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "pilothouse webhooks");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    date(&mut params, now, lifetimes.certificate);
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn date(params: &mut CertificateParams, now: SystemTime, lifetime: Duration) {
    params.not_before = (now - SKEW.min(lifetime / 10)).into();
    params.not_after = (now + lifetime).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn lifetimes() -> Lifetimes {
        Lifetimes {
            authority: DAY * 300,
            certificate: DAY * 90,
        }
    }

    fn names() -> Vec<String> {
        vec!["host.harbour.svc".to_owned(), "10.0.0.1".to_owned()]
    }

    fn day(number: u32) -> SystemTime {
        UNIX_EPOCH + DAY * (20_000 + number)
    }

    fn made() -> Certificates {
        Certificates::make(&names(), day(0), &lifetimes()).unwrap()
    }

    fn renewed(certificates: &Certificates, now: SystemTime, trusted: bool) -> Option<Certificates> {
        certificates.renewed(&names(), now, &lifetimes(), trusted).unwrap()
    }

    /// Reports whether a client that trusts this bundle accepts the certificate.
    fn is_taken(certificates: &Certificates, bundle: &str, now: SystemTime) -> bool {
        let mut trusted = authorities(bundle);
        trusted.retain(|authority| now < authority.until);
        certificates.is_shown_well(&names(), now, &trusted)
    }

    #[test]
    fn what_is_made_is_taken_by_all_its_names_and_by_no_other() {
        let made = made();
        assert!(is_taken(&made, &made.bundle, day(1)));
        assert!(!made.is_shown_well(&["elsewhere".to_owned()], day(1), &authorities(&made.bundle)));
        assert!(made.server_config().is_ok());
    }

    #[test]
    fn nothing_is_renewed_before_two_thirds_of_its_life() {
        let made = made();
        assert_eq!(renewed(&made, day(59), true), None);
        let (early, late) = (day(59), day(61));
        assert!(made.due() > early && made.due() < late);
    }

    #[test]
    fn a_certificate_is_renewed_under_the_same_authority() {
        let made = made();
        let next = renewed(&made, day(61), true).unwrap();
        assert_eq!((&next.bundle, &next.authority_key), (&made.bundle, &made.authority_key));
        assert_ne!(next.certificate, made.certificate);
        assert!(is_taken(&next, &made.bundle, day(100)), "it lasts beyond the old one");
        assert!(!is_taken(&made, &made.bundle, day(91)), "the old one has run out");
    }

    #[test]
    fn a_new_authority_is_trusted_before_anything_of_it_is_shown() {
        let mut now = made();
        for number in [61, 121, 181] {
            now = renewed(&now, day(number), true).unwrap();
        }
        let overlapping = renewed(&now, day(201), true).unwrap();
        assert_eq!(overlapping.certificate, now.certificate, "what is shown stays");
        assert_eq!(authorities(&overlapping.bundle).len(), 2);
        assert!(
            is_taken(&overlapping, &now.bundle, day(201)),
            "by who has the old bundle"
        );
        assert!(
            is_taken(&overlapping, &overlapping.bundle, day(201)),
            "by who has the new one"
        );
        assert_eq!(renewed(&overlapping, day(202), false), None, "not everybody has it yet");

        let moved = renewed(&overlapping, day(202), true).unwrap();
        assert_eq!(moved.bundle, overlapping.bundle);
        assert!(is_taken(&moved, &moved.bundle, day(202)));
        assert!(!is_taken(&moved, &now.bundle, day(202)), "it is the new authority's");

        let later = renewed(&moved, day(301), true).unwrap();
        assert_eq!(
            authorities(&later.bundle).len(),
            1,
            "what has run out leaves the bundle"
        );
    }

    #[test]
    fn what_has_run_out_or_is_not_ours_is_made_anew_at_once() {
        let made = made();
        let after = renewed(&made, day(400), false).unwrap();
        assert!(is_taken(&after, &after.bundle, day(401)));
        let foreign = Certificates {
            certificate: Certificates::make(&names(), day(0), &lifetimes()).unwrap().certificate,
            ..made.clone()
        };
        let fixed = renewed(&foreign, day(1), false).unwrap();
        assert!(is_taken(&fixed, &made.bundle, day(1)));
        let lost = Certificates {
            authority_key: "lost".to_owned(),
            ..made.clone()
        };
        let fixed = renewed(&lost, day(1), false).unwrap();
        assert_eq!(
            authorities(&fixed.bundle).len(),
            2,
            "what other hosts show stays trusted"
        );
        assert!(is_taken(&fixed, &fixed.bundle, day(1)) && is_taken(&made, &fixed.bundle, day(1)));
        let other_name = vec!["other.harbour.svc".to_owned()];
        let renamed = made.renewed(&other_name, day(1), &lifetimes(), true).unwrap().unwrap();
        assert!(renamed.is_shown_well(&other_name, day(1), &authorities(&made.bundle)));
    }

    #[test]
    fn what_a_host_made_is_known_by_its_authority() {
        let made = made();
        assert!(made.have_our_authority());
        let shape = |change: fn(&mut Certificates)| {
            let mut other = made.clone();
            change(&mut other);
            other.have_our_authority()
        };
        assert!(shape(|it| it.certificate = String::new()), "what is shown may be lost");
        assert!(!shape(
            |it| it.authority_key = KeyPair::generate().unwrap().serialize_pem()
        ));
        assert!(!shape(|it| it.bundle = String::new()));
        // Another authority, in the same form.
        let key = KeyPair::generate().unwrap();
        let mut params = authority_params(day(0), &lifetimes());
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "somebody's authority");
        let foreign = Certificates {
            bundle: params.self_signed(&key).unwrap().pem(),
            authority_key: key.serialize_pem(),
            ..made.clone()
        };
        assert!(!foreign.have_our_authority());
    }

    #[test]
    fn keys_do_not_reach_a_log() {
        assert!(!format!("{:?}", made()).contains("KEY"));
    }
}
