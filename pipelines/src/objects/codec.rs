//! Encoding of objects: fixed-width little-endian numbers and counted lists, so that equal objects have equal bytes.

use crate::error::PipelineError;

/// Appends parts of an object.
#[derive(Debug, Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn count(&mut self, count: usize) {
        let count = u32::try_from(count).expect("objects are bounded far below 2^32 entries");
        self.raw(&count.to_le_bytes());
    }

    pub fn floats(&mut self, numbers: &[f32]) {
        numbers.iter().for_each(|number| self.raw(&number.to_le_bytes()));
    }

    pub fn doubles(&mut self, numbers: &[f64]) {
        numbers.iter().for_each(|number| self.raw(&number.to_le_bytes()));
    }

    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads parts of an object; every method fails if the bytes do not hold that part.
#[derive(Debug)]
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// # Errors
    /// If there are fewer bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], PipelineError> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(|| PipelineError::object("is cut off"))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// # Errors
    /// At the end.
    pub fn byte(&mut self) -> Result<u8, PipelineError> {
        Ok(self.take(1)?[0])
    }

    /// A count that is at most `max`.
    ///
    /// # Errors
    /// If it is larger.
    pub fn count(&mut self, what: &str, max: usize) -> Result<usize, PipelineError> {
        let bytes = self.take(4)?;
        let count = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        if count > max {
            return Err(PipelineError::object(format!("has {count} {what}, the maximum is {max}")));
        }
        Ok(count)
    }

    /// Finite numbers.
    ///
    /// # Errors
    /// If one is not finite.
    pub fn floats(&mut self, count: usize) -> Result<Vec<f32>, PipelineError> {
        let bytes = self.take(Self::bytes_of(count, size_of::<f32>())?)?;
        let (parts, _) = bytes.as_chunks();
        let numbers: Vec<f32> = parts.iter().map(|part| f32::from_le_bytes(*part)).collect();
        Self::finite(numbers, |number| number.is_finite())
    }

    /// Finite numbers.
    ///
    /// # Errors
    /// If one is not finite.
    pub fn doubles(&mut self, count: usize) -> Result<Vec<f64>, PipelineError> {
        let bytes = self.take(Self::bytes_of(count, size_of::<f64>())?)?;
        let (parts, _) = bytes.as_chunks();
        let numbers: Vec<f64> = parts.iter().map(|part| f64::from_le_bytes(*part)).collect();
        Self::finite(numbers, |number| number.is_finite())
    }

    /// # Errors
    /// If bytes are left.
    pub fn end(&self) -> Result<(), PipelineError> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(PipelineError::object(format!("has {} bytes after its end", self.0.len())))
    }

    /// The bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn bytes_of(count: usize, size: usize) -> Result<usize, PipelineError> {
        count.checked_mul(size).ok_or_else(|| PipelineError::object("has more numbers than any memory"))
    }

    fn finite<T>(numbers: Vec<T>, is_finite: impl Fn(&T) -> bool) -> Result<Vec<T>, PipelineError> {
        match numbers.iter().position(|number| !is_finite(number)) {
            Some(at) => Err(PipelineError::object(format!("has a number that is not finite, at {at}"))),
            None => Ok(numbers),
        }
    }
}
