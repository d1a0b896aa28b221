//! A request to the admin address of a running proxy: one connection, one answer, one deadline.
//!
//! hyper's client does the HTTP. Its server is in the binary already, so the client adds two small
//! crates (`want`, `try-lock`), where other clients would bring a second set of parsers and pools.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use shunt_proxy::config::{ADMIN_PORT, split_host_port};
use shunt_reactor::SessionFault;
use shunt_tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::table;
use crate::exit::{Exit, Failure};
use crate::fleet::TlsAccess;

/// Deadline of a request, from the lookup of the name to the end of the answer. The proxy may take
/// two seconds of it to wait for its cores.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Largest file of a token.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// The admin address, and the right to use it.
#[derive(Args, Debug)]
pub(crate) struct AdminAccess {
    /// Admin address of the proxy, HOST, HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9180")]
    admin: String,
    /// File with the token of the pages in its first line
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsAccess,
}

/// An answer of the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// The content of a page, or the proxy's reason to refuse it.
    ///
    /// # Errors
    /// The proxy refused the request.
    pub(crate) fn page(self) -> Result<Value, Failure> {
        if self.status.is_success() { Ok(self.body) } else { Err(self.refusal()) }
    }

    /// The refusal of a request, with the proxy's reason.
    pub(crate) fn refusal(&self) -> Failure {
        let reason = match self.body.get("error").and_then(Value::as_str) {
            Some(error) => error.to_owned(),
            None => format!("the answer has the status {}", self.status),
        };
        let advice = match self.status {
            StatusCode::UNAUTHORIZED => "; --token-file names the file with the token",
            StatusCode::BAD_REQUEST if reason.contains("requires TLS") => "; give --tls",
            _ => "",
        };
        refused(format!("the proxy refused the request: {reason}{advice}"))
    }
}

/// Prints a failure.
pub(super) fn complain(failure: &Failure) -> Exit {
    eprintln!("error: {}", table::printable(&failure.message));
    failure.exit
}

impl AdminAccess {
    /// Asks for a change.
    ///
    /// # Errors
    /// The proxy cannot be reached, or makes no such change.
    pub(crate) fn post(&self, path: &str, parameters: &Value) -> Result<Answer, Failure> {
        self.request(Method::POST, path, parameters.to_string())
    }

    /// Reads a page, whatever its status.
    ///
    /// # Errors
    /// The proxy cannot be reached, or has no such page.
    pub(super) fn ask(&self, path: &str) -> Result<Answer, Failure> {
        self.request(Method::GET, path, String::new())
    }

    /// The failure of a request to a process without the page or change.
    pub(super) fn lacks(&self, subject: &str) -> Failure {
        let admin = &self.admin;
        refused(format!("{admin} has no {subject}: it is not a proxy, or an older version"))
    }

    fn request(&self, method: Method, path: &str, body: String) -> Result<Answer, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::internal("the runtime could not be created", error))?;
        let answer = runtime.block_on(async {
            let answer = tokio::time::timeout(PATIENCE, self.exchange(method, path, body)).await;
            answer.unwrap_or_else(|_| {
                Err(self.unreachable(&format!("no answer within {} s", PATIENCE.as_secs())))
            })
        });
        // A name lookup that is still running must not delay the end.
        runtime.shutdown_background();
        match answer {
            Ok(answer) if answer.status == StatusCode::NOT_FOUND => {
                Err(self.lacks(&format!("page {path}")))
            }
            answer => answer,
        }
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> Result<Answer, Failure> {
        if let Some(socket) = self.admin.strip_prefix("unix:") {
            if self.tls.is_given() {
                let why = "a Unix socket has no TLS: leave out --tls and its other options";
                return Err(refused(format!("--admin: `{}`: {why}", self.admin)));
            }
            let request = self.head(method, path, ("localhost", ADMIN_PORT), body)?;
            let connection = UnixStream::connect(socket).await;
            let connection = connection.map_err(|error| self.unreachable(&error.to_string()))?;
            return self.converse(connection, request).await;
        }
        let (host, port) = self.address()?;
        let request = self.head(method, path, (&host, port), body)?;
        let tls = self.tls.client().map_err(|error| refused(error.to_string()))?;
        let connection = TcpStream::connect((&*host, port)).await;
        let connection = connection.map_err(|error| self.unreachable(&error.to_string()))?;
        let Some(tls) = tls else {
            return self.converse(connection, request).await;
        };
        match Stream::connect(connection, tls.session(&host)).await {
            Ok(stream) => self.converse(stream, request).await,
            Err(error) => {
                let fault = error.get_ref().and_then(|inner| inner.downcast_ref());
                Err(self.unreachable(&match fault {
                    Some(SessionFault(why)) => format!("TLS: {why}"),
                    None => error.to_string(),
                }))
            }
        }
    }

    /// Sends the request and reads the answer.
    async fn converse<T>(&self, io: T, request: Request<Full<Bytes>>) -> Result<Answer, Failure>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let failed = |error: hyper::Error| {
            let hint =
                if error.is_parse() { "; if the admin pages use TLS, give --tls" } else { "" };
            self.unreachable(&format!("{error}{hint}"))
        };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(io)).await.map_err(failed)?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(failed)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| self.unreachable(&error.to_string()))?.to_bytes();
            let body = serde_json::from_slice(&body);
            let body = body.map_err(|_| Failure {
                exit: Exit::NoRing,
                message: format!(
                    "{} is not a Shunt admin address: its answer ({status}) is not JSON",
                    self.admin
                ),
            })?;
            Ok(Answer { status, body })
        };
        let mut connection = std::pin::pin!(connection);
        let mut answer = std::pin::pin!(answer);
        let mut is_open = true;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                // The answer says what went wrong.
                _ = &mut connection, if is_open => is_open = false,
            }
        }
    }

    fn head(
        &self,
        method: Method,
        path: &str,
        (host, port): (&str, u16),
        body: String,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("{host}:{port}"))
            .header("content-type", "application/json")
            .header("connection", "close");
        if let Some(token) = self.token()? {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::from(body));
        request.map_err(|error| refused(format!("the request cannot be sent: {error}")))
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let failed = |why: &str| refused(format!("--token-file: {}: {why}", path.display()));
        let text = std::fs::File::open(path).and_then(|file| {
            let mut text = String::new();
            std::io::Read::read_to_string(
                &mut std::io::Read::take(file, TOKEN_BYTES_MAX),
                &mut text,
            )?;
            Ok(text)
        });
        let text = text.map_err(|error| failed(&format!("cannot be read: {error}")))?;
        let mut lines = text.lines().map(str::trim);
        let token = lines.find(|line| !line.is_empty());
        token.map(|token| Some(token.to_owned())).ok_or_else(|| failed("has no token"))
    }

    fn address(&self) -> Result<(String, u16), Failure> {
        let (host, port) = split_host_port(&self.admin)
            .map_err(|why| refused(format!("--admin: `{}` {why}", self.admin)))?;
        Ok((host.to_owned(), port.unwrap_or(ADMIN_PORT)))
    }

    fn unreachable(&self, why: &str) -> Failure {
        Failure {
            exit: Exit::NoRing,
            message: format!(
                "the proxy does not answer at {}: {why}; --admin names its admin address",
                self.admin
            ),
        }
    }
}

/// Reads a page.
///
/// # Errors
/// The proxy cannot be reached, refuses, or has no such page.
pub(super) fn get(access: &AdminAccess, path: &str) -> Result<Value, Failure> {
    access.ask(path)?.page()
}

/// The failure of a command whose request is refused.
pub(super) fn refused(message: String) -> Failure {
    Failure { exit: Exit::Configuration, message }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        access: AdminAccess,
    }

    /// An operator who asks for TLS must not get clear text without a word.
    #[test]
    fn a_unix_socket_takes_no_options_of_tls() {
        for options in [&["--tls"][..], &["--tls-ca", "ca.pem"], &["--tls-verify", "none"]] {
            let words = [&["shunt", "--admin", "unix:/nowhere"], options].concat();
            let failure = Command::parse_from(words).access.ask("/status").unwrap_err();
            assert_eq!(failure.exit, Exit::Configuration, "{options:?}");
            assert!(failure.message.contains("leave out --tls"), "{}", failure.message);
        }
        let failure = Command::parse_from(["shunt", "--admin", "unix:/nowhere"]).access.ask("/");
        assert_eq!(failure.unwrap_err().exit, Exit::NoRing);
    }

    #[test]
    fn a_refusal_says_which_option_helps() {
        let refusal = |status, error: &str| {
            Answer { status, body: json!({ "error": error }) }.refusal().message
        };
        let without_tls = refusal(StatusCode::BAD_REQUEST, "this port requires TLS: ask ..");
        assert!(without_tls.ends_with("; give --tls"), "{without_tls}");
        let without_token = refusal(StatusCode::UNAUTHORIZED, "this page needs a token");
        assert!(without_token.contains("--token-file"), "{without_token}");
        let wrong = refusal(StatusCode::BAD_REQUEST, "an object is expected");
        assert!(wrong.ends_with("expected"), "{wrong}");
    }
}
