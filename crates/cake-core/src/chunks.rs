//! How a persistent backward kernel divides the rows: chunks that are subtrees of the row tree, and where its sums wait.
//! No result depends on it.

use crate::sums::LEAF_ROWS;
use crate::{DeviceInfo, Kernel, Workspace};

/// Most chunks; the kernels join their sums in one go.
const MOST: u32 = 2048;

/// Most chunks where they are narrow and of two sizes.
const MOST_NARROW: u32 = 2 * MOST;

/// The division of the rows of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunks {
    /// Rows of a chunk: a leaf for each group of a CTA, times a power of two.
    pub rows: u32,
    /// Chunks of that size. Those behind them, if any, have an eighth of it.
    pub large: u32,
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
    /// Whether the kernel takes chunks of two sizes, and keeps all levels in shared memory: rows so narrow that a call has very
    /// many, and a chunk with all its levels is small.
    pub narrow: bool,
}

impl Divider<'_> {
    /// For `rows` rows.
    pub fn chunks(&self, rows: u32) -> Chunks {
        if self.narrow {
            return self.narrow_chunks(rows);
        }
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
        Chunks { rows: size, large: count, count, ctas, shared_levels, workspace }
    }

    /// For `rows` rows, chunks of `size` rows for a kernel that has no levels.
    pub fn chunks_of(&self, rows: u32, size: u32) -> Chunks {
        let count = rows.div_ceil(size);
        let ctas = count.clamp(1, self.slots());
        Chunks { rows: size, large: count, count, ctas, shared_levels: 0, workspace: self.narrow_workspace(count) }
    }

    /// Of all sizes with one or two rounds of them, the division that takes least time.
    fn narrow_chunks(&self, rows: u32) -> Chunks {
        let least = LEAF_ROWS as u32 * self.kernel.rows;
        let mut best: Option<(u64, u32, u32, u32, u32)> = None;
        let in_shared = |levels: &u32| walk_bytes(self.width, self.kernel, *levels) <= self.device.shared_per_cta;
        for levels in (0..=rows.div_ceil(least).next_power_of_two().ilog2()).take_while(in_shared) {
            let size = least << levels;
            let whole = rows / size / self.slots() * self.slots(); // keep all CTAs busy
            let small = (rows - whole * size).div_ceil(size / LEAF_ROWS as u32);
            let all = rows.div_ceil(size);
            let two = (levels >= 3 && whole > 0 && small > 0).then_some((whole, small));
            for (large, small) in [Some((all, 0)), two].into_iter().flatten() {
                let time =
                    self.narrow_time(large, size, false) + self.narrow_time(small, size / LEAF_ROWS as u32, true);
                let fits = large + small.div_ceil(LEAF_ROWS as u32) <= MOST && large + small <= MOST_NARROW;
                if fits && best.is_none_or(|(least, ..)| time < least) {
                    best = Some((time, levels, size, large, small));
                }
            }
        }
        let (_, levels, rows, large, small) = best.expect("the operator sends on what shared memory has no levels for");
        let count = large + small;
        let ctas = count.clamp(1, self.slots());
        Chunks { rows, large, count, ctas, shared_levels: levels, workspace: self.narrow_workspace(count) }
    }

    /// Time of `count` chunks, in quarters of that of a row of 128 elements when all slots are taken: CTAs that share an SM slow
    /// each other down, and each chunk begins with a cold read and ends with a barrier. The first CTAs begin together, so that
    /// an SM with one more of them is late; later ones begin wherever there is room. Measured on an H200.
    fn narrow_time(&self, count: u32, size: u32, later: bool) -> u64 {
        let [count, size, sms, ctas] = [count, size, self.sms(), self.ctas_per_sm()].map(u64::from);
        let end = 330 * 128 / u64::from(self.width.max(1));
        let (rounds, rest) = (count / (sms * ctas), count % (sms * ctas));
        let last = match rest {
            0 => 0,
            _ if later || rounds > 0 => size * (sms + rest) / sms + end,
            _ => size * (1 + rest.div_ceil(sms)) + end,
        };
        rounds * (size * (1 + ctas) + end) + last
    }

    fn narrow_workspace(&self, count: u32) -> u64 {
        let sums = if self.unordered { 2 } else { u64::from(count) };
        Workspace::HEADER + sums * u64::from(self.width.div_ceil(4)) * 16
    }

    /// Bytes of workspace that serve every number of rows up to `rows`.
    pub fn workspace_for_up_to(&self, rows: u32) -> u64 {
        if self.narrow {
            return self.narrow_workspace(rows.div_ceil(LEAF_ROWS as u32 * self.kernel.rows).clamp(1, MOST_NARROW));
        }
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
        self.sms() * self.ctas_per_sm()
    }

    fn sms(&self) -> u32 {
        self.max_sms.map_or(self.device.sms, |most| most.min(self.device.sms))
    }

    fn ctas_per_sm(&self) -> u32 {
        // With a limit on SMs a CTA may find one for itself, so that there can be only one for each.
        if self.max_sms.is_some() { 1 } else { self.kernel.min_ctas.max(1) }
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
