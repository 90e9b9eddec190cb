//! Texts, maps and times of API objects, borrowed from where they stand.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::model::Timestamp;

/// A value that may be `null`, which is its zero value then.
pub(in crate::convert) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A text; it is copied only if it is written with escapes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::convert) struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&Text<'_>> for Arc<str> {
    fn from(text: &Text<'_>) -> Self {
        Arc::from(&*text.0)
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_none<E: Error>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }

            fn visit_unit<E: Error>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text<'de>, D::Error> {
                deserializer.deserialize_str(self)
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }

        deserializer.deserialize_option(TextVisitor)
    }
}

/// Members of an object with texts as values, in the order in which they stand.
#[derive(Debug, Default)]
pub(in crate::convert) struct Map<'a>(pub(super) Vec<(Text<'a>, Text<'a>)>);

impl<'a> Map<'a> {
    /// The members.
    pub(in crate::convert) fn iter(&self) -> impl Iterator<Item = (&Text<'a>, &Text<'a>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The last value of `key`.
    pub(in crate::convert) fn get(&self, key: &str) -> Option<&Text<'a>> {
        self.0.iter().rev().find(|(other, _)| &**other == key).map(|(_, value)| value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Map<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Map<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Map<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = members.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Map(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor)
    }
}

/// Names of the members of an object, whatever their values.
#[derive(Debug, Default)]
pub(in crate::convert) struct Keys<'a>(pub(in crate::convert) Vec<Text<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Keys<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeysVisitor;

        impl<'de> Visitor<'de> for KeysVisitor {
            type Value = Keys<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Keys<'de>, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = members.next_entry()? {
                    keys.push(key);
                }
                Ok(Keys(keys))
            }
        }

        deserializer.deserialize_map(KeysVisitor)
    }
}

/// A member of which only matters that it is there.
#[derive(Debug, Default)]
pub(in crate::convert) struct Present;

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|IgnoredAny| Self)
    }
}

/// A point in time, RFC 3339.
#[derive(Debug, Clone, Copy)]
pub(in crate::convert) struct Time(pub(in crate::convert) Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        match whole_seconds(text.as_bytes()) {
            Some(seconds) => Ok(Self(Timestamp::from_secs(seconds))),
            None => {
                let time: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
                Ok(Self(Timestamp::from_micros(time.as_microsecond())))
            }
        }
    }
}

/// Seconds since the epoch of `2006-01-02T15:04:05Z`, the form in which the API server writes times; `None` for any other form.
fn whole_seconds(text: &[u8]) -> Option<i64> {
    let &[y3, y2, y1, y0, b'-', m1, m0, b'-', d1, d0, b'T', h1, h0, b':', n1, n0, b':', s1, s0, b'Z'] = text else {
        return None;
    };
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(&[y3, y2, y1, y0])?, number(&[m1, m0])?, number(&[d1, d0])?);
    let (hour, minute, second) = (number(&[h1, h0])?, number(&[n1, n0])?, number(&[s1, s0])?);
    // Month ends and leap seconds are left to the calendar's library.
    if !(1970..=9998).contains(&year) || !(1..=12).contains(&month) || !(1..=28).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Years begin in March here, so that the leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn null_and_absent_are_the_same() {
        let texts: Vec<Text<'_>> = serde_json::from_str(r#"[null, "", "a", "\u00e9"]"#).expect("texts");
        assert_eq!(texts, ["".into(), "".into(), "a".into(), Text::from("é")]);
        assert!(serde_json::from_str::<Text<'_>>("1").is_err());
        assert!(serde_json::from_str::<Option<Map<'_>>>("null").expect("a map or nothing").is_none());
    }

    #[test]
    fn unusual_times_are_read_and_others_refused() {
        for (text, micros) in [
            ("\"2026-01-31T00:00:00Z\"", 1_769_817_600_000_000),
            ("\"2026-01-31T01:00:00.5+01:00\"", 1_769_817_600_500_000),
            ("\"1969-12-31T23:59:59Z\"", -1_000_000),
        ] {
            let Time(time) = serde_json::from_str(text).expect("a time");
            assert_eq!(time, Timestamp::from_micros(micros), "{text}");
        }
        for text in ["\"\"", "\"2026-13-01T00:00:00Z\"", "\"yesterday\""] {
            assert!(serde_json::from_str::<Time>(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whole_seconds_are_those_of_the_calendar(seconds in 0_i64..253_000_000_000) {
            let text = jiff::Timestamp::from_second(seconds).expect("in range").to_string();
            if let Some(got) = whole_seconds(text.as_bytes()) {
                prop_assert_eq!(got, seconds);
            } else {
                let day: u8 = text[8..10].parse().expect("a day");
                prop_assert!(day > 28, "{}", text);
            }
        }
    }
}
