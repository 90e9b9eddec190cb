use proptest::prelude::*;

use super::*;

const N_SLOTS: usize = 70 * LANES;

fn set(groups: &mut Groups, all: &[Option<(i64, i32)>], word: usize) {
    let rows: Vec<(NodeIdx, [i64; 1], i32)> = (word * LANES..(word + 1) * LANES)
        .filter_map(|slot| all[slot].map(|(key, rest)| (NodeIdx::from_slot(slot), [key], rest)))
        .collect();
    let rows = rows.iter().map(|(node, key, rest)| (*node, &key[..], *rest));
    groups.set_slots(word, u64::MAX, rows).expect("few groups");
}

proptest! {
    #[test]
    fn groups_know_their_best_nodes_after_any_changes(
        changes in prop::collection::vec((0..N_SLOTS, prop::option::of((0_i64..3, 0_i32..4))), 1..80),
        one_by_one in any::<bool>(),
    ) {
        let mut all: Vec<Option<(i64, i32)>> =
            (0..N_SLOTS).map(|slot| (slot % 7 != 0).then_some((1, i32::try_from(slot % 3).unwrap_or(0)))).collect();
        let mut groups = Groups::new(N_SLOTS);
        (0..N_SLOTS / LANES).for_each(|word| set(&mut groups, &all, word));
        groups.settle();
        for (slot, row) in changes {
            all[slot] = row;
            let (node, alone) = (NodeIdx::from_slot(slot), 1 << (slot % LANES));
            let row = row.map(|(key, rest)| ([key], rest));
            if one_by_one {
                groups.set_node(node, row.as_ref().map(|(key, rest)| (&key[..], *rest))).expect("few groups");
            } else {
                let row = row.iter().map(|(key, rest)| (node, &key[..], *rest));
                groups.set_slots(slot / LANES, alone, row).expect("few groups");
                groups.settle();
            }
        }
        let ids: Vec<GroupId> = groups.iter().collect();
        let mut tied = Vec::new();
        for &id in &ids {
            let key = groups.key(id)[0];
            let members: Vec<usize> = (0..N_SLOTS).filter(|slot| all[*slot].is_some_and(|row| row.0 == key)).collect();
            let highest = members.iter().filter_map(|slot| all[*slot]).map(|row| row.1).max();
            prop_assert_eq!(Some(groups.head(id).rest), highest);
            prop_assert_eq!(groups.n_nodes(id), members.len());
            prop_assert!(members.contains(&groups.representative(id).slot()));
            let best: Vec<usize> = members.into_iter().filter(|slot| all[*slot].map(|row| row.1) == highest).collect();
            prop_assert_eq!(groups.head(id).n_ties as usize, best.len());
            tied.extend(best);
        }
        tied.sort_unstable();
        prop_assert_eq!(ids.iter().map(|id| groups.n_nodes(*id)).sum::<usize>(), all.iter().flatten().count());
        for (rank, slot) in tied.iter().enumerate() {
            prop_assert_eq!(groups.tie(&ids, u32::try_from(rank).unwrap_or(0)).slot(), *slot);
        }
        for &id in &ids {
            let of_group = |rank| groups.tie(&[id], rank).slot();
            let best: Vec<usize> = (0..groups.head(id).n_ties).map(of_group).collect();
            prop_assert!(best.is_sorted() && best.iter().all(|slot| tied.contains(slot)));
        }
    }
}

#[test]
fn a_group_without_a_key_goes_and_comes_back_as_any_other() {
    let mut groups = Groups::new(LANES);
    let node = NodeIdx::from_slot(3);
    for _ in 0..3 {
        let n_comings = groups.n_comings();
        groups.set_node(node, Some((&[], 7))).expect("few groups");
        assert_eq!(groups.iter().map(|id| groups.n_nodes(id)).collect::<Vec<_>>(), [1]);
        assert!(groups.free.is_empty());
        groups.set_node(node, None).expect("few groups");
        assert_eq!((groups.iter().count(), groups.free.len()), (0, 1));
        assert_eq!(groups.n_comings(), n_comings + 2);
    }
}

#[test]
fn the_number_of_groups_is_bounded() {
    let mut groups = Groups::new(8 * LANES);
    let mut result = Ok(());
    for word in 0..8 {
        let rows: Vec<_> = (word * LANES..(word + 1) * LANES).map(|slot| (slot, [slot as i64])).collect();
        let nodes = rows.iter().map(|(slot, key)| (NodeIdx::from_slot(*slot), &key[..], 0));
        result = result.and(groups.set_slots(word, u64::MAX, nodes));
    }
    assert!(result.is_err());
}
