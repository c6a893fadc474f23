//! A case made ready: inputs and poisoned outputs in the target's memory, and the images that should be there after.

use cake_core::{Dtype, Op, Result};
use cake_rmsnorm::RmsNormForward;

use super::call::Call;
use super::compare::{self, Difference};
use super::expected::{Expected, weight_halfwords};
use super::image::{CANARY, POISON, Tensor, halfwords};
use super::memory::{Argument, Memory};
use super::target::{Lane, Target};
use crate::cases::Case;

/// A case in memory.
#[derive(Debug)]
pub struct Setup {
    /// What it was made from.
    pub case: Case,
    /// Inputs and canonical outputs.
    pub expected: Expected,
    /// What its calls are queued on.
    pub lane: Lane,
    /// Blocks that no output lies in.
    inputs: Vec<Slot>,
    /// Blocks that an output lies in.
    outputs: Vec<Slot>,
}

/// A tensor and its block.
#[derive(Debug)]
struct Slot {
    /// The argument; of the output, where input and output are the same memory.
    name: &'static str,
    /// The input that the memory is as well.
    also: Option<&'static str>,
    tensor: Tensor,
    /// Before a call.
    initial: Vec<u16>,
    /// After it.
    after: Vec<u16>,
    memory: Memory,
}

impl Setup {
    /// Readies a case on a target.
    pub fn new(case: &Case, target: &Target, seed: u64) -> Result<Setup> {
        Setup::with(case, target, Expected::of(case, seed))
    }

    /// Readies a case with given inputs, which are shaped as the case says.
    pub fn with(case: &Case, target: &Target, expected: Expected) -> Result<Setup> {
        let lane = target.lane()?;
        let (width, layouts) = (u64::from(case.spec.width), case.layouts);
        let activation =
            |layout: crate::cases::layout::Layout| Tensor::rows(Dtype::Bf16, layout.place(&case.lead, width));
        let mut setup = Setup { case: case.clone(), expected, lane, inputs: Vec::new(), outputs: Vec::new() };
        let e = &setup.expected;

        let x = Draft::input("x", activation(layouts.x), |row| &e.row(row).x);
        let residual = case.spec.residual.then(|| {
            let content = |row: usize| e.row(row).residual.as_deref().expect("the form has a residual");
            Draft::input("residual", activation(layouts.residual), content)
        });
        let mut drafts = Vec::new();
        if case.y_over_x {
            drafts.push(x.overwritten("y", |row| &e.row(row).y));
        } else {
            drafts.push(x);
            drafts.push(Draft::output("y", activation(layouts.y), |row| &e.row(row).y));
        }
        if let Some(residual) = residual {
            let h = |row: usize| e.row(row).h.as_deref().expect("the form has h");
            if case.h_over_residual {
                drafts.push(residual.overwritten("h", h));
            } else {
                drafts.push(residual);
                drafts.push(Draft::output("h", activation(layouts.h), h));
            }
        }
        if let (Some(bits), Some(dtype)) = (&e.weight, case.spec.weight) {
            let content = weight_halfwords(bits, dtype);
            drafts.push(Draft::input("weight", Tensor::rows(dtype, layouts.weight.place(&[], width)), |_| &content));
        }
        if case.rstd {
            let lead = if case.lead.is_empty() { &[1][..] } else { &case.lead };
            let tensor = Tensor::one_for_each_row(Dtype::F32, layouts.rstd.place(lead, 1).without_columns());
            let bits: Vec<Vec<u16>> = e.distinct.iter().map(|row| halfwords(&[row.rstd])).collect();
            drafts.push(Draft::output("rstd", tensor, |row| &bits[e.of_row[row] as usize]));
        }
        for Draft { name, also, tensor, initial, after } in drafts {
            let memory = Memory::holding(target, &setup.lane, &initial)?;
            match after {
                None => setup.inputs.push(Slot { name, also, tensor, initial, after: Vec::new(), memory }),
                Some(after) => setup.outputs.push(Slot { name, also, tensor, initial, after, memory }),
            }
        }
        Ok(setup)
    }

    /// The call.
    pub fn call(&self) -> Call<'_> {
        let find = |name| self.find(name);
        Call {
            x: find("x").expect("every call has x"),
            weight: find("weight"),
            eps: self.case.eps,
            residual: find("residual"),
            y: find("y").expect("every call has y"),
            h: find("h"),
            rstd: find("rstd"),
        }
    }

    fn find(&self, name: &'static str) -> Option<Argument<'_>> {
        let slot = self.inputs.iter().chain(&self.outputs).find(|slot| slot.name == name || slot.also == Some(name))?;
        Some(slot.tensor.argument(name, &slot.memory))
    }

    /// Whether the call's layouts allow tuned programs.
    pub fn allows_vectors(&self) -> Result<bool> {
        let call = self.call();
        Ok(RmsNormForward::check(&self.case.spec, call.x.place, &call.views()?)?.0.vectors)
    }

    /// Brings the outputs back to what they were before the first call.
    pub fn reset(&self) -> Result<()> {
        self.outputs.iter().try_for_each(|slot| slot.memory.write(&self.lane, 0, &slot.initial))
    }

    /// What the outputs' blocks hold now.
    pub fn outputs(&self) -> Result<Outputs> {
        let images = self.outputs.iter().map(|slot| slot.memory.image(&self.lane)).collect::<Result<_>>()?;
        Ok(Outputs(images))
    }

    /// How the outputs differ from the canonical bits, or their surroundings from what they were.
    pub fn differences(&self, outputs: Outputs) -> Vec<Difference> {
        let pairs = self.outputs.iter().zip(outputs.0);
        pairs.flat_map(|(slot, image)| compare::differences(slot.name, &slot.tensor, &slot.after, image)).collect()
    }

    /// Waits for the queued calls; the first difference of the outputs from the canonical bits is an error.
    pub fn expect_canonical(&self) -> std::result::Result<(), String> {
        let outputs = self.lane.synchronize().and_then(|()| self.outputs()).map_err(|error| error.to_string())?;
        let differences = self.differences(outputs);
        differences.first().map_or(Ok(()), |difference| Err(format!("[{}] {difference}", self.case)))
    }

    /// How the outputs differ from what they were before the call.
    pub fn writes(&self, outputs: Outputs) -> Vec<Difference> {
        let pairs = self.outputs.iter().zip(outputs.0);
        pairs.filter(|(slot, image)| !compare::same(&slot.initial, image)).map(|(slot, _)| written(slot)).collect()
    }

    /// How the inputs differ from what they were before the first call.
    pub fn input_changes(&self) -> Result<Vec<Difference>> {
        let mut changes = Vec::new();
        for slot in &self.inputs {
            if !compare::same(&slot.initial, &slot.memory.image(&self.lane)?) {
                changes.push(written(slot));
            }
        }
        Ok(changes)
    }

    /// Gives the inputs' memory back.
    pub fn drop_inputs(&mut self) {
        self.inputs.clear();
    }

    /// Puts other data of the same case in the same memory.
    pub fn replace(&mut self, expected: Expected) -> Result<()> {
        let fresh = Setup::with(&self.case, &Target::Host, expected)?;
        for (slots, fresh) in [(&mut self.inputs, fresh.inputs), (&mut self.outputs, fresh.outputs)] {
            for (slot, fresh) in slots.iter_mut().zip(fresh) {
                slot.memory.write(&self.lane, 0, &fresh.initial)?;
                (slot.initial, slot.after) = (fresh.initial, fresh.after);
            }
        }
        self.expected = fresh.expected;
        Ok(())
    }

    /// An input, and what its block holds now.
    pub fn input(&self, name: &str) -> Result<(&Tensor, Vec<u16>)> {
        let slot = self.inputs.iter().find(|slot| slot.name == name).expect("an input of the case");
        Ok((&slot.tensor, slot.memory.image(&self.lane)?))
    }

    /// The bits of an output's element.
    pub fn bits(&self, outputs: &Outputs, name: &str, row: usize, column: usize) -> Option<u32> {
        let i = self.outputs.iter().position(|slot| slot.name == name)?;
        Some(self.outputs[i].tensor.bits(&outputs.0[i], row, column))
    }
}

/// Images of the blocks that outputs lie in.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs(Vec<Vec<u16>>);

fn written(slot: &Slot) -> Difference {
    Difference { name: slot.name, count: 1, first: "a byte of its block that must not change".into() }
}

/// A slot before its memory exists.
struct Draft {
    name: &'static str,
    also: Option<&'static str>,
    tensor: Tensor,
    initial: Vec<u16>,
    after: Option<Vec<u16>>,
}

impl Draft {
    /// Gaps and margins of inputs are NaN: a read beyond the elements shows in the result.
    fn input<'r>(name: &'static str, tensor: Tensor, content: impl Fn(usize) -> &'r [u16]) -> Draft {
        let mut initial = tensor.image(POISON);
        tensor.write_rows(&mut initial, content);
        Draft { name, also: None, tensor, initial, after: None }
    }

    fn output<'r>(name: &'static str, tensor: Tensor, content: impl Fn(usize) -> &'r [u16]) -> Draft {
        let mut initial = tensor.image(CANARY);
        tensor.fill(&mut initial, POISON);
        let mut after = initial.clone();
        tensor.write_rows(&mut after, content);
        Draft { name, also: None, tensor, initial, after: Some(after) }
    }

    /// An input that the call replaces by an output.
    fn overwritten<'r>(self, name: &'static str, content: impl Fn(usize) -> &'r [u16]) -> Draft {
        let mut after = self.initial.clone();
        self.tensor.write_rows(&mut after, content);
        Draft { name, also: Some(self.name), after: Some(after), ..self }
    }
}
