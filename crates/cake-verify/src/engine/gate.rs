//! The gated norm: the inputs of a case, the canonical bits of its outputs, from `cake_core::sums::plain` and the canonical
//! sigmoid, and its calls.

use cake_core::sums::{plain, rms};
use cake_core::{Element, Result};
use cake_silu_gate::gate::sigmoid;
use cake_silu_gate::{Backward, Forward, SiluGateBackward, SiluGateForward};
use half::bf16;
use half::slice::HalfBitsSliceExt;

use super::call::Arguments;
use super::expected::{Expected, filled, floats, weight_halfwords};
use super::gradients::{DY, GIVEN, Gradients, Z, random_weight_gradient, rstd_of};
use super::memory::{Argument, Space};
use super::setup::Draft;
use super::subject::{self, Subject, activation, for_each_row, weight, weight_gradient};
use super::target::Lane;
use crate::cases::Case;
use crate::cases::gate::{GateBackwardCase, GateCase, GateForm};

/// A row of inputs and its canonical outputs, in bits.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // named as the arguments
pub struct GateRow {
    pub x: Vec<u16>,
    pub z: Vec<u16>,
    pub rstd: u32,
    pub y: Vec<u16>,
}

impl GateRow {
    fn of(case: &GateCase, seed: u64, [x_row, z_row]: [u64; 2], weight: &[u32]) -> GateRow {
        let (width, layouts) = (case.norm.spec.width as usize, case.norm.layouts);
        let x = filled(case.norm.values, seed, x_row, width, layouts.x);
        let z = filled(case.gates, seed ^ Z, z_row, width, layouts.z);
        let mut row = GateRow { x, z, ..GateRow::default() };
        row.compute(weight, case.form, case.norm.eps);
        row
    }

    /// Fills in the canonical outputs.
    pub fn compute(&mut self, weight: &[u32], form: GateForm, eps: f32) {
        let (weight, gates) = (floats(weight), Gates::of(&self.z, form));
        let (x, mut y): (&[bf16], _) = (self.x.reinterpret_cast(), vec![bf16::ZERO; self.x.len()]);
        let rstd = if form.first {
            plain::rms_row(&gates.normed(&self.x, form), Some(&weight), NO_OFFSET, eps, &mut y)
        } else {
            let mut n = vec![0.0; x.len()];
            let rstd = plain::rms_row(x, Some(&weight), NO_OFFSET, eps, &mut n);
            y = n.iter().zip(&gates.gates).map(|(n, gate)| Element::from_f32(n * gate)).collect();
            rstd
        };
        self.rstd = rstd.to_bits();
        self.y = bits(&y);
    }
}

/// A row of inputs and its canonical outputs, in bits.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // named as the arguments
pub struct GateGradientRow {
    pub x: Vec<u16>,
    pub dy: Vec<u16>,
    pub z: Vec<u16>,
    /// The one that the call is given, or else computes.
    pub rstd: u32,
    pub dx: Vec<u16>,
    pub dz: Vec<u16>,
    /// The factors of its terms in `dw`: the gradient of what the weight scales, and that.
    pub upstream: Vec<f32>,
    pub xhat: Vec<f32>,
}

impl GateGradientRow {
    fn of(case: &GateBackwardCase, seed: u64, rows: [u64; 4], weight: &[u32]) -> GateGradientRow {
        let (norm, form) = (&case.forward.norm, case.forward.form);
        let (width, layouts, [x_row, dy_row, z_row, rstd_row]) = (norm.spec.width as usize, norm.layouts, rows);
        let x = filled(norm.values, seed, x_row, width, layouts.x);
        let dy = filled(case.gradients, seed ^ DY, dy_row, width, layouts.dy);
        let z = filled(case.forward.gates, seed ^ Z, z_row, width, layouts.z);
        let rstd = if norm.rstd {
            let other = filled(norm.values, seed, rstd_row, width, layouts.x);
            GIVEN * rstd_of::<bf16>(other.reinterpret_cast(), norm.eps)
        } else {
            rstd_of(&Gates::of(&z, form).normed(&x, form), norm.eps)
        };
        let mut row = GateGradientRow { x, dy, z, rstd: rstd.to_bits(), ..GateGradientRow::default() };
        row.compute(weight, form);
        row
    }

    /// Fills in the canonical outputs.
    pub fn compute(&mut self, weight: &[u32], form: GateForm) {
        let (weight, gates, rstd) = (floats(weight), Gates::of(&self.z, form), f32::from_bits(self.rstd));
        let x: Vec<f32> = numbers(&self.x).collect();
        let normed = gates.normed(&self.x, form);
        let factor = |i: usize| if form.first { None } else { Some(gates.gates[i]) };
        let dy: Vec<f32> = numbers(&self.dy).collect();
        self.upstream = dy.iter().enumerate().map(|(i, dy)| factor(i).map_or(*dy, |gate| dy * gate)).collect();
        self.xhat = normed.iter().map(|x| x * rstd).collect();
        let mut inner = vec![0.0_f32; x.len()];
        plain::backward_row(&self.upstream, &normed, Some(&weight), NO_OFFSET, rstd, None, &mut inner);
        let outputs = |i: usize| match form.first {
            true => (inner[i] * gates.gates[i], inner[i] * x[i] * gates.slopes[i]),
            false => (inner[i], dy[i] * (self.xhat[i] * weight[i]) * gates.slopes[i]),
        };
        let round = |value: f32| <bf16 as Element>::from_f32(value).to_bits();
        (self.dx, self.dz) = (0..x.len()).map(outputs).map(|(dx, dz)| (round(dx), round(dz))).unzip();
    }

    /// The factors of its term in column `column` of `dw`.
    pub fn term(&self, column: usize) -> (f32, f32) {
        (self.upstream[column], self.xhat[column])
    }
}

const NO_OFFSET: f32 = rms::offset(false);

/// The gates of a row and their slopes.
struct Gates {
    gates: Vec<f32>,
    slopes: Vec<f32>,
}

impl Gates {
    fn of(z: &[u16], form: GateForm) -> Gates {
        let of_element = |&z: &u16| {
            let (z, s) = (bf16::from_bits(z), sigmoid(bf16::from_bits(z)));
            (form.activation.gate(z, s), form.activation.slope(z, s))
        };
        let (gates, slopes) = z.iter().map(of_element).unzip();
        Gates { gates, slopes }
    }

    /// What is normalised.
    fn normed(&self, x: &[u16], form: GateForm) -> Vec<f32> {
        numbers(x).zip(&self.gates).map(|(x, gate)| if form.first { x * gate } else { x }).collect()
    }
}

fn numbers(bits: &[u16]) -> impl Iterator<Item = f32> {
    bits.iter().map(|&bits| Element::to_f32(bf16::from_bits(bits)))
}

fn bits(row: &[bf16]) -> Vec<u16> {
    row.iter().map(|element| element.to_bits()).collect()
}

impl Subject for GateCase {
    type Op = SiluGateForward;
    type Expected = Expected<GateRow>;
    type Call<'m> = GateCall<'m>;

    fn norm(&self) -> &Case {
        &self.norm
    }

    fn norm_mut(&mut self) -> &mut Case {
        &mut self.norm
    }

    fn spec(&self) -> cake_silu_gate::Spec {
        GateCase::spec(self)
    }

    fn expected(&self, seed: u64) -> Expected<GateRow> {
        let layouts = [self.norm.layouts.x, self.norm.layouts.z].map(Some);
        Expected::gather(&self.norm, seed, layouts, |keys, weight| {
            GateRow::of(self, seed, keys, weight.expect("a gated norm has a weight"))
        })
    }

    fn alone(&self, expected: &Expected<GateRow>, row: usize) -> Expected<GateRow> {
        expected.alone(row)
    }

    fn drafts(&self, e: &Expected<GateRow>) -> Vec<Draft> {
        let (norm, layouts) = (&self.norm, self.norm.layouts);
        let y = |row: usize| &e.row(row).y[..];
        let mut drafts = Vec::new();
        let x = Draft::input("x", activation(norm, layouts.x), |row| &e.row(row).x);
        let z = Draft::input("z", activation(norm, layouts.z), |row| &e.row(row).z);
        match (norm.y_over_x, self.y_over_z) {
            (true, _) => drafts.extend([x.overwritten("y", y), z]),
            (_, true) => drafts.extend([x, z.overwritten("y", y)]),
            _ => drafts.extend([x, z, Draft::output("y", activation(norm, layouts.y), y)]),
        }
        drafts.extend(weight(norm, e));
        if norm.rstd {
            let rstd = subject::rstd_of(e, |row: &GateRow| row.rstd);
            drafts.push(Draft::output("rstd", for_each_row(norm), |row| &rstd[e.of_row[row] as usize]));
        }
        drafts
    }

    fn call<'m>(&self, find: impl Fn(&'static str) -> Option<Argument<'m>>, _: Option<Space<'m>>) -> GateCall<'m> {
        let found = |name| find(name).expect("every call has it");
        GateCall {
            x: found("x"),
            z: found("z"),
            weight: found("weight"),
            eps: self.norm.eps,
            y: found("y"),
            rstd: find("rstd"),
        }
    }
}

impl Subject for GateBackwardCase {
    type Op = SiluGateBackward;
    type Expected = Gradients<GateGradientRow>;
    type Call<'m> = GateBackwardCall<'m>;

    fn norm(&self) -> &Case {
        &self.forward.norm
    }

    fn norm_mut(&mut self) -> &mut Case {
        &mut self.forward.norm
    }

    fn spec(&self) -> cake_silu_gate::BackwardSpec {
        GateBackwardCase::spec(self)
    }

    fn expected(&self, seed: u64) -> Gradients<GateGradientRow> {
        let (norm, layouts) = (&self.forward.norm, self.forward.norm.layouts);
        let shown = [Some(layouts.x), Some(layouts.dy), Some(layouts.z), norm.rstd.then_some(layouts.rstd)];
        let rows = Expected::gather(norm, seed, shown, |keys, weight| {
            GateGradientRow::of(self, seed, keys, weight.expect("a gated norm has a weight"))
        });
        let old = self.dw.filter(|_| self.accumulate);
        let old = old.map(|dtype| random_weight_gradient(seed, norm.spec.width, dtype));
        Gradients { rows, old, dw: None }.summed(norm.spec.width, self.dw, GateGradientRow::term)
    }

    fn alone(&self, expected: &Gradients<GateGradientRow>, row: usize) -> Gradients<GateGradientRow> {
        let alone = Gradients { rows: expected.rows.alone(row), old: expected.old.clone(), dw: None };
        alone.summed(self.forward.norm.spec.width, self.dw, GateGradientRow::term)
    }

    fn unordered(&self) -> Option<&'static str> {
        (!self.deterministic).then_some("dw")
    }

    fn drafts(&self, e: &Gradients<GateGradientRow>) -> Vec<Draft> {
        let (rows, norm, layouts) = (&e.rows, &self.forward.norm, self.forward.norm.layouts);
        let (dx, dz) = (|row: usize| &rows.row(row).dx[..], |row: usize| &rows.row(row).dz[..]);
        let mut drafts = vec![Draft::input("x", activation(norm, layouts.x), |row| &rows.row(row).x)];
        let dy = Draft::input("dy", activation(norm, layouts.dy), |row| &rows.row(row).dy);
        match self.dx_over_dy {
            true => drafts.push(dy.overwritten("dx", dx)),
            false => drafts.extend([dy, Draft::output("dx", activation(norm, layouts.dx), dx)]),
        }
        let z = Draft::input("z", activation(norm, layouts.z), |row| &rows.row(row).z);
        match self.dz_over_z {
            true => drafts.push(z.overwritten("dz", dz)),
            false => drafts.extend([z, Draft::output("dz", activation(norm, layouts.dz), dz)]),
        }
        drafts.extend(weight(norm, rows));
        if norm.rstd {
            let rstd = subject::rstd_of(rows, |row: &GateGradientRow| row.rstd);
            drafts.push(Draft::input("rstd", for_each_row(norm), |row| &rstd[rows.of_row[row] as usize]));
        }
        if let (Some(dtype), Some(dw)) = (self.dw, &e.dw) {
            let content = |bits: &Vec<u32>| weight_halfwords(bits, dtype);
            drafts.push(weight_gradient(norm, dtype, e.old.as_ref().map(content), &content(dw)));
        }
        drafts
    }

    fn call<'m>(
        &self,
        find: impl Fn(&'static str) -> Option<Argument<'m>>,
        space: Option<Space<'m>>,
    ) -> GateBackwardCall<'m> {
        let found = |name| find(name).expect("every call has it");
        GateBackwardCall {
            dy: found("dy"),
            x: found("x"),
            z: found("z"),
            weight: found("weight"),
            rstd: find("rstd"),
            eps: self.forward.norm.eps,
            dx: found("dx"),
            dz: found("dz"),
            dw: find("dw"),
            workspace: space,
        }
    }
}

/// A forward call.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // named as the arguments
pub struct GateCall<'m> {
    pub x: Argument<'m>,
    pub z: Argument<'m>,
    pub weight: Argument<'m>,
    pub eps: f32,
    pub y: Argument<'m>,
    pub rstd: Option<Argument<'m>>,
}

impl<'m> GateCall<'m> {
    /// The views; refused when one of them is not possible.
    pub fn views(&self) -> Result<Forward<'m>> {
        Ok(Forward {
            x: self.x.view()?,
            z: self.z.view()?,
            weight: self.weight.view()?,
            eps: self.eps,
            y: self.y.view_mut()?,
            rstd: self.rstd.as_ref().map(Argument::view_mut).transpose()?,
        })
    }
}

impl Arguments for GateCall<'_> {
    type Op = SiluGateForward;

    fn lend<R>(&self, _: &Lane, act: impl FnOnce(Forward<'_>) -> Result<R>) -> Result<R> {
        act(self.views()?)
    }
}

/// A backward call.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // named as the arguments
pub struct GateBackwardCall<'m> {
    pub dy: Argument<'m>,
    pub x: Argument<'m>,
    pub z: Argument<'m>,
    pub weight: Argument<'m>,
    pub rstd: Option<Argument<'m>>,
    pub eps: f32,
    pub dx: Argument<'m>,
    pub dz: Argument<'m>,
    pub dw: Option<Argument<'m>>,
    pub workspace: Option<Space<'m>>,
}

impl<'m> GateBackwardCall<'m> {
    /// The views, without a workspace; refused when one of them is not possible.
    pub fn views(&self) -> Result<Backward<'m>> {
        Ok(Backward {
            dy: self.dy.view()?,
            x: self.x.view()?,
            z: self.z.view()?,
            weight: self.weight.view()?,
            rstd: self.rstd.as_ref().map(Argument::view).transpose()?,
            eps: self.eps,
            dx: self.dx.view_mut()?,
            dz: self.dz.view_mut()?,
            dw: self.dw.as_ref().map(Argument::view_mut).transpose()?,
            workspace: None,
        })
    }
}

impl Arguments for GateBackwardCall<'_> {
    type Op = SiluGateBackward;

    fn lend<R>(&self, lane: &Lane, act: impl FnOnce(Backward<'_>) -> Result<R>) -> Result<R> {
        let mut workspace = self.workspace.as_ref().map(|space| space.lend(lane)).transpose()?;
        act(Backward { workspace: workspace.as_mut(), ..self.views()? })
    }
}
