//! Makes `wire/src/schema/descriptions.txt.gz` from the OpenAPI v3 documents of a kube-apiserver. A tool for developers; nothing
//! calls it. The texts are Kubernetes' published API documentation (Apache-2.0).
//!
//! ```text
//! kubectl get --raw /openapi/v3/api/v1 > docs/api__v1.json      # and so on, one file a group version
//! cargo run -p cluster-stub --example description_table -- docs > cluster-stub/wire/src/schema/descriptions.txt.gz
//! ```

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: description_table FOLDER-OF-OPENAPI-V3-DOCUMENTS")?;
    // The types of the served versions, and the scalars that the type table has a word for.
    let known: Vec<&str> = include_str!("../wire/src/schema/types.txt")
        .lines()
        .filter_map(|line| line.strip_prefix("type "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let mut types = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let document: Value = serde_json::from_slice(&std::fs::read(entry?.path())?)?;
        let Some(schemas) = document["components"]["schemas"].as_object() else { continue };
        let wanted = schemas.iter().filter(|(name, _)| known.contains(&name.as_str()) || name.contains("apimachinery"));
        types.extend(wanted.map(|(name, schema)| (name.clone(), schema.clone())));
    }
    let mut out = GzEncoder::new(std::io::stdout().lock(), Compression::best());
    for (name, schema) in &types {
        writeln!(out, "={name}\t{}", escaped(schema))?;
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let text = escaped(property);
            if !text.is_empty() {
                writeln!(out, "{field}\t{text}")?;
            }
        }
    }
    out.finish()?.flush()?;
    Ok(())
}

fn escaped(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\\', "\\\\").replace('\n', "\\n")
}
