//! The usual way of bringing raw scores into 0..=100.

use super::MAX_NODE_SCORE;
use crate::cache::exact::{float, integer};
use crate::cache::{Lanes, vectorized};

/// Scales scores so that the highest becomes 100; `reverse` turns them round afterwards, so that the lowest raw score
/// wins. All-zero scores stay 0, or become 100 when reversed. Upstream: helper `DefaultNormalizeScore` (v1.36.2).
///
/// ```
/// use scheduler_core::framework::default_normalize_score;
///
/// let mut scores = [1, 2, 4];
/// default_normalize_score(true, &mut scores);
/// assert_eq!(scores, [75, 50, 0]);
/// ```
pub fn default_normalize_score(reverse: bool, scores: &mut [i64]) {
    let highest = scores.iter().copied().max().unwrap_or(0);
    normalize_to(highest, reverse, scores);
}

/// As [`default_normalize_score`], for some of the scores, when the highest of all is known.
pub(crate) fn normalize_to(highest: i64, reverse: bool, scores: &mut [i64]) {
    let highest = highest.max(0);
    if highest == 0 {
        if reverse {
            scores.fill(MAX_NODE_SCORE);
        }
        return;
    }
    if !vectorized(Scale { scores, highest, reverse }) {
        for score in scores {
            let scaled = MAX_NODE_SCORE.wrapping_mul(*score) / highest;
            *score = if reverse { MAX_NODE_SCORE - scaled } else { scaled };
        }
    }
}

/// The same in vectors. False, and nothing done, if a score is negative or too large for that.
struct Scale<'a> {
    scores: &'a mut [i64],
    highest: i64,
    reverse: bool,
}

impl Lanes for Scale<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let all_bits = self.scores.iter().fold(self.highest, |bits, score| bits | score);
        if !(0..1 << 45).contains(&all_bits) {
            return false;
        }
        let highest = float(self.highest);
        for score in self.scores {
            let scaled = (float(*score) * 100.0 / highest).floor();
            *score = integer(if self.reverse { 100.0 - scaled } else { scaled });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn scores_are_scaled_as_integers_are(
            scores in prop::collection::vec(prop_oneof![4 => 0_i64..1000, 1 => 0_i64..1 << 50, 1 => -5_i64..5], 1..20),
            reverse in any::<bool>(),
        ) {
            let highest = scores.iter().copied().max().unwrap_or(0).max(0);
            let want = scores.iter().map(|score| match highest {
                0 => if reverse { 100 } else { *score },
                _ if reverse => 100 - score.wrapping_mul(100) / highest,
                _ => score.wrapping_mul(100) / highest,
            });
            let want: Vec<i64> = want.collect();
            let mut got = scores;
            default_normalize_score(reverse, &mut got);
            prop_assert_eq!(got, want);
        }
    }
}
