//! The rank-one kernel's own yardstick: which instruction set it uses, and what it costs just to touch the matrix.

/// The instruction set that this build's kernel uses.
pub fn name() -> &'static str {
    if cfg!(target_feature = "avx512f") {
        "avx512"
    } else if cfg!(target_feature = "avx2") {
        "avx2"
    } else {
        std::env::consts::ARCH
    }
}

/// Reads and writes every entry of a matrix once: the least that an update of all of them can cost.
#[inline(never)]
pub fn pass(matrix: &mut [f32]) {
    // Any factor does that the compiler cannot see through, and that keeps the entries normal numbers.
    let factor = std::hint::black_box(0.999_999_9_f32);
    for entry in matrix {
        *entry *= factor;
    }
}
