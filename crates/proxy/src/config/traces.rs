//! The options of traces.

use super::validate::Findings;
use super::{Config, OPTIONS};

/// Section of these options.
const SECTION: &str = "Traces";

impl Config {
    /// Checks that the options of traces have a collector.
    pub(super) fn check_traces(&self, found: &mut Findings) {
        let Some(endpoint) = &self.otlp_endpoint else {
            let default = Config::default();
            for option in OPTIONS.iter().filter(|option| option.section == SECTION) {
                if (option.differs)(self, &default) {
                    let key = option.key;
                    let why = "has no effect without otlp_endpoint: set it, or remove this option";
                    found.add(key, why);
                }
            }
            return;
        };
        if self.otlp_ca.is_some() && !endpoint.has_tls() {
            found.add("otlp_ca", format!("has no effect, because {endpoint} is not https"));
        }
        if self.otlp_service_name.is_empty() {
            found.add("otlp_service_name", "is empty; set a name, or remove it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Collector, Kind as _};

    fn problems(endpoint: &str, change: impl FnOnce(&mut Config)) -> Vec<&'static str> {
        let otlp_endpoint = Collector::from_text(endpoint).expect(endpoint).into();
        let contact_points = vec!["10.0.0.1".to_owned()];
        let mut config = Config { otlp_endpoint, contact_points, ..Config::default() };
        change(&mut config);
        config.problems().into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn options_of_a_collector_need_one() {
        let ca = |config: &mut Config| config.otlp_ca = Some("ca.crt".into());
        assert_eq!(problems("off", |_| {}), [""; 0]);
        assert_eq!(problems("off", ca), ["otlp_ca"]);
        assert_eq!(problems("http://127.0.0.1:4318", ca), ["otlp_ca"]);
        assert_eq!(problems("https://collector.example", ca), [""; 0]);
        let unnamed = |config: &mut Config| config.otlp_service_name.clear();
        assert_eq!(problems("http://127.0.0.1:4318", unnamed), ["otlp_service_name"]);
    }
}
