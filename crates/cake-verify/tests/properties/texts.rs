//! What is parsed: names on command lines, and images.

use cake_core::{Arch, Image};
use cake_kernels::image;
use cake_verify::engine::target::Target;
use cake_verify::run::target;

use super::draw::Draw;

/// Words that are names, nearly names, or anything.
pub(crate) fn names(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let known = ["sm_90a", "sm_90", "sm_100a", "sm_120", "host", "cuda:", "cuda:0", "cuda:4294967295", "a", ""];
    let mut name: String = draw.one_of(&known).into();
    for _ in 0..draw.below(4) {
        let letter = char::from_u32(if draw.flag() { draw.word() as u32 } else { draw.byte().into() }).unwrap_or(':');
        if draw.flag() { name.push(letter) } else { name.insert(0, letter) }
    }
    let arch = Arch::from_target(&name);
    let expected =
        Arch::ALL.into_iter().find(|arch| [arch.target(), arch.target().trim_end_matches('a')].contains(&&*name));
    assert_eq!(arch, expected, "{name:?}");
    match target(&name) {
        Ok(Target::Host) => assert_eq!(name, "host"),
        Ok(Target::Cuda(device)) => assert!(name.starts_with("cuda:") && device.info().ordinal < 64, "{name:?}"),
        Err(error) => assert!(name != "host" && !error.to_string().is_empty(), "{name:?}"),
    }
}

/// An image that was cut off or changed: an error, or at least an ELF file, as before.
pub(crate) fn images(bytes: &[u8]) {
    let mut draw = Draw::new(bytes);
    let right = image("probe", draw.one_of(&Arch::ALL));
    let spoil = |draw: &mut Draw<'_>, bytes: &[u8]| -> &'static [u8] {
        let mut bytes = bytes.to_vec();
        bytes.truncate(bytes.len() - if draw.flag() { draw.below(bytes.len() as u64 + 1) as usize } else { 0 });
        for _ in 0..draw.below(4) {
            if !bytes.is_empty() {
                let at = draw.below(bytes.len() as u64) as usize;
                bytes[at] ^= draw.byte();
            }
        }
        // An image is part of the program.
        Box::leak(bytes.into_boxed_slice())
    };
    let compressed = spoil(&mut draw, right.compressed);
    let sibling = right.sibling.map(|sibling| if draw.flag() { sibling } else { spoil(&mut draw, sibling) });
    let spoilt = Image { compressed, sibling, ..right };
    match spoilt.cubin() {
        Ok(cubin) => assert!(cubin.starts_with(b"\x7fELF")),
        Err(error) => assert!(error.to_string().starts_with("image of probe")),
    }
    assert!(right.cubin().is_ok_and(|cubin| cubin.starts_with(b"\x7fELF")));
}
