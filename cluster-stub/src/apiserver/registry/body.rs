//! From the bytes of a request to an object of the expected kind, in upstream's order and words.

use cluster_stub_wire::scan::members;
use serde_json::{Value, json};

use super::context::RequestContext;
use super::media::{self, Encoding};
use super::options::FieldValidation;
use super::{Entry, Registry};
use crate::apiserver::codec::decode::{Decoded, decode_type};
use crate::apiserver::codec::proto::{self, Envelope};
use crate::apiserver::codec::{syntax, yaml};
use crate::apiserver::custom::CustomType;
use crate::apiserver::schema::{TypeIdx, TypeRef};
use crate::apiserver::status::ApiError;

/// What a body should be.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    /// `v1`, `apps/v1`.
    pub api_version: &'a str,
    /// `Pod`.
    pub kind: &'a str,
    /// Its type in the schema; `None` takes any object as it is.
    pub ty: Option<TypeIdx>,
    /// What a definition says of it, for custom resources.
    pub custom: Option<&'a CustomType>,
}

impl Registry {
    /// Decodes a request's body. Unknown and duplicate fields become warnings or the failure that the client asked for.
    pub(super) fn decode_body(
        &self,
        ctx: &RequestContext,
        body: &[u8],
        expected: Expected<'_>,
    ) -> Result<Value, ApiError> {
        let json;
        let body = match media::body_encoding(&ctx.headers)? {
            Encoding::Json => body,
            Encoding::Yaml => {
                json = yaml::parse(body).map_err(ApiError::bad_request)?.to_string().into_bytes();
                json.as_slice()
            }
            Encoding::Protobuf => {
                json = self.json_of(body, expected)?;
                json.as_slice()
            }
        };
        let as_expected = is_plainly(body, expected);
        let (kind, api_version) = if as_expected {
            (expected.kind.to_string(), expected.api_version.to_string())
        } else {
            type_of(body, expected)?
        };
        let cannot = |why: &str| {
            ApiError::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {}: {why}",
                version_of(&api_version),
                expected.kind
            ))
        };
        if kind != expected.kind || group_of(&api_version) != group_of(expected.api_version) {
            return Err(cannot(&self.foreign_kind(&kind, &api_version, expected)));
        }
        if api_version != expected.api_version {
            return Err(ApiError::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                expected.api_version
            )));
        }
        let ty = expected.ty.map_or(TypeRef::Any, TypeRef::Object);
        let decoded = decode_type(&self.0.schema, &ty, body)
            .and_then(|decoded| match expected.custom {
                Some(custom) => custom.read(decoded.object),
                None => Ok(decoded),
            })
            .map_err(|error| match type_of(body, expected) {
                // What is no JSON is refused for that.
                Err(fault) if as_expected => fault,
                _ => cannot(&error.to_string()),
            })?;
        let mut object = ctx.check_strict(decoded, |why| cannot(&format!("strict decoding error: {why}")))?;
        object["kind"] = kind.into();
        object["apiVersion"] = api_version.into();
        Ok(object)
    }

    /// The JSON of a protobuf body. One of another kind keeps its kind and nothing else: it is refused for that anyway.
    fn json_of(&self, body: &[u8], expected: Expected<'_>) -> Result<Vec<u8>, ApiError> {
        let envelope = Envelope::open(body).map_err(ApiError::bad_request)?;
        let kind = if envelope.kind.is_empty() { expected.kind } else { envelope.kind };
        let api_version = if envelope.api_version.is_empty() { expected.api_version } else { envelope.api_version };
        let mut object = match expected.ty {
            Some(ty) if kind == expected.kind && api_version == expected.api_version => {
                proto::decode(&self.0.schema, ty, envelope.raw).map_err(ApiError::bad_request)?
            }
            _ => json!({}),
        };
        object["kind"] = kind.into();
        object["apiVersion"] = api_version.into();
        Ok(object.to_string().into_bytes())
    }

    /// Why an object of another kind cannot be taken.
    fn foreign_kind(&self, kind: &str, api_version: &str, expected: Expected<'_>) -> String {
        let package = if group_of(api_version).is_empty() { "core" } else { group_of(api_version) };
        let known =
            self.table().entries.iter().any(|entry| entry.resource.kind == kind && entry.api_version == api_version);
        if known {
            let target = group_of(expected.api_version).split('.').next().unwrap_or("");
            let target = if target.is_empty() { "core" } else { target };
            let version = version_of(api_version);
            format!("converting ({version}.{kind}) to ({target}.{}): unknown conversion", expected.kind)
        } else {
            tracing::debug!(kind, package, "a body of an unknown kind");
            format!(
                "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
            )
        }
    }
}

impl RequestContext {
    /// Deals with unknown and duplicate fields as the client asked.
    pub(super) fn check_strict(&self, decoded: Decoded, refuse: impl Fn(&str) -> ApiError) -> Result<Value, ApiError> {
        match self.options.field_validation {
            FieldValidation::Strict if !decoded.strict_errors.is_empty() => {
                return Err(refuse(&decoded.strict_errors.join(", ")));
            }
            FieldValidation::Warn => decoded.strict_errors.iter().for_each(|warning| self.warn(warning)),
            FieldValidation::Strict | FieldValidation::Ignore => {}
        }
        Ok(decoded.object)
    }
}

/// Whether a body states kind and `apiVersion` as expected, in compact JSON, each once and without escapes. Whether all of it
/// is JSON is not looked at.
fn is_plainly(body: &[u8], expected: Expected<'_>) -> bool {
    let Some(members) = members(body) else {
        return false;
    };
    let states = |key: &[u8], text: &str| {
        let mut stated = members.iter().filter(|member| member.key == key).map(|member| member.value);
        let value = stated.next().and_then(|value| value.strip_prefix(b"\"")?.strip_suffix(b"\""));
        value == Some(text.as_bytes()) && stated.next().is_none()
    };
    states(b"kind", expected.kind)
        && states(b"apiVersion", expected.api_version)
        && members.iter().all(|member| !member.key.contains(&b'\\'))
}

/// `kind` and `apiVersion` of a body; what is missing is what was expected.
fn type_of(body: &[u8], expected: Expected<'_>) -> Result<(String, String), ApiError> {
    #[derive(serde::Deserialize)]
    struct TypeMeta {
        kind: Option<String>,
        #[serde(rename = "apiVersion")]
        api_version: Option<String>,
    }
    // A body of another shape than an object is left to the decoder, whose words are better.
    let meta: TypeMeta = match serde_json::from_slice(body) {
        Ok(meta) => meta,
        Err(error) if error.is_data() => TypeMeta { kind: None, api_version: None },
        Err(error) => {
            tracing::trace!(%error, "a body that is no JSON");
            let why = syntax::fault(body);
            return Err(ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}")));
        }
    };
    let or = |text: Option<String>, default: &str| text.filter(|text| !text.is_empty()).unwrap_or(default.to_string());
    Ok((or(meta.kind, expected.kind), or(meta.api_version, expected.api_version)))
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or(api_version)
}

impl Entry {
    /// What bodies of this resource are.
    pub(super) fn expected(&self) -> Expected<'_> {
        let custom = self.resource.custom.as_deref();
        Expected { api_version: &self.api_version, kind: &self.resource.kind, ty: self.ty, custom }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_body_is_known_at_sight_and_any_other_is_read() {
        let expected = Expected { api_version: "v1", kind: "Pod", ty: None, custom: None };
        for (body, plainly) in [
            (r#"{"apiVersion":"v1","kind":"Pod","spec":{"kind":"x"}}"#, true),
            (r#"{"kind":"Pod","apiVersion":"v1"}"#, true),
            (r#"{"kind":"Pod"}"#, false),
            (r#"{"kind":"Pod","kind":"Pod","apiVersion":"v1"}"#, false),
            (r#"{"kind":"Pod","apiVersion":"v1","\u006bind":"Node"}"#, false),
            (r#"{"kind":"Node","apiVersion":"v1"}"#, false),
            (r#"{"kind":"Pod","apiVersion":"v2"}"#, false),
            (r#"{"kind":"Pod", "apiVersion":"v1"}"#, false),
            (r#"{"kind":"Pod","apiVersion":"v1""#, false),
        ] {
            assert_eq!(is_plainly(body.as_bytes(), expected), plainly, "{body}");
            if plainly {
                let read = type_of(body.as_bytes(), expected).expect("JSON");
                assert_eq!(read, ("Pod".to_string(), "v1".to_string()), "{body}");
            }
        }
    }
}
