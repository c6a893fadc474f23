//! The command, as a person runs it: a run that is resumed, and what becomes of its report.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cake_verify::checks::fresh;
use cake_verify::report::Report;

fn verify(arguments: &[&str]) -> Output {
    let executable = fresh::executable(env!("CARGO_BIN_EXE_cake-verify"));
    Command::new(executable).args(arguments).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is text")
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let folder = folder.to_str().expect("a path of text");
    verify(&[&["run", "--report", folder], arguments].concat())
}

#[test]
fn a_run_is_resumed_by_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), &["--filter", "gate/eps"]);
    assert!(first.status.success(), "{first:?}");
    let before = Report::load(folder.path()).unwrap();
    assert_eq!(before.tasks.keys().collect::<Vec<_>>(), ["gate/eps"]);
    assert!(before.left.is_empty() && before.total().cases() > 0);
    let (shown, kept) = (text(&first.stdout), fs::read_to_string(folder.path().join("report.txt")).unwrap());
    assert!(kept.lines().all(|line| shown.lines().any(|other| other == line) || line.starts_with("begun")), "{kept}");

    let second = run(folder.path(), &["--filter", "eps", "--resume"]);
    assert!(second.status.success(), "{second:?}");
    assert!(text(&second.stdout).contains("3 tasks that the report does not hold"), "{second:?}");
    let after = Report::load(folder.path()).unwrap();
    assert_eq!(after.tasks.keys().collect::<Vec<_>>(), ["backward/eps", "eps", "gate/backward/eps", "gate/eps"]);
    assert_eq!(after.tasks["gate/eps"], before.tasks["gate/eps"]);
    assert!(after.seconds > before.seconds && after.begun == before.begun);

    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains(">passed<") && page.contains(&after.facts.executable));

    let third = run(folder.path(), &["--filter", "eps", "--seed", "8", "--resume"]);
    assert_eq!(third.status.code(), Some(2));
    assert!(text(&third.stderr).contains("seed: 0xca4e20240001 there, 0x8 here"), "{third:?}");
    assert_eq!(Report::load(folder.path()).unwrap(), after);
}

#[test]
fn a_run_that_was_stopped_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut running = Command::new(fresh::executable(env!("CARGO_BIN_EXE_cake-verify")))
        .args(["run", "--filter", "eps", "--report", path])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let has_ended = |report: Report| !report.tasks.is_empty();
    while !Report::load(folder.path()).is_ok_and(has_ended) && running.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    running.kill().unwrap();
    running.wait().unwrap();

    let stopped = Report::load(folder.path()).unwrap();
    let mut known: Vec<&String> = stopped.tasks.keys().chain(&stopped.left).collect();
    known.sort();
    let all = ["backward/eps", "eps", "gate/backward/eps", "gate/eps"];
    assert!(!stopped.tasks.is_empty() && known == all, "{stopped:?}");
    assert!(run(folder.path(), &["--filter", "eps", "--resume"]).status.success());
    let resumed = Report::load(folder.path()).unwrap();
    assert!(resumed.left.is_empty() && resumed.tasks.keys().eq(all));
    assert!(stopped.tasks.iter().all(|(name, result)| resumed.tasks[name] == *result));
}

#[test]
fn nothing_is_resumed_where_nothing_is() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["--filter", "eps", "--resume"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("report.json"), "{output:?}");
}

#[test]
fn tasks_are_chosen_by_operator() {
    let names = |arguments: &[&str]| {
        let output = verify(&[&["run", "--list"], arguments].concat());
        let names = text(&output.stdout).lines().filter_map(|line| line.split(' ').next().map(String::from));
        names.collect::<Vec<_>>()
    };
    let (all, norms, gates) = (names(&[]), names(&["--op", "rmsnorm"]), names(&["--op", "silu-gate"]));
    assert!(all.iter().all(|name| norms.contains(name) || gates.contains(name)));
    let both: Vec<_> = norms.iter().filter(|name| gates.contains(name)).map(String::as_str).collect();
    assert_eq!(both, ["arguments/plans", "threads/shared_plans", "threads/first_use", "absence"]);
    assert!(gates.iter().filter(|name| !both.contains(&name.as_str())).all(|name| name.contains("gate")), "{gates:?}");
    assert!(norms.iter().all(|name| !name.contains("gate")), "{norms:?}");
}

#[test]
fn runs_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let [before, now] = ["before", "now"].map(|name| folder.path().join(name));
    assert!(run(&before, &["--filter", "gate/eps"]).status.success());
    fs::create_dir(&now).unwrap();
    let mut report = Report::load(&before).unwrap();
    report.store(&now).unwrap();
    let paths = [&before, &now].map(|path| path.to_str().unwrap());
    let compare = || verify(&["report", "diff", paths[0], paths[1]]);
    let same = compare();
    assert!(same.status.success() && text(&same.stdout) == "both runs found the same\n", "{same:?}");

    report.tasks.get_mut("gate/eps").unwrap().programs.at("host").judge("bits", Some("made up".into()));
    report.store(&now).unwrap();
    let worse = compare();
    assert_eq!(worse.status.code(), Some(1));
    assert!(text(&worse.stdout).contains("WORSE silu_gate host bits: 0 failures before, 1 now"), "{worse:?}");

    let html = verify(&["report", "html", paths[1], "--bench", &record("h200-2026-12-01-gate.csv")]);
    assert!(html.status.success(), "{html:?}");
    let page = fs::read_to_string(now.join("report.html")).unwrap();
    assert!(page.contains(">FAILED<") && page.contains("made up") && page.contains("bwd+gate H128"));
}

#[test]
fn records_are_compared_and_drawn() {
    let own = record("h200-2026-11-30-backward.csv");
    let same = verify(&["report", "diff", &own, &own, "--tolerance", "0"]);
    assert!(same.status.success() && text(&same.stdout).contains("77 rows compared, 0 lost more than 0 %"), "{same:?}");
    // The later program is the faster one: `dw` alone takes a third less.
    let later = record("h200-2026-11-30-backward-alone.csv");
    let lost = verify(&["report", "diff", &later, &own]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(text(&lost.stdout).lines().nth(1).is_some_and(|line| line.starts_with("bwd/dw/H6144/T65536 ")), "{lost:?}");

    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let drawn = verify(&["report", "plot", &own, "--to", plot.to_str().unwrap()]);
    assert!(drawn.status.success(), "{drawn:?}");
    let committed = Path::new(&own).with_extension("svg");
    assert_eq!(fs::read_to_string(plot).unwrap(), fs::read_to_string(committed).unwrap(), "draw it again");
}

/// A record of the docs.
fn record(name: &str) -> String {
    format!("{}/../../docs/benchmarks/{name}", env!("CARGO_MANIFEST_DIR"))
}
