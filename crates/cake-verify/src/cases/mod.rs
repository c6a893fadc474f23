//! What is tried: cases as data, each with its reason. Nothing here runs anything.

pub mod gate;
pub mod groups;
pub mod layout;
pub mod random;
pub mod shapes;
pub mod values;

use cake_core::{Dtype, Shape};
use cake_rmsnorm::{BackwardSpec, CombineSpec, Spec};
use std::fmt;

use layout::Layout;
use values::{Values, Weights};

/// A call that allows every program, whatever its number of rows.
pub const ALIGNED: Shape = Shape { rows: 0, vectors: true, in_place: false };

/// One forward call.
#[derive(Clone, Debug)]
pub struct Case {
    /// What the plan fixes.
    pub spec: Spec,
    /// Leading dimensions; their product is the number of rows.
    pub lead: Vec<u64>,
    /// Whether the call asks for `rstd`.
    pub rstd: bool,
    /// Added to the mean of squares.
    pub eps: f32,
    /// What the rows hold.
    pub values: Values,
    /// What the weight holds.
    pub weights: Weights,
    /// Where the tensors lie.
    pub layouts: Layouts,
    /// `y` is `x`, element for element; the layout of `x` serves both.
    pub y_over_x: bool,
    /// `h` is `residual`, element for element; the layout of `residual` serves both.
    pub h_over_residual: bool,
    /// Rows repeat after this many distinct ones, a prime, so that large cases stay affordable: the host computes
    /// the distinct rows, and every row of the result is compared.
    pub distinct: u64,
}

/// A layout for each tensor of a call; a call has some of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // named as the arguments
pub struct Layouts {
    pub x: Layout,
    pub residual: Layout,
    pub y: Layout,
    pub h: Layout,
    pub rstd: Layout,
    pub weight: Layout,
    pub dy: Layout,
    pub dh: Layout,
    pub dx: Layout,
    pub dw: Layout,
    pub z: Layout,
    pub dz: Layout,
}

impl Layouts {
    /// The same layout everywhere.
    pub const fn all(layout: Layout) -> Layouts {
        Layouts {
            x: layout,
            residual: layout,
            y: layout,
            h: layout,
            rstd: layout,
            weight: layout,
            dy: layout,
            dh: layout,
            dx: layout,
            dw: layout,
            z: layout,
            dz: layout,
        }
    }
}

/// One backward call.
#[derive(Clone, Debug)]
pub struct BackwardCase {
    /// The forward that it belongs to. `rstd` says whether the call is given one, `values` are those of `x`, and the
    /// layouts are those of the backward's tensors.
    pub norm: Case,
    /// Whether the call asks for `dx`.
    pub dx: bool,
    /// Dtype of `dw`, if the call asks for it.
    pub dw: Option<Dtype>,
    /// Whether `dw` is added to.
    pub accumulate: bool,
    /// Whether `dw` has one right bit pattern, or its terms are added up in any order.
    pub deterministic: bool,
    /// SMs that the plan may occupy.
    pub max_sms: Option<u32>,
    /// What `dy` and `dh` hold.
    pub gradients: Values,
    /// `dx` is `dy`, element for element; the layout of `dy` serves both.
    pub dx_over_dy: bool,
}

impl BackwardCase {
    /// The plainest case: both gradients of [`Case::new`], from its `rstd`.
    pub fn new(rows: u64, width: u32) -> BackwardCase {
        BackwardCase::of(Case::new(rows, width))
    }

    /// Both gradients of a forward; without a weight only `dx`.
    pub fn of(norm: Case) -> BackwardCase {
        let dw = norm.spec.weight.map(|_| Dtype::F32);
        BackwardCase {
            norm,
            dx: true,
            dw,
            accumulate: false,
            deterministic: true,
            max_sms: None,
            gradients: Values::Normal,
            dx_over_dy: false,
        }
    }

    /// What the plan fixes.
    pub fn spec(&self) -> BackwardSpec {
        let BackwardCase { ref norm, dx, dw, accumulate, deterministic, max_sms, .. } = *self;
        BackwardSpec { norm: norm.spec, rstd: norm.rstd, dx, dw, accumulate, deterministic, max_sms }
    }

    /// Whether the call has a `dh`.
    pub fn dh(&self) -> bool {
        self.norm.spec.residual && self.dx
    }
}

impl Case {
    /// The plainest case: contiguous rows of ordinary numbers, bf16 weight, `rstd` asked for.
    pub fn new(rows: u64, width: u32) -> Case {
        Case {
            spec: Spec::new(width),
            lead: vec![rows],
            rstd: true,
            eps: 1e-6,
            values: Values::Normal,
            weights: Weights::Usual,
            layouts: Layouts::default(),
            y_over_x: false,
            h_over_residual: false,
            distinct: 61,
        }
    }

    /// The same with another form: weight, offset, residual.
    pub fn form(mut self, form: Form) -> Case {
        self.spec = Spec { width: self.spec.width, ..form.spec() };
        self
    }

    /// Rows in all.
    pub fn rows(&self) -> u64 {
        self.lead.iter().product()
    }

    /// Elements of an activation.
    pub fn elements(&self) -> u64 {
        self.rows() * u64::from(self.spec.width)
    }
}

/// A call that joins the weight gradients of row shards.
#[derive(Clone, Debug)]
pub struct CombineCase {
    /// Its rows are the shards, its layouts `x`, which is theirs, and `dw`; nothing else of it counts but the width.
    pub norm: Case,
    /// Dtype of `dw`.
    pub dw: Dtype,
    /// Whether `dw` is added to.
    pub accumulate: bool,
}

impl CombineCase {
    /// What the plan fixes.
    pub fn spec(&self) -> CombineSpec {
        CombineSpec { width: self.norm.spec.width, dw: self.dw, accumulate: self.accumulate }
    }
}

impl fmt::Display for CombineCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shards, width, layouts) = (self.norm.rows(), self.norm.spec.width, self.norm.layouts);
        write!(f, "combine {shards} shards h{width} dw{}{}", if self.accumulate { "+=" } else { "=" }, self.dw)?;
        for (name, layout) in [("shards", layouts.x), ("dw", layouts.dw)] {
            if layout != Layout::Contiguous {
                write!(f, " {name}:{layout:?}")?;
            }
        }
        Ok(())
    }
}

/// The forms of the operator: what a plan fixes besides the width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// Dtype of the weight.
    pub weight: Option<Dtype>,
    /// `1 + weight`.
    pub offset: bool,
    /// Residual form.
    pub residual: bool,
}

impl Form {
    /// All ten.
    pub const ALL: [Form; 10] = {
        let mut all = [Form { weight: None, offset: false, residual: false }; 10];
        let weights = [None, Some(Dtype::Bf16), Some(Dtype::F32), Some(Dtype::Bf16), Some(Dtype::F32)];
        let mut i = 0;
        while i < 10 {
            all[i] = Form { weight: weights[i / 2], offset: i >= 6, residual: i % 2 == 1 };
            i += 1;
        }
        all
    };

    /// The two of most models.
    pub const COMMON: [Form; 2] = [
        Form { weight: Some(Dtype::Bf16), offset: false, residual: false },
        Form { weight: Some(Dtype::Bf16), offset: false, residual: true },
    ];

    /// Of width 1.
    pub fn spec(self) -> Spec {
        Spec { weight: self.weight, offset: self.offset, residual: self.residual, ..Spec::new(1) }
    }
}

impl fmt::Display for Case {
    /// What sets the case apart, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lead = self.lead.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
        write!(f, "t{lead} h{}", self.spec.width)?;
        match self.spec.weight {
            Some(dtype) => write!(f, " w={}{dtype}", if self.spec.offset { "1+" } else { "" })?,
            None => f.write_str(" w=none")?,
        }
        for (flag, text) in [
            (self.spec.residual, " residual"),
            (!self.rstd, " no-rstd"),
            (self.y_over_x, " y=x"),
            (self.h_over_residual, " h=residual"),
        ] {
            f.write_str(if flag { text } else { "" })?;
        }
        if self.eps != 1e-6 {
            write!(f, " eps={:e}", self.eps)?;
        }
        if self.values != Values::Normal {
            write!(f, " {:?}", self.values)?;
        }
        if self.weights != Weights::Usual {
            write!(f, " weights={:?}", self.weights)?;
        }
        let Layouts { x, residual, y, h, rstd, weight, dy, dh, dx, dw, z, dz } = self.layouts;
        let forward = [("x", x), ("residual", residual), ("y", y), ("h", h), ("rstd", rstd), ("weight", weight)];
        let named = forward.into_iter().chain([("dy", dy), ("dh", dh), ("dx", dx), ("dw", dw), ("z", z), ("dz", dz)]);
        for (name, layout) in named {
            if layout != Layout::Contiguous {
                write!(f, " {name}:{layout:?}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for BackwardCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backward {}", self.norm)?;
        if let Some(dtype) = self.dw {
            write!(f, " dw{}{dtype}", if self.accumulate { "+=" } else { "=" })?;
        }
        for (flag, text) in [(!self.dx, " no-dx"), (!self.deterministic, " any-order"), (self.dx_over_dy, " dx=dy")] {
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
