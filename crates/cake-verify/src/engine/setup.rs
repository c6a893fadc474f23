//! A case made ready: inputs and poisoned outputs in the target's memory, and the images that should be there after.

use std::cell::Cell;
use std::marker::PhantomData;

use cake_core::{Plan, Result, Shape, Workspace};

use super::call::Arguments;
use super::compare::{self, Difference};
use super::image::{CANARY, MARGIN, POISON, Tensor};
use super::memory::{Argument, Memory, Space};
use super::subject::Subject;
use super::target::{Lane, Target};
use crate::cases::Case;

/// A case in memory.
#[derive(Debug)]
pub struct Setup<C: Subject = Case> {
    /// What it was made from.
    pub case: C,
    /// Inputs and canonical outputs.
    pub expected: C::Expected,
    /// What its calls are queued on.
    pub lane: Lane,
    /// Blocks that no output lies in.
    inputs: Vec<Slot>,
    /// Blocks that an output lies in.
    outputs: Vec<Slot>,
    /// The workspace, if a plan needs one.
    scratch: Option<Scratch>,
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

impl<C: Subject> Setup<C> {
    /// Readies a case on a target.
    pub fn new(case: &C, target: &Target, seed: u64) -> Result<Setup<C>> {
        Setup::with(case, target, case.expected(seed))
    }

    /// Readies a case with given inputs, which are shaped as the case says.
    pub fn with(case: &C, target: &Target, expected: C::Expected) -> Result<Setup<C>> {
        let lane = target.lane()?;
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for Draft { name, also, tensor, initial, after } in case.drafts(&expected) {
            let memory = Memory::holding(target, &lane, &initial)?;
            match after {
                None => inputs.push(Slot { name, also, tensor, initial, after: Vec::new(), memory }),
                Some(after) => outputs.push(Slot { name, also, tensor, initial, after, memory }),
            }
        }
        let ways = target.plans::<C::Op>(&case.spec())?;
        let bytes = ways.iter().map(|way| way.plan.workspace_bytes(rows_of(case))).max().unwrap_or(0);
        let scratch = if bytes > 0 { Some(Scratch::new(target, &lane, bytes)?) } else { None };
        Ok(Setup { case: case.clone(), expected, lane, inputs, outputs, scratch })
    }

    /// The call, with a workspace that serves every plan.
    pub fn call(&self) -> C::Call<'_> {
        self.call_with(self.scratch.as_ref().map_or(0, |scratch| scratch.bytes))
    }

    /// The call, with exactly the workspace that a plan asks for.
    pub fn call_for(&self, plan: &Plan<C::Op>) -> C::Call<'_> {
        self.call_with(plan.workspace_bytes(rows_of(&self.case)))
    }

    fn call_with(&self, bytes: u64) -> C::Call<'_> {
        let scratch = self.scratch.as_ref().filter(|_| bytes > 0);
        self.case.call(|name| self.find(name), scratch.map(|scratch| scratch.space(bytes)))
    }

    /// Queues the call.
    pub fn queue(&self, plan: &Plan<C::Op>) -> Result<()> {
        self.call_for(plan).queue(plan, &self.lane)
    }

    /// Runs the call and waits.
    pub fn run(&self, plan: &Plan<C::Op>) -> Result<()> {
        self.call_for(plan).run(plan, &self.lane)
    }

    fn find(&self, name: &'static str) -> Option<Argument<'_>> {
        let slot = self.inputs.iter().chain(&self.outputs).find(|slot| slot.name == name || slot.also == Some(name))?;
        Some(slot.tensor.argument(name, &slot.memory))
    }

    /// First byte and one past the last of each tensor, and whether it is an output.
    pub fn ranges(&self) -> impl Iterator<Item = ((u64, u64), bool)> {
        let range = |slot: &Slot| {
            let argument = slot.tensor.argument(slot.name, &slot.memory);
            (argument.address, argument.address + argument.bytes)
        };
        let inputs = self.inputs.iter().map(move |slot| (range(slot), false));
        inputs.chain(self.outputs.iter().map(move |slot| (range(slot), true)))
    }

    /// The call as routing sees it.
    pub fn shape(&self) -> Result<Shape> {
        self.call().check(&self.case.spec(), &self.lane)
    }

    /// Brings the outputs and the workspace back to what they were before the first call.
    pub fn reset(&self) -> Result<()> {
        self.scratch.iter().try_for_each(|scratch| scratch.reset(&self.lane))?;
        self.outputs.iter().try_for_each(|slot| slot.memory.write(&self.lane, 0, &slot.initial))
    }

    /// What the outputs' blocks hold now.
    pub fn outputs(&self) -> Result<Outputs> {
        let images = self.outputs.iter().map(|slot| slot.memory.image(&self.lane)).collect::<Result<_>>()?;
        let beside = self.scratch.as_ref().map(|scratch| scratch.changed(&self.lane)).transpose()?.flatten();
        Ok(Outputs { images, beside })
    }

    /// How the outputs differ from the canonical bits, where they have such, or their surroundings from what they were.
    pub fn differences(&self, outputs: Outputs) -> Vec<Difference> {
        let pairs = self.outputs.iter().zip(outputs.images);
        let of_slot = |(slot, image): (&Slot, Vec<u16>)| {
            if self.case.unordered() != Some(slot.name) {
                return compare::differences(slot.name, &slot.tensor, &slot.after, image);
            }
            let mut expected = slot.after.clone();
            slot.tensor.copy(&image, &mut expected);
            compare::differences(slot.name, &slot.tensor, &expected, image)
        };
        pairs.flat_map(of_slot).chain(outputs.beside).collect()
    }

    /// Waits for the queued calls; the first difference of the outputs from the canonical bits is an error.
    pub fn expect_canonical(&self) -> std::result::Result<(), String> {
        let outputs = self.lane.synchronize().and_then(|()| self.outputs()).map_err(|error| error.to_string())?;
        let differences = self.differences(outputs);
        differences.first().map_or(Ok(()), |difference| Err(format!("[{}] {difference}", self.case)))
    }

    /// How the outputs differ from what they were before the call.
    pub fn writes(&self, outputs: Outputs) -> Vec<Difference> {
        let pairs = self.outputs.iter().zip(outputs.images);
        let slots = pairs.filter(|(slot, image)| !compare::same(&slot.initial, image)).map(|(slot, _)| written(slot));
        slots.chain(outputs.beside).collect()
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
    pub fn replace(&mut self, expected: C::Expected) -> Result<()> {
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
        Some(self.outputs[i].tensor.bits(&outputs.images[i], row, column))
    }

    /// The outputs, and how many columns each has.
    pub fn output_columns(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.outputs.iter().map(|slot| (slot.name, slot.tensor.size().1))
    }
}

fn rows_of(case: &impl Subject) -> u32 {
    case.norm().rows().try_into().expect("a case that fits memory has fewer rows")
}

/// Images of the blocks that outputs lie in, and what changed beside the workspace that was lent.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    images: Vec<Vec<u16>>,
    beside: Option<Difference>,
}

fn written(slot: &Slot) -> Difference {
    Difference { name: slot.name, count: 1, first: "a byte of its block that must not change".into() }
}

/// Memory for workspaces: the header at rest, then NaN. Beside what was lent last nothing may change, and the header rests
/// in the end.
#[derive(Debug)]
struct Scratch {
    memory: Memory,
    bytes: u64,
    lent: Cell<u64>,
}

impl Scratch {
    fn new(target: &Target, lane: &Lane, bytes: u64) -> Result<Scratch> {
        let memory = Memory::of(target, 2 * (Scratch::HEAD + bytes as usize / 2 + MARGIN))?;
        let scratch = Scratch { memory, bytes, lent: Cell::new(bytes) };
        scratch.reset(lane)?;
        Ok(scratch)
    }

    /// Halfwords of the margin and the header.
    const HEAD: usize = MARGIN + Workspace::HEADER as usize / 2;

    /// The margin, and the header at rest.
    fn head() -> Vec<u16> {
        let mut head = vec![CANARY; Scratch::HEAD];
        head[MARGIN..].fill(0);
        head
    }

    /// The halfword where the margin behind the workspace begins.
    fn tail(&self) -> usize {
        MARGIN + self.bytes as usize / 2
    }

    /// The first `bytes` of it.
    fn space(&self, bytes: u64) -> Space<'_> {
        self.lent.set(bytes);
        Space { address: self.memory.address() + 2 * MARGIN as u64, bytes, memory: PhantomData }
    }

    fn reset(&self, lane: &Lane) -> Result<()> {
        self.memory.fill(lane, 0xff)?; // halfwords of POISON
        self.memory.write(lane, 0, &Scratch::head())?;
        self.memory.write(lane, self.tail() as u64, &[CANARY; MARGIN])
    }

    /// What changed beside the bytes that may.
    fn changed(&self, lane: &Lane) -> Result<Option<Difference>> {
        let mut head = vec![0; Scratch::HEAD];
        self.memory.read(lane, 0, &mut head)?;
        head[MARGIN + 1] &= 0x7fff; // the barrier's word rests with bit 31 either way
        let behind = MARGIN + self.lent.get() as usize / 2;
        let mut rest = vec![0; self.tail() + MARGIN - behind];
        self.memory.read(lane, behind as u64, &mut rest)?;
        let mut expected = vec![POISON; self.tail() - behind];
        expected.resize(rest.len(), CANARY);
        let heads = head.iter().zip(Scratch::head()).enumerate();
        let rests = rest.iter().zip(expected).enumerate().map(|(i, pair)| (behind + i, pair));
        let changed: Vec<(usize, u16)> =
            heads.chain(rests).filter(|(_, (now, then))| *now != then).map(|(i, (now, _))| (i, *now)).collect();
        Ok(changed.first().map(|&(i, now)| {
            let byte = 2 * i as i64 - 2 * MARGIN as i64;
            let first = format!("outside what was lent, or in the header: byte {byte}, {now:#06x}");
            Difference { name: "workspace", count: changed.len(), first }
        }))
    }
}

const _: () = assert!(POISON == 0xffff, "Scratch::reset fills with bytes");

/// A slot before its memory exists.
pub struct Draft {
    name: &'static str,
    also: Option<&'static str>,
    tensor: Tensor,
    initial: Vec<u16>,
    after: Option<Vec<u16>>,
}

impl Draft {
    /// Gaps and margins of inputs are NaN: a read beyond the elements shows in the result.
    pub(super) fn input<'r>(name: &'static str, tensor: Tensor, content: impl Fn(usize) -> &'r [u16]) -> Draft {
        let mut initial = tensor.image(POISON);
        tensor.write_rows(&mut initial, content);
        Draft { name, also: None, tensor, initial, after: None }
    }

    pub(super) fn output<'r>(name: &'static str, tensor: Tensor, content: impl Fn(usize) -> &'r [u16]) -> Draft {
        let mut initial = tensor.image(CANARY);
        tensor.fill(&mut initial, POISON);
        let mut after = initial.clone();
        tensor.write_rows(&mut after, content);
        Draft { name, also: None, tensor, initial, after: Some(after) }
    }

    /// An input that the call replaces by an output.
    pub(super) fn overwritten<'r>(self, name: &'static str, content: impl Fn(usize) -> &'r [u16]) -> Draft {
        let mut after = self.initial.clone();
        self.tensor.write_rows(&mut after, content);
        Draft { name, also: Some(self.name), after: Some(after), ..self }
    }
}
