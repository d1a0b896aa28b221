//! The host names under which requests may ask for locks.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;

use shunt_locks_http::{LocksHttp, Order};
use shunt_proxy::config::{Config, HttpAddress};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// Statuses of the answers to requests for these hosts. No proxy is there to carry them out.
fn statuses(names: &[&str], hosts: &[&'static str]) -> Vec<String> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a listener");
    let listen = listener.local_addr().expect("an address");
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let config = Config { locks_http: Some(HttpAddress { listen, names }), ..Config::default() };
    let (_config, config) = watch::channel(Arc::new(config));
    let (orders, order) = watch::channel(Order::Serve);
    let nowhere: SocketAddr = ([127, 0, 0, 1], 1).into();
    let http = LocksHttp::new((nowhere, None), None, config, order);
    let hosts = hosts.to_vec();
    let asking = thread::spawn(move || {
        let asked = hosts.into_iter().map(|host| status(listen, host)).collect();
        let _ = orders.send(Order::End);
        asked
    });
    runtime.block_on(http.serve(listener));
    asking.join().expect("the answers")
}

fn status(listen: SocketAddr, host: &str) -> String {
    let mut stream = TcpStream::connect(listen).expect("a connection");
    let request = format!("GET /v1/locks/a HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// A web page can point its own name at a loopback address (DNS rebinding), and its requests need
/// no `Origin` then.
#[test]
fn a_host_name_that_was_not_given_is_refused() {
    let hosts = ["attacker.example", "127.0.0.1", "[::1]:9190", "localhost", "locks.example:9190"];
    assert_eq!(statuses(&[], &hosts), ["421", "503", "503", "503", "421"]);
    assert_eq!(statuses(&["locks.example"], &hosts), ["421", "503", "503", "503", "503"]);
}
