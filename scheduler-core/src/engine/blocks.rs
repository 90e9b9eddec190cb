//! Loops over the slots of one block, compiled for vectors. Slots without a feasible node may hold anything: every loop is
//! masked.

use super::tiles::{Best, Extremes, SLOTS_PER_BLOCK};
use crate::cache::{LANES, Lanes, vectorized};
use crate::framework::{MAX_NODE_SCORE, PluginError, Result};

/// A number for each slot of one block. As a mask, all its bits are set if the slot is feasible, and none if not.
pub(super) type Block = [i64; SLOTS_PER_BLOCK];

/// The feasible slots as a mask of numbers. Beyond the words the mask stays as it is.
pub(super) fn expand(words: &[u64], feasible: &mut Block) {
    vectorized(Expand { words, feasible });
}

/// Gives the slots that are not feasible a harmless score.
pub(super) fn replace(scores: &mut [i64], feasible: &Block, by: i64) {
    vectorized(Replace { scores, feasible, by });
}

/// The extremes of the feasible slots' scores.
pub(super) fn extremes(scores: &[i64], feasible: &Block) -> Extremes {
    vectorized(ExtremesOf { scores, feasible })
}

/// The best of the feasible slots' totals.
pub(super) fn best(totals: &[i64], feasible: &Block) -> Best {
    vectorized(BestOf { totals, feasible })
}

/// Adds weighted scores of the feasible slots to totals.
///
/// # Errors
/// When one is out of range.
pub(super) fn add(totals: &mut [i64], scores: &[i64], feasible: &Block, weight: u32) -> Result<()> {
    match vectorized(AddScores { totals, scores, feasible, weight }) {
        true => Ok(()),
        false => Err(PluginError::new("a score is out of range")),
    }
}

struct Expand<'a> {
    words: &'a [u64],
    feasible: &'a mut Block,
}

impl Lanes for Expand<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (word, feasible) in self.words.iter().zip(self.feasible.as_chunks_mut::<LANES>().0) {
            for (lane, feasible) in (0_u64..).zip(feasible) {
                *feasible = (word >> lane & 1).cast_signed().wrapping_neg();
            }
        }
    }
}

/// The output is false if a score of a feasible slot is not in 0..=100.
struct AddScores<'a> {
    totals: &'a mut [i64],
    scores: &'a [i64],
    feasible: &'a Block,
    weight: u32,
}

impl Lanes for AddScores<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let mut out_of_range = 0;
        for ((total, &score), feasible) in self.totals.iter_mut().zip(self.scores).zip(self.feasible) {
            let score = score & feasible;
            // Negative if one of the two is.
            out_of_range |= score | MAX_NODE_SCORE.wrapping_sub(score);
            // A factor that is seen to be small makes one multiplication of vectors of it, instead of three.
            *total += i64::from(self.weight) * (score & 0x7f);
        }
        out_of_range >= 0
    }
}

struct Replace<'a> {
    scores: &'a mut [i64],
    feasible: &'a Block,
    by: i64,
}

impl Lanes for Replace<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (score, feasible) in self.scores.iter_mut().zip(self.feasible) {
            *score = (*score & feasible) | (self.by & !feasible);
        }
    }
}

struct ExtremesOf<'a> {
    scores: &'a [i64],
    feasible: &'a Block,
}

impl Lanes for ExtremesOf<'_> {
    type Output = Extremes;

    #[inline(always)]
    fn run(self) -> Extremes {
        let Extremes { mut lowest, mut highest } = Extremes::NONE;
        for (score, feasible) in self.scores.iter().zip(self.feasible) {
            lowest = lowest.min((score & feasible) | (i64::MAX & !feasible));
            highest = highest.max((score & feasible) | (i64::MIN & !feasible));
        }
        Extremes { lowest, highest }
    }
}

struct BestOf<'a> {
    totals: &'a [i64],
    feasible: &'a Block,
}

impl Lanes for BestOf<'_> {
    type Output = Best;

    #[inline(always)]
    fn run(self) -> Best {
        let totals = self.totals.iter().zip(self.feasible);
        let total = totals
            .clone()
            .fold(i64::MIN, |best, (total, feasible)| best.max((total & feasible) | (i64::MIN & !feasible)));
        let n_ties = totals.fold(0_i64, |n, (other, feasible)| n - (feasible & -i64::from(*other == total)));
        Best { total, n_ties: u32::try_from(n_ties).expect("a block has fewer slots") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn only_feasible_slots_count(
            words in prop::collection::vec(any::<u64>(), 8),
            scores in prop::collection::vec(prop_oneof![8 => 0..=100_i64, 1 => any::<i64>()], SLOTS_PER_BLOCK),
            weight in 1_u32..100,
        ) {
            let is_feasible = |slot: usize| words[slot / LANES] >> (slot % LANES) & 1 == 1;
            let (mut feasible, slots) = ([0; SLOTS_PER_BLOCK], 0..SLOTS_PER_BLOCK);
            expand(&words, &mut feasible);
            prop_assert!(slots.clone().all(|slot| feasible[slot] == -i64::from(is_feasible(slot))));

            let some: Vec<i64> = slots.clone().filter(|slot| is_feasible(*slot)).map(|slot| scores[slot]).collect();
            let Extremes { lowest, highest } = extremes(&scores, &feasible);
            prop_assert_eq!((Some(&lowest), Some(&highest)), (some.iter().min(), some.iter().max()));
            let Best { total, n_ties } = best(&scores, &feasible);
            prop_assert_eq!(total, highest);
            prop_assert_eq!(n_ties as usize, some.iter().filter(|score| **score == total).count());

            let mut harmless = scores.clone();
            replace(&mut harmless, &feasible, 7);
            let harmless_of = |slot: usize| if is_feasible(slot) { scores[slot] } else { 7 };
            prop_assert!(slots.clone().all(|slot| harmless[slot] == harmless_of(slot)));

            let mut totals = vec![3; SLOTS_PER_BLOCK];
            let is_in_range = add(&mut totals, &scores, &feasible, weight).is_ok();
            prop_assert_eq!(is_in_range, some.iter().all(|score| (0..=100).contains(score)));
            if is_in_range {
                let of = |slot: usize| 3 + if is_feasible(slot) { i64::from(weight) * scores[slot] } else { 0 };
                prop_assert!(slots.clone().all(|slot| totals[slot] == of(slot)));
            }
        }
    }
}
