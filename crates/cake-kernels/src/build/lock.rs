//! Renders `images.lock`: what the images were made from, and what each kernel takes.

use std::collections::BTreeMap;
use std::fmt::Write;

use cake_core::Arch;

use super::nvrtc::VERSION;
use super::sources::sha256;
use super::{Built, Resources};

const HEAD: &str = "\
# What images/ holds. Written by `cargo ci images`; the build stops when the sources have another digest.
# sources: cuda/, the kernel lists and the renderer; units: the rendered translation units and the compiler's options.
";
const IMAGES: &str = "\n# image: operator, target, size in bytes, SHA-256\n";
const KERNELS: &str = "
# kernel: registers of a thread for each target (-: not in that image), then static shared memory of a CTA in bytes, one
# figure if it is the same for all, then, likewise, local memory of a thread if there is any. A kernel that spills, or needs
# local memory for more than the arguments of a printf, is refused.
";

/// The text of the lock.
pub(super) fn render(sources: &str, built: &[Built]) -> String {
    let mut lock = String::from(HEAD);
    let units = sha256(built.iter().map(|built| built.unit.as_str()).collect::<String>());
    writeln!(lock, "nvrtc {VERSION}\nsources {sources}\nunits {units}").expect("a String takes everything");
    lock.push_str(IMAGES);
    for Built { op, arch, compressed, .. } in built {
        let line = format!("image {op:<8} {:<8} {:>7} {}\n", arch.target(), compressed.len(), sha256(compressed));
        lock.push_str(&line);
    }
    lock.push_str(KERNELS);
    let mut kernels: BTreeMap<&str, BTreeMap<Arch, Resources>> = BTreeMap::new();
    for built in built {
        for (name, resources) in &built.resources {
            kernels.entry(name).or_default().insert(built.arch, *resources);
        }
    }
    let longest = kernels.keys().map(|name| name.len()).max().unwrap_or(0);
    let targets: String = Arch::ALL.iter().map(|arch| format!(" {:>7}", arch.target())).collect();
    writeln!(lock, "# {:<longest$}           {targets}", "").expect("a String takes everything");
    for (name, resources) in &kernels {
        writeln!(lock, "{}", line(name, longest, resources)).expect("a String takes everything");
    }
    lock
}

fn line(name: &str, longest: usize, resources: &BTreeMap<Arch, Resources>) -> String {
    let column = |figure: fn(&Resources) -> u32| {
        Arch::ALL.map(|arch| resources.get(&arch).map_or("-".into(), |resources| figure(resources).to_string()))
    };
    let registers: String = column(|resources| resources.registers).iter().map(|text| format!(" {text:>7}")).collect();
    let shared = short(&column(|resources| resources.shared));
    let stack = match short(&column(|resources| resources.stack)) {
        zero if zero == "0" => String::new(),
        stack => format!("  stack {stack}"),
    };
    format!("kernel {name:<longest$}  regs{registers}  smem {shared}{stack}")
}

/// The figures of a column, or the only one that occurs.
fn short(column: &[String]) -> String {
    let mut figures: Vec<&String> = column.iter().filter(|text| *text != "-").collect();
    figures.dedup();
    if figures.len() == 1 { figures[0].clone() } else { column.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(registers: u32, shared: u32) -> Resources {
        Resources { registers, shared, stack: 0 }
    }

    #[test]
    fn a_line_has_a_column_for_each_target() {
        let some = BTreeMap::from([(Arch::Sm90, resources(40, 128)), (Arch::Sm120, resources(255, 128))]);
        assert_eq!(
            line("toy", 4, &some).split_whitespace().collect::<Vec<_>>().join(" "),
            "kernel toy regs - - - 40 - - - 255 smem 128"
        );
    }

    #[test]
    fn shared_memory_that_differs_is_told_for_each_target() {
        let some = BTreeMap::from([(Arch::Sm90, resources(40, 128)), (Arch::Sm120, resources(255, 0))]);
        assert!(line("toy", 4, &some).ends_with("smem - - - 128 - - - 0"));
    }

    #[test]
    fn local_memory_is_told_where_there_is_any() {
        let some = BTreeMap::from([(Arch::Sm90, Resources { stack: 16, ..resources(40, 128) })]);
        assert!(line("toy", 4, &some).ends_with("smem 128  stack 16"));
    }
}
