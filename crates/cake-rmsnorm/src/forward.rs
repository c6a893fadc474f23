//! The forward operator: argument checks, and the binding of a call to kernel parameters.

use cake_core::overlap::refuse_overlap;
use cake_core::rows::{self, Rows};
use cake_core::{
    Arch, DeviceInfo, Dtype, Error, Image, Kernel, Op, Place, Program, RawView, Result, RouteTable, Shape,
};
use cake_kernels::rmsnorm::{self, ForwardParams, Tensor};

use crate::{Forward, Spec, host, routes};

/// RMSNorm forward: `y = bf16(x * rstd * w)`, `rstd = 1 / sqrt(mean(x^2) + eps)`, with `x` replaced by
/// `h = bf16(x + residual)` in the residual form.
#[derive(Debug)]
pub struct RmsNormForward;

/// Output pairs that may share memory, element for element; see docs/safety.md.
const IN_PLACE: &[(&str, &str)] = &[("y", "x"), ("h", "residual")];

impl Op for RmsNormForward {
    type Spec = Spec;
    type Args<'a> = Forward<'a>;
    type Params = ForwardParams;

    const NAME: &'static str = "rmsnorm_fwd";

    fn check_spec(spec: &Spec) -> Result<()> {
        if spec.width == 0 {
            return Err(Error::Size { argument: "width", expected: "1 or more", actual: 0 });
        }
        match spec.weight {
            Some(actual @ Dtype::F16) => Err(Error::Dtype { argument: "weight", expected: "bf16 or f32", actual }),
            None if spec.offset => {
                Err(Error::Missing { argument: "weight", because: "the plan adds an offset to it" })
            }
            _ => Ok(()),
        }
    }

    fn check(spec: &Spec, place: Place, args: &Forward<'_>) -> Result<(Shape, ForwardParams)> {
        if !(args.eps.is_finite() && args.eps >= 0.0) {
            let actual = args.eps.into();
            return Err(Error::Value { argument: "eps", expected: "a finite number, 0 or more", actual });
        }
        let x = args.x.raw().named("x");
        let y = args.y.raw().named("y");
        let weight = argument("weight", args.weight.as_ref().map(|v| v.raw()), spec.weight.is_some())?;
        let residual = argument("residual", args.residual.as_ref().map(|v| v.raw()), spec.residual)?;
        let h = argument("h", args.h.as_ref().map(|v| v.raw()), spec.residual)?;
        let rstd = args.rstd.as_ref().map(|v| v.raw().named("rstd"));

        let width = u64::from(spec.width);
        let (&columns, lead) = x.shape().split_last().expect("a view has a dimension");
        let lead = if lead.is_empty() { &[1] } else { lead };
        if columns != width {
            let expected = [lead, &[width]].concat();
            return Err(Error::Shape { argument: "x", expected, actual: x.shape().to_vec() });
        }
        for view in [Some(&x), Some(&y), residual.as_ref(), h.as_ref()].into_iter().flatten() {
            expect(view, place, Dtype::Bf16, "bf16", x.shape())?;
        }
        if let Some(view) = &weight {
            let dtype = spec.weight.expect("argument() matched the weight with the plan");
            expect(view, place, dtype, if dtype == Dtype::F32 { "f32" } else { "bf16" }, &[width])?;
        }
        if let Some(view) = &rstd {
            expect(view, place, Dtype::F32, "f32", lead)?;
        }
        let outputs: Vec<&RawView> = [Some(&y), h.as_ref(), rstd.as_ref()].into_iter().flatten().collect();
        let inputs: Vec<&RawView> = [Some(&x), weight.as_ref(), residual.as_ref()].into_iter().flatten().collect();
        refuse_overlap(&outputs, &inputs, IN_PLACE)?;

        let views = [Some(&x), residual.as_ref(), Some(&y), h.as_ref()];
        let strides = |view: Option<&RawView>| -> [u64; 6] {
            let mut strides = [0; 6];
            if let Some(view) = view {
                let own = view.strides();
                let own = if own.len() > lead.len() { &own[..own.len() - 1] } else { own };
                strides[..own.len()].copy_from_slice(own);
            }
            strides
        };
        let all: [[u64; 6]; 5] = [
            strides(views[0]),
            strides(views[1]),
            strides(views[2]),
            strides(views[3]),
            rstd.as_ref().map_or([0; 6], |view| {
                let mut strides = [0; 6];
                strides[..lead.len()].copy_from_slice(view.strides());
                strides
            }),
        ];
        let rows: Rows<5> = rows::fold(lead, all.each_ref().map(|s| &s[..lead.len()]));
        todo!()
    }

    fn routes(spec: &Spec, arch: Arch, vectors: bool) -> &'static RouteTable {
        routes::forward(spec, arch, vectors)
    }

    fn kernels(spec: &Spec, program: &'static Program) -> &'static [Kernel] {
        program.kernels(spec.weight.unwrap_or(Dtype::Bf16))
    }

    fn programs(spec: &Spec, arch: Arch) -> Vec<&'static Program> {
        todo!()
    }

    fn shared_bytes(spec: &Spec, kernel: &Kernel, device: &DeviceInfo) -> u32 {
        todo!()
    }

    fn image(arch: Arch) -> Image {
        cake_kernels::image(rmsnorm::OP, arch)
    }

    fn host(spec: &Spec, args: Forward<'_>) {
        host::forward(spec, args);
    }
}
