//! Answers: a status, a JSON object, and the headers that the status needs.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Method, Response, StatusCode};
use serde_json::{Map, Value as Json, json};
use shunt_admin::labels;
use shunt_proxy::control::client::Failed;
use shunt_wire::cql::message::error_code as code;

/// Seconds after which a retry may succeed.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("1");
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"shunt\", charset=\"UTF-8\"");

labels! {
    /// Status of an answer, as counted in metrics.
    pub enum Status = "status" {
        /// Carried out.
        Ok = "200",
        /// The request makes no sense.
        BadRequest = "400",
        /// The login is missing or wrong.
        Unauthorized = "401",
        /// The role lacks the permission.
        Forbidden = "403",
        /// The lock has no holder, or the path is unknown.
        NotFound = "404",
        /// The path does not support this method.
        NotAllowed = "405",
        /// Another owner holds the lock.
        Conflict = "409",
        /// The request has a body.
        TooLarge = "413",
        /// The request names a host that is not this one.
        Misdirected = "421",
        /// A quota is reached.
        TooMany = "429",
        /// An unexpected error.
        Internal = "500",
        /// Certainly not carried out.
        Unavailable = "503",
        /// Unknown whether it was carried out.
        InDoubt = "504",
    }
}

/// An answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Reply {
    status: StatusCode,
    body: Json,
    allow: Option<&'static str>,
}

impl Reply {
    /// Answer to a request that was carried out.
    pub(crate) fn done(body: Map<String, Json>) -> Self {
        Self { status: StatusCode::OK, body: body.into(), allow: None }
    }

    /// Answer to one that was not. `message` gives the reason and the remedy.
    pub(crate) fn error(status: StatusCode, message: impl Into<String>) -> Self {
        Self::refused(status, message, Map::new())
    }

    /// Like [`Reply::error`], with further known columns.
    pub(crate) fn refused(
        status: StatusCode,
        message: impl Into<String>,
        mut known: Map<String, Json>,
    ) -> Self {
        known.insert("error".to_owned(), Json::String(message.into()));
        Self { status, body: known.into(), allow: None }
    }

    /// Answer for a known path with the wrong method.
    pub(crate) fn not_allowed(method: &Method, allow: &'static str) -> Self {
        let body = json!({ "error": format!("{method} is not allowed here, only {allow}") });
        Self { status: StatusCode::METHOD_NOT_ALLOWED, body, allow: Some(allow) }
    }

    /// Answer for a request that was certainly not carried out, and may succeed later.
    pub(crate) fn unavailable(why: &str) -> Self {
        Self::error(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{why}; nothing was carried out, so ask again"),
        )
    }

    /// Answer for a request that may have been carried out.
    pub(crate) fn in_doubt(why: &str) -> Self {
        let message = format!(
            "{why}; the request may have been carried out, so ask again with the same owner, who gets a lock that was granted"
        );
        Self::error(StatusCode::GATEWAY_TIMEOUT, message)
    }

    /// Answer for a failed statement. `changes`: the statement would change something.
    pub(crate) fn of_statement(failed: &Failed, changes: bool) -> Self {
        let Failed { code, message } = failed;
        let lost = if changes { Self::in_doubt } else { Self::unavailable };
        match *code {
            // The statement was sent and got no answer.
            None => lost(message),
            Some(
                code::WRITE_TIMEOUT
                | code::WRITE_FAILURE
                | code::CAS_WRITE_UNKNOWN
                | code::READ_TIMEOUT
                | code::READ_FAILURE,
            ) => lost(message),
            Some(code::IS_BOOTSTRAPPING | code::UNAVAILABLE) => Self::unavailable(message),
            Some(code::OVERLOADED) => Self::error(StatusCode::TOO_MANY_REQUESTS, message.as_str()),
            Some(code::INVALID | code::SYNTAX_ERROR) => {
                Self::error(StatusCode::BAD_REQUEST, message.as_str())
            }
            Some(code::UNAUTHORIZED) => Self::error(StatusCode::FORBIDDEN, message.as_str()),
            Some(code) => Self::error(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("error {code:#06x}: {message}"),
            ),
        }
    }

    /// Answer if the connection to the proxy failed: no statement was sent.
    pub(crate) fn of_connecting(failed: &Failed, has_login: bool) -> Self {
        match failed.code {
            Some(code::BAD_CREDENTIALS) if has_login => {
                Self::error(StatusCode::UNAUTHORIZED, failed.message.as_str())
            }
            Some(code::BAD_CREDENTIALS) => Self::error(
                StatusCode::UNAUTHORIZED,
                "a login is needed: Basic credentials of a role of the ring",
            ),
            Some(code::UNAUTHORIZED) => Self::error(StatusCode::FORBIDDEN, failed.message.as_str()),
            _ => Self::unavailable(&failed.message),
        }
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        self.body.to_string()
    }

    /// Status for the metrics.
    pub(crate) fn counted(&self) -> Status {
        match self.status.as_u16() {
            200 => Status::Ok,
            400 => Status::BadRequest,
            401 => Status::Unauthorized,
            403 => Status::Forbidden,
            404 => Status::NotFound,
            405 => Status::NotAllowed,
            409 => Status::Conflict,
            413 => Status::TooLarge,
            421 => Status::Misdirected,
            429 => Status::TooMany,
            503 => Status::Unavailable,
            504 => Status::InDoubt,
            _ => Status::Internal,
        }
    }

    /// The HTTP response.
    pub(crate) fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(format!("{}\n", self.body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self.status {
            StatusCode::UNAUTHORIZED => drop(headers.insert(WWW_AUTHENTICATE, CHALLENGE)),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                drop(headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS));
            }
            _ => {}
        }
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use shunt_admin::Label as _;

    use super::*;

    fn failed(code: impl Into<Option<i32>>) -> Failed {
        Failed { code: code.into(), message: "said so".to_owned() }
    }

    #[test]
    fn each_error_has_its_status() {
        for (code, changing, reading) in [
            (None, 504, 503),
            (Some(code::WRITE_TIMEOUT), 504, 503),
            (Some(code::WRITE_FAILURE), 504, 503),
            (Some(code::READ_TIMEOUT), 504, 503),
            (Some(code::IS_BOOTSTRAPPING), 503, 503),
            (Some(code::UNAVAILABLE), 503, 503),
            (Some(code::OVERLOADED), 429, 429),
            (Some(code::INVALID), 400, 400),
            (Some(code::SYNTAX_ERROR), 400, 400),
            (Some(code::UNAUTHORIZED), 403, 403),
            (Some(code::SERVER_ERROR), 500, 500),
        ] {
            for (changes, status) in [(true, changing), (false, reading)] {
                let reply = Reply::of_statement(&failed(code), changes);
                assert_eq!(reply.status().as_u16(), status, "{code:?} {changes}");
                assert!(reply.text().contains("said so"));
                assert_eq!(reply.text().contains("the same owner"), status == 504);
            }
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_connected_to_has_done_nothing() {
        for (code, has_login, status) in [
            (None, true, 503),
            (Some(code::OVERLOADED), true, 503),
            (Some(code::IS_BOOTSTRAPPING), false, 503),
            (Some(code::BAD_CREDENTIALS), true, 401),
            (Some(code::BAD_CREDENTIALS), false, 401),
            (Some(code::UNAUTHORIZED), true, 403),
        ] {
            let reply = Reply::of_connecting(&failed(code), has_login);
            assert_eq!(reply.status().as_u16(), status, "{code:?}");
            assert_eq!(
                reply.text().contains("said so"),
                code != Some(code::BAD_CREDENTIALS) || has_login
            );
        }
    }

    #[test]
    fn answers_have_the_headers_that_their_status_needs() {
        let headers = |reply: Reply| reply.response().headers().clone();
        let of = |status| headers(Reply::error(status, "why"));
        assert_eq!(
            of(StatusCode::UNAUTHORIZED)[WWW_AUTHENTICATE],
            "Basic realm=\"shunt\", charset=\"UTF-8\""
        );
        assert_eq!(of(StatusCode::TOO_MANY_REQUESTS)[RETRY_AFTER], "1");
        assert_eq!(of(StatusCode::SERVICE_UNAVAILABLE)[RETRY_AFTER], "1");
        assert!(!of(StatusCode::CONFLICT).contains_key(RETRY_AFTER));
        assert_eq!(headers(Reply::not_allowed(&Method::POST, "GET"))[ALLOW], "GET");
        assert_eq!(of(StatusCode::CONFLICT)[CONTENT_TYPE], "application/json");
    }

    #[test]
    fn each_status_is_counted_as_itself() {
        for status in Status::ALL {
            let code = status.text().parse().expect("a status");
            assert_eq!(
                Reply::error(StatusCode::from_u16(code).expect("a status"), "why").counted(),
                *status
            );
        }
    }
}
