//! What an operator must say so that a [`Plan`](crate::Plan) can run it.

use crate::{Arch, DeviceInfo, Image, Kernel, Program, Result, Route, RouteTable, Workspace};

/// What routing needs to know of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows, all leading dimensions together.
    pub rows: u32,
    /// Whether every tensor allows the loads of 16 bytes and the row addressing of tuned programs.
    pub vectors: bool,
    /// Whether an output takes the place of an input.
    pub in_place: bool,
}

/// An operator: checks arguments, names its programs, binds a call to a kernel's parameters.
///
/// `Plan` asks these questions in this order for each call; none of them touches a device.
///
/// # Safety
/// `Plan` launches what an implementation returns. So the addresses in `Params` must be those of views that `check` has
/// accepted, and the kernels must stay within those views for every shape that `check` lets through; the parameter block
/// must be the one that the kernels take; `image` must be an image that was compiled from them; and the views in
/// `Args` must live for `'a`.
#[allow(unsafe_code)] // declares the contract
pub unsafe trait Op: Send + Sync + 'static {
    /// What a plan fixes: width, dtypes, flags.
    type Spec: Clone + std::fmt::Debug + PartialEq + Send + Sync;
    /// The views and scalars of one call.
    type Args<'a>;
    /// The parameter block of the kernels, passed by value.
    type Params: Copy;

    /// Operator name, as in kernel names.
    const NAME: &'static str;

    /// Refuses a specification that no program serves.
    fn check_spec(spec: &Self::Spec) -> Result<()>;
    /// Refuses bad arguments; otherwise the shape and the kernel parameters. Looks at addresses, never through them.
    fn check(spec: &Self::Spec, place: crate::Place, args: &Self::Args<'_>) -> Result<(Shape, Self::Params)>;
    /// The routes for a specification and a shape, whatever its number of rows.
    fn routes(spec: &Self::Spec, arch: Arch, shape: Shape) -> &'static RouteTable;
    /// Why a program cannot serve a shape, if it cannot; routes name none that cannot.
    fn obstacle(spec: &Self::Spec, program: &'static Program, shape: Shape) -> Option<&'static str> {
        let vectors = Self::kernels(spec, program).iter().any(|kernel| kernel.vectors);
        (vectors && !shape.vectors).then_some("needs 16-byte aligned rows with at most two levels of row strides")
    }
    /// The kernels of a program that serve a specification.
    fn kernels(spec: &Self::Spec, program: &'static Program) -> &'static [Kernel];
    /// Every program that can serve a specification on an architecture, chosen by routes or not.
    fn programs(spec: &Self::Spec, arch: Arch) -> Vec<&'static Program>;
    /// Dynamic shared memory in bytes: what a kernel needs for a call, or without one the most that it has use for.
    fn shared_bytes(spec: &Self::Spec, kernel: &Kernel, params: Option<&Self::Params>) -> u32;
    /// CTAs that a call has work for. A cooperative kernel gets fewer if fewer fit the device at once.
    fn grid(kernel: &Kernel, params: &Self::Params) -> u32;
    /// Tells the kernels what the program and the device decide, and the route if there is one: a forced program has none.
    fn follow(
        spec: &Self::Spec,
        params: &mut Self::Params,
        program: &Program,
        route: Option<&Route>,
        device: &DeviceInfo,
    );
    /// Whether a call has nothing to write.
    fn is_idle(_spec: &Self::Spec, shape: Shape) -> bool {
        shape.rows == 0
    }
    /// Bytes of workspace that a program needs for so many rows; 0 if it needs none.
    fn workspace_bytes(_spec: &Self::Spec, _program: &Program, _rows: u32, _device: &DeviceInfo) -> u64 {
        0
    }
    /// Bytes of workspace that serve every number of rows up to `rows`.
    fn workspace_for_up_to(spec: &Self::Spec, program: &Program, rows: u32, device: &DeviceInfo) -> u64 {
        Self::workspace_bytes(spec, program, rows, device)
    }
    /// The workspace among the arguments.
    fn workspace<'b>(_args: &'b mut Self::Args<'_>) -> Option<&'b mut Workspace> {
        None
    }
    /// Tells the kernels where the workspace is.
    fn lend(_params: &mut Self::Params, _address: u64) {}
    /// The image for an architecture.
    fn image(arch: Arch) -> Image;
    /// Runs the call on the host.
    ///
    /// # Safety
    /// `check` must have accepted the arguments for [`Place::Host`](crate::Place).
    unsafe fn host(spec: &Self::Spec, args: Self::Args<'_>);
}
