//! Text that others have written, as logs and errors show it.

/// The text without anything that does not print, cut to so many bytes.
#[must_use]
pub fn printable_to(text: &str, bytes_max: usize) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        let start = shown.len();
        match c {
            '\'' | '"' | '\\' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
        if shown.len() > bytes_max {
            shown.truncate(start);
            shown.push('…');
            break;
        }
    }
    shown
}
