//! Protobuf messages, read in place.
//!
//! ONNX needs seven small messages, of which lists are read only when an operator asks for them. A generated reader
//! would copy all lists first, with up to eight bytes for each byte of the file, and would be a dependency of this
//! crate alone.

use crate::error::ImportError;

/// A part of the file, with its place for errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    bytes: &'a [u8],
    /// Bytes of the file before it.
    offset: usize,
}

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64([u8; 8]),
    /// A message, a text, or a list without tags.
    Bytes(Bytes<'a>),
}

impl<'a> Bytes<'a> {
    pub fn new(file: &'a [u8]) -> Self {
        Self { bytes: file, offset: 0 }
    }

    pub fn raw(self) -> &'a [u8] {
        self.bytes
    }

    pub fn problem(self, problem: impl Into<String>) -> ImportError {
        ImportError::Encoding { offset: self.offset, problem: problem.into() }
    }

    /// # Errors
    /// Bytes that are not UTF-8.
    pub fn text(self) -> Result<&'a str, ImportError> {
        str::from_utf8(self.bytes).map_err(|_| self.problem("the text is not UTF-8"))
    }

    /// The fields of a message: numbers and values.
    pub fn fields(self) -> impl Iterator<Item = Result<(u64, Value<'a>), ImportError>> {
        let mut rest = self;
        std::iter::from_fn(move || {
            if rest.bytes.is_empty() {
                return None;
            }
            let field = rest.field();
            if field.is_err() {
                rest.bytes = &[];
            }
            Some(field)
        })
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), ImportError> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.fixed()?),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| self.problem("a length is too large"))?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed32(self.fixed()?),
            other => return Err(self.problem(format!("the wire type {other} is not supported"))),
        };
        Ok((tag >> 3, value))
    }

    fn take(&mut self, length: usize) -> Result<Self, ImportError> {
        let (bytes, rest) =
            self.bytes.split_at_checked(length).ok_or_else(|| self.problem("the file ends within a field"))?;
        let taken = Self { bytes, offset: self.offset };
        *self = Self { bytes: rest, offset: self.offset + length };
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], ImportError> {
        let taken = self.take(N)?;
        taken.bytes.try_into().map_err(|_| taken.problem("the file ends within a field"))
    }

    fn varint(&mut self) -> Result<u64, ImportError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let [byte] = self.fixed()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.problem("a number has more than 10 bytes"))
    }

    /// Splits a list without tags.
    fn varints(mut self) -> impl Iterator<Item = Result<u64, ImportError>> {
        std::iter::from_fn(move || {
            if self.bytes.is_empty() {
                return None;
            }
            let number = self.varint();
            if number.is_err() {
                self.bytes = &[];
            }
            Some(number)
        })
    }
}

impl<'a> Value<'a> {
    /// # Errors
    /// A value of another type than a message, text or bytes.
    pub fn bytes(self, within: Bytes<'_>) -> Result<Bytes<'a>, ImportError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(within.problem("a field has another type than bytes")),
        }
    }

    /// # Errors
    /// A value of another type than an integer.
    pub fn integer(self, within: Bytes<'_>) -> Result<i64, ImportError> {
        match self {
            Self::Varint(number) => Ok(number.cast_signed()),
            _ => Err(within.problem("a field has another type than an integer")),
        }
    }
}

/// A type of the elements of lists.
pub(crate) trait Element: Sized {
    /// Calls `push` for the elements that a value has: one, or those of a list without tags.
    fn read(value: Value<'_>, push: impl FnMut(Self) -> Result<(), ImportError>) -> Option<Result<(), ImportError>>;
}

impl Element for f32 {
    fn read(
        value: Value<'_>,
        mut push: impl FnMut(Self) -> Result<(), ImportError>,
    ) -> Option<Result<(), ImportError>> {
        match value {
            Value::Fixed32(bytes) => Some(push(Self::from_le_bytes(bytes))),
            Value::Bytes(list) => {
                let (chunks, []) = list.bytes.as_chunks() else { return None };
                Some(chunks.iter().try_for_each(|bytes| push(Self::from_le_bytes(*bytes))))
            }
            _ => None,
        }
    }
}

impl Element for f64 {
    fn read(
        value: Value<'_>,
        mut push: impl FnMut(Self) -> Result<(), ImportError>,
    ) -> Option<Result<(), ImportError>> {
        match value {
            Value::Fixed64(bytes) => Some(push(Self::from_le_bytes(bytes))),
            Value::Bytes(list) => {
                let (chunks, []) = list.bytes.as_chunks() else { return None };
                Some(chunks.iter().try_for_each(|bytes| push(Self::from_le_bytes(*bytes))))
            }
            _ => None,
        }
    }
}

impl Element for i64 {
    fn read(
        value: Value<'_>,
        mut push: impl FnMut(Self) -> Result<(), ImportError>,
    ) -> Option<Result<(), ImportError>> {
        match value {
            Value::Varint(number) => Some(push(number.cast_signed())),
            Value::Bytes(list) => Some(list.varints().try_for_each(|number| push(number?.cast_signed()))),
            _ => None,
        }
    }
}

impl Bytes<'_> {
    /// The elements of all fields with number `wanted`, in order.
    ///
    /// # Errors
    /// More than `max` elements, or another type.
    pub fn list<T: Element>(self, wanted: u64, max: usize) -> Result<Vec<T>, ImportError> {
        let mut list = Vec::new();
        for field in self.fields() {
            let (number, value) = field?;
            if number != wanted {
                continue;
            }
            let push = |element| {
                if list.len() == max {
                    return Err(self.problem(format!("a list has more than {max} elements")));
                }
                list.push(element);
                Ok(())
            };
            T::read(value, push).ok_or_else(|| self.problem("a list has elements of another type"))??;
        }
        Ok(list)
    }
}
