//! Resource quantities (`100m`, `1.5Gi`, `2e3`), parsed and rounded exactly as the API machinery does.

use std::fmt;

/// An exact decimal quantity with nano precision. Upstream: apimachinery `resource.Quantity` (v1.36.2).
///
/// Finer fractions round away from zero to the next nano; amounts beyond the range of `i64` units saturate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Quantity {
    nanos: i128,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("quantity {text:?} is malformed: {expected}")]
pub struct QuantityError {
    text: String,
    expected: &'static str,
}

const NANOS: i128 = 1_000_000_000;
const MAX_NANOS: i128 = i64::MAX as i128 * NANOS;

impl Quantity {
    /// No amount at all.
    pub const ZERO: Self = Self { nanos: 0 };

    /// A whole number of units.
    #[must_use]
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS }
    }

    /// A number of thousandths of a unit.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self { nanos: millis as i128 * (NANOS / 1_000) }
    }

    /// Parses upstream's grammar: sign, decimal digits with an optional point, then a binary suffix (`Ki`…`Ei`),
    /// a decimal suffix (`n`, `u`, `m`, `k`…`E`) or a decimal exponent (`e3`, `E-3`).
    ///
    /// # Errors
    /// When the text does not follow the grammar.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let error = |expected| QuantityError { text: text.to_owned(), expected };
        let trimmed = text.trim();
        let (negative, unsigned) = match trimmed.as_bytes().first() {
            Some(b'-') => (true, &trimmed[1..]),
            Some(b'+') => (false, &trimmed[1..]),
            _ => (false, trimmed),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if number.is_empty() || fraction.contains('.') {
            return Err(error("want a decimal number such as 1, 1.5 or .5"));
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(error("want at least one digit"));
        }
        let scale = Scale::parse(suffix)
            .ok_or_else(|| error("want a suffix of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent"))?;
        let nanos = scale.nanos(whole, fraction);
        Ok(Self { nanos: if negative { -nanos } else { nanos } })
    }

    /// Whole units, rounded away from zero upwards. Upstream: `Quantity.Value`.
    #[must_use]
    pub fn value(self) -> i64 {
        clamp(ceil_div(self.nanos, NANOS))
    }

    /// Thousandths of a unit, rounded up. Upstream: `Quantity.MilliValue`.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        clamp(ceil_div(self.nanos, NANOS / 1_000))
    }

    /// Whether the amount is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The sum of two quantities, exact within the range.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos).clamp(-MAX_NANOS, MAX_NANOS) }
    }
}

impl fmt::Display for Quantity {
    /// Plain decimal, not upstream's canonical suffix form: for error texts only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.nanos < 0 { "-" } else { "" };
        let (whole, nanos) = (self.nanos.abs() / NANOS, self.nanos.abs() % NANOS);
        if nanos == 0 {
            return write!(f, "{sign}{whole}");
        }
        write!(f, "{sign}{whole}.{}", format!("{nanos:09}").trim_end_matches('0'))
    }
}

enum Scale {
    /// Times 2 to this power.
    Binary(u32),
    /// Times 10 to this power.
    Decimal(i32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "" => Self::Decimal(0),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                Self::Decimal(exponent.parse().ok()?)
            }
        })
    }

    /// Magnitude of `whole.fraction` in nanos: rounded up, saturating.
    fn nanos(&self, whole: &str, fraction: &str) -> i128 {
        // Digits beyond what i128 holds decide only saturation (leading) or rounding up (trailing).
        let mut mantissa: i128 = 0;
        let mut exponent: i64 = 9;
        let mut inexact = false;
        let (whole_len, digits) = (whole.len(), whole.bytes().chain(fraction.bytes()));
        for (position, digit) in digits.enumerate() {
            let in_fraction = position >= whole_len;
            if mantissa < 1_000_000_000_000_000_000_000 {
                mantissa = mantissa * 10 + i128::from(digit - b'0');
                exponent -= i64::from(in_fraction);
            } else {
                inexact |= digit != b'0';
                exponent += i64::from(!in_fraction);
            }
        }
        if mantissa == 0 {
            return 0;
        }
        match *self {
            Self::Decimal(power) => exponent += i64::from(power),
            Self::Binary(power) => match mantissa.checked_mul(1_i128 << power) {
                Some(product) => mantissa = product,
                None => return MAX_NANOS,
            },
        }
        let scaled = match exponent {
            0.. => u32::try_from(exponent)
                .ok()
                .and_then(|power| 10_i128.checked_pow(power))
                .and_then(|factor| mantissa.checked_mul(factor)),
            _ => {
                let divisor = u32::try_from(-exponent).ok().and_then(|power| 10_i128.checked_pow(power));
                Some(divisor.map_or(1, |divisor| ceil_div(mantissa, divisor)))
            }
        };
        scaled.map_or(MAX_NANOS, |nanos| nanos.saturating_add(i128::from(inexact && exponent <= 0)).min(MAX_NANOS))
    }
}

fn ceil_div(amount: i128, divisor: i128) -> i128 {
    let quotient = amount / divisor;
    if amount % divisor > 0 { quotient + 1 } else { quotient }
}

fn clamp(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_parses_to_its_exact_value() {
        for (text, units, millis) in [
            ("0", 0, 0),
            ("1", 1, 1_000),
            ("+1", 1, 1_000),
            ("-2", -2, -2_000),
            ("100m", 1, 100),
            ("0.1", 1, 100),
            (".5", 1, 500),
            ("5.", 5, 5_000),
            ("1500m", 2, 1_500),
            ("1n", 1, 1),
            ("1u", 1, 1),
            ("0.1m", 1, 1),
            ("1.0001", 2, 1_001),
            ("1Ki", 1_024, 1_024_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("0.5Ki", 512, 512_000),
            ("1k", 1_000, 1_000_000),
            ("1e3", 1_000, 1_000_000),
            ("1E3", 1_000, 1_000_000),
            ("12e-1", 2, 1_200),
            ("1E", 1_000_000_000_000_000_000, i64::MAX),
            ("00012", 12, 12_000),
            ("7Ei", 8_070_450_532_247_928_832, i64::MAX),
            ("8Ei", i64::MAX, i64::MAX),
            ("1e400", i64::MAX, i64::MAX),
            ("1e-400", 1, 1),
            ("0e400", 0, 0),
            ("99999999999999999999999999999999999999999999", i64::MAX, i64::MAX),
        ] {
            let quantity = Quantity::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(quantity.value(), units, "{text}");
            assert_eq!(quantity.milli_value(), millis, "{text}");
        }
    }

    #[test]
    fn malformed_text_is_an_error() {
        for text in ["", " ", "-", ".", "1.2.3", "1K", "Ki", "1ki", "1mi", "abc", "1e", "1 Gi", "--1", "1e3m", "0x10"] {
            assert!(Quantity::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sums_are_exact_before_rounding() {
        let half_milli = Quantity::parse("0.5m").expect("valid");
        assert_eq!(half_milli.milli_value(), 1);
        assert_eq!(half_milli.plus(half_milli).milli_value(), 1);
    }
}
