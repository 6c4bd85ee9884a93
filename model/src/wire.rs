//! Encodings of the parts of stored values.
//!
//! Numbers are varints, seven bits per byte, least significant first; signed ones are
//! zigzag-encoded; texts and bytes are length-prefixed; floats are little-endian.

/// Appends parts.
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub fn signed(&mut self, number: i64) {
        self.varint(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub fn float(&mut self, number: f32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub fn double(&mut self, number: f64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Ascending numbers, encoded as differences.
    pub fn ascending(&mut self, numbers: impl ExactSizeIterator<Item = u64>) {
        self.varint(numbers.len() as u64);
        let mut last = 0;
        for number in numbers {
            self.varint(number.wrapping_sub(last));
            last = number;
        }
    }
}

/// Reads parts; every method returns `None` if the bytes do not contain that part.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn varint(&mut self) -> Option<u64> {
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

    pub fn signed(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub fn float(&mut self) -> Option<f32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f32::from_le_bytes(*bytes))
    }

    pub fn double(&mut self) -> Option<f64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f64::from_le_bytes(*bytes))
    }

    /// The values up to the end, each read by `read`.
    pub fn rest<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut values = Vec::new();
        while !self.0.is_empty() {
            values.push(read(self)?);
        }
        Some(values)
    }

    pub fn ascending(&mut self) -> Option<Vec<u64>> {
        let length = usize::try_from(self.varint()?).ok()?;
        // Each number takes at least one byte: a damaged length must not allocate more than the
        // input could hold.
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
    fn encoded_numbers_are_decoded() {
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
