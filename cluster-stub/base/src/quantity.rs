//! Quantities: parsing, comparing and the canonical text. Keeps the format class of the text, as upstream does.

use std::cmp::Ordering;

/// The error of a text that is no quantity; its text is what clients see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text has no number in front.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is none of the known ones.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// How a quantity is written. Upstream: `resource.Format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `500m`, `2`, `1G`.
    DecimalSi,
    /// `1Ki`, `1536Mi`.
    BinarySi,
    /// `1e3`, `100e-3`.
    DecimalExponent,
}

/// A fixed-point number and how it is written. The number is counted in nano units (10⁻⁹); finer parts are rounded up, and
/// values beyond 2⁶³-1 are capped, as upstream does.
///
/// Upstream: apimachinery v1.36.2 `pkg/api/resource/quantity.go`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

const NANO: i128 = 1_000_000_000;
const MAX: i128 = i64::MAX as i128 * NANO;

impl Quantity {
    /// Zero, written `0`.
    pub const ZERO: Quantity = Quantity { nano: 0, format: Format::DecimalSi };

    /// A whole number in the decimal format.
    pub const fn of(value: i64) -> Quantity {
        Quantity { nano: value as i128 * NANO, format: Format::DecimalSi }
    }

    /// Thousandths in the decimal format.
    pub const fn of_milli(value: i64) -> Quantity {
        Quantity { nano: value as i128 * 1_000_000, format: Format::DecimalSi }
    }

    /// Reads a text such as `100m`, `1.5Gi`, `1e3`.
    ///
    /// # Errors
    /// [`QuantityError`] when the text is no quantity.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let parts = Parts::of(text)?;
        let magnitude = parts.nano();
        let small = parts.format == Format::BinarySi && (1..NANO).contains(&magnitude);
        let format = if small { Format::DecimalSi } else { parts.format };
        Ok(Quantity { nano: if parts.negative { -magnitude } else { magnitude }, format })
    }

    /// The text under which a quantity is stored: texts in canonical form stay as they are, others become the canonical one.
    ///
    /// # Errors
    /// [`QuantityError`] when the text is no quantity.
    pub fn canonical(text: &str) -> Result<String, QuantityError> {
        if Parts::of(text)?.is_canonical() { Ok(text.to_owned()) } else { Ok(Quantity::parse(text)?.to_string()) }
    }

    /// The stored text rounded up to thousandths, as resource lists are. Upstream: `SetDefaults_ResourceList`.
    ///
    /// # Errors
    /// [`QuantityError`] when the text is no quantity.
    pub fn canonical_milli(text: &str) -> Result<String, QuantityError> {
        let quantity = Quantity::parse(text)?;
        if quantity.nano % 1_000_000 == 0 {
            return Quantity::canonical(text);
        }
        let milli = quantity.nano / 1_000_000 + quantity.nano.signum();
        Ok(Quantity { nano: milli * 1_000_000, format: quantity.format }.to_string())
    }

    /// The number in whole units, rounded up.
    pub fn value(self) -> i64 {
        clamp(self.nano.div_euclid(NANO) + i128::from(self.nano.rem_euclid(NANO) != 0))
    }

    /// The number in thousandths, rounded up.
    pub fn milli_value(self) -> i64 {
        clamp(self.nano.div_euclid(1_000_000) + i128::from(self.nano.rem_euclid(1_000_000) != 0))
    }

    /// -1, 0 or 1.
    pub fn sign(self) -> i32 {
        self.nano.signum() as i32
    }

    /// Whether the number is whole.
    pub fn is_whole(self) -> bool {
        self.nano % NANO == 0
    }

    /// The format.
    pub fn format(self) -> Format {
        self.format
    }

    /// The sum, in the format of this quantity (of the other one when this is zero).
    #[must_use]
    pub fn plus(self, other: Quantity) -> Quantity {
        let format = if self.nano == 0 { other.format } else { self.format };
        Quantity { nano: self.nano + other.nano, format }
    }

    /// The difference, in the format of this quantity (of the other one when this is zero).
    #[must_use]
    pub fn minus(self, other: Quantity) -> Quantity {
        let format = if self.nano == 0 { other.format } else { self.format };
        Quantity { nano: self.nano - other.nano, format }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nano == 0 {
            return out.write_str("0");
        }
        match self.format {
            Format::BinarySi if self.nano.abs() >= 1024 * NANO && self.nano % NANO == 0 => {
                let mut number = self.nano / NANO;
                let mut step = 0;
                while number % 1024 == 0 && step < BINARY.len() - 1 {
                    number /= 1024;
                    step += 1;
                }
                write!(out, "{number}{}", BINARY[step])
            }
            format => {
                let mut number = self.nano;
                let mut exponent = -9;
                while number % 1000 == 0 && exponent < 18 {
                    number /= 1000;
                    exponent += 3;
                }
                match format {
                    Format::DecimalExponent if exponent == 0 => write!(out, "{number}"),
                    Format::DecimalExponent => write!(out, "{number}e{exponent}"),
                    _ => write!(out, "{number}{}", decimal_suffix(exponent)),
                }
            }
        }
    }
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn decimal_suffix(exponent: i32) -> &'static str {
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    }
}

/// A text taken apart: digits before and behind the point without leading zeros, and what the suffix says.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    /// Ten for decimal suffixes, two for binary ones.
    base: u32,
    exponent: i32,
    format: Format,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Parts<'a>, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let trimmed = unsigned.trim_start_matches('0');
        let (whole, rest) = split_digits(trimmed);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let behind_letters = suffix.trim_start_matches(|letter| "eEinumkKMGTP".contains(letter));
        let digits = behind_letters.strip_prefix(['-', '+']).unwrap_or(behind_letters);
        if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let (base, exponent, format) = read_suffix(suffix).ok_or(QuantityError::Suffix)?;
        Ok(Parts { negative: text.starts_with('-'), whole, fraction, base, exponent, format })
    }

    /// Whether upstream keeps the text as it is.
    fn is_canonical(&self) -> bool {
        let digits = i32::try_from(self.whole.len() + self.fraction.len()).unwrap_or(i32::MAX);
        if self.format == Format::BinarySi {
            // Fast path of upstream: whole numbers of limited size that eight does not divide.
            let room = 15 - digits - self.exponent * 3 / 10 - 1;
            let last = self.whole.parse::<u64>().unwrap_or(0);
            return self.fraction.is_empty() && room >= 0 && last & 7 != 0;
        }
        let scale = self.exponent - i32::try_from(self.fraction.len()).unwrap_or(i32::MAX);
        let ends_in_thousand = if self.fraction.is_empty() { self.whole } else { self.fraction }.ends_with("000");
        digits <= 18 && !self.whole.is_empty() && scale >= -9 && scale % 3 == 0 && !ends_in_thousand
    }

    /// The magnitude in nano units, rounded up and capped.
    fn nano(&self) -> i128 {
        let mut digits: Vec<u8> = self.whole.bytes().chain(self.fraction.bytes()).map(|digit| digit - b'0').collect();
        // The number is digits × 10^-places × factor, in nano units.
        let mut places = i64::try_from(self.fraction.len()).unwrap_or(i64::MAX) - 9;
        let mut factor = 1i128;
        if self.base == 10 {
            places -= i64::from(self.exponent);
        } else {
            factor <<= self.exponent;
        }
        if digits.iter().all(|digit| *digit == 0) {
            return 0;
        }
        while places < 0 && digits.len() < 60 {
            digits.push(0);
            places += 1;
        }
        let mut rest = false;
        while places > 0 && (digits.len() > 19 || factor == 1) && !digits.is_empty() {
            rest |= digits.pop().is_some_and(|digit| digit != 0);
            places -= 1;
        }
        let number = digits
            .iter()
            .try_fold(0i128, |sum, digit| sum.checked_mul(10)?.checked_add(i128::from(*digit)))
            .and_then(|number| number.checked_mul(factor));
        let Some(mut number) = number else { return MAX };
        while places > 0 && number > 0 {
            rest |= number % 10 != 0;
            number /= 10;
            places -= 1;
        }
        let number = number + i128::from(rest);
        if self.format == Format::BinarySi { number.min(MAX) } else { number }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Base, exponent and format of a suffix.
fn read_suffix(suffix: &str) -> Option<(u32, i32, Format)> {
    let decimal = |exponent| Some((10, exponent, Format::DecimalSi));
    let binary = |exponent| Some((2, exponent, Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
            Some((10, exponent, Format::DecimalExponent))
        }
    }
}

fn clamp(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_text_keeps_the_format_class() {
        let cases = [
            ("0", "0"),
            ("0.0", "0"),
            ("1", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("1Ki", "1Ki"),
            ("0.5Mi", "512Ki"),
            ("0.5Ki", "512"),
            ("1e-1", "100e-3"),
            ("4e0", "4e0"),
            ("129e6", "129e6"),
            ("1e4", "10e3"),
            ("134217728000m", "134217728"),
            ("1000m", "1"),
            ("2000", "2k"),
            ("1500", "1500"),
            ("-1", "-1"),
            ("1.50", "1500m"),
            ("16Ei", "9223372036854775807"),
            ("100E", "100E"),
            ("0.1n", "1n"),
            ("123456789123456789123456789n", "123456789123456789123456789n"),
        ];
        for (text, want) in cases {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn resource_lists_round_up_to_thousandths() {
        for (text, want) in [("100u", "1m"), ("0.0015", "2m"), ("1", "1"), ("4e0", "4e0"), ("1500m", "1500m")] {
            assert_eq!(Quantity::canonical_milli(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn malformed_texts_are_refused() {
        for text in ["", "abc", "1 Gi", "1.2.3", "1,5", "100Q"] {
            assert_eq!(Quantity::parse(text), Err(QuantityError::Format), "{text}");
        }
        for text in ["1Mm", "1e", "1Kii", "1mi"] {
            assert_eq!(Quantity::parse(text), Err(QuantityError::Suffix), "{text}");
        }
    }

    #[test]
    fn values_round_up() {
        let quantity = Quantity::parse("1500m").expect("a quantity");
        assert_eq!((quantity.value(), quantity.milli_value(), quantity.is_whole()), (2, 1500, false));
        assert_eq!(Quantity::parse("-1500m").expect("a quantity").value(), -1);
        assert!(Quantity::parse("1Gi").expect("a quantity") > Quantity::parse("1G").expect("a quantity"));
    }

    proptest::proptest! {
        #[test]
        fn canonical_text_reads_as_the_same_number(number in 0u64..1 << 50, suffix in "(n|u|m|k|M|Ki|Mi|e3|e-3)?") {
            let text = format!("{number}{suffix}");
            let stored = Quantity::canonical(&text).expect("a well-formed text");
            proptest::prop_assert_eq!(Quantity::parse(&stored), Quantity::parse(&text));
        }
    }
}
