//! Walks over everything that a core has: all its links, all its pools, all its clients.
//!
//! A client can cause events as fast as it sends, and others can have thousands of links. So only
//! the tick, a change of the ring, a request of an operator, and the end of a core may walk all of
//! them. Whatever belongs to one pool or one node is found from there.

use super::{assert_none, paths, rust_files};

/// The files with walks, the number of them, and the event that they belong to.
const WALKS: [(&str, usize, &str); 16] = [
    ("client/deadlines.rs", 4, "the tick"),
    ("client/final_errors.rs", 1, "`shunt kick`, 128 of them at a time"),
    ("client/login.rs", 2, "the tick: expire_switches"),
    ("drain.rs", 4, "the start of a drain, and the end"),
    ("fleet/forwarding/open.rs", 1, "a request for another proxy, over few links to proxies"),
    ("handover/agents.rs", 1, "the tick after a node has left the ring"),
    ("handover/links.rs", 1, "the tick"),
    ("link/client_certificate.rs", 1, "a reload"),
    ("link/lifecycle.rs", 1, "the end: close_all"),
    ("link/refusal.rs", 2, "the tick, of a pool that every node refuses"),
    ("link/renewal.rs", 2, "the tick"),
    ("link/ring.rs", 3, "a change of the ring"),
    ("link/waiting.rs", 1, "the tick"),
    ("link/watch.rs", 3, "the tick"),
    ("retry/timeouts.rs", 1, "the tick"),
    ("transactions/pause.rs", 1, "the end of a pause of the process"),
];

/// The methods that walk, by the field of the owner.
const METHODS: [(&str, &[&str]); 3] = [
    ("links", &["iter", "iter_mut", "keys"]),
    ("pools", &["iter", "iter_mut", "ids"]),
    ("clients", &["iter", "iter_mut", "slots"]),
];

/// Number of walks in a source: `core.links.iter()`, for example, or that of a parameter `links`.
fn walks(text: &str) -> usize {
    let tokens = paths::product_tokens(text);
    let is_walk = |at: &[String]| {
        let [owner, before, field, dot, method, open] = at else { return false };
        let is_of_core = before != "." || ["core", "router"].contains(&owner.as_str());
        let walks = METHODS.iter().any(|(of, all)| of == field && all.contains(&method.as_str()));
        is_of_core && dot == "." && open == "(" && walks
    };
    tokens.windows(6).filter(|at| is_walk(at)).count()
}

#[test]
fn no_event_of_one_client_walks_over_all() {
    let mut offenders = Vec::new();
    let mut known = WALKS.to_vec();
    for (path, text) in rust_files() {
        let Ok(file) = path.strip_prefix("crates/proxy/src") else { continue };
        let file = file.display().to_string();
        let found = walks(&text);
        let position = known.iter().position(|(of, ..)| *of == file);
        let allowed = position.map_or(0, |position| known.remove(position).1);
        if found != allowed {
            offenders.push(format!("{file} has {found} walks, not {allowed}"));
        }
    }
    offenders.extend(known.iter().map(|(file, ..)| format!("{file} is gone")));
    assert_none("walks over all links, pools or clients of a core", offenders);
}

#[test]
fn a_walk_is_recognised() {
    let walks_of = "fn f(core: &Core, links: &Links) { core\n.links\n.iter().any(|_| true); \
        core.router.pools.ids(); links.keys(); }";
    assert_eq!(walks(walks_of), 3);
    assert_eq!(walks("fn f(pool: &Pool) { pool.links.iter(); core.links.get(1); }"), 0);
}
