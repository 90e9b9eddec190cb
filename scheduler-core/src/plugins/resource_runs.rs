//! The formulas of `resource_allocation` for runs of neighbouring slots and two resources, as loops that vectorise. Only
//! speed: the scalar formulas are the specification, and a property test holds the two equal.
//!
//! Everything is computed in float64, see `exact`; amounts below 2^45 stay exact times 100.

use crate::cache::Lanes;
use crate::cache::exact::{float, floor, integer};

/// The longest run, in slots.
pub(super) const MAX_RUN: usize = 512;

/// Amounts at or above this are left to the scalar formulas.
pub(super) const EXACT: i64 = 1 << 45;

/// One resource over a run of slots.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) allocatable: &'a [i64],
    pub(super) usage: &'a [i64],
    /// What the pod adds, at least 0 and below [`EXACT`].
    pub(super) request: i64,
    /// At least 1 and below 2^20.
    pub(super) weight: f64,
}

/// LeastAllocated or MostAllocated: the weighted mean of two percentages. The output is false if an amount is too large.
pub(super) struct PercentOfTwo<'a, 'o> {
    pub(super) runs: [Run<'a>; 2],
    /// Of what is left, instead of what is taken.
    pub(super) least: bool,
    pub(super) out: &'o mut [i64],
}

impl Lanes for PercentOfTwo<'_, '_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let n = self.out.len();
        let [a, b] = self.runs;
        let (a_whole, a_usage) = (&a.allocatable[..n], &a.usage[..n]);
        let (b_whole, b_usage) = (&b.allocatable[..n], &b.usage[..n]);
        let (out, least) = (&mut self.out[..n], self.least);
        let (mut all_bits, mut any_zero) = (0, false);
        let share = 1.0 / (a.weight + b.weight);
        for at in 0..n {
            let (a_with, b_with) = (a_usage[at].wrapping_add(a.request), b_usage[at].wrapping_add(b.request));
            all_bits |= a_whole[at] | a_with | b_whole[at] | b_with;
            any_zero |= (a_whole[at] == 0) | (b_whole[at] == 0);
            let a_percent = percent(a_whole[at], a_with, least);
            let b_percent = percent(b_whole[at], b_with, least);
            out[at] = integer(mean(a_percent * a.weight + b_percent * b.weight, share));
        }
        if any_zero {
            without_a_resource(self.runs, least, out);
        }
        is_exact(all_bits)
    }
}

/// A resource that a node does not have leaves the mean.
#[cold]
fn without_a_resource(runs: [Run<'_>; 2], least: bool, out: &mut [i64]) {
    let [a, b] = runs;
    for (at, out) in out.iter_mut().enumerate() {
        let of = |run: Run<'_>| integer(percent(run.allocatable[at], run.usage[at].wrapping_add(run.request), least));
        match (a.allocatable[at], b.allocatable[at]) {
            (0, 0) => *out = 0,
            (0, _) => *out = of(b),
            (_, 0) => *out = of(a),
            _ => {}
        }
    }
}

/// The whole part of a sum of weighted percentages, divided: by multiplying with `1 / weights`. The sum is an integer below
/// 2^28 and the weights are below 2^21: half a unit more keeps the quotient at least 2^-22 away from any integer, and the
/// two roundings are far smaller than that.
#[inline(always)]
fn mean(sum: f64, share: f64) -> f64 {
    floor((sum + 0.5) * share)
}

/// Nothing was negative, and nothing too large.
#[inline(always)]
fn is_exact(all_bits: i64) -> bool {
    (0..EXACT).contains(&all_bits)
}

#[inline(always)]
fn percent(whole: i64, taken: i64, least: bool) -> f64 {
    let part = if least { whole.wrapping_sub(taken).max(0) } else { taken.min(whole) };
    floor(float(part) * 100.0 / float(whole))
}

/// Balanced: how much more even the use of two resources is with the pod. The output is false if an amount is too large.
pub(super) struct BalanceOfTwo<'a, 'o> {
    pub(super) runs: [Run<'a>; 2],
    /// How even it is without, if that is known: 0 to 100.
    pub(super) without_pod: Option<&'a [u8]>,
    pub(super) out: &'o mut [i64],
}

impl Lanes for BalanceOfTwo<'_, '_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let n = self.out.len();
        let [a, b] = self.runs;
        let (a_whole, a_usage) = (&a.allocatable[..n], &a.usage[..n]);
        let (b_whole, b_usage) = (&b.allocatable[..n], &b.usage[..n]);
        let out = &mut self.out[..n];
        let mut all_bits = 0;
        if let Some(without_pod) = self.without_pod {
            let without_pod = &without_pod[..n];
            for at in 0..n {
                let (a_with, b_with) = (a_usage[at].wrapping_add(a.request), b_usage[at].wrapping_add(b.request));
                all_bits |= a_whole[at] | a_usage[at] | a_with | b_whole[at] | b_usage[at] | b_with;
                let with_pod = balance(float(a_with) / float(a_whole[at]), float(b_with) / float(b_whole[at]));
                out[at] = score(has_both(a_whole[at], b_whole[at]), with_pod, f64::from(without_pod[at]));
            }
            return is_exact(all_bits);
        }
        for at in 0..n {
            let (a_with, b_with) = (a_usage[at].wrapping_add(a.request), b_usage[at].wrapping_add(b.request));
            all_bits |= a_whole[at] | a_usage[at] | a_with | b_whole[at] | b_usage[at] | b_with;
            let (of_a, of_b) = (float(a_whole[at]), float(b_whole[at]));
            let with_pod = balance(float(a_with) / of_a, float(b_with) / of_b);
            let without_pod = balance(float(a_usage[at]) / of_a, float(b_usage[at]) / of_b);
            out[at] = score(has_both(a_whole[at], b_whole[at]), with_pod, without_pod);
        }
        is_exact(all_bits)
    }
}

/// 1 if the node has both resources, else 0.
#[inline(always)]
fn has_both(a_whole: i64, b_whole: i64) -> f64 {
    float(i64::from((a_whole != 0) & (b_whole != 0)))
}

/// One resource alone is always even. Said by a factor: behind a condition the loads would have to be conditional, too,
/// and the loop would not vectorise.
#[inline(always)]
fn score(has_both: f64, with_pod: f64, without_pod: f64) -> i64 {
    integer(50.0 + floor((50.0 + has_both * (with_pod - without_pod)) * 0.5))
}

#[inline(always)]
fn balance(a: f64, b: f64) -> f64 {
    let (a, b) = (if a < 1.0 { a } else { 1.0 }, if b < 1.0 { b } else { 1.0 });
    floor((1.0 - ((a - b) * 0.5).abs()) * 100.0)
}
