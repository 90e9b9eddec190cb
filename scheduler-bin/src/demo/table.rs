//! Tables as the API server renders them, printed as `kubectl get` does. Knows no kinds: columns come from the server.

use http::{Request, header};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use crate::columns::align;

const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// Rows of one or more namespaces.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Table {
    #[serde(default)]
    column_definitions: Vec<Column>,
    #[serde(default)]
    rows: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize)]
struct Column {
    name: String,
    #[serde(default)]
    priority: i32,
}

#[derive(Debug, Deserialize)]
struct Row {
    cells: Vec<Value>,
    #[serde(default)]
    object: Value,
}

impl Table {
    /// Asks for `resource` (for example `pods`) in each of `namespaces`, with the whole objects beside the cells.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub(crate) async fn fetch(client: &Client, resource: &str, namespaces: &[String]) -> Result<Self, kube::Error> {
        let mut all = Self::default();
        for namespace in namespaces {
            let request = Request::get(format!("/api/v1/namespaces/{namespace}/{resource}?includeObject=Object"))
                .header(header::ACCEPT, ACCEPT)
                .body(Vec::new())
                .map_err(kube::Error::HttpError)?;
            let table: Self = client.request(request).await?;
            if all.column_definitions.is_empty() {
                all.column_definitions = table.column_definitions;
            }
            all.rows.extend(table.rows);
        }
        Ok(all)
    }

    /// Keeps the rows whose object `wanted` accepts.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&Value) -> bool) {
        self.rows.retain(|row| wanted(&row.object));
    }

    /// Sorts as `--sort-by=.metadata.creationTimestamp`; within one second, which is as fine as that field is, by the finer
    /// time that the name of an event ends with, then by the order of writing.
    pub(crate) fn sort_by_creation(&mut self) {
        self.rows.sort_by_cached_key(|row| {
            let metadata = &row.object["metadata"];
            let text = |key: &str| metadata[key].as_str().unwrap_or_default();
            let named_time = text("name").rsplit_once('.').and_then(|(_, hex)| u64::from_str_radix(hex, 16).ok());
            let version = text("resourceVersion").parse::<u64>().unwrap_or_default();
            (text("creationTimestamp").to_owned(), named_time, version)
        });
    }

    /// The objects of the rows.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.rows.iter().map(|row| &row.object)
    }

    /// The table as text: columns of priority 0, or all of them when `wide`; three blanks between columns, as kubectl.
    pub(crate) fn text(&self, wide: bool, namespaced: bool) -> String {
        let shown: Vec<usize> = (0..self.column_definitions.len())
            .filter(|&index| wide || self.column_definitions[index].priority == 0)
            .collect();
        let mut lines = Vec::with_capacity(self.rows.len() + 1);
        let mut head: Vec<String> =
            shown.iter().map(|&index| self.column_definitions[index].name.to_uppercase()).collect();
        if namespaced {
            head.insert(0, "NAMESPACE".to_owned());
        }
        lines.push(head);
        for row in &self.rows {
            let mut cells: Vec<String> =
                shown.iter().map(|&index| row.cells.get(index).map_or_else(String::new, cell)).collect();
            if namespaced {
                cells.insert(0, row.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned());
            }
            lines.push(cells);
        }
        align(&lines)
    }
}

fn cell(value: &Value) -> String {
    match value {
        // kubectl cuts a cell at its first line feed.
        Value::String(text) => text.lines().next().unwrap_or_default().trim_end().to_owned(),
        Value::Null => "<none>".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn table() -> Table {
        serde_json::from_value(json!({
            "columnDefinitions": [{"name": "Last Seen", "priority": 0}, {"name": "Source", "priority": 1}, {"name": "Message", "priority": 0}],
            "rows": [
                {"cells": ["2s", "a", "second\nline"], "object": {"metadata": {"name": "x.1f", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "9"}}},
                {"cells": ["3s", "b", "first"], "object": {"metadata": {"name": "y.1e", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "10"}}},
            ],
        }))
        .expect("a table")
    }

    #[test]
    fn it_prints_as_kubectl_does() {
        let mut table = table();
        table.sort_by_creation();
        assert_eq!(table.text(false, false), "LAST SEEN   MESSAGE\n3s          first\n2s          second\n");
        assert_eq!(table.text(true, false).lines().next(), Some("LAST SEEN   SOURCE   MESSAGE"));
    }
}
