//! The address of a collector.

use std::fmt;

use hyper::Uri;

/// Path of the requests with spans, below the path of the address.
const TRACES_PATH: &str = "/v1/traces";

/// The address of a collector, a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The URL as it was given.
    url: String,
    has_tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl Endpoint {
    /// Reads the base URL of a collector; requests go to `/v1/traces` below it.
    ///
    /// # Errors
    /// The fault, which the caller puts behind the text.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        let uri: Uri = text.parse().map_err(|error| format!("is not a URL: {error}"))?;
        let (has_tls, default_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err("does not begin with http:// or https://".to_owned()),
        };
        let authority = uri.authority().ok_or("has no host")?;
        if authority.as_str().contains('@') {
            return Err("has a login, which everyone who reads the options would see; set \
                        otlp_headers_file"
                .to_owned());
        }
        if uri.query().is_some() {
            return Err("has a query; give the base URL of the collector".to_owned());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err("has no host".to_owned());
        }
        let base = uri.path().trim_end_matches('/');
        let path = match base.ends_with(TRACES_PATH) {
            true => base.to_owned(),
            false => format!("{base}{TRACES_PATH}"),
        };
        let port = authority.port_u16().unwrap_or(default_port);
        Ok(Endpoint { url: text.to_owned(), has_tls, host, port, path })
    }

    /// True if the connection has TLS.
    pub fn has_tls(&self) -> bool {
        self.has_tls
    }

    /// Name or address of the collector, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port of the collector.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path of the requests.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Value of the header `Host`.
    pub(crate) fn host_header(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Shows the URL as it was given.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_gives_host_port_and_path() {
        for (url, tls, host, port, path) in [
            ("http://127.0.0.1:4318", false, "127.0.0.1", 4318, "/v1/traces"),
            ("http://collector.example/", false, "collector.example", 80, "/v1/traces"),
            ("https://api.example/otlp", true, "api.example", 443, "/otlp/v1/traces"),
            ("https://api.example/v1/traces", true, "api.example", 443, "/v1/traces"),
            ("http://[::1]:4318", false, "::1", 4318, "/v1/traces"),
        ] {
            let endpoint = Endpoint::parse(url).expect(url);
            let found = (endpoint.has_tls(), endpoint.host(), endpoint.port(), endpoint.path());
            assert_eq!(found, (tls, host, port, path), "{url}");
            assert_eq!(endpoint.to_string(), url);
        }
        let six = Endpoint::parse("http://[::1]:4318").expect("a URL");
        assert_eq!(six.host_header(), "[::1]:4318");
    }

    #[test]
    fn other_urls_are_refused_with_a_reason() {
        for (url, why) in [
            ("127.0.0.1:4318", "http://"),
            ("grpc://collector:4317", "http://"),
            ("http://", "URL"),
            ("http://user:secret@collector", "otlp_headers_file"),
            ("http://collector/?token=secret", "query"),
            ("", "URL"),
        ] {
            let found = Endpoint::parse(url).expect_err(url);
            assert!(found.contains(why), "{url}: {found}");
            assert!(!found.contains("secret"), "{url}: {found}");
        }
    }
}
