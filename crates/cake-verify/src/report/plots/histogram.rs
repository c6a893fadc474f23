//! How many errors there are of which size.

use maud::{Markup, html};

use super::{GRID, OWN, line, number, short, svg, text};
use crate::report::errors::{Errors, upper};

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 34.0;
const BOTTOM: f64 = 126.0;
const TOP: f64 = 22.0;

/// A bar for each size; its height is the logarithm of the count, so that a single error shows.
pub fn draw(title: &str, errors: &Errors) -> Markup {
    // Up to one ulp all sizes are shown, so that drawings can be set beside each other.
    let bars = errors.histogram.len().max(17);
    let decades = (errors.histogram.iter().copied().max().unwrap_or(0).max(9) as f64 + 1.0).log10().ceil();
    let step = (WIDTH - LEFT - 6.0) / bars as f64;
    let x = |bucket: f64| LEFT + bucket * step;
    let y = |count: f64| BOTTOM - (BOTTOM - TOP) * (count + 1.0).log10() / decades;
    let shown = |bucket: usize| [0, 4, 8, 12].contains(&bucket) || bucket >= 16;
    let about = format!("{title}: {} errors, the largest {:.4} ulp", errors.count(), errors.worst);
    let drawing = html! {
        (text(LEFT, 12.0, "start", &about))
        @for decade in (0..=decades as i32).map(|decade| 10f64.powi(decade)) {
            (line([LEFT, y(decade - 1.0)], [WIDTH - 6.0, y(decade - 1.0)], GRID))
            @if decade > 1.0 { (text(LEFT - 4.0, y(decade - 1.0) + 4.0, "end", &short(decade))) }
        }
        @for (bucket, &count) in errors.histogram.iter().enumerate().filter(|(_, count)| **count > 0) {
            rect x=(number(x(bucket as f64) + 0.5)) y=(number(y(count as f64))) width=(number(step - 1.0))
                height=(number(BOTTOM - y(count as f64))) fill=(OWN) {
                title { (count) " errors " (range(bucket)) }
            }
        }
        @for bucket in (0..bars).filter(|&bucket| shown(bucket)) {
            @let label = if upper(bucket).is_finite() { number(upper(bucket)) } else { ">".into() };
            (text(x(bucket as f64 + 0.5), BOTTOM + 14.0, "middle", &label))
        }
    };
    svg(WIDTH, HEIGHT, &about, drawing)
}

fn range(bucket: usize) -> String {
    match bucket {
        0 => "of 0".into(),
        _ if upper(bucket).is_finite() => format!("beyond {} up to {} ulp", upper(bucket - 1), upper(bucket)),
        _ => format!("beyond {} ulp", upper(bucket - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_that_occurs_has_a_bar() {
        let mut errors = Errors::default();
        [0.0, 0.3, 0.3, 1.5, 100.0].into_iter().for_each(|ulps| errors.add(ulps, String::new));
        let drawn = draw("rmsnorm <y>", &errors).into_string();
        assert_eq!(drawn.matches("<rect").count(), 4, "{drawn}");
        for part in
            ["1 errors of 0<", "2 errors beyond 0.25 up to 0.3125 ulp", "1 errors beyond 64 ulp", "rmsnorm &lt;y&gt;"]
        {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
    }
}
