//! Comparison of an image after a call with the image that should be there: every element of the outputs, and every
//! byte around them.

use cake_core::Dtype;
use rayon::prelude::*;

use super::image::Tensor;

/// What differs in one tensor's block.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The tensor.
    pub name: &'static str,
    /// Elements that differ, or halfwords outside the elements.
    pub count: usize,
    /// The first of them, with coordinates and bits.
    pub first: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} differ, first {}", self.name, self.count, self.first)
    }
}

/// Whether two images are the same halfwords.
pub fn same(a: &[u16], b: &[u16]) -> bool {
    const CHUNK: usize = 1 << 20;
    a.len() == b.len() && a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK)).all(|(a, b)| a == b)
}

/// How `actual` differs from `expected`. A NaN equals any NaN in the elements of `tensor`; everything else must be the
/// same bits.
pub fn differences(name: &'static str, tensor: &Tensor, expected: &[u16], mut actual: Vec<u16>) -> Vec<Difference> {
    let mut found = Vec::new();
    if same(expected, &actual) {
        return found;
    }
    let (rows, columns) = tensor.size();
    let mut elements = Difference { name, count: 0, first: String::new() };
    for row in 0..rows {
        for column in 0..columns {
            let (e, a) = (tensor.bits(expected, row, column), tensor.bits(&actual, row, column));
            if e == a {
                continue;
            }
            if !(is_nan(tensor.dtype(), e) && is_nan(tensor.dtype(), a)) {
                if elements.count == 0 {
                    let (shown_e, shown_a) = (shown(tensor.dtype(), e), shown(tensor.dtype(), a));
                    elements.first = format!("row {row} column {column}: expected {shown_e}, got {shown_a}");
                }
                elements.count += 1;
            }
            tensor.set_bits(&mut actual, row, column, e);
        }
    }
    if elements.count > 0 {
        found.push(elements);
    }
    let outside: Vec<usize> = (0..expected.len()).filter(|&i| expected[i] != actual[i]).collect();
    if let Some(&i) = outside.first() {
        let first = format!("outside its elements, halfword {i} of {}: {:#06x}", expected.len(), actual[i]);
        found.push(Difference { name, count: outside.len(), first });
    }
    found
}

fn is_nan(dtype: Dtype, bits: u32) -> bool {
    value(dtype, bits).is_nan()
}

/// The value of an element's bits.
pub fn value(dtype: Dtype, bits: u32) -> f32 {
    f32::from_bits(if dtype == Dtype::F32 { bits } else { bits << 16 })
}

/// Bits and value, for messages.
pub fn shown(dtype: Dtype, bits: u32) -> String {
    let value = value(dtype, bits);
    if dtype == Dtype::F32 { format!("{bits:#010x} = {value:e}") } else { format!("{bits:#06x} = {value:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::layout::Layout;
    use crate::engine::image::{CANARY, POISON};

    fn tensor() -> (Tensor, Vec<u16>) {
        let tensor = Tensor::rows(Dtype::Bf16, Layout::Gap(1).place(&[3], 4));
        let mut image = tensor.image(CANARY);
        tensor.fill(&mut image, 0x3f80);
        (tensor, image)
    }

    #[test]
    fn a_wrong_element_is_named() {
        let (tensor, image) = tensor();
        let mut actual = image.clone();
        tensor.set_bits(&mut actual, 2, 1, u32::from(POISON));
        let found = differences("y", &tensor, &image, actual);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].first, "row 2 column 1: expected 0x3f80 = 1e0, got 0xffff = NaN");
    }

    #[test]
    fn a_write_between_rows_is_seen() {
        let (tensor, image) = tensor();
        let mut actual = image.clone();
        let gap = actual.iter().rposition(|&half| half == 0x3f80).unwrap() - 4;
        assert_eq!(actual[gap], CANARY);
        actual[gap] = 0;
        let found = differences("y", &tensor, &image, actual);
        assert!(found.len() == 1 && found[0].first.starts_with("outside"), "{found:?}");
    }

    #[test]
    fn nans_equal_nans_but_not_in_the_gaps() {
        let (tensor, mut image) = tensor();
        tensor.set_bits(&mut image, 0, 0, 0x7fc0);
        let mut actual = image.clone();
        tensor.set_bits(&mut actual, 0, 0, 0xffff);
        assert_eq!(differences("y", &tensor, &image, actual), []);
    }
}
