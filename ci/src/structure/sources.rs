//! What may stand in which file.

use super::{Breach, Source};

/// Longer files hold more than one idea.
const MOST_LINES: usize = 900;

/// Every breach in `files`; `ops` are the operators, as kernel names spell them.
pub(super) fn check(files: &[Source], ops: &[String]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for file in files {
        breaches.extend(length(file));
        breaches.extend(inline_ptx(file));
        breaches.extend(fenced_unsafe(file));
        breaches.extend(core_names_no_op(file, ops));
    }
    breaches
}

fn length(file: &Source) -> Vec<Breach> {
    let lines = file.text.lines().count();
    let rule = || Breach::new(&file.path, format!("has {lines} lines, expected at most {MOST_LINES}"));
    (lines > MOST_LINES).then(rule).into_iter().collect()
}

fn inline_ptx(file: &Source) -> Vec<Breach> {
    let cuda = file.path.ends_with(".cuh") || file.path.ends_with(".cu");
    if !cuda || file.path == "crates/cake-kernels/cuda/cake/ptx.cuh" {
        return Vec::new();
    }
    let asm = |line: &str| ["asm", "__asm__", "__asm"].iter().any(|word| has_word(&code(line, Strings::Blank), word));
    blame(file, asm, "inline PTX stands only in crates/cake-kernels/cuda/cake/ptx.cuh")
}

fn fenced_unsafe(file: &Source) -> Vec<Breach> {
    if !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let allows = |line: &str| code(line, Strings::Blank).contains("allow(unsafe_code)");
    let lines: Vec<&str> = file.text.lines().collect();
    let mut breaches = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| allows(line)) {
        let reason = line.contains("//") || (index > 0 && lines[index - 1].trim_start().starts_with("//"));
        if !reason {
            let at = format!("{}:{}", file.path, index + 1);
            breaches.push(Breach::new(at, "allow(unsafe_code) needs a comment with the reason, there or above"));
        }
    }
    if !lines.iter().any(|line| allows(line)) {
        let has_unsafe = |line: &str| has_word(&code(line, Strings::Blank), "unsafe");
        breaches.extend(blame(
            file,
            has_unsafe,
            "unsafe code stands only in files that say allow(unsafe_code) and why",
        ));
    }
    breaches
}

/// Comments may: they explain by example.
fn core_names_no_op(file: &Source, ops: &[String]) -> Vec<Breach> {
    if !file.path.starts_with("crates/cake-core/src/") {
        return Vec::new();
    }
    let squash = |text: &str| text.to_lowercase().replace('_', "");
    let names = |line: &str| ops.iter().any(|op| squash(&code(line, Strings::Keep)).contains(&squash(op)));
    blame(file, names, "cake-core names no operator")
}

/// The first line that `wrong` holds for; one is enough to see what the file does.
fn blame(file: &Source, wrong: impl Fn(&str) -> bool, rule: &str) -> Vec<Breach> {
    let line = file.text.lines().position(wrong);
    line.map(|line| Breach::new(format!("{}:{}", file.path, line + 1), rule)).into_iter().collect()
}

/// What happens to the text between quotes.
#[derive(PartialEq)]
enum Strings {
    Keep,
    Blank,
}

/// A line without its `//` comment. Strings end on the line where they begin: good enough for what is asked here.
fn code(line: &str, strings: Strings) -> String {
    let mut kept = String::new();
    let mut inside = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if inside => drop(characters.next()),
            '\'' if !inside && characters.peek() == Some(&'"') => drop(characters.next()),
            '"' => inside = !inside,
            '/' if !inside && characters.peek() == Some(&'/') => break,
            _ if inside && strings == Strings::Blank => {}
            _ => kept.push(character),
        }
    }
    kept
}

/// Whether `word` stands in `text` on its own, not inside a longer identifier.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !part(c)).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, text: &str) -> Vec<String> {
        let file = Source { path: path.into(), text: text.into() };
        check(&[file], &["rmsnorm".into(), "silu_gate".into()]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_long_file_is_a_breach() {
        assert_eq!(breaches("ci/src/a.rs", &"\n".repeat(900)), [""; 0]);
        assert_eq!(breaches("ci/src/a.rs", &"\n".repeat(901)), ["ci/src/a.rs: has 901 lines, expected at most 900"]);
    }

    #[test]
    fn inline_ptx_has_one_home() {
        let text = "// asm is fine in a comment\nasm volatile(\"membar.gl;\");";
        assert_eq!(breaches("crates/cake-kernels/cuda/cake/ptx.cuh", text), [""; 0]);
        let found = breaches("crates/cake-kernels/cuda/rmsnorm/fwd_row.cuh", text);
        assert!(
            found.len() == 1 && found[0].starts_with("crates/cake-kernels/cuda/rmsnorm/fwd_row.cuh:2:"),
            "{found:?}"
        );
        assert_eq!(breaches("crates/cake-kernels/cuda/rmsnorm/fwd_row.cuh", "int asmx; // asm"), [""; 0]);
    }

    #[test]
    fn unsafe_code_is_fenced() {
        assert_eq!(breaches("crates/cake-core/src/a.rs", "#![deny(unsafe_code)]\n// unsafe\n\"unsafe\";"), [""; 0]);
        let found = breaches("crates/cake-core/src/a.rs", "fn a() {\n    unsafe { b() }\n}");
        assert!(found.len() == 1 && found[0].starts_with("crates/cake-core/src/a.rs:2:"), "{found:?}");
    }

    #[test]
    fn a_fence_says_why() {
        let fence = "#![allow(unsafe_code)]";
        assert_eq!(breaches("crates/cake-core/src/a.rs", &format!("{fence} // a C library\nunsafe {{}}")), [""; 0]);
        assert_eq!(breaches("crates/cake-core/src/a.rs", &format!("// A C library.\n{fence}\nunsafe {{}}")), [""; 0]);
        let found = breaches("crates/cake-core/src/a.rs", &format!("\n{fence}\nunsafe {{}}"));
        assert!(found.len() == 1 && found[0].starts_with("crates/cake-core/src/a.rs:2:"), "{found:?}");
    }

    #[test]
    fn core_names_no_operator() {
        assert_eq!(breaches("crates/cake-core/src/a.rs", "/// `rmsnorm`, for example.\nlet rms = 1;"), [""; 0]);
        assert_eq!(breaches("crates/cake-rmsnorm/src/a.rs", "use cake_rmsnorm::Forward;"), [""; 0]);
        for text in ["struct SiluGate;", "const OP: &str = \"rmsnorm\";", "if op == \"silu_gate\" {}"] {
            assert_eq!(breaches("crates/cake-core/src/a.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn comments_and_strings_are_told_apart() {
        assert_eq!(code("a(\"http://b\") // c", Strings::Keep), "a(http://b) ");
        assert_eq!(code("a('\"', \"\\\"b\", c) // d", Strings::Blank), "a(', , c) ");
    }
}
