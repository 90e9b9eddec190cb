//! Numbers that may be given as a percentage.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// `value`, or the percentage of `total` that it names, rounded up or down. An absent value is 0; `None` if the text is no
/// percentage. Upstream: apimachinery v1.36.2 util/intstr `GetScaledValueFromIntOrPercent`.
pub(crate) fn scaled(value: Option<&IntOrString>, total: i32, round_up: bool) -> Option<i32> {
    match value {
        None => Some(0),
        Some(IntOrString::Int(value)) => Some(*value),
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent * i64::from(total);
            let scaled = if round_up {
                product.div_euclid(100) + i64::from(product.rem_euclid(100) != 0)
            } else {
                product.div_euclid(100)
            };
            i32::try_from(scaled).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_the_way_they_are_told() {
        let text = |text: &str| IntOrString::String(text.to_owned());
        for (value, total, up, down) in [
            (Some(text("25%")), 3, Some(1), Some(0)),
            (Some(text("25%")), 4, Some(1), Some(1)),
            (Some(text("100%")), 7, Some(7), Some(7)),
            (Some(text("0%")), 7, Some(0), Some(0)),
            (Some(text("7")), 7, None, None),
            (Some(IntOrString::Int(2)), 7, Some(2), Some(2)),
            (None, 7, Some(0), Some(0)),
        ] {
            assert_eq!(scaled(value.as_ref(), total, true), up, "{value:?} of {total}, up");
            assert_eq!(scaled(value.as_ref(), total, false), down, "{value:?} of {total}, down");
        }
    }
}
