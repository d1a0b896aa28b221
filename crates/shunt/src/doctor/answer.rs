//! Decodes values in nodes' answers.

use std::net::{IpAddr, SocketAddr};

use shunt_fleet::schema::entries;
use shunt_proxy::control::client::Table;

/// Returns a text column of a row.
pub(super) fn text(table: &Table, row: usize, column: &str) -> Option<String> {
    table.get(row, column).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Returns a node's address from its row of `system.peers_v2`.
pub(super) fn address(table: &Table, row: usize) -> Option<SocketAddr> {
    let ip: IpAddr = match table.get(row, "native_address")? {
        bytes if bytes.len() == 4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        bytes => <[u8; 16]>::try_from(bytes).ok()?.into(),
    };
    let port = i32::from_be_bytes(table.get(row, "native_port")?.try_into().ok()?);
    Some(SocketAddr::new(ip, u16::try_from(port).ok()?))
}

/// Returns the number of replicas in a value of `system_schema.keyspaces.replication` (`map<text,
/// text>`), of one datacentre or of all.
pub(super) fn replicas(map: &[u8], datacentre: Option<&str>) -> Option<u32> {
    let (mut simple, mut sum, mut of_one) = (None, 0_u32, 0_u32);
    for (key, value) in entries(map)? {
        // A transient replica does not count: "3/1" is two.
        let mut parts = value.split('/').map(str::parse::<u32>);
        let full = match (parts.next(), parts.next()) {
            (Some(Ok(all)), None) => all,
            (Some(Ok(all)), Some(Ok(transient))) => all.saturating_sub(transient),
            _ => continue,
        };
        match key {
            "replication_factor" => simple = Some(full),
            "class" => {}
            name => {
                sum = sum.saturating_add(full);
                of_one = of_one.saturating_add(if datacentre == Some(name) { full } else { 0 });
            }
        }
    }
    Some(simple.unwrap_or(if datacentre.is_some() { of_one } else { sum }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut out = (entries.len() as i32).to_be_bytes().to_vec();
        for text in entries.iter().flat_map(|(key, value)| [key, value]) {
            out.extend((text.len() as i32).to_be_bytes());
            out.extend(text.as_bytes());
        }
        out
    }

    #[test]
    fn replicas_are_those_that_count_for_the_fleet() {
        let simple = map(&[
            ("class", "org.apache.cassandra.locator.SimpleStrategy"),
            ("replication_factor", "3"),
        ]);
        assert_eq!((replicas(&simple, None), replicas(&simple, Some("dc1"))), (Some(3), Some(3)));
        let datacentres =
            map(&[("class", "NetworkTopologyStrategy"), ("dc1", "3/1"), ("dc2", "5")]);
        let of = |name| replicas(&datacentres, name);
        assert_eq!(
            (of(None), of(Some("dc1")), of(Some("dc2")), of(Some("dc3"))),
            (Some(7), Some(2), Some(5), Some(0))
        );
        assert_eq!(replicas(&datacentres[..20], None), None);
        let absurd = map(&[("dc1", "4294967295"), ("dc2", "1")]);
        assert_eq!(replicas(&absurd, None), Some(u32::MAX));
    }
}
