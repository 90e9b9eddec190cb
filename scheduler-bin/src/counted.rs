//! Numbers with their noun, for people: one pod, two pods.

use std::fmt::Display;

/// `1 pod`, `0 pods`, `2 pods`: an `s` is added, which suits every noun that is used.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(n: N, noun: &str) -> String {
    let plural = if n == N::from(1) { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_alone() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "pod")), ["0 pods", "1 pod", "2 pods"]);
        assert_eq!(counted(1_u64, "more pod"), "1 more pod");
    }
}
