//! What ptxas says about each kernel of an image.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// What a kernel takes of an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resources {
    /// Registers of a thread.
    pub(super) registers: u32,
    /// Static shared memory of a CTA, in bytes.
    pub(super) shared: u32,
    /// Local memory of a thread for the arguments of a `printf`, in bytes; nothing else may use any.
    pub(super) stack: u32,
}

/// The largest stack of a kernel that prints, in bytes: the arguments of a `printf` travel through local memory.
const MOST_PRINTED: u32 = 32;

/// Bytes that a kernel may spill on an architecture whose geometries were chosen on another: a register or two, where
/// registers are handed out differently.
pub(super) const UNTUNED_SPILLS: u32 = 32;

/// The resources of each entry function in the log of `ptxas -v`. A function that spills more than `spills` bytes is an
/// error, and so is one that keeps a stack in local memory for anything else but a `printf` in its PTX: both are slow, and
/// a sign of an array that the compiler could not keep in registers.
pub(super) fn resources(log: &str, ptx: &str, spills: u32) -> Result<BTreeMap<String, Resources>> {
    let mut entry = None;
    let mut function = "";
    let mut stack = 0;
    let mut found = BTreeMap::new();
    let mut refused = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split('\'').next();
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            function = name.trim();
        } else if line.contains("bytes stack frame") {
            stack = bytes(line, "stack frame")?;
            let (stores, loads) = (bytes(line, "spill stores")?, bytes(line, "spill loads")?);
            let most_stack = spills + if prints(ptx, function) { MOST_PRINTED } else { 0 };
            if stores > spills || loads > 2 * spills || stack > most_stack {
                refused.push(format!(
                    "{function} does not fit its registers: {stack} bytes of stack, {stores} of spill stores, {loads} \
                     of spill loads, expected at most {most_stack}, {spills}, {}",
                    2 * spills
                ));
            }
        } else if let Some((_, rest)) = line.split_once("Used ") {
            let name = entry.take().with_context(|| format!("ptxas reports resources of no function: {line}"))?;
            let registers = rest.split(' ').next().unwrap_or_default();
            let registers = registers.parse().with_context(|| format!("expected a number of registers: {line}"))?;
            let shared = if line.contains("bytes smem") { bytes(line, "smem")? } else { 0 };
            found.insert(name.to_string(), Resources { registers, shared, stack });
        }
    }
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    Ok(found)
}

/// Whether the kernel `name` calls `printf`.
fn prints(ptx: &str, name: &str) -> bool {
    let mut entries = ptx.split(".entry ").skip(1);
    entries.any(|entry| entry.split('(').next().map(str::trim) == Some(name) && entry.contains("vprintf"))
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

    const PTX: &str = ".visible .entry rmsnorm_fwd_h6144_row( ) { ret; }
.visible .entry rmsnorm_fwd_h6144_warp( ) { call.uni (retval0), vprintf, (param0, param1); }";

    #[test]
    fn registers_and_shared_memory_are_read() {
        let found = resources(LOG, "", 0).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found["rmsnorm_fwd_h6144_row"], Resources { registers: 22, shared: 128, stack: 0 });
        assert_eq!(found["rmsnorm_fwd_any_warp"], Resources { registers: 14, shared: 0, stack: 0 });
    }

    #[test]
    fn a_spill_is_refused_with_its_bytes() {
        let log = LOG.replacen("0 bytes stack frame, 0", "176 bytes stack frame, 200", 1);
        let error = resources(&log, PTX, 0).unwrap_err().to_string();
        assert!(error.starts_with("rmsnorm_fwd_h6144_row does not fit"), "{error}");
        assert!(error.contains("176 bytes of stack, 200 of spill stores"), "{error}");
    }

    #[test]
    fn a_stack_frame_is_refused_unless_the_kernel_prints() {
        let log = LOG.replacen("0 bytes stack", "32 bytes stack", 1);
        let error = resources(&log, PTX, 0).unwrap_err().to_string();
        assert!(error.contains("32 bytes of stack"), "{error}");

        let printing = PTX.replace("_warp", "_row");
        assert_eq!(resources(&log, &printing, 0).unwrap()["rmsnorm_fwd_h6144_row"].stack, 32);
        assert!(resources(&log.replacen("32 bytes stack", "40 bytes stack", 1), &printing, 0).is_err());
    }
}
