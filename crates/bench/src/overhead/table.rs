//! The comparison as a table for people.

use std::fmt::Write as _;

use crate::{
    measure::statistics::Spread,
    overhead::{
        Arm, Shape,
        figures::{Figures, Measurement},
    },
};

/// CPU per query of cql-proxy over that of HAProxy in TCP mode, both measured on another machine of this kind: 38 and
/// 22 microseconds at 50x1, 12 and 0.5 at 1x128.
const CQL_PROXY_TO_HAPROXY: [(Shape, f64); 2] = [
    (Shape { connections: 50, outstanding: 1 }, 38.0 / 22.0),
    (Shape { connections: 1, outstanding: 128 }, 12.0 / 0.5),
];

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
    cql_proxy_line(text, figures, shape);
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
        middle(&|found| Some(found.report.latency_us.p50), 1),
        middle(&|found| Some(found.report.latency_us.p99), 1),
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

fn cql_proxy_line(text: &mut String, figures: &Figures, shape: Shape) {
    let known = CQL_PROXY_TO_HAPROXY.iter().find(|(known, _)| *known == shape);
    let haproxy = figures.spread(Arm::Haproxy, shape, |found| Some(found.cpu_us));
    let (Some((_, factor)), Some(haproxy)) = (known, haproxy) else { return };
    let _ = write!(
        text,
        "cql-proxy is not run here; elsewhere it needed {factor:.2}x of HAProxy at {shape}, which is {:.2} us here",
        haproxy.median * factor
    );
    if let Some(ratio) = figures.ratio(Arm::Proxy, Arm::Haproxy, shape) {
        let _ = write!(text, ": the proxy needs {:.2} of that", ratio.median / factor);
    }
    if let Some(ratio) = figures.ratio(Arm::Echo, Arm::Haproxy, shape) {
        let _ = write!(text, " (the floor alone {:.2})", ratio.median / factor);
    }
    text.push('\n');
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
    fn ratios_and_the_comparison_that_cannot_be_run() {
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
        assert!(
            text.contains(
                "1.73x of HAProxy at 50x1, which is 34.55 us here: the proxy needs 0.17 of that (the floor alone 0.14)"
            ),
            "{text}"
        );
    }
}
