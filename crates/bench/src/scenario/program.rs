//! An experiment that is a program of the project: its run, and the parser of its output.

use std::{collections::BTreeMap, io, process::Command};

use serde::Deserialize;
use serde_json::Value;

use super::{
    child::{self, Stop},
    file::Program,
    record::{Measurement, Picture},
    servers::Surroundings,
};

/// Exit code of a program on a machine that lacks a requirement.
const MISSING: i32 = 3;

/// Characters of a line that an error quotes.
const SHOWN_MAX: usize = 500;

/// Outcome of a program.
pub(super) enum Verdict {
    Done,
    /// The machine lacks a requirement, with the name of that.
    Missing(String),
}

/// Meaning of a program's line.
pub(super) enum Said {
    Measurement(Box<Measurement>),
    Series(Value),
    Picture(Picture),
    Note(String),
    /// A line for people.
    Nothing,
}

/// A measurement in the form that programs write.
#[derive(Deserialize)]
struct Written {
    arm: String,
    point: String,
    x: Option<f64>,
    #[serde(default)]
    round: u32,
    figures: BTreeMap<String, f64>,
    #[serde(default)]
    detail: Value,
}

/// Runs the program; calls `line` with every line of its standard output.
///
/// # Errors
/// The program cannot be started, or failed.
pub(super) fn run(
    around: &Surroundings,
    stop: &Stop,
    program: &Program,
    line: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<Verdict> {
    let arguments = if around.is_smoke {
        program.smoke.as_ref().unwrap_or(&program.command)
    } else {
        &program.command
    };
    let Some((first, rest)) = arguments.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the program has no command"));
    };
    let mut command = Command::new(around.project.join(first));
    command.args(rest).current_dir(&around.project).env("SHUNT_BINARY", &around.shunt);
    let ended = match child::run(&mut command, stop, line) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Verdict::Missing(format!(
                "{} is not there; run this in the project's directory",
                first
            )));
        }
        other => other?,
    };
    match ended.code {
        Some(0) => Ok(Verdict::Done),
        Some(MISSING) => {
            Ok(Verdict::Missing(ended.complaint.lines().last().unwrap_or(first).to_owned()))
        }
        code => {
            let code = code.map_or("a signal".to_owned(), |code| format!("exit code {code}"));
            Err(io::Error::other(format!("{first} ended with {code}: {}", ended.complaint)))
        }
    }
}

/// Parses a line: JSON objects are results, all other lines are for people.
///
/// # Errors
/// The line is a JSON object of an unknown kind.
pub(super) fn read(scenario: &str, line: &str) -> io::Result<Said> {
    if !line.starts_with('{') {
        return Ok(Said::Nothing);
    }
    let wrong = |problem: String| {
        let shown: String = line.chars().take(SHOWN_MAX).collect();
        io::Error::new(io::ErrorKind::InvalidData, format!("{problem} in '{shown}'"))
    };
    let mut value: Value = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
    match value.get("kind").and_then(Value::as_str) {
        Some("series") => {
            value["scenario"] = scenario.into();
            if let Some(fields) = value.as_object_mut() {
                fields.remove("kind");
            }
            Ok(Said::Series(value))
        }
        Some("picture") => Ok(Said::Picture(
            serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?,
        )),
        Some("note") => {
            let text = value
                .get("text")
                .and_then(Value::as_str)
                .ok_or_else(|| wrong("a note without text".into()))?;
            Ok(Said::Note(text.to_owned()))
        }
        Some("measurement") | None => {
            let written: Written =
                serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
            let Written { arm, point, x, round, figures, detail } = written;
            Ok(Said::Measurement(Box::new(Measurement {
                scenario: scenario.into(),
                arm,
                point,
                x,
                round,
                figures,
                detail,
            })))
        }
        Some(other) => Err(wrong(format!("unknown kind '{other}'"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Said, read};

    #[test]
    fn lines_of_every_kind() {
        let measured =
            r#"{"arm": "a", "point": "95 %", "round": 1, "figures": {"rate": 5, "hits": 0.7}}"#;
        let Said::Measurement(found) = read("s", measured).expect("valid") else {
            panic!("a measurement")
        };
        assert_eq!((found.arm.as_str(), found.round, found.figures["hits"]), ("a", 1, 0.7));
        let series = r#"{"kind": "series", "arm": "a", "point": null, "figure": "p99", "x_title": "s", "x": [1], "y": [2]}"#;
        let Said::Series(found) = read("s", series).expect("valid") else { panic!("a series") };
        assert_eq!((found["scenario"].as_str(), found.get("kind")), (Some("s"), None));
        let picture = r#"{"kind": "picture", "name": "256x1", "title": "t", "svg": "<svg/>"}"#;
        let Said::Picture(found) = read("s", picture).expect("valid") else { panic!("a picture") };
        assert_eq!((found.name.as_str(), found.svg.as_str()), ("256x1", "<svg/>"));
        assert!(
            matches!(read("s", "{\"kind\": \"note\", \"text\": \"x\"}"), Ok(Said::Note(text)) if text == "x")
        );
        assert!(matches!(read("s", "warming up"), Ok(Said::Nothing)));
        for wrong in [
            "{",
            "{\"kind\": \"other\"}",
            "{\"arm\": \"a\"}",
            "{\"kind\": \"note\"}",
            "{\"kind\": \"picture\"}",
        ] {
            assert!(read("s", wrong).is_err(), "{wrong}");
        }
    }
}
