//! Cake's RMSNorm as an operator of candle: differentiable, on the CPU with the bits of every GPU, and on a GPU with the
//! feature `cuda`.
//!
//! ```
//! use cake_candle::RmsNorm;
//! use candle_core::{DType, Device, Module, Tensor, Var};
//!
//! let weight = Var::ones(64, DType::F32, &Device::Cpu)?;
//! let x = Var::from_tensor(&Tensor::randn(0f32, 1.0, (4, 64), &Device::Cpu)?.to_dtype(DType::BF16)?)?;
//! let norm = RmsNorm::new(weight.as_tensor().clone(), 1e-6)?;
//!
//! let gradients = norm.forward(&x)?.to_dtype(DType::F32)?.sqr()?.sum_all()?.backward()?;
//! assert_eq!(gradients.get(&weight).unwrap().dims(), [64]);
//! assert_eq!(gradients.get(&x).unwrap().dims(), [4, 64]);
//! # Ok::<(), candle_core::Error>(())
//! ```

#[cfg(feature = "cuda")]
mod cuda;
mod host;

use std::sync::{Arc, OnceLock};

use cake_rmsnorm::{BackwardPlan, BackwardSpec, Dtype, ForwardPlan, Spec};
#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, CustomOp2, DType, Device, Error, Layout, Module, Result, Shape, Storage, Tensor, bail};

/// A norm with its weight, `[H]` in BF16 or FP32. Inputs are BF16 `[.., H]`, at any strides.
#[derive(Clone)]
pub struct RmsNorm {
    weight: Tensor,
    eps: f32,
    plans: Arc<Plans>,
}

/// What does not change from call to call.
struct Plans {
    forward: ForwardPlan,
    backward: BackwardPlan,
}

impl RmsNorm {
    /// A norm on the weight's device.
    pub fn new(weight: Tensor, eps: f32) -> Result<RmsNorm> {
        let dtype = match weight.dtype() {
            DType::BF16 => Dtype::Bf16,
            DType::F32 => Dtype::F32,
            dtype => bail!("weight: dtype {dtype:?}, expected BF16 or F32"),
        };
        let spec = Spec { weight: Some(dtype), ..Spec::new(weight.dims1()? as u32) };
        // candle expects gradients in the dtype of what they belong to.
        let backward = BackwardSpec { dw: Some(dtype), ..BackwardSpec::new(spec) };
        let plans = match weight.device() {
            Device::Cpu => Plans {
                forward: ForwardPlan::host(spec).map_err(Error::wrap)?,
                backward: BackwardPlan::host(backward).map_err(Error::wrap)?,
            },
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => cuda::plans(device, spec, backward)?,
            device => {
                bail!("weight: lives on {:?}, expected the CPU or a GPU with the feature `cuda`", device.location())
            }
        };
        Ok(RmsNorm { weight, eps, plans: Arc::new(plans) })
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op2(&self.weight, Norm { plans: self.plans.clone(), eps: self.eps, rstd: OnceLock::new() })
    }
}

/// One call of a norm.
struct Norm {
    plans: Arc<Plans>,
    eps: f32,
    /// Kept by the forward for the backward.
    rstd: OnceLock<Tensor>,
}

impl Norm {
    /// Keeps `rstd`, one value for each row, and returns `y` as candle wants it.
    fn keep<S>(&self, x: &Layout, y: S, rstd: Storage) -> Result<(S, Shape)> {
        let rstd = Tensor::from_storage(rstd, lead(x), BackpropOp::none(), false);
        match self.rstd.set(rstd) {
            Ok(()) => Ok((y, x.shape().clone())),
            Err(_) => bail!("the operator belongs to one call"),
        }
    }
}

impl CustomOp2 for Norm {
    fn name(&self) -> &'static str {
        "cake-rms-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, w: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        let (y, rstd) = host::forward(&self.plans.forward, self.eps, (x, lx), (w, lw))?;
        self.keep(lx, y, Storage::Cpu(rstd))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, lx: &Layout, w: &CudaStorage, lw: &Layout) -> Result<(CudaStorage, Shape)> {
        let (y, rstd) = cuda::forward(&self.plans.forward, self.eps, (x, lx), (w, lw))?;
        self.keep(lx, y, Storage::Cuda(rstd))
    }

    /// Both gradients from one pass over memory. They cannot be differentiated again.
    fn bwd(&self, x: &Tensor, w: &Tensor, _y: &Tensor, dy: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let rstd = self.rstd.get().expect("candle asks for a gradient after the forward");
        let tensors = [dy, x, w, rstd].map(Tensor::storage_and_layout);
        let [(dy, ldy), (storage_x, lx), (storage_w, lw), (rstd, lrstd)] = &tensors;
        let plan = &self.plans.backward;
        let (dx, dw) = match (&**dy, &**storage_x, &**storage_w, &**rstd) {
            (Storage::Cpu(dy), Storage::Cpu(x), Storage::Cpu(w), Storage::Cpu(rstd)) => {
                let (dx, dw) = host::backward(plan, self.eps, (dy, ldy), (x, lx), (w, lw), (rstd, lrstd))?;
                (Storage::Cpu(dx), Storage::Cpu(dw))
            }
            #[cfg(feature = "cuda")]
            (Storage::Cuda(dy), Storage::Cuda(x), Storage::Cuda(w), Storage::Cuda(rstd)) => {
                let (dx, dw) = cuda::backward(plan, self.eps, (dy, ldy), (x, lx), (w, lw), (rstd, lrstd))?;
                (Storage::Cuda(dx), Storage::Cuda(dw))
            }
            _ => bail!("dy: lives on {:?}, expected {:?}", dy.device().location(), x.device().location()),
        };
        let tensor = |storage, shape: &Shape| Tensor::from_storage(storage, shape, BackpropOp::none(), false);
        Ok((Some(tensor(dx, x.shape())), Some(tensor(dw, w.shape()))))
    }
}

/// The shape of `rstd`: that of `x` without the row, or one value for a lone row.
fn lead(x: &Layout) -> Vec<usize> {
    match x.dims().split_last() {
        Some((_, lead)) if !lead.is_empty() => lead.into(),
        _ => vec![1],
    }
}

/// Shape and strides as Cake takes them.
fn sizes(layout: &Layout) -> (Vec<u64>, Vec<i64>) {
    let shape = layout.dims().iter().map(|&size| size as u64).collect();
    (shape, layout.stride().iter().map(|&stride| stride as i64).collect())
}
