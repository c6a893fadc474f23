//! The report as one page, for people: nothing of it comes from elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::errors::Errors;
use super::plots::{histogram, latency, rates};
use super::results::{Report, TaskResult};
use super::tally::{ALL, HOST, Outcome, ROUTED, Tally};
use crate::bench::record::Record;

const STYLE: &str = include_str!("page.css");
/// Most failures that are shown in full.
const FAILURES: usize = 100;

/// The page of a run, with the figures of benchmarks.
pub fn page(report: &Report, benches: &[Record]) -> String {
    let total = report.total();
    let ops = report.by_op();
    let sections = html! {
        (summary(report, &total))
        (failures(report))
        h2 { "Programs" }
        p.soft {
            "A row is a compiled program, forced; " code { (ROUTED) } " stands for plans as users make them, whose routes choose, and "
            code { (HOST) } " for the host path. A column is a check, a number its judgements."
        }
        (key())
        @for (op, programs) in ops.iter().filter(|(op, _)| **op != ALL).chain(ops.get_key_value(ALL)) {
            h3 { (title(op)) }
            (matrix("program", programs.0.iter().map(|(program, tally)| (program.as_str(), tally))))
        }
        h2 { "Groups of tasks" }
        p.soft { "The same judgements by what is tried." }
        @let groups = report.by_group();
        (matrix("group", groups.iter().map(|(group, tally)| (*group, tally))))
        (errors(&ops.iter().map(|(op, programs)| (*op, programs.total())).collect()))
        @for record in benches { (bench(record)) }
        (left_out(report))
        (longest(report))
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "cake-verify: " (verdict(report, &total).1) ", " (report.facts.device) }
                style { (PreEscaped(STYLE)) }
            }
            body { (sections) }
        }
    };
    page.into_string()
}

/// Class and word.
fn verdict(report: &Report, total: &Tally) -> (&'static str, &'static str) {
    match (total.failures(), report.left.len()) {
        (0, 0) => ("good", "passed"),
        (0, _) => ("open", "not finished"),
        _ => ("bad", "FAILED"),
    }
}

fn title(op: &str) -> &str {
    if op == ALL { "several operators at once" } else { op }
}

fn summary(report: &Report, total: &Tally) -> Markup {
    let facts = &report.facts;
    let (class, word) = verdict(report, total);
    let programs: BTreeSet<&String> = report.tasks.values().flat_map(|task| task.programs.0.keys()).collect();
    let skipped = total.0.values().map(|outcome| outcome.skipped.len()).sum::<usize>();
    let counts = [
        ("judgements", grouped(total.cases())),
        ("failures", grouped(total.failures())),
        ("programs", programs.len().to_string()),
        ("tasks ended", report.tasks.len().to_string()),
        ("left out", (skipped + report.left.len() + report.need_device.len()).to_string()),
        ("wall time", seconds(report.seconds)),
    ];
    html! {
        h1 { "cake-verify run" span.verdict.(class) { (word) } }
        p.soft { "Every program of Cake against exact answers and the canonical bits." }
        ul.counts { @for (what, count) in counts { li { b { (count) } (what) } } }
        dl {
            dt { "judged" } dd { (facts.device) }
            @if let Some(driver) = facts.driver { dt { "driver" } dd { "for CUDA " (driver / 1000) "." (driver % 1000 / 10) } }
            dt { "profile" } dd { (facts.profile.word()) }
            dt { "seed" } dd.mono { (format!("{:#x}", facts.seed)) }
            dt { "begun" } dd { (report.begun) }
            dt { "version" } dd { "cake-verify " (facts.version) ", program SHA-256 " code { (facts.executable) } }
            @for image in &facts.images { dt { "image " (image.op) } dd { "SHA-256 " code { (image.sha256) } } }
            @if facts.images.is_empty() { dt { "images" } dd { "none: the host path runs no compiled kernel" } }
        }
    }
}

fn failures(report: &Report) -> Markup {
    let of_task = |(name, task): (&String, &TaskResult)| -> Vec<[String; 3]> {
        let cells = task.programs.0.iter().flat_map(|(program, tally)| tally.0.iter().map(move |cell| (program, cell)));
        let messages = cells.flat_map(|(program, (check, outcome))| {
            let line = |message: &String| [format!("{check} of {program}"), format!("task {name}"), message.clone()];
            outcome.messages.iter().map(line).collect::<Vec<_>>()
        });
        messages.collect()
    };
    let messages: Vec<[String; 3]> = report.tasks.iter().flat_map(of_task).collect();
    let unseen = report.total().failures().saturating_sub(messages.len().min(FAILURES) as u64);
    html! {
        @if !messages.is_empty() {
            h2 { "Failures" }
            ul.plain {
                @for [what, task, message] in messages.iter().take(FAILURES) {
                    li.failure { b { (what) } ", " (task) br; code { (message) } }
                }
            }
            @if unseen > 0 { p { "And " (unseen) " more." } }
        }
    }
}

fn key() -> Markup {
    html! {
        p.key {
            span.pass { "all right" } span.fail { "bad, of how many" } span.skip { "left out" } span.none { "not judged" }
        }
    }
}

/// A table of what each row of results says in each check that some row has.
fn matrix<'t>(what: &str, rows: impl Iterator<Item = (&'t str, &'t Tally)> + Clone) -> Markup {
    let checks: BTreeSet<&String> = rows.clone().flat_map(|(_, tally)| tally.0.keys()).collect();
    html! {
        table {
            thead { tr { th { (what) } @for check in &checks { th scope="col" { (check) } } } }
            tbody {
                @for (name, tally) in rows {
                    tr { th.mono scope="row" { (name) } @for check in &checks { (cell(tally.0.get(*check))) } }
                }
            }
        }
    }
}

fn cell(outcome: Option<&Outcome>) -> Markup {
    let nothing = Outcome::default();
    let Outcome { cases, failures, skipped, .. } = outcome.unwrap_or(&nothing);
    match (failures, cases, skipped.len()) {
        (0, 0, 0) => html! { td.none { "–" } },
        (0, 0, left) => html! { td.skip { (left) " left out" } },
        (0, cases, _) => html! { td.pass { (grouped(*cases)) } },
        (failures, cases, _) => html! { td.fail { (grouped(*failures)) " of " (grouped(*cases)) } },
    }
}

fn errors(ops: &BTreeMap<&str, Tally>) -> Markup {
    let outputs = ops.iter().flat_map(|(op, tally)| {
        let errors = tally.0.values().flat_map(|outcome| &outcome.errors);
        errors.map(move |(output, errors)| (*op, output, errors))
    });
    let outputs: Vec<(&str, &String, &Errors)> = outputs.collect();
    html! {
        @if !outputs.is_empty() {
            h2 { "Errors" }
            p.soft {
                "How far elements are from their exact values, in ulps of the exact value, as MPFR found. A correctly rounded element is off by at most 0.5. "
                "Bars are sixteenths of an ulp up to 1, then doubling; heights are logarithms of counts, so that a single error shows. "
                "Elements near which something may overflow or vanish are judged, but have no place here."
            }
            div.drawings { @for (op, output, errors) in &outputs { (histogram::draw(&format!("{op} {output}"), errors)) } }
            h3 { "The largest" }
            ul.plain { @for (op, output, errors) in &outputs { li { b { (op) " " (output) } ": " code { (errors.at) } } } }
        }
    }
}

fn bench(record: &Record) -> Markup {
    html! {
        h2 { "Speed" }
        dl {
            dt { "measured" } dd { (record.date) ", " (record.build) " build, " (record.rounds) " rounds of " (record.samples) " samples" }
            dt { "board" } dd { (record.device) }
            @for image in &record.images { dt { "image " (image.op) } dd { "SHA-256 " code { (image.sha256) } } }
        }
        @for wrong in &record.wrong { p { b { "Wrong, not timed: " } code { (wrong) } } }
        @if let Some(drawing) = rates::draw(record) {
            h3 { "Rates" }
            p.soft { "GB/s over the number of rows, one panel for each kind of row and width. A point tells its figures when the pointer rests on it." }
            (drawing)
        }
        @if let Some(drawing) = latency::of_rows(record) {
            h3 { "Short calls" }
            p.soft { "Rows whose median is at most 15 us, where starting and ending weigh more than bytes. The upright stroke is the reference's median." }
            (drawing)
        }
        @if let Some(drawing) = latency::of_host(record) { h3 { "Calls on the host" } (drawing) }
    }
}

fn left_out(report: &Report) -> Markup {
    let mut lines: Vec<(String, &str)> = Vec::new();
    for (name, task) in &report.tasks {
        let skipped = task.programs.0.values().flat_map(|tally| tally.0.values()).flat_map(|outcome| &outcome.skipped);
        lines.extend(skipped.map(|reason| (name.clone(), reason.as_str())));
    }
    let groups = [(&report.left, "Asked for, not ended"), (&report.need_device, "Need a GPU")];
    html! {
        h2 { "Left out" }
        @if lines.is_empty() && groups.iter().all(|(names, _)| names.is_empty()) { p { "Nothing." } }
        ul.plain { @for (task, reason) in &lines { li { code { (task) } ": " (reason) } } }
        @for (names, reason) in groups {
            @if !names.is_empty() {
                h3 { (reason) ": " (names.len()) " tasks" }
                p.mono { (names.join(", ")) }
            }
        }
    }
}

fn longest(report: &Report) -> Markup {
    let longest = report.longest(12);
    let most = longest.first().map_or(1.0, |task| task.1.max(1e-9));
    html! {
        h2 { "Longest tasks" }
        p.soft { "Tasks run side by side: together they take longer than the run." }
        div.bars {
            @for (name, time) in longest {
                span.mono { (name) } span { (seconds(time)) }
                div.bar style={ "width:" (format!("{:.1}", 100.0 * time / most)) "%" } {}
            }
        }
    }
}

/// With a thin space between thousands.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join("\u{202f}")
}

fn seconds(seconds: f64) -> String {
    if seconds < 100.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} min {:.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::tests::record;
    use crate::report::results::tests::report;

    #[test]
    fn a_failure_is_shown_where_it_is_and_what_it_says() {
        let page = page(&report(), &[]);
        assert!(page.contains("verdict bad") && page.contains(">FAILED<"), "{page}");
        // Names and messages stand as text, not as tags.
        assert!(page.contains("[T3 H128]: 0x0 &amp; &lt;0x1&gt;") && page.contains("cuda:0 &lt;board&gt;"), "{page}");
        assert!(!page.contains("<board>") && !page.contains("<0x1>"), "{page}");
        assert!(page.contains(r#"<td class="fail">1 of 1</td>"#), "{page}");
        assert!(page.contains(r#"<td class="skip">1 left out</td>"#), "{page}");
        assert!(page.contains("needs 80 GiB"), "{page}");
    }

    #[test]
    fn the_verdict_waits_for_the_last_task() {
        let mut report = report();
        report.tasks.remove("rows/h128");
        assert_eq!(verdict(&report, &report.total()).1, "not finished");
        report.left.clear();
        assert_eq!(verdict(&report, &report.total()).1, "passed");
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let page = page(&report(), &[record()]);
        assert!(["<script", "<link", "@import", "url(", "src="].iter().all(|part| !page.contains(part)), "{page}");
        let links = page.matches("http").count();
        assert_eq!(links, page.matches("http://www.w3.org/2000/svg").count());
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
    }

    #[test]
    fn times_are_in_words() {
        assert_eq!([0.04, 12.34, 238.0].map(seconds), ["0.0 s", "12.3 s", "3 min 58 s"]);
    }
}
