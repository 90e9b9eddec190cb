//! Integer arithmetic in float64, which has vectors for everything: division, and ways to and from integers.
//!
//! Integers below 2^52 are exact. The quotient of two of them, correctly rounded, never reaches the next integer from
//! below: `a/b` is at least `1/b` away from it, more than half a unit in the last place. So its floor is the integer
//! quotient. (`f64::floor` is one instruction wherever there are vectors worth having.)

/// Amounts below this stay exact times 100.
pub(crate) const LIMIT: i64 = 1 << 45;

const TWO_TO_52: f64 = 4_503_599_627_370_496.0;

/// An integer from 0 to below 2^52: the bits of 2^52 with the integer as fraction, less 2^52.
#[inline(always)]
pub(crate) fn float(integer: i64) -> f64 {
    f64::from_bits(integer.cast_unsigned() | TWO_TO_52.to_bits()) - TWO_TO_52
}

/// An integer from -2^51 to below 2^51.
#[inline(always)]
pub(crate) fn signed_float(integer: i64) -> f64 {
    const MIDDLE: f64 = 1.5 * TWO_TO_52;
    f64::from_bits(integer.wrapping_add(MIDDLE.to_bits().cast_signed()).cast_unsigned()) - MIDDLE
}

/// The way back, for a whole number.
#[inline(always)]
pub(crate) fn integer(whole: f64) -> i64 {
    ((whole + TWO_TO_52).to_bits() ^ TWO_TO_52.to_bits()).cast_signed()
}

/// The nearest whole number, halves to the even one, of a number from 0 to 2^51.
#[inline(always)]
pub(crate) fn nearest(x: f64) -> f64 {
    (x + TWO_TO_52) - TWO_TO_52
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quotients_are_those_of_integers(a in 0_i64..1 << 51, b in 1_i64..1 << 51, shift in 0_u32..51, near in -1_i64..=1) {
            let b = (b >> shift).max(1);
            prop_assert_eq!(integer((float(a) / float(b)).floor()), a / b);
            let multiple = (a / b * b + near).max(0);
            prop_assert_eq!(integer((float(multiple) / float(b)).floor()), multiple / b);
        }

        #[test]
        fn integers_of_both_signs_are_exact(a in -(1_i64 << 51)..1 << 51, shift in 0_u32..51) {
            #[expect(clippy::cast_precision_loss, reason = "below 2^52 there is none")]
            let float = (a >> shift) as f64;
            prop_assert_eq!(signed_float(a >> shift), float);
        }
    }
}
