//! Warnings of a check of files.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use shunt_tls::{CertificateFile, ServerNames};

use crate::shown;

/// Seconds of a day.
pub(crate) const DAY_S: i64 = 24 * 60 * 60;
/// Remaining time of a certificate at which a check warns.
const EXPIRES_SOON_S: i64 = 14 * DAY_S;

/// A warning about a certificate that expires soon.
pub fn expires_soon(file: &CertificateFile) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let left_s = file.expires_s.saturating_sub_unsigned(now);
    (left_s < EXPIRES_SOON_S).then(|| {
        let (option, path) = (file.option, file.path.display());
        format!(
            "{option} {path}: the certificate of {} expires in {} days: renew it",
            shown(&file.subject),
            left_s / DAY_S
        )
    })
}

/// The protection of the admin pages from other machines.
#[derive(Clone, Copy, Debug)]
pub struct PagesExposure {
    /// Names of the options of TLS.
    pub names: ServerNames,
    /// The option of the tokens.
    pub token_file: &'static str,
    /// The pages have TLS.
    pub has_tls: bool,
    /// Their clients show certificates.
    pub has_client_ca: bool,
    /// Their clients send tokens.
    pub has_tokens: bool,
}

impl PagesExposure {
    /// A warning about pages at this address, which `option` names, if other machines can read them
    /// or can see the token.
    pub fn warning(&self, option: &str, listen: SocketAddr) -> Option<String> {
        if listen.ip().to_canonical().is_loopback() {
            return None;
        }
        let ServerNames { certificate, key, client_ca, .. } = self.names;
        let tokens = self.token_file;
        let why = match (self.has_tls, self.has_tokens || self.has_client_ca) {
            (true, true) => return None,
            (false, false) => format!(
                "everybody who reaches it reads metrics and status: give {certificate} with {key}, \
                and {tokens}"
            ),
            (true, false) => format!(
                "everybody who reaches it reads metrics and status: give {tokens} or {client_ca}"
            ),
            (false, true) => {
                format!("the token travels in clear text: give {certificate} with {key}")
            }
        };
        Some(format!("{option}: other machines can reach {listen}, and {why}"))
    }
}
