//! The scenarios: the built-in ones, which are the files of `experiments/scenarios`, and files
//! given by path.

use std::{fs, io, path::Path};

use super::file::Scenario;

/// Names and texts, sorted by name; the build script generates the list from the directory.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// Returns all built-in scenarios, in the order of a report.
///
/// # Errors
/// A scenario is invalid; a test ensures that none is.
pub(super) fn all() -> io::Result<Vec<Scenario>> {
    BUILT_IN.iter().map(|(name, text)| parse(name, text)).collect()
}

/// Returns the scenario with that name or in that file.
///
/// # Errors
/// The scenario does not exist or is invalid.
pub(super) fn find(name: &str) -> io::Result<Scenario> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(found, _)| *found == name) {
        return parse(name, text);
    }
    if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
        let text = fs::read_to_string(name)
            .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        return parse(name, &text);
    }
    let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
    let problem = format!(
        "there is no scenario '{name}'; there are {}, or give the path of a .toml file",
        names.join(", ")
    );
    Err(io::Error::new(io::ErrorKind::NotFound, problem))
}

fn parse(name: &str, text: &str) -> io::Result<Scenario> {
    Scenario::parse(text)
        .map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {problem}")))
}

#[cfg(test)]
mod tests {
    use super::{BUILT_IN, all, find};

    #[test]
    fn every_scenario_is_whole_and_has_its_file_s_name() {
        let scenarios = all().expect("whole");
        assert!(!scenarios.is_empty());
        for (scenario, (file, _)) in scenarios.iter().zip(BUILT_IN) {
            assert_eq!(scenario.name, *file);
            assert!(
                !scenario.claims.is_empty() || !scenario.plots.is_empty(),
                "{file} shows nothing"
            );
            let smoke = scenario.clone().smoke();
            assert!(
                smoke.program.is_some() || !smoke.points.is_empty() && !smoke.arms.is_empty(),
                "{file}: empty short form"
            );
            if let Some(program) = &scenario.program {
                assert!(program.smoke.is_some(), "{file}: its program has no short form");
            }
        }
    }

    #[test]
    fn a_name_that_is_none_gets_the_names() {
        let error = find("nothing").expect_err("no such scenario").to_string();
        assert!(error.contains(BUILT_IN[0].0), "{error}");
        assert!(find("/nowhere/x.toml").is_err());
    }
}
