//! Sets of completion indexes in their text form: `0,2-4,7`. Pure.

use std::collections::BTreeSet;

/// Parses a set; indexes of `completions` and above, and whatever is no index, are left out.
/// Upstream: job/indexed_job_utils.go v1.36.2 `parseIndexesFromString`.
pub(super) fn parse(text: &str, completions: i32) -> BTreeSet<i32> {
    let mut set = BTreeSet::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<i32>(), to.parse::<i32>()) {
            set.extend((from..=to.min(completions.saturating_sub(1))).filter(|index| *index >= 0));
        }
    }
    set
}

/// The text of a set; three or more neighbours become a range, two stay two.
/// Upstream: job/indexed_job_utils.go v1.36.2 `orderedIntervals.String`.
pub(super) fn format(set: &BTreeSet<i32>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut indexes = set.iter().copied().peekable();
    while let Some(first) = indexes.next() {
        let mut last = first;
        while indexes.peek() == Some(&(last + 1)) {
            last += 1;
            indexes.next();
        }
        parts.push(match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        });
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_survive_their_text_form() {
        for (text, completions, want) in
            [("", 5, ""), ("0,2-4,7", 9, "0,2-4,7"), ("1,2", 9, "1,2"), ("3-9", 5, "3,4"), ("x,1,-3", 9, "1")]
        {
            assert_eq!(format(&parse(text, completions)), want, "{text}");
        }
    }
}
