//! Medians and ratios as a table for people: a block for each figure, a line for each point.

use std::fmt::Write as _;

use super::{
    file::{Comparison, Figure},
    outcome::{Outcome, short},
};
use crate::measure::statistics::{Ratio, Spread};

/// Formats the table of a scenario's figures. Compared figures have their ratios beside the
/// medians.
pub(super) fn of(outcome: &Outcome<'_>) -> String {
    let mut text =
        format!("{}: medians (smallest to largest) over the rounds\n", outcome.scenario.title);
    for figure in &outcome.scenario.figures {
        block(&mut text, outcome, figure);
    }
    text
}

fn block(text: &mut String, outcome: &Outcome<'_>, figure: &Figure) {
    let scenario = outcome.scenario;
    let compared = || {
        let of_figure =
            scenario.comparisons.iter().filter(|comparison| comparison.figure == figure.name);
        of_figure.flat_map(|comparison| comparison.arms.iter().map(move |arm| (comparison, arm)))
    };
    let mut lines = vec![vec![String::new()]];
    lines[0].extend(scenario.arms.iter().map(|arm| arm.name.clone()));
    lines[0].extend(compared().map(|(Comparison { base, .. }, arm)| format!("{arm} / {base}")));
    for (point, _) in outcome.points() {
        let mut line = vec![point.to_owned()];
        let median = |arm: &str| {
            Spread::of(outcome.values(arm, point, &figure.name).map(|(_, value)| value))
        };
        line.extend(scenario.arms.iter().map(|arm| median(&arm.name).map_or("-".into(), spread)));
        let over = |(comparison, arm): (&Comparison, &String)| {
            outcome.ratio(arm, &comparison.base, point, &figure.name).map_or("-".into(), ratio)
        };
        line.extend(compared().map(over));
        lines.push(line);
    }
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "\n{}, {}", figure.title, figure.unit);
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for line in lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
}

fn spread(Spread { median, min, max }: Spread) -> String {
    if min < max {
        format!("{} ({} to {})", short(median), short(min), short(max))
    } else {
        short(median)
    }
}

fn ratio(Ratio { ratio, low, high, shown, rounds }: Ratio) -> String {
    let word = if shown { "shown" } else { "no difference shown" };
    if rounds == 1 {
        format!("{ratio:.3}, one round")
    } else {
        format!("{ratio:.3} ({low:.3} to {high:.3}), {word}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::of;
    use crate::scenario::{file::Scenario, outcome::Outcome, record::Measurement};

    #[test]
    fn medians_and_ratios_stand_beside_each_other() {
        let scenario =
            Scenario::parse(include_str!("../../../../experiments/scenarios/binaries.toml"))
                .expect("valid");
        let mut outcome = Outcome::new(&scenario);
        for (round, base, shunt) in
            [(0, 8.0, 6.0), (1, 10.0, 7.0), (2, 9.0, 6.3), (3, 8.0, 6.4), (4, 8.0, 5.2)]
        {
            for (arm, cpu_us) in [("base", base), ("shunt", shunt)] {
                outcome.add(Measurement {
                    scenario: "binaries".into(),
                    arm: arm.into(),
                    point: "8x128".into(),
                    x: None,
                    round,
                    figures: BTreeMap::from([("cpu_us".into(), cpu_us)]),
                    detail: serde_json::Value::Null,
                });
            }
        }
        let text = of(&outcome);
        let line = "8x128  8.00 (8.00 to 10.0)  6.30 (5.20 to 7.00)  0.700 (0.650 to 0.800), shown";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("CPU of the proxy per query, us\n") && text.contains("shunt / base"),
            "{text}"
        );
    }
}
