//! Checks the two parts of `docs/configuration.md` that are generated from [`OPTIONS`]: the table
//! of options and the example file.

use std::fmt::Write as _;
use std::path::Path;

use shunt_proxy::config::{Allowed, Change, ConfigOption, DAY_MS, DefaultText, OPTIONS};

use super::super::example::{example, in_file};
use super::super::flags::flag;

/// If set, the test writes the expected text into the manual.
const UPDATE: &str = "UPDATE_DOCS";

fn table() -> String {
    let mut table = "| option | default | allowed | takes effect | |\n|---|---|---|---|---|\n\
                     | `--config` | none | path | | Configuration file, TOML |\n"
        .to_owned();
    for option in OPTIONS {
        let default = match option.default {
            DefaultText::Value(value) => format!("`{value}`"),
            DefaultText::Words("") => "none".to_owned(),
            DefaultText::Words(words) => words.to_owned(),
        };
        let change = match option.change {
            Change::OnReload => "reload",
            Change::AfterRestart => "restart",
        };
        let manual =
            if option.manual.is_empty() { String::new() } else { format!(". {}", option.manual) };
        let allowed = allowed(option);
        let name = match option.is_flag() {
            true => format!("--{}", flag(option.key)),
            false => format!("[[{}]]", option.key),
        };
        let _ = writeln!(
            table,
            "| `{name}` | {default} | {allowed} | {change} | {}{manual} |",
            option.help
        );
    }
    table
}

fn allowed(option: &ConfigOption) -> String {
    let number = |number| match number {
        DAY_MS => "a day".to_owned(),
        _ if option.key.contains("bytes") => size(number),
        _ => number.to_string(),
    };
    let range = |from, to| format!("{} to {}", number(from), number(to));
    match option.allowed {
        Allowed::Numbers(from, to) => range(from, to),
        Allowed::WordOr(word, from, to) => format!("`{word}`, {}", range(from, to)),
        Allowed::Form(form, _) | Allowed::Tables(form, _) => form.to_owned(),
    }
}

/// Formats a size in the largest unit that divides it.
fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(bits, _)| bytes.is_multiple_of(1 << bits));
    unit.map_or_else(|| bytes.to_string(), |(bits, name)| format!("{} {name}", bytes >> bits))
}

/// Returns a file with all keys. Keys without a default are comments, except for the required one.
fn example_file() -> String {
    let mut file = String::from("```toml\n");
    let mut section = "";
    for option in OPTIONS {
        if section != option.section {
            let gap = if section.is_empty() { "" } else { "\n" };
            let _ = writeln!(file, "{gap}# {}", option.section);
            section = option.section;
        }
        if let Allowed::Tables(_, lines) = option.allowed {
            let _ = writeln!(file, "# [[{}]]", option.key);
            lines.iter().for_each(|line| file.push_str(&format!("# {line}\n")));
            continue;
        }
        let (mark, text) = match option.default {
            DefaultText::Value(value) => ("", value.to_owned()),
            DefaultText::Words(_) if option.key == "contact_points" => ("", example(option)),
            DefaultText::Words(_) => ("# ", example(option)),
        };
        let _ = writeln!(file, "{mark}{} = {}", option.key, in_file(option, &text));
    }
    file + "```\n"
}

/// Compares the part of the manual after `marker` with `wanted`.
fn check(marker: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).expect("the manual");
    let (before, rest) = text.split_once(&format!("<!-- {marker} -->\n")).expect(marker);
    let (present, after) = rest.split_once("<!-- end -->\n").expect("the end of the part");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, format!("{before}<!-- {marker} -->\n{wanted}<!-- end -->\n{after}"))
            .expect("written");
        return;
    }
    let line = wanted.lines().zip(present.lines()).find(|(wanted, present)| wanted != present);
    assert!(
        wanted == present,
        "docs/configuration.md does not say what crates/proxy/src/config/options.rs says; to write it anew:\n  \
         {UPDATE}=1 cargo test -p shunt the_manual\nfirst difference: {line:#?}"
    );
}

#[test]
fn the_manual_has_the_options_as_they_are() {
    check("options, written by a test", &table());
    check("example file, written by a test", &example_file());
}
