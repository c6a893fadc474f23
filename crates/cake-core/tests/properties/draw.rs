//! Arguments drawn from bytes, so that a property test and a fuzzer can ask the same questions.

/// Choices made of bytes; zeros when there are no more.
pub(crate) struct Draw<'b>(&'b [u8]);

impl<'b> Draw<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Draw(bytes)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// True in one of `n` cases, never without bytes.
    pub(crate) fn rarely(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }

    pub(crate) fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        if n <= 256 { u64::from(self.byte()) % n } else { self.word() % n }
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A number that is mostly small, else next to a power of two, or any.
    pub(crate) fn size(&mut self) -> u64 {
        match self.byte() {
            kind @ 0..128 => u64::from(kind) % 9,
            kind @ 128..160 => u64::from(kind) * 8,
            160..240 => {
                let power = 1_u64.checked_shl(self.byte().into()).unwrap_or(0);
                power.wrapping_add(self.below(5)).wrapping_sub(2)
            }
            _ => self.word(),
        }
    }

    /// Likewise, now and then negative.
    pub(crate) fn stride(&mut self) -> i64 {
        let size = self.size() as i64;
        if self.rarely(32) { size.wrapping_neg() } else { size }
    }
}
