//! The documents match the program: all options, metrics and exit codes are in the pages of
//! [`OPERATIONS`] and in `docs/node.md`, the example file is valid, and links between documents
//! lead somewhere. `settings/tests/manual.rs` compares the options of the proxy word by word.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use shunt_admin::Pages;
use shunt_agent::AgentAdmin;
use shunt_dispatch::DispatchAdmin;
use shunt_locks_http::{LocksHttp, Order};
use shunt_multiget::{ShimAdmin, SidecarAdmin};
use shunt_node::run::{Nodes, NodesOptions};
use shunt_proxy::admin::Admin;
use shunt_proxy::config::Config;
use shunt_proxy::control::ClusterView;
use shunt_proxy::metrics::exposition::Sources;
use shunt_proxy::metrics::{ControlMetrics, CoreMetrics};

/// With fewer options or metrics than this, the search for them is broken.
const NAMES_MIN: usize = 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Pages for operators of a proxy.
const OPERATIONS: [&str; 10] = [
    "docs/deploying.md",
    "docs/sizing.md",
    "docs/configuration.md",
    "docs/monitoring.md",
    "docs/metrics.md",
    "docs/alerts.md",
    "docs/upgrading.md",
    "docs/troubleshooting.md",
    "docs/extension.md",
    "docs/limits.md",
];

fn operations() -> String {
    OPERATIONS.map(read).join("\n")
}

fn shunt(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shunt")).args(arguments).output().unwrap()
}

fn help(command: &str) -> String {
    String::from_utf8(shunt(&[command, "--help-all"]).stdout).unwrap()
}

/// Returns the flags of a command: help lines that begin with a flag.
fn flags_of(command: &str) -> Vec<String> {
    let text = help(command);
    let flag = |line: &str| {
        // Continued help lines are indented further.
        let name = line.strip_prefix("      --")?;
        Some(name.split([' ', '=']).next().unwrap_or_default().to_owned())
    };
    text.lines().filter_map(flag).collect()
}

/// Names as Prometheus shows them; counters have `_total`.
fn metrics() -> BTreeSet<String> {
    let pages = proxy_pages();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let own = pages.metric_names().map(|name| {
        let text = runtime.block_on(pages.metric_page(name)).unwrap().unwrap();
        names_of(&text)
    });
    own.flatten().chain(names_in(&pages)).collect()
}

fn proxy_pages() -> Arc<Pages> {
    let sources = Sources {
        cores: Arc::new([Arc::new(CoreMetrics::new(0))]),
        control: Arc::<ControlMetrics>::default(),
        cluster: ClusterView::new().1,
        prepared: Arc::default(),
        tls: Arc::default(),
        traces: Arc::default(),
    };
    let config = tokio::sync::watch::channel(Arc::new(Config::default())).1;
    let order = tokio::sync::watch::channel(Order::Serve).1;
    let proxy = (([127, 0, 0, 1], 1).into(), None);
    let http = LocksHttp::new(proxy, None, config.clone(), order);
    Pages::new("0", vec![Admin::new(sources, config, Vec::new(), Vec::new()), http])
}

/// Names of the nodes' metrics, without those of the process.
fn node_metrics() -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let nodes = Nodes::start(NodesOptions::new(directory.path().to_owned(), listen)).unwrap();
    let names = names_in(&Pages::new("0", vec![nodes.admin()]));
    assert!(nodes.stop(Duration::from_secs(60)).is_in_time());
    names.into_iter().filter(|name| name.starts_with("shunt_store_")).collect()
}

fn names_in(pages: &Arc<Pages>) -> BTreeSet<String> {
    let names = names_of(&pages.render().unwrap());
    assert!(names.len() >= NAMES_MIN, "{names:?}");
    names
}

/// Names of the families of an OpenMetrics text.
fn names_of(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        Some(if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
    };
    text.lines().filter_map(name).collect()
}

/// Splits a text into words of letters, digits and `extra`.
fn words<'t>(text: &'t str, extra: &'static str) -> impl Iterator<Item = &'t str> {
    text.split(move |c: char| !(c.is_ascii_alphanumeric() || extra.contains(c)))
        .filter(|word| !word.is_empty())
}

fn assert_none(rule: &str, offenders: Vec<String>) {
    assert!(offenders.is_empty(), "{rule}:\n  {}", offenders.join("\n  "));
}

/// Checks that the flags and the table rows that begin with a flag are the same.
fn check_options(page: &str, text: &str, flags: &[String]) {
    let missing = flags
        .iter()
        .filter(|flag| !flag.starts_with("help") && !text.contains(&format!("| `--{flag}` |")));
    assert_none(&format!("options that the table of {page} lacks"), missing.cloned().collect());
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `--")?.split('`').next());
    let stale = rows.filter(|row| !flags.iter().any(|flag| flag == row)).map(str::to_owned);
    assert_none(&format!("options of {page} that do not exist"), stale.collect());
}

#[test]
fn every_option_is_documented_and_every_documented_option_exists() {
    let proxy = flags_of("proxy");
    assert!(proxy.len() >= NAMES_MIN, "{proxy:?}");
    check_options("docs/configuration.md", &operations(), &proxy);
    let mut node = flags_of("node");
    node.extend(flags_of("up"));
    assert!(node.len() > 10, "{node:?}");
    check_options("docs/node.md", &read("docs/node.md"), &node);
}

/// Returns the configuration file that `docs/configuration.md` shows.
fn example() -> String {
    let text = read("docs/configuration.md");
    text.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_example_file_is_valid() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("configuration.toml");
    fs::write(&path, example()).unwrap();
    let output = shunt(&["check", "--config", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn check_metrics(page: &str, text: &str, metrics: &BTreeSet<String>) {
    let known: BTreeSet<&str> = words(text, "_").collect();
    let missing = metrics.iter().filter(|name| !known.contains(name.as_str()));
    assert_none(&format!("metrics that {page} lacks"), missing.cloned().collect());
    let base = |word: &str| {
        let parts = ["_bucket", "_sum", "_count"];
        parts.iter().find_map(|part| word.strip_suffix(part)).unwrap_or(word).to_owned()
    };
    // Crates in log directives and keyspaces have the same prefix as metrics.
    let crates = ["shunt_proxy", "shunt_meta"];
    let stale = words(text, "_").filter(|word| {
        let known =
            metrics.contains(*word) || metrics.contains(&base(word)) || crates.contains(word);
        word.starts_with("shunt_") && !known
    });
    assert_none(
        &format!("metrics of {page} that do not exist"),
        stale.map(str::to_owned).collect(),
    );
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    check_metrics("docs/metrics.md", &operations(), &metrics());
    let nodes = node_metrics();
    assert!(nodes.len() > NAMES_MIN, "{nodes:?}");
    check_metrics("docs/node.md", &read("docs/node.md"), &nodes);
}

/// Pages of the dispatcher and agent, and of hand-over in the proxy.
fn handover_pages() -> [Arc<Pages>; 2] {
    let address = ([127, 0, 0, 1], 1).into();
    let dispatcher = DispatchAdmin::new(vec![Arc::default()], vec![address], "auto".to_owned());
    let agent = AgentAdmin::new(vec![Arc::default()], address, Vec::new());
    [Pages::new("0", vec![dispatcher, agent]), proxy_pages()]
}

/// In a row of the page, only the first name has the prefix. The page also explains the values of
/// labels.
#[test]
fn metrics_of_hand_over_are_documented_with_all_reasons() {
    let page = "docs/hand-over-reference.md";
    let text = read(page);
    let known: BTreeSet<&str> = words(&text, "_").collect();
    let prefixes = ["shunt_dispatch", "shunt_agent", "shunt_handover"];
    let rest = |name: &str| {
        let rest = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix))?;
        rest.starts_with('_').then(|| rest.to_owned())
    };
    let pages = handover_pages();
    let names: BTreeSet<String> =
        pages.iter().flat_map(names_in).filter(|name| rest(name).is_some()).collect();
    assert!(names.len() > 2 * NAMES_MIN, "{names:?}");
    let is_known = |name: &&String| {
        known.contains(name.as_str())
            || rest(name.as_str()).is_some_and(|rest| known.contains(rest.as_str()))
    };
    assert_none(
        &format!("metrics that {page} lacks"),
        names.iter().filter(|name| !is_known(name)).cloned().collect(),
    );
    let base = |word: &str| word.strip_suffix("_count").unwrap_or(word).to_owned();
    let stale = known.iter().filter(|word| rest(word).is_some() && !names.contains(&base(word)));
    assert_none(
        &format!("metrics of {page} that do not exist"),
        stale.map(|word| (*word).to_owned()).collect(),
    );
    let mut missing = Vec::new();
    for shown in pages.iter().map(|pages| pages.render().unwrap()) {
        for line in shown.lines().filter(|line| rest(line).is_some()) {
            let label = ["reason", "outcome", "way"]
                .iter()
                .find_map(|label| line.split_once(&format!("{label}=\"")));
            let value = label.and_then(|(_, after)| after.split('"').next()).unwrap_or_default();
            if !value.is_empty() && !known.contains(value) {
                missing.push(line.to_owned());
            }
        }
    }
    assert_none(&format!("values that {page} does not explain"), missing);
}

/// Names of the metrics of both `shunt multiget` commands.
fn multiget_metrics() -> BTreeSet<String> {
    let address = ([127, 0, 0, 1], 1).into();
    names_in(&Pages::new(
        "0",
        vec![
            SidecarAdmin::new(
                vec![Arc::default()],
                vec![(address, address)],
                shunt_multiget::mode::Mode::Cli,
            ),
            ShimAdmin::new(vec![Arc::default()], address),
        ],
    ))
}

#[test]
fn options_and_metrics_of_multiget_are_documented() {
    let page = "docs/multiget-redis-reference.md";
    let text = read(page);
    let known: BTreeSet<&str> = words(&text, "-").collect();
    for command in ["serve", "shim"] {
        let output = shunt(&["multiget", command, "--help-all"]);
        let help = String::from_utf8(output.stdout).unwrap();
        let flags =
            help.lines().filter_map(|line| line.strip_prefix("      --")?.split([' ', '=']).next());
        let flags: Vec<&str> = flags.filter(|flag| !flag.starts_with("help")).collect();
        assert!(flags.len() >= 10, "{flags:?}");
        let missing = flags.iter().filter(|flag| !known.contains(format!("--{flag}").as_str()));
        assert_none(
            &format!("options of {command} that {page} lacks"),
            missing.map(|flag| (*flag).to_owned()).collect(),
        );
    }
    let ours =
        |name: &String| name.starts_with("shunt_sidecar_") || name.starts_with("shunt_shim_");
    let metrics: BTreeSet<String> = multiget_metrics().into_iter().filter(ours).collect();
    check_metrics(page, &text, &metrics);
}

#[test]
fn every_exit_code_is_documented() {
    let text = operations();
    let mut codes = BTreeSet::new();
    for command in ["up", "proxy", "node", "lock", "locks", "fleet", "doctor", "bench", "check"] {
        let help = help(command);
        let list = help.split_once("Exit codes:\n").unwrap().1;
        let own =
            list.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u8>().ok());
        let count = codes.len();
        codes.extend(own);
        assert!(codes.len() > count || list.lines().count() > 1, "{command}: {help}");
    }
    assert!(codes.len() > 10, "{codes:?}");
    let missing = codes.iter().filter(|code| !text.contains(&format!("| `{code}` |")));
    assert_none("exit codes that docs/limits.md lacks", missing.map(u8::to_string).collect());
}

#[test]
fn the_readme_names_the_two_commands_first() {
    let text = read("README.md");
    let first_screen: Vec<&str> = text.lines().take(40).collect();
    for command in ["make run", "make test"] {
        assert!(
            first_screen.iter().any(|line| line.starts_with(command)),
            "`{command}` is not in the first screen"
        );
    }
}

/// Returns the Markdown files in the root and below `docs`.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(root(), false), (root().join("docs"), true)];
    while let Some((directory, deep)) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && deep {
                open.push((path, true));
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 8, "{found:?}");
    found
}

/// Lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Returns the anchors that GitHub makes of a document's headings.
fn anchors(text: &str) -> Vec<String> {
    let heading = |line: &str| {
        let title = line.trim_start_matches('#').strip_prefix(' ')?;
        let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        line.starts_with('#').then(|| kept.collect::<String>().to_lowercase().replace(' ', "-"))
    };
    prose(text).filter_map(|(_, line)| heading(line)).collect()
}

/// Returns the fault of a link, if any.
fn fault(from: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { from.to_owned() } else { from.parent().unwrap().join(path) };
    if !path.exists() {
        return Some(format!("{target}: no such file"));
    }
    let known = anchor.is_empty()
        || anchors(&fs::read_to_string(&path).unwrap()).iter().any(|known| known == anchor);
    (!known).then(|| format!("{target}: no such heading"))
}

#[test]
fn links_between_documents_lead_somewhere() {
    let (mut checked, mut offenders) = (0, Vec::new());
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in prose(&text) {
            for rest in line.split("](").skip(1) {
                checked += 1;
                let target = rest.split(')').next().unwrap_or_default();
                let place = path.strip_prefix(root()).unwrap().display();
                offenders.extend(
                    fault(&path, target).map(|why| format!("{place}:{}: {why}", number + 1)),
                );
            }
        }
    }
    assert!(checked > 20, "only {checked} links were found");
    assert_none("links that lead nowhere", offenders);
}

/// A page longer than this answers no question quickly.
const PAGE_LINES_MAX: usize = 250;

/// Lines of a page, without those that a test writes: a table of options is looked up, not read.
fn lines_to_read(page: &str) -> usize {
    let (mut count, mut is_generated) = (0, false);
    for line in page.lines() {
        is_generated = match line {
            "<!-- end -->" => false,
            line => is_generated || line.ends_with(", written by a test -->"),
        };
        count += usize::from(!is_generated);
    }
    count
}

#[test]
fn the_index_leads_to_every_page_and_no_page_is_long() {
    let index = read("docs/index.md");
    let (mut unlinked, mut long) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name != "index.md" && !index.contains(&format!("]({name}")) {
            unlinked.push(name.clone());
        }
        if lines_to_read(&fs::read_to_string(&path).unwrap()) > PAGE_LINES_MAX {
            long.push(name);
        }
    }
    assert_none("pages that docs/index.md does not lead to", unlinked);
    assert_none(&format!("pages of more than {PAGE_LINES_MAX} lines"), long);
}

/// Returns the part of a source file before its tests.
fn before_tests(source: &str) -> &str {
    // A declaration, `mod tests;`, has code behind it.
    let is_inline = |at: &usize| {
        let module = source[*at..].lines().find(|line| line.starts_with("mod "));
        module.is_some_and(|line| line.ends_with('{'))
    };
    let mut marks = source.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
    let end = marks.find(is_inline).unwrap_or(source.len());
    &source[..end]
}

/// Returns the thread names in a source file; a number in a name becomes `N`.
fn threads_of(source: &str) -> Vec<String> {
    // rustfmt breaks a long chain of calls before a dot.
    let lines: String = source.lines().map(|line| format!("\n{}", line.trim_start())).collect();
    let source = &lines.replace("\n.", ".");
    let starts = ["thread::Builder::new().name(", "threads::spawn("];
    // Joins a chain of calls into one line.
    let chained = |mut text: String, line: &str| {
        if !line.starts_with('.') {
            text.push('\n');
        }
        text + line
    };
    let source = source.lines().map(str::trim).fold(String::new(), chained);
    let arguments = starts.iter().flat_map(|start| source.split(start).skip(1));
    // A function that gets the name as an argument has no literal.
    let given =
        arguments.filter_map(|after| after.split([';', '|', '\n']).next()?.split('"').nth(1));
    given
        .map(|name| name.split_once('{').map_or(name.to_owned(), |(start, _)| format!("{start}N")))
        .collect()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_test = ["tests", "tests.rs", "models.rs"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !is_test {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            found.push(path);
        }
    }
}

#[test]
fn every_thread_is_in_the_list_of_threads() {
    let (mut threads, mut files) = (BTreeSet::new(), Vec::new());
    for name in [
        "admin",
        "locks-http",
        "language",
        "node",
        "proxy",
        "reactor",
        "shunt",
        "storage",
        "topology",
        "wire",
    ] {
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    for path in files {
        let source = fs::read_to_string(&path).unwrap();
        let source = before_tests(&source);
        assert!(!source.contains("thread::spawn("), "{}: a thread without a name", path.display());
        threads.extend(threads_of(source));
    }
    let list = read("docs/internals/threads.md");
    let listed = list.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let listed: BTreeSet<String> = listed.map(str::to_owned).collect();
    assert_eq!(threads, listed);
}

/// Returns the crates of this workspace in a crate's `Cargo.toml`.
fn dependencies_of(name: &str) -> BTreeSet<String> {
    let manifest = read(&format!("crates/{name}/Cargo.toml"));
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let ours = lines.filter_map(|line| line.strip_prefix("shunt-")?.split([' ', '.', '=']).next());
    ours.map(str::to_owned).collect()
}

fn in_backticks(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_table_of_crates_is_right() {
    let crates: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let text = read("docs/architecture.md");
    let table = text.split("| crate | what it is | may use |\n").nth(1).unwrap();
    let (mut listed, mut offenders) = (BTreeSet::new(), Vec::new());
    for row in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let uses = in_backticks(cells[2]);
        for name in in_backticks(cells[0]) {
            let uses: BTreeSet<String> = if cells[2].contains("all but") {
                crates.difference(&uses).filter(|used| **used != name).cloned().collect()
            } else {
                uses.clone()
            };
            let found = dependencies_of(&name);
            if uses != found {
                offenders.push(format!("{name} uses {found:?}"));
            }
            listed.insert(name);
        }
    }
    assert_eq!(listed, crates);
    assert_none("rows of the table of crates", offenders);
}
