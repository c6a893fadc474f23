use std::collections::{BTreeMap, BTreeSet};

use cake_core::Arch;

use super::*;
use crate::names::TARGETS;

const LOCK: &str = include_str!("../../images.lock");

/// All images together, so that a program that embeds them stays small.
const MOST_BYTES: usize = 6 << 20;

/// The lines of the lock that start with `keyword`, without it.
fn lock(keyword: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = LOCK.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(move |words| words.first() == Some(&keyword)).map(|words| words[1..].to_vec())
}

fn every_image() -> impl Iterator<Item = Image> {
    OPS.iter().flat_map(|op| Arch::ALL.map(|arch| image(op, arch)))
}

#[test]
fn targets_are_those_of_the_architectures() {
    assert_eq!(TARGETS, Arch::ALL.map(Arch::target));
}

#[test]
fn kernel_names_are_unique() {
    let mut names = BTreeSet::new();
    for kernel in OPS.iter().flat_map(|op| kernels(op)) {
        assert!(names.insert(kernel.to_string()), "two kernels are named {kernel}");
    }
}

#[test]
fn kernels_stand_in_the_list_of_their_operator() {
    for op in OPS {
        for kernel in kernels(op) {
            assert_eq!(kernel.op, *op, "{kernel}");
        }
    }
}

#[test]
fn lock_names_exactly_the_listed_kernels() {
    let locked: BTreeSet<String> = lock("kernel").map(|words| words[0].into()).collect();
    let listed: BTreeSet<String> = OPS.iter().flat_map(|op| kernels(op)).map(|kernel| kernel.to_string()).collect();
    assert_eq!(locked, listed);
}

#[test]
fn lock_says_on_which_architectures_a_kernel_runs() {
    let locked: BTreeMap<_, _> = lock("kernel").map(|words| (words[0], words)).collect();
    for kernel in OPS.iter().flat_map(|op| kernels(op)) {
        let words = &locked[kernel.to_string().as_str()];
        assert_eq!(words[1], "regs", "{kernel}");
        for (arch, registers) in Arch::ALL.iter().zip(&words[2..]) {
            assert_eq!(*registers != "-", kernel.runs_on(*arch), "{kernel} on {arch}: {registers} registers");
        }
    }
}

#[test]
fn lock_has_the_digest_of_each_image() {
    use sha2::{Digest, Sha256};
    let locked: BTreeMap<_, _> = lock("image").map(|words| ((words[0], words[1]), (words[2], words[3]))).collect();
    assert_eq!(locked.len(), OPS.len() * Arch::ALL.len());
    for image in every_image() {
        let digest: String = Sha256::digest(image.compressed).iter().map(|byte| format!("{byte:02x}")).collect();
        let (size, locked) = locked[&(image.op, image.arch.target())];
        assert_eq!((size, locked), (image.compressed.len().to_string().as_str(), digest.as_str()), "{image:?}");
    }
}

#[test]
fn images_hold_the_kernels_that_run_on_their_architecture_and_no_others() {
    for image in every_image() {
        let cubin = image.cubin().unwrap();
        for kernel in kernels(image.op) {
            // The name of the section with the kernel's code, as the ELF string table spells it.
            let section = format!("\0.text.{kernel}\0");
            let found = cubin.windows(section.len()).any(|window| window == section.as_bytes());
            assert_eq!(found, kernel.runs_on(image.arch), "{kernel} in the image of {} for {}", image.op, image.arch);
        }
    }
}

#[test]
fn images_are_small() {
    let bytes: usize = every_image().map(|image| image.compressed.len()).sum();
    assert!(bytes < MOST_BYTES, "all images together are {bytes} bytes, expected less than {MOST_BYTES}");
}
