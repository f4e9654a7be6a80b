//! Provides ring's signature algorithms for sigstore-verify, so that the host has one cryptographic library for
//! signatures and TLS. sigstore-verify decides what is verified, and checks that a key has the form and size of its
//! algorithm.

use std::cell::RefCell;

use ring::digest::{self, Context, digest};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use sigstore_verify::crypto::{CryptoProvider, Error, HashContext, Result, SigningScheme, install_default_provider};
use sigstore_verify::types::HashAlgorithm;

thread_local! {
    /// The message that `with_message` passes to `verify_prehashed`.
    static MESSAGE: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Makes sigstore-verify use ring. Each constructor of a trust policy calls it, before any signature is verified.
pub(super) fn install() {
    // The second call finds the first one's provider.
    let _ = install_default_provider(&Ring);
}

/// Calls sigstore-verify about signatures of this message. sigstore-verify verifies a signature against the digest of a
/// message. ring hashes messages itself, and so needs the message.
pub(super) fn with_message<T>(message: &[u8], verify: impl FnOnce() -> T) -> T {
    struct Forget;
    impl Drop for Forget {
        fn drop(&mut self) {
            MESSAGE.set(None);
        }
    }
    MESSAGE.set(Some(message.to_vec()));
    let _forget = Forget;
    verify()
}

#[derive(Debug)]
struct Ring;

struct Hash(Context);

impl HashContext for Hash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

impl CryptoProvider for Ring {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>> {
        Ok(Box::new(Hash(Context::new(hash(algorithm)?))))
    }

    fn verify_raw(&self, scheme: SigningScheme, key: &[u8], message: &[u8], signature: &[u8]) -> Result<()> {
        UnparsedPublicKey::new(algorithm(scheme)?, key)
            .verify(message, signature)
            .map_err(|_| Error::Verification(format!("{} signature invalid", scheme.name())))
    }

    fn verify_prehashed(&self, scheme: SigningScheme, key: &[u8], hashed: &[u8], signature: &[u8]) -> Result<()> {
        let Some(hash_algorithm) = scheme.hash_algorithm() else {
            return Err(unsupported(scheme));
        };
        let algorithm = hash(hash_algorithm)?;
        MESSAGE.with_borrow(|message| match message {
            Some(message) if digest(algorithm, message).as_ref() == hashed => {
                self.verify_raw(scheme, key, message, signature)
            }
            _ => Err(Error::Verification(
                "it is over a digest that is not the one of what is verified".to_owned(),
            )),
        })
    }
}

fn hash(algorithm: HashAlgorithm) -> Result<&'static digest::Algorithm> {
    match algorithm {
        HashAlgorithm::Sha2256 => Ok(&digest::SHA256),
        HashAlgorithm::Sha2384 => Ok(&digest::SHA384),
        HashAlgorithm::Sha2512 => Ok(&digest::SHA512),
        _ => Err(Error::UnsupportedAlgorithm(format!(
            "there are no digests by {algorithm}"
        ))),
    }
}

/// The algorithms of sigstore-verify, except ML-DSA, which ring lacks.
fn algorithm(scheme: SigningScheme) -> Result<&'static dyn VerificationAlgorithm> {
    Ok(match scheme {
        SigningScheme::EcdsaP256Sha256 => &ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &ED25519,
        SigningScheme::RsaPssSha256 => &RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &RSA_PSS_2048_8192_SHA512,
        SigningScheme::RsaPkcs1Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &RSA_PKCS1_2048_8192_SHA512,
        _ => return Err(unsupported(scheme)),
    })
}

fn unsupported(scheme: SigningScheme) -> Error {
    Error::UnsupportedAlgorithm(format!("{} is not supported", scheme.name()))
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    };

    use super::*;

    #[test]
    fn signature_is_valid_for_its_message_key_and_scheme_only() {
        let random = SystemRandom::new();
        let ecdsa = |algorithm| {
            let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
            let signature = key.sign(&random, b"message").unwrap().as_ref().to_vec();
            (key.public_key().as_ref().to_vec(), signature)
        };
        let key = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap();
        let signature = key.sign(b"message").as_ref().to_vec();
        let signed = [
            (SigningScheme::EcdsaP256Sha256, ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING)),
            (SigningScheme::EcdsaP384Sha384, ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING)),
            (SigningScheme::Ed25519, (key.public_key().as_ref().to_vec(), signature)),
        ];
        for (scheme, (key, signature)) in &signed {
            for (other, (other_key, _)) in &signed {
                let held = Ring.verify_raw(*other, other_key, b"message", signature).is_ok();
                assert_eq!(held, scheme == other, "{scheme:?} as {other:?}");
            }
            assert!(Ring.verify_raw(*scheme, key, b"messages", signature).is_err());
        }
        let (_, (key, signature)) = &signed[0];
        for scheme in [SigningScheme::EcdsaP256Sha384, SigningScheme::MlDsa44] {
            assert!(
                Ring.verify_raw(scheme, key, b"message", signature).is_err(),
                "{scheme:?}"
            );
        }
    }

    #[test]
    fn digest_signature_needs_the_digests_own_message() {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref(), &random).unwrap();
        let signature = key.sign(&random, b"message").unwrap();
        let verify_digest_of = |message: &[u8]| {
            let (scheme, hashed) = (SigningScheme::EcdsaP256Sha256, digest(&digest::SHA256, message));
            Ring.verify_prehashed(scheme, key.public_key().as_ref(), hashed.as_ref(), signature.as_ref())
        };
        let verify = || verify_digest_of(b"message");
        assert!(verify().is_err());
        assert!(with_message(b"message", verify).is_ok());
        assert!(with_message(b"other", verify).is_err());
        assert!(with_message(b"message", || verify_digest_of(b"other")).is_err());
        assert!(verify().is_err(), "the message is forgotten");
        let lost = std::thread::spawn(|| {
            let _ = std::panic::catch_unwind(|| with_message(b"message", || panic!("within")));
            MESSAGE.with_borrow(Option::is_none)
        });
        assert!(lost.join().unwrap(), "a panic forgets it, too");
    }

    #[test]
    fn digests_are_those_of_sha_2() {
        let hex = |algorithm, length| {
            let mut context = Ring.hash(algorithm).unwrap();
            context.update(b"a");
            context.update(b"bc");
            let bytes = context.finalize();
            assert_eq!(bytes.len(), length);
            format!("{:02x}{:02x}{:02x}{:02x}", bytes[0], bytes[1], bytes[2], bytes[3])
        };
        // The examples of FIPS 180-4 for "abc".
        assert_eq!(hex(HashAlgorithm::Sha2256, 32), "ba7816bf");
        assert_eq!(hex(HashAlgorithm::Sha2384, 48), "cb00753f");
        assert_eq!(hex(HashAlgorithm::Sha2512, 64), "ddaf35a1");
    }
}
