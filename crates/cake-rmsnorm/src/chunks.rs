//! How a persistent backward kernel divides the rows: chunks that are subtrees of the row tree, and where its sums wait.
//! No result depends on it.

use cake_core::sums::LEAF_ROWS;
use cake_core::{DeviceInfo, Kernel, Workspace};

use crate::BackwardSpec;

/// Most chunks; the kernels join their sums in one go.
const MOST: u32 = 2048;

/// The division of the rows of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chunks {
    /// Rows of a chunk: a leaf for each group of a CTA, times a power of two.
    pub(crate) rows: u32,
    /// Chunks.
    pub(crate) count: u32,
    /// CTAs that share them.
    pub(crate) ctas: u32,
    /// Levels of a group's tree that wait in shared memory.
    pub(crate) shared_levels: u32,
    /// Bytes of workspace: header, the chunks' sums, the levels that do not fit shared memory.
    pub(crate) workspace: u64,
}

impl Chunks {
    /// The numbers of rows up to `rows` at which the size of a chunk may change: where the busiest CTA gets one more, or
    /// chunks become too many. Between
    /// two of them a call needs the more workspace the more rows it has.
    pub(crate) fn edges(
        spec: &BackwardSpec,
        kernel: &Kernel,
        rows: u32,
        device: &DeviceInfo,
    ) -> impl Iterator<Item = u32> {
        let (slots, least) = (slots(spec, kernel, device), LEAF_ROWS as u64 * u64::from(kernel.rows));
        let counts = (slots..MOST).step_by(slots as usize).chain([MOST]);
        let edges =
            (0..32).flat_map(move |levels| counts.clone().map(move |count| (least << levels) * u64::from(count)));
        edges.filter(move |&edge| edge < u64::from(rows)).map(|edge| edge as u32).chain([rows])
    }

    /// For `rows` rows, by a kernel of the `walk` or `scan` schedule.
    pub(crate) fn new(spec: &BackwardSpec, kernel: &Kernel, rows: u32, device: &DeviceInfo) -> Chunks {
        let slots = slots(spec, kernel, device);
        let fitting = shared_levels(spec, kernel, device);

        let least = LEAF_ROWS as u32 * kernel.rows;
        let doublings = 0..=rows.div_ceil(least).next_power_of_two().ilog2();
        let sizes = doublings.map(|levels| (levels, least << levels)).filter(|(_, size)| rows.div_ceil(*size) <= MOST);
        // The time of the busiest CTA, in rows: a chunk's sum costs as much memory traffic as 4 / 3 rows, and so does each
        // sum that waits in the workspace.
        let cost = |(levels, size): (u32, u32)| {
            let waiting = if levels > fitting { 1_u64 << (levels - fitting) } else { 0 };
            u64::from(rows.div_ceil(size).div_ceil(slots)) * (3 * u64::from(size) + 4 + 4 * waiting)
        };
        let (levels, size) = sizes.min_by_key(|&option| cost(option)).expect("one chunk holds all rows");

        let count = rows.div_ceil(size);
        let ctas = count.clamp(1, slots);
        let shared_levels = fitting.min(levels);
        let sum = u64::from(spec.norm.width.div_ceil(4)) * 16;
        let waiting = match kernel.width {
            Some(_) => u64::from(levels - shared_levels) * u64::from(level_bytes(spec, kernel)),
            None => u64::from(levels + 1) * u64::from(kernel.rows) * sum, // the groups' sums wait there too
        };
        // In any order, the chunks share one sum in FP64.
        let sums = if spec.deterministic { u64::from(count) } else { 2 };
        let workspace = Workspace::HEADER + sums * sum + u64::from(ctas) * waiting;
        Chunks { rows: size, count, ctas, shared_levels, workspace }
    }
}

/// CTAs that may run at once.
fn slots(spec: &BackwardSpec, kernel: &Kernel, device: &DeviceInfo) -> u32 {
    // With a limit on SMs a CTA may find one for itself, so that there can be only one for each.
    let ctas_per_sm = if spec.max_sms.is_some() { 1 } else { kernel.min_ctas.max(1) };
    spec.max_sms.map_or(device.sms, |most| most.min(device.sms)) * ctas_per_sm
}

/// Bytes of shared memory for a number of levels of the groups' trees, and what else the `walk` schedule keeps there.
pub(crate) fn walk_bytes(spec: &BackwardSpec, kernel: &Kernel, levels: u32) -> u32 {
    // Where groups share a CTA, their sums meet in the place of a level. Where a thread has more than three units, shared
    // memory holds the sums of its leaf, too.
    let meeting = u32::from(kernel.rows > 1);
    let leaf = u32::from(spec.norm.width.div_ceil(8 * kernel.group) > 3);
    (levels.max(meeting) + leaf) * level_bytes(spec, kernel)
}

/// Bytes of the groups' sums at a level of their trees.
fn level_bytes(spec: &BackwardSpec, kernel: &Kernel) -> u32 {
    let units = spec.norm.width.div_ceil(8);
    32 * (units * kernel.rows).min(units.div_ceil(kernel.group) * kernel.threads())
}

/// Levels that shared memory holds: none for a kernel of any width, whose levels have any size.
fn shared_levels(spec: &BackwardSpec, kernel: &Kernel, device: &DeviceInfo) -> u32 {
    const RESERVED: u32 = 1024; // by the system, for each CTA
    if kernel.width.is_none() {
        return 0;
    }
    let folds = 2 * kernel.step * 4 * (if kernel.group > 32 { kernel.threads() } else { 1 } + kernel.rows);
    let per_cta = (device.shared_per_cta + RESERVED) / kernel.min_ctas.max(1) - RESERVED - folds;
    let fits = |levels: &u32| walk_bytes(spec, kernel, *levels) <= per_cta;
    (1..=31).take_while(fits).last().unwrap_or(0)
}
