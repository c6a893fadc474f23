//! A record as CSV.

use std::io::{self, Write};

use super::record::{HostCost, Measured, Record};
use super::times::Summary;

impl Record {
    /// One line for each measurement and host cost; the facts stand before them, after `#`.
    pub fn write_csv(&self, to: &mut impl Write) -> io::Result<()> {
        writeln!(to, "# cake {} {}, {}, seed {:#x}", self.version, self.build, self.date, self.seed)?;
        writeln!(to, "# {}", self.device)?;
        for image in &self.images {
            writeln!(to, "# image {} sha256 {}", image.op, image.sha256)?;
        }
        writeln!(to, "# {} rounds of {} samples, flush {} bytes", self.rounds, self.samples, self.flush_bytes)?;
        for wrong in &self.wrong {
            writeln!(to, "# wrong: {wrong}")?;
        }
        let figures = Summary::NAMES.map(column).join(",");
        writeln!(to, "row,width,rows,engine,program,ahead,bytes,gb_per_s,percent_of_reference,{figures},why")?;
        let lines = self.measurements.iter().map(Measured::csv).chain(self.host.iter().map(HostCost::csv));
        for ((head, why), ns) in lines {
            let figures = ns.figures().map(|figure| figure.to_string()).join(",");
            writeln!(to, "{head},{figures},\"{why}\"")?;
        }
        Ok(())
    }
}

/// A count has no unit, everything else is in nanoseconds.
fn column(figure: &str) -> String {
    if figure == "samples" { figure.into() } else { format!("{figure}_ns") }
}

impl Measured {
    fn csv(&self) -> ((String, &str), &Summary) {
        let Measured { row, width, rows, engine, ahead, bytes, .. } = self;
        let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let program = self.program.as_deref().unwrap_or_default();
        let (rate, percent) = (number(self.gb_per_s), number(self.percent_of_reference));
        let head = format!("{row},{width},{rows},{engine},{program},{ahead},{bytes},{rate},{percent}");
        ((head, &self.why), &self.ns)
    }
}

impl HostCost {
    fn csv(&self) -> ((String, &str), &Summary) {
        ((format!("host/{},,,host,,,,,", self.call), ""), &self.ns)
    }
}

#[cfg(test)]
mod tests {
    use crate::bench::record::tests::record;

    #[test]
    fn every_csv_line_has_the_columns_of_the_header() {
        let mut text = Vec::new();
        record().write_csv(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), 4, "{text}");
        // A comma within quotes separates nothing.
        let columns = |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>();
        assert!(lines.iter().all(|line| columns(line) == columns(lines[0])), "{text}");
        assert!(lines[0].contains(",p50_ns,") && lines[1].contains(",1000,"), "{text}");
    }
}
