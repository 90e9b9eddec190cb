//! The formulas of `resource_allocation` for runs of neighbouring slots and two resources, as loops that vectorise. Only
//! speed: the scalar formulas are the specification, and a property test holds the two equal.
//!
//! Everything is computed in float64, see `exact`. What comes out for a slot whose amounts are irregular means nothing.

use crate::cache::Lanes;
use crate::cache::exact::{float, integer, signed_float};

/// The longest run, in slots.
pub(super) const MAX_RUN: usize = 512;

/// One resource over a run of slots.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) allocatable: &'a [i64],
    pub(super) usage: &'a [i64],
    /// What the pod adds, at least 0 and below [`crate::cache::exact::LIMIT`].
    pub(super) request: i64,
    /// At least 1 and below 2^20.
    pub(super) weight: f64,
}

/// LeastAllocated or MostAllocated: the weighted mean of two percentages.
pub(super) struct PercentOfTwo<'a, 'o, const LEAST: bool> {
    pub(super) runs: [Run<'a>; 2],
    pub(super) out: &'o mut [i64],
}

impl<const LEAST: bool> Lanes for PercentOfTwo<'_, '_, LEAST> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let n = self.out.len();
        let [a, b] = self.runs;
        let (a_whole, a_usage) = (&a.allocatable[..n], &a.usage[..n]);
        let (b_whole, b_usage) = (&b.allocatable[..n], &b.usage[..n]);
        let out = &mut self.out[..n];
        let share = 1.0 / (a.weight + b.weight);
        for at in 0..n {
            let a_percent = percent::<LEAST>(a_whole[at], a_usage[at].wrapping_add(a.request));
            let b_percent = percent::<LEAST>(b_whole[at], b_usage[at].wrapping_add(b.request));
            out[at] = integer(mean(a_percent * a.weight + b_percent * b.weight, share));
        }
    }
}

/// The whole part of a sum of weighted percentages, divided: by multiplying with `1 / weights`. The sum is an integer below
/// 2^28 and the weights are below 2^21: half a unit more keeps the quotient at least 2^-22 away from any integer, and the
/// two roundings are far smaller than that.
#[inline(always)]
fn mean(sum: f64, share: f64) -> f64 {
    ((sum + 0.5) * share).floor()
}

/// Of what is left, or of what is taken.
#[inline(always)]
fn percent<const LEAST: bool>(whole: i64, taken: i64) -> f64 {
    let part = if LEAST { largest(signed_float(whole.wrapping_sub(taken)), 0.0) } else { float(taken.min(whole)) };
    (part * 100.0 / float(whole)).floor()
}

/// Balanced: how much more even the use of two resources is with the pod.
pub(super) struct BalanceOfTwo<'a, 'o> {
    pub(super) runs: [Run<'a>; 2],
    /// How even it is without, if that is known: 0 to 100.
    pub(super) without_pod: Option<&'a [u8]>,
    pub(super) out: &'o mut [i64],
}

impl Lanes for BalanceOfTwo<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let n = self.out.len();
        let [a, b] = self.runs;
        let (a_whole, a_usage) = (&a.allocatable[..n], &a.usage[..n]);
        let (b_whole, b_usage) = (&b.allocatable[..n], &b.usage[..n]);
        let out = &mut self.out[..n];
        if let Some(without_pod) = self.without_pod {
            let without_pod = &without_pod[..n];
            for at in 0..n {
                let (a_with, b_with) = (a_usage[at].wrapping_add(a.request), b_usage[at].wrapping_add(b.request));
                let with_pod = balance(float(a_with) / float(a_whole[at]), float(b_with) / float(b_whole[at]));
                out[at] = score(with_pod, f64::from(without_pod[at]));
            }
            return;
        }
        for at in 0..n {
            let (a_with, b_with) = (a_usage[at].wrapping_add(a.request), b_usage[at].wrapping_add(b.request));
            let (of_a, of_b) = (float(a_whole[at]), float(b_whole[at]));
            let with_pod = balance(float(a_with) / of_a, float(b_with) / of_b);
            let without_pod = balance(float(a_usage[at]) / of_a, float(b_usage[at]) / of_b);
            out[at] = score(with_pod, without_pod);
        }
    }
}

#[inline(always)]
fn score(with_pod: f64, without_pod: f64) -> i64 {
    integer(50.0 + ((50.0 + (with_pod - without_pod)) * 0.5).floor())
}

#[inline(always)]
fn balance(a: f64, b: f64) -> f64 {
    ((1.0 - ((smallest(a, 1.0) - smallest(b, 1.0)) * 0.5).abs()) * 100.0).floor()
}

/// As the CPU has it in vectors; `f64::max` looks for NaN, too.
#[inline(always)]
fn largest(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// See [`largest`].
#[inline(always)]
fn smallest(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}
