//! Bindings as they are encoded: reads the body of a usual one, and binds a stored pod by putting three members into its bytes,
//! where nothing stands in the way. What would, and what a binding means, stands with the rules of pods.

use std::ops::Range;

use crate::scan::{text_at, value_end, walk_from, without_blanks};

/// The body of a usual binding: it names a pod and a node, and asks for nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usual<'a> {
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.namespace`; empty without one.
    pub namespace: &'a str,
    /// `metadata.uid`; empty without one.
    pub uid: &'a str,
    /// `target.name`, not empty.
    pub node: &'a str,
}

/// Reads a body that is compact JSON, as encoders write it, with a line break behind it or not. `None` for every other body:
/// one with other members, with texts that need an escape, with a member twice, or that is no binding at all.
///
/// ```
/// use cluster_stub_wire::codec::binding::read;
///
/// let body = br#"{"kind":"Binding","apiVersion":"v1","metadata":{"name":"p","uid":"u"},"target":{"kind":"Node","name":"n"}}"#;
/// let usual = read(body).unwrap();
/// assert_eq!((usual.name, usual.namespace, usual.uid, usual.node), ("p", "", "u", "n"));
/// assert!(read(br#"{"kind":"Binding","apiVersion":"v1","metadata":{"name":"p","labels":{}},"target":{"name":"n"}}"#).is_none());
/// ```
#[must_use]
pub fn read(body: &[u8]) -> Option<Usual<'_>> {
    let json = without_blanks(body);
    let mut seen = Seen::default();
    let mut usual = Usual::default();
    let end = walk_from(json, 0, |key, at| match key {
        b"kind" if seen.is_new(0) => stated(json, at, b"\"Binding\""),
        b"apiVersion" if seen.is_new(1) => stated(json, at, b"\"v1\""),
        b"metadata" if seen.is_new(2) => walk_from(json, at, |key, at| match key {
            b"name" if seen.is_new(3) => text_at(json, at, &mut usual.name),
            b"namespace" if seen.is_new(4) => text_at(json, at, &mut usual.namespace),
            b"uid" if seen.is_new(5) => text_at(json, at, &mut usual.uid),
            // Clients before 1.33 write it.
            b"creationTimestamp" if seen.is_new(6) => stated(json, at, b"null"),
            _ => None,
        }),
        b"target" if seen.is_new(7) => walk_from(json, at, |key, at| match key {
            b"kind" if seen.is_new(8) => stated(json, at, b"\"Node\""),
            b"name" if seen.is_new(9) => text_at(json, at, &mut usual.node),
            _ => None,
        }),
        _ => None,
    })?;
    (end == json.len() && seen.has(0) && seen.has(1) && !usual.node.is_empty()).then_some(usual)
}

/// Which members there were.
#[derive(Default)]
struct Seen(u16);

impl Seen {
    /// Notes a member; whether it is the first of its name.
    fn is_new(&mut self, member: u16) -> bool {
        let is_new = !self.has(member);
        self.0 |= 1 << member;
        is_new
    }

    fn has(&self, member: u16) -> bool {
        self.0 & (1 << member) != 0
    }
}

/// The place behind the value at `at`, if it is this one.
fn stated(json: &[u8], at: usize, value: &[u8]) -> Option<usize> {
    json.get(at..)?.starts_with(value).then_some(at + value.len())
}

/// A binding that asks for nothing but a node.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'a> {
    /// The pod's UID; empty if any will do.
    pub uid: &'a str,
    /// The node.
    pub node: &'a str,
    /// Now, as conditions have it.
    pub time: &'a str,
}

/// The bytes of the stored pod `pod` after the binding. `None` when the plain way does not do: the pod is bound, gated, being
/// deleted, nominated, another one, or has conditions; or something is not encoded as the API server encodes it.
///
/// ```
/// use cluster_stub_wire::codec::binding::{Plain, bind};
///
/// let pod = br#"{"metadata":{"uid":"u"},"spec":{"a":1,"z":2},"status":{}}"#;
/// let plain = Plain { uid: "u", node: "n", time: "t" };
/// let bound = bind(pod, plain).unwrap();
/// let want = r#"{"metadata":{"uid":"u"},"spec":{"a":1,"nodeName":"n","z":2},"status":{"conditions":[{"lastTransitionTime":"t","status":"True","type":"PodScheduled"}]}}"#;
/// assert_eq!(String::from_utf8(bound).unwrap(), want);
/// assert!(bind(pod, Plain { uid: "v", ..plain }).is_none());
/// ```
#[must_use]
pub fn bind(pod: &[u8], binding: Plain<'_>) -> Option<Vec<u8>> {
    let plain = |text: &str| text.bytes().all(|byte| byte >= b' ' && !matches!(byte, b'"' | b'\\'));
    if binding.node.is_empty() || !plain(binding.node) || !plain(binding.time) || !plain(binding.uid) {
        return None;
    }
    let (mut metadata, mut spec, mut status) = (None, None, None);
    let end = walk_from(pod, 0, |key, at| match key {
        b"metadata" if metadata.is_none() => {
            let section = section(pod, at, b"", &[b"deletionTimestamp"], b"uid")?;
            metadata = Some(section.watched);
            Some(section.end)
        }
        b"spec" if spec.is_none() => {
            let section = section(pod, at, b"nodeName", &[b"schedulingGates"], b"")?;
            spec = Some(section.place);
            Some(section.end)
        }
        b"status" if status.is_none() => {
            let section = section(pod, at, b"conditions", &[b"nominatedNodeName"], b"")?;
            status = Some(section.place);
            Some(section.end)
        }
        b"metadata" | b"spec" | b"status" => None,
        _ => value_end(pod, at),
    })?;
    let (uid, spec, status) = (metadata?, spec?, status?);
    // A text with an escape is another one than it looks.
    let same = binding.uid.is_empty() || pod.get(uid)? == [b"\"", binding.uid.as_bytes(), b"\""].concat();
    if end != pod.len() || !same || spec.at > status.at {
        return None;
    }
    let mut out = Vec::with_capacity(pod.len() + binding.node.len() + binding.time.len() + 120);
    out.extend_from_slice(&pod[..spec.at]);
    spec.put(&mut out, &[b"\"nodeName\":\"", binding.node.as_bytes(), b"\""]);
    out.extend_from_slice(&pod[spec.at..status.at]);
    let condition: [&[u8]; 3] = [
        b"\"conditions\":[{\"lastTransitionTime\":\"",
        binding.time.as_bytes(),
        b"\",\"status\":\"True\",\"type\":\"PodScheduled\"}]",
    ];
    status.put(&mut out, &condition);
    out.extend_from_slice(&pod[status.at..]);
    Some(out)
}

/// Where a member goes into a section.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    is_first: bool,
    is_last: bool,
}

impl Place {
    fn put(self, out: &mut Vec<u8>, member: &[&[u8]]) {
        if self.is_last && !self.is_first {
            out.push(b',');
        }
        member.iter().for_each(|part| out.extend_from_slice(part));
        if !self.is_last {
            out.push(b',');
        }
    }
}

/// A section that was looked through.
struct Section {
    /// Where the new member goes.
    place: Place,
    /// The value of the member that is looked at; empty without one.
    watched: Range<usize>,
    end: usize,
}

/// Looks through the section at `at`. `None` when it has the `new` member or one of the `refused` already, or when its keys are
/// not those of a map in order, written without escapes.
fn section(json: &[u8], at: usize, new: &[u8], refused: &[&[u8]], watched: &[u8]) -> Option<Section> {
    let mut before: Option<&[u8]> = None;
    let mut place = None;
    let mut found = 0..0;
    let end = walk_from(json, at, |key, at| {
        if key.contains(&b'\\') || before.is_some_and(|before| before >= key) || key == new || refused.contains(&key) {
            return None;
        }
        if place.is_none() && key > new {
            // The key's quote is in front of it, the closing one and a colon behind it.
            let at = at - key.len() - 3;
            place = Some(Place { at, is_first: before.is_none(), is_last: false });
        }
        before = Some(key);
        let end = value_end(json, at)?;
        if key == watched {
            found = at..end;
        }
        Some(end)
    })?;
    let place = place.unwrap_or(Place { at: end - 1, is_first: before.is_none(), is_last: true });
    Some(Section { place, watched: found, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_the_way_is_left_to_others() {
        let bound = |pod: &str| {
            bind(pod.as_bytes(), Plain { uid: "", node: "n", time: "t" })
                .map(|bytes| String::from_utf8(bytes).expect("text"))
        };
        let condition = r#""conditions":[{"lastTransitionTime":"t","status":"True","type":"PodScheduled"}]"#;
        for (pod, want) in [
            (
                r#"{"metadata":{},"spec":{},"status":{}}"#,
                format!(r#"{{"metadata":{{}},"spec":{{"nodeName":"n"}},"status":{{{condition}}}}}"#),
            ),
            (
                r#"{"kind":"Pod","metadata":{},"spec":{"a":{"b":"}"}},"status":{"phase":"x"}}"#,
                format!(
                    r#"{{"kind":"Pod","metadata":{{}},"spec":{{"a":{{"b":"}}"}},"nodeName":"n"}},"status":{{{condition},"phase":"x"}}}}"#
                ),
            ),
            (
                r#"{"metadata":{},"spec":{"z":1},"status":{"a":0,"phase":"x"},"x":1}"#,
                format!(
                    r#"{{"metadata":{{}},"spec":{{"nodeName":"n","z":1}},"status":{{"a":0,{condition},"phase":"x"}},"x":1}}"#
                ),
            ),
        ] {
            assert_eq!(bound(pod), Some(want), "{pod}");
        }
        for pod in [
            r#"{"metadata":{},"spec":{}}"#,
            r#"{"metadata":{},"spec":{},"status":null}"#,
            r#"{"metadata":{},"spec":{"nodeName":""},"status":{}}"#,
            r#"{"metadata":{},"spec":{"schedulingGates":[]},"status":{}}"#,
            r#"{"metadata":{"deletionTimestamp":"x"},"spec":{},"status":{}}"#,
            r#"{"metadata":{},"spec":{},"status":{"conditions":[]}}"#,
            r#"{"metadata":{},"spec":{},"status":{"nominatedNodeName":"m"}}"#,
            r#"{"metadata":{},"spec":{"b":1,"a":2},"status":{}}"#,
            r#"{"metadata":{},"spec":{"\u0061":1},"status":{}}"#,
            r#"{"metadata":{},"spec":{},"status":{}} "#,
            r#"{"metadata":{},"status":{},"spec":{}}"#,
            r#"{"metadata":{},"spec":{},"status":{},"spec":{}}"#,
        ] {
            assert_eq!(bound(pod), None, "{pod}");
        }
        let pod = br#"{"metadata":{"uid":"u"},"spec":{},"status":{}}"#;
        for (uid, node, binds) in
            [("u", "n", true), ("", "n", true), ("v", "n", false), ("u", "", false), ("u", "n\"", false)]
        {
            assert_eq!(bind(pod, Plain { uid, node, time: "t" }).is_some(), binds, "{uid} {node}");
        }
    }
}
