//! One vector register of `f32`, per instruction set.

/// The operations that the routines need of an instruction set.
///
/// Safety, for every method: the processor has the instruction set, and pointers are valid for as many values as the
/// method reads or writes. No alignment is asked for.
pub(super) trait Simd {
    /// One register.
    type Vector: Copy;
    /// Values in a register.
    const LANES: usize;
    /// Whether there is an instruction that multiplies and adds, rounding once.
    const FUSES: bool;

    /// `value` in every lane.
    unsafe fn splat(value: f32) -> Self::Vector;
    /// `LANES` values.
    unsafe fn load(from: *const f32) -> Self::Vector;
    /// `count < LANES` values, and zeros in the lanes beyond.
    unsafe fn load_first(from: *const f32, count: usize) -> Self::Vector;
    /// `LANES` values, but zeros for the first `count < LANES` of them.
    unsafe fn load_after(from: *const f32, count: usize) -> Self::Vector;
    /// Writes all lanes.
    unsafe fn store(to: *mut f32, vector: Self::Vector);
    /// Writes the first `count < LANES` lanes.
    unsafe fn store_first(to: *mut f32, count: usize, vector: Self::Vector);
    /// `a + b`
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `sum + a * b`; whether the product is rounded first depends on the instruction set.
    unsafe fn mul_add(a: Self::Vector, b: Self::Vector, sum: Self::Vector) -> Self::Vector;
    /// `sum - a * b`, exactly the same for swapped factors.
    unsafe fn mul_sub(a: Self::Vector, b: Self::Vector, sum: Self::Vector) -> Self::Vector;
    /// The sum of all lanes, in an order of additions that is fixed.
    unsafe fn sum(vector: Self::Vector) -> f32;
}

/// Plain Rust, which the compiler maps onto whatever the target always has: SSE2, NEON.
pub(super) struct Portable;

impl Simd for Portable {
    type Vector = [f32; 4];
    const LANES: usize = 4;
    const FUSES: bool = false;

    #[inline(always)]
    unsafe fn splat(value: f32) -> [f32; 4] {
        [value; 4]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 4] {
        // SAFETY: the caller vouches for 4 values; an array of f32 asks for no more alignment than they have.
        unsafe { from.cast::<[f32; 4]>().read() }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> [f32; 4] {
        let mut vector = [0.0; 4];
        for (lane, value) in vector.iter_mut().enumerate().take(count) {
            // SAFETY: the caller vouches for `count` values.
            *value = unsafe { *from.add(lane) };
        }
        vector
    }

    #[inline(always)]
    unsafe fn load_after(from: *const f32, count: usize) -> [f32; 4] {
        // SAFETY: as in `load`.
        let vector = unsafe { Self::load(from) };
        std::array::from_fn(|lane| if lane < count { 0.0 } else { vector[lane] })
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, vector: [f32; 4]) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[f32; 4]>().write(vector) }
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f32, count: usize, vector: [f32; 4]) {
        for (lane, value) in vector.iter().enumerate().take(count) {
            // SAFETY: the caller vouches for `count` values.
            unsafe { *to.add(lane) = *value };
        }
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    unsafe fn mul_add(a: [f32; 4], b: [f32; 4], sum: [f32; 4]) -> [f32; 4] {
        // Not `f32::mul_add`, which is a call of a slow function where the instruction is missing.
        std::array::from_fn(|lane| sum[lane] + a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn mul_sub(a: [f32; 4], b: [f32; 4], sum: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| sum[lane] - a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn sum(v: [f32; 4]) -> f32 {
        (v[0] + v[2]) + (v[1] + v[3])
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m256i, __m512, __mmask16, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehdup_ps, _mm_movehl_ps,
        _mm256_add_ps, _mm256_andnot_ps, _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_extractf128_ps,
        _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_maskload_ps, _mm256_set1_ps,
        _mm256_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps,
        _mm512_maskz_loadu_ps, _mm512_reduce_add_ps, _mm512_set1_ps, _mm512_storeu_ps,
    };

    use super::Simd;

    /// AVX2 with fused multiplication and addition.
    pub(in super::super) struct Avx2;

    /// All bits of the first `count` lanes.
    ///
    /// Safety: the processor has AVX2.
    #[inline(always)]
    unsafe fn first_lanes(count: usize) -> __m256i {
        const MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        debug_assert!(count < 8);
        // SAFETY: eight of the sixteen values.
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - count).cast()) }
    }

    // SAFETY, for all of it: the instructions exist by the trait's contract, and so do the values behind pointers.
    impl Simd for Avx2 {
        type Vector = __m256;
        const LANES: usize = 8;
        const FUSES: bool = true;

        #[inline(always)]
        unsafe fn splat(value: f32) -> __m256 {
            unsafe { _mm256_set1_ps(value) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m256 {
            unsafe { _mm256_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> __m256 {
            unsafe { _mm256_maskload_ps(from, first_lanes(count)) }
        }

        #[inline(always)]
        unsafe fn load_after(from: *const f32, count: usize) -> __m256 {
            unsafe { _mm256_andnot_ps(_mm256_castsi256_ps(first_lanes(count)), _mm256_loadu_ps(from)) }
        }

        #[inline(always)]
        unsafe fn store(to: *mut f32, vector: __m256) {
            unsafe { _mm256_storeu_ps(to, vector) }
        }

        #[inline(always)]
        unsafe fn store_first(to: *mut f32, count: usize, vector: __m256) {
            let mut values = [0.0_f32; 8];
            unsafe {
                _mm256_storeu_ps(values.as_mut_ptr(), vector);
                values.as_ptr().copy_to_nonoverlapping(to, count);
            }
        }

        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn mul_add(a: __m256, b: __m256, sum: __m256) -> __m256 {
            unsafe { _mm256_fmadd_ps(a, b, sum) }
        }

        #[inline(always)]
        unsafe fn mul_sub(a: __m256, b: __m256, sum: __m256) -> __m256 {
            unsafe { _mm256_fnmadd_ps(a, b, sum) }
        }

        #[inline(always)]
        unsafe fn sum(vector: __m256) -> f32 {
            unsafe {
                let four = _mm_add_ps(_mm256_castps256_ps128(vector), _mm256_extractf128_ps::<1>(vector));
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
            }
        }
    }

    /// AVX-512F.
    pub(in super::super) struct Avx512;

    #[inline(always)]
    fn mask(count: usize) -> __mmask16 {
        debug_assert!(count < 16);
        (1_u16 << count) - 1
    }

    // SAFETY, for all of it: the instructions exist by the trait's contract, and so do the values behind pointers; lanes
    // that are masked out touch no memory.
    impl Simd for Avx512 {
        type Vector = __m512;
        const LANES: usize = 16;
        const FUSES: bool = true;

        #[inline(always)]
        unsafe fn splat(value: f32) -> __m512 {
            unsafe { _mm512_set1_ps(value) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m512 {
            unsafe { _mm512_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn load_first(from: *const f32, count: usize) -> __m512 {
            unsafe { _mm512_maskz_loadu_ps(mask(count), from) }
        }

        #[inline(always)]
        unsafe fn load_after(from: *const f32, count: usize) -> __m512 {
            unsafe { _mm512_maskz_loadu_ps(!mask(count), from) }
        }

        #[inline(always)]
        unsafe fn store(to: *mut f32, vector: __m512) {
            unsafe { _mm512_storeu_ps(to, vector) }
        }

        #[inline(always)]
        unsafe fn store_first(to: *mut f32, count: usize, vector: __m512) {
            unsafe { _mm512_mask_storeu_ps(to, mask(count), vector) }
        }

        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn mul_add(a: __m512, b: __m512, sum: __m512) -> __m512 {
            unsafe { _mm512_fmadd_ps(a, b, sum) }
        }

        #[inline(always)]
        unsafe fn mul_sub(a: __m512, b: __m512, sum: __m512) -> __m512 {
            unsafe { _mm512_fnmadd_ps(a, b, sum) }
        }

        #[inline(always)]
        unsafe fn sum(vector: __m512) -> f32 {
            unsafe { _mm512_reduce_add_ps(vector) }
        }
    }
}
