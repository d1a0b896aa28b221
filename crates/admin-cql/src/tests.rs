//! A listener with pages of its own, asked over a socket.

mod hostile;
mod long_answers;
mod manual;
mod statements;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use shunt_admin::{Access, Change, Json, Pages, Part, State};
use shunt_testing::Handshake;
use shunt_testing::blocking::Client;
use shunt_tls::{Reloaded, Tokens};
use tempfile::NamedTempFile;
use tokio::sync::oneshot;

use crate::{AdminCql, Listener};

/// A password.
const TOKEN: &str = "a-token-of-the-test";

/// Pages with fixed rows; keeps the changes that it is asked for.
#[derive(Default)]
struct Fixed {
    changes: Mutex<Vec<(String, Json)>>,
}

/// A row of a group of clients.
fn group(role: Option<&str>, address: &str, queries: u64) -> Value {
    json!({
        "role": role, "address": address, "keyspace": null, "protocol_version": 5,
        "clients": 2, "queries": queries, "p50_us": null,
    })
}

impl Part for Fixed {
    fn status(&self) -> State<'_> {
        let groups = [
            group(Some("shop"), "10.0.0.1", 30),
            group(None, "10.0.0.2", 5),
            group(Some("cron"), "10.0.0.3", 7),
        ];
        let node = json!({
            "address": "10.0.9.1:9042", "host_id": "01010101-0101-0101-0101-010101010101",
            "up": true, "tokens": 16, "latency_us": { "p50": 250.5, "p99": null }, "recent": null,
        });
        let status = json!({
            "client_groups": {
                "groups": groups,
                "others": { "clients": 9, "queries": 100 },
                "cores_missing": [1],
            },
            "ring": { "nodes": [node], "cluster_name": "c" },
            "fleet": null,
            "cores": [],
            "clients": 15,
        });
        Box::pin(std::future::ready(status))
    }

    fn pages(&self) -> &'static [&'static str] {
        &["config", "slow_queries"]
    }

    fn page(&self, name: &str) -> Option<State<'_>> {
        let option = |key: &str, value: &str| json!({ "key": key, "value": value, "source": "file", "restart_needed": false });
        let page = match name {
            "config" => json!({ "options": [option("log", "info"), option("cores", "4")] }),
            "slow_queries" => json!({ "slow_queries": long_answers::slow_queries() }),
            _ => return None,
        };
        Some(Box::pin(std::future::ready(page)))
    }

    fn changes(&self) -> &'static [&'static str] {
        &["kick", "set_option"]
    }

    fn change(&self, name: &str, parameters: &Json, _: IpAddr) -> Option<Change<'_>> {
        self.changes.lock().expect("lock").push((name.to_owned(), parameters.clone()));
        let outcome = match parameters["value"].as_str() {
            Some("loud") => Err(json!({ "error": "no such level" })),
            _ => Ok(json!({ "closed": 3, "cores_missing": [] })),
        };
        Some(Box::pin(std::future::ready(outcome)))
    }
}

/// Serves on a thread until the sender of `stopped` is dropped. The runtime calls `listener`.
fn serve(
    pages: Arc<Pages>,
    listener: impl FnOnce() -> std::io::Result<Listener> + Send + 'static,
    stopped: oneshot::Receiver<()>,
) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            tokio::select! {
                () = AdminCql::new(pages).serve(listener().expect("a listener")) => {}
                _ = stopped => {}
            }
        });
    });
}

/// A listener on a thread of its own.
struct Server {
    address: SocketAddr,
    part: Arc<Fixed>,
    /// The tokens and their file, with a login.
    tokens: Option<(Arc<Tokens>, NamedTempFile)>,
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Starts a listener, with a login if `has_login`.
    fn start(has_login: bool) -> Server {
        let part = Arc::new(Fixed::default());
        let tokens = has_login.then(|| {
            let file = NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), TOKEN).expect("written");
            let tokens = Tokens::open("admin_token_file", file.path().to_owned());
            (Arc::new(tokens.expect("a token")), file)
        });
        let accepted = tokens.as_ref().map(|(tokens, _)| Arc::clone(tokens));
        let access = Access { tokens: accepted, ..Access::default() };
        let pages = Pages::with_access("0.1.0", vec![Arc::clone(&part) as Arc<dyn Part>], access);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("bound");
        listener.set_nonblocking(true).expect("a socket");
        let (stop, stopped) = oneshot::channel();
        serve(
            pages,
            move || tokio::net::TcpListener::from_std(listener).map(Listener::Tcp),
            stopped,
        );
        Server { address, part, tokens, _stop: stop }
    }

    fn client(&self, version: u8) -> Client {
        Client::connect(self.address, version)
    }

    fn login(&self, password: &str) -> Handshake {
        let login = Some(("operator".to_owned(), password.to_owned()));
        Handshake { login, ..Handshake::new(5) }
    }

    /// Makes `token` the only one.
    fn replace_token(&self, token: &str) {
        let (tokens, file) = self.tokens.as_ref().expect("a login");
        std::fs::write(file.path(), token).expect("written");
        let written = file.as_file().metadata().and_then(|file| file.modified()).expect("a time");
        assert_eq!(tokens.reload(written + Duration::from_secs(1)), Ok(Reloaded::Changed));
    }

    fn changes(&self) -> Vec<(String, Json)> {
        self.part.changes.lock().expect("lock").clone()
    }
}
