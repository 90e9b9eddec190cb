//! The feasible nodes of a batch in groups, each with a tree that knows its best nodes. Knows nothing of plugins.
//!
//! Nodes of one group differ only in a number, their *rest*: what all plugins that do not normalise gave them together.
//! A tree has a leaf for every word of 64 slots, a branch for 64 leaves, and a root; each holds the highest rest below it
//! and how many nodes have it. Changing one node changes the heads on the way to the root by what it had and has: only where
//! the last of the best ones has got worse, its 64 neighbours are looked at, in loops that vectorise.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::cache::{LANES, Lanes, NodeIdx, clear_bit, mask_of, ones, set_bit, vectorized};

/// What nodes of one group have in common: raw scores that are normalised, and classes.
pub(super) type Key = SmallVec<[i64; 4]>;

/// Beyond so many groups a full pass over the nodes is as cheap, and takes no memory.
const MAX_GROUPS: usize = 256;

/// Leaves below a branch.
const FAN_OUT: usize = 64;

/// So many groups are looked through faster than a key is hashed.
const FEW_GROUPS: usize = 16;

/// There are more groups than it is worth to keep.
#[derive(Debug)]
pub(super) struct TooManyGroups;

/// Position of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupId(u16);

/// The highest rest among some nodes, and how many of them have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) rest: i32,
    pub(super) n_ties: u32,
}

impl Head {
    const EMPTY: Self = Self { rest: i32::MIN, n_ties: 0 };

    fn or(self, other: Self) -> Self {
        match self.rest.cmp(&other.rest) {
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Equal => Self { rest: self.rest, n_ties: self.n_ties + other.n_ties },
        }
    }

    /// The head of a family after one of its members went from `before` to `now`. `None` if no other member is known to
    /// be as good as the best that has left.
    #[inline]
    fn after(self, before: Self, now: Self) -> Option<Self> {
        if now.rest > self.rest {
            return Some(now);
        }
        let left = if before.rest == self.rest { before.n_ties } else { 0 };
        let came = if now.rest == self.rest { now.n_ties } else { 0 };
        let n_ties = self.n_ties + came - left;
        (n_ties > 0).then_some(Self { rest: self.rest, n_ties })
    }
}

/// One level of a tree: the heads of its leaves, or of its branches, in families of [`FAN_OUT`]. Empty ones fill up the
/// last family.
#[derive(Debug)]
struct Level {
    rests: Vec<i32>,
    n_ties: Vec<u32>,
}

impl Level {
    fn new(n: usize) -> Self {
        let n = n.next_multiple_of(FAN_OUT);
        Self { rests: vec![Head::EMPTY.rest; n], n_ties: vec![Head::EMPTY.n_ties; n] }
    }

    fn n_families(&self) -> usize {
        self.rests.len() / FAN_OUT
    }

    fn get(&self, at: usize) -> Head {
        Head { rest: self.rests[at], n_ties: self.n_ties[at] }
    }

    fn set(&mut self, at: usize, head: Head) {
        (self.rests[at], self.n_ties[at]) = (head.rest, head.n_ties);
    }

    fn family(&self, at: usize) -> Family<'_> {
        let first = at * FAN_OUT;
        Family {
            rests: self.rests[first..].first_chunk().expect("families are whole"),
            n_ties: self.n_ties[first..].first_chunk().expect("families are whole"),
        }
    }

    /// The head of a family.
    fn head(&self, family: usize) -> Head {
        vectorized(self.family(family))
    }
}

/// [`FAN_OUT`] heads of one level.
struct Family<'a> {
    rests: &'a [i32; FAN_OUT],
    n_ties: &'a [u32; FAN_OUT],
}

impl Lanes for Family<'_> {
    type Output = Head;

    #[inline(always)]
    fn run(self) -> Head {
        let rest = self.rests.iter().copied().fold(i32::MIN, i32::max);
        let ties = self.rests.iter().zip(self.n_ties).map(|(other, n_ties)| if *other == rest { *n_ties } else { 0 });
        Head { rest, n_ties: ties.sum() }
    }
}

/// Adds up how many nodes of a family have this rest, for each of its members.
struct AddTies<'a> {
    family: Family<'a>,
    rest: i32,
    sums: &'a mut [u32; FAN_OUT],
}

impl Lanes for AddTies<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Family { rests, n_ties } = self.family;
        for (at, sum) in self.sums.iter_mut().enumerate() {
            *sum += if rests[at] == self.rest { n_ties[at] } else { 0 };
        }
    }
}

#[derive(Debug)]
struct Group {
    key: Key,
    n_nodes: usize,
    /// Any of the nodes, if there are some.
    representative: NodeIdx,
    /// The nodes in each word of slots.
    members: Vec<u64>,
    /// One for each word of slots.
    leaves: Level,
    branches: Level,
    root: Head,
}

impl Group {
    fn new(n_words: usize) -> Self {
        Self {
            key: Key::new(),
            n_nodes: 0,
            representative: NodeIdx::FIRST,
            members: vec![0; n_words],
            leaves: Level::new(n_words),
            branches: Level::new(n_words.div_ceil(FAN_OUT)),
            root: Head::EMPTY,
        }
    }

    /// One of the nodes went from `before` to `now`, or came, or went.
    fn change(&mut self, slot: usize, before: Head, now: Head, leaf: impl FnOnce() -> Head) {
        let (word, branch) = (slot / LANES, slot / LANES / FAN_OUT);
        let was = self.leaves.get(word);
        let is = was.after(before, now).unwrap_or_else(leaf);
        if is == was {
            return;
        }
        self.leaves.set(word, is);
        let (before, now) = (was, is);
        let was = self.branches.get(branch);
        let is = was.after(before, now).unwrap_or_else(|| self.leaves.head(branch));
        if is == was {
            return;
        }
        self.branches.set(branch, is);
        self.root = self.root.after(was, is).unwrap_or_else(|| self.branches_head());
    }

    fn branches_head(&self) -> Head {
        (0..self.branches.n_families()).map(|family| self.branches.head(family)).fold(Head::EMPTY, Head::or)
    }

    /// Sees to it that the representative is a node of the group.
    fn represent(&mut self) {
        let slot = self.representative.slot();
        if self.members[slot / LANES] >> (slot % LANES) & 1 == 0
            && let Some(word) = self.members.iter().position(|members| *members != 0)
        {
            let lane = self.members[word].trailing_zeros() as usize;
            self.representative = NodeIdx::from_slot(word * LANES + lane);
        }
    }
}

/// All groups over the slots of one snapshot.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    ids: FxHashMap<Key, GroupId>,
    free: Vec<GroupId>,
    /// The group of each slot; [`Groups::NONE`] where the pod does not fit.
    of_slot: Vec<u16>,
    rest: Vec<i32>,
    /// Branches below which something changed.
    dirty: Vec<(GroupId, usize)>,
    /// How often a group came or went.
    n_comings: u64,
}

impl Groups {
    const NONE: u16 = u16::MAX;

    /// No node in any group.
    pub(super) fn new(n_slots: usize) -> Self {
        Self { of_slot: vec![Self::NONE; n_slots], rest: vec![0; n_slots], ..Self::default() }
    }

    /// Number of slots that were there.
    pub(super) fn n_slots(&self) -> usize {
        self.of_slot.len()
    }

    /// The key of the node's group; `None` if the pod does not fit it.
    pub(super) fn key_of(&self, node: NodeIdx) -> Option<&Key> {
        let group = self.of_slot[node.slot()];
        (group != Self::NONE).then(|| &self.groups[usize::from(group)].key)
    }

    /// Says anew what one node is: nothing if it is not feasible, or its group's key and its rest. All must be
    /// [settled](Self::settle).
    pub(super) fn set_node(&mut self, node: NodeIdx, row: Option<(&[i64], i32)>) -> Result<(), TooManyGroups> {
        let slot = node.slot();
        let was = self.of_slot[slot];
        let is = match row {
            None => Self::NONE,
            Some((key, _)) if was != Self::NONE && *self.groups[usize::from(was)].key == *key => was,
            Some((key, _)) => self.intern(key)?.0,
        };
        let head = |rest| Head { rest, n_ties: 1 };
        let before = head(self.rest[slot]);
        self.of_slot[slot] = is;
        self.rest[slot] = row.map_or(0, |(_, rest)| rest);
        let now = head(self.rest[slot]);
        if was == is {
            if is != Self::NONE {
                self.change(is, slot, before, now);
            }
            return Ok(());
        }
        if is != Self::NONE {
            let group = &mut self.groups[usize::from(is)];
            set_bit(&mut group.members, slot);
            group.n_nodes += 1;
            if group.n_nodes == 1 {
                group.representative = node;
            }
            self.change(is, slot, Head::EMPTY, now);
        }
        if was != Self::NONE {
            let group = &mut self.groups[usize::from(was)];
            clear_bit(&mut group.members, slot);
            group.n_nodes -= 1;
            self.change(was, slot, before, Head::EMPTY);
            self.groups[usize::from(was)].represent();
            self.free_if_empty(GroupId(was));
        }
        Ok(())
    }

    fn change(&mut self, id: u16, slot: usize, before: Head, now: Head) {
        let first = slot / LANES * LANES;
        let Self { of_slot, rest, groups, .. } = self;
        groups[usize::from(id)].change(slot, before, now, || {
            let of_slot = of_slot[first..].first_chunk().expect("slots come in whole words");
            let rest = rest[first..].first_chunk().expect("slots come in whole words");
            vectorized(LeafOf { group: id, of_slot, rest }).head
        });
    }

    fn free_if_empty(&mut self, id: GroupId) {
        let group = &mut self.groups[usize::from(id.0)];
        if group.n_nodes == 0 {
            self.ids.remove(&group.key);
            group.key.clear();
            self.free.push(id);
            self.n_comings += 1;
        }
    }

    /// Changes whenever a group comes or goes: as long as it stays the same, ids mean the same keys.
    pub(super) fn n_comings(&self) -> u64 {
        self.n_comings
    }

    /// Says anew, for some slots of one word, which nodes are feasible, and the group and rest of each: `nodes` in node
    /// order. [`settle`](Self::settle) must follow.
    pub(super) fn set_slots<'k>(
        &mut self,
        word: usize,
        slots: u64,
        nodes: impl Iterator<Item = (NodeIdx, &'k [i64], i32)>,
    ) -> Result<(), TooManyGroups> {
        let first = word * LANES;
        let mut touched = SmallVec::<[GroupId; 8]>::new();
        let mut touch = |id: GroupId| {
            if !touched.contains(&id) {
                touched.push(id);
            }
        };
        for lane in ones(slots) {
            let of_slot = &mut self.of_slot[first + lane];
            if *of_slot != Self::NONE {
                touch(GroupId(*of_slot));
                *of_slot = Self::NONE;
            }
        }
        for (node, key, rest) in nodes {
            let id = self.intern(key)?;
            touch(id);
            self.of_slot[node.slot()] = id.0;
            self.rest[node.slot()] = rest;
        }
        let of_slot = self.of_slot[first..].first_chunk().expect("slots come in whole words");
        let rest = self.rest[first..].first_chunk().expect("slots come in whole words");
        for id in touched {
            let group = &mut self.groups[usize::from(id.0)];
            let leaf = vectorized(LeafOf { group: id.0, of_slot, rest });
            group.n_nodes += leaf.members.count_ones() as usize;
            group.n_nodes -= group.members[word].count_ones() as usize;
            group.members[word] = leaf.members;
            group.leaves.set(word, leaf.head);
            if self.dirty.last() != Some(&(id, word / FAN_OUT)) {
                self.dirty.push((id, word / FAN_OUT));
            }
        }
        Ok(())
    }

    /// Brings branches and roots up to date.
    pub(super) fn settle(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        for of_group in dirty.chunk_by(|a, b| a.0 == b.0) {
            let id = of_group[0].0;
            let group = &mut self.groups[usize::from(id.0)];
            for &(_, branch) in of_group {
                group.branches.set(branch, group.leaves.head(branch));
            }
            group.root = group.branches_head();
            group.represent();
            self.free_if_empty(id);
        }
        dirty.clear();
        self.dirty = dirty;
    }

    /// The groups that have a node.
    pub(super) fn iter(&self) -> impl Iterator<Item = GroupId> + '_ {
        (0..).map(GroupId).zip(&self.groups).filter(|(_, group)| group.n_nodes > 0).map(|(id, _)| id)
    }

    pub(super) fn key(&self, id: GroupId) -> &[i64] {
        &self.groups[usize::from(id.0)].key
    }

    pub(super) fn n_nodes(&self, id: GroupId) -> usize {
        self.groups[usize::from(id.0)].n_nodes
    }

    /// The highest rest in the group.
    pub(super) fn head(&self, id: GroupId) -> Head {
        self.groups[usize::from(id.0)].root
    }

    /// One node of the group, that can stand for any; the group must have one.
    pub(super) fn representative(&self, id: GroupId) -> NodeIdx {
        self.groups[usize::from(id.0)].representative
    }

    /// The node of this rank, in node order, among the nodes with the highest rest of each of the groups.
    pub(super) fn tie(&self, groups: &[GroupId], mut rank: u32) -> NodeIdx {
        let branch = self.find_tie(groups, |group| &group.branches, 0, &mut rank);
        let word = self.find_tie(groups, |group| &group.leaves, branch, &mut rank);
        let first = word * LANES;
        let of_slot: &[u16; LANES] = self.of_slot[first..].first_chunk().expect("slots come in whole words");
        let rest: &[i32; LANES] = self.rest[first..].first_chunk().expect("slots come in whole words");
        let tied = groups
            .iter()
            .fold(0, |tied, id| tied | vectorized(TiedOf { group: id.0, highest: self.head(*id).rest, of_slot, rest }));
        let lane = ones(tied).nth(rank as usize).expect("heads count the ties below them");
        NodeIdx::from_slot(first + lane)
    }

    /// Goes on from a family of one level, past whole families and past whole members, to the one below which the node of
    /// this rank is; the rank is counted down.
    fn find_tie(&self, groups: &[GroupId], level: impl Fn(&Group) -> &Level, from: usize, rank: &mut u32) -> usize {
        let mut family = from;
        loop {
            let mut sums = [0; FAN_OUT];
            for group in groups.iter().map(|id| &self.groups[usize::from(id.0)]) {
                let family = level(group).family(family);
                vectorized(AddTies { family, rest: group.root.rest, sums: &mut sums });
            }
            if let Some(at) = member_of_rank(&sums, rank) {
                return family * FAN_OUT + at;
            }
            family += 1;
        }
    }

    fn intern(&mut self, key: &[i64]) -> Result<GroupId, TooManyGroups> {
        if self.groups.len() <= FEW_GROUPS {
            let mut groups = (0..).map(GroupId).zip(&self.groups);
            // The empty key, where nothing is normalised, is also that of free groups.
            let known = groups.find(|(id, group)| *group.key == *key && !self.free.contains(id));
            if let Some((id, _)) = known {
                return Ok(id);
            }
        } else if let Some(id) = self.ids.get(key) {
            return Ok(*id);
        }
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.groups.len() == MAX_GROUPS => return Err(TooManyGroups),
            None => {
                self.groups.push(Group::new(self.of_slot.len() / LANES));
                GroupId(u16::try_from(self.groups.len() - 1).expect("there are few groups"))
            }
        };
        self.groups[usize::from(id.0)].key = key.into();
        self.ids.insert(key.into(), id);
        self.n_comings += 1;
        Ok(id)
    }
}

/// The member of a family in which the node of this rank is, given how many nodes each has; the rank is counted down. Eight
/// members at a time are passed over.
fn member_of_rank(n_nodes: &[u32; FAN_OUT], rank: &mut u32) -> Option<usize> {
    for (first, eight) in (0..).step_by(8).zip(n_nodes.as_chunks::<8>().0) {
        match rank.checked_sub(eight.iter().sum()) {
            Some(left) => *rank = left,
            None => {
                for (at, n_nodes) in (first..).zip(eight) {
                    match rank.checked_sub(*n_nodes) {
                        Some(left) => *rank = left,
                        None => return Some(at),
                    }
                }
            }
        }
    }
    None
}

/// What a group has in one word of slots.
struct Leaf {
    members: u64,
    head: Head,
}

/// The leaf of a group over one word of slots.
struct LeafOf<'a> {
    group: u16,
    of_slot: &'a [u16; LANES],
    rest: &'a [i32; LANES],
}

impl Lanes for LeafOf<'_> {
    type Output = Leaf;

    #[inline(always)]
    fn run(self) -> Leaf {
        let mut rest = [i32::MIN; LANES];
        for (lane, rest) in rest.iter_mut().enumerate() {
            *rest = if self.of_slot[lane] == self.group { self.rest[lane] } else { i32::MIN };
        }
        let highest = rest.iter().copied().fold(i32::MIN, i32::max);
        let members = mask_of(|lane| self.of_slot[lane] == self.group);
        let n_ties = if members == 0 { 0 } else { mask_of(|lane| rest[lane] == highest).count_ones() };
        Leaf { members, head: Head { rest: highest, n_ties } }
    }
}

/// The nodes of a group over one word of slots that have its highest rest.
struct TiedOf<'a> {
    group: u16,
    highest: i32,
    of_slot: &'a [u16; LANES],
    rest: &'a [i32; LANES],
}

impl Lanes for TiedOf<'_> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        mask_of(|lane| (self.of_slot[lane] == self.group) & (self.rest[lane] == self.highest))
    }
}

#[cfg(test)]
mod tests;
