//! Nodes of one shape, out of a word such as `5000x32cpu,128Gi`.

use std::collections::{BTreeMap, BTreeSet};

use scheduler_core::model::{Node, Quantity};
use serde_json::json;

/// Most nodes of one word.
const MAX_NODES: usize = 1_000_000;

/// `<number>x<cpu>cpu,<memory>[,<resource>=<amount>…]`; every node takes 110 pods unless `pods=` says otherwise.
/// Names are counted on from `n_before`.
///
/// # Errors
/// The word has another form.
pub(crate) fn nodes(shape: &str, n_before: usize) -> Result<Vec<Node>, String> {
    let expected = || format!("--nodes {shape}: expected an existing file, or a shape such as 5000x32cpu,128Gi");
    let wrong = |what: String| format!("--nodes {shape}: {what}");
    let (number, rest) = shape.split_once('x').ok_or_else(expected)?;
    let n_nodes = number.parse::<usize>().map_err(|_| expected())?;
    if n_nodes > MAX_NODES {
        return Err(wrong(format!("{number} nodes, expected at most {MAX_NODES}")));
    }
    let mut given = BTreeSet::new();
    let mut amounts = BTreeMap::from([("pods".to_owned(), "110".to_owned())]);
    for (index, part) in rest.split(',').enumerate() {
        let (resource, amount) = match (index, part.split_once('=')) {
            (0, None) => ("cpu", part.strip_suffix("cpu").ok_or_else(expected)?),
            (1, None) => ("memory", part),
            (_, Some((resource, amount))) => (resource, amount),
            (_, None) => return Err(expected()),
        };
        let quantity = Quantity::parse(amount).map_err(|_| wrong(format!("{amount:?} is no amount of {resource}")))?;
        if quantity < Quantity::ZERO || resource.is_empty() || !given.insert(resource.to_owned()) {
            return Err(wrong(format!("{part:?}: expected an amount of 0 or more of a resource that is named once")));
        }
        amounts.insert(resource.to_owned(), amount.to_owned());
    }
    if !amounts.contains_key("cpu") || !amounts.contains_key("memory") {
        return Err(wrong("expected both cpu and memory, such as 32cpu,128Gi".to_owned()));
    }
    (n_before..n_before + n_nodes)
        .map(|index| {
            let name = format!("node-{index}");
            let object = json!({
                "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"capacity": amounts, "allocatable": amounts},
            });
            let node: k8s_openapi::api::core::v1::Node =
                serde_json::from_value(object).map_err(|error| error.to_string())?;
            Node::try_from(&node).map_err(|error| error.to_string())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read() {
        let nodes = nodes("3x500mcpu,1Gi,pods=5,nvidia.com/gpu=2", 0).expect("a shape");
        assert_eq!((nodes.len(), nodes[2].allocatable.milli_cpu, nodes[2].allocatable.memory), (3, 500, 1 << 30));
    }

    #[test]
    fn other_words_are_refused() {
        for shape in [
            "",
            "many",
            "3x",
            "3x4,1Gi",
            "3x4cpu",
            "3x4cpu,lots",
            "99999999x1cpu,1Gi",
            "-1x1cpu,1Gi",
            "1x-1cpu,1Gi",
            "1x1cpu,1Gi,=3",
            "1x1cpu,1Gi,cpu=2",
        ] {
            assert!(nodes(shape, 0).is_err(), "{shape}");
        }
    }
}
