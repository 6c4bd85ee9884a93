//! Inner products of 8-bit codes, 64 rows at a time: the quantized scan of a search.
//!
//! Integer arithmetic is exact, so all instruction sets return the same results.

use std::sync::OnceLock;

/// Rows per block.
pub const BLOCK_ROWS: usize = 64;

/// Neighbouring columns of one row that are stored next to each other in a block: the number that
/// one instruction multiplies and sums.
pub const GROUP: usize = 4;

/// The largest magnitude of a query's entries. It keeps the sum of two products with the largest
/// code within 16 bits, as AVX2 requires.
pub const QUERY_MAX: i8 = 63;

/// Position of a row's column in a block.
#[must_use]
pub fn place(row: usize, column: usize) -> usize {
    (column / GROUP * BLOCK_ROWS + row) * GROUP + column % GROUP
}

/// The rows of a block whose inner product with the query is at least `least`: bit `r` for row `r`.
///
/// `codes` holds [`BLOCK_ROWS`] rows in the order of [`place`].
///
/// # Panics
/// If the query's length is not a multiple of [`GROUP`], the block has another number of columns,
/// or an entry of the query exceeds [`QUERY_MAX`].
#[must_use]
pub fn rows_reaching(codes: &[u8], query: &[i8], least: i32) -> u64 {
    assert!(query.len().is_multiple_of(GROUP) && codes.len() == BLOCK_ROWS * query.len(), "a block of whole groups");
    debug_assert!(query.iter().all(|entry| entry.unsigned_abs() <= QUERY_MAX.unsigned_abs()), "a sum fits 16 bits");
    Multiplier::chosen().rows_reaching(codes, query, least)
}

/// Implementation of the sums of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Multiplier {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with VNNI, whose instruction sums four products.
    #[cfg(target_arch = "x86_64")]
    Vnni,
}

impl Multiplier {
    /// Those that this processor supports, best last.
    pub(crate) fn available() -> Vec<Self> {
        let mut available = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                available.push(Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                available.push(Self::Vnni);
            }
        }
        available
    }

    fn chosen() -> Self {
        static CHOSEN: OnceLock<Multiplier> = OnceLock::new();
        *CHOSEN.get_or_init(|| Self::available().last().copied().unwrap_or(Self::Portable))
    }

    pub(crate) fn rows_reaching(self, codes: &[u8], query: &[i8], least: i32) -> u64 {
        match self {
            Self::Portable => portable(codes, query, least),
            // SAFETY: the value exists only if the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::avx2(codes, query, least) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => unsafe { x86::vnni(codes, query, least) },
        }
    }
}

fn portable(codes: &[u8], query: &[i8], least: i32) -> u64 {
    let mut sums = [0_i32; BLOCK_ROWS];
    for (codes, query) in codes.chunks_exact(BLOCK_ROWS * GROUP).zip(query.as_chunks::<GROUP>().0) {
        for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<GROUP>().0) {
            *sum += codes.iter().zip(query).map(|(code, entry)| i32::from(*code) * i32::from(*entry)).sum::<i32>();
        }
    }
    sums.iter().rev().fold(0, |mask, sum| mask << 1 | u64::from(*sum >= least))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_add_epi32, _mm256_castsi256_ps, _mm256_cmpgt_epi32, _mm256_loadu_si256,
        _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_movemask_ps, _mm256_set1_epi16, _mm256_set1_epi32,
        _mm256_setzero_si256, _mm512_cmpge_epi32_mask, _mm512_dpbusd_epi32, _mm512_loadu_si512, _mm512_set1_epi32,
        _mm512_setzero_si512,
    };

    use super::{BLOCK_ROWS, GROUP};

    /// Rows per register of sums.
    const AVX2_ROWS: usize = 8;
    const VNNI_ROWS: usize = 16;

    #[target_feature(enable = "avx2")]
    pub(crate) fn avx2(codes: &[u8], query: &[i8], least: i32) -> u64 {
        let mut sums = [_mm256_setzero_si256(); BLOCK_ROWS / AVX2_ROWS];
        let ones = _mm256_set1_epi16(1);
        for (codes, query) in codes.chunks_exact(BLOCK_ROWS * GROUP).zip(query.as_chunks::<GROUP>().0) {
            let query = _mm256_set1_epi32(i32::from_le_bytes(query.map(i8::cast_unsigned)));
            for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<{ AVX2_ROWS * GROUP }>().0) {
                // SAFETY: the chunk has as many bytes as the register; alignment is not required.
                let codes = unsafe { _mm256_loadu_si256(codes.as_ptr().cast::<__m256i>()) };
                let pairs = _mm256_maddubs_epi16(codes, query);
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, ones));
            }
        }
        // No sum equals `i32::MIN`, so saturation loses no row.
        let below = _mm256_set1_epi32(least.saturating_sub(1));
        sums.iter().rev().fold(0, |mask, sum| {
            let reaching = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(*sum, below)));
            mask << AVX2_ROWS | u64::from(reaching.cast_unsigned())
        })
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(crate) fn vnni(codes: &[u8], query: &[i8], least: i32) -> u64 {
        let mut sums = [_mm512_setzero_si512(); BLOCK_ROWS / VNNI_ROWS];
        for (codes, query) in codes.chunks_exact(BLOCK_ROWS * GROUP).zip(query.as_chunks::<GROUP>().0) {
            let query = _mm512_set1_epi32(i32::from_le_bytes(query.map(i8::cast_unsigned)));
            for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<{ VNNI_ROWS * GROUP }>().0) {
                // SAFETY: the chunk has as many bytes as the register; alignment is not required.
                let codes = unsafe { _mm512_loadu_si512(codes.as_ptr().cast::<__m512i>()) };
                *sum = _mm512_dpbusd_epi32(*sum, codes, query);
            }
        }
        let least = _mm512_set1_epi32(least);
        sums.iter().rev().fold(0, |mask, sum| mask << VNNI_ROWS | u64::from(_mm512_cmpge_epi32_mask(*sum, least)))
    }
}
