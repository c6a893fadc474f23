//! Cases of the gated norm.

use std::fmt;

use cake_core::Dtype;
use cake_silu_gate::{Activation, BackwardSpec, Spec};

use super::values::Values;
use super::{Case, Form};

/// What a plan fixes besides width and weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateForm {
    /// What the gate is.
    pub activation: Activation,
    /// Whether it comes before the norm.
    pub first: bool,
}

impl GateForm {
    /// All four, the usual one first.
    pub const ALL: [GateForm; 4] = [
        GateForm { activation: Activation::Silu, first: false },
        GateForm { activation: Activation::Sigmoid, first: false },
        GateForm { activation: Activation::Silu, first: true },
        GateForm { activation: Activation::Sigmoid, first: true },
    ];
}

/// One forward call of the gated norm.
#[derive(Clone, Debug)]
pub struct GateCase {
    /// The norm: it has a weight, and neither an offset nor a residual. `values` are those of `x`.
    pub norm: Case,
    /// The gate.
    pub form: GateForm,
    /// What `z` holds.
    pub gates: Values,
    /// `y` is `z`, element for element; the layout of `z` serves both.
    pub y_over_z: bool,
}

impl GateCase {
    /// The plainest case.
    pub fn new(rows: u64, width: u32) -> GateCase {
        GateCase::of(Case::new(rows, width))
    }

    /// Of a norm.
    pub fn of(norm: Case) -> GateCase {
        GateCase { norm, form: GateForm::ALL[0], gates: Values::Normal, y_over_z: false }
    }

    /// With a weight of another dtype.
    pub fn weight(mut self, dtype: Dtype) -> GateCase {
        self.norm = self.norm.form(Form { weight: Some(dtype), ..Form::COMMON[0] });
        self
    }

    /// What the plan fixes.
    pub fn spec(&self) -> Spec {
        let GateForm { activation, first } = self.form;
        let weight = self.norm.spec.weight.expect("a gated norm has a weight");
        Spec { width: self.norm.spec.width, weight, activation, gate_first: first }
    }
}

/// One backward call of the gated norm.
#[derive(Clone, Debug)]
pub struct GateBackwardCase {
    /// The forward that it belongs to. `norm.rstd` says whether the call is given one, and the layouts are those of the
    /// backward's tensors.
    pub forward: GateCase,
    /// Dtype of `dw`, if the call asks for it.
    pub dw: Option<Dtype>,
    /// Whether `dw` is added to.
    pub accumulate: bool,
    /// Whether `dw` has one right bit pattern, or its terms are added up in any order.
    pub deterministic: bool,
    /// SMs that the plan may occupy.
    pub max_sms: Option<u32>,
    /// What `dy` holds.
    pub gradients: Values,
    /// `dx` is `dy`, element for element; the layout of `dy` serves both.
    pub dx_over_dy: bool,
    /// `dz` is `z`, likewise.
    pub dz_over_z: bool,
}

impl GateBackwardCase {
    /// The plainest case: all gradients, from the inputs alone.
    pub fn new(rows: u64, width: u32) -> GateBackwardCase {
        GateBackwardCase::of(GateCase::of(Case { rstd: false, ..Case::new(rows, width) }))
    }

    /// All gradients of a forward.
    pub fn of(forward: GateCase) -> GateBackwardCase {
        GateBackwardCase {
            forward,
            dw: Some(Dtype::F32),
            accumulate: false,
            deterministic: true,
            max_sms: None,
            gradients: Values::Normal,
            dx_over_dy: false,
            dz_over_z: false,
        }
    }

    /// What the plan fixes.
    pub fn spec(&self) -> BackwardSpec {
        let GateBackwardCase { ref forward, dw, accumulate, deterministic, max_sms, .. } = *self;
        BackwardSpec { norm: forward.spec(), rstd: forward.norm.rstd, dw, accumulate, deterministic, max_sms }
    }
}

impl fmt::Display for GateCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gate {}", self.norm)?;
        let GateForm { activation, first } = self.form;
        for (flag, text) in
            [(activation == Activation::Sigmoid, " sigmoid"), (first, " first"), (self.y_over_z, " y=z")]
        {
            f.write_str(if flag { text } else { "" })?;
        }
        if self.gates != Values::Normal {
            write!(f, " gates={:?}", self.gates)?;
        }
        Ok(())
    }
}

impl fmt::Display for GateBackwardCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backward {}", self.forward)?;
        if let Some(dtype) = self.dw {
            write!(f, " dw{}{dtype}", if self.accumulate { "+=" } else { "=" })?;
        }
        for (flag, text) in
            [(!self.deterministic, " any-order"), (self.dx_over_dy, " dx=dy"), (self.dz_over_z, " dz=z")]
        {
            f.write_str(if flag { text } else { "" })?;
        }
        if let Some(sms) = self.max_sms {
            write!(f, " max_sms={sms}")?;
        }
        if self.gradients != Values::Normal {
            write!(f, " gradients={:?}", self.gradients)?;
        }
        Ok(())
    }
}
