//! Plans: everything about a call that does not change from one call to the next.

use std::fmt;
use std::sync::OnceLock;

use crate::driver::{self, Function};
use crate::{Device, DeviceInfo, Error, Op, Place, Program, Result, Shape, Stream};

/// One operator specification on one device, or on the host. Cheap calls: a call checks its arguments, looks up the
/// route and launches.
pub struct Plan<O: Op> {
    spec: O::Spec,
    device: Option<Device>,
    forced: Option<&'static Program>,
    launches: OnceLock<Vec<Launch>>,
}

/// A program of this plan, ready to launch.
struct Launch {
    program: &'static Program,
    kernels: Vec<(&'static crate::Kernel, Function)>,
}

impl<O: Op> Plan<O> {
    /// A plan for calls on `device`. Loads nothing yet.
    pub fn new(device: &Device, spec: O::Spec) -> Result<Self> {
        O::check_spec(&spec)?;
        Ok(Plan { spec, device: Some(device.clone()), forced: None, launches: OnceLock::new() })
    }

    /// A plan for calls on host memory: the same bits without a GPU.
    pub fn host(spec: O::Spec) -> Result<Self> {
        O::check_spec(&spec)?;
        Ok(Plan { spec, device: None, forced: None, launches: OnceLock::new() })
    }

    /// For tests and debugging: a plan that runs only one program, named by any of its kernels, whatever the
    /// routes say.
    pub fn forced(device: &Device, spec: O::Spec, name: &str) -> Result<Self> {
        let mut plan = Self::new(device, spec)?;
        let programs = O::programs(&plan.spec, device.info().arch);
        let found = programs.iter().find(|program| program.all().any(|kernel| kernel.to_string() == name)).copied();
        plan.forced = Some(found.ok_or_else(|| Error::Program {
            name: name.into(),
            detail: format!(
                "expected one of {} for this specification",
                programs.iter().map(|program| program.to_string()).collect::<Vec<_>>().join(", ")
            ),
        })?);
        Ok(plan)
    }

    /// What the plan was made for.
    pub fn spec(&self) -> &O::Spec {
        &self.spec
    }

    /// Where the plan's tensors live.
    pub fn place(&self) -> Place {
        self.device.as_ref().map_or(Place::Host, |device| Place::Cuda(device.info().ordinal))
    }

    /// Loads the image and the functions now, so that later calls may be captured into a graph.
    pub fn warm_up(&self) -> Result<()> {
        match &self.device {
            Some(device) => self.launches(device, None).map(drop),
            None => Ok(()),
        }
    }

    /// Runs the operator on the host; the results are complete when it returns.
    pub fn run_host(&self, args: O::Args<'_>) -> Result<()> {
        if let Some(device) = &self.device {
            return Err(Error::Place {
                argument: "plan",
                expected: Place::Host,
                actual: Place::Cuda(device.info().ordinal),
            });
        }
        let (shape, _) = O::check(&self.spec, Place::Host, &args)?;
        if !O::is_idle(&self.spec, shape) {
            #[allow(unsafe_code)] // the one call of a function that trusts `check`
            // SAFETY: `check` has accepted these arguments for the host.
            unsafe {
                O::host(&self.spec, args)
            };
        }
        Ok(())
    }

    /// Bytes of the workspace that serves every call of up to `rows` rows; 0 if none is needed.
    pub fn workspace_bytes(&self, rows: u32) -> u64 {
        let Some(device) = &self.device else { return 0 };
        match self.forced {
            Some(program) => O::workspace_for_up_to(&self.spec, program, rows, device.info()),
            None => Self::workspace_bytes_on(device.info(), &self.spec, rows),
        }
    }

    /// What [`workspace_bytes`](Plan::workspace_bytes) says of a plan on such a device, asked without one.
    pub fn workspace_bytes_on(info: &DeviceInfo, spec: &O::Spec, rows: u32) -> u64 {
        let shapes = [(true, false), (true, true), (false, false)];
        let tables = shapes.map(|(vectors, in_place)| O::routes(spec, info.arch, Shape { rows, vectors, in_place }));
        let routes = tables.iter().flat_map(|table| {
            let last = table.route(info, rows);
            table.routes().iter().filter(|route| route.rows_per_sm <= last.rows_per_sm)
        });
        routes.map(|route| O::workspace_for_up_to(spec, route.program, rows, info)).max().unwrap_or(0)
    }

    /// Queues the operator on `stream`, in order with the stream's other work, and returns without waiting for it. No
    /// memory is allocated, set or copied by a call.
    pub fn run(&self, stream: &Stream, mut args: O::Args<'_>) -> Result<()> {
        let Some(device) = &self.device else {
            return Err(Error::Place { argument: "stream", expected: Place::Host, actual: stream.place() });
        };
        if stream.place() != self.place() {
            return Err(Error::Place { argument: "stream", expected: self.place(), actual: stream.place() });
        }
        let (shape, mut params) = O::check(&self.spec, self.place(), &args)?;
        if O::is_idle(&self.spec, shape) {
            return Ok(());
        }
        let program = self.program(device, shape, &mut params)?;
        let needed = O::workspace_bytes(&self.spec, program, shape.rows, device.info());
        if needed > 0 {
            let workspace = O::workspace(&mut args);
            let workspace =
                workspace.ok_or(Error::Missing { argument: "workspace", because: "the program needs one" })?;
            O::lend(&mut params, workspace.lend(stream, needed)?);
        }
        let launches = self.launches(device, Some(stream))?;
        let launch = launches.iter().find(|launch| std::ptr::eq(launch.program, program));
        let launch = launch.expect("launches() readies every program of the plan");
        let current = device.make_current()?;
        for (kernel, function) in &launch.kernels {
            let (threads, shared) = (kernel.threads(), O::shared_bytes(&self.spec, kernel, Some(&params)));
            let mut grid = O::grid(kernel, &params);
            let sms = device.info().sms;
            if kernel.cooperative && grid > sms {
                grid = grid.min(driver::ctas_per_sm(&current, *function, threads, shared)? * sms);
            }
            let size = driver::Size { grid, threads, shared };
            driver::launch(&current, stream.handle(), *function, size, kernel.cooperative, &params)?;
        }
        Ok(())
    }

    /// The program that serves a shape on this plan's device.
    fn program(&self, device: &Device, shape: Shape, params: &mut O::Params) -> Result<&'static Program> {
        let Some(program) = self.forced else {
            let table = O::routes(&self.spec, device.info().arch, shape);
            let route = table.route(device.info(), shape.rows);
            O::follow(&self.spec, params, route.program, Some(route), device.info());
            return Ok(route.program);
        };
        O::follow(&self.spec, params, program, None, device.info());
        if let Some(obstacle) = O::obstacle(&self.spec, program, shape) {
            return Err(Error::Program { name: program.to_string(), detail: obstacle.into() });
        }
        Ok(program)
    }

    /// Every program of the plan with its functions, loaded on first use.
    fn launches(&self, device: &Device, stream: Option<&Stream>) -> Result<&Vec<Launch>> {
        if let Some(launches) = self.launches.get() {
            return Ok(launches);
        }
        let info = device.info();
        if let Some(stream) = stream
            && stream.is_capturing()?
        {
            return Err(Error::WarmUpNeeded { op: O::NAME, ordinal: info.ordinal });
        }
        let image = device.load(O::image(info.arch))?;
        let mut launches = Vec::new();
        for program in O::programs(&self.spec, info.arch) {
            let mut kernels = Vec::new();
            for kernel in O::kernels(&self.spec, program) {
                let shared = O::shared_bytes(&self.spec, kernel, None) > 0;
                kernels.push((kernel, image.function(&kernel.to_string(), shared)?));
            }
            launches.push(Launch { program, kernels });
        }
        Ok(self.launches.get_or_init(|| launches))
    }
}

impl<O: Op> fmt::Display for Plan<O> {
    /// One line: where, what, and which program serves which number of rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", O::NAME, self.place())?;
        let Some(device) = &self.device else { return Ok(()) };
        if let Some(program) = self.forced {
            return write!(f, ": forced {program}");
        }
        let info = device.info();
        for (label, vectors) in [("", true), ("; other layouts", false)] {
            write!(f, "{label}:")?;
            let shape = Shape { rows: 0, vectors, in_place: false };
            for route in O::routes(&self.spec, info.arch, shape).routes() {
                let name = O::kernels(&self.spec, route.program)[0].to_string();
                match route.rows_per_sm {
                    u32::MAX => write!(f, " {name}")?,
                    most => write!(f, " {name} to {} rows,", u64::from(most) * u64::from(info.sms))?,
                }
            }
        }
        Ok(())
    }
}
