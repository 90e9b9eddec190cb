//! Security contexts of pods and containers.
//!
//! Upstream: v1.36.2 `pkg/apis/core/validation/validation.go` ValidateSecurityContext, validatePodSpecSecurityContext.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::apiserver::validation::json::JsonExt;
use crate::apiserver::validation::names::user_id;
use crate::apiserver::validation::{FieldError, Path, go_struct};

const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn validate_id(context: &Value, key: &str, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if let Some(id) = context.int(key) {
        let field = path.child(key);
        out.extend(user_id(id).into_iter().map(|fault| FieldError::invalid(&field, id, fault)));
    }
}

/// The security context of a container.
pub(super) fn validate_container(context: &Value, host_users: bool, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if context.is_null() {
        return;
    }
    validate_id(context, "runAsUser", path, out);
    validate_id(context, "runAsGroup", path, out);
    let mount = context.text("procMount");
    if !matches!(mount, "" | "Default" | "Unmasked") {
        out.push(FieldError::not_supported(&path.child("procMount"), mount, &["Default", "Unmasked"]));
    }
    if host_users && mount == "Unmasked" {
        out.push(FieldError::invalid(&path.child("procMount"), mount, "`hostUsers` must be false to use `Unmasked`"));
    }
    validate_seccomp(context.at("seccompProfile"), &path.child("seccompProfile"), out);
    if context.at("allowPrivilegeEscalation") == &Value::Bool(false) {
        if context.flag("privileged") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            out.push(FieldError::invalid(path, context.clone(), why).showing(go_context(context)));
        }
        if context.at("capabilities").texts("add").contains(&"CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            out.push(FieldError::invalid(path, context.clone(), why).showing(go_context(context)));
        }
    }
    validate_app_armor(context.at("appArmorProfile"), &path.child("appArmorProfile"), out);
}

/// A security context as upstream prints its internal type, which has no JSON names and shows what is absent.
fn go_context(context: &Value) -> String {
    let names = [
        "capabilities",
        "privileged",
        "seLinuxOptions",
        "windowsOptions",
        "runAsUser",
        "runAsGroup",
        "runAsNonRoot",
        "readOnlyRootFilesystem",
        "allowPrivilegeEscalation",
        "procMount",
        "seccompProfile",
        "appArmorProfile",
    ];
    let members = names.map(|name| {
        let value = match name {
            "capabilities" if context.has(name) => {
                let capabilities = context.at(name);
                go_struct(&[("Add", capabilities.at("add").to_string()), ("Drop", capabilities.at("drop").to_string())])
            }
            _ => context.at(name).to_string(),
        };
        (format!("{}{}", name[..1].to_uppercase(), &name[1..]), value)
    });
    let members: Vec<(&str, String)> = members.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    go_struct(&members)
}

fn validate_seccomp(profile: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if profile.is_null() {
        return;
    }
    let kind = profile.text("type");
    let field = path.child("type");
    match kind {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => out.push(FieldError::required(&field, "type is required when seccompProfile is set")),
        other => out.push(FieldError::not_supported(&field, other, &["Localhost", "RuntimeDefault", "Unconfined"])),
    }
    let field = path.child("localhostProfile");
    let file = profile.text("localhostProfile");
    if kind == "Localhost" {
        if file.is_empty() {
            out.push(FieldError::required(&field, "must be set when seccomp type is Localhost"));
        } else {
            super::container::validate_descending_path(file, &field, out);
        }
    } else if profile.has("localhostProfile") {
        out.push(FieldError::invalid(&field, file, "can only be set when seccomp type is Localhost"));
    }
}

fn validate_app_armor(profile: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    if profile.is_null() {
        return;
    }
    let field = path.child("localhostProfile");
    let file = profile.text("localhostProfile");
    match profile.text("type") {
        "Localhost" => {
            if !profile.has("localhostProfile") {
                out.push(FieldError::required(&field, "must be set when AppArmor type is Localhost"));
            } else if file.trim() != file {
                out.push(FieldError::invalid(&field, file, "must not be padded with whitespace"));
            } else if file.is_empty() {
                out.push(FieldError::required(&field, "must be set when AppArmor type is Localhost"));
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if profile.has("localhostProfile") {
                out.push(FieldError::invalid(&field, file, "can only be set when AppArmor type is Localhost"));
            }
        }
        "" => out.push(FieldError::required(&path.child("type"), "type is required when appArmorProfile is set")),
        other => {
            out.push(FieldError::not_supported(
                &path.child("type"),
                other,
                &["Localhost", "RuntimeDefault", "Unconfined"],
            ));
        }
    }
}

/// The security context of a pod.
pub(super) fn validate_pod(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let context = spec.at("securityContext");
    validate_id(context, "fsGroup", path, out);
    validate_id(context, "runAsUser", path, out);
    validate_id(context, "runAsGroup", path, out);
    let groups = path.child("supplementalGroups");
    for (index, group) in context.items("supplementalGroups").iter().enumerate() {
        let id = group.as_i64().unwrap_or(0);
        let field = groups.index(index);
        out.extend(user_id(id).into_iter().map(|fault| FieldError::invalid(&field, id, fault)));
    }
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        out.push(FieldError::invalid(&path.child("shareProcessNamespace"), true, why));
    }
    validate_sysctls(spec, &path.child("sysctls"), out);
    let among = |key: &str, values: &[&str], out: &mut Vec<FieldError>| {
        if context.has(key) && !values.contains(&context.text(key)) {
            out.push(FieldError::not_supported(&path.child(key), context.text(key), values));
        }
    };
    among("fsGroupChangePolicy", &["Always", "OnRootMismatch"], out);
    validate_seccomp(context.at("seccompProfile"), &path.child("seccompProfile"), out);
    validate_app_armor(context.at("appArmorProfile"), &path.child("appArmorProfile"), out);
    among("supplementalGroupsPolicy", &["Merge", "Strict"], out);
    among("seLinuxChangePolicy", &["MountOption", "Recursive"], out);
}

fn validate_sysctls(spec: &Value, path: &Path<'_>, out: &mut Vec<FieldError>) {
    let mut names = BTreeSet::new();
    for (index, sysctl) in spec.at("securityContext").items("sysctls").iter().enumerate() {
        let item = path.index(index);
        let field = item.child("name");
        let name = sysctl.text("name");
        if name.is_empty() {
            out.push(FieldError::required(&field, ""));
        } else if !is_sysctl(name) {
            out.push(FieldError::invalid(
                &field,
                name,
                format!("must have at most 253 characters and match regex {SYSCTL}"),
            ));
        } else if !names.insert(name) {
            out.push(FieldError::duplicate(&field, name));
        }
        let dotted = name.replace('/', ".");
        if spec.flag("hostNetwork") && dotted.starts_with("net.") {
            out.push(FieldError::invalid(&field, name, "may not be specified when 'hostNetwork' is true"));
        }
        let ipc = dotted.starts_with("kernel.shm")
            || dotted.starts_with("kernel.msg")
            || dotted == "kernel.sem"
            || dotted.starts_with("fs.mqueue.");
        if spec.flag("hostIPC") && ipc {
            out.push(FieldError::invalid(&field, name, "may not be specified when 'hostIPC' is true"));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let bytes = part.as_bytes();
            let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
            edge(*first) && edge(*last) && bytes.iter().all(|byte| edge(*byte) || matches!(byte, b'-' | b'_'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_and_sysctls_are_checked() {
        let mut errors = Vec::new();
        let spec =
            json!({"securityContext": {"runAsUser": -1, "sysctls": [{"name": "bad name"}, {"name": "net/ipv4.x"}]}});
        validate_pod(&spec, &Path::root("c"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts[0], "c.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive");
        assert!(
            texts[1].starts_with("c.sysctls[0].name: Invalid value: \"bad name\": must have at most 253 characters")
        );
        assert_eq!(texts.len(), 2);
    }
}
