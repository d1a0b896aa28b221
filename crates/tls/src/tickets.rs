//! Session tickets that a fleet opens: their keys come from a file in the form of HAProxy's
//! `tls-ticket-keys`. Each line is the base64 of a name of 16 bytes and a key of 32.
//!
//! A ticket is the name, a random nonce, and the session under AES-256-GCM with the name as
//! additional data. The session has the time of its issue in front.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf;
use rustls::server::ProducesTickets;

use crate::error::TlsError;
use crate::files::File;

/// Lengths in bytes.
const NAME: usize = 16;
const KEY: usize = 32;
const NONCE: usize = 12;
const TIME: usize = 8;

/// Keys that are used: the next, the one that seals, and the one before it.
const KEYS: usize = 3;

/// Time for which a ticket is good.
const LIFETIME_S: u32 = 12 * 60 * 60;

/// Largest difference between the clocks of a fleet.
const SKEW_S: u64 = 5 * 60;

struct Key {
    name: [u8; NAME],
    key: RandomizedNonceKey,
}

/// Keys of tickets.
pub(crate) struct TicketKeys {
    keys: Vec<Key>,
    /// Index of the key that seals.
    sealing: usize,
}

impl TicketKeys {
    /// Keys of a file. `binding` is whatever makes earlier tickets worthless when it changes: the
    /// keys that are used are derived from the file's and from this.
    pub(crate) fn parse(file: &File, binding: &[u8; 32]) -> Result<TicketKeys, TlsError> {
        let text = std::str::from_utf8(file.bytes())
            .map_err(|_| file.error("the file is not text: one line of base64 for each key"))?;
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let mut keys = Vec::new();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let bytes = data_encoding::BASE64.decode(line.as_bytes()).ok();
            let Some(bytes) = bytes.filter(|bytes| bytes.len() == NAME + KEY) else {
                return Err(file.error(format!(
                    "line {number} is not the base64 of 48 bytes: openssl rand -base64 48"
                )));
            };
            let (name, secret) = bytes.split_at(NAME);
            keys.push((name.try_into().unwrap_or_default(), derive(secret, binding)));
        }
        if keys.is_empty() {
            return Err(file.error("the file has no key: openssl rand -base64 48"));
        }
        let unused = keys.len().saturating_sub(KEYS);
        let keys = keys.drain(unused..).map(|(name, secret)| {
            let key = RandomizedNonceKey::new(&AES_256_GCM, &secret);
            Ok(Key { name, key: key.map_err(|_| file.error("a key cannot be used"))? })
        });
        let keys = keys.collect::<Result<Vec<_>, TlsError>>()?;
        // The last key is only opened with: it may reach the members one after another.
        let sealing = keys.len().saturating_sub(2);
        Ok(TicketKeys { keys, sealing })
    }

    pub(crate) fn seal(&self, session: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let Key { name, key } = &self.keys[self.sealing];
        let mut content = Vec::with_capacity(TIME + session.len());
        content.extend_from_slice(&now_s.to_be_bytes());
        content.extend_from_slice(session);
        let nonce = key.seal_in_place_append_tag(Aad::from(name), &mut content).ok()?;
        let mut ticket = Vec::with_capacity(NAME + NONCE + content.len());
        ticket.extend_from_slice(name);
        ticket.extend_from_slice(nonce.as_ref());
        ticket.extend_from_slice(&content);
        Some(ticket)
    }

    pub(crate) fn open(&self, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME)?;
        let (nonce, content) = rest.split_at_checked(NONCE)?;
        let mut content = content.to_vec();
        let key = self.keys.iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let opened = key.key.open_in_place(nonce, Aad::from(&key.name), &mut content).ok()?;
        let (issued_s, session) = opened.split_first_chunk::<TIME>()?;
        let issued_s = u64::from_be_bytes(*issued_s);
        let is_good = issued_s <= now_s + SKEW_S && now_s <= issued_s + u64::from(LIFETIME_S);
        is_good.then(|| session.to_vec())
    }
}

/// The key that is used in place of a file's (HKDF, RFC 5869).
fn derive(secret: &[u8], binding: &[u8; 32]) -> [u8; KEY] {
    struct Length;
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            KEY
        }
    }
    let mut key = [0; KEY];
    let pseudorandom = hkdf::Salt::new(hkdf::HKDF_SHA256, binding).extract(secret);
    let expanded = pseudorandom.expand(&[b"shunt session ticket 1"], Length);
    // Only lengths beyond 255 digests fail.
    let filled = expanded.and_then(|material| material.fill(&mut key));
    debug_assert!(filled.is_ok());
    key
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, now_s())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, now_s())
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}
