//! Drawings as SVG: they stand in a page as they are, and need nothing from elsewhere.
//!
//! | room | draws |
//! | --- | --- |
//! | [`histogram`] | how many errors there are of which size |
//! | [`rates`] | GB/s over the number of rows, for each width |
//! | [`latency`] | percentiles of short calls |

pub mod histogram;
pub mod latency;
pub mod rates;

use maud::{Markup, html};

/// Ours.
const OWN: &str = "#2563eb";
/// What ours is set against.
const REFERENCE: &str = "#a16207";
/// Axes and their numbers.
const INK: &str = "#475569";
const GRID: &str = "#e2e8f0";

/// A drawing of a size in pixels; `about` is what a reader who cannot see it is told.
fn svg(width: f64, height: f64, about: &str, content: Markup) -> Markup {
    html! {
        svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label=(about) font-family="system-ui, sans-serif"
            font-size="11" viewBox={ "0 0 " (number(width)) " " (number(height)) } width=(number(width))
            height=(number(height)) { (content) }
    }
}

/// Text that begins (`start`), ends (`end`) or has its `middle` at a point.
fn text(x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! { text x=(number(x)) y=(number(y)) text-anchor=(anchor) fill=(INK) { (text) } }
}

fn line(from: [f64; 2], to: [f64; 2], colour: &str) -> Markup {
    html! {
        line x1=(number(from[0])) y1=(number(from[1])) x2=(number(to[0])) y2=(number(to[1])) stroke=(colour) {}
    }
}

/// A line through points.
fn path(points: &[[f64; 2]], colour: &str, dashes: Option<&str>) -> Markup {
    let points = points.iter().map(|[x, y]| format!("{},{}", number(*x), number(*y))).collect::<Vec<_>>().join(" ");
    html! { polyline points=(points) fill="none" stroke=(colour) stroke-width="1.6" stroke-dasharray=[dashes] {} }
}

/// With as many digits as pixels need.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// `1500` as `1.5k`.
fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{}M", number(value / 1e6)),
        1e3.. => format!("{}k", number(value / 1e3)),
        _ => number(value),
    }
}

/// A step of 1, 2 or 5 times a power of ten, of which at most `most` fit between 0 and `end`.
fn step(end: f64, most: f64) -> f64 {
    let decade = 10f64.powf((end / most).max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|times| times * decade)
        .into_iter()
        .find(|step| end / step <= most)
        .unwrap_or(10.0 * decade)
}

/// Multiples of a step from 0 to `end`.
fn ticks(end: f64, most: f64) -> impl Iterator<Item = f64> {
    let step = step(end, most);
    (0..=(end / step + 1e-9) as u32).map(move |i| f64::from(i) * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 1.0, 1.5, 2.0 / 3.0, 120.0].map(number), ["0", "1", "1.5", "0.67", "120"]);
        assert_eq!([999.0, 1000.0, 65_536.0, 2e6].map(short), ["999", "1k", "65.54k", "2M"]);
    }

    #[test]
    fn steps_are_round_and_few() {
        assert_eq!(ticks(4700.0, 5.0).collect::<Vec<_>>(), [0.0, 1000.0, 2000.0, 3000.0, 4000.0]);
        assert_eq!(ticks(21.0, 5.0).collect::<Vec<_>>(), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(ticks(10.0, 10.0).count(), 11);
    }
}
