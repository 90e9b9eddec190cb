//! `plimsoll demo`: one manifest's whole way through an offline cluster, told step by step. The telling itself is in `demo/`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use scheduler_core::framework::Registry;

use super::nodes::NodeFlags;
use super::{EXIT_CODES, Failure, Output};
use crate::demo;
use crate::manifest::{self, Document};

/// What is applied when no file is named.
const EXAMPLE: (&str, &str) = ("examples/deployment.yaml", include_str!("../../../examples/deployment.yaml"));

#[derive(Args)]
#[command(
    long_about = "Start an offline cluster in this process, apply a manifest to it over HTTPS as kubectl does, and tell what happens, \
        step by step, until all pods run. Then it shows where each pod went and why, and the events.",
    after_help = format!("Examples:\n  plimsoll demo\n  plimsoll demo -f examples/deployment.yaml\n  plimsoll demo --nodes 5 --zones a,b -o json\n\n{EXIT_CODES}")
)]
pub(crate) struct Demo {
    /// The manifest, YAML or JSON, with one or more documents. Default: a Deployment of three replicas.
    #[arg(short, long, value_name = "FILE")]
    filename: Option<PathBuf>,

    /// How long the pods may take to run.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    timeout: Duration,

    #[command(flatten)]
    nodes: NodeFlags,

    /// How the story is written.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Demo {
    /// Tells the story.
    pub(crate) async fn execute(self, registry: Registry) -> Result<(), Failure> {
        let documents = self.documents()?;
        let options = demo::Options {
            documents,
            nodes: self.nodes.to_nodes(3)?,
            timeout: self.timeout,
            json: self.output == Output::Json,
        };
        demo::tell(&registry, options).await
    }

    fn documents(&self) -> Result<Vec<Document>, Failure> {
        match &self.filename {
            Some(path) => manifest::read(path),
            None => manifest::parse(EXAMPLE.0, EXAMPLE.1),
        }
        .map_err(Failure::bad_input)
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a duration such as 30s or 2m".to_owned();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| expected())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" | "" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(duration("soon").is_err() && duration("-1s").is_err() && duration("1h30").is_err());
    }

    #[test]
    fn the_example_is_a_deployment_of_three() {
        let documents = manifest::parse(EXAMPLE.0, EXAMPLE.1).expect("the example is a manifest");
        assert_eq!((documents[0].kind(), documents[0].object["spec"]["replicas"].as_i64()), ("Deployment", Some(3)));
    }
}
