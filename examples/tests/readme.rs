//! The README shows what compiles.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

const README: &str = include_str!("../../README.md");
const EXAMPLE: &str = include_str!("../examples/embed.rs");

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).expect("no start");
    rest.split_once(end).expect("no end").0
}

#[test]
fn the_readme_quotes_the_example() {
    let quoted = between(README, "```rust\n", "```\n");
    let source = between(EXAMPLE, "// README: from here\n", "// README: to here\n");
    assert_eq!(
        quoted, source,
        "copy the part between the marks into the README"
    );
}

/// Cargo builds the examples of a package before it runs its tests.
#[test]
fn the_example_distributes_its_query() {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples/embed");
    let output = Command::new(example).output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{stdout}");
    let last = stdout.lines().last().unwrap();
    assert!(last.ends_with("streams were opened"), "{stdout}");
    assert!(!last.starts_with("0 "), "{stdout}");
}
