//! The address of a collector of spans, as an option.

use shunt_otlp::Endpoint;

use super::kinds::Kind;

/// The URL of a collector, or `off`.
#[derive(Debug, PartialEq, Eq)]
pub struct Collector(pub Option<Endpoint>);

impl Kind for Collector {
    const EXPECTED: &'static str = "a URL such as \"http://127.0.0.1:4318\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(None));
        }
        Endpoint::parse(text).map(|endpoint| Self(Some(endpoint)))
    }
}

impl From<Collector> for Option<Endpoint> {
    fn from(collector: Collector) -> Self {
        collector.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_url_or_off() {
        assert_eq!(Collector::from_text("off"), Ok(Collector(None)));
        assert!(Collector::from_text("127.0.0.1:4318").is_err());
    }
}
