//! ImageLocality: prefers nodes that hold the pod's images. Upstream: plugins/imagelocality (v1.36.2).

use std::borrow::Cow;
use std::hash::Hash;

use smallvec::SmallVec;

use crate::cache::{NodeIdx, NodeView};
use crate::framework::{Cycle, CycleState, MAX_NODE_SCORE, Plugin, Result, Reuse, ScorePlugin, Sharing, Signature};
use crate::model::{Pod, VolumeSource};

/// Below this many bytes an image is not worth considering.
const MIN_THRESHOLD: i64 = 23 * 1024 * 1024;
/// Per container, bytes above this add nothing.
const MAX_CONTAINER_THRESHOLD: i64 = 1000 * 1024 * 1024;

/// Compares images.
#[derive(Debug, Default)]
pub struct ImageLocality;

impl ImageLocality {
    /// Name in configurations.
    pub const NAME: &'static str = "ImageLocality";
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// Scores depend on how many nodes hold an image, and on how many nodes there are.
    fn sign(&self, Cycle { pod, snapshot, .. }: Cycle<'_>, _: &CycleState, signature: &mut Signature) -> Sharing {
        let held = snapshot.images();
        pod.containers.len().hash(signature);
        for (name, state) in images(pod).filter_map(|name| held.get(&name).map(|state| (name, state))) {
            (name, state, snapshot.n_nodes()).hash(signature);
        }
        Sharing::ByNode
    }

    fn looks_at_pods(&self) -> bool {
        false
    }

    fn reuse(&self, _: Cycle<'_>, _: &CycleState) -> Reuse {
        Reuse::Everything
    }
}

/// Every image that the pod mounts or runs, repeated as often as it does.
fn images(pod: &Pod) -> impl Iterator<Item = Cow<'_, str>> {
    let of_containers = pod.containers.iter().map(|container| &*container.image);
    let of_volumes = pod.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Image { reference } => Some(&**reference),
        _ => None,
    });
    of_containers.chain(of_volumes).map(normalized)
}

/// Adds `:latest` to a name without a tag. The registry is left as written.
fn normalized(name: &str) -> Cow<'_, str> {
    let has_tag = match (name.rfind(':'), name.rfind('/')) {
        (Some(colon), Some(slash)) => colon > slash,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if has_tag { Cow::Borrowed(name) } else { Cow::Owned(format!("{name}:latest")) }
}

/// Bytes of an image, less the fewer nodes hold it, so that pods do not crowd on those few.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "upstream computes in float64, too")]
fn scaled(size_bytes: i64, n_holders: usize, n_nodes: usize) -> i64 {
    (size_bytes as f64 * (n_holders as f64 / n_nodes as f64)) as i64
}

fn priority(sum: i64, n_containers: usize) -> i64 {
    let n_containers = i64::try_from(n_containers).unwrap_or(i64::MAX);
    let max_threshold = MAX_CONTAINER_THRESHOLD.saturating_mul(n_containers);
    let sum = if sum < MIN_THRESHOLD { MIN_THRESHOLD } else { sum.min(max_threshold) };
    MAX_NODE_SCORE * (sum - MIN_THRESHOLD) / (max_threshold - MIN_THRESHOLD)
}

impl ScorePlugin for ImageLocality {
    type State = ();

    fn score(&self, _: Option<&()>, cycle: Cycle<'_>, _: &CycleState, node: NodeView<'_>) -> Result<i64> {
        let (held, n_nodes) = (cycle.snapshot.images(), cycle.snapshot.n_nodes());
        let sum = images(cycle.pod)
            .filter(|name| held.is_on(name, node.idx()))
            .filter_map(|name| held.get(&name))
            .map(|(size_bytes, n_holders)| scaled(size_bytes, n_holders, n_nodes))
            .fold(0, i64::wrapping_add);
        Ok(priority(sum, cycle.pod.containers.len()))
    }

    fn score_chunk(
        &self,
        _: Option<&()>,
        cycle: Cycle<'_>,
        _: &CycleState,
        nodes: &[NodeIdx],
        scores: &mut [i64],
    ) -> Result<()> {
        let (held, n_nodes) = (cycle.snapshot.images(), cycle.snapshot.n_nodes());
        let wanted: SmallVec<[(Cow<'_, str>, i64); 4]> = images(cycle.pod)
            .filter_map(|name| {
                let (size_bytes, n_holders) = held.get(&name)?;
                Some((name, scaled(size_bytes, n_holders, n_nodes)))
            })
            .collect();
        let n_containers = cycle.pod.containers.len();
        for (score, &node) in scores.iter_mut().zip(nodes) {
            let sum = wanted
                .iter()
                .filter(|(name, _)| held.is_on(name, node))
                .fold(0_i64, |sum, (_, bytes)| sum.wrapping_add(*bytes));
            *score = priority(sum, n_containers);
        }
        Ok(())
    }

    /// No node is better than another while none holds any of the images.
    fn uniform_score(&self, _: Option<&()>, cycle: Cycle<'_>, _: &CycleState) -> Option<i64> {
        let held = cycle.snapshot.images();
        let is_held = images(cycle.pod).any(|name| held.get(&name).is_some());
        (!is_held).then(|| priority(0, cycle.pod.containers.len()))
    }

    fn normalizes(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_means_latest() {
        for (name, want) in [
            ("nginx", "nginx:latest"),
            ("nginx:1", "nginx:1"),
            ("host:5000/nginx", "host:5000/nginx:latest"),
            ("host:5000/nginx:1", "host:5000/nginx:1"),
        ] {
            assert_eq!(normalized(name), want);
        }
    }
}
