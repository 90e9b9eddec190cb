//! Node slots in tiles: what one task filters and scores at one go, while the columns of the tile are in a near cache.

use rayon::prelude::*;
use smallvec::SmallVec;

use super::algorithm::Algorithm;
use crate::cache::{LANES, NodeIdx};
use crate::framework::Result;

/// Words of the mask whose nodes are scored at one time: all their scores together stay in the nearest cache.
pub(super) const WORDS_PER_BLOCK: usize = 8;
/// Slots of one block.
pub(super) const SLOTS_PER_BLOCK: usize = WORDS_PER_BLOCK * LANES;
/// Blocks of one tile.
pub(super) const BLOCKS_PER_TILE: usize = 4;
/// Words of the mask that are filtered at one time.
pub(super) const WORDS_PER_TILE: usize = BLOCKS_PER_TILE * WORDS_PER_BLOCK;

/// Tiles of one parallel task at least: a fork costs about as much as a tile.
const MIN_TILES_PER_TASK: usize = 2;

/// The highest total among some nodes, and how many of them have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Best {
    pub(super) total: i64,
    pub(super) n_ties: u32,
}

impl Best {
    /// Of no nodes.
    pub(super) const NONE: Self = Self { total: i64::MIN, n_ties: 0 };

    /// Of two groups of nodes together.
    #[inline]
    pub(super) fn or(self, other: Self) -> Self {
        match self.total.cmp(&other.total) {
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal => Self { total: self.total, n_ties: self.n_ties + other.n_ties },
        }
    }
}

/// The lowest and the highest of some raw scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extremes {
    pub(super) lowest: i64,
    pub(super) highest: i64,
}

impl Extremes {
    /// Of no scores.
    pub(super) const NONE: Self = Self { lowest: i64::MAX, highest: i64::MIN };

    /// Of two groups of scores together.
    #[inline]
    pub(super) fn and(self, other: Self) -> Self {
        Self { lowest: self.lowest.min(other.lowest), highest: self.highest.max(other.highest) }
    }
}

/// Feasible nodes, and the scores that one plugin gave them.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) nodes: Vec<NodeIdx>,
    pub(super) scores: Vec<i64>,
}

/// What is known of the slots of one tile in one cycle.
#[derive(Debug)]
pub(super) struct Tile {
    pub(super) n_feasible: usize,
    pub(super) n_slots: usize,
    /// Weighted sums by slot, if there is something to be normalised; anything where no node is feasible.
    pub(super) totals: Vec<i64>,
    /// Raw scores by slot of the plugins that normalise, one plugin after the other.
    pub(super) raws: Vec<i64>,
    /// Extremes of each of them over the feasible nodes.
    pub(super) extremes: SmallVec<[Extremes; 4]>,
    /// The best of each block.
    pub(super) bests: [Best; BLOCKS_PER_TILE],
    /// Of one block, if a plugin wants its nodes listed.
    pub(super) listed: Listed,
    /// Whether a plugin failed.
    pub(super) is_broken: bool,
}

impl Tile {
    pub(super) fn new() -> Self {
        Self {
            n_feasible: 0,
            n_slots: 0,
            totals: Vec::new(),
            raws: Vec::new(),
            extremes: SmallVec::new(),
            bests: [Best::NONE; BLOCKS_PER_TILE],
            listed: Listed::default(),
            is_broken: false,
        }
    }

    /// Makes room for scores of so many slots.
    pub(super) fn clear(&mut self, n_slots: usize, n_normalizing: usize) {
        self.n_slots = n_slots;
        if n_normalizing > 0 {
            self.totals.resize(n_slots, 0);
        }
        if self.raws.len() < n_slots * n_normalizing {
            self.raws.resize(n_slots * n_normalizing, 0);
        }
        self.extremes.clear();
        self.extremes.resize(n_normalizing, Extremes::NONE);
        self.bests = [Best::NONE; BLOCKS_PER_TILE];
        self.is_broken = false;
    }
}

impl Algorithm<'_> {
    /// Runs `work` on every tile: on the position of its first word, its words, and what is known of it. On several threads
    /// if this cycle has them. The first error in node order.
    pub(super) fn for_each_tile(
        &self,
        mask: &mut [u64],
        tiles: &mut [Tile],
        work: impl Fn(usize, &mut [u64], &mut Tile) -> Result<()> + Sync,
    ) -> Result<()> {
        if self.n_threads == 1 {
            let tiles = mask.chunks_mut(WORDS_PER_TILE).zip(tiles).enumerate();
            for (at, (words, tile)) in tiles {
                work(at * WORDS_PER_TILE, words, tile)?;
            }
            return Ok(());
        }
        let tiles = mask.par_chunks_mut(WORDS_PER_TILE).zip(tiles).enumerate().with_min_len(MIN_TILES_PER_TASK);
        let error = tiles.map(|(at, (words, tile))| work(at * WORDS_PER_TILE, words, tile).err());
        error.find_map_first(|error| error).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_two_groups_has_the_ties_of_both() {
        let best = |total, n_ties| Best { total, n_ties };
        assert_eq!(best(3, 2).or(best(2, 9)), best(3, 2));
        assert_eq!(best(3, 2).or(best(3, 9)), best(3, 11));
        assert_eq!(Best::NONE.or(best(-1, 1)), best(-1, 1));
    }
}
