//! Counts of amounts in buckets that grow with the amount: quantiles within two percent, in constant memory.

/// Buckets per doubling.
const STEPS: u64 = 64;

/// Amounts of any number, by bucket. Sum, least and most are exact.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    n: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    /// Counts one amount.
    pub(crate) fn add(&mut self, amount: u64) {
        let at = bucket(amount);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.n += 1;
        self.sum += u128::from(amount);
        self.max = self.max.max(amount);
    }

    /// The mean; zero of nothing.
    pub(crate) fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum as f64 / self.n as f64 }
    }

    /// The largest amount.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The least amount that at least the share `q` of all does not exceed, rounded up by two percent at most.
    pub(crate) fn quantile(&self, q: f64) -> u64 {
        let wanted = ((self.n as f64 * q).ceil() as u64).clamp(1, self.n.max(1));
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return last_of(at as u64).min(self.max);
            }
        }
        0
    }

    /// How many amounts lie above `low` and not above `high`, both widened to their buckets' ends.
    pub(crate) fn between(&self, low: Option<u64>, high: u64) -> u64 {
        let from = low.map_or(0, |low| bucket(low) + 1);
        let to = (bucket(high) + 1).min(self.counts.len());
        self.counts.get(from..to).map_or(0, |counts| counts.iter().sum())
    }
}

fn bucket(amount: u64) -> usize {
    let doublings = u64::from(amount.max(1).ilog2()).saturating_sub(u64::from(STEPS.ilog2()));
    (doublings * STEPS + (amount >> doublings)) as usize
}

/// The largest amount of a bucket.
fn last_of(at: u64) -> u64 {
    let doublings = (at / STEPS).saturating_sub(1);
    let head = at - doublings * STEPS;
    ((u128::from(head + 1) << doublings) - 1).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_amount_lies_within_its_bucket() {
        for amount in (0..4096).chain([1 << 20, (1 << 40) + 12345, u64::MAX]) {
            let last = last_of(bucket(amount) as u64);
            assert!(last >= amount && last - amount <= amount / STEPS, "{amount}: {last}");
            assert!(bucket(amount) == 0 || last_of(bucket(amount) as u64 - 1) < amount, "{amount}");
        }
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.max()), (0, 0));
        (1..=100).for_each(|amount| histogram.add(amount));
        assert_eq!(histogram.quantile(0.5), 50);
        assert_eq!(histogram.quantile(0.99), 99);
        assert_eq!((histogram.max(), histogram.mean()), (100, 50.5));
        assert_eq!(histogram.between(None, 10), 10);
        assert_eq!(histogram.between(Some(10), 20), 10);
        assert_eq!(histogram.between(Some(100), 1 << 40), 0);
    }
}
