//! Memory of a target, and views of it that the type system cannot follow: an output may be an input, and a GPU reads
//! and writes behind the borrow checker's back.
//!
//! Unsafe code of the engine is fenced here. Why it is sound:
//! - A block of host memory is reached through its raw pointer only, by copying; no reference to it ever exists, and
//!   the type is neither `Send` nor `Sync`. So calls may read and write it through views that alias.
//! - A device buffer is freed after the device's queued work.
//! - An [`Argument`] borrows the block that it describes. Checks that change an argument's address or extent do so to
//!   see the call refused; a call that is not refused is itself the fault that the check exists to find.
#![allow(unsafe_code)]

use std::alloc;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Mutex;

use cake_core::{Buffer, Device, Dtype, Place, Result, TensorView, TensorViewMut, Workspace};
use half::bf16;
use half::slice::HalfBitsSliceExt;

use super::target::{Lane, Target};

/// Every block begins at a multiple of this.
pub const ALIGNMENT: u64 = 256;

/// A block of halfwords.
#[derive(Debug)]
pub struct Memory(Block);

#[derive(Debug)]
enum Block {
    Host {
        address: *mut u16,
        halves: usize,
    },
    Cuda(Buffer, Place),
    /// Device memory on loan, of which the first bytes are the block.
    Pooled {
        buffer: Option<Buffer>,
        bytes: u64,
        place: Place,
    },
}

/// Small device buffers that wait for their next use, by place and size: allocating and freeing them takes longer than a
/// small case, and freeing waits for every stream.
static POOL: Mutex<BTreeMap<(u32, u64), Vec<Buffer>>> = Mutex::new(BTreeMap::new());

/// Largest block that is pooled. The work that uses a pooled block must have finished when it is dropped.
const POOLED: u64 = 4 << 20;

impl Memory {
    /// A block that holds a copy of `image`.
    pub fn holding(target: &Target, lane: &Lane, image: &[u16]) -> Result<Memory> {
        let memory = Memory::of(target, 2 * image.len())?;
        memory.write(lane, 0, image)?;
        Ok(memory)
    }

    /// A block of some bytes that holds anything.
    pub fn of(target: &Target, bytes: usize) -> Result<Memory> {
        Ok(Memory(match target {
            Target::Host => Block::host(bytes / 2),
            Target::Cuda(device) => Block::cuda(device, bytes as u64)?,
        }))
    }

    /// A block of device memory that holds anything.
    pub fn on_device(device: &Device, bytes: u64) -> Result<Memory> {
        Ok(Memory(Block::Cuda(Buffer::new(device, bytes)?, Place::Cuda(device.info().ordinal))))
    }

    /// Copies halfwords into the block, from halfword `at` on.
    pub fn write(&self, lane: &Lane, at: u64, image: &[u16]) -> Result<()> {
        match (&self.0, lane) {
            (Block::Host { address, halves }, _) => {
                assert!(at as usize + image.len() <= *halves, "write beyond the block");
                // SAFETY: in range, and nobody else looks at the block while this call lasts.
                unsafe { address.add(at as usize).copy_from(image.as_ptr(), image.len()) };
                Ok(())
            }
            (block, Lane::Cuda(stream)) => block.buffer().write::<bf16>(stream, 2 * at, image.reinterpret_cast()),
            (_, Lane::Host) => unreachable!("device memory is used on a stream"),
        }
    }

    /// Copies the block, from halfword `at` on, after the lane's queued work.
    pub fn read(&self, lane: &Lane, at: u64, image: &mut [u16]) -> Result<()> {
        match (&self.0, lane) {
            (Block::Host { address, halves }, _) => {
                assert!(at as usize + image.len() <= *halves, "read beyond the block");
                // SAFETY: as for `write`.
                unsafe { address.add(at as usize).copy_to(image.as_mut_ptr(), image.len()) };
                Ok(())
            }
            (block, Lane::Cuda(stream)) => {
                let halves: &mut [bf16] = image.reinterpret_cast_mut();
                block.buffer().read(stream, 2 * at, halves)
            }
            (_, Lane::Host) => unreachable!("device memory is used on a stream"),
        }
    }

    /// The whole block.
    pub fn image(&self, lane: &Lane) -> Result<Vec<u16>> {
        let halves = match &self.0 {
            Block::Host { halves, .. } => *halves,
            Block::Cuda(buffer, _) => buffer.bytes() as usize / 2,
            Block::Pooled { bytes, .. } => *bytes as usize / 2,
        };
        let mut image = vec![0; halves];
        self.read(lane, 0, &mut image)?;
        Ok(image)
    }

    /// Fills the whole block with one byte, on a GPU in order with the lane's work.
    pub fn fill(&self, lane: &Lane, byte: u8) -> Result<()> {
        match (&self.0, lane) {
            (Block::Host { halves, .. }, _) => self.write(lane, 0, &vec![u16::from_ne_bytes([byte; 2]); *halves]),
            (block, Lane::Cuda(stream)) => block.buffer().fill(stream, byte),
            (_, Lane::Host) => unreachable!("device memory is used on a stream"),
        }
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        match &self.0 {
            Block::Host { address, .. } => address.expose_provenance() as u64,
            block => block.buffer().address(),
        }
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        match &self.0 {
            Block::Host { .. } => Place::Host,
            Block::Cuda(_, place) | Block::Pooled { place, .. } => *place,
        }
    }
}

impl Block {
    fn cuda(device: &Device, bytes: u64) -> Result<Block> {
        let ordinal = device.info().ordinal;
        let place = Place::Cuda(ordinal);
        if bytes > POOLED {
            return Ok(Block::Cuda(Buffer::new(device, bytes)?, place));
        }
        let size = bytes.next_power_of_two().max(1 << 12);
        let waiting = POOL.lock().expect("no panic under the lock").entry((ordinal, size)).or_default().pop();
        let buffer = waiting.map_or_else(|| Buffer::new(device, size), Ok)?;
        Ok(Block::Pooled { buffer: Some(buffer), bytes, place })
    }

    fn buffer(&self) -> &Buffer {
        match self {
            Block::Cuda(buffer, _) | Block::Pooled { buffer: Some(buffer), .. } => buffer,
            _ => unreachable!("host memory is no buffer"),
        }
    }

    fn host(halves: usize) -> Block {
        let layout = host_layout(halves);
        // SAFETY: the layout is never empty.
        let address = unsafe { alloc::alloc_zeroed(layout) };
        if address.is_null() {
            alloc::handle_alloc_error(layout);
        }
        Block::Host { address: address.cast(), halves }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Block::Host { address, halves } = self {
            // SAFETY: allocated with this layout.
            unsafe { alloc::dealloc(address.cast(), host_layout(*halves)) };
        }
        if let Block::Pooled { buffer, place: Place::Cuda(ordinal), .. } = self
            && let Some(buffer) = buffer.take()
        {
            let mut pool = POOL.lock().expect("no panic under the lock");
            pool.entry((*ordinal, buffer.bytes())).or_default().push(buffer);
        }
    }
}

fn host_layout(halves: usize) -> alloc::Layout {
    alloc::Layout::from_size_align(2 * halves.max(1), ALIGNMENT as usize).expect("a block fits the address space")
}

/// Bytes of a block that a call may use as its workspace.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // named as the parameters of `Workspace::from_raw`
pub struct Space<'m> {
    pub address: u64,
    pub bytes: u64,
    pub memory: PhantomData<&'m Memory>,
}

impl Space<'_> {
    /// The workspace, for calls on a lane of a GPU.
    pub fn lend(&self, lane: &Lane) -> Result<Workspace> {
        let stream = lane.stream().expect("only calls on a GPU take a workspace");
        // SAFETY: see the head of the file.
        unsafe { Workspace::from_raw(stream, self.address, self.bytes) }
    }
}

/// What a view is made of, before it is checked: the argument of a call as a caller would describe it.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // named as the parameters of `TensorView::from_raw`
pub struct Argument<'m> {
    pub name: &'static str,
    pub place: Place,
    pub address: u64,
    pub bytes: u64,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    pub strides: Vec<i64>,
    pub memory: PhantomData<&'m Memory>,
}

impl<'m> Argument<'m> {
    /// The argument as an input.
    pub fn view(&self) -> Result<TensorView<'m>> {
        let Argument { name, place, address, bytes, dtype, shape, strides, .. } = self;
        // SAFETY: see the head of the file.
        unsafe { TensorView::from_raw(name, *place, *address, *bytes, *dtype, shape, strides) }
    }

    /// The argument as an output.
    pub fn view_mut(&self) -> Result<TensorViewMut<'m>> {
        let Argument { name, place, address, bytes, dtype, shape, strides, .. } = self;
        // SAFETY: see the head of the file.
        unsafe { TensorViewMut::from_raw(name, *place, *address, *bytes, *dtype, shape, strides) }
    }
}
