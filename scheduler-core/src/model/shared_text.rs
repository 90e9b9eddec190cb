//! Texts that many objects have in common, such as label keys, kept once.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

/// Texts that a thread remembers: two with the same place push each other out, so that memory stays bounded.
const N_REMEMBERED: usize = 1_024;

/// Longer texts are seldom the same.
const LONGEST: usize = 128;

thread_local! {
    static REMEMBERED: RefCell<Vec<Arc<str>>> = RefCell::new(vec![Arc::default(); N_REMEMBERED]);
}

/// The text, and the same one again as long as this thread remembers it. For texts that objects have in common: 100 000
/// nodes need not have 100 000 copies of the key `kubernetes.io/hostname`. Only memory: equal texts are equal.
///
/// ```
/// use scheduler_core::model::shared_text;
/// use std::sync::Arc;
///
/// assert!(Arc::ptr_eq(&shared_text("disktype"), &shared_text("disktype")));
/// ```
#[must_use]
pub fn shared_text(text: &str) -> Arc<str> {
    if text.len() > LONGEST {
        return text.into();
    }
    let hash = FxBuildHasher.hash_one(text);
    #[expect(clippy::cast_possible_truncation, reason = "the high bits, of which there are few")]
    let at = (hash >> (64 - N_REMEMBERED.ilog2())) as usize;
    REMEMBERED.with_borrow_mut(|remembered| {
        let known = &mut remembered[at];
        if **known != *text {
            *known = text.into();
        }
        Arc::clone(known)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_itself_whatever_came_before() {
        for round in 0..2 {
            for n in 0..5_000 {
                let text = "x".repeat(n % 200) + &n.to_string();
                assert_eq!(*shared_text(&text), *text, "{round}");
            }
        }
    }
}
