//! Random UUIDs (RFC 9562, version 4), of which every request and every object has one: the system is asked for the random
//! bytes of many at once.

use std::cell::RefCell;

use rand::TryRngCore as _;
use rand::rngs::OsRng;

/// Bytes of one.
const SIZE: usize = 16;
/// How many are made of one answer of the system.
const N_AT_ONCE: usize = 128;

thread_local! {
    /// Random bytes, and how many of them are used up.
    static BYTES: RefCell<([u8; SIZE * N_AT_ONCE], usize)> = const { RefCell::new(([0; SIZE * N_AT_ONCE], SIZE * N_AT_ONCE)) };
}

/// A new one, in its usual form.
///
/// # Panics
/// The system gives no random bytes; then no key can be made either.
///
/// ```
/// let (one, other) = (cluster_stub_wire::uuid::random(), cluster_stub_wire::uuid::random());
/// assert!(one != other && one.len() == 36 && one.as_bytes()[14] == b'4');
/// ```
#[must_use]
pub fn random() -> String {
    BYTES.with_borrow_mut(|(bytes, used)| {
        if *used == bytes.len() {
            OsRng.try_fill_bytes(bytes).expect("the system has random bytes");
            *used = 0;
        }
        let mut own = [0; SIZE];
        let taken = &mut bytes[*used..*used + SIZE];
        own.copy_from_slice(taken);
        // What was given out is not kept.
        taken.fill(0);
        *used += SIZE;
        write(own)
    })
}

/// The text of these bytes, with version and variant put in.
fn write(mut bytes: [u8; SIZE]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0x0f)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn version_and_variant_are_put_into_the_bytes() {
        assert_eq!(write([0; SIZE]), "00000000-0000-4000-8000-000000000000");
        assert_eq!(write([0xff; SIZE]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let counted = std::array::from_fn(|at| u8::try_from(at).expect("at most fifteen"));
        assert_eq!(write(counted), "00010203-0405-4607-8809-0a0b0c0d0e0f");
    }

    #[test]
    fn none_is_given_twice() {
        let n_made = N_AT_ONCE * 3 + 1;
        let made: HashSet<String> = (0..n_made).map(|_| random()).collect();
        assert_eq!(made.len(), n_made);
    }
}
