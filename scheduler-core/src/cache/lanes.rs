//! 64 slots at a time: columns cut into words, a mask made from 64 answers, and the widest vectors that the CPU has.

use std::sync::LazyLock;

/// Which vectors the CPU has: asking takes longer than the work on a block.
static ARCH: LazyLock<pulp::Arch> = LazyLock::new(pulp::Arch::new);

/// Slots in one word of a mask.
pub const LANES: usize = 64;

/// Work on many slots, written as plain loops over arrays.
pub(crate) trait Lanes {
    /// What comes of it.
    type Output;

    /// Does the work. Must be `#[inline(always)]`, and so must what it calls: only what is inlined is compiled anew for
    /// the CPU.
    fn run(self) -> Self::Output;
}

/// Does the work with the vectors of the CPU that it runs on, found out once. The results are the same on all.
pub(crate) fn vectorized<L: Lanes>(work: L) -> L::Output {
    struct Op<L>(L);

    impl<L: Lanes> pulp::WithSimd for Op<L> {
        type Output = L::Output;

        #[inline(always)]
        fn with_simd<S: pulp::Simd>(self, _: S) -> L::Output {
            self.0.run()
        }
    }

    ARCH.dispatch(Op(work))
}

/// A column in words of 64 slots; columns are padded to whole words.
#[inline(always)]
#[must_use]
pub fn words<T>(column: &[T]) -> &[[T; LANES]] {
    column.as_chunks().0
}

/// The mask of the lanes for which the condition holds. Without a branch, so that it vectorises.
#[inline(always)]
#[must_use]
pub fn mask_of(holds: impl Fn(usize) -> bool) -> u64 {
    let mut answers = [0_u8; LANES];
    for (lane, answer) in answers.iter_mut().enumerate() {
        *answer = u8::from(holds(lane));
    }
    let mut mask = 0;
    for (at, eight) in answers.as_chunks::<8>().0.iter().enumerate() {
        // Multiplying gathers the lowest bit of each byte in the highest byte.
        let bits = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= bits << (8 * at);
    }
    mask
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mask_has_the_bits_of_its_answers(word in any::<u64>()) {
            prop_assert_eq!(mask_of(|lane| word >> lane & 1 == 1), word);
        }
    }
}
