//! Bits in words of 64: one bit a node slot.

/// Sets bit `at`.
pub(crate) fn set_bit(words: &mut [u64], at: usize) {
    words[at / 64] |= 1 << (at % 64);
}

/// Clears bit `at`.
pub(crate) fn clear_bit(words: &mut [u64], at: usize) {
    words[at / 64] &= !(1 << (at % 64));
}

/// Sets or clears bit `at`.
pub(crate) fn put_bit(words: &mut [u64], at: usize, is_set: bool) {
    let word = &mut words[at / 64];
    *word = *word & !(1 << (at % 64)) | u64::from(is_set) << (at % 64);
}

/// Whether bit `at` is set.
#[cfg(test)]
pub(crate) fn test_bit(words: &[u64], at: usize) -> bool {
    words[at / 64] >> (at % 64) & 1 == 1
}

/// Positions of the set bits of one word, lowest first.
pub(crate) fn ones(mut word: u64) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_tested_cleared_and_listed() {
        let mut words = [0_u64; 2];
        for at in [0, 63, 64, 127] {
            set_bit(&mut words, at);
            assert!(test_bit(&words, at));
        }
        clear_bit(&mut words, 63);
        assert!(!test_bit(&words, 63));
        assert_eq!(ones(words[0]).collect::<Vec<_>>(), [0]);
        assert_eq!(ones(words[1]).collect::<Vec<_>>(), [0, 63]);
    }
}
