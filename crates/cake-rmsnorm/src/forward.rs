//! The forward operator: argument checks, and the binding of a call to kernel parameters.

use cake_core::overlap::refuse_overlap;
use cake_core::rows;
use cake_core::{
    Arch, DeviceInfo, Dtype, Error, Image, Kernel, MAX_RANK, Op, Place, Program, RawView, Result, Route, RouteTable,
    Shape, sums,
};
use cake_kernels::rmsnorm::{self, ForwardParams, H, RESIDUAL, ROW_TENSORS, RSTD, RowTensor, TENSORS, WEIGHT, X, Y};

use crate::{Forward, Spec, host, routes};

/// RMSNorm forward: `y = bf16(x * rstd * w)`, `rstd = 1 / sqrt(mean(x^2) + eps)`, with `x` replaced by
/// `h = bf16(x + residual)` in the residual form.
#[derive(Debug)]
pub struct RmsNormForward;

/// Output pairs that may share memory, element for element; see docs/safety.md.
const IN_PLACE: &[(&str, &str)] = &[("y", "x"), ("h", "residual")];

#[allow(unsafe_code)] // promises what `Op` asks for
// SAFETY: `bind` copies addresses from views that `check` has accepted, the parameter block and the images are those of
// cake-kernels, and the kernels keep to the rows, columns and strides in it (docs/safety.md).
unsafe impl Op for RmsNormForward {
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
            None if spec.offset => Err(Error::Missing { argument: "weight", because: "the plan adds an offset to it" }),
            _ => Ok(()),
        }
    }

    fn check(spec: &Spec, place: Place, args: &Forward<'_>) -> Result<(Shape, ForwardParams)> {
        if !sums::rms::eps_is_valid(args.eps) {
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
        if columns != width {
            let expected = [lead, &[width]].concat();
            return Err(Error::Shape { argument: "x", expected, actual: x.shape().to_vec() });
        }
        let lead = if lead.is_empty() { &[1] } else { lead };
        for view in [Some(&x), Some(&y), residual.as_ref(), h.as_ref()].into_iter().flatten() {
            expect(view, place, Dtype::Bf16, x.shape())?;
        }
        if let Some(view) = &weight {
            expect(view, place, spec.weight.expect("argument() matched the weight with the plan"), &[width])?;
        }
        if let Some(view) = &rstd {
            expect(view, place, Dtype::F32, lead)?;
        }
        refuse_overlap(
            &[Some(&y), h.as_ref(), rstd.as_ref()],
            &[Some(&x), weight.as_ref(), residual.as_ref()],
            IN_PLACE,
        )?;

        let views = [Some(&x), residual.as_ref(), Some(&y), h.as_ref(), rstd.as_ref(), weight.as_ref()];
        bind(spec, lead, &views, args.eps)
    }

    fn routes(spec: &Spec, arch: Arch, vectors: bool) -> &'static RouteTable {
        routes::forward(spec, arch, vectors)
    }

    fn kernels(spec: &Spec, program: &'static Program) -> &'static [Kernel] {
        program.kernels(spec.weight)
    }

    fn programs(spec: &Spec, arch: Arch) -> Vec<&'static Program> {
        let forms = rmsnorm::FORWARD.iter().map(|forms| if spec.residual { &forms.residual } else { &forms.plain });
        forms.filter(|program| serves(&program.bf16[0], spec.width, arch)).collect()
    }

    fn shared_bytes(spec: &Spec, kernel: &Kernel) -> u32 {
        rmsnorm::forward_shared_bytes(kernel, spec.width)
    }

    fn follow(params: &mut ForwardParams, route: &Route, device: &DeviceInfo) {
        params.ahead = if params.levels == 1 { route.rows_ahead(device) } else { 0 };
    }

    fn image(arch: Arch) -> Image {
        cake_kernels::image(rmsnorm::OP, arch)
    }

    unsafe fn host(spec: &Spec, args: Forward<'_>) {
        // SAFETY: as the caller promises.
        unsafe { host::forward(spec, &args) };
    }
}

/// Whether a kernel of some width runs on an architecture and fits rows of `width`.
fn serves(kernel: &Kernel, width: u32, arch: Arch) -> bool {
    kernel.runs_on(arch) && kernel.width.is_none_or(|own| own == width)
}

/// An optional argument under its name, present exactly when the plan has use for it.
fn argument(name: &'static str, view: Option<&RawView>, wanted: bool) -> Result<Option<RawView>> {
    match (view, wanted) {
        (None, true) => Err(Error::Missing { argument: name, because: "the plan was made with it" }),
        (Some(_), false) => Err(Error::Unexpected { argument: name, because: "the plan was made without it" }),
        (view, _) => Ok(view.map(|view| view.named(name))),
    }
}

fn expect(view: &RawView, place: Place, dtype: Dtype, shape: &[u64]) -> Result<()> {
    let argument = view.argument;
    if view.place != place {
        return Err(Error::Place { argument, expected: place, actual: view.place });
    }
    if view.dtype != dtype {
        return Err(Error::Dtype { argument, expected: dtype.name(), actual: view.dtype });
    }
    if view.shape() != shape {
        return Err(Error::Shape { argument, expected: shape.to_vec(), actual: view.shape().to_vec() });
    }
    Ok(())
}

/// The call as routing and kernels see it. `views` are in the order of [`ForwardParams`].
fn bind(spec: &Spec, lead: &[u64], views: &[Option<&RawView>; TENSORS], eps: f32) -> Result<(Shape, ForwardParams)> {
    // rstd has the leading dimensions alone (or [1] beside one row), the others a last dimension too.
    let lead_strides: [[u64; MAX_RANK]; ROW_TENSORS] = std::array::from_fn(|t| {
        let mut strides = [0; MAX_RANK];
        let own = views[t].map_or(&[][..], |view| view.strides());
        let own = if t == RSTD { own } else { &own[..own.len().saturating_sub(1)] };
        strides[..own.len()].copy_from_slice(own);
        strides
    });
    let rows = rows::fold(lead, lead_strides.each_ref().map(|strides| &strides[..lead.len()]));
    let count = u32::try_from(rows.count).ok().filter(|&count| count <= i32::MAX as u32);
    let count = count.ok_or(Error::Size { argument: "x", expected: "at most 2^31 - 1 rows", actual: rows.count })?;

    let row_tensor = |t: usize| RowTensor {
        address: views[t].map_or(0, |view| view.address),
        pitch: rows.strides[t][0],
        outer: rows.strides[t][1],
    };
    let mut params = ForwardParams {
        y: row_tensor(Y),
        rstd: row_tensor(RSTD),
        x: row_tensor(X),
        residual: row_tensor(RESIDUAL),
        weight: views[WEIGHT].map_or(0, |view| view.address),
        rows: count,
        levels: rows.levels as u32,
        h: row_tensor(H),
        eps,
        offset: sums::rms::offset(spec.offset),
        ahead: 0,
        width: spec.width,
        sizes: rows.sizes.map(|size| size as u32),
        more: std::array::from_fn(|level| std::array::from_fn(|t| rows.strides[t][level + 2])),
        column: [0; TENSORS],
        vectors: 0,
    };
    for t in (0..TENSORS).filter(|&t| t != RSTD) {
        let Some(view) = views[t] else { continue };
        params.column[t] = *view.strides().last().expect("a view has a dimension");
        let steps = if t < ROW_TENSORS { &rows.strides[t][..] } else { &[] };
        let aligned = |bytes: u64| bytes.is_multiple_of(16);
        let vectors = (params.column[t] == 1 || spec.width == 1)
            && aligned(view.address)
            && steps.iter().all(|step| aligned(step * view.dtype.size() as u64));
        params.vectors |= u32::from(vectors) << t;
    }
    let present = (0..TENSORS).filter(|&t| t != RSTD && views[t].is_some());
    let vectors = rows.levels <= 2 && present.into_iter().all(|t| params.vectors >> t & 1 == 1);
    Ok((Shape { rows: count, vectors }, params))
}
