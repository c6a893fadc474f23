//! Sampling: engines take turns, each time with an L2 that holds nothing of theirs.

use anyhow::Result;
use cake_core::Buffer;

use super::driver::{Event, Gpu};
use super::times::Times;

/// What is timed against what: a call that queues its work on the stream.
pub type Work<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// How often.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Times that the stream is filled with samples and waited for.
    pub rounds: u32,
    /// Samples of each engine in a round.
    pub samples: u32,
}

/// Fills L2 with dirty lines of other memory.
#[derive(Debug)]
pub struct Flush {
    buffer: Buffer,
    word: u32,
}

impl Flush {
    /// Four times the L2 of an H200, twice that of any board so far.
    pub const BYTES: u64 = 256 << 20;

    /// Takes the memory.
    pub fn new(gpu: &Gpu) -> Result<Flush> {
        Ok(Flush { buffer: Buffer::new(gpu.device(), Flush::BYTES)?, word: 0 })
    }

    /// Queues a fill, each with another value.
    fn queue(&mut self, gpu: &Gpu) -> Result<()> {
        self.word = self.word.wrapping_add(0x9e37_79b9);
        gpu.fill(&self.buffer, self.word)
    }
}

/// Samples every engine: A B C, A B C, ...
///
/// The fill takes the device far longer than queueing a sample takes the host, so the host stays ahead: between the two
/// events of a sample the device waits for nothing.
pub fn interleaved(gpu: &Gpu, flush: &mut Flush, engines: &mut [Work<'_>], effort: Effort) -> Result<Vec<Times>> {
    let events = || (0..engines.len() * effort.samples as usize).map(|_| Event::new(gpu)).collect::<Result<Vec<_>>>();
    let (starts, ends) = (events()?, events()?);
    for _ in 0..2 {
        for work in engines.iter_mut() {
            flush.queue(gpu)?;
            work()?;
        }
    }
    gpu.stream().synchronize()?;

    let mut times = vec![Times::new(); engines.len()];
    for _ in 0..effort.rounds {
        // A head start for the host.
        flush.queue(gpu)?;
        flush.queue(gpu)?;
        for (turn, (start, end)) in starts.iter().zip(&ends).enumerate() {
            flush.queue(gpu)?;
            start.record()?;
            engines[turn % engines.len()]()?;
            end.record()?;
        }
        gpu.stream().synchronize()?;
        for (turn, (start, end)) in starts.iter().zip(&ends).enumerate() {
            times[turn % engines.len()].record(end.since(start)?);
        }
    }
    Ok(times)
}
