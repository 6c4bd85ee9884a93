//! One vector register of `f32`, per instruction set.

/// Operations of an instruction set that the routines use.
///
/// Safety, for every method: the processor has the instruction set, and pointers are valid for as
/// many values as the method reads or writes. Alignment is not required.
pub(crate) trait Simd {
    type Vector: Copy;
    /// Values per register.
    const LANES: usize;
    /// Whether the instruction set has a fused multiply-add, which rounds once.
    const FUSES: bool;

    /// `value` in every lane.
    unsafe fn splat(value: f32) -> Self::Vector;
    /// Loads `LANES` values.
    unsafe fn load(from: *const f32) -> Self::Vector;
    /// Loads `count < LANES` values; the other lanes are zero.
    unsafe fn load_first(from: *const f32, count: usize) -> Self::Vector;
    /// Loads `LANES` values and sets the first `count < LANES` lanes to zero.
    unsafe fn load_after(from: *const f32, count: usize) -> Self::Vector;
    /// Writes all lanes.
    unsafe fn store(to: *mut f32, vector: Self::Vector);
    /// Writes the first `count < LANES` lanes.
    unsafe fn store_first(to: *mut f32, count: usize, vector: Self::Vector);
    /// `a + b`
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `sum + a * b`; whether the product is rounded before the addition depends on the instruction
    /// set.
    unsafe fn mul_add(a: Self::Vector, b: Self::Vector, sum: Self::Vector) -> Self::Vector;
    /// `sum - a * b`, bitwise symmetric in the factors.
    unsafe fn mul_sub(a: Self::Vector, b: Self::Vector, sum: Self::Vector) -> Self::Vector;
    /// The sum of all lanes, in a fixed order of additions.
    unsafe fn sum(vector: Self::Vector) -> f32;
}

/// Plain Rust, which the compiler vectorises with the baseline of the target: SSE2, NEON.
pub(crate) struct Portable;

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
        // SAFETY: the caller guarantees 4 values; an array of f32 has the alignment of f32.
        unsafe { from.cast::<[f32; 4]>().read() }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> [f32; 4] {
        let mut vector = [0.0; 4];
        for (lane, value) in vector.iter_mut().enumerate().take(count) {
            // SAFETY: the caller guarantees `count` values.
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
            // SAFETY: the caller guarantees `count` values.
            unsafe { *to.add(lane) = *value };
        }
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    unsafe fn mul_add(a: [f32; 4], b: [f32; 4], sum: [f32; 4]) -> [f32; 4] {
        // Not `f32::mul_add`, which calls a slow library function if the instruction is missing.
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
pub(crate) use x86::{Avx2, Avx512};

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

    /// AVX2 with FMA.
    pub(in super::super) struct Avx2;

    /// A mask with all bits set in the first `count` lanes.
    ///
    /// Safety: the processor has AVX2.
    #[inline(always)]
    unsafe fn first_lanes(count: usize) -> __m256i {
        const MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        debug_assert!(count < 8);
        // SAFETY: eight of the sixteen values.
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - count).cast()) }
    }

    // SAFETY, for the whole impl: the instructions exist and pointers are valid by the contract of
    // the trait.
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

    // SAFETY, for the whole impl: the instructions exist and pointers are valid by the contract of
    // the trait; masked lanes access no memory.
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
