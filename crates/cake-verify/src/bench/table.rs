//! Figures as text: columns that stand below each other.

use super::record::{HostCost, Measured};

/// Head of the table of rows.
pub fn header() -> String {
    let (row, engine) = ("row", "engine");
    format!(
        "{row:<NAME$} {engine:<8} {:>9} {:>9} {:>9} {:>7} {:>7}  program\n",
        "median us", "p10", "p90", "GB/s", "% ref"
    )
}

/// A line of it.
pub fn line(measured: &Measured) -> String {
    let Measured { row, engine, ns, .. } = measured;
    let [median, p10, p90] = [ns.p50, ns.p10, ns.p90].map(|ns| ns as f64 / 1e3);
    let (rate, percent) = (number(measured.gb_per_s, 0), number(measured.percent_of_reference, 1));
    let program = match (&measured.program, measured.ahead) {
        (Some(program), 0) => program.clone(),
        (Some(program), ahead) => format!("{program}, {ahead} rows ahead"),
        (None, _) => String::new(),
    };
    let line =
        format!("{row:<NAME$} {engine:<8} {median:>9.2} {p10:>9.2} {p90:>9.2} {rate:>7} {percent:>7}  {program}");
    format!("{}\n", line.trim_end())
}

/// Head of the table of host costs.
pub fn host_header() -> String {
    let call = "call";
    format!("{call:<CALL$} {:>9} {:>8} {:>8} {:>8} {:>9}\n", "median ns", "p10", "p90", "p99", "mean")
}

/// A line of it.
pub fn host_line(cost: &HostCost) -> String {
    let HostCost { call, ns } = cost;
    format!("{call:<CALL$} {:>9} {:>8} {:>8} {:>8} {:>9.0}\n", ns.p50, ns.p10, ns.p90, ns.p99, ns.mean)
}

/// Room for the longest name of a row and of a host call.
const NAME: usize = 26;
const CALL: usize = 34;

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::Engine;
    use crate::bench::record::tests::{measured, summary};
    use crate::bench::{host_cost, rows};

    #[test]
    fn columns_stand_below_each_other() {
        let lines = [
            header(),
            line(&measured("rms/H1/T1", Engine::Routed, 1_000)),
            line(&measured("rms+res/H16384/T16384", Engine::Routed, 743_120)),
        ];
        // Each column is right-aligned: text ends where that of the head does, and a space follows.
        for head in ["median us", "p10", "p90", "GB/s", "% ref"] {
            let end = lines[0].find(head).unwrap() + head.len();
            for line in &lines[1..] {
                assert!(line.as_bytes()[end - 1].is_ascii_digit() && line.as_bytes()[end] == b' ', "{head}: {line}");
            }
        }
        let column = lines[0].find("program").unwrap();
        assert!(lines[1..].iter().all(|line| line[column..].starts_with("rmsnorm_fwd")), "{lines:?}");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let unknown = Measured { gb_per_s: None, percent_of_reference: None, ..measured("a", Engine::Empty, 2_300) };
        assert!(line(&unknown).contains(" 2.30 ") && line(&unknown).ends_with("-       -\n"), "{}", line(&unknown));
    }

    #[test]
    fn every_name_has_room() {
        assert!(rows::all().iter().all(|row| row.to_string().len() <= NAME));
        assert!(host_cost::names().iter().all(|name| name.len() <= CALL));
        let cost = HostCost { call: "a".into(), ns: summary(1234) };
        assert_eq!(host_line(&cost).find("1234").unwrap() + 4, host_header().find("ns").unwrap() + 2);
    }
}
