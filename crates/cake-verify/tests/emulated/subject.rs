//! Cases of any operator on the host: every program, all CTAs at once where they wait for each other.
#![allow(unsafe_code)] // hands the kernels the addresses of a case's tensors, see `launch`

use cake_core::{Arch, DeviceInfo, Kernel, Op, Place, Program, Route, Workspace};
use cake_verify::cases::random::DEFAULT_SEED;
use cake_verify::engine::call::Arguments;
use cake_verify::engine::setup::Setup;
use cake_verify::engine::subject::Subject;
use cake_verify::engine::target::Target;
use rayon::prelude::*;

use super::emulator::{Emulator, ORDERS, Size, Window};

/// Elements and rows of the largest case: a thread of a GPU is worth some microseconds here.
const MOST_ELEMENTS: u64 = 1 << 16;
const MOST_ROWS: u64 = 130;

/// Judges the affordable ones of some cases; returns the launches.
pub(crate) fn judge<C: Subject>(op: &'static str, cases: impl Iterator<Item = C>) -> usize {
    let affordable = |case: &C| case.norm().elements() <= MOST_ELEMENTS && case.norm().rows() <= MOST_ROWS;
    judge_on(op, &cases.filter(affordable).collect::<Vec<C>>(), 3, |_, _| 0)
}

/// Judges cases on a device of so many SMs; `change` may change the parameters, and says how many more bytes of
/// workspace the kernel needs then.
pub(crate) fn judge_on<C: Subject>(
    op: &'static str,
    cases: &[C],
    sms: u32,
    change: impl Fn(&mut <C::Op as Op>::Params, &Kernel) -> u64 + Sync,
) -> usize {
    let emulator = Emulator::new(op);
    let device = DeviceInfo { sms, ..DeviceInfo::typical(Arch::Sm90) };
    let judged = cases.par_iter().enumerate().map(|(turn, case)| {
        judge_case(&emulator, case, &device, turn, &change).map_err(|problem| format!("[{case}] {problem}"))
    });
    let judged: Vec<Result<usize, String>> = judged.collect();
    let failures: Vec<&String> = judged.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(failures.is_empty(), "{} of {} cases, first {}", failures.len(), cases.len(), failures[0]);
    judged.into_iter().flatten().sum()
}

/// Runs a case by every program that can serve it, in orders of threads and with distances of fetching ahead that change from
/// program to program and with `turn`.
fn judge_case<C: Subject>(
    emulator: &Emulator,
    case: &C,
    device: &DeviceInfo,
    turn: usize,
    change: &impl Fn(&mut <C::Op as Op>::Params, &Kernel) -> u64,
) -> Result<usize, String> {
    let setup = Setup::new(case, &Target::Host, DEFAULT_SEED).map_err(|error| error.to_string())?;
    judge_setup(emulator, &setup, device, turn, change)
}

/// The same of a case that is ready.
pub(crate) fn judge_setup<C: Subject>(
    emulator: &Emulator,
    setup: &Setup<C>,
    device: &DeviceInfo,
    turn: usize,
    change: &impl Fn(&mut <C::Op as Op>::Params, &Kernel) -> u64,
) -> Result<usize, String> {
    let text = |error: cake_core::Error| error.to_string();
    let mut launches = 0;
    for program in C::Op::programs(&setup.case.spec(), device.arch) {
        setup.reset().map_err(text)?;
        if !launch(emulator, setup, program, device, turn + launches, change)? {
            continue;
        }
        if let Some(difference) = setup.differences(setup.outputs().map_err(text)?).first() {
            return Err(format!("{program}, order {}: {difference}", ORDERS[(turn + launches) % ORDERS.len()]));
        }
        launches += 1;
    }
    let changes = setup.input_changes().map_err(text)?;
    changes.first().map_or(Ok(launches), |change| Err(format!("input {change}")))
}

/// Runs a program, unless it cannot serve the case or has nothing to do.
fn launch<C: Subject>(
    emulator: &Emulator,
    setup: &Setup<C>,
    program: &'static Program,
    device: &DeviceInfo,
    turn: usize,
    change: &impl Fn(&mut <C::Op as Op>::Params, &Kernel) -> u64,
) -> Result<bool, String> {
    let spec = setup.case.spec();
    let kernel = &C::Op::kernels(&spec, program)[0];
    let (shape, mut params) = setup
        .call()
        .lend(&setup.lane, |args| C::Op::check(&spec, Place::Host, &args))
        .map_err(|error| error.to_string())?;
    if C::Op::is_idle(&spec, shape) || C::Op::obstacle(&spec, program, shape).is_some() {
        return Ok(false);
    }
    let route = Route::rest(program, "forced").half_rows_ahead(2 * (turn as u32 % 3));
    C::Op::follow(&spec, &mut params, program, Some(&route), device);
    // Exactly what is asked for, poisoned but for the header.
    let bytes = C::Op::workspace_bytes(&spec, program, shape.rows, device) + change(&mut params, kernel);
    let mut workspace = vec![Poison([0xff; 16]); bytes.div_ceil(16) as usize];
    workspace.iter_mut().take(Workspace::HEADER as usize / 16).for_each(|poison| poison.0 = [0; 16]);
    let address = workspace.as_mut_ptr().expose_provenance() as u64;
    C::Op::lend(&mut params, address);

    let window = |((first, last), writable): ((u64, u64), bool)| Window {
        first,
        last,
        memory: first,
        writable: writable.into(),
    };
    let mut windows: Vec<Window> = setup.ranges().map(window).collect();
    windows.push(window(((address, address + 16 * workspace.len() as u64), true)));
    let shared = C::Op::shared_bytes(&spec, kernel, Some(&params));
    let size = Size { grid: C::Op::grid(kernel, &params), shared, order: ORDERS[turn % ORDERS.len()] };
    // SAFETY: these are the kernel's parameters; `setup` and `workspace` hold the windows' memory.
    let ran = unsafe { emulator.run(kernel, &params, size, &windows) };
    ran.map_err(|fault| format!("{kernel}, {size:?}: {fault}"))?;

    // The barrier's word rests with its bit 31 either way.
    let header = workspace.iter().take(Workspace::HEADER as usize / 16).flat_map(|poison| poison.0);
    if header.enumerate().any(|(i, byte)| byte & !(if i == 3 { 0x80 } else { 0 }) != 0) {
        return Err(format!("{kernel}, {size:?}: the header is not at rest"));
    }
    Ok(true)
}

/// Sixteen bytes of a workspace, which is aligned to 256 on a device.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Poison([u8; 16]);
