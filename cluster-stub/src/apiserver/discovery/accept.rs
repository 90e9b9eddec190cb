//! The `Accept` header, as far as discovery needs it.

use http::HeaderMap;
use http::header::ACCEPT;

/// One media type with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaType<'a> {
    /// E.g. `application/json`.
    pub name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaType<'a> {
    /// The media types that the client accepts, best first; `*/*` when it says nothing.
    pub fn accepted(headers: &'a HeaderMap) -> Vec<MediaType<'a>> {
        let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let mut accepted: Vec<MediaType<'a>> = values
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|t| !t.is_empty())
            .map(Self::parse)
            .collect();
        accepted.sort_by_key(|media_type| std::cmp::Reverse(media_type.quality()));
        if accepted.is_empty() {
            accepted.push(MediaType { name: "*/*", parameters: Vec::new() });
        }
        accepted
    }

    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        MediaType { name, parameters: parts.filter_map(|part| part.split_once('=')).collect() }
    }

    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// Whether JSON is among what this type allows.
    pub fn allows_json(&self) -> bool {
        matches!(self.name, "application/json" | "application/*" | "*/*")
    }

    /// Thousandths.
    fn quality(&self) -> u16 {
        let parsed = self.parameter("q").and_then(|q| q.parse::<f32>().ok()).unwrap_or(1.0);
        // A quality is between 0 and 1, so the product fits.
        (parsed.clamp(0.0, 1.0) * 1000.0) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_ordered_by_quality_and_keep_their_parameters() {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, "text/html;q=0.5, application/json;g=a;v=v2, */*;q=0.1".parse().unwrap());
        let accepted = MediaType::accepted(&headers);
        let names: Vec<_> = accepted.iter().map(|t| t.name).collect();
        assert_eq!(names, ["application/json", "text/html", "*/*"]);
        assert_eq!((accepted[0].parameter("v"), accepted[0].parameter("x")), (Some("v2"), None));
        assert!(accepted[0].allows_json() && !accepted[1].allows_json() && accepted[2].allows_json());
        assert_eq!(MediaType::accepted(&HeaderMap::new())[0].name, "*/*");
    }
}
