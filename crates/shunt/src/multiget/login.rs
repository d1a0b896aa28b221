//! Options of the login at Redis or Valkey servers.

use std::path::PathBuf;

use clap::Args;
use shunt_multiget::Login;

use crate::faults::Fault;
use crate::relay::private_file;

/// Most bytes of a password.
const PASSWORD_BYTES_MAX: usize = 4096;

#[derive(Args, Clone, Debug)]
pub(super) struct ServerLogin {
    /// User at the servers [default: the servers' default user]
    #[arg(long, value_name = "NAME", requires = "password_file", help_heading = "Login")]
    user: Option<String>,
    /// File with the password for the servers, readable by its owner only
    #[arg(long, value_name = "FILE", help_heading = "Login")]
    password_file: Option<PathBuf>,
    /// Number of the servers' database
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Login")]
    pub(super) database: u32,
}

impl ServerLogin {
    /// Reads the password.
    pub(super) fn read(&self) -> Result<Login, Fault> {
        let password = match &self.password_file {
            Some(path) => {
                let why = "other users can read it, and with it the servers' data";
                let missing = "it has to contain the password for the servers";
                let password = private_file("password-file", path, missing, why)?;
                if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
                    let (path, bytes) = (path.display(), password.len());
                    let why = format_args!(
                        "the password has {bytes} bytes; 1 to {PASSWORD_BYTES_MAX} are possible"
                    );
                    return Err(Fault::new("password-file", format_args!("{path}: {why}")));
                }
                Some(password)
            }
            None => None,
        };
        Ok(Login { user: self.user.clone(), password, database: self.database })
    }
}
