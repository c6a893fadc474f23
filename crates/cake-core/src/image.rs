//! Images: the compiled code of one operator for one architecture, embedded and compressed.

use std::io::Read;

use crate::{Arch, Error, Result};

/// The cubin that holds every kernel of `op` for `arch`.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// Operator.
    pub op: &'static str,
    /// Architecture whose devices can load it.
    pub arch: Arch,
    /// The cubin, compressed with zstd.
    pub compressed: &'static [u8],
    /// The compressed cubin of a sibling whose code is mostly the same, and to which `compressed` refers.
    pub sibling: Option<&'static [u8]>,
}

impl Image {
    /// The cubin.
    pub fn cubin(&self) -> Result<Vec<u8>> {
        let cubin = self.decompress().map_err(|error| Error::Image {
            op: self.op,
            arch: self.arch,
            detail: error.to_string(),
        })?;
        match cubin.starts_with(b"\x7fELF") {
            true => Ok(cubin),
            false => Err(Error::Image { op: self.op, arch: self.arch, detail: "is not an ELF file".into() }),
        }
    }

    fn decompress(&self) -> std::io::Result<Vec<u8>> {
        let sibling = self.sibling.map(zstd::decode_all).transpose()?.unwrap_or_default();
        let mut cubin = Vec::new();
        zstd::Decoder::with_ref_prefix(self.compressed, &sibling)?.read_to_end(&mut cubin)?;
        Ok(cubin)
    }
}
