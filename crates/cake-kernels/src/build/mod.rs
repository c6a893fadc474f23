//! Compiles the images: the machinery behind `cargo ci images`.
//!
//! One translation unit for each operator and architecture is rendered in memory (`unit`) from the kernel list,
//! compiled by NVRTC (`nvrtc`), refused if a kernel spills (`report`), and compressed. Equal sources give equal bytes,
//! on any machine.

mod lock;
mod nvrtc;
mod report;
pub(crate) mod sources;
mod unit;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use cake_core::{Arch, Kernel};

use crate::names::{OPS, image_file, sibling};
use nvrtc::Nvrtc;
use report::Resources;

/// The strongest level that still takes well under a second for an image.
const ZSTD_LEVEL: i32 = 19;

/// One compiled image.
struct Built {
    op: &'static str,
    arch: Arch,
    unit: String,
    cubin: Vec<u8>,
    compressed: Vec<u8>,
    resources: BTreeMap<String, Resources>,
    seconds: f64,
}

/// Compiles every image of the package at `root`. Writes them and `images.lock`, or with `check` only compares, and fails
/// naming what differs.
pub fn run(root: &Path, check: bool) -> Result<()> {
    let mut built = compile_all(root)?;
    built.sort_by_key(|built| (built.op, built.arch));
    let compressed = in_parallel(&built, |one| {
        let of = sibling(one.arch.target());
        let sibling = built.iter().find(|other| other.op == one.op && of == Some(other.arch.target()));
        compress(&one.cubin, sibling.map_or(&[], |sibling| &sibling.cubin))
    });
    for (built, compressed) in built.iter_mut().zip(compressed) {
        built.compressed = compressed?;
    }
    print_table(&built);
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for built in &built {
        files.insert(format!("images/{}", image_file(built.op, built.arch.target())), built.compressed.clone());
    }
    files.insert("images.lock".into(), lock::render(&sources::digest(root)?, &built).into_bytes());
    fs::create_dir_all(root.join("images"))?;
    let present = sources::below(root, &root.join("images"))?.into_iter().map(|(name, _)| name);
    let extra: Vec<String> = present.filter(|name| !files.contains_key(name)).collect();
    let differing = files.iter().filter(|(name, bytes)| fs::read(root.join(name)).ok().as_ref() != Some(*bytes));

    if check {
        let wrong: Vec<String> = differing.map(|(name, _)| name.clone()).chain(extra).collect();
        ensure!(wrong.is_empty(), "{} not what the sources compile to: run `cargo ci images`", wrong.join(", "));
        println!("images/ and images.lock are what the sources compile to");
        return Ok(());
    }
    for (name, bytes) in differing {
        fs::write(root.join(name), bytes).with_context(|| format!("cannot write {name}"))?;
        println!("wrote {name}");
    }
    for name in extra {
        fs::remove_file(root.join(&name)).with_context(|| format!("cannot remove {name}"))?;
        println!("removed {name}");
    }
    Ok(())
}

/// The translation unit of some kernels: their schedules' headers, and a wrapper for each kernel.
pub fn unit(kernels: impl IntoIterator<Item = &'static Kernel>, arch: Arch) -> String {
    unit::render(kernels, arch)
}

/// Compiles every (operator, architecture) on all cores; NVRTC takes no lock, so threads do.
fn compile_all(root: &Path) -> Result<Vec<Built>> {
    let nvrtc = Nvrtc::load()?;
    let mut headers = Vec::new();
    let cuda = root.join("cuda");
    for (name, content) in sources::below(&cuda, &cuda)? {
        let content = String::from_utf8(content).with_context(|| format!("cuda/{name} is not text"))?;
        headers.push((name, content));
    }
    let jobs: Vec<(&'static str, Arch)> = OPS.iter().rev().flat_map(|op| Arch::ALL.map(|arch| (*op, arch))).collect();
    let (built, failed): (Vec<_>, Vec<_>) = in_parallel(&jobs, |(op, arch)| {
        let result = compile(&nvrtc, &headers, op, *arch);
        if let Ok(built) = &result {
            println!("{op} {arch}: {} kernels in {:.1} s", built.resources.len(), built.seconds);
        }
        result
    })
    .into_iter()
    .partition(Result::is_ok);
    let failed: Vec<String> = failed.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    if !failed.is_empty() {
        bail!("{} of {} images failed\n{}", failed.len(), jobs.len(), failed.join("\n"));
    }
    built.into_iter().collect()
}

/// The results of all jobs, in their order.
fn in_parallel<Job: Sync, R: Send>(jobs: &[Job], work: impl Fn(&Job) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(i) else { return };
                    let result = work(job);
                    done.lock().expect("no thread panics with the lock").push((i, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics with the lock");
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Compresses a cubin against another one, which may be empty.
fn compress(cubin: &[u8], sibling: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::with_ref_prefix(Vec::new(), ZSTD_LEVEL, sibling)?;
    if !sibling.is_empty() {
        // The window has to reach from the end of one to the beginning of the other.
        encoder.window_log((cubin.len() + sibling.len()).next_power_of_two().ilog2())?;
        encoder.long_distance_matching(true)?;
    }
    encoder.write_all(cubin)?;
    Ok(encoder.finish()?)
}

fn compile(nvrtc: &Nvrtc, headers: &[(String, String)], op: &'static str, arch: Arch) -> Result<Built> {
    let start = Instant::now();
    let kernels: Vec<&'static Kernel> = crate::kernels(op).into_iter().filter(|kernel| kernel.runs_on(arch)).collect();
    let unit = unit::render(kernels.iter().copied(), arch);
    let mut options = vec![format!("--gpu-architecture={}", arch.target())];
    options.extend(unit::OPTIONS.iter().map(ToString::to_string));
    let context = || format!("{op} for {arch}");
    let compiled = nvrtc.compile(&format!("{op}.cu"), &unit, headers, &options).with_context(context)?;
    let spills = if arch == Arch::Sm90 { 0 } else { report::UNTUNED_SPILLS };
    let resources = report::resources(&compiled.log, &compiled.ptx, spills).with_context(context)?;
    for kernel in &kernels {
        ensure!(resources.contains_key(&kernel.to_string()), "{op} for {arch}: {kernel} is not in ptxas' report");
    }
    ensure!(resources.len() == kernels.len(), "{op} for {arch}: ptxas reports {} kernels", resources.len());
    let seconds = start.elapsed().as_secs_f64();
    let unit = format!("{}\n{unit}", options.join(" "));
    Ok(Built { op, arch, unit, cubin: compiled.cubin, compressed: Vec::new(), resources, seconds })
}

fn print_table(built: &[Built]) {
    println!(
        "{:<10} {:<8} {:>7} {:>9} {:>10} {:>7} {:>9}",
        "op", "arch", "kernels", "raw", "compressed", "s", "max regs"
    );
    for Built { op, arch, cubin, compressed, resources, seconds, .. } in built {
        let registers = resources.values().map(|resources| resources.registers).max().unwrap_or(0);
        println!(
            "{op:<10} {:<8} {:>7} {:>9} {:>10} {seconds:>7.1} {registers:>9}",
            arch.target(),
            resources.len(),
            cubin.len(),
            compressed.len()
        );
    }
    let raw: usize = built.iter().map(|built| built.cubin.len()).sum();
    let compressed: usize = built.iter().map(|built| built.compressed.len()).sum();
    println!("{:<10} {:<8} {:>7} {raw:>9} {compressed:>10}", "all", "", "");
}
