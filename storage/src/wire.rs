//! The parts that stored records are made of.
//!
//! Numbers are varints, seven bits a byte, least first; signed ones are zigzagged; texts follow their length; floats are
//! little-endian.

/// Puts parts behind each other.
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(crate) fn signed(&mut self, number: i64) {
        self.varint(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.varint(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn float(&mut self, number: f32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Ascending numbers, as their differences.
    pub(crate) fn ascending(&mut self, numbers: impl ExactSizeIterator<Item = u64>) {
        self.varint(numbers.len() as u64);
        let mut last = 0;
        for number in numbers {
            self.varint(number.wrapping_sub(last));
            last = number;
        }
    }
}

/// Takes them off again; every method answers `None` where the bytes do not hold that part.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    pub(crate) fn float(&mut self) -> Option<f32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f32::from_le_bytes(*bytes))
    }

    pub(crate) fn ascending(&mut self) -> Option<Vec<u64>> {
        let length = usize::try_from(self.varint()?).ok()?;
        // Each takes a byte at least: a damaged length asks for no memory that is not there.
        let mut numbers = Vec::with_capacity(length.min(self.0.len()));
        let mut last: u64 = 0;
        for _ in 0..length {
            last = last.wrapping_add(self.varint()?);
            numbers.push(last);
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let mut writer = Writer(Vec::new());
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
        let signed = [0, -1, 1, i64::MIN, i64::MAX, -300];
        numbers.iter().for_each(|number| writer.varint(*number));
        signed.iter().for_each(|number| writer.signed(*number));
        writer.ascending(numbers.iter().copied());
        let mut reader = Reader(&writer.0);
        assert!(numbers.iter().all(|number| reader.varint() == Some(*number)));
        assert!(signed.iter().all(|number| reader.signed() == Some(*number)));
        assert_eq!(reader.ascending().as_deref(), Some(numbers.as_slice()));
        assert!(reader.0.is_empty());
        assert_eq!(Reader(&[0x80; 11]).varint(), None);
        assert_eq!(Reader(&[5, b'a']).text(), None);
    }
}
