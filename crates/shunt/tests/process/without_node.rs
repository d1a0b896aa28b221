//! A build without the embedded node: its proxy works as usual, and commands for a node say what to
//! do.

use crate::support::output;

#[test]
fn a_build_without_the_node_lists_neither_node_nor_up_and_says_how_to_get_them() {
    let (code, help, _) = output(&["--help"]);
    assert_eq!(code, 0);
    let (commands, _) = help.split_once("Options:\n").expect("commands before options");
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    let expected = "proxy check top clients nodes slow queries hot config log-level kick reload fleet \
                    doctor lock locks dispatch agent switch multiget generate bench help";
    assert_eq!(names.join(" "), expected, "{help}");
    assert!(!help.contains("shunt up") && !help.contains("shunt node"), "{help}");
    for arguments in [
        &["node", "--data", "somewhere"][..],
        &["node", "check", "somewhere"],
        &["node", "--help"],
        &["up"],
        &["up", "--nodes", "2"],
    ] {
        let (code, said, complained) = output(arguments);
        assert_eq!((code, said.as_str()), (2, ""), "{arguments:?}: {complained}");
        for part in [
            &format!("`shunt {}`", arguments[0]),
            "embedded node",
            "default features",
            "shunt proxy",
        ] {
            assert!(complained.contains(part), "{arguments:?}: {part} is not in {complained}");
        }
    }
    assert!(output(&["--version", "-v"]).1.contains("embedded node: no"));
}
