//! What the inputs of a row hold, and the canonical bits of what its calls write.

use cake_core::sums::{fast, rms};
use cake_core::{Dtype, Element};
use half::bf16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use super::rows::Row;
use crate::cases::gate::GateForm;
use crate::cases::layout::{Layout, Placed};
use crate::cases::values::{Values, Weights};
use crate::engine::expected;
use crate::engine::gate::{GateGradientRow, GateRow};
use crate::engine::gradients::GradientRow;

/// Inputs repeat after this many rows, a prime: the host makes so many, the device copies them.
const DISTINCT: u64 = 61;

/// Added to the mean of squares.
pub const EPS: f32 = 1e-6;

/// Index of an input; a backward alone takes it for `h`.
pub const X: usize = 0;
/// As [`X`].
pub const RESIDUAL: usize = 1;
/// As [`X`].
pub const DY: usize = 2;
/// As [`X`].
pub const DH: usize = 3;
/// As [`X`].
pub const Z: usize = 4;

/// Index of an output with rows.
pub const H: usize = 0;
/// As [`H`].
pub const Y: usize = 1;
/// As [`H`].
pub const DX: usize = 2;
/// As [`H`].
pub const DZ: usize = 3;

/// Inputs and canonical results.
#[derive(Debug)]
pub struct Answers {
    row: Row,
    /// What the buffers of the inputs hold, over and over.
    pub patterns: [Vec<u16>; 5],
    /// As f32 bits.
    pub weight: Option<Vec<u32>>,
}

/// Those of one row of the tensors.
#[derive(Debug)]
pub struct Answer {
    outputs: [Option<Vec<u16>>; 4],
    rstd: u32,
    /// Factors of the row's terms in `dw`.
    terms: Vec<(f32, f32)>,
}

impl Answers {
    /// Of a row of the benchmark.
    pub fn new(row: &Row, seed: u64) -> Answers {
        let weight = row.spec.weight.map(|dtype| {
            let mut bits = vec![0; row.spec.width as usize];
            Weights::Usual.fill(seed, row.spec.offset, dtype == Dtype::Bf16, &mut bits);
            bits
        });
        Answers { row: row.clone(), patterns: patterns(seed, row.spec.width as usize), weight }
    }

    /// Of one row of the tensors.
    pub fn row(&self, row: u64) -> Answer {
        let Row { spec, lead, inputs, .. } = &self.row;
        let content = |which: usize, layout: Layout| -> Vec<u16> {
            let first = row_offset(&layout.place(lead, spec.width.into()), row) as usize;
            let pattern = &self.patterns[which];
            (first..first + spec.width as usize).map(|at| pattern[at % pattern.len()]).collect()
        };
        let weight = self.weight.as_deref();
        if self.row.gate {
            let (x, z) = (content(X, *inputs), content(Z, Layout::Contiguous));
            let (weight, form) = (weight.expect("a gated norm has a weight"), GateForm::ALL[0]);
            let mut forward = GateRow { x: x.clone(), z: z.clone(), ..GateRow::default() };
            forward.compute(weight, form, EPS);
            let rstd = forward.rstd;
            let mut gradients =
                GateGradientRow { x, z, dy: content(DY, Layout::Contiguous), rstd, ..Default::default() };
            gradients.compute(weight, form);
            let terms = (0..spec.width as usize).map(|column| gradients.term(column)).collect();
            return Answer { outputs: [None, Some(forward.y), Some(gradients.dx), Some(gradients.dz)], rstd, terms };
        }
        let residual = (self.row.forward() && spec.residual).then(|| content(RESIDUAL, *inputs));
        let mut forward = expected::Row { x: content(X, *inputs), residual, ..expected::Row::default() };
        forward.compute(weight, spec.offset, EPS);

        let gradients = self.row.backward().map(|backward| {
            let mut gradients = GradientRow {
                x: forward.h.as_ref().unwrap_or(&forward.x).clone(),
                dy: content(DY, Layout::Contiguous),
                dh: (spec.residual && backward.dx).then(|| content(DH, Layout::Contiguous)),
                rstd: forward.rstd,
                dx: Vec::new(),
            };
            if backward.dx {
                gradients.compute(weight, spec.offset);
            }
            gradients
        });
        let rstd = forward.rstd;
        let term = |(dy, x): (&u16, &u16)| {
            let [dy, x] = [dy, x].map(|&bits| Element::to_f32(bf16::from_bits(bits)));
            (dy, x * f32::from_bits(rstd))
        };
        let terms = |row: &GradientRow| row.dy.iter().zip(&row.x).map(term).collect();
        let terms = gradients.as_ref().map(terms).unwrap_or_default();
        let dx = gradients.map(|gradients| gradients.dx).filter(|dx| !dx.is_empty());
        Answer { outputs: [forward.h, Some(forward.y), dx, None], rstd, terms }
    }

    /// The `rstd` of each row that is no repetition, in order.
    pub fn rstd(&self) -> Vec<f32> {
        self.distinct().iter().map(|answer| f32::from_bits(answer.rstd())).collect()
    }

    /// The gradient of the weight, BF16.
    pub fn dw(&self) -> Vec<u16> {
        let rows: Vec<(Vec<f32>, Vec<f32>)> =
            self.distinct().into_iter().map(|answer| answer.terms.into_iter().unzip()).collect();
        let mut dw = vec![bf16::ZERO; self.row.spec.width as usize];
        dw.par_chunks_mut(256).enumerate().for_each(|(task, dw)| {
            let columns = 256 * task..256 * task + dw.len();
            let mut tree = fast::RowTree::new(dw.len());
            for (gradient, xhat) in rows.iter().cycle().take(self.row.count() as usize) {
                tree.push(&gradient[columns.clone()], &xhat[columns.clone()], 1.0);
            }
            let mut root = vec![0.0; dw.len()];
            tree.finish(&mut root);
            dw.iter_mut().zip(root).for_each(|(dw, root)| *dw = rms::accumulate(None, root));
        });
        dw.reinterpret_cast().to_vec()
    }

    /// Of each row that is no repetition, in order; for contiguous tensors.
    fn distinct(&self) -> Vec<Answer> {
        (0..DISTINCT.min(self.row.count())).into_par_iter().map(|row| self.row(row)).collect()
    }
}

impl Answer {
    /// In the order of [`H`], [`Y`], [`DX`], [`DZ`]; of all but `y` what the calls compute.
    pub fn outputs(&self) -> [Option<&[u16]>; 4] {
        self.outputs.each_ref().map(|output| output.as_deref())
    }

    /// As bits.
    pub fn rstd(&self) -> u32 {
        self.rstd
    }
}

/// The offset of a row of an activation, in elements; rows are counted over the leading dimensions.
pub fn row_offset(placed: &Placed, row: u64) -> u64 {
    let leading = placed.shape.iter().zip(&placed.strides).rev().skip(1);
    let step = |(at, rest), (size, &stride): (&u64, &i64)| (at + rest % size * stride as u64, rest / size);
    leading.fold((placed.offset, row), step).0
}

/// What the inputs hold: [`DISTINCT`] rows of ordinary numbers each.
fn patterns(seed: u64, width: usize) -> [Vec<u16>; 5] {
    [0, 1, 2, 3, 4].map(|which| {
        let mut pattern = vec![0; DISTINCT as usize * width];
        pattern.par_chunks_mut(width).enumerate().for_each(|(row, content)| {
            Values::Normal.fill(seed, 5 * row as u64 + which, content, None);
        });
        pattern
    })
}

#[cfg(test)]
mod tests {
    use half::slice::HalfBitsSliceExt;

    use cake_rmsnorm::{Backward, BackwardPlan, Forward, ForwardPlan, TensorView, TensorViewMut};

    use super::*;
    use crate::bench::rows::Calls;
    use crate::cases::Form;

    #[test]
    fn inputs_differ_from_row_to_row_and_from_each_other() {
        let patterns = patterns(1, 8);
        let rows: Vec<&[u16]> = patterns.iter().flat_map(|pattern| pattern.chunks(8)).collect();
        assert_eq!(rows.len() as u64, 5 * DISTINCT);
        assert!((1..rows.len()).all(|i| !rows[..i].contains(&rows[i])));
    }

    #[test]
    fn rows_are_where_their_layout_puts_them() {
        for layout in [Layout::Contiguous, Layout::Pitch(2), Layout::Slice(3), Layout::Strides(&[6144, 128])] {
            let placed = layout.place(&[5, 7], 128);
            assert_eq!((0..35).map(|row| row_offset(&placed, row)).collect::<Vec<_>>(), placed.row_offsets(2));
        }
    }

    #[test]
    fn answers_are_those_of_a_call_on_the_host() {
        let (count, width) = (2 * DISTINCT + 3, 264);
        let shape = [count, width];
        let calls = [Calls::Backward, Calls::Dx, Calls::Dw, Calls::Step];
        for (calls, form) in calls.into_iter().flat_map(|calls| Form::COMMON.map(|form| (calls, form))) {
            let row = Row { calls, ..Row::new("", form, width as u32, vec![count]) };
            let answers = Answers::new(&row, 7);
            let whole = |which: usize| -> Vec<bf16> {
                let pattern: &[bf16] = answers.patterns[which].reinterpret_cast();
                pattern.iter().copied().cycle().take((count * width) as usize).collect()
            };
            let weight = answers.weight.as_ref().unwrap().iter().map(|&bits| bf16::from_f32(f32::from_bits(bits)));
            let (weight, [mut x, residual, dy, dh]) = (weight.collect::<Vec<_>>(), [X, RESIDUAL, DY, DH].map(whole));
            let mut rstd: Vec<f32> = answers.rstd().into_iter().cycle().take(count as usize).collect();
            let [mut y, mut h, mut dx] = [(); 3].map(|()| vec![bf16::ZERO; x.len()]);
            let mut dw = vec![bf16::ZERO; width as usize];
            if row.forward() {
                let forward = Forward {
                    x: TensorView::from_slice("x", &x, &shape).unwrap(),
                    weight: Some(TensorView::from_slice("weight", &weight, &shape[1..]).unwrap()),
                    eps: EPS,
                    residual: form.residual.then(|| TensorView::from_slice("residual", &residual, &shape).unwrap()),
                    y: TensorViewMut::from_slice("y", &mut y, &shape).unwrap(),
                    h: form.residual.then(|| TensorViewMut::from_slice("h", &mut h, &shape).unwrap()),
                    rstd: Some(TensorViewMut::from_slice("rstd", &mut rstd, &shape[..1]).unwrap()),
                };
                ForwardPlan::host(row.spec).unwrap().run_host(forward).unwrap();
                if form.residual {
                    x.clone_from(&h);
                }
            }
            let spec = row.backward().unwrap();
            let backward = Backward {
                dy: TensorView::from_slice("dy", &dy, &shape).unwrap(),
                x: TensorView::from_slice("x", &x, &shape).unwrap(),
                weight: Some(TensorView::from_slice("weight", &weight, &shape[1..]).unwrap()),
                rstd: Some(TensorView::from_slice("rstd", &rstd, &shape[..1]).unwrap()),
                eps: EPS,
                dh: (form.residual && spec.dx).then(|| TensorView::from_slice("dh", &dh, &shape).unwrap()),
                dx: spec.dx.then(|| TensorViewMut::from_slice("dx", &mut dx, &shape).unwrap()),
                dw: spec.dw.map(|_| TensorViewMut::from_slice("dw", &mut dw, &shape[1..]).unwrap()),
                workspace: None,
            };
            BackwardPlan::host(spec).unwrap().run_host(backward).unwrap();
            for at in 0..count {
                let answer = answers.row(at);
                let of_row =
                    |tensor: &[bf16]| tensor[(at * width) as usize..][..width as usize].reinterpret_cast().to_vec();
                let [expected_h, expected_y, expected_dx, _] = answer.outputs();
                assert_eq!(rstd[at as usize].to_bits(), answer.rstd());
                assert_eq!(expected_dx.map(<[u16]>::to_vec), spec.dx.then(|| of_row(&dx)));
                if row.forward() {
                    assert_eq!(expected_y.unwrap(), of_row(&y));
                    assert_eq!(expected_h.map(<[u16]>::to_vec), form.residual.then(|| of_row(&h)));
                }
            }
            if spec.dw.is_some() {
                assert_eq!(dw.reinterpret_cast(), answers.dw());
            }
        }
    }

    #[test]
    fn answers_of_a_gate_are_those_of_a_call_on_the_host() {
        let (count, width) = (DISTINCT + 3, 128);
        let shape = [count, width];
        let row = Row { calls: Calls::Step, gate: true, ..Row::new("", Form::COMMON[0], width as u32, vec![count]) };
        let answers = Answers::new(&row, 7);
        let whole = |which: usize| -> Vec<bf16> {
            let pattern: &[bf16] = answers.patterns[which].reinterpret_cast();
            pattern.iter().copied().cycle().take((count * width) as usize).collect()
        };
        let weight = answers.weight.as_ref().unwrap().iter().map(|&bits| bf16::from_f32(f32::from_bits(bits)));
        let (weight, [x, z, dy]) = (weight.collect::<Vec<_>>(), [X, Z, DY].map(whole));
        let [mut y, mut dx, mut dz] = [(); 3].map(|()| vec![bf16::ZERO; x.len()]);
        let mut dw = vec![bf16::ZERO; width as usize];
        let input = |name, tensor| TensorView::from_slice(name, tensor, &shape).unwrap();
        let forward = cake_silu_gate::Forward {
            x: input("x", &x),
            z: input("z", &z),
            weight: TensorView::from_slice("weight", &weight, &shape[1..]).unwrap(),
            eps: EPS,
            y: TensorViewMut::from_slice("y", &mut y, &shape).unwrap(),
            rstd: None,
        };
        cake_silu_gate::ForwardPlan::host(row.gate_spec()).unwrap().run_host(forward).unwrap();
        let backward = cake_silu_gate::Backward {
            dy: input("dy", &dy),
            x: input("x", &x),
            z: input("z", &z),
            weight: TensorView::from_slice("weight", &weight, &shape[1..]).unwrap(),
            rstd: None,
            eps: EPS,
            dx: TensorViewMut::from_slice("dx", &mut dx, &shape).unwrap(),
            dz: TensorViewMut::from_slice("dz", &mut dz, &shape).unwrap(),
            dw: Some(TensorViewMut::from_slice("dw", &mut dw, &shape[1..]).unwrap()),
            workspace: None,
        };
        cake_silu_gate::BackwardPlan::host(row.gate_backward_spec()).unwrap().run_host(backward).unwrap();
        for at in 0..count {
            let of_row =
                |tensor: &[bf16]| tensor[(at * width) as usize..][..width as usize].reinterpret_cast().to_vec();
            let answer = answers.row(at);
            let outputs = answer.outputs().map(|output| output.map(<[u16]>::to_vec));
            assert_eq!(outputs, [None, Some(of_row(&y)), Some(of_row(&dx)), Some(of_row(&dz))]);
        }
        assert_eq!(dw.reinterpret_cast(), answers.dw());
    }
}
