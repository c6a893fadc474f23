//! What ptxas says about each kernel of an image.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// What a kernel takes of an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resources {
    /// Registers of a thread.
    pub(super) registers: u32,
    /// Static shared memory of a CTA, in bytes.
    pub(super) shared: u32,
}

/// The resources of each entry function in the log of `ptxas -v`. Any function that spills or keeps a stack in local
/// memory is an error: both are slow, and a sign of an array that the compiler could not keep in registers.
pub(super) fn resources(log: &str) -> Result<BTreeMap<String, Resources>> {
    let mut entry = None;
    let mut function = "";
    let mut found = BTreeMap::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split('\'').next();
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            function = name.trim();
        } else if line.contains("bytes stack frame") {
            let [stack, stores, loads] = ["stack frame", "spill stores", "spill loads"].map(|what| bytes(line, what));
            let (stack, stores, loads) = (stack?, stores?, loads?);
            ensure!(
                (stack, stores, loads) == (0, 0, 0),
                "{function} does not fit its registers: {stack} bytes of stack, {stores} of spill stores, {loads} of \
                 spill loads, expected 0"
            );
        } else if let Some((_, rest)) = line.split_once("Used ") {
            let name = entry.take().with_context(|| format!("ptxas reports resources of no function: {line}"))?;
            let registers = rest.split(' ').next().unwrap_or_default();
            let registers = registers.parse().with_context(|| format!("expected a number of registers: {line}"))?;
            let shared = if line.contains("bytes smem") { bytes(line, "smem")? } else { 0 };
            found.insert(name.to_string(), Resources { registers, shared });
        } else if line.contains("are spilled to local memory in function") {
            bail!("{}", line.trim());
        }
    }
    Ok(found)
}

/// The number in `<number> bytes <what>`.
fn bytes(line: &str, what: &str) -> Result<u32> {
    let before = line.split(&format!(" bytes {what}")).next().unwrap_or_default();
    let number = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    number.parse().with_context(|| format!("expected a number of bytes of {what}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'rmsnorm_fwd_h6144_row' for 'sm_90a'
ptxas info    : Function properties for rmsnorm_fwd_h6144_row
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 22 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compile time = 36.916 ms
ptxas info    : Compiling entry function 'rmsnorm_fwd_any_warp' for 'sm_90a'
ptxas info    : Function properties for rmsnorm_fwd_any_warp
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers
";

    #[test]
    fn registers_and_shared_memory_are_read() {
        let found = resources(LOG).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found["rmsnorm_fwd_h6144_row"], Resources { registers: 22, shared: 128 });
        assert_eq!(found["rmsnorm_fwd_any_warp"], Resources { registers: 14, shared: 0 });
    }

    #[test]
    fn a_spill_is_refused_with_its_bytes() {
        let log = LOG.replacen("0 bytes stack frame, 0", "176 bytes stack frame, 200", 1);
        let error = resources(&log).unwrap_err().to_string();
        assert!(error.starts_with("rmsnorm_fwd_h6144_row does not fit"), "{error}");
        assert!(error.contains("176 bytes of stack, 200 of spill stores"), "{error}");
    }

    #[test]
    fn a_stack_frame_is_refused() {
        let error = resources(&LOG.replacen("0 bytes stack", "32 bytes stack", 1)).unwrap_err().to_string();
        assert!(error.contains("32 bytes of stack"), "{error}");
    }
}
