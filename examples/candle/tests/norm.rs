//! The operator against the host path called directly, and against candle's own formula.

use cake_candle::RmsNorm;
use cake_rmsnorm::{Forward, ForwardPlan, Spec, TensorView, TensorViewMut};
use candle_core::{D, DType, Device, Module, Result, Tensor, Var};
use half::bf16;

const EPS: f32 = 1e-5;
const WIDTH: usize = 96;

/// Numbers between -2 and 2, the same in every run.
fn values(seed: u32, shape: &[usize], dtype: DType) -> Result<Tensor> {
    let mut state = seed;
    let mut value = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| value()).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)
}

fn bits(tensor: &Tensor) -> Result<Vec<u16>> {
    Ok(tensor.flatten_all()?.to_vec1::<bf16>()?.into_iter().map(bf16::to_bits).collect())
}

/// The norm in FP32, made of candle's operators.
fn composed(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let x = x.to_dtype(DType::F32)?;
    let root = ((x.sqr()?.sum_keepdim(D::Minus1)? / WIDTH as f64)? + f64::from(EPS))?.sqrt()?;
    x.broadcast_div(&root)?.broadcast_mul(&weight.to_dtype(DType::F32)?)
}

#[test]
fn the_bits_are_those_of_the_host_path() -> Result<()> {
    let (x, weight) = (values(1, &[5, WIDTH], DType::BF16)?, values(2, &[WIDTH], DType::BF16)?);
    let (shape, mut y) = ([5, WIDTH as u64], vec![bf16::ZERO; 5 * WIDTH]);
    let (x_data, weight_data) = (x.flatten_all()?.to_vec1::<bf16>()?, weight.to_vec1::<bf16>()?);
    ForwardPlan::host(Spec::new(WIDTH as u32))
        .unwrap()
        .run_host(Forward {
            x: TensorView::from_slice("x", &x_data, &shape).unwrap(),
            weight: Some(TensorView::from_slice("weight", &weight_data, &shape[1..]).unwrap()),
            eps: EPS,
            residual: None,
            y: TensorViewMut::from_slice("y", &mut y, &shape).unwrap(),
            h: None,
            rstd: None,
        })
        .unwrap();
    let expected: Vec<u16> = y.into_iter().map(bf16::to_bits).collect();
    assert_eq!(bits(&RmsNorm::new(weight, EPS)?.forward(&x)?)?, expected);
    Ok(())
}

#[test]
fn any_layout_is_read_in_place() -> Result<()> {
    let norm = RmsNorm::new(values(3, &[WIDTH], DType::F32)?, EPS)?;
    let x = values(4, &[4, 7, 2 * WIDTH], DType::BF16)?;
    for view in [
        x.narrow(2, 5, WIDTH)?,
        x.narrow(2, WIDTH, WIDTH)?.transpose(0, 1)?,
        x.narrow(1, 3, 1)?.narrow(2, 0, WIDTH)?.broadcast_as((4, 6, WIDTH))?,
    ] {
        assert_eq!(bits(&norm.forward(&view)?)?, bits(&norm.forward(&view.copy()?)?)?, "{:?}", view.layout());
    }
    let row = x.flatten_all()?.narrow(0, 3, WIDTH)?;
    assert_eq!(norm.forward(&row)?.dims(), [WIDTH]);
    assert_eq!(norm.forward(&x.narrow(0, 0, 0)?.narrow(2, 0, WIDTH)?)?.dims(), [0, 7, WIDTH]);
    Ok(())
}

/// A loss whose gradient dy is exact in BF16, so that both sides start from the same numbers.
#[test]
fn the_gradients_are_those_of_candle_s_formula() -> Result<()> {
    for dtype in [DType::F32, DType::BF16] {
        let x = Var::from_tensor(&values(5, &[3, 11, WIDTH], DType::BF16)?)?;
        let weight = Var::from_tensor(&values(6, &[WIDTH], dtype)?)?;
        let dy = values(7, &[3, 11, WIDTH], DType::BF16)?.to_dtype(DType::F32)?;
        let norm = RmsNorm::new(weight.as_tensor().clone(), EPS)?;

        let y = norm.forward(&x)?;
        let ours = (y.to_dtype(DType::F32)? * &dy)?.sum_all()?.backward()?;
        let (x32, weight32) =
            (Var::from_tensor(&x.to_dtype(DType::F32)?)?, Var::from_tensor(&weight.to_dtype(DType::F32)?)?);
        let y32 = composed(&x32, &weight32)?;
        let theirs = (&y32 * &dy)?.sum_all()?.backward()?;

        // Half an ulp of BF16, and what FP32 sums of terms up to some 10 can lose.
        near(&y, &y32, 2f32.powi(-8), 1e-6)?;
        near(ours.get(&x).unwrap(), theirs.get(&x32).unwrap(), 2f32.powi(-8), 1e-5)?;
        let rounded = if dtype == DType::F32 { 1e-5 } else { 2f32.powi(-8) };
        assert_eq!(ours.get(&weight).unwrap().dtype(), dtype);
        near(ours.get(&weight).unwrap(), theirs.get(&weight32).unwrap(), rounded, 1e-5)?;
    }
    Ok(())
}

#[test]
fn an_expanded_gradient_is_read_in_place() -> Result<()> {
    let x = Var::from_tensor(&values(8, &[9, WIDTH], DType::BF16)?)?;
    let weight = Var::from_tensor(&values(9, &[WIDTH], DType::F32)?)?;
    let norm = RmsNorm::new(weight.as_tensor().clone(), EPS)?;
    let sum = norm.forward(&x)?.sum_all()?.backward()?;
    let ones = (norm.forward(&x)? * Tensor::ones((9, WIDTH), DType::BF16, &Device::Cpu)?)?.sum_all()?.backward()?;
    assert_eq!(bits(sum.get(&x).unwrap())?, bits(ones.get(&x).unwrap())?);
    let dw = |store: &candle_core::backprop::GradStore| store.get(&weight).unwrap().to_vec1::<f32>();
    assert_eq!(dw(&sum)?, dw(&ones)?);
    Ok(())
}

#[test]
fn what_cake_refuses_is_an_error_of_candle() -> Result<()> {
    let norm = RmsNorm::new(values(10, &[WIDTH], DType::F32)?, EPS)?;
    let refused = |x: Tensor| norm.forward(&x).unwrap_err().to_string();
    let dtype = refused(values(11, &[2, WIDTH], DType::F32)?);
    assert!(dtype.contains("x: dtype f32, expected bf16"), "{dtype}");
    let shape = refused(values(12, &[2, WIDTH + 1], DType::BF16)?);
    assert!(shape.contains("x: shape [2, 97], expected [2, 96]"), "{shape}");
    assert!(RmsNorm::new(values(13, &[WIDTH], DType::F16)?, EPS).is_err());
    Ok(())
}

/// Every element within `relative` of the expected one, or `absolute`.
fn near(actual: &Tensor, expected: &Tensor, relative: f32, absolute: f32) -> Result<()> {
    assert_eq!(actual.dims(), expected.dims());
    let all = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
    for (i, (actual, expected)) in all(actual)?.into_iter().zip(all(expected)?).enumerate() {
        assert!(
            (actual - expected).abs() <= relative * expected.abs() + absolute,
            "{i}: {actual}, expected {expected}"
        );
    }
    Ok(())
}
