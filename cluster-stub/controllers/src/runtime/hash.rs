//! Short stable hashes of templates, as they stand in names and labels.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;

/// Letters of an encoded hash: no vowels and no look-alikes. Upstream: apimachinery v1.36.2 util/rand `alphanums`.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of `template`, changed by `collision_count`, encoded for a name.
///
/// Upstream: controller_utils.go v1.36.2 `ComputeHash`. Upstream feeds FNV-1a a dump of the Go value; here it is fed the
/// template's canonical JSON, so the values differ from upstream's while their form and stability are the same.
pub(crate) fn template_hash(template: &PodTemplateSpec, collision_count: Option<i32>) -> String {
    let mut hash = Fnv32a::default();
    hash.write(canonical(template).to_string().as_bytes());
    if let Some(count) = collision_count {
        hash.write(&u64::from(count.unsigned_abs()).to_le_bytes());
    }
    encode(hash.0)
}

/// The hash of `data`, changed by `collision_count`, as a decimal number's safe encoding.
/// Upstream: controller/history v1.36.2 `HashControllerRevision`.
pub(crate) fn revision_hash(data: &[u8], collision_count: Option<i32>) -> String {
    let mut hash = Fnv32a::default();
    hash.write(data);
    if let Some(count) = collision_count {
        hash.write(count.to_string().as_bytes());
    }
    encode(hash.0)
}

/// `value` as JSON without nulls, empty maps and empty lists, so that two ways to say nothing are one.
pub(crate) fn canonical<T: serde::Serialize>(value: &T) -> Value {
    // API objects have string keys only, so this cannot fail; a null would only make two objects look alike.
    let mut value = serde_json::to_value(value).unwrap_or(Value::Null);
    prune(&mut value);
    value
}

/// Whether `value` says something.
fn prune(value: &mut Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(map) => {
            map.retain(|_, value| prune(value));
            !map.is_empty()
        }
        Value::Array(list) => {
            for item in list.iter_mut() {
                prune(item);
            }
            !list.is_empty()
        }
        _ => true,
    }
}

/// Upstream: apimachinery v1.36.2 util/rand `SafeEncodeString` of the decimal digits.
fn encode(hash: u32) -> String {
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}

struct Fnv32a(u32);

impl Default for Fnv32a {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv32a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    #[test]
    fn fnv_and_encoding_follow_their_definitions() {
        let mut hash = Fnv32a::default();
        hash.write(b"foobar");
        assert_eq!(hash.0, 0xbf9c_f968);
        assert_eq!(encode(0), "4"); // b'0' is 48, and 48 mod 27 is 21
        assert_eq!(encode(1_234_567_890).len(), 10);
    }

    #[test]
    fn a_template_hash_sees_content_and_collisions_only() {
        let template = PodTemplateSpec { metadata: Some(ObjectMeta::default()), spec: None };
        let empty = template_hash(&PodTemplateSpec::default(), None);
        assert_eq!(template_hash(&template, None), empty, "an empty map says nothing");
        assert_ne!(template_hash(&template, Some(1)), empty);
        let labelled = ObjectMeta { labels: Some([("a".to_owned(), "b".to_owned())].into()), ..ObjectMeta::default() };
        assert_ne!(template_hash(&PodTemplateSpec { metadata: Some(labelled), spec: None }, None), empty);
    }
}
