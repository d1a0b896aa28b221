//! One request to the collector, and its answer.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use shunt_reactor::SessionFault;
use shunt_tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::exporter::Settings;
use crate::headers;
use crate::metrics::Failure;

/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Most characters of a collector's message in a log line.
const MESSAGE_CHARS_MAX: usize = 200;

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The collector took the spans, except this many.
    Taken { rejected: u64 },
    /// The same request may succeed later; the collector asked for this pause.
    Later { pause: Option<Duration>, failure: Failure, why: String },
    /// The same request would fail again.
    Refused { why: String },
}

impl Reply {
    fn later(failure: Failure, why: impl ToString) -> Reply {
        Reply::Later { pause: None, failure, why: why.to_string() }
    }
}

/// Sends spans. The caller limits the time.
pub(crate) async fn post(settings: &Settings, body: Bytes) -> Reply {
    let endpoint = &settings.endpoint;
    let request = match head(settings, body) {
        Ok(request) => request,
        Err(why) => return Reply::later(Failure::BadFile, why),
    };
    let connection = match TcpStream::connect((endpoint.host(), endpoint.port())).await {
        Ok(connection) => connection,
        Err(error) => return Reply::later(Failure::Unreachable, error),
    };
    let Some(tls) = &settings.tls else { return converse(connection, request).await };
    match Stream::connect(connection, tls.session(endpoint.host())).await {
        Ok(stream) => converse(stream, request).await,
        Err(error) => {
            let fault = error.get_ref().and_then(|inner| inner.downcast_ref());
            Reply::later(
                Failure::Unreachable,
                match fault {
                    Some(SessionFault(why)) => format!("TLS: {why}"),
                    None => error.to_string(),
                },
            )
        }
    }
}

fn head(settings: &Settings, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::post(settings.endpoint.path())
        .header(HOST, settings.endpoint.host_header())
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close");
    if let Some(path) = &settings.headers_file {
        for (name, value) in headers::read(path)? {
            request = request.header(name, value);
        }
    }
    request.body(Full::from(body)).map_err(|error| error.to_string())
}

/// Sends the request and reads the answer.
async fn converse<T>(io: T, request: Request<Full<Bytes>>) -> Reply
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) =
        match hyper::client::conn::http1::handshake(TokioIo::new(io)).await {
            Ok(both) => both,
            Err(error) => return Reply::later(Failure::Unreachable, error),
        };
    let answer = async {
        let response = match sender.send_request(request).await {
            Ok(response) => response,
            Err(error) => return Reply::later(Failure::Unreachable, error),
        };
        let (head, body) = response.into_parts();
        match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => judge(head.status, &head.headers, &body.to_bytes()),
            // The collector has decided; only its message is lost.
            Err(_) => judge(head.status, &head.headers, b""),
        }
    };
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(answer);
    let mut is_open = true;
    loop {
        tokio::select! {
            biased;
            reply = &mut answer => return reply,
            // The answer says what went wrong.
            _ = &mut connection, if is_open => is_open = false,
        }
    }
}

/// Classifies an answer by "OTLP/HTTP Response".
pub(crate) fn judge(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Reply {
    if status.is_success() {
        return Reply::Taken { rejected: rejected(body) };
    }
    let message = String::from_utf8_lossy(body);
    let message: String =
        message.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect();
    let why = format!("{status} {message}").trim().to_owned();
    match status.as_u16() {
        // "Retryable Response Codes".
        429 | 502 | 503 | 504 => {
            let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let seconds = seconds.and_then(|text| text.trim().parse::<u64>().ok());
            let pause = seconds.map(Duration::from_secs);
            Reply::Later { pause, failure: Failure::Throttled, why }
        }
        _ => Reply::Refused { why },
    }
}

/// Spans that the collector did not take although it took the request ("Partial Success").
fn rejected(body: &[u8]) -> u64 {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return 0 };
    let Some(count) = answer.pointer("/partialSuccess/rejectedSpans") else { return 0 };
    count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0)
}
