//! MessagePack into JSON values, as far as Kubernetes objects need it. Keys that are no text are written as JSON text.
//! Format: github.com/msgpack/msgpack spec.md.

use serde_json::{Map, Number, Value, json};

/// Deepest nesting.
const MAX_DEPTH: usize = 128;

/// Decodes one value that fills `bytes`.
///
/// # Errors
/// The bytes end early, go on behind the value, or hold what JSON cannot say; the offset is named.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader { bytes, at: 0 };
    let value = reader.value(0)?;
    if reader.at < bytes.len() {
        return Err(format!("{} bytes follow behind the value at byte {}", bytes.len() - reader.at, reader.at));
    }
    Ok(value)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} at byte {}", self.at));
        }
        let start = self.at;
        let [tag] = self.take::<1>()?;
        Ok(match tag {
            0x00..=0x7f => json!(tag),
            0x80..=0x8f => self.map(usize::from(tag & 0x0f), depth)?,
            0x90..=0x9f => self.array(usize::from(tag & 0x0f), depth)?,
            0xa0..=0xbf => self.text(usize::from(tag & 0x1f))?,
            0xc0 => Value::Null,
            0xc2 => json!(false),
            0xc3 => json!(true),
            0xca => self.float(f64::from(f32::from_be_bytes(self.peek::<4>()?)), 4)?,
            0xcb => self.float(f64::from_be_bytes(self.peek::<8>()?), 8)?,
            0xcc => json!(u8::from_be_bytes(self.take()?)),
            0xcd => json!(u16::from_be_bytes(self.take()?)),
            0xce => json!(u32::from_be_bytes(self.take()?)),
            0xcf => json!(u64::from_be_bytes(self.take()?)),
            0xd0 => json!(i8::from_be_bytes(self.take()?)),
            0xd1 => json!(i16::from_be_bytes(self.take()?)),
            0xd2 => json!(i32::from_be_bytes(self.take()?)),
            0xd3 => json!(i64::from_be_bytes(self.take()?)),
            0xe0..=0xff => json!(i8::from_be_bytes([tag])),
            0xc4 | 0xd9 => {
                let n = u8::from_be_bytes(self.take()?);
                self.text(usize::from(n))?
            }
            0xc5 | 0xda => {
                let n = u16::from_be_bytes(self.take()?);
                self.text(usize::from(n))?
            }
            0xc6 | 0xdb => {
                let n = u32::from_be_bytes(self.take()?);
                self.text(n as usize)?
            }
            0xdc => {
                let n = u16::from_be_bytes(self.take()?);
                self.array(usize::from(n), depth)?
            }
            0xdd => {
                let n = u32::from_be_bytes(self.take()?);
                self.array(n as usize, depth)?
            }
            0xde => {
                let n = u16::from_be_bytes(self.take()?);
                self.map(usize::from(n), depth)?
            }
            0xdf => {
                let n = u32::from_be_bytes(self.take()?);
                self.map(n as usize, depth)?
            }
            other => return Err(format!("type {other:#04x} at byte {start} is not supported")),
        })
    }

    fn array(&mut self, n: usize, depth: usize) -> Result<Value, String> {
        // Counts are not trusted: each element needs at least one byte.
        self.has(n)?;
        (0..n).map(|_| self.value(depth + 1)).collect::<Result<Vec<_>, _>>().map(Value::Array)
    }

    fn map(&mut self, n: usize, depth: usize) -> Result<Value, String> {
        self.has(n)?;
        let mut map = Map::new();
        for _ in 0..n {
            let key = match self.value(depth + 1)? {
                Value::String(text) => text,
                other => other.to_string(),
            };
            map.insert(key, self.value(depth + 1)?);
        }
        Ok(Value::Object(map))
    }

    fn text(&mut self, n: usize) -> Result<Value, String> {
        self.has(n)?;
        let start = self.at;
        self.at += n;
        let text = std::str::from_utf8(&self.bytes[start..self.at]);
        text.map(|text| json!(text)).map_err(|_| format!("the text at byte {start} is not UTF-8"))
    }

    fn float(&mut self, number: f64, n: usize) -> Result<Value, String> {
        self.at += n;
        Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| format!("{number} at byte {} is no JSON number", self.at - n))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.peek::<N>()?;
        self.at += N;
        Ok(bytes)
    }

    fn peek<const N: usize>(&self) -> Result<[u8; N], String> {
        self.has(N)?;
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[self.at..self.at + N]);
        Ok(bytes)
    }

    fn has(&self, n: usize) -> Result<(), String> {
        if self.bytes.len() - self.at < n {
            return Err(format!(
                "cut off at byte {}: {n} more were expected, {} are there",
                self.at,
                self.bytes.len() - self.at
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded() {
        for (bytes, want) in [
            (&[0xc0][..], Value::Null),
            (&[0x07], json!(7)),
            (&[0xff], json!(-1)),
            (&[0xcd, 1, 0], json!(256)),
            (&[0xd1, 0xff, 0], json!(-256)),
            (&[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], json!(u64::MAX)),
            (&[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0], json!(1.5)),
            (&[0xa2, b'h', b'i'], json!("hi")),
            (&[0xd9, 2, b'h', b'i'], json!("hi")),
            (&[0x92, 0xc2, 0xc3], json!([false, true])),
            (&[0x81, 0xa1, b'a', 0x01], json!({"a": 1})),
            (&[0x81, 0x91, 0xa1, b'a', 0x01], json!({"[\"a\"]": 1})),
            (&[0xdc, 0, 1, 0x05], json!([5])),
            (&[0xde, 0, 1, 0xa1, b'k', 0xc0], json!({"k": null})),
        ] {
            assert_eq!(decode(bytes), Ok(want), "{bytes:02x?}");
        }
    }

    #[test]
    fn broken_bytes_are_told() {
        for (bytes, want) in [
            (&[][..], "cut off at byte 0"),
            (&[0xa5, b'h'], "cut off at byte 1"),
            (&[0xdd, 0xff, 0xff, 0xff, 0xff], "cut off at byte 5"),
            (&[0xc1], "type 0xc1 at byte 0"),
            (&[0x01, 0x02], "1 bytes follow"),
            (&[0xa1, 0xff], "not UTF-8"),
        ] {
            let error = decode(bytes).expect_err(want);
            assert!(error.contains(want), "{error}");
        }
        assert!(decode(&[0x91; 1000]).is_err(), "too deep");
    }
}
