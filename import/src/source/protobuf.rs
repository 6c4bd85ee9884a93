//! Fields of a message in the wire format of Protocol Buffers.

/// The fields of a message, one after the other.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

/// A value, by its wire type.
pub(super) enum Field<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// A message that ends within a field, or has one of an unknown type.
#[derive(Debug)]
pub(super) struct Damaged;

impl<'a> Fields<'a> {
    /// The number and the value of the next field; `None` at the end.
    pub(super) fn advance(&mut self) -> Result<Option<(u64, Field<'a>)>, Damaged> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Damaged)?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Damaged)?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| Damaged)?).into()),
            _ => return Err(Damaged),
        };
        Ok(Some((key >> 3, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Damaged> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damaged)
    }
}
