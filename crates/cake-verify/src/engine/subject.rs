//! What the engine has to know of an operator: how a case becomes tensors and a call.

use std::fmt;

use cake_core::{Dtype, Op};
use cake_rmsnorm::{RmsNormBackward, RmsNormForward};

use super::call::{Arguments, BackwardCall, Call};
use super::expected::{Expected, weight_halfwords};
use super::gradients::{GradientRow, Gradients};
use super::image::{Tensor, halfwords};
use super::memory::{Argument, Space};
use super::setup::Draft;
use crate::cases::layout::Layout;
use crate::cases::{BackwardCase, Case};

/// A case of some operator.
pub trait Subject: Clone + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// What is called.
    type Op: Op;
    /// Inputs and canonical outputs.
    type Expected: fmt::Debug;
    /// The call.
    type Call<'m>: Arguments<Op = Self::Op>;

    /// The forward, with what all cases have: rows, width, form.
    fn norm(&self) -> &Case;
    /// The same.
    fn norm_mut(&mut self) -> &mut Case;
    /// What the plan fixes.
    fn spec(&self) -> <Self::Op as Op>::Spec;
    /// Inputs and canonical outputs.
    fn expected(&self, seed: u64) -> Self::Expected;
    /// Those of one row as a call of its own.
    fn alone(&self, expected: &Self::Expected, row: usize) -> Self::Expected;
    /// The output whose elements have no one right bit pattern, if there is one.
    fn unordered(&self) -> Option<&'static str> {
        None
    }
    /// The tensors of the call.
    fn drafts(&self, expected: &Self::Expected) -> Vec<Draft>;
    /// The call, with the tensors that `find` knows by their names.
    fn call<'m>(&self, find: impl Fn(&'static str) -> Option<Argument<'m>>, space: Option<Space<'m>>)
    -> Self::Call<'m>;
}

impl Subject for Case {
    type Op = RmsNormForward;
    type Expected = Expected;
    type Call<'m> = Call<'m>;

    fn norm(&self) -> &Case {
        self
    }

    fn norm_mut(&mut self) -> &mut Case {
        self
    }

    fn spec(&self) -> cake_rmsnorm::Spec {
        self.spec
    }

    fn expected(&self, seed: u64) -> Expected {
        Expected::of(self, seed)
    }

    fn alone(&self, expected: &Expected, row: usize) -> Expected {
        expected.alone(row)
    }

    fn drafts(&self, e: &Expected) -> Vec<Draft> {
        let layouts = self.layouts;
        let x = Draft::input("x", activation(self, layouts.x), |row| &e.row(row).x);
        let residual = self.spec.residual.then(|| {
            let content = |row: usize| e.row(row).residual.as_deref().expect("the form has a residual");
            Draft::input("residual", activation(self, layouts.residual), content)
        });
        let mut drafts = Vec::new();
        if self.y_over_x {
            drafts.push(x.overwritten("y", |row| &e.row(row).y));
        } else {
            drafts.push(x);
            drafts.push(Draft::output("y", activation(self, layouts.y), |row| &e.row(row).y));
        }
        if let Some(residual) = residual {
            let h = |row: usize| e.row(row).h.as_deref().expect("the form has h");
            if self.h_over_residual {
                drafts.push(residual.overwritten("h", h));
            } else {
                drafts.push(residual);
                drafts.push(Draft::output("h", activation(self, layouts.h), h));
            }
        }
        drafts.extend(weight(self, e));
        if self.rstd {
            let rstd = rstd_of(e, |row| row.rstd);
            drafts.push(Draft::output("rstd", for_each_row(self), |row| &rstd[e.of_row[row] as usize]));
        }
        drafts
    }

    fn call<'m>(&self, find: impl Fn(&'static str) -> Option<Argument<'m>>, _: Option<Space<'m>>) -> Call<'m> {
        Call {
            x: find("x").expect("every call has x"),
            weight: find("weight"),
            eps: self.eps,
            residual: find("residual"),
            y: find("y").expect("every call has y"),
            h: find("h"),
            rstd: find("rstd"),
        }
    }
}

impl Subject for BackwardCase {
    type Op = RmsNormBackward;
    type Expected = Gradients;
    type Call<'m> = BackwardCall<'m>;

    fn norm(&self) -> &Case {
        &self.norm
    }

    fn norm_mut(&mut self) -> &mut Case {
        &mut self.norm
    }

    fn spec(&self) -> cake_rmsnorm::BackwardSpec {
        BackwardCase::spec(self)
    }

    fn expected(&self, seed: u64) -> Gradients {
        Gradients::of(self, seed)
    }

    fn alone(&self, expected: &Gradients, row: usize) -> Gradients {
        expected.alone(self, row)
    }

    fn unordered(&self) -> Option<&'static str> {
        (!self.deterministic).then_some("dw")
    }

    fn drafts(&self, e: &Gradients) -> Vec<Draft> {
        let (rows, norm, layouts) = (&e.rows, &self.norm, self.norm.layouts);
        let dx = |row: usize| &rows.row(row).dx[..];
        let mut drafts = vec![Draft::input("x", activation(norm, layouts.x), |row| &rows.row(row).x)];
        let dy = Draft::input("dy", activation(norm, layouts.dy), |row| &rows.row(row).dy);
        if self.dx_over_dy {
            drafts.push(dy.overwritten("dx", dx));
        } else {
            drafts.push(dy);
            drafts.extend(self.dx.then(|| Draft::output("dx", activation(norm, layouts.dx), dx)));
        }
        if self.dh() {
            let dh = |row: usize| rows.row(row).dh.as_deref().expect("the case has dh");
            drafts.push(Draft::input("dh", activation(norm, layouts.dh), dh));
        }
        drafts.extend(weight(norm, rows));
        if norm.rstd {
            let rstd = rstd_of(rows, |row: &GradientRow| row.rstd);
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
    ) -> BackwardCall<'m> {
        BackwardCall {
            dy: find("dy").expect("every call has dy"),
            x: find("x").expect("every call has x"),
            weight: find("weight"),
            rstd: find("rstd"),
            eps: self.norm.eps,
            dh: find("dh"),
            dx: find("dx"),
            dw: find("dw"),
            workspace: space,
        }
    }
}

/// A tensor of the case's rows.
pub(super) fn activation(case: &Case, layout: Layout) -> Tensor {
    Tensor::rows(Dtype::Bf16, layout.place(&case.lead, case.spec.width.into()))
}

/// `rstd`, one element for each of the case's rows.
pub(super) fn for_each_row(case: &Case) -> Tensor {
    let lead = if case.lead.is_empty() { &[1][..] } else { &case.lead };
    Tensor::one_for_each_row(Dtype::F32, case.layouts.rstd.place(lead, 1).without_columns())
}

/// The halfwords of each distinct row's `rstd`.
pub(super) fn rstd_of<R>(expected: &Expected<R>, bits: impl Fn(&R) -> u32) -> Vec<Vec<u16>> {
    expected.distinct.iter().map(|row| halfwords(&[bits(row)])).collect()
}

pub(super) fn weight<R>(case: &Case, expected: &Expected<R>) -> Option<Draft> {
    let (bits, dtype) = (expected.weight.as_ref()?, case.spec.weight?);
    let content = weight_halfwords(bits, dtype);
    let tensor = Tensor::rows(dtype, case.layouts.weight.place(&[], case.spec.width.into()));
    Some(Draft::input("weight", tensor, |_| &content))
}

/// `dw`: an output, or if it holds something before, an input that is overwritten.
pub(super) fn weight_gradient(case: &Case, dtype: Dtype, old: Option<Vec<u16>>, after: &[u16]) -> Draft {
    let tensor = Tensor::rows(dtype, case.layouts.dw.place(&[], case.spec.width.into()));
    match old {
        None => Draft::output("dw", tensor, |_| after),
        Some(old) => Draft::input("dw", tensor, |_| &old).overwritten("dw", |_| after),
    }
}
