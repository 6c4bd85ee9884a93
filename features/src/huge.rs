//! Numbers on huge pages.
//!
//! A search reads a table from its beginning to its end. With pages of 4 KiB a processor looks up an address every twenty
//! rows, and in a virtual machine each look-up reads several tables: measured over a million items in a loop of its own,
//! two fifths of a scan's time. The usual kernel gives huge pages to memory that asks for them.

use std::fmt;
use std::ops::Deref;

use memmap2::MmapMut;

/// Smaller arrays fill no page of the larger kind.
const BYTES_MIN: usize = 4 << 20;

/// An array that is written once.
pub struct HugeFloats(Memory);

enum Memory {
    Heap(Vec<f32>),
    /// Exactly as long as the numbers are.
    Mapped(MmapMut),
}

impl From<Vec<f32>> for HugeFloats {
    /// Moves large arrays to memory of their own; where there is none to be had they stay.
    fn from(numbers: Vec<f32>) -> Self {
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        if bytes.len() < BYTES_MIN {
            return Self(Memory::Heap(numbers));
        }
        let Ok(mut mapped) = MmapMut::map_anon(bytes.len()) else { return Self(Memory::Heap(numbers)) };
        #[cfg(target_os = "linux")]
        {
            // A kernel without them leaves small pages, which hold the same.
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
            // A mapping begins with a page.
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
    fn numbers_are_the_same_wherever_they_are() {
        for count in [0, 1, 1000, BYTES_MIN / size_of::<f32>(), BYTES_MIN] {
            let numbers: Vec<f32> = (0..count).map(|number| number as f32).collect();
            let huge = HugeFloats::from(numbers.clone());
            assert_eq!(*huge, *numbers);
            assert_eq!(huge.clone(), huge);
        }
    }
}
