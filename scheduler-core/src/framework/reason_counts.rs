//! How often each reason was given: what a message about many nodes is made of.

use std::borrow::Cow;
use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::Reason;

/// Reasons with the number of times that they were given.
#[derive(Debug, Clone, Default)]
pub struct ReasonCounts {
    /// Texts of the program, told apart by where they are: nearly all reasons, and no text is looked at to count one more.
    fixed: SmallVec<[(&'static str, usize); Self::MAX_FIXED]>,
    others: BTreeMap<Reason, usize>,
}

impl ReasonCounts {
    /// So many are looked through one by one.
    const MAX_FIXED: usize = 8;

    /// Counts a reason `n` times more.
    pub fn add(&mut self, reason: &Reason, n: usize) {
        if n == 0 {
            return;
        }
        if let Cow::Borrowed(text) = reason {
            if let Some((_, count)) = self.fixed.iter_mut().find(|(known, _)| std::ptr::eq(*known, *text)) {
                *count += n;
                return;
            }
            if self.fixed.len() < Self::MAX_FIXED {
                self.fixed.push((text, n));
                return;
            }
        }
        match self.others.get_mut(&**reason) {
            Some(count) => *count += n,
            None => {
                self.others.insert(reason.clone(), n);
            }
        }
    }

    /// Each text once, in their order.
    #[must_use]
    pub fn by_text(&self) -> BTreeMap<&str, usize> {
        let fixed = self.fixed.iter().map(|(text, count)| (*text, *count));
        let mut counts = BTreeMap::new();
        for (text, count) in fixed.chain(self.others.iter().map(|(text, count)| (&**text, *count))) {
            *counts.entry(text).or_default() += count;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_counted_once_wherever_it_is() {
        const MANY: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let mut counts = ReasonCounts::default();
        for text in MANY {
            counts.add(&text.into(), 1);
            counts.add(&text.to_owned().into(), 2);
            counts.add(&text.into(), 3);
        }
        counts.add(&"m".into(), 0);
        assert_eq!(counts.by_text(), MANY.into_iter().map(|text| (text, 6)).collect());
    }
}
