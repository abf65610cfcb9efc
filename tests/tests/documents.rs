//! The documents name what there is: every case, and no other.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use datafusion_transport_tests::{Case, channel, cluster, connection};
use std::collections::BTreeSet;

const CONTRACT: &str = include_str!("../../docs/contract.md");

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
