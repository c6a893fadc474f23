//! Vector code chosen at run time, without a line of it in the callers.
//!
//! The one unsafe step: a function compiled for AVX2 and FMA is undefined behaviour on a CPU without them, so
//! calling it is unsafe. The call stands behind the run-time check, and nowhere else.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

/// Runs `f` compiled for AVX2 and FMA where the CPU has both, as it is otherwise.
///
/// Within `f` a `f32::mul_add` is one instruction and loops become 8 lanes wide; the results are the same bits either
/// way. What `f` calls profits only as far as it is inlined: mark the closure and the functions below it,
/// `with_fma(#[inline(always)] || body(x))`. A closure handed on to another thread needs a `with_fma` of its own.
#[inline]
pub fn with_fma<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if ALLOWED.load(Ordering::Relaxed) && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        #[target_feature(enable = "avx2,fma")]
        fn compiled_for_fma<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        // SAFETY: the CPU has avx2 and fma, as checked above.
        return unsafe { compiled_for_fma(f) };
    }
    f()
}

/// Lets [`with_fma`] use the instructions (the default), or keeps it from them, so that tests reach both sides on one
/// CPU. Holds for the process; harmless at any time, since the bits are the same.
pub fn allow_fma(allowed: bool) {
    ALLOWED.store(allowed, Ordering::Relaxed);
}

static ALLOWED: AtomicBool = AtomicBool::new(true);
