//! Scratch memory of a stream: barrier words and partial sums.

use crate::{Buffer, Error, Result, Stream};

/// Device memory for the kernels of one stream. Borrowed mutably by each call, so that two calls never share it by
/// accident; the stream orders the calls that use it one after the other.
///
/// The first [`Workspace::HEADER`] bytes hold barrier and claim words. They are zero at rest: kernels leave them as they
/// found them, so no call has to set them. What follows may hold anything.
#[derive(Debug)]
pub struct Workspace {
    memory: Memory,
    /// Kept, so that no other stream gets the same handle.
    stream: Stream,
}

#[derive(Debug)]
enum Memory {
    Owned(Buffer),
    Borrowed { address: u64, bytes: u64 },
}

impl Workspace {
    /// Bytes of barrier and claim words at the start.
    pub const HEADER: u64 = 1024;
    /// What the address must be a multiple of.
    pub const ALIGNMENT: u64 = 256;

    /// Allocates a workspace of `bytes` (the header included) for `stream`.
    pub fn new(stream: &Stream, bytes: u64) -> Result<Workspace> {
        let buffer = Buffer::new(stream.device(), bytes.max(Self::HEADER))?;
        let mut workspace = Workspace { memory: Memory::Owned(buffer), stream: stream.clone() };
        workspace.reset(stream)?;
        Ok(workspace)
    }

    /// A workspace in memory that the caller owns; call [`Workspace::reset`] once unless the header is zero already.
    ///
    /// # Safety
    /// `address` must be `bytes` of memory on the stream's device, used by nothing else until the work that was queued
    /// with it has finished.
    #[allow(unsafe_code)] // declares the contract
    pub unsafe fn from_raw(stream: &Stream, address: u64, bytes: u64) -> Result<Workspace> {
        if address == 0 {
            return Err(Error::NullPointer { argument: "workspace", bytes });
        }
        if !address.is_multiple_of(Self::ALIGNMENT) {
            return Err(Error::Misaligned { argument: "workspace", expected: Self::ALIGNMENT, address });
        }
        if bytes < Self::HEADER {
            return Err(Error::WorkspaceShort { needed: Self::HEADER, held: bytes });
        }
        Ok(Workspace { memory: Memory::Borrowed { address, bytes }, stream: stream.clone() })
    }

    /// Queues zeros over the header: needed after a launch was aborted, and for new memory.
    pub fn reset(&mut self, stream: &Stream) -> Result<()> {
        let address = self.lend(stream, Self::HEADER)?;
        stream.fill(address, 0, Self::HEADER)
    }

    /// First byte, and one past the last.
    pub fn range(&self) -> (u64, u64) {
        match &self.memory {
            Memory::Owned(buffer) => (buffer.address(), buffer.address() + buffer.bytes()),
            Memory::Borrowed { address, bytes } => (*address, *address + *bytes),
        }
    }

    /// The address, for a call on `stream` that needs `needed` bytes.
    pub fn lend(&mut self, stream: &Stream, needed: u64) -> Result<u64> {
        if (stream.raw(), stream.place()) != (self.stream.raw(), self.stream.place()) {
            return Err(Error::Foreign {
                argument: "workspace",
                expected: format!("stream {:?} of {}", stream.raw(), stream.place()),
                actual: format!("stream {:?} of {}", self.stream.raw(), self.stream.place()),
            });
        }
        let (address, end) = self.range();
        let held = end - address;
        if held < needed {
            return Err(Error::WorkspaceShort { needed, held });
        }
        Ok(address)
    }
}
