//! Arrays on huge pages.
//!
//! A search reads a table from start to end. With pages of 4 KiB the processor needs an address
//! translation about every twenty rows, and in a virtual machine each translation walks several
//! page tables: measured over a million items in an isolated loop, this was two fifths of a scan's
//! time. The usual kernel setting grants huge pages to memory that requests them by `madvise`.

use std::fmt;
use std::ops::Deref;

use memmap2::MmapMut;

/// Smaller arrays do not benefit from huge pages.
const BYTES_MIN: usize = 4 << 20;

/// An immutable array of floats.
pub struct HugeFloats(Memory);

enum Memory {
    Heap(Vec<f32>),
    /// Exactly as long as the array.
    Mapped(MmapMut),
}

impl From<Vec<f32>> for HugeFloats {
    /// Moves large arrays to an anonymous mapping; if that fails, they stay on the heap.
    fn from(numbers: Vec<f32>) -> Self {
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        if bytes.len() < BYTES_MIN {
            return Self(Memory::Heap(numbers));
        }
        let Ok(mut mapped) = MmapMut::map_anon(bytes.len()) else { return Self(Memory::Heap(numbers)) };
        #[cfg(target_os = "linux")]
        {
            // A kernel without huge pages uses small ones, with the same contents.
            let _ = mapped.advise(memmap2::Advice::HugePage);
        }
        mapped.copy_from_slice(bytes);
        Self(Memory::Mapped(mapped))
    }
}

impl Deref for HugeFloats {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            Memory::Heap(numbers) => numbers,
            // A mapping is page-aligned.
            Memory::Mapped(mapped) => bytemuck::cast_slice(mapped),
        }
    }
}

impl Clone for HugeFloats {
    fn clone(&self) -> Self {
        self.to_vec().into()
    }
}

impl PartialEq for HugeFloats {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for HugeFloats {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_on_the_heap_and_in_a_mapping() {
        for count in [0, 1, 1000, BYTES_MIN / size_of::<f32>(), BYTES_MIN] {
            let numbers: Vec<f32> = (0..count).map(|number| number as f32).collect();
            let huge = HugeFloats::from(numbers.clone());
            assert_eq!(*huge, *numbers);
            assert_eq!(huge.clone(), huge);
        }
    }
}
