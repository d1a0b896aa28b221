//! Computes the results of a scenario from its measurements: medians, ratios, and the verdict on
//! each claim.

use std::{collections::BTreeSet, io};

use super::{
    file::{Claim, Scenario},
    record::{Line, Measurement, Record},
};
use crate::measure::statistics::{Ratio, Spread, Verdict, Wanted};

/// The measurements of one scenario.
#[derive(Debug)]
pub(super) struct Outcome<'s> {
    pub(super) scenario: &'s Scenario,
    measurements: Vec<Measurement>,
}

impl<'s> Outcome<'s> {
    pub(super) fn new(scenario: &'s Scenario) -> Self {
        Self { scenario, measurements: Vec::new() }
    }

    pub(super) fn add(&mut self, measurement: Measurement) {
        self.measurements.push(measurement);
    }

    /// Returns the values of a figure by round.
    pub(super) fn values(
        &self,
        arm: &str,
        point: &str,
        figure: &str,
    ) -> impl Iterator<Item = (u32, f64)> {
        let found =
            self.measurements.iter().filter(move |found| found.arm == arm && found.point == point);
        found.filter_map(move |found| Some((found.round, *found.figures.get(figure)?)))
    }

    /// Returns the median over the rounds so far.
    pub(super) fn median(&self, arm: &str, point: &str, figure: &str) -> Option<f64> {
        Spread::of(self.values(arm, point, figure).map(|(_, value)| value))
            .map(|spread| spread.median)
    }

    pub(super) fn ratio(&self, arm: &str, base: &str, point: &str, figure: &str) -> Option<Ratio> {
        let of_base: Vec<(u32, f64)> = self.values(base, point, figure).collect();
        let pairs = self.values(arm, point, figure).filter_map(|(round, value)| {
            let (_, below) = of_base.iter().find(|(other, _)| *other == round)?;
            Some(value / below)
        });
        Ratio::of(&pairs.collect::<Vec<_>>())
    }

    /// Returns the points with their position on the axis, in the order of the file; points of a
    /// program in the order of their first measurement.
    pub(super) fn points(&self) -> Vec<(&str, Option<f64>)> {
        let mut seen = BTreeSet::new();
        let all = self.measurements.iter().map(|found| (found.point.as_str(), found.x));
        let mut points: Vec<_> = all.filter(|(point, _)| seen.insert(*point)).collect();
        // Each round measures the points in a different order.
        points.sort_by_key(|(point, _)| {
            self.scenario.points.iter().position(|listed| listed.label == *point)
        });
        points
    }

    /// Writes summaries, comparisons and claims; returns the verdicts on the claims.
    pub(super) fn conclude(&self, record: &mut Record) -> io::Result<Vec<(String, Verdict)>> {
        for (point, x) in self.points() {
            for (arm, figure) in self.columns() {
                let values: Vec<f64> =
                    self.values(arm, point, figure).map(|(_, value)| value).collect();
                let Some(spread) = Spread::of(values.iter().copied()) else { continue };
                let scenario = &self.scenario.name;
                record.write(&Line::Summary {
                    scenario,
                    arm,
                    point,
                    x,
                    figure,
                    spread,
                    rounds: values.len(),
                })?;
            }
            for comparison in &self.scenario.comparisons {
                for arm in &comparison.arms {
                    let (base, figure) = (&comparison.base, &comparison.figure);
                    let Some(ratio) = self.ratio(arm, base, point, figure) else { continue };
                    let scenario = &self.scenario.name;
                    record.write(&Line::Comparison {
                        scenario,
                        point,
                        x,
                        figure,
                        arm,
                        base,
                        ratio,
                    })?;
                }
            }
        }
        let mut verdicts = Vec::new();
        for claim in &self.scenario.claims {
            let (ours, verdict) = self.judge(claim);
            let title = |name: &str| {
                self.scenario.arm(name).map_or(name.to_owned(), |arm| arm.title.clone())
            };
            let figure = self.scenario.figures.iter().find(|figure| figure.name == claim.figure);
            let unit =
                figure.filter(|_| claim.base.is_none()).map_or("", |figure| figure.unit.as_str());
            let figure = figure.map_or(claim.figure.as_str(), |figure| figure.title.as_str());
            let wanted = match Wanted::parse(&claim.wanted) {
                Ok(Wanted::Above(limit)) => format!("above {}", amount(limit, unit)),
                Ok(Wanted::Below(limit)) => format!("below {}", amount(limit, unit)),
                Err(problem) => problem,
            };
            let of = match &claim.base {
                Some(base) => format!("{figure}: {} over {}", title(&claim.arm), title(base)),
                None => format!("{figure}: {}", title(&claim.arm)),
            };
            record.write(&Line::Claim {
                scenario: &self.scenario.name,
                text: &claim.text,
                source: claim.source.as_deref(),
                theirs: claim.theirs.as_deref(),
                ours,
                how: format!("{of}, at {}; wanted {wanted}", claim.point),
                verdict,
                why: claim
                    .why
                    .as_deref()
                    .filter(|_| matches!(verdict, Verdict::NotMet | Verdict::NotShown)),
            })?;
            verdicts.push((claim.text.clone(), verdict));
        }
        Ok(verdicts)
    }

    fn columns(&self) -> impl Iterator<Item = (&str, &str)> {
        let figures = &self.scenario.figures;
        let arms = self.scenario.arms.iter();
        arms.flat_map(move |arm| {
            figures.iter().map(move |figure| (arm.name.as_str(), figure.name.as_str()))
        })
    }

    fn judge(&self, claim: &Claim) -> (Option<String>, Verdict) {
        // A scenario is checked when it is read, so this parses.
        let Ok(wanted) = Wanted::parse(&claim.wanted) else { return (None, Verdict::NotMeasured) };
        if let Some(base) = &claim.base {
            let Some(found) = self.ratio(&claim.arm, base, &claim.point, &claim.figure) else {
                return (None, Verdict::NotMeasured);
            };
            let Ratio { ratio, low, high, rounds, .. } = found;
            let verdict = Verdict::of(wanted, low, high, rounds, claim.rounds);
            let interval =
                if rounds == 1 { "one round".to_owned() } else { format!("{low:.2} to {high:.2}") };
            return (Some(format!("x {ratio:.2} ({interval})")), verdict);
        }
        let values: Vec<f64> =
            self.values(&claim.arm, &claim.point, &claim.figure).map(|(_, value)| value).collect();
        let Some(Spread { median, min, max }) = Spread::of(values.iter().copied()) else {
            return (None, Verdict::NotMeasured);
        };
        let unit = self.scenario.figures.iter().find(|figure| figure.name == claim.figure);
        let unit = unit.map_or("", |figure| figure.unit.as_str());
        let verdict = Verdict::of(wanted, min, max, values.len(), claim.rounds);
        let mut ours = amount(median, unit);
        if min < max {
            ours += &format!(" ({} to {})", amount(min, unit), amount(max, unit));
        }
        (Some(ours), verdict)
    }
}

/// Formats a number with its unit, scaled for reading.
fn amount(number: f64, unit: &str) -> String {
    let (divisor, unit) = match unit {
        "us" if number.abs() >= 1000.0 => (1000.0, "ms"),
        "bytes" if number.abs() >= 1e6 => (1e6, "MB"),
        "1/s" => (1.0, "per second"),
        "of 1" => (0.01, "%"),
        "ratio" => (1.0, ""),
        other => (1.0, other),
    };
    format!("{} {unit}", short(number / divisor)).trim_end().to_owned()
}

/// Formats a number with three significant digits.
pub(super) fn short(number: f64) -> String {
    let digits =
        if number == 0.0 { 0 } else { (2 - number.abs().log10().floor() as i32).clamp(0, 6) };
    format!("{number:.*}", digits as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Outcome, amount, short};
    use crate::{
        measure::statistics::Verdict,
        scenario::{
            file::Scenario,
            record::{Measurement, Record},
        },
    };

    const SCENARIO: &str = r#"
        name = "s"
        title = "t"
        question = "q"
        setup = "s"
        axis = { title = "connections", scale = "log" }
        program = { command = ["true"], seconds = 1 }
        arms = [{ name = "ours", title = "Ours" }, { name = "theirs", title = "Theirs" }]
        figures = [{ name = "cost", title = "Cost", unit = "us", better = "less" }]
        comparisons = [{ figure = "cost", base = "theirs", arms = ["ours"] }]
        claims = [{ text = "cheap", figure = "cost", arm = "ours", base = "theirs", point = "p", wanted = "< 0.6" },
                  { text = "fast", figure = "cost", arm = "ours", point = "p", wanted = "< 7" },
                  { text = "not there", figure = "cost", arm = "ours", point = "elsewhere", wanted = "< 7", why = "w" }]
    "#;

    fn measured(arm: &str, round: u32, cost: f64) -> Measurement {
        Measurement {
            scenario: "s".into(),
            arm: arm.into(),
            point: "p".into(),
            x: Some(1.0),
            round,
            figures: BTreeMap::from([("cost".into(), cost)]),
            detail: serde_json::Value::Null,
        }
    }

    #[test]
    fn figures_become_medians_ratios_and_verdicts() {
        let scenario = Scenario::parse(SCENARIO).expect("valid");
        let mut outcome = Outcome::new(&scenario);
        for (round, (ours, theirs)) in
            [(5.0, 10.0), (6.0, 12.5), (11.0, 20.0), (6.0, 12.0), (5.0, 10.0)]
                .into_iter()
                .enumerate()
        {
            outcome.add(measured("ours", round as u32, ours));
            outcome.add(measured("theirs", round as u32, theirs));
        }
        let path = std::env::temp_dir().join(format!("shunt-outcome-{}.jsonl", std::process::id()));
        let mut record = Record::create(&path).expect("a file");
        let verdicts: Vec<Verdict> =
            outcome.conclude(&mut record).expect("written").into_iter().map(|(_, v)| v).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::NotShown, Verdict::NotMeasured]);
        let text = std::fs::read_to_string(&path).expect("the file");
        let _ = std::fs::remove_file(&path);
        for part in [
            r#""kind":"summary","scenario":"s","arm":"ours","point":"p","x":1.0,"figure":"cost","median":6.0,"min":5.0,"max":11.0,"rounds":5"#,
            r#""arm":"ours","base":"theirs","ratio":0.5,"low":0.48,"high":0.55,"shown":true,"rounds":5"#,
            r#""ours":"x 0.50 (0.48 to 0.55)","how":"Cost: Ours over Theirs, at p; wanted below 0.600","verdict":"met""#,
            r#""ours":"6.00 us (5.00 us to 11.0 us)""#,
            r#""verdict":"not measured","why":null"#,
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn points_stand_as_in_the_file_however_they_were_measured() {
        let mut scenario = Scenario::parse(SCENARIO).expect("valid");
        scenario.points = ["b", "a", "c"]
            .map(|label| toml::from_str(&format!("label = \"{label}\"")).expect("a point"))
            .into();
        let mut outcome = Outcome::new(&scenario);
        for point in ["a", "c", "b", "a"] {
            outcome.add(Measurement { point: point.into(), ..measured("ours", 0, 1.0) });
        }
        let order: Vec<&str> = outcome.points().into_iter().map(|(point, _)| point).collect();
        assert_eq!(order, ["b", "a", "c"]);
    }

    #[test]
    fn amounts_have_the_units_of_people() {
        let amounts = [
            (42_500.0, "us"),
            (30_294_016.0, "bytes"),
            (0.717, "of 1"),
            (1.2, "ratio"),
            (812.0, "1/s"),
            (3.0, "writes"),
        ];
        let texts = amounts.map(|(number, unit)| amount(number, unit));
        assert_eq!(
            texts,
            ["42.5 ms", "30.3 MB", "71.7 %", "1.20", "812 per second", "3.00 writes"]
        );
    }

    #[test]
    fn three_digits() {
        assert_eq!([0.0, 0.012_345, 7.894, 81_234.6].map(short), ["0", "0.0123", "7.89", "81235"]);
    }
}
