//! The page for browsers: files in the binary, which ask the JSON pages for what they show.
//!
//! The files have no data of the program, so they need no token. The page asks its reader for one,
//! and sends it with each request for a JSON page. Texts of clients and nodes are hostile. The
//! script writes them as text, and the policy of the page forbids browsers everything else: scripts
//! and styles from outside or within the HTML, and HTML written by a script (Trusted Types).

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

const HTML: &str = include_str!("browser/page.html");
const STYLE: &str = include_str!("browser/page.css");

/// The scripts, in the order in which browsers run them.
const SCRIPTS: [(&str, &str); 4] = [
    ("/tables.js", include_str!("browser/tables.js")),
    ("/charts.js", include_str!("browser/charts.js")),
    ("/relays.js", include_str!("browser/relays.js")),
    ("/page.js", include_str!("browser/page.js")),
];

/// Rights of the page in a browser.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Adds the files to a router.
pub(crate) fn route<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    let router = router
        .route("/", get(async || file("text/html; charset=utf-8", HTML)))
        .route("/page.css", get(async || file("text/css; charset=utf-8", STYLE)));
    SCRIPTS.iter().fold(router, |router, (path, script)| {
        router.route(path, get(async || file("text/javascript; charset=utf-8", script)))
    })
}

/// True for the path of a file.
pub(crate) fn has(path: &str) -> bool {
    ["/", "/page.css"].contains(&path) || SCRIPTS.iter().any(|(script, _)| *script == path)
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let fields = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // After an upgrade, the files must be those of the new version.
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    (fields, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_html_has_no_script_no_style_and_nothing_from_outside() {
        assert_eq!(HTML.matches("<script").count(), SCRIPTS.len());
        let elements: String = SCRIPTS
            .iter()
            .map(|(path, _)| format!("<script src=\"{}\" defer></script>\n", &path[1..]))
            .collect();
        assert!(HTML.contains(&elements), "{elements}");
        for barred in ["<style", " style=", " onclick", " onload", "http:", "https:", "src=\"/"] {
            assert!(!HTML.contains(barred), "{barred}");
        }
        for barred in ["@import", "url("] {
            assert!(!STYLE.contains(barred), "{barred}");
        }
    }

    #[test]
    fn the_script_writes_text_alone() {
        for barred in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function("]
        {
            assert!(SCRIPTS.iter().all(|(_, script)| !script.contains(barred)), "{barred}");
        }
    }

    #[test]
    fn each_file_is_small() {
        for file in [HTML, STYLE].into_iter().chain(SCRIPTS.map(|(_, script)| script)) {
            assert!(file.lines().count() <= 600 && file.len() < 32 << 10);
        }
    }

    #[test]
    fn each_alert_that_the_page_names_is_in_the_documentation() {
        let alerts = include_str!("../../../docs/alerts.md");
        let texts = SCRIPTS.iter().flat_map(|(_, script)| script.split('"'));
        let names = texts.filter(|text| {
            text.starts_with("Shunt") && text.len() > 5 && text.chars().all(char::is_alphabetic)
        });
        let mut count = 0;
        for name in names {
            count += 1;
            assert!(alerts.contains(&format!("`{name}`")), "{name}");
        }
        assert!(count >= 3, "{count}");
    }
}
