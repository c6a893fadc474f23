//! The fast sums are the plain ones bit by bit, and the order has the properties that `docs/numerics.md` promises.

use cake_core::Element;
use cake_core::sums::{CHAIN, LEAF_ROWS, UNIT, fast, plain, rms, simd};
use half::{bf16, f16};
use proptest::prelude::*;
use std::sync::{Mutex, PoisonError};

#[test]
fn folds_are_plain_bf16() {
    folds_are_plain::<bf16>();
}

#[test]
fn folds_are_plain_f16() {
    folds_are_plain::<f16>();
}

#[test]
fn folds_are_plain_f32() {
    folds_are_plain::<f32>();
}

fn folds_are_plain<E: Element>() {
    for width in (1..=300).chain(WIDE) {
        for kind in KINDS {
            let a = row::<E>(kind, width, 1);
            let b = row::<f32>(kind, width, 2);
            let squares = plain::sum_of_squares(&a);
            let a32: Vec<f32> = a.iter().map(|a| a.to_f32()).collect();
            let product = plain::dot(width, |i| (a32[i], b[i]));
            with_and_without_fma(|fma| {
                let case = format!("{} {kind:?} H={width} fma={fma}", E::DTYPE);
                assert_same(squares, fast::sum_of_squares(&a), &case);
                assert_same(product, fast::dot(&a32, &b), &case);
            });
        }
    }
}

#[test]
fn rms_rows_are_plain() {
    for width in (1..=100).chain(WIDE) {
        for kind in KINDS {
            rms_row_is_plain::<bf16, bf16, bf16>(kind, width, 1e-6);
            rms_row_is_plain::<bf16, f32, bf16>(kind, width, 0.0);
            rms_row_is_plain::<f16, f16, f16>(kind, width, 1e-5);
            rms_row_is_plain::<f32, f32, f32>(kind, width, 1e-5);
        }
    }
}

fn rms_row_is_plain<X: Element, W: Element, Y: Element>(kind: Kind, width: usize, eps: f32) {
    let (x, weight) = (row::<X>(kind, width, 3), row::<W>(Kind::Random, width, 4));
    for (weight, one_plus) in [(None, false), (Some(&*weight), false), (Some(&*weight), true)] {
        let mut expected = vec![Y::from_f32(0.0); width];
        let rstd = plain::rms_row(&x, weight, rms::offset(one_plus), eps, &mut expected);
        with_and_without_fma(|fma| {
            let has_weight = weight.is_some();
            let case = format!("{} {kind:?} H={width} weight={has_weight} one_plus={one_plus} fma={fma}", X::DTYPE);
            let mut y = vec![Y::from_f32(f32::NAN); width];
            assert_same(rstd, fast::rms_row(&x, weight, rms::offset(one_plus), eps, &mut y), &case);
            assert_same_row(&expected, &y, &case);
        });
    }
}

#[test]
fn residual_sums_are_plain() {
    for kind in KINDS {
        residual_sum_is_plain::<bf16>(kind);
        residual_sum_is_plain::<f16>(kind);
        residual_sum_is_plain::<f32>(kind);
    }
}

fn residual_sum_is_plain<X: Element>(kind: Kind) {
    for width in [1, 7, 300, 6144] {
        let (x, residual) = (row::<X>(kind, width, 5), row::<X>(Kind::Random, width, 6));
        let mut expected = x.clone();
        plain::add_row(&x, &residual, &mut expected);
        with_and_without_fma(|fma| {
            let mut h = x.clone();
            fast::add_row(&x, &residual, &mut h);
            assert_same_row(&expected, &h, &format!("{} {kind:?} H={width} fma={fma}", X::DTYPE));
        });
    }
}

#[test]
fn backward_rows_are_plain() {
    for width in (1..=100).chain(WIDE) {
        for kind in KINDS {
            backward_row_is_plain::<bf16, bf16, bf16>(kind, width);
            backward_row_is_plain::<bf16, bf16, f32>(kind, width);
            backward_row_is_plain::<f32, f16, f16>(kind, width);
            backward_row_is_plain::<f32, f32, f32>(kind, width);
        }
    }
}

fn backward_row_is_plain<Y: Element, X: Element, W: Element>(kind: Kind, width: usize) {
    let (dy, x, dh) = (row::<Y>(kind, width, 13), row::<X>(kind, width, 14), row::<X>(kind, width, 15));
    let weight = row::<W>(Kind::Random, width, 16);
    let rstd = rms::rstd(plain::sum_of_squares(&x), width, 1e-6);
    for (weight, one_plus) in [(None, false), (Some(&*weight), false), (Some(&*weight), true)] {
        for dh in [None, Some(&*dh)] {
            let offset = rms::offset(one_plus);
            let mut expected = vec![X::from_f32(0.0); width];
            let c = plain::backward_row(&dy, &x, weight, offset, rstd, dh, &mut expected);
            with_and_without_fma(|fma| {
                let (has_weight, has_dh) = (weight.is_some(), dh.is_some());
                let given = format!("weight={has_weight} one_plus={one_plus} dh={has_dh}");
                let case = format!("{} {} {kind:?} H={width} {given} fma={fma}", Y::DTYPE, X::DTYPE);
                let mut dx = vec![X::from_f32(f32::NAN); width];
                assert_same(c, fast::backward_row(&dy, &x, weight, offset, rstd, dh, &mut dx), &case);
                assert_same_row(&expected, &dx, &case);
            });
        }
    }
}

/// `c` is worked out by hand: the fold of 2 * 1 and 4 * 3 over a width of 2.
#[test]
fn a_backward_row_worked_by_hand() {
    let (dy, x, weight) = ([2.0f32, 2.0], [2.0f32, 6.0], [1.0f32, 2.0]);
    let mut dx = [f32::NAN; 2];
    assert_same(7.0, plain::backward_row(&dy, &x, Some(&weight), -0.0, 0.5, None, &mut dx), "c");
    assert_same_row(&[0.5 * (2.0 - 7.0), 0.5 * (4.0 - 21.0)], &dx, "dx");
    plain::backward_row(&dy, &x, Some(&weight), -0.0, 0.5, Some(&[1.0, -2.0]), &mut dx);
    assert_same_row(&[-1.5, -10.5], &dx, "dx with dh");
    // With an offset the weights are 2 and 3: the fold of 4 * 1 and 6 * 3.
    assert_same(11.0, plain::backward_row(&dy, &x, Some(&weight), 1.0, 0.5, None, &mut dx), "c with an offset");
}

/// Steps that must not be exchanged: `xhat * c` is not rounded, `dh` is added after the multiplication by `rstd`.
#[test]
fn the_steps_of_dx_round_as_specified() {
    let ulp = f32::EPSILON;
    // xhat * c = 1 - ulp^2, which rounds to 1.
    assert_same(ulp * ulp, rms::dx(1.0, 1.0 + ulp, 1.0 - ulp, 1.0, None::<f32>), "fused");
    // 3 * (1 + ulp) rounds up to 3 + 4 ulp before dh is added.
    assert_same(4.0 * ulp, rms::dx(1.0 + ulp, 0.0, 0.0, 3.0, Some(-3.0f32)), "multiplied, then added");
    // 257 is a tie between the BF16 neighbours 256 and 258; a dx rounded first would be 1 each time.
    let residual = |dx: f32| rms::dx(dx, 0.0, 0.0, 1.0, Some(bf16::from_f32(256.0))).to_f32();
    assert_eq!([0.999, 1.0, 1.001].map(residual), [256.0, 256.0, 258.0]);
}

#[test]
fn weight_gradients_accumulate_in_f32_and_round_once() {
    assert_same(1.0 + f32::EPSILON, rms::accumulate(None, 1.0 + f32::EPSILON), "FP32 is stored as it is");
    assert_same(3.5, rms::accumulate(Some(1.5f32), 2.0), "FP32 sum");
    assert_eq!(rms::accumulate(None::<bf16>, 1.0 + 1.0 / 512.0).to_f32(), 1.0);
    // 256 + 1.002 rounds up; the root rounded first is 1, and 257 rounds to even.
    assert_eq!(rms::accumulate(Some(bf16::from_f32(256.0)), 1.002).to_f32(), 258.0);
    assert_eq!(rms::accumulate(Some(f16::MAX), 16.0), f16::INFINITY);
}

#[test]
fn row_trees_are_plain() {
    // 1000 and 4097 rows are split among threads; the widths are one column, a vector's tail, more than one task.
    for rows in (0..=70).chain([127, 128, 129, 1000, 4097]) {
        for kind in KINDS {
            row_tree_is_plain::<bf16>(kind, rows, 3);
        }
        row_tree_is_plain::<f16>(Kind::Random, rows, 1);
        row_tree_is_plain::<f32>(Kind::Random, rows, 37);
    }
    row_tree_is_plain::<bf16>(Kind::Random, 129, 2500);
    row_tree_is_plain::<f32>(Kind::Random, 5, 0);
}

fn row_tree_is_plain<E: Element>(kind: Kind, rows: usize, width: usize) {
    let tall = Tall::<E>::new(kind, rows, width);
    let expected: Vec<f32> = (0..width).map(|j| plain::row_tree(rows, |t| tall.term(t, j))).collect();
    with_and_without_fma(|fma| {
        let case = format!("{} {kind:?} [{rows}, {width}] fma={fma}", E::DTYPE);
        assert_same_row(&expected, &tall.dw(0, rows), &case);
        assert_same_row(&expected, &tall.pushed(0, rows), &format!("{case} row by row"));
    });
}

/// Every prefix of the rows is a tree.
#[test]
fn every_number_of_pushed_rows_is_plain() {
    let tall = Tall::<bf16>::new(Kind::Random, 600, 3);
    let mut tree = fast::RowTree::new(3);
    for rows in 0..=600 {
        let expected = [0, 1, 2].map(|j| plain::row_tree(rows, |t| tall.term(t, j)));
        let mut dw = [f32::NAN; 3];
        tree.clone().finish(&mut dw);
        assert_same_row(&expected, &dw, &format!("{rows} rows"));
        if rows < 600 {
            let row = rows * 3..rows * 3 + 3;
            tree.push(&tall.dy[row.clone()], &tall.x[row], tall.rstd[rows]);
        }
    }
}

/// A fold over a longer list whose further terms are zero is a fold padded to any larger power of two.
#[test]
fn padding_a_row_changes_no_bit_nor_the_sign_of_zero() {
    for kind in KINDS {
        for width in [1, 3, 4, 5, 8, 9, 23, 64, 65, 300] {
            let (a, b) = (row::<f32>(kind, width, 7), row::<f32>(kind, width, 8));
            let expected = plain::dot(width, |i| (a[i], b[i]));
            for padded in (width..width + 2 * UNIT).chain((0..7).map(|k| width.next_power_of_two() << k)) {
                let term = |i| if i < width { (a[i], b[i]) } else { (0.0, 0.0) };
                assert_same(expected, plain::dot(padded, term), &format!("{kind:?} {width} as {padded}"));
            }
        }
    }
}

/// Units and leaves may be -0: a product underflows to it. The sums never are.
#[test]
fn negative_zero_never_leaves_a_sum() {
    let tiny = f32::from_bits(1);
    for len in 1..=130 {
        let (a, b) = (vec![tiny; len], vec![-tiny; len]);
        assert_same(0.0, plain::dot(len, |i| (a[i], b[i])), "plain fold");
        assert_same(0.0, fast::dot(&a, &b), "fast fold");
        assert_same(0.0, plain::row_tree(len, |_| (tiny, -tiny)), "plain tree");
        let mut dw = [f32::NAN];
        fast::row_tree(len, 1, &a, &b, &vec![1.0; len], &mut dw);
        assert_same(0.0, dw[0], "fast tree");
        let mut tree = fast::RowTree::new(1);
        (0..len).for_each(|_| tree.push(&[tiny], &[-tiny], 1.0));
        tree.finish(&mut dw);
        assert_same(0.0, dw[0], "fast tree, row by row");
    }
    assert_same(0.0, plain::combine(&[-0.0]), "one root");
    assert_same(0.0, plain::combine(&[]), "no root");
    let mut dw = [f32::NAN];
    fast::combine(1, &[-0.0, -0.0], &mut dw);
    assert_same(0.0, dw[0], "two roots");
}

#[test]
fn zero_rows_appended_change_no_bit() {
    for kind in KINDS {
        for rows in [0, 1, 7, 8, 9, 63, 64, 65, 1000] {
            let tall = Tall::<bf16>::new(kind, rows, 5);
            let expected = tall.dw(0, rows);
            for zeros in [1, 7, 8, 57, 1000] {
                let mut longer = tall.clone();
                longer.dy.resize((rows + zeros) * 5, bf16::NEG_ZERO);
                longer.x.resize((rows + zeros) * 5, bf16::ONE);
                longer.rstd.resize(rows + zeros, 1.0);
                assert_same_row(&expected, &longer.dw(0, rows + zeros), &format!("{kind:?} {rows} + {zeros}"));
            }
        }
    }
}

#[test]
fn shards_combine_to_the_bits_of_the_whole() {
    for kind in KINDS {
        for shard_rows in [LEAF_ROWS, 64, 512] {
            for shards in [1, 2, 4, 8] {
                for missing in [0, 1, LEAF_ROWS - 1] {
                    let (rows, width) = (shard_rows * shards - missing, 5);
                    let tall = Tall::<bf16>::new(kind, rows, width);
                    let whole = tall.dw(0, rows);
                    let shard = |s| (s * shard_rows, rows.min((s + 1) * shard_rows));
                    let parts: Vec<f32> = (0..shards).map(shard).flat_map(|(a, b)| tall.dw(a, b)).collect();
                    let pushed: Vec<f32> = (0..shards).map(shard).flat_map(|(a, b)| tall.pushed(a, b)).collect();
                    let case = format!("{kind:?} {shards} shards of {shard_rows}, {missing} missing");
                    for parts in [&parts, &pushed] {
                        let mut combined = vec![f32::NAN; width];
                        fast::combine(width, parts, &mut combined);
                        assert_same_row(&whole, &combined, &case);
                    }
                    let column: Vec<f32> = parts.iter().copied().step_by(width).collect();
                    assert_same(whole[0], plain::combine(&column), &case);
                }
            }
        }
    }
}

/// The comparisons above can fail: other orders, and products rounded on their own, change bits of ordinary rows.
#[test]
fn other_orders_give_other_bits() {
    type Order = fn(&[f32]) -> f32;
    let canonical: Order = plain::sum_of_squares;
    let by_units: Order = |row| sum_units(row, plain::sum_of_squares);
    let row_tree: Order = |row| plain::row_tree(row.len(), |t| (row[t], row[t]));
    let others: [(&str, Order); 5] = [
        ("sequential", square_chain),
        ("one chain per unit", |row| sum_units(row, square_chain)),
        ("unfused", |row| {
            let chain = |half: &[f32]| half.iter().fold(0.0, |acc, a| acc + a * a);
            sum_units(row, |unit| chain(&unit[..CHAIN]) + chain(&unit[CHAIN..]))
        }),
        ("adjacent units", |row| plain::combine(&row.chunks(UNIT).map(plain::sum_of_squares).collect::<Vec<_>>())),
        ("row tree", row_tree),
    ];
    let rows: Vec<Vec<f32>> = (0..8).map(|seed| row(Kind::Random, 6144, seed)).collect();
    for row in &rows {
        assert_same(canonical(row), by_units(row), "the canonical order by way of sum_units");
    }
    for (name, other) in others {
        assert!(rows.iter().any(|row| canonical(row).to_bits() != other(row).to_bits()), "{name}");
    }
    assert!(rows.iter().any(|row| row_tree(row).to_bits() != square_chain(row).to_bits()), "sequential rows");
}

fn square_chain(row: &[f32]) -> f32 {
    row.iter().fold(0.0, |acc, a| a.mul_add(*a, acc))
}

/// Folds ready-made units: `dot` makes the unit `unit * 1` of the terms `unit, 0, 0, ...`.
fn sum_units(row: &[f32], unit: impl Fn(&[f32]) -> f32) -> f32 {
    let units: Vec<f32> = row.chunks(UNIT).map(unit).collect();
    plain::dot(row.len(), |i| (if i % UNIT == 0 { units[i / UNIT] } else { 0.0 }, 1.0))
}

/// Bits computed by exact rational arithmetic, rounded step by step, outside this crate.
#[test]
fn sums_have_the_specified_bits() {
    let term = |i: usize| ((i * 7919 % 1009) as f32 / 3.0 - 150.0, (i * 104729 % 1013) as f32 / 7.0 - 70.0);
    let folds = [1, 4, 8, 13, 300, 1000, 6144].map(|len| plain::dot(len, term).to_bits());
    let trees = [1, 8, 13, 300, 1000, 4097].map(|rows| plain::row_tree(rows, term).to_bits());
    assert_eq!(folds, FOLDS, "{folds:#010x?}");
    assert_eq!(trees, TREES, "{trees:#010x?}");
}

#[test]
fn edges_of_rstd() {
    assert_eq!(rms::rstd(12.0, 3, 0.0), 0.5, "by the width, not by whole units");
    assert_eq!(rms::rstd(0.0, 8, 0.0), f32::INFINITY);
    assert_eq!(rms::rstd(f32::INFINITY, 8, 1e-6), 0.0);
    let mut y = [1.0f32; 2];
    assert_eq!(fast::rms_row(&[0.0f32, -0.0], None::<&[f32]>, -0.0, 0.0, &mut y), f32::INFINITY);
    assert!(y.iter().all(|y| y.is_nan()));
    assert!([0.0, -0.0, 1e-6, f32::MAX].into_iter().all(rms::eps_is_valid));
    assert!(![-1e-6, f32::INFINITY, f32::NEG_INFINITY, f32::NAN].into_iter().any(rms::eps_is_valid));
}

#[test]
fn no_offset_leaves_every_weight() {
    for w in [0.0, -0.0, 1.0, f32::from_bits(1), f32::INFINITY] {
        assert_same(w, w + rms::offset(false), "weight");
    }
}

proptest! {
    #[test]
    fn folds_of_any_bits_are_plain(bits in prop::collection::vec(any::<u32>(), 0..600)) {
        let a: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
        let half: Vec<bf16> = bits.iter().map(|bits| bf16::from_bits(*bits as u16)).collect();
        assert_same(plain::sum_of_squares(&a), fast::sum_of_squares(&a), "f32");
        assert_same(plain::sum_of_squares(&half), fast::sum_of_squares(&half), "bf16");
        let reversed: Vec<f32> = a.iter().rev().copied().collect();
        assert_same(plain::dot(a.len(), |i| (a[i], reversed[i])), fast::dot(&a, &reversed), "dot");
    }

    #[test]
    fn backward_rows_of_any_bits_are_plain(
        bits in prop::collection::vec(any::<[u32; 4]>(), 1..300),
        rstd in any::<u32>().prop_map(f32::from_bits),
    ) {
        backward_row_of_bits_is_plain(&bits, rstd, f32::from_bits);
        backward_row_of_bits_is_plain(&bits, rstd, |bits| bf16::from_bits(bits as u16));
        backward_row_of_bits_is_plain(&bits, rstd, |bits| f16::from_bits(bits as u16));
    }

    #[test]
    fn row_trees_of_any_bits_are_plain(bits in prop::collection::vec(any::<(u32, u32, u32)>(), 0..200)) {
        let [dy, x, rstd] = [0, 1, 2].map(|k| -> Vec<f32> {
            bits.iter().map(|b| f32::from_bits([b.0, b.1, b.2][k])).collect()
        });
        let mut dw = [f32::NAN];
        fast::row_tree(bits.len(), 1, &dy, &x, &rstd, &mut dw);
        assert_same(plain::row_tree(bits.len(), |t| (dy[t], x[t] * rstd[t])), dw[0], "tree");
    }
}

fn backward_row_of_bits_is_plain<E: Element>(bits: &[[u32; 4]], rstd: f32, element: impl Fn(u32) -> E) {
    let [dy, x, weight, dh] = [0, 1, 2, 3].map(|k| -> Vec<E> { bits.iter().map(|bits| element(bits[k])).collect() });
    for dh in [None, Some(&*dh)] {
        let [mut expected, mut dx] = [0, 1].map(|_| x.clone());
        let c = plain::backward_row(&dy, &x, Some(&weight), -0.0, rstd, dh, &mut expected);
        assert_same(c, fast::backward_row(&dy, &x, Some(&weight), -0.0, rstd, dh, &mut dx), "c");
        assert_same_row(&expected, &dx, "dx");
    }
}

/// The operands of a row tree.
#[derive(Clone)]
struct Tall<E> {
    width: usize,
    dy: Vec<E>,
    x: Vec<E>,
    rstd: Vec<f32>,
}

impl<E: Element> Tall<E> {
    fn new(kind: Kind, rows: usize, width: usize) -> Self {
        let [dy, x] = [10, 11].map(|seed| row(kind, rows * width, seed));
        Tall { width, dy, x, rstd: row::<f32>(Kind::Random, rows, 12) }
    }

    fn term(&self, t: usize, j: usize) -> (f32, f32) {
        let i = t * self.width + j;
        (self.dy[i].to_f32(), self.x[i].to_f32() * self.rstd[t])
    }

    fn dw(&self, first: usize, end: usize) -> Vec<f32> {
        let mut dw = vec![f32::NAN; self.width];
        let elements = first * self.width..end * self.width;
        let (dy, x) = (&self.dy[elements.clone()], &self.x[elements]);
        fast::row_tree(end - first, self.width, dy, x, &self.rstd[first..end], &mut dw);
        dw
    }

    /// As `dw`, row by row.
    fn pushed(&self, first: usize, end: usize) -> Vec<f32> {
        let mut tree = fast::RowTree::new(self.width);
        for t in first..end {
            let row = t * self.width..(t + 1) * self.width;
            tree.push(&self.dy[row.clone()], &self.x[row], self.rstd[t]);
        }
        let mut dw = vec![f32::NAN; self.width];
        tree.finish(&mut dw);
        dw
    }
}

/// What a row is made of.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Uniform in -2..2.
    Random,
    /// Below the smallest normal number, where products underflow to zeros of both signs.
    Subnormal,
    /// Up to the largest finite number, so that sums overflow.
    Huge,
    /// Large numbers of alternating sign among small ones.
    Cancelling,
    /// Both zeros.
    Zero,
    /// A NaN or an infinity every few hundred elements.
    NotFinite,
}

const KINDS: [Kind; 6] = [Kind::Random, Kind::Subnormal, Kind::Huge, Kind::Cancelling, Kind::Zero, Kind::NotFinite];

/// Model widths, the widths around powers of two, and rows longer than any kernel keeps in registers.
const WIDE: [usize; 13] = [769, 1000, 1152, 2880, 5376, 6144, 7168, 8192, 12288, 16384, 53248, 65536, 131072];

fn row<E: Element>(kind: Kind, len: usize, seed: u64) -> Vec<E> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ len as u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    };
    let (max, min_normal) = match size_of::<E>() {
        4 => (f32::MAX, f32::MIN_POSITIVE),
        _ if E::from_f32(1e30).to_f32().is_infinite() => (65504.0, f16::MIN_POSITIVE.to_f32()),
        _ => (bf16::MAX.to_f32(), f32::MIN_POSITIVE),
    };
    (0..len)
        .map(|i| {
            let u = uniform();
            E::from_f32(match kind {
                Kind::Random => u,
                Kind::Subnormal => u * 0.5 * min_normal,
                Kind::Huge => u * 0.5 * max,
                Kind::Cancelling if i % 5 == 0 => 1e4f32.copysign(u),
                Kind::Cancelling => u * 1e-2,
                Kind::Zero => 0f32.copysign(u),
                Kind::NotFinite if u > 1.98 => f32::NAN,
                Kind::NotFinite if u < -1.98 => f32::INFINITY,
                Kind::NotFinite => u,
            })
        })
        .collect()
}

/// Runs `check` on both sides of the run-time dispatch. The lock keeps other tests of this process from changing sides.
fn with_and_without_fma(check: impl Fn(bool)) {
    static SIDE: Mutex<()> = Mutex::new(());
    let _lock = SIDE.lock().unwrap_or_else(PoisonError::into_inner);
    for fma in [false, true] {
        simd::allow_fma(fma);
        check(fma);
    }
}

#[track_caller]
fn assert_same_row<E: Element>(expected: &[E], actual: &[E], case: &str) {
    assert_eq!(expected.len(), actual.len(), "{case}");
    for (j, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        if !same(expected.to_f32(), actual.to_f32()) {
            panic!("{case}, element {j}: expected {:e}, got {:e}", expected.to_f32(), actual.to_f32());
        }
    }
}

#[track_caller]
fn assert_same(expected: f32, actual: f32, case: &str) {
    let bits = f32::to_bits;
    let (e, a) = (bits(expected), bits(actual));
    assert!(same(expected, actual), "{case}: expected {expected:e} = {e:#010x}, got {actual:e} = {a:#010x}");
}

/// Equal bits, or NaN and NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

const FOLDS: [u32; 7] = [0x46241000, 0x4623ab0d, 0x465b0de8, 0x45e86864, 0x4701f200, 0x472601e6, 0x4882819e];
const TREES: [u32; 6] = [0x46241000, 0x465b0de7, 0x45e86861, 0x4701f200, 0x472601e4, 0x481d8076];
