//! Percentiles of short calls: a line for each, on one axis.

use maud::{Markup, html};

use super::{GRID, OWN, REFERENCE, line, number, svg, text, ticks};
use crate::bench::record::{Engine, Record};
use crate::bench::times::Summary;

/// Calls longer than this are bound by bytes: their rates say more.
const SHORT_NS: u64 = 15_000;

const WIDTH: f64 = 1040.0;
const LEFT: f64 = 210.0;
const LINE: f64 = 15.0;
const HEAD: f64 = 34.0;

/// The short calls of a record on the device; none where it has no such rows.
pub fn of_rows(record: &Record) -> Option<Markup> {
    let rows = record.measurements.iter().filter(|own| own.engine == Engine::Routed && own.ns.p50 <= SHORT_NS);
    let lines: Vec<Line<'_>> = rows
        .map(|own| Line {
            name: &own.row,
            ns: &own.ns,
            reference: record.reference(&own.row).map(|other| other.ns.p50),
        })
        .collect();
    draw("between two events around the call", &lines)
}

/// What calls cost the host, where the record says it.
pub fn of_host(record: &Record) -> Option<Markup> {
    let lines: Vec<Line<'_>> =
        record.host.iter().map(|cost| Line { name: &cost.call, ns: &cost.ns, reference: None }).collect();
    draw("on the host", &lines)
}

struct Line<'r> {
    name: &'r str,
    ns: &'r Summary,
    /// Median of what it is set against.
    reference: Option<u64>,
}

fn draw(what: &str, lines: &[Line<'_>]) -> Option<Markup> {
    let most = lines.iter().flat_map(|line| [line.ns.p99, line.reference.unwrap_or(0)]).max()?;
    let end = most.max(1) as f64 / 1e3;
    let x = |us: f64| LEFT + us / end * (WIDTH - LEFT - 20.0);
    let at = |ns: u64| x(ns as f64 / 1e3);
    let height = HEAD + lines.len() as f64 * LINE + 8.0;
    let about = format!("us {what}: thin from p01 to p99, thick from p25 to p75, a point for the median");
    Some(svg(
        WIDTH,
        height,
        &about,
        html! {
            (text(LEFT, 12.0, "start", &about))
            @for us in ticks(end, 12.0) {
                (line([x(us), HEAD - 6.0], [x(us), height - 6.0], GRID))
                (text(x(us), HEAD - 9.0, "middle", &number(us)))
            }
            @for (i, shown) in lines.iter().enumerate() {
                @let (ns, y) = (shown.ns, HEAD + (i as f64 + 0.5) * LINE);
                g {
                    title {
                        (shown.name) ": p01 " (ns.p01) ", p10 " (ns.p10) ", p25 " (ns.p25) ", p50 " (ns.p50) ", p75 " (ns.p75)
                        ", p90 " (ns.p90) ", p99 " (ns.p99) " ns"
                    }
                    (text(LEFT - 8.0, y + 4.0, "end", shown.name))
                    (line([at(ns.p01), y], [at(ns.p99), y], OWN))
                    rect x=(number(at(ns.p25))) y=(number(y - 3.0)) width=(number((at(ns.p75) - at(ns.p25)).max(1.0)))
                        height="6" fill=(OWN) fill-opacity="0.45" {}
                    circle cx=(number(at(ns.p50))) cy=(number(y)) r="3" fill=(OWN) {}
                    @if let Some(reference) = shown.reference {
                        (line([at(reference), y - 6.0], [at(reference), y + 6.0], REFERENCE))
                    }
                }
            }
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::tests::{measured, record};

    #[test]
    fn short_calls_have_a_line_and_long_ones_none() {
        let measurements = vec![
            measured("short", Engine::Routed, 5000),
            measured("short", Engine::Copy, 4000),
            measured("long", Engine::Routed, 500_000),
        ];
        let record = Record { measurements, ..record() };
        let drawn = of_rows(&record).unwrap().into_string();
        assert_eq!((drawn.matches("<circle").count(), drawn.matches(">long<").count()), (1, 0), "{drawn}");
        assert!(drawn.contains("short: p01 5000"), "{drawn}");
        assert_eq!(of_host(&record).unwrap().into_string().matches("<circle").count(), record.host.len());
        assert!(of_host(&Record { host: Vec::new(), ..record }).is_none());
    }
}
