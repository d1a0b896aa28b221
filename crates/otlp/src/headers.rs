//! The file of headers that a collector asks for, such as one with a token.

use std::path::Path;

use hyper::header::{HeaderName, HeaderValue};
use shunt_tls::SmallFile;

/// Largest file.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Headers that the exporter sets itself.
const OWN: [&str; 5] =
    ["host", "content-type", "content-length", "connection", "transfer-encoding"];

/// Reads the file, one `Name: value` on each line; lines that begin with `#` are comments.
///
/// # Errors
/// The file cannot be read, or a line is not a header. The message shows no value.
pub(crate) fn read(path: &Path) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let shown = path.display();
    let file = SmallFile::read(path, FILE_BYTES_MAX).map_err(|why| format!("{shown}: {why}"))?;
    let text = String::from_utf8(file.bytes).map_err(|_| format!("{shown}: is not UTF-8"))?;
    let mut headers = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fault = |why: &str| format!("{shown}: line {}: {why}", number + 1);
        let (name, value) = line.split_once(':').ok_or_else(|| fault("expected `Name: value`"))?;
        let name: HeaderName =
            name.trim().parse().map_err(|_| fault("the name is not valid for a header"))?;
        if OWN.contains(&name.as_str()) {
            return Err(fault("the proxy sets this header itself"));
        }
        let mut value: HeaderValue =
            value.trim().parse().map_err(|_| fault("the value is not valid for a header"))?;
        value.set_sensitive(true);
        headers.push((name, value));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        read(file.path())
    }

    #[test]
    fn each_line_is_a_header() {
        let found =
            read_text("# token of the tenant\nAuthorization: Bearer a:b\n\n x-scope : 7 \n");
        let found = found.expect("headers");
        let shown: Vec<_> = found
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("text")))
            .collect();
        assert_eq!(shown, [("authorization", "Bearer a:b"), ("x-scope", "7")]);
    }

    #[test]
    fn a_line_that_is_no_header_is_named_and_not_shown() {
        for text in ["x: 1\nsecret", "a b: secret", "x: secret\u{1}", "Host: secret"] {
            let why = read_text(text).expect_err(text);
            assert!(why.contains("line ") && !why.contains("secret"), "{why}");
        }
        assert!(read(Path::new("/nowhere")).expect_err("no file").contains("/nowhere"));
    }
}
