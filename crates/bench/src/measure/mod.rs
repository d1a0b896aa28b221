//! Measurements from outside: CPU time and memory of processes, the current speed of this machine's
//! loopback, and the counters that servers publish over HTTP.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

pub mod calibration;
pub mod cpu;
pub mod process;
pub mod segments;
pub mod statistics;

pub use calibration::Calibration;
pub use process::{ProcessDelta, ProcessSample};

/// Returns the body of an HTTP GET that is answered with 200.
///
/// # Errors
/// No answer within two seconds, or one with another status.
pub fn http_get(address: SocketAddr, path: &str) -> io::Result<String> {
    let timeout = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    // HTTP/1.0 excludes chunked answers.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status == "200" {
        Ok(body.to_owned())
    } else {
        Err(io::Error::other(format!("{path} gave status {status}")))
    }
}
