//! Calls of every operator on the host, with arguments anywhere in one block of memory: one that is refused writes nothing, and
//! one that is served writes its outputs' elements and nothing else.
#![allow(unsafe_code)] // views of a block that outlives them, and is reached through its address alone

use cake_core::{Dtype, Op, Place, Plan, RawView, Result, TensorView, TensorViewMut};
use cake_rmsnorm::{CombineDw, RmsNormBackward, RmsNormForward};
use cake_silu_gate::{Activation, SiluGateBackward, SiluGateForward};

use super::draw::Draw;

const BYTES: u64 = 8192;

/// A block of memory, never a reference to it.
struct Block {
    address: *mut u64,
    owner: Vec<u64>,
}

impl Block {
    fn new(seed: u64) -> Block {
        let words = 1..=BYTES / 8;
        // Numbers near 1, so that few results are alike.
        let halves = words.map(|i| {
            (i.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0x80ff_80ff_80ff_80ff) | 0x3f00_3f00_3f00_3f00
        });
        let mut owner: Vec<u64> = halves.collect();
        Block { address: owner.as_mut_ptr(), owner }
    }

    fn first(&self) -> u64 {
        self.address.expose_provenance() as u64
    }

    fn image(&self) -> Vec<u8> {
        let mut image = vec![0; BYTES as usize];
        // SAFETY: inside the block, and nobody writes it meanwhile.
        unsafe { self.address.cast::<u8>().copy_to(image.as_mut_ptr(), self.owner.len() * 8) };
        image
    }
}

/// Draws arguments: mostly right ones, side by side.
struct Arguments<'d, 'b, 'm> {
    draw: &'d mut Draw<'b>,
    block: &'m Block,
    lead: Vec<u64>,
    width: u64,
    /// Where the next tensor goes, unless it goes anywhere.
    next: u64,
    outputs: Vec<RawView>,
}

impl<'m> Arguments<'_, '_, 'm> {
    fn new<'d, 'b>(draw: &'d mut Draw<'b>, block: &'m Block, width: u64) -> Arguments<'d, 'b, 'm> {
        let huge = draw.rarely(16);
        let mut lead: Vec<u64> = (0..draw.below(4)).map(|_| if huge { draw.size() } else { draw.below(4) }).collect();
        if huge {
            lead.push(0);
        }
        Arguments { draw, block, lead, width, next: 0, outputs: Vec::new() }
    }

    /// Something wrong, in one of many draws.
    fn odd(&mut self) -> bool {
        self.draw.rarely(48)
    }

    fn rows(&self) -> Vec<u64> {
        [&self.lead[..], &[self.width]].concat()
    }

    /// One element for each row.
    fn column(&self) -> Vec<u64> {
        if self.lead.is_empty() { vec![1] } else { self.lead.clone() }
    }

    /// Address, bytes to the end of the block, dtype, shape, strides.
    fn tensor(&mut self, dtype: Dtype, mut shape: Vec<u64>) -> (u64, u64, Dtype, Vec<u64>, Vec<i64>) {
        if self.odd() {
            let dimension = self.draw.below(shape.len() as u64) as usize;
            shape[dimension] = self.draw.size();
        }
        if self.odd() {
            shape.insert(0, 1);
        }
        let dtype = if self.odd() { self.draw.one_of(&[Dtype::Bf16, Dtype::F16, Dtype::F32]) } else { dtype };
        let mut strides = vec![0; shape.len()];
        let mut step = if self.draw.rarely(8) { 2 } else { 1_i64 };
        for (stride, &size) in strides.iter_mut().zip(&shape).rev() {
            *stride = if self.odd() { self.draw.stride() } else { step };
            let gap = if self.draw.rarely(6) { self.draw.below(9) as i64 } else { 0 };
            step = step.wrapping_mul(size as i64).wrapping_add(gap);
        }
        let size = dtype.size() as u64;
        let span = shape
            .iter()
            .zip(&strides)
            .fold(1_u64, |span, (&n, &stride)| span.wrapping_add(n.saturating_sub(1).wrapping_mul(stride as u64)));
        if self.draw.rarely(12) {
            self.next = self.draw.below(self.next + 64);
        }
        let offset = if self.odd() { self.next } else { self.next.next_multiple_of(size) }.min(BYTES);
        self.next = offset.saturating_add(span.saturating_mul(size)).min(BYTES);
        (self.block.first() + offset, BYTES - offset, dtype, shape, strides)
    }

    fn input(&mut self, dtype: Dtype, shape: Vec<u64>) -> Result<TensorView<'m>> {
        let (address, bytes, dtype, shape, strides) = self.tensor(dtype, shape);
        // SAFETY: inside the block.
        unsafe { TensorView::from_raw("input", Place::Host, address, bytes, dtype, &shape, &strides) }
    }

    /// In the place of an input, now and then.
    fn output(&mut self, dtype: Dtype, shape: Vec<u64>, over: Option<&TensorView<'_>>) -> Result<TensorViewMut<'m>> {
        let (mut address, mut bytes, dtype, mut shape, mut strides) = self.tensor(dtype, shape);
        if let (Some(over), true) = (over, self.draw.rarely(4)) {
            let raw = over.raw();
            (address, bytes) = (raw.address, self.block.first() + BYTES - raw.address);
            shape = raw.shape().to_vec();
            strides = raw.strides().iter().map(|stride| *stride as i64).collect();
        }
        // SAFETY: inside the block.
        let view = unsafe { TensorViewMut::from_raw("output", Place::Host, address, bytes, dtype, &shape, &strides) }?;
        self.outputs.push(*view.raw());
        Ok(view)
    }

    /// An argument that is there if it is wanted, and hardly ever otherwise.
    fn present(&mut self, wanted: bool) -> bool {
        wanted != self.odd()
    }

    fn eps(&mut self) -> f32 {
        if self.odd() { f32::from_bits(self.draw.word() as u32) } else { 1e-5 }
    }

    fn weight_dtype(&mut self) -> Dtype {
        let odd = self.odd();
        self.draw.one_of(if odd { &[Dtype::F16] } else { &[Dtype::Bf16, Dtype::F32] })
    }
}

fn judge<O: Op>(spec: O::Spec, args: O::Args<'_>, block: &Block, outputs: &[RawView]) {
    let before = block.image();
    let (spec, ran) = (spec.clone(), Plan::<O>::host(spec).and_then(|plan| plan.run_host(args)));
    let after = block.image();
    let changed = before.iter().zip(&after).enumerate().filter(|(_, (before, after))| before != after);
    let mut changed = changed.map(|(at, _)| block.first() + at as u64);
    match ran {
        Err(error) => assert_eq!(changed.next(), None, "{spec:?}: {error}, but wrote"),
        Ok(()) => {
            let stray = changed.find(|byte| !outputs.iter().any(|output| covers(output, *byte)));
            assert_eq!(stray, None, "{spec:?}: wrote beside {outputs:?}");
        }
    }
}

/// Whether a byte belongs to an element of a view.
fn covers(view: &RawView, byte: u64) -> bool {
    if view.is_empty() {
        return false;
    }
    let mut offsets = vec![view.address];
    for (&size, &stride) in view.shape().iter().zip(view.strides()) {
        let step = stride * view.dtype.size() as u64;
        offsets = offsets.iter().flat_map(|first| (0..size).map(move |i| first + i * step)).collect();
    }
    offsets.iter().any(|first| (*first..first + view.dtype.size() as u64).contains(&byte))
}

/// One call.
pub(crate) fn calls(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let block = Block::new(draw.byte().into());
    let (operator, width) = (draw.below(5), if draw.rarely(32) { draw.size() } else { 1 + draw.below(24) });
    let arguments = Arguments::new(&mut draw, &block, width);
    // Views that are not possible are refused before there is a call.
    let _ = match operator {
        0 => forward(arguments),
        1 => backward(arguments),
        2 => combine(arguments),
        3 => gate_forward(arguments),
        _ => gate_backward(arguments),
    };
}

fn norm(a: &mut Arguments<'_, '_, '_>) -> cake_rmsnorm::Spec {
    let weight = if a.draw.rarely(4) { None } else { Some(a.weight_dtype()) };
    let offset = weight.is_some() && a.draw.flag();
    cake_rmsnorm::Spec { width: a.width as u32, weight, offset, residual: a.draw.flag() }
}

fn forward(mut a: Arguments<'_, '_, '_>) -> Result<()> {
    let spec = norm(&mut a);
    let x = a.input(Dtype::Bf16, a.rows())?;
    let weight = a.present(spec.weight.is_some()).then(|| a.input(spec.weight.unwrap_or(Dtype::Bf16), vec![a.width]));
    let residual = a.present(spec.residual).then(|| a.input(Dtype::Bf16, a.rows())).transpose()?;
    let (eps, wants_rstd) = (a.eps(), a.draw.flag());
    let args = cake_rmsnorm::Forward {
        x,
        weight: weight.transpose()?,
        eps,
        residual,
        y: a.output(Dtype::Bf16, a.rows(), Some(&x))?,
        h: a.present(spec.residual).then(|| a.output(Dtype::Bf16, a.rows(), residual.as_ref())).transpose()?,
        rstd: wants_rstd.then(|| a.output(Dtype::F32, a.column(), None)).transpose()?,
    };
    judge::<RmsNormForward>(spec, args, a.block, &a.outputs);
    Ok(())
}

fn backward(mut a: Arguments<'_, '_, '_>) -> Result<()> {
    let norm = norm(&mut a);
    let dw = (norm.weight.is_some() && a.draw.flag()).then(|| a.weight_dtype());
    let spec = cake_rmsnorm::BackwardSpec {
        norm,
        rstd: a.draw.flag(),
        dx: dw.is_none() || a.draw.flag(),
        dw,
        accumulate: dw.is_some() && a.draw.flag(),
        deterministic: a.draw.flag(),
        max_sms: a.draw.flag().then(|| a.draw.below(9) as u32),
    };
    let dy = a.input(Dtype::Bf16, a.rows())?;
    let weight = a.present(norm.weight.is_some()).then(|| a.input(norm.weight.unwrap_or(Dtype::Bf16), vec![a.width]));
    let args = cake_rmsnorm::Backward {
        dy,
        x: a.input(Dtype::Bf16, a.rows())?,
        weight: weight.transpose()?,
        rstd: a.present(spec.rstd).then(|| a.input(Dtype::F32, a.column())).transpose()?,
        eps: a.eps(),
        dh: a.present(norm.residual && spec.dx).then(|| a.input(Dtype::Bf16, a.rows())).transpose()?,
        dx: a.present(spec.dx).then(|| a.output(Dtype::Bf16, a.rows(), Some(&dy))).transpose()?,
        dw: a.present(dw.is_some()).then(|| a.output(dw.unwrap_or(Dtype::F32), vec![a.width], None)).transpose()?,
        workspace: None,
    };
    judge::<RmsNormBackward>(spec, args, a.block, &a.outputs);
    Ok(())
}

fn combine(mut a: Arguments<'_, '_, '_>) -> Result<()> {
    let spec = cake_rmsnorm::CombineSpec { width: a.width as u32, dw: a.weight_dtype(), accumulate: a.draw.flag() };
    let shards = a.draw.below(9);
    let args = cake_rmsnorm::Combine {
        shards: a.input(Dtype::F32, vec![shards, a.width])?,
        dw: a.output(spec.dw, vec![a.width], None)?,
    };
    judge::<CombineDw>(spec, args, a.block, &a.outputs);
    Ok(())
}

fn gate(a: &mut Arguments<'_, '_, '_>) -> cake_silu_gate::Spec {
    cake_silu_gate::Spec {
        width: a.width as u32,
        weight: a.weight_dtype(),
        activation: a.draw.one_of(&[Activation::Silu, Activation::Sigmoid]),
        gate_first: a.draw.flag(),
    }
}

fn gate_forward(mut a: Arguments<'_, '_, '_>) -> Result<()> {
    let spec = gate(&mut a);
    let (x, z) = (a.input(Dtype::Bf16, a.rows())?, a.input(Dtype::Bf16, a.rows())?);
    let (over, wants_rstd) = (a.draw.one_of(&[x, z]), a.draw.flag());
    let args = cake_silu_gate::Forward {
        x,
        z,
        weight: a.input(spec.weight, vec![a.width])?,
        eps: a.eps(),
        y: a.output(Dtype::Bf16, a.rows(), Some(&over))?,
        rstd: wants_rstd.then(|| a.output(Dtype::F32, a.column(), None)).transpose()?,
    };
    judge::<SiluGateForward>(spec, args, a.block, &a.outputs);
    Ok(())
}

fn gate_backward(mut a: Arguments<'_, '_, '_>) -> Result<()> {
    let norm = gate(&mut a);
    let dw = a.draw.flag().then(|| a.weight_dtype());
    let spec = cake_silu_gate::BackwardSpec {
        norm,
        rstd: a.draw.flag(),
        dw,
        accumulate: dw.is_some() && a.draw.flag(),
        deterministic: a.draw.flag(),
        max_sms: a.draw.flag().then(|| a.draw.below(9) as u32),
    };
    let (dy, z) = (a.input(Dtype::Bf16, a.rows())?, a.input(Dtype::Bf16, a.rows())?);
    let args = cake_silu_gate::Backward {
        dy,
        x: a.input(Dtype::Bf16, a.rows())?,
        z,
        weight: a.input(norm.weight, vec![a.width])?,
        rstd: a.present(spec.rstd).then(|| a.input(Dtype::F32, a.column())).transpose()?,
        eps: a.eps(),
        dx: a.output(Dtype::Bf16, a.rows(), Some(&dy))?,
        dz: a.output(Dtype::Bf16, a.rows(), Some(&z))?,
        dw: a.present(dw.is_some()).then(|| a.output(dw.unwrap_or(Dtype::F32), vec![a.width], None)).transpose()?,
        workspace: None,
    };
    judge::<SiluGateBackward>(spec, args, a.block, &a.outputs);
    Ok(())
}
