//! GB/s over the number of rows: a panel for each kind of row and width, all with the same axes.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{GRID, INK, OWN, REFERENCE, line, number, path, short, svg, text, ticks};
use crate::bench::record::{Engine, Measured, Record};

const COLUMNS: usize = 5;
const PANEL: [f64; 2] = [212.0, 146.0];
/// Of a panel, what its axes take.
const MARGIN: [f64; 2] = [34.0, 36.0];
const HEAD: f64 = 46.0;

/// Calls that move less are latency alone.
const LEAST_BYTES: u64 = 1 << 16;

/// A row of a record, with what it is set against.
struct Point<'r> {
    own: &'r Measured,
    reference: Option<&'r Measured>,
}

/// The panels; none where the record has no rates.
pub fn draw(record: &Record) -> Option<Markup> {
    let panels = panels(record);
    let points = || panels.values().flatten();
    let rows = points().map(|point| point.own.rows.max(1) as f64);
    let (first, last) = (rows.clone().fold(f64::INFINITY, f64::min), rows.fold(1.0, f64::max));
    let rates = points().flat_map(|point| [Some(point.own), point.reference]).flatten().filter_map(|m| m.gb_per_s);
    let most = rates.fold(f64::NAN, f64::max);
    if !first.is_finite() || most.is_nan() {
        return None;
    }
    // Some room at both ends, so that points do not hide the numbers of the axes.
    let axes = Axes { rows: [first / 1.4, last.max(first * 10.0) * 1.2], rate: most };
    let lines = panels.len().div_ceil(COLUMNS);
    let [width, height] = [COLUMNS.min(panels.len()).max(3) as f64 * PANEL[0], HEAD + lines as f64 * PANEL[1]];
    let reference = references(record);
    let about = format!("GB/s over rows, {}, {}", record.device.name, record.date);
    Some(svg(
        width,
        height,
        &about,
        html! {
            rect width="100%" height="100%" fill="white" {}
            text x="6" y="16" font-size="13" font-weight="600" fill=(INK) { (about) }
            (path(&[[6.0, 32.0], [30.0, 32.0]], OWN, None))
            (text(36.0, 36.0, "start", "Cake"))
            (path(&[[80.0, 32.0], [104.0, 32.0]], REFERENCE, Some("4 3")))
            (text(110.0, 36.0, "start", &format!("{reference}: moves as many bytes")))
            @for (i, ((_, _, name), points)) in panels.iter().enumerate() {
                g transform={ "translate(" (number((i % COLUMNS) as f64 * PANEL[0])) " "
                    (number(HEAD + (i / COLUMNS) as f64 * PANEL[1])) ")" } {
                    (axes.panel(name, points))
                }
            }
        },
    ))
}

/// As a file of its own.
pub fn file(record: &Record) -> Option<String> {
    Some(draw(record)?.into_string() + "\n")
}

/// By order of kinds, width, and title.
type Panels<'r> = BTreeMap<(usize, u32, String), Vec<Point<'r>>>;

fn panels(record: &Record) -> Panels<'_> {
    let mut kinds: Vec<&str> = Vec::new();
    let mut panels = Panels::new();
    let drawn = |own: &&Measured| own.engine == Engine::Routed && own.gb_per_s.is_some() && own.bytes >= LEAST_BYTES;
    for own in record.measurements.iter().filter(drawn) {
        // As in `rms+res/H6144/T65536`.
        let kind = own.row.rsplit_once("/H").map_or(own.row.as_str(), |(kind, _)| kind);
        let order = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        });
        let points = panels.entry((order, own.width, format!("{kind} H{}", own.width))).or_default();
        points.push(Point { own, reference: record.reference(&own.row) });
    }
    panels.values_mut().for_each(|points| points.sort_by_key(|point| point.own.rows));
    panels
}

/// The engines that are references of some row.
fn references(record: &Record) -> String {
    let used = |engine: &Engine| record.measurements.iter().any(|measured| measured.engine == *engine);
    let names = Engine::ALL.into_iter().filter(|engine| engine.is_reference() && used(engine));
    names.map(|engine| engine.to_string()).collect::<Vec<_>>().join(", ")
}

struct Axes {
    rows: [f64; 2],
    rate: f64,
}

impl Axes {
    fn at(&self, rows: u64, rate: f64) -> [f64; 2] {
        let [first, last] = self.rows.map(f64::log10);
        let along = ((rows.max(1) as f64).log10() - first) / (last - first);
        let [width, height] = [PANEL[0] - MARGIN[0] - 14.0, PANEL[1] - MARGIN[1] - 12.0];
        [MARGIN[0] + along * width, PANEL[1] - MARGIN[1] + 12.0 - rate / self.rate * height]
    }

    fn panel(&self, name: &str, points: &[Point<'_>]) -> Markup {
        let [first, last] = self.rows;
        let along = |measured: &Measured| Some(self.at(measured.rows, measured.gb_per_s?));
        let own: Vec<_> = points.iter().filter_map(|point| along(point.own)).collect();
        let reference: Vec<_> = points.iter().filter_map(|point| along(point.reference?)).collect();
        let decades = (0..=9).map(|decade| 10u64.pow(decade));
        html! {
            text x=(number(MARGIN[0])) y="12" font-weight="600" fill=(INK) { (name) }
            @for rate in ticks(self.rate, 5.0) {
                @let y = self.at(1, rate)[1];
                (line([MARGIN[0], y], [PANEL[0] - 14.0, y], GRID))
                (text(MARGIN[0] - 4.0, y + 4.0, "end", &short(rate)))
            }
            @for rows in decades.filter(|&rows| first <= rows as f64 && rows as f64 <= last) {
                @let x = self.at(rows, 0.0)[0];
                (line([x, self.at(rows, 0.0)[1]], [x, self.at(rows, self.rate)[1]], GRID))
                (text(x, PANEL[1] - 10.0, "middle", &short(rows as f64)))
            }
            (path(&reference, REFERENCE, Some("4 3")))
            (path(&own, OWN, None))
            @for (point, colour) in points.iter().flat_map(|point| [(Some(point.own), OWN), (point.reference, REFERENCE)]) {
                @if let Some((measured, [x, y])) = point.and_then(|measured| Some((measured, along(measured)?))) {
                    circle cx=(number(x)) cy=(number(y)) r="2.4" fill=(colour) { title { (told(measured)) } }
                }
            }
        }
    }
}

/// What a point says when it is asked.
fn told(measured: &Measured) -> String {
    let Measured { row, engine, ns, gb_per_s, percent_of_reference, program, .. } = measured;
    let mut text = format!("{row}, {engine}: {:.2} us, {:.0} GB/s", ns.p50 as f64 / 1e3, gb_per_s.unwrap_or_default());
    if let Some(percent) = percent_of_reference {
        text += &format!(", {percent:.1} % of the reference's rate");
    }
    program.iter().for_each(|program| text += &format!(", {program}"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::tests::{measured, record};

    #[test]
    fn each_kind_and_width_has_a_panel_with_its_reference() {
        let row = |name: &str, width, rows, engine, ns| Measured {
            width,
            rows,
            bytes: 1 << 20,
            ..measured(name, engine, ns)
        };
        let measurements = vec![
            row("rms/H128/T256", 128, 256, Engine::Routed, 4000),
            row("rms/H128/T256", 128, 256, Engine::Copy, 3000),
            row("rms/H128/T9999", 128, 9999, Engine::Routed, 9000),
            row("rms/H128/T9999", 128, 9999, Engine::Copy, 9500),
            row("rms/H128/T9999", 128, 9999, Engine::Forced, 9700),
            row("rms/H256/T256", 256, 256, Engine::Routed, 4000),
            Measured { bytes: 10, ..row("rms/H1/T1", 1, 1, Engine::Routed, 4000) },
        ];
        let drawn = file(&Record { measurements, ..record() }).unwrap();
        assert_eq!((drawn.matches(">rms H128<").count(), drawn.matches(">rms H256<").count()), (1, 1));
        assert_eq!(drawn.matches("<circle").count(), 5, "{drawn}");
        assert!(!drawn.contains("rms H1<"), "{drawn}");
        assert!(drawn.contains("copy: moves as many bytes") && drawn.starts_with("<svg xmlns="), "{drawn}");
        assert!(drawn.contains("rms/H128/T256, copy: 3.00 us, 1 GB/s"), "{drawn}");
    }

    #[test]
    fn without_rates_there_is_nothing_to_draw() {
        assert!(file(&Record { measurements: Vec::new(), ..record() }).is_none());
    }
}
