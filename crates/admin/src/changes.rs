//! Requests that change the running program: POST with parameters as JSON.
//!
//! The pages' own rules hold first: host name, TLS and token. Without tokens, a change must come
//! from a loopback address. A Unix socket counts as one, and its clients need no token: the
//! permissions of its file decide who may connect.
//!
//! A page of another site that a browser of this machine shows must never change anything: a
//! browser names the site in `Origin` or `Sec-Fetch-Site`, and asks beforehand (CORS) whether it
//! may send JSON, which the server does not allow. The page for browsers has the origin that the
//! request itself names as its host.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Json, Response};
use serde_json::Value;

use crate::listeners::Peer;
use crate::pages::{Pages, Refusal};
use crate::server::failure;

/// Largest body of a request, in bytes.
pub(crate) const BYTES_MAX: usize = 16 << 10;

/// Makes a change, if the request may ask for it.
pub(crate) async fn make(
    State(pages): State<Arc<Pages>>,
    Extension(Peer { address: peer, .. }): Extension<Peer>,
    headers: HeaderMap,
    uri: Uri,
    body: Result<Json<Value>, JsonRejection>,
) -> Response {
    let origin_scheme = if pages.access.tls.is_some() { "https" } else { "http" };
    if let Err((refusal, error)) =
        admit(&headers, origin_scheme, peer, pages.access.tokens.is_some())
    {
        pages.refusals.of(refusal).add(1);
        return failure(StatusCode::FORBIDDEN, error);
    }
    let parameters = match body {
        Ok(Json(parameters)) => parameters,
        Err(rejection) => return failure(rejection.status(), &rejection.body_text()),
    };
    match pages.change(uri.path().trim_start_matches('/'), &parameters, peer).await {
        Some(Ok(outcome)) => Json(outcome).into_response(),
        Some(Err(refused)) => (StatusCode::CONFLICT, Json(refused)).into_response(),
        None => failure(StatusCode::NOT_FOUND, "no such change"),
    }
}

/// Decides about a request whose host name and token are right.
fn admit(
    headers: &HeaderMap,
    origin_scheme: &str,
    peer: IpAddr,
    has_tokens: bool,
) -> Result<(), (Refusal, &'static str)> {
    if is_from_another_site(headers, origin_scheme) {
        return Err((Refusal::CrossSite, "a page of another site must not change anything here"));
    }
    if !has_tokens && !peer.is_loopback() {
        let error = "without --admin-token-file, changes must come from a loopback address of this \
            machine, such as 127.0.0.1: let --admin listen there, or set a token";
        return Err((Refusal::Remote, error));
    }
    Ok(())
}

/// True for a request of a page in a browser that did not come from this server.
fn is_from_another_site(headers: &HeaderMap, origin_scheme: &str) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        // A program, or a browser that leaves out the origin, which none does in a POST of a page.
        (None, _) => sites.any(|site| site != "none"),
        (Some(origin), None) => {
            !is_own(origin, headers, origin_scheme) || sites.any(|site| site != "same-origin")
        }
        (Some(_), Some(_)) => true,
    }
}

/// True if the origin is the host that the request was sent to.
fn is_own(origin: &HeaderValue, headers: &HeaderMap, origin_scheme: &str) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let (Ok(origin), Ok(host)) = (origin.to_str(), host.to_str()) else { return false };
    let named = origin.strip_prefix(origin_scheme).and_then(|rest| rest.strip_prefix("://"));
    named.is_some_and(|named| named.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_page_of_another_site_changes_nothing_wherever_it_comes_from() {
        let here = IpAddr::from([127, 0, 0, 1]);
        for fields in [
            &[("origin", "http://attacker.example")][..],
            &[("origin", "null")],
            &[("origin", "http://127.0.0.1:3000")],
            &[("origin", "http://localhost:9180")],
            &[("origin", "http://127.0.0.1")],
            &[("origin", "https://127.0.0.1:9180")],
            &[("origin", "http://127.0.0.1:9180.attacker.example")],
            &[("origin", "")],
            &[("origin", "http://127.0.0.1:9180"), ("origin", "http://127.0.0.1:9180")],
            &[("origin", "http://127.0.0.1:9180"), ("host", "attacker.example")],
            &[("origin", "http://127.0.0.1:9180"), ("sec-fetch-site", "same-site")],
            &[("origin", "http://attacker.example"), ("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-origin")],
        ] {
            let all = [&[("host", "127.0.0.1:9180")], fields].concat();
            for has_tokens in [true, false] {
                let refused = admit(&headers(&all), "http", here, has_tokens);
                assert_eq!(refused.map_err(|(why, _)| why), Err(Refusal::CrossSite), "{fields:?}");
            }
        }
    }

    #[test]
    fn the_own_page_may_ask_for_changes_from_this_machine_or_with_a_token() {
        for (scheme, host, origin) in [
            ("http", "127.0.0.1:9180", "http://127.0.0.1:9180"),
            ("https", "Proxy.example:9180", "https://proxy.example:9180"),
            ("http", "[::1]:9180", "http://[::1]:9180"),
            ("http", "localhost", "http://localhost"),
        ] {
            let fields = [("host", host), ("origin", origin), ("sec-fetch-site", "same-origin")];
            let (here, away) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([10, 0, 0, 1]));
            // Browsers do not send Sec-Fetch-Site to clear-text addresses of other machines.
            for fields in [&fields[..], &fields[..2]] {
                let headers = headers(fields);
                assert!(admit(&headers, scheme, here, false).is_ok(), "{fields:?}");
                assert!(admit(&headers, scheme, away, true).is_ok(), "{fields:?}");
                let refused = admit(&headers, scheme, away, false).map_err(|(why, _)| why);
                assert_eq!(refused, Err(Refusal::Remote), "{fields:?}");
            }
        }
    }

    #[test]
    fn another_machine_needs_a_token() {
        for (peer, has_tokens, is_admitted) in [
            ("127.0.0.1", false, true),
            ("127.1.2.3", false, true),
            ("::1", false, true),
            ("10.0.0.1", false, false),
            ("2001:db8::1", false, false),
            ("10.0.0.1", true, true),
        ] {
            let peer_address = peer.parse().expect("an address");
            let admitted = admit(&headers(&[]), "http", peer_address, has_tokens);
            assert_eq!(admitted.is_ok(), is_admitted, "{peer} {has_tokens}");
        }
    }
}
