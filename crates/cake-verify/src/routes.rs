//! `cake-verify routes`: which program serves a shape on an architecture, and what that rests on. Needs no GPU.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use cake_core::{Arch, DeviceInfo, Dtype, Op, Route, Shape};
use cake_kernels::rmsnorm::ForwardParams;
use cake_rmsnorm::{RmsNormForward, Spec};

use crate::cases::{ALIGNED, shapes};

/// What to look up.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Architecture, `sm_90a`; a usual board of it is assumed.
    #[arg(long, default_value = "sm_90a")]
    pub arch: String,
    /// Width of the rows; without it, every tuned width and one that is not.
    #[arg(long)]
    pub width: Option<u32>,
    /// Number of rows; without it, the whole table.
    #[arg(long)]
    pub rows: Option<u32>,
    /// The residual form.
    #[arg(long)]
    pub residual: bool,
    /// `bf16`, `f32` or `none`.
    #[arg(long, default_value = "bf16")]
    pub weight: String,
}

/// The answer, as text.
pub fn routes(options: &Options) -> Result<String> {
    let names = || Arch::ALL.map(|arch| arch.target()).join(", ");
    let arch = Arch::from_target(&options.arch);
    let arch = arch.with_context(|| format!("arch {:?}: expected one of {}", options.arch, names()))?;
    let device = DeviceInfo::typical(arch);
    let weight = match options.weight.as_str() {
        "bf16" => Some(Dtype::Bf16),
        "f32" => Some(Dtype::F32),
        "none" => None,
        other => bail!("weight {other:?}: expected bf16, f32 or none"),
    };
    let widths = options.width.map_or_else(|| [&shapes::TUNED[..], &[1000]].concat(), |width| vec![width]);
    let mut text = format!("{device}\n");
    for width in widths {
        let spec = Spec { width, weight, residual: options.residual, ..Spec::new(width) };
        RmsNormForward::check_spec(&spec)?;
        for (layout, vectors) in [("aligned rows", true), ("any layout", false)] {
            let table = RmsNormForward::routes(&spec, arch, Shape { vectors, ..ALIGNED });
            let fusion = if options.residual { " residual" } else { "" };
            writeln!(text, "h{width}{fusion}, {layout}:")?;
            match options.rows {
                Some(rows) => writeln!(text, "{}", line(&spec, &device, table.route(&device, rows), Some(rows)))?,
                None => table
                    .routes()
                    .iter()
                    .try_for_each(|route| writeln!(text, "{}", line(&spec, &device, route, None)))?,
            }
        }
    }
    Ok(text)
}

fn line(spec: &Spec, device: &DeviceInfo, route: &Route, rows: Option<u32>) -> String {
    let most = u64::from(route.rows_per_sm) * u64::from(device.sms);
    let window = match (rows, route.rows_per_sm) {
        (Some(rows), _) => format!("{rows} rows"),
        (None, u32::MAX) => "every other T".into(),
        (None, _) => format!("T to {most}"),
    };
    let kernels = RmsNormForward::kernels(spec, route.program).iter().map(|kernel| {
        let shared = RmsNormForward::shared_bytes(spec, kernel, None);
        let shape = format!("{} threads, {shared} B shared, {} rows a CTA", kernel.threads(), kernel.rows);
        match rows {
            Some(rows) => {
                let params = ForwardParams { rows, width: spec.width, ..ForwardParams::default() };
                format!("{kernel}: {} CTAs of {shape}", RmsNormForward::grid(kernel, &params))
            }
            None => format!("{kernel}: {shape}"),
        }
    });
    let ahead = match route.rows_ahead(device) {
        0 => String::new(),
        rows => format!(", asks L2 for rows {rows} ahead"),
    };
    format!("  {window:<18} {}{ahead}  [{}]", kernels.collect::<Vec<_>>().join("; then "), route.evidence)
}
