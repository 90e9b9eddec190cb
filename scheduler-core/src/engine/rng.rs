//! Drawing lots from a seed: the same seed draws the same.

/// A well mixed number from a seed and a step. The finalizer of MurmurHash3, as SplitMix64 uses it.
pub(super) fn mix(seed: u64, step: u64) -> u64 {
    let mut z = seed.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number below `n`, every one as likely. `n` must not be 0.
pub(super) fn draw(seed: u64, n: usize) -> usize {
    let n = u128::try_from(n).expect("usize fits u128");
    let scaled = (u128::from(mix(seed, 0)) * n) >> 64;
    usize::try_from(scaled).expect("it is below n, which is a usize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_drawn_about_as_often() {
        let mut drawn = [0; 5];
        for step in 0..10_000 {
            drawn[draw(mix(7, step), 5)] += 1;
        }
        assert!(drawn.iter().all(|times| (1_800..2_200).contains(times)), "{drawn:?}");
        assert_eq!(draw(3, 1), 0);
    }
}
