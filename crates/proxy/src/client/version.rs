//! Protocol versions of requests.

use shunt_wire::cql::envelope::Header;
use shunt_wire::cql::foreign::{Foreign, is_a_drivers};

use crate::client::Client;
use crate::fault::Fault;
use crate::metrics::Closing;
use crate::router::Router;

/// Judges a version other than the one that STARTUP fixed. Before STARTUP, any version that the
/// proxy and the ring both speak is valid; `false` means that the ring is not known yet. Any other
/// version gets the error that makes drivers step down (section 1: "unsupported version").
#[cold]
pub(crate) fn judge(
    client: &mut Client,
    router: &Router,
    header: &Header,
) -> Result<bool, (Closing, Fault)> {
    let Some(cluster) = router.cluster.as_ref() else { return Ok(false) };
    let max = cluster.protocol_version_max;
    let mut closing = Closing::ProtocolError;
    let why = if header.response {
        "a request has the direction bit of a response".to_owned()
    } else if client.version != 0 {
        format!(
            "version {} in a request of a connection that started with {}",
            header.version, client.version
        )
    } else if (3..=max).contains(&header.version) {
        return Ok(true);
    } else if let Some(foreign) = Foreign::of(*header) {
        client.version = max;
        foreign.text().to_owned()
    } else {
        // Drivers look for this wording of Cassandra's.
        let known = ["3/v3", "4/v4", "5/v5"];
        let known = &known[..usize::from(max.clamp(3, 5)) - 2];
        client.version = max;
        if is_a_drivers(header.version) {
            closing = Closing::Version;
        }
        format!(
            "Invalid or unsupported protocol version ({}); supported versions are ({})",
            header.version,
            known.join(", ")
        )
    };
    Err((closing, Fault::protocol(why)))
}
