//! Joining the weight gradients of row shards: the canonical bits, from `cake_core::sums::plain`, and the tensors.

use cake_core::Dtype;
use cake_core::sums::{plain, rms};
use cake_rmsnorm::{CombineDw, CombineSpec};

use super::call::CombineCall;
use super::expected::{floats, weight_halfwords};
use super::gradients::{random_weight_gradient, stored};
use super::image::{Tensor, halfwords};
use super::memory::{Argument, Space};
use super::setup::Draft;
use super::subject::{Subject, weight_gradient};
use crate::cases::random::Random;
use crate::cases::{Case, CombineCase};

/// Inputs, and what should come of them, as f32 bits.
#[derive(Clone, Debug)]
pub struct Shards {
    /// The weight gradient of each shard.
    pub shards: Vec<Vec<u32>>,
    /// What `dw` holds before the call, if it is added to.
    pub old: Option<Vec<u32>>,
    /// What it holds after.
    pub dw: Vec<u32>,
}

impl Shards {
    /// Of a case.
    pub fn of(case: &CombineCase, seed: u64) -> Shards {
        let width = case.norm.spec.width;
        let of_shard = |shard| {
            let mut random = Random::new(seed, &[shard]);
            (0..width).map(|_| random.normal().to_bits()).collect()
        };
        let old = case.accumulate.then(|| random_weight_gradient(seed, width, case.dw));
        Shards::computed(case, (0..case.norm.rows()).map(of_shard).collect(), old)
    }

    fn computed(case: &CombineCase, shards: Vec<Vec<u32>>, old: Option<Vec<u32>>) -> Shards {
        let of_column = |column: usize| {
            let roots: Vec<u32> = shards.iter().map(|shard| shard[column]).collect();
            let old = old.as_ref().map(|old| f32::from_bits(old[column]));
            stored(case.dw, rms::accumulate(old, plain::combine(&floats(&roots))))
        };
        let dw = (0..case.norm.spec.width as usize).map(of_column).collect();
        Shards { shards, old, dw }
    }
}

impl Subject for CombineCase {
    type Op = CombineDw;
    type Expected = Shards;
    type Call<'m> = CombineCall<'m>;

    fn norm(&self) -> &Case {
        &self.norm
    }

    fn norm_mut(&mut self) -> &mut Case {
        &mut self.norm
    }

    fn spec(&self) -> CombineSpec {
        CombineCase::spec(self)
    }

    fn expected(&self, seed: u64) -> Shards {
        Shards::of(self, seed)
    }

    fn alone(&self, expected: &Shards, row: usize) -> Shards {
        Shards::computed(self, vec![expected.shards[row].clone()], expected.old.clone())
    }

    fn drafts(&self, expected: &Shards) -> Vec<Draft> {
        let (width, layouts) = (u64::from(self.norm.spec.width), self.norm.layouts);
        let shards: Vec<Vec<u16>> = expected.shards.iter().map(|shard| halfwords(shard)).collect();
        let tensor = Tensor::rows(Dtype::F32, layouts.x.place(&self.norm.lead, width));
        let content = |bits: &Vec<u32>| weight_halfwords(bits, self.dw);
        let dw = weight_gradient(&self.norm, self.dw, expected.old.as_ref().map(content), &content(&expected.dw));
        vec![Draft::input("shards", tensor, |shard| &shards[shard]), dw]
    }

    fn call<'m>(&self, find: impl Fn(&'static str) -> Option<Argument<'m>>, _: Option<Space<'m>>) -> CombineCall<'m> {
        let found = |name| find(name).expect("every call has it");
        CombineCall { shards: found("shards"), dw: found("dw") }
    }
}
