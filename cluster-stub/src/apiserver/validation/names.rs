//! Rules for names: DNS labels and subdomains, qualified names, keys, ports, percents. Each rule answers with the texts of what is wrong.
//!
//! Upstream: apimachinery v1.36.2 `pkg/util/validation/validation.go`, `pkg/api/validate/content`.

/// Checks a name; the flag says that it is a prefix for generated names, whose trailing dash is allowed.
pub type NameRule = fn(&str, bool) -> Vec<String>;

const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// `must be no more than <n> characters`.
pub fn max_length(length: usize) -> String {
    format!("must be no more than {length} characters")
}

/// `must be between <low> and <high>, inclusive`.
pub fn inclusive_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// What must hold, examples, and the expression that upstream uses.
pub fn regex_error(message: &str, expression: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{expression}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{expression}')", examples.join(" or "))
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Starts and ends with an edge character and has only inner characters between.
fn framed(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    edge(*first) && edge(*last) && bytes.iter().all(|byte| inner(*byte))
}

fn has_label_shape(text: &str) -> bool {
    framed(text, is_lower_alphanumeric, |byte| is_lower_alphanumeric(byte) || byte == b'-')
}

fn has_subdomain_shape(text: &str) -> bool {
    text.split('.').all(has_label_shape)
}

fn has_qualified_shape(text: &str) -> bool {
    framed(text, |byte| byte.is_ascii_alphanumeric(), |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A DNS label (RFC 1123): at most 63 lower-case alphanumerics and dashes.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(max_length(63));
    }
    if !has_label_shape(text) {
        if has_subdomain_shape(text) {
            errors.push("must not contain dots".to_owned());
        } else {
            let message = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
            errors.push(regex_error(message, DNS_LABEL, &["my-name", "123-abc"]));
        }
    }
    errors
}

/// A DNS subdomain (RFC 1123): labels joined by dots, at most 253 characters.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    if !has_subdomain_shape(text) {
        let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        errors.push(regex_error(message, DNS_SUBDOMAIN, &["example.com"]));
    }
    errors
}

/// A DNS subdomain whose labels may start with or contain underscores, as search domains of a pod may.
pub fn dns_subdomain_with_underscore(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    let fits = text.split('.').all(|label| {
        let label = label.strip_prefix('_').unwrap_or(label);
        framed(label, is_lower_alphanumeric, |byte| is_lower_alphanumeric(byte) || byte == b'-' || byte == b'_')
    });
    if !fits {
        let label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        let message = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
        errors.push(regex_error(message, &format!("{label}(\\.{label})*"), &["example.com"]));
    }
    errors
}

/// A DNS label that starts with a letter (RFC 1035).
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(max_length(63));
    }
    if !(has_label_shape(text) && text.starts_with(|first: char| first.is_ascii_lowercase())) {
        let message = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        errors.push(regex_error(message, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    errors
}

/// `*.` and a DNS subdomain.
pub fn wildcard_dns_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    if !text.strip_prefix("*.").is_some_and(has_subdomain_shape) {
        let message = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        errors.push(regex_error(message, &format!("\\*\\.{DNS_SUBDOMAIN}"), &["*.example.com"]));
    }
    errors
}

/// A label key: an optional DNS subdomain and `/`, then a name of at most 63 characters.
pub fn qualified_name(text: &str) -> Vec<String> {
    let shape = |lead: &str| {
        let message = format!(
            "{lead}must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
        );
        regex_error(&message, QUALIFIED, &["MyName", "my.name", "123-abc"])
    };
    let mut errors = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(dns_subdomain(prefix).into_iter().map(|error| format!("prefix part {error}")));
            }
            *name
        }
        _ => {
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("{} {tail}", shape("a valid label key "))];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", max_length(63)));
    }
    if !has_qualified_shape(name) {
        errors.push(shape("name part "));
    }
    errors
}

/// A label value: empty, or like the name of a label key.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(max_length(63));
    }
    if !text.is_empty() && !has_qualified_shape(text) {
        let message = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        errors.push(regex_error(message, &format!("({QUALIFIED})?"), &["MyValue", "my_value", "12345"]));
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        let message = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(regex_error(message, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match text {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// Name of an environment variable: printable ASCII without `=`.
pub fn env_var_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if text.chars().any(|character| !(' '..='~').contains(&character) || character == '=') {
        let message =
            "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(message.to_owned());
    }
    errors
}

/// Name of a shell-like environment variable, as a prefix in `envFrom` was once restricted to.
pub fn c_identifier(text: &str) -> Vec<String> {
    let first = text.bytes().next();
    let fits = first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits {
        return Vec::new();
    }
    let message = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'";
    vec![regex_error(message, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])]
}

/// A port number from 1 to 65535.
pub fn port_number(port: i64) -> Vec<String> {
    if (1..=65535).contains(&port) { Vec::new() } else { vec![inclusive_range(1, 65535)] }
}

/// A port name (IANA service name).
pub fn port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 15 {
        errors.push(max_length(15));
    }
    if text.is_empty() || !text.bytes().all(|byte| is_lower_alphanumeric(byte) || byte == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A user id from 0 to 2³¹-1. Group ids have the same range.
pub fn user_id(id: i64) -> Vec<String> {
    if (0..=i64::from(i32::MAX)).contains(&id) { Vec::new() } else { vec![inclusive_range(0, i64::from(i32::MAX))] }
}

/// Digits and `%`.
pub fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or("");
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    let message = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex_error(message, "[0-9]+%", &["1%", "93%"])]
}

/// Name of an HTTP header.
pub fn http_header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Vec::new();
    }
    let message = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex_error(message, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// A name that can be a part of a URL path.
pub fn path_segment(text: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"].iter().filter(|part| text.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// [`dns_subdomain`] as a rule for object names.
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    dns_subdomain(&masked(name, prefix))
}

/// [`dns_label`] as a rule for object names.
pub fn name_is_dns_label(name: &str, prefix: bool) -> Vec<String> {
    dns_label(&masked(name, prefix))
}

/// [`dns_1035_label`] as a rule for object names.
pub fn name_is_dns_1035_label(name: &str, prefix: bool) -> Vec<String> {
    dns_1035_label(&masked(name, prefix))
}

fn masked(name: &str, prefix: bool) -> String {
    match name.strip_suffix('-') {
        Some(front) if prefix && !front.is_empty() => {
            let mut cut: String = front.to_owned();
            cut.pop();
            cut + "a"
        }
        _ => name.to_owned(),
    }
}

/// An integer as people write it: no sign but minus, no leading zeros.
pub fn decimal_integer(text: &str) -> Vec<String> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let leading_zero = digits.starts_with('0') && (digits.len() > 1 || digits.len() != text.len());
    if text.is_empty() {
        vec!["must be non-empty".to_owned()]
    } else if digits.is_empty() || leading_zero || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        vec!["must be a valid decimal integer in canonical form".to_owned()]
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_tell_good_texts_from_bad_ones() {
        type Rule = fn(&str) -> Vec<String>;
        let long = "a".repeat(64);
        let cases: [(&str, Rule, &[&str], &[&str]); 10] = [
            ("dns label", dns_label, &["a", "0", "a-b"], &["", "-a", "a-", "A", "a.b", &long]),
            ("dns subdomain", dns_subdomain, &["a.b", "a"], &["", ".a", "a..b", "a_b"]),
            ("1035 label", dns_1035_label, &["a1"], &["1a", "", "a-"]),
            ("wildcard", wildcard_dns_subdomain, &["*.a.b"], &["*", "a.b", "*.", "*a.b"]),
            ("qualified name", qualified_name, &["a", "a.b/C_d", "A"], &["", "/a", "a/", "a/b/c", "-a", &long]),
            ("label value", label_value, &["", "a", "A_b.c"], &["-", "a b", &long]),
            ("config key", config_map_key, &["a", ".a", "a_b"], &["", ".", "..", "..a", "a/b"]),
            ("port name", port_name, &["http", "a-1"], &["", "1", "-a", "a--b", "HTTP", "abcdefghijklmnop"]),
            ("percent", percent, &["1%", "100%"], &["", "%", "1", "-1%"]),
            ("integer", decimal_integer, &["0", "-5", "10"], &["", "-", "-0", "007", "+5", "1.0"]),
        ];
        for (name, rule, good, bad) in cases {
            for text in good {
                assert_eq!(rule(text), Vec::<String>::new(), "{name} {text}");
            }
            for text in bad {
                assert_ne!(rule(text), Vec::<String>::new(), "{name} {text}");
            }
        }
    }

    #[test]
    fn prefix_may_end_in_a_dash() {
        assert!(name_is_dns_label("web-", true).is_empty());
        assert!(!name_is_dns_label("web-", false).is_empty());
        assert!(!name_is_dns_label("-", true).is_empty());
    }

    #[test]
    fn message_joins_examples_as_upstream_does() {
        let want = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        assert_eq!(dns_label("C_1"), [want]);
    }
}
