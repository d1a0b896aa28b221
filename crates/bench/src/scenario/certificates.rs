//! Certificates of a server that speaks TLS: an authority for one run, made with `openssl`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{file::Server, servers::NotStarted};

/// Files of one server.
#[derive(Debug)]
pub(super) struct Certificates {
    /// Directory with all of them.
    pub(super) directory: PathBuf,
    /// Certificate of the authority.
    pub(super) authority: PathBuf,
    /// Certificate and key of the server, for its addresses from `127.0.0.1` on.
    certificate: PathBuf,
    key: PathBuf,
    /// Both in one file, as HAProxy reads them.
    pub(super) both: PathBuf,
}

impl Certificates {
    /// Makes the files in a new directory.
    pub(super) fn make(server: &Server) -> Result<Certificates, NotStarted> {
        let name = &server.name;
        let directory = std::env::temp_dir()
            .join(format!("shunt-bench-{}-{name}-certificates", std::process::id()));
        fs::create_dir_all(&directory)?;
        let file = |name: &str| directory.join(name);
        let (authority, authority_key) = (file("ca.pem"), file("ca-key.pem"));
        let (certificate, key, both) = (file("server.pem"), file("key.pem"), file("both.pem"));
        let constraint = "basicConstraints=critical,CA:TRUE";
        openssl(
            &["-subj", "/CN=bench authority", "-addext", constraint],
            &authority,
            &authority_key,
        )?;
        let signed_by =
            ["-CA".as_ref(), authority.as_os_str(), "-CAkey".as_ref(), authority_key.as_os_str()];
        let addresses = (1..=server.nodes).map(|last| format!("IP:127.0.0.{last}"));
        let addresses: Vec<_> = addresses.collect();
        let names = format!("subjectAltName=DNS:localhost,{}", addresses.join(","));
        let names = ["-addext", &names];
        let leaf = ["-subj", "/CN=bench", "-addext", "basicConstraints=critical,CA:FALSE"];
        let arguments: Vec<_> = signed_by
            .into_iter()
            .chain(names.iter().chain(&leaf).map(|argument| argument.as_ref()))
            .collect();
        openssl(&arguments, &certificate, &key)?;
        fs::write(&both, [fs::read(&certificate)?, fs::read(&key)?].concat())?;
        Ok(Certificates { directory, authority, certificate, key, both })
    }

    /// Has the proxy or the stub of this command show them.
    pub(super) fn configure(&self, command: &mut Command) {
        command.arg("--tls-certificate").arg(&self.certificate);
        command.arg("--tls-key").arg(&self.key);
    }
}

/// Makes a certificate with a P-256 key.
fn openssl(
    arguments: &[impl AsRef<std::ffi::OsStr>],
    certificate: &Path,
    key: &Path,
) -> Result<(), NotStarted> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "7"])
        .args(arguments)
        .args(["-out".as_ref(), certificate.as_os_str(), "-keyout".as_ref(), key.as_os_str()])
        .stdin(Stdio::null())
        .output();
    match made {
        Ok(made) if made.status.success() => Ok(()),
        Ok(made) => Err(io::Error::other(format!(
            "openssl made no certificate: {}",
            String::from_utf8_lossy(&made.stderr)
        ))
        .into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(NotStarted::Missing("openssl is not installed".to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}
