//! What the types and fields of the API mean, in the words of Kubernetes' published API documentation. The table is compressed and
//! read when somebody first asks; nothing but documents needs it.
//!
//! `descriptions.txt.gz` is made by `examples/description_table.rs`. A line `=NAME<tab>TEXT` opens a type, a line `FIELD<tab>TEXT`
//! is one of its fields; line breaks in a text are written `\n`, backslashes `\\`.

use std::collections::HashMap;
use std::io::Read as _;
use std::ops::Range;
use std::sync::LazyLock;

/// The texts, by type and field.
#[derive(Debug, Default)]
pub struct Descriptions {
    table: String,
    types: HashMap<String, TypeTexts>,
}

#[derive(Debug, Default)]
struct TypeTexts {
    own: Range<usize>,
    fields: HashMap<String, Range<usize>>,
}

impl Descriptions {
    /// The texts of the built-in API.
    pub fn builtin() -> &'static Descriptions {
        static BUILTIN: LazyLock<Descriptions> = LazyLock::new(|| {
            let mut table = String::new();
            flate2::read::GzDecoder::new(&include_bytes!("descriptions.txt.gz")[..])
                .read_to_string(&mut table)
                .expect("the table is part of the program and a test reads it");
            Descriptions::parse(table)
        });
        &BUILTIN
    }

    /// Reads a table; lines without a tab are skipped.
    pub fn parse(table: String) -> Descriptions {
        let mut types: HashMap<String, TypeTexts> = HashMap::new();
        let mut current: Option<&mut TypeTexts> = None;
        let mut start = 0;
        for line in table.split('\n') {
            let (begin, end) = (start, start + line.len());
            start = end + 1;
            let Some((name, _)) = line.split_once('\t') else { continue };
            let text = begin + name.len() + 1..end;
            if let Some(name) = name.strip_prefix('=') {
                let texts = types.entry(name.to_owned()).or_default();
                texts.own = text;
                current = Some(texts);
            } else if let Some(texts) = &mut current {
                texts.fields.insert(name.to_owned(), text);
            }
        }
        Descriptions { table, types }
    }

    /// What a type is, by its OpenAPI name.
    pub fn of_type(&self, name: &str) -> Option<String> {
        self.text(&self.types.get(name)?.own)
    }

    /// What a field of a type is.
    pub fn of_field(&self, type_name: &str, field: &str) -> Option<String> {
        self.text(self.types.get(type_name)?.fields.get(field)?)
    }

    fn text(&self, range: &Range<usize>) -> Option<String> {
        let written = self.table.get(range.clone()).filter(|text| !text.is_empty())?;
        let mut text = String::with_capacity(written.len());
        let mut letters = written.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => text.push(if letters.next() == Some('n') { '\n' } else { '\\' }),
                letter => text.push(letter),
            }
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    #[test]
    fn texts_are_found_by_type_and_field() {
        let texts = Descriptions::parse("=a.Box\tA box.\nlid\tUp\\n\\\\down\nbare\n=a.Bag\t\nsize\tBig\n".to_owned());
        assert_eq!(texts.of_type("a.Box").as_deref(), Some("A box."));
        assert_eq!(texts.of_field("a.Box", "lid").as_deref(), Some("Up\n\\down"));
        assert_eq!(texts.of_field("a.Bag", "size").as_deref(), Some("Big"));
        for absent in [texts.of_type("a.Bag"), texts.of_type("a.Cup"), texts.of_field("a.Box", "size")] {
            assert_eq!(absent, None);
        }
    }

    #[test]
    fn nearly_every_builtin_field_is_described() {
        let texts = Descriptions::builtin();
        let schema = Schema::builtin();
        let fields: Vec<_> =
            schema.types().iter().flat_map(|ty| ty.fields.iter().map(|field| (&ty.name, field))).collect();
        let described = fields.iter().filter(|(ty, field)| texts.of_field(ty, &field.name).is_some()).count();
        assert!(described * 100 > fields.len() * 97, "{described} of {}", fields.len());
    }
}
