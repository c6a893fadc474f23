//! Fits the weight of an RMSNorm to a text. One step is: `y = rmsnorm(x) * w` by Cake, loss and `dy` on the host,
//! `dw = sum over rows of dy * xhat` by Cake again, and a move of `w` along `-dw`. No step depends on the number of threads or on the machine, so neither does the
//! digest of the result.

pub(crate) mod engine;
mod rows;
mod softmax;

use std::time::Duration;

use cake_rmsnorm::Result;
use engine::{Engine, Output};
use half::bf16;
use sha2::{Digest, Sha256};

pub(crate) use rows::Rows;

/// How many bytes before a byte take part in its prediction.
pub(crate) const CONTEXTS: usize = 8;
/// Values of a byte.
pub(crate) const CLASSES: usize = 256;
/// Elements of a row: a block of byte values for each context.
pub(crate) const WIDTH: usize = CONTEXTS * CLASSES;
/// A row needs as many bytes before it, and one to predict.
pub(crate) const LEAST_BYTES: usize = CONTEXTS + 1;
/// Longer texts are cut here.
pub(crate) const MOST_BYTES: usize = 16384;

/// Steps, unless asked for another number.
pub(crate) const STEPS: u32 = 50;
/// Step length over the gradient of the mean loss, to begin with.
const RATE: f32 = 48.0;
/// How much of a step the next one repeats.
const MOMENTUM: f32 = 0.9;

/// The state of a fit.
pub(crate) struct Fit<'a> {
    rows: &'a Rows,
    /// The weights that gave `output` and `bits`.
    pub(crate) w: Vec<f32>,
    /// The norm of the rows at `w`.
    pub(crate) output: Output,
    /// Loss at `w`, bits per byte.
    pub(crate) bits: f64,
    dw: Vec<f32>,
    /// The gradient at `trial`.
    pub(crate) dy: Vec<bf16>,
    velocity: Vec<f32>,
    rate: f32,
    trial: (Vec<f32>, Output),
}

impl<'a> Fit<'a> {
    /// Starts from weights of one.
    pub(crate) fn new(rows: &'a Rows, engine: &mut dyn Engine) -> Result<Fit<'a>> {
        let n = rows.count();
        let mut fit = Fit {
            rows,
            w: vec![0.0; WIDTH],
            output: Output::new(n),
            bits: f64::INFINITY,
            dw: vec![0.0; WIDTH],
            dy: vec![bf16::ZERO; n * WIDTH],
            velocity: vec![0.0; WIDTH],
            rate: RATE,
            trial: (vec![1.0; WIDTH], Output::new(n)),
        };
        fit.try_weights(engine)?;
        Ok(fit)
    }

    /// One step of gradient descent with momentum. A step that would raise the loss is taken back: then the descent
    /// starts anew from rest with half the rate.
    pub(crate) fn step(&mut self, engine: &mut dyn Engine) -> Result<()> {
        let rate = self.rate / self.rows.count() as f32;
        for (v, dw) in self.velocity.iter_mut().zip(&self.dw) {
            *v = MOMENTUM * *v - rate * dw;
        }
        for ((trial, w), v) in self.trial.0.iter_mut().zip(&self.w).zip(&self.velocity) {
            *trial = w + v;
        }
        if !self.try_weights(engine)? {
            self.rate *= 0.5;
            self.velocity.fill(0.0);
        }
        Ok(())
    }

    /// Runs the trial weights and adopts them, with their gradient, if they lower the loss.
    fn try_weights(&mut self, engine: &mut dyn Engine) -> Result<bool> {
        let (w, output) = &mut self.trial;
        engine.forward(w, output)?;
        let bits = softmax::loss(&output.y, &self.rows.next, &mut self.dy);
        if bits >= self.bits {
            return Ok(false);
        }
        engine.backward(w, output, &self.dy, &mut self.dw)?;
        self.bits = bits;
        std::mem::swap(&mut self.w, w);
        std::mem::swap(&mut self.output, output);
        Ok(true)
    }

    /// Time of `calls` forward passes at the current weights, copies between host and GPU not counted.
    pub(crate) fn time(&mut self, engine: &mut dyn Engine, calls: u32) -> Result<Duration> {
        engine.time(calls, &self.w, &mut self.trial.1)
    }

    /// SHA-256 of the weights, `y` and `rstd`, little-endian, in hexadecimal.
    pub(crate) fn digest(&self) -> String {
        let mut sha = Sha256::new();
        self.w.iter().for_each(|w| sha.update(w.to_bits().to_le_bytes()));
        self.output.y.iter().for_each(|y| sha.update(y.to_bits().to_le_bytes()));
        self.output.rstd.iter().for_each(|rstd| sha.update(rstd.to_bits().to_le_bytes()));
        sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
