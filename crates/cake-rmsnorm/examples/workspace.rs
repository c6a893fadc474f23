//! Gradients with scratch memory that the caller owns: sized once for the largest call, divided among two streams, and
//! used again by every call, whatever its rows.
//!
//! Prints what each architecture asks for. Without a GPU that Cake serves it prints the reason, and ends there.
//!
//! ```text
//! cargo run --release -p cake-rmsnorm --example workspace
//! ```

use anyhow::{Result, ensure};
use cake_rmsnorm::{
    Arch, Backward, BackwardPlan, BackwardSpec, Buffer, Device, DeviceInfo, Dtype, Spec, Stream, TensorView,
    TensorViewMut, Workspace,
};
use half::bf16;

const WIDTH: usize = 2048;
/// Rows of the calls, in turn.
const ROWS: [usize; 3] = [2500, 64, 1031];
const MOST: usize = 2500;

pub(crate) fn main() -> Result<()> {
    let spec = BackwardSpec::new(Spec::new(WIDTH as u32));
    println!("bytes of workspace for up to {MOST} rows of {WIDTH}:");
    for info in Arch::ALL.map(DeviceInfo::typical) {
        println!("{:>9} {info}", BackwardPlan::workspace_bytes_on(&info, &spec, MOST as u32));
    }
    match Device::new(0) {
        Ok(device) => on_gpu(&device, spec),
        Err(reason) => {
            println!("nothing to run: {reason}");
            Ok(())
        }
    }
}

fn on_gpu(device: &Device, spec: BackwardSpec) -> Result<()> {
    let plan = BackwardPlan::new(device, spec)?;
    let bytes = plan.workspace_bytes(MOST as u32).max(Workspace::HEADER).next_multiple_of(Workspace::ALIGNMENT);
    let memory = Buffer::new(device, 2 * bytes)?;
    let mut lanes = [Lane::new(device, memory.address(), bytes)?, Lane::new(device, memory.address() + bytes, bytes)?];
    let inputs = Inputs::new();
    for lane in &lanes {
        lane.upload(&inputs)?;
    }
    for (call, rows) in ROWS.into_iter().cycle().take(9).enumerate() {
        // The streams work side by side. The calls of one stream take turns, so they can share a workspace.
        for lane in &mut lanes {
            lane.queue(&plan, rows)?;
        }
        let expected = inputs.gradients(spec, rows)?;
        for lane in &lanes {
            ensure!(lane.download(rows)? == expected, "call {call}: the gradients are not the host's");
        }
        println!("call {call}, {rows} rows on two streams: the bits of the host");
    }
    Ok(())
}

/// A stream with its workspace and its tensors.
struct Lane {
    stream: Stream,
    workspace: Workspace,
    dy: Buffer,
    x: Buffer,
    weight: Buffer,
    rstd: Buffer,
    dx: Buffer,
    dw: Buffer,
}

impl Lane {
    #[allow(unsafe_code)] // the workspace lies in memory that its type does not know
    fn new(device: &Device, address: u64, bytes: u64) -> Result<Lane> {
        let stream = Stream::new(device)?;
        // SAFETY: the caller keeps this part of its buffer for this lane, and frees it after the lane's work.
        let mut workspace = unsafe { Workspace::from_raw(&stream, address, bytes)? };
        workspace.reset(&stream)?; // once, since the memory is new: every call leaves the header as it was
        let buffer = |elements: usize, size: usize| Buffer::new(device, (elements * size) as u64);
        Ok(Lane {
            stream,
            workspace,
            dy: buffer(MOST * WIDTH, 2)?,
            x: buffer(MOST * WIDTH, 2)?,
            weight: buffer(WIDTH, 2)?,
            rstd: buffer(MOST, 4)?,
            dx: buffer(MOST * WIDTH, 2)?,
            dw: buffer(WIDTH, 4)?,
        })
    }

    fn upload(&self, inputs: &Inputs) -> Result<()> {
        self.dy.write(&self.stream, 0, &inputs.dy)?;
        self.x.write(&self.stream, 0, &inputs.x)?;
        self.weight.write(&self.stream, 0, &inputs.weight)?;
        self.rstd.write(&self.stream, 0, &inputs.rstd)?;
        Ok(())
    }

    /// Queues the gradients of the first `rows` rows.
    #[allow(unsafe_code)] // views of device memory
    fn queue(&mut self, plan: &BackwardPlan, rows: usize) -> Result<()> {
        let Lane { stream, workspace, dy, x, weight, rstd, dx, dw } = self;
        let (place, shape, strides) = (stream.place(), [rows as u64, WIDTH as u64], [WIDTH as i64, 1]);
        // SAFETY: each view lies in a live buffer of this lane, which only its stream uses (C1 and C2 of docs/safety.md).
        let input = |name, buffer: &Buffer, dtype, shape: &[u64], strides: &[i64]| unsafe {
            TensorView::from_raw(name, place, buffer.address(), buffer.bytes(), dtype, shape, strides)
        };
        // SAFETY: as above.
        let output = |name, buffer: &Buffer, dtype, shape: &[u64], strides: &[i64]| unsafe {
            TensorViewMut::from_raw(name, place, buffer.address(), buffer.bytes(), dtype, shape, strides)
        };
        plan.run(
            stream,
            Backward {
                dy: input("dy", dy, Dtype::Bf16, &shape, &strides)?,
                x: input("x", x, Dtype::Bf16, &shape, &strides)?,
                weight: Some(input("weight", weight, Dtype::Bf16, &shape[1..], &[1])?),
                rstd: Some(input("rstd", rstd, Dtype::F32, &shape[..1], &[1])?),
                eps: 0.0,
                dh: None,
                dx: Some(output("dx", dx, Dtype::Bf16, &shape, &strides)?),
                dw: Some(output("dw", dw, Dtype::F32, &shape[1..], &[1])?),
                workspace: Some(workspace),
            },
        )?;
        Ok(())
    }

    /// The bits of both gradients, after the queued work.
    fn download(&self, rows: usize) -> Result<Bits> {
        let (mut dx, mut dw) = (vec![bf16::ZERO; rows * WIDTH], vec![0f32; WIDTH]);
        self.dx.read(&self.stream, 0, &mut dx)?;
        self.dw.read(&self.stream, 0, &mut dw)?;
        Ok(bits(&dx, &dw))
    }
}

/// The tensors of the largest call; a smaller one takes its first rows.
struct Inputs {
    dy: Vec<bf16>,
    x: Vec<bf16>,
    weight: Vec<bf16>,
    rstd: Vec<f32>,
}

impl Inputs {
    fn new() -> Inputs {
        let mut state = 1u32;
        let mut value = |_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            bf16::from_f32((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
        };
        Inputs {
            dy: (0..MOST * WIDTH).map(&mut value).collect(),
            x: (0..MOST * WIDTH).map(&mut value).collect(),
            weight: (0..WIDTH).map(&mut value).collect(),
            rstd: (0..MOST).map(|row| 1.0 + row as f32 / 1024.0).collect(),
        }
    }

    /// What the host computes; it needs no workspace.
    fn gradients(&self, spec: BackwardSpec, rows: usize) -> Result<Bits> {
        let (shape, elements) = ([rows as u64, WIDTH as u64], rows * WIDTH);
        let (mut dx, mut dw) = (vec![bf16::ZERO; elements], vec![0f32; WIDTH]);
        BackwardPlan::host(spec)?.run_host(Backward {
            dy: TensorView::from_slice("dy", &self.dy[..elements], &shape)?,
            x: TensorView::from_slice("x", &self.x[..elements], &shape)?,
            weight: Some(TensorView::from_slice("weight", &self.weight, &shape[1..])?),
            rstd: Some(TensorView::from_slice("rstd", &self.rstd[..rows], &shape[..1])?),
            eps: 0.0,
            dh: None,
            dx: Some(TensorViewMut::from_slice("dx", &mut dx, &shape)?),
            dw: Some(TensorViewMut::from_slice("dw", &mut dw, &shape[1..])?),
            workspace: None,
        })?;
        Ok(bits(&dx, &dw))
    }
}

/// `dx`, then `dw`.
type Bits = (Vec<u16>, Vec<u32>);

fn bits(dx: &[bf16], dw: &[f32]) -> Bits {
    (dx.iter().map(|value| value.to_bits()).collect(), dw.iter().map(|value| value.to_bits()).collect())
}
