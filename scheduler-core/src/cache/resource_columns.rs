//! One pair of columns per resource: what nodes have and what their pods ask for.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::bits::{clear_bit, put_bit, set_bit};
use super::exact;
use super::growth::lengthen;
use crate::model::{Pod, Resources};

/// A resource that some node offers or some pod asked for; an index of its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(u32);

impl ResourceId {
    /// CPU, in thousandths.
    pub const MILLI_CPU: Self = Self(0);
    /// Memory, in bytes.
    pub const MEMORY: Self = Self(1);
    /// Ephemeral storage, in bytes.
    pub const EPHEMERAL_STORAGE: Self = Self(2);
    /// Pods, in number.
    pub const PODS: Self = Self(3);

    const N_FIXED: u32 = 4;

    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug, Default, Clone)]
struct Pair {
    allocatable: Vec<i64>,
    requested: Vec<i64>,
    irregular: Vec<u64>,
}

/// One resource of all slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts<'a> {
    pub(crate) allocatable: &'a [i64],
    /// What bound and assumed pods ask for, in one of the two ways to count.
    pub(crate) used: &'a [i64],
    /// One bit a slot, set where a vector cannot compute with the two: the node has none of the resource, or one amount is
    /// negative or not below [`exact::LIMIT`].
    pub(crate) irregular: &'a [u64],
}

/// Whether a vector cannot compute with them, see [`Amounts::irregular`].
pub(crate) fn is_irregular(allocatable: i64, used: i64) -> bool {
    !((1..exact::LIMIT).contains(&allocatable) && (0..exact::LIMIT).contains(&used))
}

/// Allocatable and requested amounts of all resources, one entry per node slot; zero in empty slots.
#[derive(Debug, Clone)]
pub struct ResourceColumns {
    pairs: Vec<Pair>,
    names: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, ResourceId>,
    non_zero_milli_cpu: NonZero,
    non_zero_memory: NonZero,
    /// One bit a slot, set where one more pod is allowed.
    has_pod_room: Vec<u64>,
    n_slots: usize,
}

/// What pods ask for with the defaults of scoring, beside what they really ask for.
#[derive(Debug, Default, Clone)]
struct NonZero {
    of_slots: Vec<i64>,
    irregular: Vec<u64>,
    /// Slots at which the two differ: seldom any, and then one column serves for both.
    n_different: usize,
}

impl Pair {
    fn amounts(&self) -> Amounts<'_> {
        Amounts { allocatable: &self.allocatable, used: &self.requested, irregular: &self.irregular }
    }

    fn note_regularity(&mut self, slot: usize) {
        put_bit(&mut self.irregular, slot, is_irregular(self.allocatable[slot], self.requested[slot]));
    }
}

impl NonZero {
    fn set(&mut self, slot: usize, value: i64, (before, now): (i64, i64)) {
        let value_before = std::mem::replace(&mut self.of_slots[slot], value);
        self.n_different += usize::from(value != now);
        self.n_different -= usize::from(value_before != before);
    }

    fn or<'a>(&'a self, requested: &'a [i64]) -> &'a [i64] {
        if self.n_different == 0 { requested } else { &self.of_slots }
    }

    fn amounts<'a>(&'a self, pair: &'a Pair) -> Amounts<'a> {
        if self.n_different == 0 {
            return pair.amounts();
        }
        Amounts { allocatable: &pair.allocatable, used: &self.of_slots, irregular: &self.irregular }
    }

    fn note_regularity(&mut self, slot: usize, allocatable: i64) {
        put_bit(&mut self.irregular, slot, is_irregular(allocatable, self.of_slots[slot]));
    }
}

impl Default for ResourceColumns {
    fn default() -> Self {
        let mut columns = Self {
            pairs: Vec::new(),
            names: Vec::new(),
            ids: FxHashMap::default(),
            non_zero_milli_cpu: NonZero::default(),
            non_zero_memory: NonZero::default(),
            has_pod_room: Vec::new(),
            n_slots: 0,
        };
        for name in ["cpu", "memory", "ephemeral-storage", "pods"] {
            columns.intern(&Arc::from(name));
        }
        columns
    }
}

impl ResourceColumns {
    /// The resource of this name, if any node offers or any bound pod asks for it.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<ResourceId> {
        match name {
            "cpu" => Some(ResourceId::MILLI_CPU),
            "memory" => Some(ResourceId::MEMORY),
            _ => self.ids.get(name).copied(),
        }
    }

    /// The name of a resource.
    #[must_use]
    pub fn name(&self, id: ResourceId) -> &Arc<str> {
        &self.names[id.at()]
    }

    /// What pods may take, one entry per node slot.
    #[must_use]
    pub fn allocatable(&self, id: ResourceId) -> &[i64] {
        &self.pairs[id.at()].allocatable
    }

    /// What bound and assumed pods ask for, one entry per node slot. Upstream: `NodeInfo.Requested`.
    #[must_use]
    pub fn requested(&self, id: ResourceId) -> &[i64] {
        &self.pairs[id.at()].requested
    }

    /// Milli CPU that pods ask for, 100m for each container that names none. Upstream: `NodeInfo.NonZeroRequested`.
    #[must_use]
    pub fn non_zero_milli_cpu(&self) -> &[i64] {
        self.non_zero_milli_cpu.or(self.requested(ResourceId::MILLI_CPU))
    }

    /// Bytes of memory that pods ask for, 200Mi for each container that names none.
    #[must_use]
    pub fn non_zero_memory(&self) -> &[i64] {
        self.non_zero_memory.or(self.requested(ResourceId::MEMORY))
    }

    pub(crate) fn amounts(&self, id: ResourceId) -> Amounts<'_> {
        self.pairs[id.at()].amounts()
    }

    /// CPU, used as [`Self::non_zero_milli_cpu`] counts it.
    pub(crate) fn non_zero_milli_cpu_amounts(&self) -> Amounts<'_> {
        self.non_zero_milli_cpu.amounts(&self.pairs[ResourceId::MILLI_CPU.at()])
    }

    /// Memory, used as [`Self::non_zero_memory`] counts it.
    pub(crate) fn non_zero_memory_amounts(&self) -> Amounts<'_> {
        self.non_zero_memory.amounts(&self.pairs[ResourceId::MEMORY.at()])
    }

    /// Where one more pod is allowed, one bit a slot.
    #[must_use]
    pub fn has_pod_room(&self) -> &[u64] {
        &self.has_pod_room
    }

    /// All resources, the four fixed ones first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ResourceId> + use<> {
        let n = u32::try_from(self.pairs.len()).expect("interning checks it");
        (0..n).map(ResourceId)
    }

    pub(crate) fn grow(&mut self, n_slots: usize) {
        self.n_slots = n_slots;
        let n_words = n_slots.div_ceil(64);
        for pair in &mut self.pairs {
            lengthen(&mut pair.allocatable, n_slots, 0);
            lengthen(&mut pair.requested, n_slots, 0);
            lengthen(&mut pair.irregular, n_words, u64::MAX);
        }
        for non_zero in [&mut self.non_zero_milli_cpu, &mut self.non_zero_memory] {
            lengthen(&mut non_zero.of_slots, n_slots, 0);
            lengthen(&mut non_zero.irregular, n_words, u64::MAX);
        }
        lengthen(&mut self.has_pod_room, n_words, 0);
    }

    fn intern(&mut self, name: &Arc<str>) -> ResourceId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = ResourceId(u32::try_from(self.pairs.len()).expect("fewer than 2^32 resource names exist"));
        let (allocatable, requested) = (vec![0; self.n_slots], vec![0; self.n_slots]);
        self.pairs.push(Pair { allocatable, requested, irregular: vec![u64::MAX; self.n_slots.div_ceil(64)] });
        self.names.push(Arc::clone(name));
        self.ids.insert(Arc::clone(name), id);
        id
    }

    pub(crate) fn set_allocatable(&mut self, slot: usize, allocatable: &Resources) {
        for pair in &mut self.pairs {
            pair.allocatable[slot] = 0;
        }
        for (id, amount) in fixed(allocatable, allocatable.pods) {
            self.pairs[id.at()].allocatable[slot] = amount;
        }
        for (name, amount) in &allocatable.scalars {
            let id = self.intern(name);
            self.pairs[id.at()].allocatable[slot] = *amount;
        }
        self.note_regularity(slot);
        self.note_pod_room(slot);
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        let [milli_cpu, memory] = [ResourceId::MILLI_CPU, ResourceId::MEMORY].map(|id| self.requested(id)[slot]);
        for pair in &mut self.pairs {
            pair.allocatable[slot] = 0;
            pair.requested[slot] = 0;
        }
        self.non_zero_milli_cpu.set(slot, 0, (milli_cpu, 0));
        self.non_zero_memory.set(slot, 0, (memory, 0));
        self.note_regularity(slot);
        self.note_pod_room(slot);
    }

    /// Of all resources of a slot.
    fn note_regularity(&mut self, slot: usize) {
        for pair in &mut self.pairs {
            pair.note_regularity(slot);
        }
        self.note_non_zero_regularity(slot);
    }

    fn note_non_zero_regularity(&mut self, slot: usize) {
        let allocatable = |id: ResourceId| self.pairs[id.at()].allocatable[slot];
        let (milli_cpu, memory) = (allocatable(ResourceId::MILLI_CPU), allocatable(ResourceId::MEMORY));
        self.non_zero_milli_cpu.note_regularity(slot, milli_cpu);
        self.non_zero_memory.note_regularity(slot, memory);
    }

    fn note_pod_room(&mut self, slot: usize) {
        let [n_pods, max_pods] = [self.requested(ResourceId::PODS)[slot], self.allocatable(ResourceId::PODS)[slot]];
        if n_pods.wrapping_add(1) > max_pods {
            clear_bit(&mut self.has_pod_room, slot);
        } else {
            set_bit(&mut self.has_pod_room, slot);
        }
    }

    pub(crate) fn add_pod(&mut self, slot: usize, pod: &Pod) {
        self.update(slot, pod, i64::wrapping_add);
    }

    pub(crate) fn remove_pod(&mut self, slot: usize, pod: &Pod) {
        self.update(slot, pod, i64::wrapping_sub);
    }

    // Wrapping, so that whatever sizes pods claim, removing a pod undoes adding it.
    fn update(&mut self, slot: usize, pod: &Pod, apply: impl Fn(i64, i64) -> i64) {
        let used = pod.resources.used();
        let requested =
            |columns: &Self| [ResourceId::MILLI_CPU, ResourceId::MEMORY].map(|id| columns.requested(id)[slot]);
        let before = requested(self);
        let add = |pair: &mut Pair, amount| {
            pair.requested[slot] = apply(pair.requested[slot], amount);
            pair.note_regularity(slot);
        };
        for (id, amount) in fixed(used, 1) {
            add(&mut self.pairs[id.at()], amount);
        }
        for (name, amount) in &used.scalars {
            let id = self.intern(name);
            add(&mut self.pairs[id.at()], *amount);
        }
        let now = requested(self);
        let milli_cpu = apply(self.non_zero_milli_cpu.of_slots[slot], pod.resources.used_non_zero_milli_cpu);
        self.non_zero_milli_cpu.set(slot, milli_cpu, (before[0], now[0]));
        let memory = apply(self.non_zero_memory.of_slots[slot], pod.resources.used_non_zero_memory);
        self.non_zero_memory.set(slot, memory, (before[1], now[1]));
        self.note_non_zero_regularity(slot);
        self.note_pod_room(slot);
    }
}

fn fixed(resources: &Resources, pods: i64) -> [(ResourceId, i64); ResourceId::N_FIXED as usize] {
    [
        (ResourceId::MILLI_CPU, resources.milli_cpu),
        (ResourceId::MEMORY, resources.memory),
        (ResourceId::EPHEMERAL_STORAGE, resources.ephemeral_storage),
        (ResourceId::PODS, pods),
    ]
}
