//! What an operator must say so that a [`Plan`](crate::Plan) can run it.

use crate::{Arch, DeviceInfo, Image, Kernel, Program, Result, Route, RouteTable};

/// What routing needs to know of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows, all leading dimensions together.
    pub rows: u32,
    /// Whether every tensor allows the loads of 16 bytes and the row addressing of tuned programs.
    pub vectors: bool,
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
    /// The routes for a specification: for tuned layouts (`vectors`) or for any layout.
    fn routes(spec: &Self::Spec, arch: Arch, vectors: bool) -> &'static RouteTable;
    /// The kernels of a program that serve a specification.
    fn kernels(spec: &Self::Spec, program: &'static Program) -> &'static [Kernel];
    /// Every program that can serve a specification on an architecture, chosen by routes or not.
    fn programs(spec: &Self::Spec, arch: Arch) -> Vec<&'static Program>;
    /// Dynamic shared memory of a kernel for a specification, in bytes.
    fn shared_bytes(spec: &Self::Spec, kernel: &Kernel) -> u32;
    /// Tells the kernels what the route decided beside the program. Without a route (a forced program) it is not called.
    fn follow(params: &mut Self::Params, route: &Route, device: &DeviceInfo);
    /// The image for an architecture.
    fn image(arch: Arch) -> Image;
    /// Runs the call on the host.
    ///
    /// # Safety
    /// `check` must have accepted the arguments for [`Place::Host`](crate::Place).
    unsafe fn host(spec: &Self::Spec, args: Self::Args<'_>);
}
