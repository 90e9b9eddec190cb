//! Protobuf's wire format: numbered fields of varints, fixed numbers and bytes. Knows no types.

/// The raw value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    /// Integers and booleans.
    Varint(u64),
    /// Doubles.
    Fixed64(u64),
    /// Floats.
    Fixed32(u32),
    /// Strings, bytes, messages.
    Bytes(&'a [u8]),
}

/// The fields of a message, in order. After an error there are no more.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of an encoded message.
    pub(super) fn of(raw: &'a [u8]) -> Fields<'a> {
        Fields { rest: raw }
    }

    /// Varints packed without field numbers.
    pub(super) fn packed(raw: &'a [u8]) -> impl Iterator<Item = Result<Wire<'a>, String>> {
        let mut fields = Fields { rest: raw };
        std::iter::from_fn(move || (!fields.rest.is_empty()).then(|| fields.varint().map(Wire::Varint)))
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or_else(cut)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.rest = &[];
        Err("a protobuf varint is too long".to_string())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(cut)?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Wire<'a>), String> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| "a protobuf field number is too large".to_string())?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().map_err(|_| cut())?;
                Wire::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| cut())?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = self.take(4)?.try_into().map_err(|_| cut())?;
                Wire::Fixed32(u32::from_le_bytes(bytes))
            }
            other => return Err(format!("protobuf wire type {other} is not known")),
        };
        Ok((number, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

fn cut() -> String {
    "the protobuf message is cut off".to_string()
}
