//! Objects of a workload: YAML files beside the configuration, with `{{.Index}}` and other parameters put in. Only plain
//! parameters are known, no functions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use benches::workloads as builtin;

/// Where templates are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Those that come with the command.
    Builtin,
    /// Files beside the configuration.
    Beside(&'a Path),
}

impl Source<'_> {
    /// The text of the file that the configuration calls `path`.
    ///
    /// # Errors
    /// There is no such file.
    pub(super) fn read(self, path: &str) -> Result<String, String> {
        match self {
            Self::Builtin => builtin::template(path)
                .map(str::to_owned)
                .ok_or_else(|| format!("there is no template {path} among those that come with plimsoll")),
            Self::Beside(file) => {
                let full = file.parent().unwrap_or(Path::new("")).join(path);
                std::fs::read_to_string(&full).map_err(|error| format!("cannot read {}: {error}", full.display()))
            }
        }
    }
}

/// An object with holes.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    path: Arc<str>,
    text: Arc<str>,
    params: Arc<BTreeMap<String, String>>,
    /// The object, where there are no holes.
    fixed: Option<Arc<Value>>,
}

impl Template {
    /// Reads a template and tries it once.
    ///
    /// # Errors
    /// The file is missing, no YAML, or has something in braces that is no known parameter.
    pub(super) fn read(source: Source<'_>, path: &str, params: BTreeMap<String, String>) -> Result<Self, String> {
        let text: Arc<str> = source.read(path)?.into();
        let mut template = Self { path: path.into(), text, params: params.into(), fixed: None };
        let first = template.object(0, 1)?;
        if !template.text.contains("{{") {
            template.fixed = Some(Arc::new(first));
        }
        Ok(template)
    }

    /// Object `index` of `count`.
    ///
    /// # Errors
    /// The text is no YAML object once its parameters are in.
    pub(super) fn object(&self, index: usize, count: usize) -> Result<Value, String> {
        if let Some(fixed) = &self.fixed {
            return Ok(Value::clone(fixed));
        }
        let text = self.filled(index, count)?;
        let object: Value = crate::yaml::parse(&text)
            .map_err(|error| format!("{}: not YAML: {}", self.path, first_line(&error.to_string())))?;
        if object["kind"].is_string() && object["apiVersion"].is_string() {
            Ok(object)
        } else {
            Err(format!("{}: no object, expected apiVersion and kind", self.path))
        }
    }

    fn filled(&self, index: usize, count: usize) -> Result<String, String> {
        let mut filled = String::with_capacity(self.text.len());
        let mut rest = &*self.text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (hole, after) =
                after.split_once("}}").ok_or_else(|| format!("{}: \"{{{{\" without \"}}}}\"", self.path))?;
            filled.push_str(before);
            match hole.trim().strip_prefix('.') {
                Some("Index") => filled.push_str(&index.to_string()),
                Some("Count") => filled.push_str(&count.to_string()),
                Some(name) if self.params.contains_key(name) => filled.push_str(&self.params[name]),
                _ => {
                    return Err(format!(
                        "{}: {{{{{hole}}}}} is not supported, expected .Index, .Count or one of templateParams",
                        self.path
                    ));
                }
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

/// A parser's message without the picture of the place below it.
pub(super) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Result<Template, String> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("t.yaml"), text).expect("the file can be written");
        let params = [("zone".to_owned(), "z1".to_owned())].into();
        Template::read(Source::Beside(&dir.path().join("config.yaml")), "t.yaml", params)
    }

    #[test]
    fn parameters_are_put_in() {
        let template = template(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: 'p{{.Index}}of{{ .Count }}', labels: {zone: '{{.zone}}'}}\n",
        )
        .expect("a template");
        assert!(template.fixed.is_none());
        let object = template.object(3, 5).expect("an object");
        assert_eq!(object["metadata"]["name"], "p3of5");
        assert_eq!(object["metadata"]["labels"]["zone"], "z1");
    }

    #[test]
    fn a_template_without_holes_is_read_once() {
        assert!(template("apiVersion: v1\nkind: Pod\n").expect("a template").fixed.is_some());
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (text, want) in [
            ("{{AddInt .Index 1}}", "t.yaml: {{AddInt .Index 1}} is not supported"),
            ("a: {{.Index", "t.yaml: \"{{\" without \"}}\""),
            ("a: [", "t.yaml: not YAML: "),
            ("a: b", "t.yaml: no object, expected apiVersion and kind"),
        ] {
            let error = template(text).expect_err("malformed");
            assert!(error.contains(want), "{text}: {error}");
        }
        let missing = Template::read(Source::Beside(Path::new("/no/such/config.yaml")), "t.yaml", BTreeMap::new());
        assert!(missing.expect_err("no file").starts_with("cannot read /no/such/t.yaml: "));
    }
}
