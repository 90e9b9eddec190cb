//! How columns grow. A vector that doubles would leave up to half of each column unused.

/// Lengthens a column to `n_slots`. When it must move, it gets room for an eighth more: a slot moves less than ten times
/// however many come.
pub(super) fn lengthen<T: Clone>(column: &mut Vec<T>, n_slots: usize, empty: T) {
    let n_more = n_slots.saturating_sub(column.len());
    if n_slots > column.capacity() {
        column.reserve_exact(n_more.max(column.len() / 8));
    }
    column.resize(column.len() + n_more, empty);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_left_and_slots_move_seldom() {
        let mut column = Vec::new();
        let (mut n_moves, mut n_moved) = (0, 0);
        for n_slots in (64..=1 << 20).step_by(64) {
            let (before, capacity) = (column.len(), column.capacity());
            lengthen(&mut column, n_slots, 7_u8);
            if column.capacity() > capacity {
                n_moves += 1;
                n_moved += before;
            }
            assert_eq!((column.len(), column.last()), (n_slots, Some(&7)));
            assert!(column.capacity() <= n_slots + n_slots / 8 + 64, "{} for {n_slots}", column.capacity());
        }
        assert!(n_moves < 100 && n_moved < 10 << 20, "{n_moves} moves of {n_moved} in all");
    }

    #[test]
    fn a_column_that_is_long_enough_stays() {
        let mut column = vec![1, 2, 3];
        lengthen(&mut column, 2, 0);
        assert_eq!(column, [1, 2, 3]);
    }
}
