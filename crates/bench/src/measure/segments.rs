//! TCP segments that this network namespace has sent, counted by the kernel.

use std::fs;

/// Returns the segments that all sockets of the namespace have sent, including acknowledgements but
/// without retransmissions (`Tcp: OutSegs` of `/proc/net/snmp`, `tcpOutSegs` of RFC 4022). `None`
/// if the kernel does not publish the count.
pub fn sent() -> Option<u64> {
    out_segs(&fs::read_to_string("/proc/net/snmp").ok()?)
}

fn out_segs(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split(' ').position(|name| name == "OutSegs")?;
    values.split(' ').nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_is_found_by_its_name() {
        let snmp = "Ip: Forwarding OutSegs\nIp: 1 2\nTcp: RtoMin InSegs OutSegs RetransSegs\nTcp: 200 7 8 9\n";
        assert_eq!(out_segs(snmp), Some(8));
        assert_eq!(out_segs("Tcp: RtoMin InSegs\nTcp: 200 7\n"), None);
        assert_eq!(out_segs(""), None);
    }

    #[test]
    fn the_kernel_counts() {
        let before = sent().expect("Linux");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        assert!(sent().expect("Linux") > before);
    }
}
