//! The documents name what there is: every case, and no other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use datafusion_transport_tests::{Case, channel, cluster, connection};
use std::collections::BTreeSet;

const CONTRACT: &str = include_str!("../../docs/contract.md");
const LIMITS: &str = include_str!("../../docs/limits.md");

/// The part of the document under a heading.
fn section(heading: &str) -> &'static str {
    let (_, section) = CONTRACT
        .split_once(&format!("\n{heading}\n"))
        .expect(heading);
    let level = heading.split(' ').next().unwrap();
    section.split(&format!("\n{level} ")).next().unwrap()
}

/// What is written as `group::name`.
fn named(text: &str) -> BTreeSet<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let cases = quoted.filter(|name| name.contains("::") && !name.contains(' '));
    let cases = cases.filter(|name| !name.starts_with("datafusion_"));
    cases.map(str::to_owned).collect()
}

fn paths<H: ?Sized>(cases: &[Case<H>]) -> BTreeSet<String> {
    cases
        .iter()
        .map(|case| format!("{}::{}", case.group, case.name))
        .collect()
}

fn levels() -> [(&'static str, &'static str, BTreeSet<String>); 3] {
    [
        ("## Connection", "### connection", paths(connection::CASES)),
        ("## Channel", "### channel", paths(channel::CASES)),
        ("## Cluster", "### cluster", paths(cluster::CASES)),
    ]
}

/// Each rule of the contract has its cases, and each case its rule.
#[test]
fn every_case_belongs_to_a_rule() {
    for (prose, _, cases) in levels() {
        assert_eq!(named(section(prose)), cases, "{prose}");
    }
}

/// The table is that of the cases there are.
#[test]
fn every_case_is_in_the_report() {
    for (_, table, cases) in levels() {
        assert_eq!(named(section(table)), cases, "{table}");
    }
    assert!(
        !section("## Report").contains("FAIL"),
        "the report in the document shows failures"
    );
}

const OPERATIONS: &str = include_str!("../../docs/operations.md");

/// Where the texts of errors are made.
const ERRORS: &[&str] = &[
    include_str!("../../transport-core/src/tls/failure.rs"),
    include_str!("../../transport-core/src/tls/pem.rs"),
    include_str!("../../transport-core/src/tls/reloading.rs"),
    include_str!("../../transport-quic/src/connector.rs"),
    include_str!("../../transport-tcp/src/connector.rs"),
];

/// What the document says that errors say, they say.
#[test]
fn the_errors_of_certificates_are_the_documented_ones() {
    let (_, table) = OPERATIONS.split_once("| the error says |").unwrap();
    let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let rows = table.lines().skip(2).map_while(|row| row.strip_prefix('|'));
    let documented = rows.flat_map(|row| quoted(row.split('|').next().unwrap()));
    let documented: Vec<_> = documented.collect();
    assert!(documented.len() > 15, "{documented:?}");
    for text in documented {
        let text = text.trim_end_matches(" …");
        let said = ERRORS.iter().any(|source| unwrapped(source).contains(text));
        assert!(said, "no error says `{text}`");
    }
}

/// A literal over several lines is one line.
fn unwrapped(source: &str) -> String {
    let lines = source.split("\\\n").map(str::trim_start);
    lines.collect()
}

/// Each limit has the test that its row names.
#[test]
fn every_limit_has_its_test() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let rows = LIMITS.lines().filter(|line| line.starts_with("| "));
    let rows = rows.filter(|line| !line.starts_with("| limit "));
    let mut tests = 0;
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        if cell.starts_with("none") {
            continue;
        }
        let quoted: Vec<_> = cell.split('`').skip(1).step_by(2).collect();
        let [file, test] = quoted[..] else {
            panic!("{cell} is no file and test");
        };
        let code = std::fs::read_to_string(root.join(file)).expect(file);
        assert!(code.contains(&format!("fn {test}(")), "no {test} in {file}");
        tests += 1;
    }
    assert!(tests > 30, "{tests}");
}
