//! x
use cake_core::{
    dtype::Element,
    sums::{fast, plain, simd},
};
use half::{bf16, f16};
use std::time::Instant;
fn time(name: &str, elements: usize, mut f: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let t = Instant::now();
        let mut n = 0;
        while n < 3 || t.elapsed().as_millis() < 60 {
            f();
            n += 1;
        }
        best = best.min(t.elapsed().as_secs_f64() / n as f64);
    }
    println!("{name:40} {:8.2} G/s", elements as f64 / best / 1e9);
}
fn go<E: Element>(h: usize) {
    let x: Vec<E> = (0..h).map(|i| E::from_f32(((i * 7919 % 1000) as f32 - 500.0) / 300.0)).collect();
    let w: Vec<E> = (0..h).map(|i| E::from_f32(1.0 + (i % 17) as f32 / 100.0)).collect();
    let mut y = x.clone();
    let n = |s: &str| format!("{s} {} H={h}", E::DTYPE);
    time(&n("sum_of_squares"), h, || {
        std::hint::black_box(fast::sum_of_squares(std::hint::black_box(&x)));
    });
    time(&n("rms_row"), h, || {
        std::hint::black_box(fast::rms_row(std::hint::black_box(&x), Some(&w), -0.0, 1e-6, &mut y));
    });
    time(&n("add_row"), h, || {
        fast::add_row(std::hint::black_box(&x), &w, std::hint::black_box(&mut y));
    });
}
fn main() {
    let f: Vec<f32> = (0..6144).map(|i| ((i * 7919 % 1000) as f32 - 500.0) / 300.0).collect();
    time("dot", 6144, || {
        std::hint::black_box(fast::dot(std::hint::black_box(&f), &f));
    });
    for h in [128, 6144, 131072] {
        go::<bf16>(h);
        go::<f16>(h);
        go::<f32>(h);
    }
    for (rows, width) in [(4096usize, 6144usize), (65536, 128), (64, 6144)] {
        let x: Vec<bf16> =
            (0..rows * width).map(|i| bf16::from_f32(((i * 7919 % 1000) as f32 - 500.0) / 300.0)).collect();
        let rstd = vec![0.9; rows];
        let mut dw = vec![0.0; width];
        time(&format!("row_tree {rows}x{width}"), rows * width, || {
            fast::row_tree(rows, width, &x, &x, &rstd, std::hint::black_box(&mut dw))
        });
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        time(&format!("row_tree {rows}x{width} 1 thread"), rows * width, || {
            pool.install(|| fast::row_tree(rows, width, &x, &x, &rstd, std::hint::black_box(&mut dw)))
        });
    }
    let x: Vec<bf16> = f.iter().map(|f| bf16::from_f32(*f)).collect();
    time("plain sum_of_squares", 6144, || {
        std::hint::black_box(plain::sum_of_squares(std::hint::black_box(&x)));
    });
    simd::allow_fma(false);
    go::<bf16>(6144);
}
