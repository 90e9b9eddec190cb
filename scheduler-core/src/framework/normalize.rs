//! The usual way of bringing raw scores into 0..=100.

use super::MAX_NODE_SCORE;

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
    let highest = scores.iter().copied().max().unwrap_or(0).max(0);
    if highest == 0 {
        if reverse {
            scores.fill(MAX_NODE_SCORE);
        }
        return;
    }
    for score in scores {
        let scaled = MAX_NODE_SCORE.wrapping_mul(*score) / highest;
        *score = if reverse { MAX_NODE_SCORE - scaled } else { scaled };
    }
}
