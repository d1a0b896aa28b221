//! The offer of aggregated frames that a node makes in SUPPORTED.

/// Key in SUPPORTED under which a node announces aggregated frames and their limits.
pub const SUPPORTED_KEY: &str = "SHUNT_AGGREGATE";

/// Version of the layout that this module reads and writes.
const LAYOUT: &str = "v1";
const COUNT_MAX: &str = "count_max=";
const BYTES_MAX: &str = "bytes_max=";
const PORT: &str = "port=";

/// The values under [`SUPPORTED_KEY`]: `["v1", "count_max=N", "bytes_max=N"]`, plus `"port=N"` from
/// a node that takes frames on one port only.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Offer {
    /// Most entries in a frame; at least 1.
    pub count_max: u32,
    /// Most bytes in the body of a frame.
    pub bytes_max: u32,
    /// Port on which the node takes frames; `None` means every port.
    pub port: Option<u16>,
}

impl Offer {
    /// Reads the values. Returns `None` if the layout is unknown, a limit is missing, or a number
    /// is invalid or 0; the node then gets ordinary envelopes. Unknown values are ignored.
    pub fn parse<'s>(values: impl IntoIterator<Item = &'s str>) -> Option<Offer> {
        let (mut known, mut count_max, mut bytes_max, mut port) = (false, None, None, None);
        for value in values {
            if value == LAYOUT {
                known = true;
            } else if let Some(number) = value.strip_prefix(COUNT_MAX) {
                count_max = number.parse().ok();
            } else if let Some(number) = value.strip_prefix(BYTES_MAX) {
                bytes_max = number.parse().ok();
            } else if let Some(number) = value.strip_prefix(PORT) {
                port = Some(number.parse().ok().filter(|port| *port != 0)?);
            }
        }
        let offer = Offer { count_max: count_max?, bytes_max: bytes_max?, port };
        (known && offer.count_max > 0 && offer.bytes_max > 0).then_some(offer)
    }

    /// The values for SUPPORTED.
    pub fn values(&self) -> Vec<String> {
        let limits =
            [format!("{COUNT_MAX}{}", self.count_max), format!("{BYTES_MAX}{}", self.bytes_max)];
        let port = self.port.map(|port| format!("{PORT}{port}"));
        [LAYOUT.to_owned()].into_iter().chain(limits).chain(port).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_survives_the_round_trip() {
        let offer = Offer { count_max: 64, bytes_max: 65_536, port: None };
        assert_eq!(offer.values(), ["v1", "count_max=64", "bytes_max=65536"]);
        let elsewhere = Offer { port: Some(9142), ..offer };
        assert_eq!(elsewhere.values(), ["v1", "count_max=64", "bytes_max=65536", "port=9142"]);
        for offer in [offer, elsewhere] {
            assert_eq!(Offer::parse(offer.values().iter().map(String::as_str)), Some(offer));
        }
    }

    #[test]
    fn unknown_offers_are_not_accepted() {
        assert_eq!(Offer::parse(["v2", "count_max=64", "bytes_max=1"]), None);
        assert_eq!(Offer::parse(["v1", "count_max=64"]), None);
        assert_eq!(Offer::parse(["v1", "count_max=0", "bytes_max=1"]), None);
        assert_eq!(Offer::parse(["v1", "count_max=x", "bytes_max=1"]), None);
        for port in ["port=", "port=0", "port=65536", "port=x"] {
            assert_eq!(Offer::parse(["v1", "count_max=2", "bytes_max=9", port]), None);
        }
        let offer = Offer { count_max: 2, bytes_max: 9, port: None };
        assert_eq!(Offer::parse(["new=1", "v1", "bytes_max=9", "count_max=2"]), Some(offer));
    }
}
