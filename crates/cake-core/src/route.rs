//! Routes: which program serves how many rows, as tables that are checked when they compile.

use std::fmt;

use crate::{Arch, DeviceInfo, Dtype, Kernel};

/// What a route names: one schedule and geometry for each kind of weight, as one or two kernels launched in order.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Kernels for a BF16 weight.
    pub bf16: &'static [Kernel],
    /// Kernels for an FP32 weight.
    pub f32: &'static [Kernel],
    /// Kernels without a weight; empty if the program has no use without one.
    pub none: &'static [Kernel],
}

impl Program {
    /// The kernels for a weight dtype.
    pub const fn kernels(&self, weight: Option<Dtype>) -> &'static [Kernel] {
        match weight {
            Some(Dtype::F32) => self.f32,
            Some(_) => self.bf16,
            None => self.none,
        }
    }

    /// The kernels of every kind of weight.
    pub fn all(&'static self) -> impl Iterator<Item = &'static Kernel> {
        self.bf16.iter().chain(self.f32).chain(self.none)
    }
}

impl fmt::Display for Program {
    /// The name of the first kernel, BF16 weight.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bf16[0])
    }
}

/// One row of a [`RouteTable`].
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Most rows per SM that this route serves, rounded up.
    pub rows_per_sm: u32,
    /// What it runs.
    pub program: &'static Program,
    /// Rows, in halves of a row for each SM, that lie between the row a CTA works on and the one that it asks L2 to
    /// fetch; 0 fetches none. For a schedule whose CTAs walk through many rows, in halves of a row of its own.
    pub half_rows_ahead: u32,
    /// What was measured for it, and where; `untuned` if nothing was.
    pub evidence: &'static str,
}

impl Route {
    /// Serves up to `rows_per_sm` rows for each SM.
    pub const fn up_to(rows_per_sm: u32, program: &'static Program, evidence: &'static str) -> Route {
        Route { rows_per_sm, program, half_rows_ahead: 0, evidence }
    }

    /// Serves every larger number of rows.
    pub const fn rest(program: &'static Program, evidence: &'static str) -> Route {
        Route { rows_per_sm: u32::MAX, program, half_rows_ahead: 0, evidence }
    }

    /// The same route with a distance to fetch ahead.
    pub const fn half_rows_ahead(self, half_rows: u32) -> Route {
        Route { half_rows_ahead: half_rows, ..self }
    }

    /// [`Route::half_rows_ahead`] of all SMs of a device together, in rows.
    pub const fn rows_ahead(&self, device: &DeviceInfo) -> u32 {
        self.half_rows_ahead * device.sms / 2
    }
}

/// The routes of one width on one architecture: the first that is large enough serves a call.
#[derive(Clone, Copy, Debug)]
pub struct RouteTable {
    routes: &'static [Route],
}

impl RouteTable {
    /// A table for rows of `width` elements (`None`: of any width) on `arch`. In a `static` it does not compile unless
    /// it serves every number of rows, its windows grow, and each kernel has that width and runs on `arch`.
    ///
    /// ```
    #[doc = include_str!("route_example.txt")]
    /// static ROUTES: &[Route] = &[Route::up_to(8, &PROGRAM, "measured"), Route::rest(&PROGRAM, "measured")];
    /// static TABLE: RouteTable = RouteTable::new(Arch::Sm90, Some(512), ROUTES);
    /// assert_eq!(TABLE.route(&DeviceInfo::typical(Arch::Sm90), 1).rows_per_sm, 8);
    /// ```
    ///
    /// A last row is missing:
    ///
    /// ```compile_fail,E0080
    #[doc = include_str!("route_example.txt")]
    /// static ROUTES: &[Route] = &[Route::up_to(8, &PROGRAM, "measured")];
    /// static TABLE: RouteTable = RouteTable::new(Arch::Sm90, Some(512), ROUTES);
    /// ```
    ///
    /// The kernel is of another width:
    ///
    /// ```compile_fail,E0080
    #[doc = include_str!("route_example.txt")]
    /// static ROUTES: &[Route] = &[Route::rest(&PROGRAM, "measured")];
    /// static TABLE: RouteTable = RouteTable::new(Arch::Sm90, Some(1024), ROUTES);
    /// ```
    ///
    /// The kernel is newer than the architecture:
    ///
    /// ```compile_fail,E0080
    #[doc = include_str!("route_example.txt")]
    /// static ROUTES: &[Route] = &[Route::rest(&PROGRAM, "measured")];
    /// static TABLE: RouteTable = RouteTable::new(Arch::Sm89, Some(512), ROUTES);
    /// ```
    pub const fn new(arch: Arch, width: Option<u32>, routes: &'static [Route]) -> RouteTable {
        assert!(!routes.is_empty(), "a route table needs a route");
        let mut i = 0;
        while i < routes.len() {
            if i > 0 {
                assert!(routes[i - 1].rows_per_sm < routes[i].rows_per_sm, "the windows of a route table must grow");
            }
            let program = routes[i].program;
            assert!(
                !program.bf16.is_empty() && !program.f32.is_empty(),
                "a program needs a kernel for each kind of weight"
            );
            check(arch, width, program.bf16);
            check(arch, width, program.f32);
            check(arch, width, program.none);
            i += 1;
        }
        assert!(routes[routes.len() - 1].rows_per_sm == u32::MAX, "the last route of a table must be Route::rest");
        RouteTable { routes }
    }

    /// The route that serves `rows` rows on a device.
    pub fn route(&self, device: &DeviceInfo, rows: u32) -> &'static Route {
        let rows_per_sm = rows.div_ceil(device.sms);
        self.routes
            .iter()
            .find(|route| rows_per_sm <= route.rows_per_sm)
            .expect("new() checked that the table is total")
    }

    /// Every route, smallest window first.
    pub fn routes(&self) -> &'static [Route] {
        self.routes
    }
}

const fn check(arch: Arch, width: Option<u32>, kernels: &[Kernel]) {
    let mut i = 0;
    while i < kernels.len() {
        match (kernels[i].width, width) {
            (None, None) => {}
            (Some(kernel), Some(table)) => assert!(kernel == table, "a route names a kernel of another width"),
            _ => panic!("a route names a kernel of another width"),
        }
        assert!(kernels[i].runs_on(arch), "a route names a kernel that the architecture cannot run");
        i += 1;
    }
}
