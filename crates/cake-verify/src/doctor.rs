//! `cake-verify doctor`: what is here, what would be used and why, and what is missing. Never fails: it says so.

use std::fmt::Write;

use cake_core::{Arch, Device, DeviceInfo, Op, Plan, RouteTable};
use cake_rmsnorm::{BackwardSpec, RmsNormBackward, RmsNormForward, Spec};

use crate::cases::ALIGNED;
use crate::cases::shapes::TUNED;

/// The findings, as text.
pub fn doctor() -> String {
    let mut text = String::new();
    text.push_str("images embedded in this build:\n");
    for arch in Arch::ALL {
        let image = RmsNormForward::image(arch);
        let found = match image.cubin() {
            Ok(cubin) => format!("{} B, {} B unpacked", image.compressed.len(), cubin.len()),
            Err(error) => format!("missing: {error}; `cargo ci images` makes it"),
        };
        writeln!(text, "  {:<8} {}: {found}", arch.target(), image.op).expect("strings take all text");
    }
    text.push_str("driver: ");
    match Device::driver_version() {
        Ok(version) => writeln!(text, "CUDA {}.{}", version / 1000, version % 1000 / 10),
        Err(error) => writeln!(text, "{error}"),
    }
    .expect("strings take all text");
    let count = Device::count();
    match &count {
        Ok(0) => text.push_str("devices: none; the host path computes the same bits\n"),
        Ok(count) => (0..*count).for_each(|ordinal| text.push_str(&device(ordinal))),
        Err(error) => writeln!(text, "devices: {error}").expect("strings take all text"),
    }
    if count.is_err() || matches!(count, Ok(0)) {
        text.push_str(
            "every device check of `cake-verify run` needs a GPU; `cake-verify run --device host` needs none\n",
        );
    }
    text
}

/// One device: what it is, what its plans would run, whether they can.
fn device(ordinal: u32) -> String {
    let device = match Device::new(ordinal) {
        Ok(device) => device,
        Err(error) => return format!("cuda:{ordinal}: {error}\n"),
    };
    let mut text = format!("cuda:{ordinal}: {}\n", device.info());
    for width in [TUNED[0], 6144, 1000] {
        for residual in [false, true] {
            let (norm, form) = (Spec { residual, ..Spec::new(width) }, if residual { " residual" } else { "" });
            let lines =
                [plan::<RmsNormForward>(&device, norm), plan::<RmsNormBackward>(&device, BackwardSpec::new(norm))];
            lines.iter().for_each(|line| text.push_str(&format!("  h{width}{form}: {line}\n")));
        }
    }
    text.push_str(&untuned(device.info()));
    text
}

fn plan<O: Op>(device: &Device, spec: O::Spec) -> String {
    let made = Plan::<O>::new(device, spec);
    let ready = made.and_then(|plan| plan.warm_up().map(|()| plan.to_string()));
    ready.unwrap_or_else(|error| format!("{} cannot run: {error}", O::NAME))
}

/// Whether the routes of the device rest on measurements.
fn untuned(info: &DeviceInfo) -> String {
    let untuned = |table: &RouteTable| table.routes().iter().any(|route| route.evidence.contains("untuned"));
    let of_width = |&width: &u32| {
        let norm = Spec::new(width);
        let forward = RmsNormForward::routes(&norm, info.arch, ALIGNED);
        untuned(forward) || untuned(RmsNormBackward::routes(&BackwardSpec::new(norm), info.arch, ALIGNED))
    };
    let count = TUNED.iter().filter(|width| of_width(width)).count();
    match count {
        0 => "  every tuned width has routes with evidence\n".into(),
        _ => format!("  {count} of {} tuned widths have routes that nothing was measured for\n", TUNED.len()),
    }
}
