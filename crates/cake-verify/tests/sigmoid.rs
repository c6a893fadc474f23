//! The canonical sigmoid against MPFR, at every BF16 number.

use cake_silu_gate::Activation;
use cake_silu_gate::gate::{sigmoid, sigmoid_by};
use cake_verify::bounds::gate::SATURATED;
use cake_verify::reference::gate::{Form, Gate};
use cake_verify::reference::number::{Format, ulps};
use half::bf16;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

fn every_number() -> impl ParallelIterator<Item = bf16> {
    (0..=u16::MAX).into_par_iter().map(bf16::from_bits)
}

/// The largest of some errors, and where it is.
fn worst(errors: impl ParallelIterator<Item = (f64, bf16)>) -> (f64, bf16) {
    errors.reduce(|| (0.0, bf16::ZERO), |a, b| if b.0 > a.0 || b.0.is_nan() { b } else { a })
}

#[test]
fn is_within_0_8_ulp_of_the_true_one() {
    let form = Form { sigmoid: true, first: false };
    let error = |z: bf16| (ulps(sigmoid(z).into(), &Gate::of(z.to_bits(), form).value, Format::F32), z);
    let (ulps, at) = worst(every_number().map(error));
    println!("worst {ulps} ulp at {at:e}");
    assert!(ulps < 0.7986, "{ulps} ulp at {at:e}");
}

/// The gate is one product more. Below the normal numbers a sigmoid has few bits, and so has its product with a large z.
#[test]
fn a_gate_is_within_1_5_ulp_where_the_sigmoid_is_normal() {
    let form = Form { sigmoid: false, first: false };
    let error = |z: bf16| {
        let s = sigmoid(z);
        let judged = s >= f32::MIN_POSITIVE && z.is_normal();
        let gate = ulps(Activation::Silu.gate(z, s).into(), &Gate::of(z.to_bits(), form).value, Format::F32);
        (if judged { gate } else { 0.0 }, z)
    };
    let (ulps, at) = worst(every_number().map(error));
    println!("worst {ulps} ulp at {at:e}");
    assert!(ulps < 1.42, "{ulps} ulp at {at:e}");
}

/// A GPU starts from a reciprocal that is off by an ulp.
#[test]
fn does_not_depend_on_the_reciprocal() {
    every_number().for_each(|z| {
        let right = sigmoid(z);
        for ulps in -8..=8 {
            let near = |d: f32| f32::from_bits((1.0 / d).to_bits().wrapping_add_signed(ulps));
            let got = sigmoid_by(z, near);
            let same = got.to_bits() == right.to_bits() || got.is_nan() && right.is_nan();
            assert!(same, "{z:e}: {got:e} by a reciprocal that is off by {ulps} ulp, {right:e} by the right one");
        }
    });
}

#[test]
fn is_0_and_1_where_bounds_take_it_to_be() {
    every_number().filter(|z| !z.is_nan()).for_each(|z| {
        let (s, at) = (sigmoid(z), z.to_f32());
        assert!((0.0..=1.0).contains(&s), "{z:e}: {s:e}");
        assert!(at > SATURATED.0 || s == 0.0, "{z:e}: {s:e}");
        assert!(at < SATURATED.1 || s == 1.0, "{z:e}: {s:e}");
    });
    assert!(sigmoid(bf16::NAN).is_nan());
}

/// A change that moves a bit is a defect, however small the error.
#[test]
fn has_the_published_bits() {
    let numbers = (0..=u16::MAX).map(bf16::from_bits).filter(|z| !z.is_nan());
    let digest = Sha256::digest(numbers.flat_map(|z| sigmoid(z).to_le_bytes()).collect::<Vec<u8>>());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(include_str!("../../../docs/silu-gate.md").contains(&digest), "{digest}");
}

#[test]
fn never_falls() {
    let mut numbers: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).filter(|z| !z.is_nan()).collect();
    numbers.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    for pair in numbers.windows(2) {
        assert!(sigmoid(pair[0]) <= sigmoid(pair[1]), "{:e} and {:e}", pair[0], pair[1]);
    }
}
