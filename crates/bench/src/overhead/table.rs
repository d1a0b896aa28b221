//! The comparison as a table for people.

use std::fmt::Write as _;

use crate::{
    measure::statistics::Spread,
    overhead::{
        Arm, Shape,
        figures::{Figures, Measurement},
    },
};

/// The table of all shapes, one block each.
pub(super) fn render(figures: &Figures, shapes: &[Shape], arms: &[Arm]) -> String {
    let mut text = String::from(
        "CPU microseconds per query of the process in the middle, one core; median (min-max) over rounds.\n\
         unit = CPU of one 70-byte TCP send and receive on loopback at that moment; ratios are taken within a round.\n\
         echo = the client side's sockets alone (floor); direct = the nodes themselves; rest = load generator + nodes.\n\
         busy = share of its CPU that the process used; q/write as the proxy counts, q/read and q/frame at the nodes.\n",
    );
    for &shape in shapes {
        shape_block(&mut text, figures, shape, arms);
    }
    text
}

fn shape_block(text: &mut String, figures: &Figures, shape: Shape, arms: &[Arm]) {
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        text,
        "\n{:<10} {:>20} {:>20} {:>17} {:>17} {:>5} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7} {:>6} {:>7}",
        shape.to_string(),
        "cpu us/query",
        "units",
        "to floor",
        "to HAProxy",
        "busy",
        "q/write",
        "q/read",
        "q/frame",
        "p50 us",
        "p99 us",
        "kq/s",
        "conns",
        "rest us"
    );
    for &arm in arms {
        if figures.of(arm, shape).next().is_some() {
            arm_line(text, figures, shape, arm);
        }
    }
}

fn arm_line(text: &mut String, figures: &Figures, shape: Shape, arm: Arm) {
    let value = |of: &dyn Fn(&Measurement) -> Option<f64>| figures.spread(arm, shape, of);
    let middle = |of: &dyn Fn(&Measurement) -> Option<f64>, digits: usize| {
        value(of).map_or_else(|| "-".into(), |spread| format!("{:.digits$}", spread.median))
    };
    let _ = writeln!(
        text,
        "{:<10} {:>20} {:>20} {:>17} {:>17} {:>5} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7} {:>6} {:>7}",
        arm.name(),
        ranged(value(&|found| Some(found.cpu_us))),
        ranged(value(&|found| Some(found.cpu_units))),
        ranged(figures.ratio(arm, Arm::Echo, shape)),
        ranged(figures.ratio(arm, Arm::Haproxy, shape)),
        middle(&|found| found.report.processes.first().map(|process| process.utilisation), 2),
        middle(&|found| found.report.nodes.queries_per_write, 1),
        middle(&|found| found.report.nodes.queries_per_read, 1),
        middle(&|found| found.report.nodes.queries_per_frame, 1),
        middle(&|found| found.report.latency_us.map(|latency| latency.p50), 1),
        middle(&|found| found.report.latency_us.map(|latency| latency.p99), 1),
        middle(&|found| Some(found.report.rate / 1e3), 1),
        middle(&|found| found.report.nodes.connections.map(|count| count as f64), 0),
        middle(&|found| Some(found.rest_cpu_us), 2),
    );
}

fn ranged(spread: Option<Spread>) -> String {
    let Some(Spread { median, min, max }) = spread else { return "-".into() };
    let digits = if median < 1.0 { 3 } else { 2 };
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::{
        load::{Round, RoundReport, result::new_histogram},
        overhead::{
            Arm, Shape,
            figures::{Figures, Measurement},
        },
    };

    #[test]
    fn ratios_are_taken_within_a_round() {
        let shape = Shape { connections: 50, outstanding: 1 };
        let round = Round { number: 0, wall_ns: 1, counts: Default::default(), latency: new_histogram(), turns: 0 };
        let mut figures = Figures::default();
        for (arm, cpu_us) in [(Arm::Echo, 5.0), (Arm::Proxy, 6.0), (Arm::Haproxy, 20.0)] {
            for round_number in 0..3 {
                figures.add(Measurement {
                    arm: arm.name(),
                    shape: shape.to_string(),
                    round: round_number,
                    cpu_us,
                    cpu_units: cpu_us / 4.0,
                    rest_cpu_us: 1.0,
                    softirq_us: 0.0,
                    report: RoundReport::new(&round),
                });
            }
        }
        let text = render(&figures, &[shape], &[Arm::Echo, Arm::Proxy, Arm::Haproxy, Arm::Direct]);
        assert!(text.contains("1.20 (1.20-1.20)"), "{text}");
        assert!(text.contains("0.300 (0.300-0.300)"), "{text}");
    }
}
