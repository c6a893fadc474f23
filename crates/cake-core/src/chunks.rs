//! How a persistent backward kernel divides the rows: chunks that are subtrees of the row tree, and where its sums wait.
//! No result depends on it.

use crate::sums::LEAF_ROWS;
use crate::{DeviceInfo, Kernel, Workspace};

/// Most chunks; the kernels join their sums in one go.
const MOST: u32 = 2048;

/// The division of the rows of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunks {
    /// Rows of a chunk: a leaf for each group of a CTA, times a power of two.
    pub rows: u32,
    /// Chunks.
    pub count: u32,
    /// CTAs that share them.
    pub ctas: u32,
    /// Levels of a group's tree that wait in shared memory.
    pub shared_levels: u32,
    /// Bytes of workspace: header, the chunks' sums, the levels that do not fit shared memory.
    pub workspace: u64,
}

/// What the division depends on besides the number of rows, for a kernel of the `walk` or `scan` schedule.
#[derive(Clone, Copy, Debug)]
pub struct Divider<'a> {
    /// Elements of a row.
    pub width: u32,
    /// What walks through the chunks.
    pub kernel: &'a Kernel,
    /// Where.
    pub device: &'a DeviceInfo,
    /// Most SMs to occupy.
    pub max_sms: Option<u32>,
    /// Whether the chunks' sums are added up in any order, in FP64.
    pub unordered: bool,
}

impl Divider<'_> {
    /// For `rows` rows.
    pub fn chunks(&self, rows: u32) -> Chunks {
        let Divider { width, kernel, unordered, .. } = *self;
        let (slots, fitting) = (self.slots(), self.shared_levels());

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
        let sum = u64::from(width.div_ceil(4)) * 16;
        let waiting = match kernel.width {
            Some(_) => u64::from(levels - shared_levels) * u64::from(level_bytes(width, kernel)),
            None => u64::from(levels + 1) * u64::from(kernel.rows) * sum, // the groups' sums wait there too
        };
        // In any order, the chunks share one sum in FP64.
        let sums = if unordered { 2 } else { u64::from(count) };
        let workspace = Workspace::HEADER + sums * sum + u64::from(ctas) * waiting;
        Chunks { rows: size, count, ctas, shared_levels, workspace }
    }

    /// Bytes of workspace that serve every number of rows up to `rows`.
    pub fn workspace_for_up_to(&self, rows: u32) -> u64 {
        self.edges(rows).map(|rows| self.chunks(rows).workspace).max().unwrap_or(0)
    }

    /// The numbers of rows up to `rows` at which the size of a chunk may change: where the busiest CTA gets one more, or
    /// chunks become too many. Between
    /// two of them a call needs the more workspace the more rows it has.
    fn edges(&self, rows: u32) -> impl Iterator<Item = u32> {
        let (slots, least) = (self.slots(), LEAF_ROWS as u64 * u64::from(self.kernel.rows));
        let counts = (slots..MOST).step_by(slots as usize).chain([MOST]);
        let edges =
            (0..32).flat_map(move |levels| counts.clone().map(move |count| (least << levels) * u64::from(count)));
        edges.filter(move |&edge| edge < u64::from(rows)).map(|edge| edge as u32).chain([rows])
    }

    /// CTAs that may run at once.
    fn slots(&self) -> u32 {
        // With a limit on SMs a CTA may find one for itself, so that there can be only one for each.
        let ctas_per_sm = if self.max_sms.is_some() { 1 } else { self.kernel.min_ctas.max(1) };
        self.max_sms.map_or(self.device.sms, |most| most.min(self.device.sms)) * ctas_per_sm
    }

    /// Levels that shared memory holds: none for a kernel of any width, whose levels have any size.
    fn shared_levels(&self) -> u32 {
        const RESERVED: u32 = 1024; // by the system, for each CTA
        let Divider { width, kernel, device, .. } = *self;
        if kernel.width.is_none() {
            return 0;
        }
        let folds = 2 * kernel.step * 4 * (if kernel.group > 32 { kernel.threads() } else { 1 } + kernel.rows);
        let per_cta = (device.shared_per_cta + RESERVED) / kernel.min_ctas.max(1) - RESERVED - folds;
        let fits = |levels: &u32| walk_bytes(width, kernel, *levels) <= per_cta;
        (1..=31).take_while(fits).last().unwrap_or(0)
    }
}

/// Bytes of shared memory for a number of levels of the groups' trees, and what else the `walk` schedule keeps there, for
/// rows of `width` elements.
pub fn walk_bytes(width: u32, kernel: &Kernel, levels: u32) -> u32 {
    // Where groups share a CTA, their sums meet in the place of a level. Where a thread has more than three units, shared
    // memory holds the sums of its leaf, too.
    let meeting = u32::from(kernel.rows > 1);
    let leaf = u32::from(width.div_ceil(8 * kernel.group) > 3);
    (levels.max(meeting) + leaf) * level_bytes(width, kernel)
}

/// Bytes of shared memory that joining the chunks' sums takes.
pub fn join_bytes(kernel: &Kernel) -> u32 {
    16 * kernel.threads()
}

/// Bytes of the groups' sums at a level of their trees.
fn level_bytes(width: u32, kernel: &Kernel) -> u32 {
    let units = width.div_ceil(8);
    32 * (units * kernel.rows).min(units.div_ceil(kernel.group) * kernel.threads())
}
