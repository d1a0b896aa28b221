//! What every comparison needs to know of the processes that it starts: HAProxy's configuration, and when one serves.

use std::{
    fmt::Write as _,
    io,
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::measure::http_get;

/// A process that does not serve within this time is given up.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// HAProxy in TCP mode, one thread, no logging: the least a general proxy can do. It works out its own limit of
/// connections from the files it may open.
pub(crate) fn haproxy_configuration(own: SocketAddr, ring: &[SocketAddr]) -> String {
    let mut text = format!(
        "global\n  nbthread 1\n\
         defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         listen cql\n  bind {own} backlog 4096\n  balance roundrobin\n"
    );
    for (number, node) in ring.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  server node{number} {node}");
    }
    text
}

/// Waits until a process serves: its admin address says ready, or without one every address takes connections.
///
/// # Errors
/// It has ended, or does not serve in time.
pub(crate) fn wait_until_served(
    name: &str,
    addresses: &[SocketAddr],
    admin: Option<SocketAddr>,
    mut has_ended: impl FnMut() -> bool,
) -> io::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < START_TIMEOUT {
        if has_ended() {
            return Err(io::Error::other(format!("{name} ended at once; what it said is above")));
        }
        let serves = match admin {
            Some(admin) => http_get(admin, "/readyz").is_ok(),
            None => addresses.iter().all(|address| TcpStream::connect(address).is_ok()),
        };
        if serves {
            return Ok(());
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the command's own thread, which serves nobody, waits for a process"
        )]
        thread::sleep(LOOK_AGAIN);
    }
    let seconds = START_TIMEOUT.as_secs();
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("{name} does not serve after {seconds} s")))
}

#[cfg(test)]
mod tests {
    use super::haproxy_configuration;

    #[test]
    fn haproxy_gets_every_node() {
        let ring: Vec<_> = (1..=3).map(|last| ([127, 0, 0, last], 20_000).into()).collect();
        let text = haproxy_configuration(([127, 0, 0, 1], 20_001).into(), &ring);
        assert!(text.contains("mode tcp") && text.contains("server node2 127.0.0.3:20000\n"), "{text}");
    }
}
