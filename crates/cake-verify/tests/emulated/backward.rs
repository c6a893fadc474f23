//! The backward kernels on the host: every program, all CTAs at once where they wait for each other.
#![allow(unsafe_code)] // hands the kernels the addresses of this file's own buffers

use cake_core::sums::{plain, rms};
use cake_core::{Arch, DeviceInfo, Dtype, Op, Place, Shape, TensorView, TensorViewMut, Workspace};
use cake_kernels::rmsnorm;
use cake_rmsnorm::{Backward, BackwardSpec, Combine, CombineDw, CombinePlan, CombineSpec, RmsNormBackward, Spec};
use half::bf16;
use rayon::prelude::*;

use super::emulator::{Emulator, ORDERS, Size, Window};

/// A call: what the plan fixes, and where its tensors lie.
#[derive(Clone, Debug)]
struct Call {
    spec: BackwardSpec,
    rows: usize,
    sms: u32,
    /// Elements between rows beyond the width; 1 keeps 16-byte loads away.
    gap: usize,
    in_place: bool,
    /// Rows whose squares vanish, and eps = 0: an infinite rstd.
    zeros: bool,
    /// All levels of the row tree wait in the workspace, as those do that do not fit shared memory.
    far_levels: bool,
}

impl Call {
    fn new(width: u32, rows: usize) -> Call {
        Call {
            spec: BackwardSpec::new(Spec::new(width)),
            rows,
            sms: 3,
            gap: 0,
            in_place: false,
            zeros: false,
            far_levels: false,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Call)) -> Call {
        change(&mut self);
        self
    }
}

/// Numbers that differ from place to place and cancel now and then.
fn values(count: usize, seed: u32, scale: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state as i32 as f32) / (1_u64 << 31) as f32 * scale
    };
    (0..count).map(next).collect()
}

fn bf16s(count: usize, seed: u32, scale: f32) -> Vec<bf16> {
    values(count, seed, scale).into_iter().map(bf16::from_f32).collect()
}

fn range<E>(memory: &[E], writable: u64) -> Window {
    let range = memory.as_ptr_range();
    let (first, last) = (range.start.expose_provenance() as u64, range.end.expose_provenance() as u64);
    Window { first, last, memory: first, writable }
}

/// Runs a call by every program that can serve it, in orders of threads that change with `turn`, and compares all bits with the specification in code.
fn judge(emulator: &Emulator, call: &Call, turn: usize) -> Result<usize, String> {
    let Call { spec, rows, gap, in_place, .. } = call;
    let (rows, width) = (*rows, spec.norm.width as usize);
    let pitch = width + gap;
    let x = if call.zeros { vec![bf16::from_f32(1e-30); rows * pitch] } else { bf16s(rows * pitch, 1, 3.0) };
    let dy = bf16s(rows * pitch, 2, 2.0);
    let dh = bf16s(rows * pitch, 3, 1.0);
    let (w16, w32) = (bf16s(width, 4, 1.5), values(width, 4, 1.5));
    let eps = if call.zeros { 0.0 } else { 1e-5 };
    let of = |tensor: &[bf16], row: usize| tensor[row * pitch..][..width].to_vec();
    let rstd: Vec<f32> = (0..rows).map(|row| rms::rstd(plain::sum_of_squares(&of(&x, row)), width, eps)).collect();

    // What is right.
    let offset = rms::offset(spec.norm.offset);
    let weights: Option<Vec<f32>> = match spec.norm.weight {
        None => None,
        Some(Dtype::F32) => Some(w32.clone()),
        Some(_) => Some(w16.iter().map(|w| w.to_f32()).collect()),
    };
    let mut right_dx = vec![bf16::NAN; rows * pitch];
    for row in 0..rows {
        let dh_row = spec.norm.residual.then(|| of(&dh, row));
        let dx = &mut right_dx[row * pitch..][..width];
        plain::backward_row(&of(&dy, row), &of(&x, row), weights.as_deref(), offset, rstd[row], dh_row.as_deref(), dx);
    }
    let old_dw = values(width, 5, 1.0);
    let right_dw: Vec<f32> = (0..width)
        .map(|column| {
            let at = |row: usize| row * pitch + column;
            let root = plain::row_tree(rows, |row| (dy[at(row)].to_f32(), x[at(row)].to_f32() * rstd[row]));
            match spec.dw {
                Some(Dtype::F32) => rms::accumulate(spec.accumulate.then_some(old_dw[column]), root),
                _ => {
                    let old = spec.accumulate.then_some(bf16::from_f32(old_dw[column]));
                    rms::accumulate::<bf16>(old, root).to_f32()
                }
            }
        })
        .collect();

    let device = DeviceInfo { sms: call.sms, ..DeviceInfo::typical(Arch::Sm90) };
    let shape = [rows as u64, width as u64];
    let strides = [pitch as i64, 1];
    let mut launches = 0;
    for program in RmsNormBackward::programs(spec, device.arch) {
        let kernel = &RmsNormBackward::kernels(spec, program)[0];
        let mut dx = if *in_place { dy.clone() } else { vec![bf16::NAN; rows * pitch] };
        let mut dw32 = if spec.accumulate { old_dw.clone() } else { vec![f32::NAN; width] };
        let mut dw16: Vec<bf16> = dw32.iter().map(|&dw| bf16::from_f32(dw)).collect();
        let (dx_address, dx_range) = (dx.as_mut_ptr(), range(&dx, 1));
        let (dw32_address, dw16_address) = (dw32.as_mut_ptr(), dw16.as_mut_ptr());
        // SAFETY: the buffers outlive the call; the kernels alone access them in the meantime.
        let view = |name, address: *const bf16, len: usize| unsafe {
            TensorView::from_raw(
                name,
                Place::Host,
                address.expose_provenance() as u64,
                2 * len as u64,
                Dtype::Bf16,
                &shape,
                &strides,
            )
        };
        // SAFETY: as above.
        let one = |name, dtype, address: u64, bytes: usize, len: usize| unsafe {
            TensorView::from_raw(name, Place::Host, address, bytes as u64, dtype, &[len as u64], &[1])
        };
        let weight = match spec.norm.weight {
            None => None,
            Some(Dtype::F32) => {
                Some(one("weight", Dtype::F32, w32.as_ptr().expose_provenance() as u64, 4 * width, width))
            }
            Some(_) => Some(one("weight", Dtype::Bf16, w16.as_ptr().expose_provenance() as u64, 2 * width, width)),
        };
        let tensor = |t: &[bf16], name| view(name, t.as_ptr(), t.len());
        let dy_view = if *in_place { view("dy", dx_address, rows * pitch) } else { tensor(&dy, "dy") };
        // SAFETY: as above.
        let dx_view = spec.dx.then(|| unsafe {
            let address = dx_address.expose_provenance() as u64;
            TensorViewMut::from_raw(
                "dx",
                Place::Host,
                address,
                2 * (rows * pitch) as u64,
                Dtype::Bf16,
                &shape,
                &strides,
            )
        });
        // SAFETY: as above.
        let dw_view = spec.dw.map(|dtype| unsafe {
            let (address, bytes) = match dtype {
                Dtype::F32 => (dw32_address.expose_provenance() as u64, 4 * width),
                _ => (dw16_address.expose_provenance() as u64, 2 * width),
            };
            TensorViewMut::from_raw("dw", Place::Host, address, bytes as u64, dtype, &[width as u64], &[1])
        });
        let text = |error: cake_core::Error| format!("{call:?}: {error}");
        let args = Backward {
            dy: dy_view.map_err(text)?,
            x: tensor(&x, "x").map_err(text)?,
            weight: weight.transpose().map_err(text)?,
            rstd: spec
                .rstd
                .then(|| one("rstd", Dtype::F32, rstd.as_ptr().expose_provenance() as u64, 4 * rows, rows))
                .transpose()
                .map_err(text)?,
            eps,
            dh: (spec.norm.residual && spec.dx).then(|| tensor(&dh, "dh")).transpose().map_err(text)?,
            dx: dx_view.transpose().map_err(text)?,
            dw: dw_view.transpose().map_err(text)?,
            workspace: None,
        };
        let (call_shape, mut params) = RmsNormBackward::check(spec, Place::Host, &args).map_err(text)?;
        if RmsNormBackward::obstacle(spec, program, call_shape).is_some() {
            continue;
        }
        RmsNormBackward::follow(spec, &mut params, program, None, &device);
        if params.levels == 1 {
            params.ahead = ((turn + launches) % 3) as u32;
        }
        // Exactly what is asked for, poisoned but for the header.
        let mut bytes = RmsNormBackward::workspace_bytes(spec, program, rows as u32, &device);
        if call.far_levels && kernel.schedule == "walk" {
            let level = 32 * (width.div_ceil(8) as u64).next_multiple_of(kernel.group.into()) * u64::from(kernel.rows);
            bytes += u64::from(params.ctas * params.shared_levels) * level;
            params.shared_levels = 0;
        }
        let mut workspace = vec![Poison([0xff; 16]); bytes.div_ceil(16) as usize];
        workspace.iter_mut().take(Workspace::HEADER as usize / 16).for_each(|poison| poison.0 = [0; 16]);
        RmsNormBackward::lend(&mut params, workspace.as_mut_ptr().expose_provenance() as u64);
        let order = ORDERS[(turn + launches) % ORDERS.len()];
        let shared = RmsNormBackward::shared_bytes(spec, kernel, Some(&params));
        let size = Size { grid: RmsNormBackward::grid(kernel, &params), shared, order };
        let mut windows =
            vec![range(&x, 0), range(&dy, 0), range(&dh, 0), range(&w16, 0), range(&w32, 0), range(&rstd, 0), dx_range];
        windows.extend([range(&dw32, 1), range(&dw16, 1), range(&workspace, 1)]);
        // SAFETY: these are the kernel's parameters, and the buffers above are the windows' memory.
        let ran = unsafe { emulator.run(kernel, &params, size, &windows) };
        let place = || format!("{call:?} by {kernel}, {size:?}, chunks of {}", params.chunk);
        ran.map_err(|fault| format!("{}: {fault}", place()))?;
        if spec.dx {
            for row in 0..rows {
                let (got, right) = (&dx[row * pitch..][..width], &right_dx[row * pitch..][..width]);
                let same = |a: bf16, b: bf16| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                if let Some(column) = (0..width).find(|&c| !same(got[c], right[c])) {
                    return Err(format!("{}: dx[{row}, {column}] {} not {}", place(), got[column], right[column]));
                }
            }
        }
        if spec.dw.is_some() {
            let got = |c: usize| if spec.dw == Some(Dtype::F32) { dw32[c] } else { dw16[c].to_f32() };
            // In any order the sum may differ, but not by more than its last bits.
            let near = |a: f32, b: f32| !spec.deterministic && (a - b).abs() <= 1e-6 * (rows as f32 + 1.0) * 6.0;
            let nan = |c: usize| got(c).is_nan() && right_dw[c].is_nan();
            let same = |c: usize| got(c).to_bits() == right_dw[c].to_bits() || nan(c) || near(got(c), right_dw[c]);
            if let Some(c) = (0..width).find(|&c| !same(c)) {
                return Err(format!("{}: dw[{c}] {} not {}", place(), got(c), right_dw[c]));
            }
        }
        let header = &workspace[..(Workspace::HEADER as usize / 16).min(workspace.len())];
        let flip = 0x8000_0000_u32.to_le_bytes();
        if header
            .iter()
            .flat_map(|poison| poison.0)
            .enumerate()
            .any(|(i, byte)| byte != 0 && (i >= 4 || byte != flip[i]))
        {
            return Err(format!("{}: the header is not at rest", place()));
        }
        launches += 1;
    }
    Ok(launches)
}

/// Sixteen bytes of a workspace, which is aligned to 256 on a device.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Poison([u8; 16]);

fn judge_all(calls: Vec<Call>) {
    let emulator = Emulator::new(rmsnorm::OP);
    let judged: Vec<Result<usize, String>> =
        calls.par_iter().enumerate().map(|(turn, call)| judge(&emulator, call, turn)).collect();
    let failures: Vec<&String> = judged.iter().filter_map(|result| result.as_ref().err()).collect();
    assert!(failures.is_empty(), "{} of {} calls, first {}", failures.len(), calls.len(), failures[0]);
    let launches: usize = judged.into_iter().flatten().sum();
    assert!(launches >= calls.len(), "{launches} launches for {} calls", calls.len());
}

/// Numbers of rows around a leaf, a chunk and a round of chunks.
const ROWS: [usize; 10] = [0, 1, 2, 7, 8, 9, 31, 64, 65, 130];

#[test]
fn backward_narrow_rows() {
    judge_all(ROWS.into_iter().chain([600, 1025]).map(|rows| Call::new(128, rows)).collect());
}

#[test]
fn backward_rows() {
    let mut calls: Vec<Call> =
        [256, 512, 1536].into_iter().flat_map(|width| ROWS.map(|rows| Call::new(width, rows))).collect();
    calls.extend([1, 2].map(|sms| Call::new(512, 300).with(|call| call.sms = sms)));
    judge_all(calls);
}

/// As many rows as make a chunk of two to three levels for each CTA.
#[test]
fn backward_levels() {
    let calls = [(128, 2048), (512, 1024), (1024, 256), (2880, 96)].into_iter().flat_map(|(width, rows)| {
        [false, true].map(|far| Call::new(width, rows).with(|call| (call.sms, call.far_levels) = (1, far)))
    });
    judge_all(calls.collect());
}

#[test]
fn backward_widths() {
    let widths = rmsnorm::FORWARD_WIDTHS.into_iter().chain([1, 2, 7, 8, 9, 33, 100, 769, 1000, 2056]);
    judge_all(widths.map(|width| Call::new(width, 19)).collect());
}

#[test]
fn backward_forms() {
    let mut calls = Vec::new();
    for width in [128, 512, 1024, 2880, 100, 1] {
        let call = || Call::new(width, 43);
        calls.push(call().with(|call| call.spec.norm.residual = true));
        calls.push(call().with(|call| call.spec.norm.weight = Some(Dtype::F32)));
        calls.push(call().with(|call| call.spec.norm.offset = true));
        calls.push(call().with(|call| call.spec = BackwardSpec::new(Spec { weight: None, ..Spec::new(width) })));
        calls.push(call().with(|call| call.spec.rstd = false));
        calls.push(call().with(|call| call.spec.dx = false));
        calls.push(call().with(|call| call.spec.dw = None));
        calls.push(call().with(|call| call.spec.dw = Some(Dtype::Bf16)));
        calls.push(call().with(|call| call.spec.accumulate = true));
        calls.push(call().with(|call| (call.spec.accumulate, call.spec.dw) = (true, Some(Dtype::Bf16))));
        calls.push(call().with(|call| call.spec.max_sms = Some(2)));
        calls.push(call().with(|call| call.spec.deterministic = false));
        calls.push(call().with(|call| (call.spec.deterministic, call.spec.accumulate) = (false, true)));
        calls.push(call().with(|call| call.gap = 8));
        calls.push(call().with(|call| call.gap = 3));
        calls.push(call().with(|call| call.zeros = true));
        calls.push(call().with(|call| (call.zeros, call.spec.rstd) = (true, false)));
        calls.push(call().with(|call| call.in_place = true));
        calls.push(call().with(|call| (call.spec.norm.residual, call.spec.rstd, call.gap) = (true, false, 16)));
    }
    judge_all(calls);
}

/// The weight gradients of shards join to the bits of the whole: equal shards, short last ones, and empty ones.
#[test]
fn shards_combine() {
    let emulator = Emulator::new(rmsnorm::OP);
    let width = 300;
    for (rows, shard) in [(64, 32), (64, 8), (128, 16), (77, 16), (9, 8), (8, 64), (0, 8)] {
        let (dy, xhat) = (bf16s(rows * width, 8, 2.0), values(rows * width, 9, 3.0));
        let tree = |from: usize, to: usize, column: usize| {
            let at = |row: usize| (from + row) * width + column;
            plain::row_tree(to.saturating_sub(from), |row| (dy[at(row)].to_f32(), xhat[at(row)]))
        };
        let right: Vec<u32> = (0..width).map(|column| tree(0, rows, column).to_bits()).collect();
        let count = rows.div_ceil(shard) + 1; // the last one is empty
        let sum = |at: usize| {
            let first = at / width * shard;
            tree(first.min(rows), (first + shard).min(rows), at % width)
        };
        let shards: Vec<f32> = (0..count * width).map(sum).collect();
        let spec = CombineSpec { width: width as u32, dw: Dtype::F32, accumulate: false };
        let shape = [count as u64, width as u64];
        let mut dw = vec![f32::NAN; width];
        let combine = |dw: &mut [f32], run: &dyn Fn(Combine<'_>)| {
            run(Combine {
                shards: TensorView::from_slice("shards", &shards, &shape).expect("fits"),
                dw: TensorViewMut::from_slice("dw", dw, &shape[1..]).expect("fits"),
            });
        };
        combine(&mut dw, &|args| {
            CombinePlan::host(spec).and_then(|plan| plan.run_host(args)).expect("right arguments")
        });
        assert!(dw.iter().map(|dw| dw.to_bits()).eq(right.iter().copied()), "host: {rows} rows in shards of {shard}");

        dw.fill(f32::NAN);
        let windows = [range(&shards, 0), range(&dw, 1)];
        combine(&mut dw, &|args| {
            let (_, params) = CombineDw::check(&spec, Place::Host, &args).expect("right arguments");
            let kernel = &rmsnorm::JOIN.bf16[0];
            let shared = CombineDw::shared_bytes(&spec, kernel, Some(&params));
            let size = Size { grid: CombineDw::grid(kernel, &params), shared, order: 1 };
            // SAFETY: these are the kernel's parameters, and the buffers above are the windows' memory.
            let ran = unsafe { emulator.run(kernel, &params, size, &windows) };
            ran.unwrap_or_else(|fault| panic!("{rows} rows in shards of {shard}: {fault}"));
        });
        assert!(dw.iter().map(|dw| dw.to_bits()).eq(right), "{rows} rows in shards of {shard}");
    }
}

/// The workspace is bounded, whatever the number of rows.
#[test]
fn workspace_is_bounded() {
    let device = DeviceInfo::typical(Arch::Sm90);
    let spec = BackwardSpec::new(Spec::new(2048));
    for rows in [0, 1, 1000, 1 << 20, i32::MAX as u32] {
        let table = RmsNormBackward::routes(&spec, device.arch, Shape { rows, vectors: true, in_place: false });
        let route = table.route(&device, rows);
        let bytes = RmsNormBackward::workspace_bytes(&spec, route.program, rows, &device);
        assert!(bytes < 64 << 20, "{rows} rows: {bytes} bytes");
    }
}
