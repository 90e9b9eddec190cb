//! All keys and certificates of one cluster, in memory or in the `pki` folder of a data directory, with kubeadm's file
//! names. Leaf certificates are made anew at every start; authorities and the token key persist.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tokio::sync::watch;

use super::{CertificateAuthority, CertificateError, IssuedCertificate, SigningKey, SigningKeyError};
use crate::apiserver::authn::user::SYSTEM_PRIVILEGED_GROUP;

/// Why the keys of a cluster cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("cannot {verb} {}", path.display())]
    File {
        /// `read`, `write` or `create`.
        verb: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A certificate authority is broken.
    #[error("certificate authority {name}")]
    Authority {
        /// `ca` or `front-proxy-ca`.
        name: &'static str,
        /// What is wrong with it.
        #[source]
        source: CertificateError,
    },
    /// The key for ServiceAccount tokens is broken.
    #[error(transparent)]
    SigningKey(#[from] SigningKeyError),
}

/// The authorities of a cluster and its token key.
#[derive(Debug)]
pub struct Pki {
    cluster: CertificateAuthority,
    front_proxy: CertificateAuthority,
    signing_key: watch::Receiver<Option<SigningKey>>,
}

impl Pki {
    /// New authorities that live as long as this value. The token key is made on a thread of the current runtime.
    pub fn in_memory(now: Timestamp) -> Result<Self, PkiError> {
        Ok(Pki {
            cluster: generate("ca", "kubernetes", now)?,
            front_proxy: generate("front-proxy-ca", "front-proxy-ca", now)?,
            signing_key: make_signing_key(|_| Ok(())),
        })
    }

    /// The authorities and the token key in `directory`, made if they are not there. Private keys get mode 0600.
    pub fn open(directory: &Path, now: Timestamp) -> Result<Self, PkiError> {
        fs::create_dir_all(directory).map_err(|source| file("create", directory, source))?;
        let cluster = open_authority(directory, "ca", "kubernetes", now)?;
        let front_proxy = open_authority(directory, "front-proxy-ca", "front-proxy-ca", now)?;
        let path = directory.join("sa.key");
        let signing_key = match read(&path)? {
            Some(pem) => watch::channel(Some(SigningKey::from_pem(&pem)?)).1,
            None => make_signing_key(move |key| write_private(&path, key.private_pem())),
        };
        Ok(Pki { cluster, front_proxy, signing_key })
    }

    /// The authority that signs serving and client certificates.
    pub fn cluster_authority(&self) -> &CertificateAuthority {
        &self.cluster
    }

    /// The authority whose clients may name users in headers.
    pub fn front_proxy_authority(&self) -> &CertificateAuthority {
        &self.front_proxy
    }

    /// The key of ServiceAccount tokens; `None` in the channel until it is made.
    pub fn signing_key(&self) -> watch::Receiver<Option<SigningKey>> {
        self.signing_key.clone()
    }

    /// A client certificate of the group `system:masters`.
    pub fn issue_admin(&self, now: Timestamp) -> Result<IssuedCertificate, PkiError> {
        self.cluster
            .issue_client("kubernetes-admin", SYSTEM_PRIVILEGED_GROUP, now)
            .map_err(|source| PkiError::Authority { name: "ca", source })
    }

    /// A serving certificate for `names`.
    pub fn issue_serving(&self, names: &[String], now: Timestamp) -> Result<IssuedCertificate, PkiError> {
        self.cluster
            .issue_server("kube-apiserver", names, now)
            .map_err(|source| PkiError::Authority { name: "ca", source })
    }
}

fn generate(name: &'static str, common_name: &str, now: Timestamp) -> Result<CertificateAuthority, PkiError> {
    CertificateAuthority::generate(common_name, now).map_err(|source| PkiError::Authority { name, source })
}

fn open_authority(
    directory: &Path,
    name: &'static str,
    common_name: &str,
    now: Timestamp,
) -> Result<CertificateAuthority, PkiError> {
    let certificate_path = directory.join(format!("{name}.crt"));
    let key_path = directory.join(format!("{name}.key"));
    if let (Some(certificate), Some(key)) = (read(&certificate_path)?, read(&key_path)?) {
        return CertificateAuthority::from_pem(&certificate, &key)
            .map_err(|source| PkiError::Authority { name, source });
    }
    let authority = generate(name, common_name, now)?;
    // The key goes first: a key without a certificate is made anew at the next start, the other way round it is lost.
    write_private(&key_path, authority.key_pem())?;
    write_private(&certificate_path, authority.certificate_pem())?;
    Ok(authority)
}

fn make_signing_key(
    keep: impl FnOnce(&SigningKey) -> Result<(), PkiError> + Send + 'static,
) -> watch::Receiver<Option<SigningKey>> {
    let (made, signing_key) = watch::channel(None);
    tokio::task::spawn_blocking(move || {
        let key = SigningKey::generate().map_err(PkiError::from).and_then(|key| keep(&key).map(|()| key));
        match key {
            Ok(key) => drop(made.send(Some(key))),
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "no ServiceAccount tokens"),
        }
    });
    signing_key
}

fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(file("read", path, source)),
    }
}

/// Writes a file that only its owner may read, whole or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let temporary = path.with_extension("partial");
    let write = || -> io::Result<()> {
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| file("write", path, source))
}

fn file(verb: &'static str, path: &Path, source: io::Error) -> PkiError {
    PkiError::File { verb, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn key(pki: &Pki) -> SigningKey {
        pki.signing_key().wait_for(Option::is_some).await.unwrap().clone().unwrap()
    }

    #[tokio::test]
    async fn a_second_start_finds_the_same_keys() {
        let directory = tempfile::tempdir().unwrap();
        let now = Timestamp::now();
        let first = Pki::open(directory.path(), now).unwrap();
        let first_key = key(&first).await;
        let second = Pki::open(directory.path(), now).unwrap();
        assert_eq!(first.cluster_authority().certificate_pem(), second.cluster_authority().certificate_pem());
        assert_eq!(first.front_proxy_authority().certificate_pem(), second.front_proxy_authority().certificate_pem());
        assert_eq!(first_key.key_id(), key(&second).await.key_id());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn private_keys_are_for_the_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::open(directory.path(), Timestamp::now()).unwrap();
        key(&pki).await;
        for name in ["ca.key", "front-proxy-ca.key", "sa.key"] {
            let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[tokio::test]
    async fn a_broken_authority_says_which_and_why() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.crt"), "x").unwrap();
        fs::write(directory.path().join("ca.key"), "x").unwrap();
        let error = Pki::open(directory.path(), Timestamp::now()).unwrap_err();
        assert_eq!(error.to_string(), "certificate authority ca");
    }
}
