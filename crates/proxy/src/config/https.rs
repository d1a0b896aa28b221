//! Checks of the options of TLS of the admin pages and of locks over HTTP.

use super::validate::Findings;
use super::{AdminAddress, Config, OPTIONS};

/// Section of the options of TLS of the admin pages and of locks over HTTP.
const HTTPS_SECTION: &str = "HTTPS";

impl Config {
    /// Checks that TLS of the admin pages and of locks over HTTP has what it needs.
    pub(super) fn check_https(&self, found: &mut Findings) {
        let admin = [&self.admin_tls_certificate, &self.admin_tls_key, &self.admin_tls_client_ca];
        let admin_keys = ["admin_tls_certificate", "admin_tls_key", "admin_tls_client_ca"];
        let locks = [
            &self.locks_http_tls_certificate,
            &self.locks_http_tls_key,
            &self.locks_http_tls_client_ca,
        ];
        let locks_keys =
            ["locks_http_tls_certificate", "locks_http_tls_key", "locks_http_tls_client_ca"];
        for (files, keys) in [(admin, admin_keys), (locks, locks_keys)] {
            let [certificate, key, client_ca] = keys;
            match files.map(Option::is_some) {
                [true, false, _] => {
                    found.add(certificate, format!("needs its private key; set {key}"))
                }
                [false, true, _] => {
                    found.add(key, format!("needs its certificate; set {certificate}"))
                }
                [false, false, true] => {
                    found.add(client_ca, format!("needs TLS; set {certificate} and {key}"))
                }
                _ => {}
            }
        }
        // A Unix socket of the pages has neither TLS nor tokens.
        let admin_lacks = match self.admin.as_ref().map(AdminAddress::tcp) {
            _ if self.admin_cql.is_some() => None,
            None => Some("admin"),
            Some(None) => Some("an address in admin"),
            Some(Some(_)) => None,
        };
        let locks_lack = self.locks_http.is_none().then_some("locks_http");
        let default = Config::default();
        for option in OPTIONS.iter().filter(|option| option.section == HTTPS_SECTION) {
            let key = option.key;
            let lacking = if key.starts_with("admin") { admin_lacks } else { locks_lack };
            if let Some(listener) = lacking
                && (option.differs)(self, &default)
            {
                let why =
                    format!("has no effect without {listener}: set {listener}, or remove {key}");
                found.add(key, why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AdminCql, Kind as _};

    #[test]
    fn files_of_https_stand_together_and_with_an_address() {
        let keys = |config: Config| {
            let config = Config { contact_points: vec!["10.0.0.1".to_owned()], ..config };
            config.problems().iter().map(|problem| problem.key).collect::<Vec<_>>()
        };
        let (file, none) = (Some("file".into()), Config::default());
        let pair = Config {
            admin_tls_certificate: file.clone(),
            admin_tls_key: file.clone(),
            ..none.clone()
        };
        assert_eq!(keys(pair.clone()), <[&str; 0]>::default());
        assert_eq!(
            keys(Config { admin: None, ..pair.clone() }),
            ["admin_tls_certificate", "admin_tls_key"]
        );
        assert_eq!(keys(Config { admin_tls_key: None, ..pair }), ["admin_tls_certificate"]);
        let without = Config { admin_tls_key: file.clone(), ..none.clone() };
        assert_eq!(keys(without), ["admin_tls_key"]);
        let without = Config { admin_tls_client_ca: file.clone(), ..none.clone() };
        assert_eq!(keys(without), ["admin_tls_client_ca"]);
        let token = Config { admin_token_file: file.clone(), ..none.clone() };
        assert_eq!(keys(token.clone()), <[&str; 0]>::default());
        assert_eq!(keys(Config { admin: None, ..token.clone() }), ["admin_token_file"]);
        let admin = Some(AdminAddress { http: None, unix: Some("/run/admin.sock".into()) });
        assert_eq!(keys(Config { admin, ..token.clone() }), ["admin_token_file"]);
        let admin_cql = AdminCql::from_text("10.0.0.5").expect("an address").into();
        let guarded = Config { admin: None, admin_cql, ..token };
        assert_eq!(keys(guarded), <[&str; 0]>::default());
        let locks = Config { locks_http_tls_key: file, ..none };
        assert_eq!(keys(locks), ["locks_http_tls_key", "locks_http_tls_key"]);
    }
}
