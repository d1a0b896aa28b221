//! The key that both sides have, and the keys of a session that are derived from it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::limits::{KEY_BYTES_MAX, KEY_BYTES_MIN};
use crate::message::kinds::{MAC_BYTES, Side};

/// Bytes of a proof that a side has the key.
pub(crate) const PROOF_BYTES: usize = 32;

type HmacSha256 = Hmac<Sha256>;

/// The key that owners and agents of one installation share.
#[derive(Clone)]
pub struct SharedKey(HmacSha256);

impl std::fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedKey(..)")
    }
}

/// Error for a key of the wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLength(pub usize);

impl std::fmt::Display for KeyLength {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the key has {} bytes; it has to have {KEY_BYTES_MIN} to {KEY_BYTES_MAX}", self.0)
    }
}

impl std::error::Error for KeyLength {}

impl SharedKey {
    /// Makes a key of these bytes.
    ///
    /// # Errors
    /// The bytes are too few, or too many for a key.
    pub fn new(bytes: &[u8]) -> Result<Self, KeyLength> {
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&bytes.len()) {
            return Err(KeyLength(bytes.len()));
        }
        HmacSha256::new_from_slice(bytes).map(Self).map_err(|_| KeyLength(bytes.len()))
    }

    fn over(&self, word: &str, transcript: &[u8]) -> HmacSha256 {
        let mut mac = self.0.clone();
        mac.update(b"shunt hand-over ");
        mac.update(word.as_bytes());
        mac.update(&[0]);
        mac.update(transcript);
        mac
    }

    pub(crate) fn proof(&self, side: Side, transcript: &[u8]) -> [u8; PROOF_BYTES] {
        self.over(proof_word(side), transcript).finalize().into_bytes().into()
    }

    pub(crate) fn is_proof(&self, side: Side, transcript: &[u8], proof: &[u8]) -> bool {
        self.over(proof_word(side), transcript).verify_slice(proof).is_ok()
    }

    pub(crate) fn session_key(&self, from: Side, transcript: &[u8]) -> SessionKey {
        let word = match from {
            Side::Owner => "key of the owner's messages",
            Side::Agent => "key of the agent's messages",
        };
        let key: [u8; PROOF_BYTES] = self.over(word, transcript).finalize().into_bytes().into();
        SessionKey::new(key)
    }
}

fn proof_word(side: Side) -> &'static str {
    match side {
        Side::Owner => "owner",
        Side::Agent => "agent",
    }
}

/// The key of one side's messages in one session.
#[derive(Clone)]
pub struct SessionKey(HmacSha256);

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

impl SessionKey {
    /// Makes a key of these bytes, which must be as good as random.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        let mut block = sha2::digest::array::Array::default();
        let block_bytes: &mut [u8] = &mut block;
        block_bytes[..32].copy_from_slice(&key);
        // RFC 2104: a key shorter than a block is padded with zeros.
        Self(HmacSha256::new(&block))
    }

    fn over(&self, sequence: u64, message: &[u8]) -> HmacSha256 {
        let mut mac = self.0.clone();
        mac.update(&sequence.to_be_bytes());
        mac.update(message);
        mac
    }

    pub(crate) fn mac(&self, sequence: u64, message: &[u8]) -> [u8; MAC_BYTES] {
        let whole: [u8; PROOF_BYTES] = self.over(sequence, message).finalize().into_bytes().into();
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&whole[..MAC_BYTES]);
        mac
    }

    pub(crate) fn is_mac(&self, sequence: u64, message: &[u8], mac: &[u8]) -> bool {
        mac.len() == MAC_BYTES && self.over(sequence, message).verify_truncated_left(mac).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_can_be_guessed_are_refused_and_none_is_shown() {
        assert_eq!(SharedKey::new(b"short").err(), Some(KeyLength(5)));
        assert_eq!(
            SharedKey::new(&[0; KEY_BYTES_MAX + 1]).err(),
            Some(KeyLength(KEY_BYTES_MAX + 1))
        );
        assert_eq!(
            format!("{:?} {:?}", SharedKey::new(&[65; 20]).unwrap(), SessionKey::new([65; 32])),
            "SharedKey(..) SessionKey(..)"
        );
    }

    /// RFC 4231, test case 2 has a key shorter than a block, like all of ours.
    #[test]
    fn macs_are_hmac_sha256_cut_to_sixteen_bytes() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let mut mac = SessionKey::new(key).0;
        mac.update(b"what do ya want for nothing?");
        let bytes: [u8; 32] = mac.finalize().into_bytes().into();
        assert_eq!(bytes[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
        let key = SessionKey::new(key);
        let cut = key.mac(1, b"message");
        assert!(key.is_mac(1, b"message", &cut));
        assert!(
            !key.is_mac(2, b"message", &cut)
                && !key.is_mac(1, b"massage", &cut)
                && !key.is_mac(1, b"message", &[])
        );
    }
}
