//! Requests that change the running program: POST with parameters as JSON.
//!
//! The pages' own rules hold first: host name, TLS and token. Without tokens, only this machine may
//! change anything. A page of another site that a browser of this machine shows must never change
//! anything: a browser names the site in `Origin` or `Sec-Fetch-Site`, and asks beforehand (CORS)
//! whether it may send JSON, which the server does not allow.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Json, Response};
use serde_json::Value;

use crate::pages::{Pages, Refusal};
use crate::server::failure;

/// Largest body of a request, in bytes.
pub(crate) const BYTES_MAX: usize = 16 << 10;

/// Address of the other side of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Makes a change, if the request may ask for it.
pub(crate) async fn make(
    State(pages): State<Arc<Pages>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    uri: Uri,
    body: Result<Json<Value>, JsonRejection>,
) -> Response {
    if let Err((refusal, error)) = admit(&headers, peer, pages.access.tokens.is_some()) {
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
    peer: IpAddr,
    has_tokens: bool,
) -> Result<(), (Refusal, &'static str)> {
    let is_from_a_site = headers.contains_key(header::ORIGIN)
        || headers.get_all("sec-fetch-site").iter().any(|site| site != "none");
    if is_from_a_site {
        return Err((Refusal::CrossSite, "a page in a browser may not change anything here"));
    }
    if !has_tokens && !peer.is_loopback() {
        let error = "only this machine may change anything, because --admin-token-file is not set";
        return Err((Refusal::Remote, error));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| {
                let name = axum::http::HeaderName::from_static(name);
                (name, axum::http::HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn a_site_in_a_browser_changes_nothing_wherever_it_comes_from() {
        let here = IpAddr::from([127, 0, 0, 1]);
        for fields in [
            &[("origin", "http://attacker.example")][..],
            &[("origin", "null")],
            &[("origin", "http://127.0.0.1:9180")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-origin")],
        ] {
            for has_tokens in [true, false] {
                let refused = admit(&headers(fields), here, has_tokens).map_err(|(why, _)| why);
                assert_eq!(refused, Err(Refusal::CrossSite), "{fields:?}");
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
            let admitted = admit(&headers(&[]), peer_address, has_tokens);
            assert_eq!(admitted.is_ok(), is_admitted, "{peer} {has_tokens}");
        }
    }
}
