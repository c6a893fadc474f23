//! Joining the weight gradients of row shards: the rest of the row tree.

use cake_core::bind::{expect, expect_some, expect_weight_dtype};
use cake_core::overlap::refuse_overlap;
use cake_core::{
    Arch, DeviceInfo, Dtype, Error, Image, Kernel, Op, Place, Program, Result, Route, RouteTable, Shape, TensorView,
    TensorViewMut,
};
use cake_kernels::RowTensor;
use cake_kernels::rmsnorm::{self, BackwardParams, backward};

use crate::host;

/// What a plan that joins weight gradients fixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CombineSpec {
    /// Elements of a weight gradient, H >= 1.
    pub width: u32,
    /// Dtype of the result, FP32 or BF16.
    pub dw: Dtype,
    /// Adds to what `dw` holds: `dw = round(dw + sum)`, the addition in FP32.
    pub accumulate: bool,
}

/// Arguments of the join.
///
/// Row `s` of `shards` is the FP32 `dw`, not accumulated, of the s-th shard of the rows. All shards have the same number of
/// rows, 8 times a power of two, but for the last ones, which may have fewer or none. The result has the bits of the
/// `dw` of all rows at once: what one GPU would have computed.
#[derive(Debug)]
pub struct Combine<'a> {
    /// FP32 `[S, H]`.
    pub shards: TensorView<'a>,
    /// Output `[H]` of the plan's dtype. Zeros where there are no shards.
    pub dw: TensorViewMut<'a>,
}

/// `dw` of all rows from the `dw` of shards of the rows.
#[derive(Debug)]
pub struct CombineDw;

#[allow(unsafe_code)] // promises what `Op` asks for
// SAFETY: `check` copies addresses from views that it has accepted, the parameter block and the images are those of
// cake-kernels, and the kernel keeps to the rows, columns and strides in it (docs/safety.md).
unsafe impl Op for CombineDw {
    type Spec = CombineSpec;
    type Args<'a> = Combine<'a>;
    type Params = BackwardParams;

    const NAME: &'static str = "rmsnorm_combine_dw";

    fn check_spec(spec: &CombineSpec) -> Result<()> {
        expect_some("width", spec.width)?;
        expect_weight_dtype("dw", spec.dw)
    }

    fn check(spec: &CombineSpec, place: Place, args: &Combine<'_>) -> Result<(Shape, BackwardParams)> {
        let (shards, dw) = (args.shards.raw().named("shards"), args.dw.raw().named("dw"));
        let &[count, _] = shards.shape() else {
            return Err(Error::Rank { argument: "shards", expected: "2", actual: shards.shape().len() });
        };
        expect(&shards, place, Dtype::F32, &[count, spec.width.into()])?;
        expect(&dw, place, spec.dw, &[spec.width.into()])?;
        refuse_overlap(&[Some(&dw)], &[Some(&shards)], &[])?;
        let rows = u32::try_from(count).ok().filter(|&rows| rows <= i32::MAX as u32);
        let rows = rows.ok_or(Error::Size { argument: "shards", expected: "at most 2^31 - 1", actual: count })?;
        let mut params = BackwardParams {
            x: RowTensor { address: shards.address, pitch: shards.strides()[0], outer: 0 },
            dw: dw.address,
            rows,
            levels: 1,
            width: spec.width,
            dw_fp32: u32::from(spec.dw == Dtype::F32),
            accumulate: u32::from(spec.accumulate),
            ..BackwardParams::default()
        };
        params.column[backward::X] = shards.strides()[1];
        params.column[backward::DW] = dw.strides()[0];
        Ok((Shape { rows, vectors: true, in_place: false }, params))
    }

    fn routes(_: &CombineSpec, _: Arch, _: Shape) -> &'static RouteTable {
        static ROUTES: &[Route] = &[Route::rest(&rmsnorm::JOIN, "a few columns for each thread")];
        static TABLE: RouteTable = RouteTable::new(Arch::Sm80, None, ROUTES);
        &TABLE
    }

    fn kernels(_: &CombineSpec, program: &'static Program) -> &'static [Kernel] {
        program.bf16
    }

    fn programs(_: &CombineSpec, _: Arch) -> Vec<&'static Program> {
        vec![&rmsnorm::JOIN]
    }

    fn shared_bytes(_: &CombineSpec, kernel: &Kernel, params: Option<&BackwardParams>) -> u32 {
        let shards = params.map_or(i32::MAX as u32, |params| params.rows);
        4 * kernel.threads() * shards.max(1).next_power_of_two().ilog2()
    }

    fn grid(kernel: &Kernel, params: &BackwardParams) -> u32 {
        params.width.div_ceil(kernel.threads())
    }

    fn follow(_: &CombineSpec, _: &mut BackwardParams, _: &Program, _: Option<&Route>, _: &DeviceInfo) {}

    fn is_idle(spec: &CombineSpec, shape: Shape) -> bool {
        shape.rows == 0 && spec.accumulate
    }

    fn image(arch: Arch) -> Image {
        cake_kernels::image(rmsnorm::OP, arch)
    }

    unsafe fn host(spec: &CombineSpec, args: Combine<'_>) {
        // SAFETY: as the caller promises.
        unsafe { host::combine(spec, &args) };
    }
}
