//! Owns the secret that the nodes of a cluster share, and the proofs of having it.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Size of a secret, and of a proof, in bytes.
pub(crate) const SECRET_BYTES: usize = 32;

/// A proof of having the secret.
pub(crate) type Proof = [u8; SECRET_BYTES];

/// The token of a cluster: 32 random bytes that all of its nodes have, and nobody else. No log shows it, and it is never sent.
/// Clones share its memory, which is wiped with the last of them.
#[derive(Clone)]
pub struct Secret(Arc<Key>);

struct Key([u8; SECRET_BYTES]);

impl Drop for Key {
    fn drop(&mut self) {
        self.0.fill(0);
        // Somebody might look at it, as far as the compiler knows: so it cannot leave the zeros out.
        black_box(&self.0);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// The secret that consists of these bytes. They have to be random: a proof is safe from guessing by their number alone.
    pub fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(Arc::new(Key(bytes)))
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // A key of any length is one.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0.0).expect("a key of any length");
        for part in parts {
            mac.update(part);
        }
        mac
    }

    /// Proves that one has the secret and means these bytes, which are taken as one behind the other: HMAC-SHA256 (RFC 2104).
    pub(crate) fn prove(&self, parts: &[&[u8]]) -> Proof {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// Whether a proof is the one of these bytes. The time that it takes does not depend on how much of it is right.
    pub(crate) fn is_proved(&self, parts: &[&[u8]], proof: &Proof) -> bool {
        self.mac(parts).verify_slice(proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_nothing_of_itself() {
        let secret = Secret::new([0xab; SECRET_BYTES]);
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "Secret(..) Some(\n    Secret(..),\n)");
    }

    #[test]
    fn a_proof_is_that_of_one_secret_and_of_all_bytes() {
        let secret = Secret::new([1; SECRET_BYTES]);
        let proof = secret.prove(&[b"one", b"two"]);
        assert!(secret.clone().is_proved(&[b"onet", b"wo"], &proof));
        assert!(!secret.is_proved(&[b"one", b"twO"], &proof));
        assert!(!Secret::new([2; SECRET_BYTES]).is_proved(&[b"one", b"two"], &proof));
        for at in 0..proof.len() {
            let mut other = proof;
            other[at] ^= 1;
            assert!(!secret.is_proved(&[b"one", b"two"], &other), "byte {at}");
        }
    }

    #[test]
    fn a_proof_is_hmac_sha256() {
        // The fourth case of RFC 4231 has a shorter key; zeros up to the block's size are the same key.
        let mut key = [0; SECRET_BYTES];
        for (byte, value) in key.iter_mut().zip(1..=25) {
            *byte = value;
        }
        let proof = Secret::new(key).prove(&[&[0xcd; 50]]);
        assert_eq!(proof[..8], [0x82, 0x55, 0x8a, 0x38, 0x9a, 0x44, 0x3c, 0x0e]);
        assert_eq!(proof[24..], [0x7a, 0x2e, 0x3f, 0xf4, 0x67, 0x29, 0x66, 0x5b]);
    }
}
