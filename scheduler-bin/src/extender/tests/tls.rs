//! Extenders over HTTPS: who is trusted, under which name, and with which certificate of one's own.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cluster_stub::apiserver::tls::{CertificateAuthority, IssuedCertificate};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use scheduler_core::framework::Extender as _;
use scheduler_core::testing::pod;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use super::server::Server;
use super::{Extenders, configuration, extender, names};

struct World {
    authority: CertificateAuthority,
    client: IssuedCertificate,
    server: Server,
}

/// A server for the name `extender.example`, which asks for a certificate if it `knows_clients`.
fn world(knows_clients: bool) -> World {
    let now = Timestamp::now();
    let authority = CertificateAuthority::generate("extenders", now).expect("a key can be made");
    let serving = authority.issue_server("extender", &["extender.example".to_owned()], now).expect("issued");
    let client = authority.issue_client("scheduler", "", now).expect("issued");
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).expect("a certificate");
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().expect("a root is there");
    let builder = ServerConfig::builder();
    let builder =
        if knows_clients { builder.with_client_cert_verifier(verifier) } else { builder.with_no_client_auth() };
    let certificate = CertificateDer::from_pem_slice(serving.certificate_pem.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(serving.key_pem.as_bytes()).expect("PEM");
    let config = builder.with_single_cert(vec![certificate], key).expect("they go together");
    let answer = |_, _| (200, br#"{"NodeNames":["a"]}"#.to_vec());
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let server = Server::with(
        Some(acceptor),
        Box::new(move |verb: String, sent: Value| {
            let answer = answer(verb, sent);
            Box::pin(async move { answer })
        }),
    );
    World { authority, client, server }
}

fn filter(world: &World, tls: Option<Value>) -> Result<usize, String> {
    let mut fields = json!({ "filterVerb": "filter", "enableHTTPS": true, "nodeCacheCapable": true });
    if let Some(tls) = tls {
        fields["tlsConfig"] = tls;
    }
    let result = extender(&world.server.url, fields).filter(&pod("p").into(), &names(&["a", "b"]));
    let prefix = format!("Post \"{}/filter\": ", world.server.url);
    result.map(|result| result.nodes.len()).map_err(|error| error.to_string().replace(&prefix, ""))
}

#[test]
fn without_a_root_nobody_is_doubted_and_with_one_the_name_must_be_right() {
    let world = world(false);
    let data = |pem: &str| BASE64.encode(pem);
    let trusted = data(world.authority.certificate_pem());
    let stranger = CertificateAuthority::generate("strangers", Timestamp::now()).expect("a key can be made");
    assert_eq!(filter(&world, None), Ok(1), "no root at all");
    assert_eq!(filter(&world, Some(json!({ "insecure": true }))), Ok(1));
    assert_eq!(filter(&world, Some(json!({ "caData": trusted, "serverName": "extender.example" }))), Ok(1));
    let error = filter(&world, Some(json!({ "caData": trusted }))).expect_err("127.0.0.1 is not its name");
    assert!(error.starts_with("tls: failed to verify certificate: "), "{error}");
    let tls = json!({ "caData": data(stranger.certificate_pem()), "serverName": "extender.example" });
    let error = filter(&world, Some(tls)).expect_err("a stranger signed it");
    assert_eq!(error, "tls: failed to verify certificate: x509: certificate signed by unknown authority");
}

#[test]
fn a_certificate_of_ones_own_is_shown_from_files_or_data() {
    let world = world(true);
    assert!(filter(&world, None).is_err(), "it asks for one");
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    };
    let in_files = json!({
        "certFile": file("cert", &world.client.certificate_pem), "keyFile": file("key", &world.client.key_pem),
        "caFile": file("ca", world.authority.certificate_pem()), "serverName": "extender.example",
    });
    assert_eq!(filter(&world, Some(in_files.clone())), Ok(1));
    let mut data_wins = in_files;
    data_wins["certFile"] = json!("/no/such/file");
    data_wins["certData"] = json!(BASE64.encode(&world.client.certificate_pem));
    assert_eq!(filter(&world, Some(data_wins)), Ok(1));
}

#[test]
fn what_cannot_be_built_is_told_at_the_start() {
    let authority = CertificateAuthority::generate("extenders", Timestamp::now()).expect("a key can be made");
    let ca = BASE64.encode(authority.certificate_pem());
    for (tls, want) in [
        (
            json!({ "caData": ca, "insecure": true }),
            "specifying a root certificates file with the insecure flag is not allowed",
        ),
        (json!({ "caFile": "/no/such/file" }), "cannot read tlsConfig.caFile /no/such/file: "),
        (json!({ "caData": "%" }), "tlsConfig.caData is no base64: "),
        (json!({ "caData": BASE64.encode("no PEM") }), "the CA bundle holds no certificate, expected PEM"),
        (json!({ "certData": ca }), "a client certificate needs both certFile or certData and keyFile or keyData"),
    ] {
        let configuration = configuration("https://x", json!({ "enableHTTPS": true, "tlsConfig": tls }));
        let error = Extenders::of_simulation(&configuration, &Arc::default()).map(drop).expect_err("it is wrong");
        let want = format!("couldn't build extenders: extender \"https://x\": {want}");
        assert!(error.to_string().starts_with(&want), "{error}");
    }
}
