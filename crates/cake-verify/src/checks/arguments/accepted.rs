//! Calls that look alarming and must be served: input and output interleaved in one buffer without a common byte.

use super::{CHECK, text};
use crate::cases::layout::Layout;
use crate::cases::{BackwardCase, Case, Form, Layouts};
use crate::checks::Context;
use crate::engine::call::Arguments;
use crate::engine::setup::Setup;
use crate::engine::target::Target;
use crate::report::Tally;

/// How `y` lies in the gaps of `x`.
struct Interleaved {
    name: &'static str,
    x: Layout,
    width: u32,
    /// Elements from the first of `x` to the first of `y`.
    shift: u64,
}

const INTERLEAVED: [Interleaved; 4] = [
    Interleaved { name: "even and odd columns", x: Layout::Every(2), width: 64, shift: 1 },
    Interleaved { name: "left and right half", x: Layout::Pitch(2), width: 128, shift: 128 },
    Interleaved { name: "first and last of three", x: Layout::Pitch(3), width: 64, shift: 128 },
    Interleaved { name: "neighbours in a gap", x: Layout::Gap(101), width: 100, shift: 101 },
];

pub(super) fn judge(context: &Context) -> Tally {
    let mut tally = Tally::default();
    for interleaved in INTERLEAVED {
        tally.judge_result(CHECK, interleaved.name, serve(&interleaved, &context.target, context.seed));
    }
    let result = with_any_eps(&context.target, context.seed);
    tally.judge_result(CHECK, "no valid eps, and no use for one", result);
    tally
}

/// A backward call that is given `rstd` does not look at `eps`.
fn with_any_eps(target: &Target, seed: u64) -> Result<(), String> {
    let case = BackwardCase::new(5, 64);
    let setup = Setup::new(&case, target, seed).map_err(text)?;
    let plan = target.plan(&case.spec()).map_err(text)?;
    for eps in [f32::NAN, -1.0, f32::INFINITY] {
        setup.reset().map_err(text)?;
        let mut call = setup.call();
        call.eps = eps;
        call.run(&plan, &setup.lane).map_err(text)?;
        setup.expect_canonical()?;
    }
    Ok(())
}

fn serve(interleaved: &Interleaved, target: &Target, seed: u64) -> Result<(), String> {
    let layouts = Layouts { x: interleaved.x, ..Layouts::default() };
    let case = Case { layouts, ..Case::new(5, interleaved.width).form(Form::COMMON[0]) };
    let setup = Setup::new(&case, target, seed).map_err(text)?;
    let mut call = setup.call();
    call.y.address = call.x.address + 2 * interleaved.shift;
    call.y.strides = call.x.strides.clone();
    call.y.bytes = call.x.bytes;
    call.run(&target.plan(&case.spec).map_err(text)?, &setup.lane).map_err(text)?;
    let (x, image) = setup.input("x").map_err(text)?;
    for row in 0..5 {
        let expected = setup.expected.row(row);
        for column in 0..interleaved.width as usize {
            let kept = x.bits(&image, row, column) as u16;
            let y = x.bits(&image[interleaved.shift as usize..], row, column) as u16;
            if (kept, y) != (expected.x[column], expected.y[column]) {
                return Err(format!("row {row} column {column}: x {kept:#06x}, y {y:#06x}"));
            }
        }
    }
    Ok(())
}
