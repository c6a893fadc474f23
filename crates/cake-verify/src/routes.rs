//! `cake-verify routes`: which program serves a shape on an architecture, and what that rests on. Needs no GPU.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use cake_core::{Arch, DeviceInfo, Dtype, Op, Route, Shape};
use cake_kernels::RowTensor;
use cake_kernels::rmsnorm::{BackwardParams, ForwardParams};
use cake_kernels::silu_gate;
use cake_rmsnorm::{BackwardSpec, RmsNormBackward, RmsNormForward, Spec};
use cake_silu_gate::{SiluGateBackward, SiluGateForward};

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
    /// The backward, by what is asked of it.
    #[arg(long)]
    pub backward: bool,
    /// The residual form.
    #[arg(long)]
    pub residual: bool,
    /// The gated norm, in the form that models use.
    #[arg(long, conflicts_with = "residual")]
    pub gate: bool,
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
    let tuned = if options.gate { &shapes::GATED[..] } else { &shapes::TUNED };
    let widths = options.width.map_or_else(|| [tuned, &[1000]].concat(), |width| vec![width]);
    let mut text = format!("{device}\n");
    if options.gate {
        let weight = weight.context("weight none: a gated norm has a weight")?;
        for width in widths {
            gates(&mut text, cake_silu_gate::Spec { weight, ..cake_silu_gate::Spec::new(width) }, options, &device)?;
        }
        return Ok(text);
    }
    for width in widths {
        let norm = Spec { width, weight, residual: options.residual, ..Spec::new(width) };
        let what = format!("h{width}{}", if options.residual { " residual" } else { "" });
        if !options.backward {
            let params = |rows| ForwardParams { rows, width, ..ForwardParams::default() };
            tables::<RmsNormForward>(&mut text, &what, &norm, options.rows, &device, params)?;
            continue;
        }
        let both = BackwardSpec::new(norm);
        let asked = [
            ("", both),
            (", dx alone", BackwardSpec { dw: None, ..both }),
            (", rstd computed again", BackwardSpec { rstd: false, ..both }),
        ];
        for (label, spec) in asked {
            let params = |rows| BackwardParams {
                rows,
                width,
                dx: RowTensor { address: spec.dx.into(), ..RowTensor::default() },
                dw: spec.dw.is_some().into(),
                ..BackwardParams::default()
            };
            tables::<RmsNormBackward>(&mut text, &format!("{what}{label}"), &spec, options.rows, &device, params)?;
        }
    }
    Ok(text)
}

/// The tables of a gated norm.
fn gates(text: &mut String, norm: cake_silu_gate::Spec, options: &Options, device: &DeviceInfo) -> Result<()> {
    let what = format!("gate h{}", norm.width);
    if !options.backward {
        let params = |rows| silu_gate::ForwardParams { rows, width: norm.width, ..Default::default() };
        return tables::<SiluGateForward>(text, &what, &norm, options.rows, device, params);
    }
    let spec = cake_silu_gate::BackwardSpec::new(norm);
    let params = |rows| silu_gate::BackwardParams { rows, width: norm.width, dw: 1, ..Default::default() };
    tables::<SiluGateBackward>(text, &what, &spec, options.rows, device, params)
}

/// The tables of a specification, or what they say of a number of rows. `params` are those of a call of so many rows.
fn tables<O: Op>(
    text: &mut String,
    what: &str,
    spec: &O::Spec,
    rows: Option<u32>,
    device: &DeviceInfo,
    params: impl Fn(u32) -> O::Params,
) -> Result<()> {
    O::check_spec(spec)?;
    for (layout, vectors) in [("aligned rows", true), ("any layout", false)] {
        let table = O::routes(spec, device.arch, Shape { vectors, ..ALIGNED });
        writeln!(text, "{what}, {layout}:")?;
        match rows {
            Some(rows) => {
                let call = Some((rows, params(rows)));
                writeln!(text, "{}", line::<O>(spec, device, table.route(device, rows), call))?;
            }
            None => table
                .routes()
                .iter()
                .try_for_each(|route| writeln!(text, "{}", line::<O>(spec, device, route, None)))?,
        }
    }
    Ok(())
}

fn line<O: Op>(spec: &O::Spec, device: &DeviceInfo, route: &Route, call: Option<(u32, O::Params)>) -> String {
    let most = u64::from(route.rows_per_sm) * u64::from(device.sms);
    let window = match (&call, route.rows_per_sm) {
        (Some((rows, _)), _) => format!("{rows} rows"),
        (None, u32::MAX) => "every other T".into(),
        (None, _) => format!("T to {most}"),
    };
    let params = call.map(|(_, mut params)| {
        O::follow(spec, &mut params, route.program, Some(route), device);
        params
    });
    let kernels = O::kernels(spec, route.program).iter().map(|kernel| {
        let shared = O::shared_bytes(spec, kernel, params.as_ref()).min(device.shared_per_cta);
        let shape = format!("{} threads, {shared} B shared, {} rows a CTA", kernel.threads(), kernel.rows);
        match &params {
            Some(params) => format!("{kernel}: {} CTAs of {shape}", O::grid(kernel, params)),
            None => format!("{kernel}: {shape}"),
        }
    });
    let ahead = match route.rows_ahead(device) {
        0 => String::new(),
        rows => format!(", asks L2 for rows {rows} ahead"),
    };
    format!("  {window:<18} {}{ahead}  [{}]", kernels.collect::<Vec<_>>().join("; then "), route.evidence)
}
