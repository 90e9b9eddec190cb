//! Names in certificates: their values as text, and names written as Go's crypto/x509 writes them.

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Any, PrintableStringRef, SetOfVec};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::{
    COMMON_NAME, COUNTRY_NAME, LOCALITY_NAME, ORGANIZATION_NAME, ORGANIZATIONAL_UNIT_NAME, POSTAL_CODE, SERIAL_NUMBER,
    ST, STREET,
};
use x509_cert::der::{self, Tag, Tagged as _};
use x509_cert::name::{Name, RelativeDistinguishedName};

/// What Go keeps of a name, in the order in which it writes it, and whether it keeps only the last value.
/// Go 1.26 crypto/x509/pkix/pkix.go `Name.ToRDNSequence`.
const KEPT: [(ObjectIdentifier, bool); 9] = [
    (COUNTRY_NAME, false),
    (ORGANIZATION_NAME, false),
    (ORGANIZATIONAL_UNIT_NAME, false),
    (LOCALITY_NAME, false),
    (ST, false),
    (STREET, false),
    (POSTAL_CODE, false),
    (COMMON_NAME, true),
    (SERIAL_NUMBER, true),
];

/// The common names of `name`, in their order. Values that are no text are left out.
pub fn common_names(name: &Name) -> Vec<String> {
    texts(name, COMMON_NAME)
}

/// The organizations of `name`, in their order. Values that are no text are left out.
pub fn organizations(name: &Name) -> Vec<String> {
    texts(name, ORGANIZATION_NAME)
}

/// A name with these values; an empty `common_name` is left out.
///
/// # Errors
/// If a value is too long for DER.
pub fn new<'a>(organizations: impl IntoIterator<Item = &'a str>, common_name: &str) -> der::Result<Name> {
    let mut parts = Vec::new();
    parts.extend(part(ORGANIZATION_NAME, organizations)?);
    parts.extend(part(COMMON_NAME, (!common_name.is_empty()).then_some(common_name))?);
    Ok(parts.into())
}

/// `name` as Go writes it after it has read it: the attributes that it knows, each once with all its values, in its order.
///
/// # Errors
/// If a value is too long for DER.
pub fn as_go_writes(name: &Name) -> der::Result<Name> {
    let mut parts = Vec::new();
    for (kind, only_last) in KEPT {
        let values = texts(name, kind);
        let first = if only_last { values.len().saturating_sub(1) } else { 0 };
        let kept = values[first..].iter().map(String::as_str).filter(|value| !(only_last && value.is_empty()));
        parts.extend(part(kind, kept)?);
    }
    Ok(parts.into())
}

fn texts(name: &Name, kind: ObjectIdentifier) -> Vec<String> {
    let attributes = name.0.iter().flat_map(|part| part.0.iter());
    attributes.filter(|attribute| attribute.oid == kind).filter_map(|attribute| text(&attribute.value)).collect()
}

/// The text of a directory string (X.520), in whichever of its forms.
fn text(value: &Any) -> Option<String> {
    let bytes = value.value();
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString => {
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        }
        // Go, too, reads T.61 as Latin-1.
        Tag::TeletexString => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString if bytes.len().is_multiple_of(2) => {
            let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    }
}

/// One part of a name with all `values` of one kind; `None` without any.
fn part<'a>(
    kind: ObjectIdentifier,
    values: impl IntoIterator<Item = &'a str>,
) -> der::Result<Option<RelativeDistinguishedName>> {
    let mut set = SetOfVec::new();
    for value in values {
        let tag = if PrintableStringRef::new(value).is_ok() { Tag::PrintableString } else { Tag::Utf8String };
        let attribute = AttributeTypeAndValue { oid: kind, value: Any::new(tag, value.as_bytes())? };
        if set.iter().all(|known| *known != attribute) {
            set.insert(attribute)?;
        }
    }
    Ok((!set.is_empty()).then_some(RelativeDistinguishedName(set)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(kind: ObjectIdentifier, tag: Tag, bytes: &[u8]) -> RelativeDistinguishedName {
        let attribute = AttributeTypeAndValue { oid: kind, value: Any::new(tag, bytes).unwrap() };
        vec![attribute].try_into().unwrap()
    }

    #[test]
    fn every_kind_of_string_is_read() {
        for (tag, bytes, want) in [
            (Tag::Utf8String, "Zoë".as_bytes(), Some("Zoë")),
            (Tag::PrintableString, b"jane", Some("jane")),
            (Tag::Ia5String, b"jane@example.com", Some("jane@example.com")),
            (Tag::NumericString, b"12 3", Some("12 3")),
            (Tag::TeletexString, b"Zo\xeb", Some("Zoë")),
            (Tag::BmpString, b"\0Z\0o\0\xeb", Some("Zoë")),
            (Tag::BmpString, b"\0Z\0", None),
            (Tag::Utf8String, b"\xff", None),
            (Tag::Integer, b"\x01", None),
        ] {
            let name = Name::from(vec![single(COMMON_NAME, tag, bytes)]);
            assert_eq!(common_names(&name), Vec::from_iter(want), "{tag}");
        }
        assert!(common_names(&Name::default()).is_empty());
    }

    #[test]
    fn organizations_keep_their_order() {
        let names = ["b", "a", "c"].map(|name| single(ORGANIZATION_NAME, Tag::Utf8String, name.as_bytes()));
        assert_eq!(organizations(&Name::from(names.to_vec())), ["b", "a", "c"]);
    }

    #[test]
    fn a_name_is_rewritten_in_go_s_order_with_all_its_values() {
        let name = Name::from(vec![
            single(COMMON_NAME, Tag::Utf8String, b"first"),
            single(COMMON_NAME, Tag::Utf8String, b"jane"),
            single(ORGANIZATION_NAME, Tag::Utf8String, b"system:dev_team"),
            single(ORGANIZATION_NAME, Tag::Utf8String, b"ops"),
            single(ORGANIZATION_NAME, Tag::Utf8String, b"ops"),
            single(ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.1"), Tag::Utf8String, b"uid"),
            single(COUNTRY_NAME, Tag::PrintableString, b"DE"),
        ]);
        let written = as_go_writes(&name).unwrap();
        let kinds: Vec<_> = written.0.iter().map(|part| part.0.get(0).unwrap().oid).collect();
        assert_eq!(kinds, [COUNTRY_NAME, ORGANIZATION_NAME, COMMON_NAME]);
        assert_eq!(organizations(&written), ["ops", "system:dev_team"], "a set is sorted");
        let tags: Vec<_> = written.0[1].0.iter().map(|attribute| attribute.value.tag()).collect();
        assert_eq!(tags, [Tag::PrintableString, Tag::Utf8String]);
        assert_eq!(common_names(&written), ["jane"]);
        assert_eq!(as_go_writes(&Name::default()).unwrap(), Name::default());
    }
}
