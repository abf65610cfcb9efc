//! `make-certificates`: what it writes, what it refuses, and a cluster that uses it.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const MAKE: &str = env!("CARGO_BIN_EXE_make-certificates");
const QUERY: &str = env!("CARGO_BIN_EXE_query");
const WORKER: &str = env!("CARGO_BIN_EXE_worker");

fn run(program: &str, dir: &Path, args: &str) -> Output {
    Command::new(program)
        .args(args.split_whitespace())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn make(dir: &Path, args: &str) -> String {
    let output = run(MAKE, dir, args);
    assert!(output.status.success(), "{args}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn files(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn keys_are_for_their_owner_alone_and_the_table_says_where_files_go() {
    let dir = tempfile::tempdir().unwrap();
    let table = make(
        dir.path(),
        "--out certs --name worker1.example --name 10.0.0.5,worker2.example --days 2",
    );
    let out = dir.path().join("certs");
    let expected = [
        "10.0.0.5.key",
        "10.0.0.5.pem",
        "ca.key",
        "ca.pem",
        "worker1.example.key",
        "worker1.example.pem",
    ];
    assert_eq!(files(&out), expected);
    for name in expected {
        let mode = fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            mode & 0o077 == 0,
            name.ends_with(".key"),
            "{name}: {mode:o}"
        );
        assert!(table.contains(&format!("certs/{name}")), "{table}");
    }
    let line = |words: &[&str]| {
        let has_all = |line: &&str| words.iter().all(|words| line.contains(words));
        assert!(table.lines().any(|it| has_all(&it)), "{words:?}: {table}");
    };
    line(&["certs/ca.pem", "every worker and client", "--tls-ca"]);
    line(&["certs/ca.key", "keep it safe"]);
    line(&[
        "certs/10.0.0.5.pem",
        "10.0.0.5, worker2.example",
        "--tls-cert",
    ]);
    line(&["certs/worker1.example.key", "worker1.example", "--tls-key"]);
}

#[test]
fn json_is_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    let json = make(dir.path(), "--out certs --name a --format json");
    let json: Value = serde_json::from_str(&json).unwrap();
    let written: Vec<_> = json.as_array().unwrap().iter().collect();
    assert_eq!(written.len(), 4);
    for file in &written {
        assert!(dir.path().join(file["file"].as_str().unwrap()).exists());
        assert_eq!(file["new"], true);
    }
    assert_eq!(written[3]["option"], "--tls-key");
    assert_eq!(written[3]["secret"], true);
    assert_eq!(written[3]["host"], "a");
    // What is signed later brings no CA of its own.
    let json = make(dir.path(), "--ca certs --out more --name b --format json");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["file"], "certs/ca.pem");
    assert_eq!(json[0]["new"], false);
    assert_eq!(files(&dir.path().join("more")), ["b.key", "b.pem"]);
}

#[test]
fn what_is_wrong_leaves_everything_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), "--out certs --name a");
    make(dir.path(), "--out other --name a");
    fs::copy(
        dir.path().join("certs/ca.pem"),
        dir.path().join("other/ca.pem"),
    )
    .unwrap();
    let read = |name| fs::read(dir.path().join(name)).unwrap();
    let before = (read("certs/ca.key"), read("certs/a.key"));
    for (args, words) in [
        ("--out certs --name b", "certs/ca.pem is there already"),
        (
            "--ca certs --out certs --name a",
            "certs/a.pem is there already",
        ),
        (
            "--ca certs --out certs --name b --name a",
            "certs/a.pem is there already",
        ),
        (
            "--ca certs --out new --name b --name b",
            "two certificates would be new/b.pem",
        ),
        (
            "--out new --name ca",
            "two certificates would be new/ca.pem",
        ),
        ("--ca nowhere --out new --name b", "nowhere/ca.pem"),
        (
            "--ca other --out new --name b",
            "is the key that of the certificate",
        ),
        ("--out new --name b:8080", "`b:8080`"),
        ("--out new --name b --days 0", "--days"),
        ("--out new", "--name"),
    ] {
        let output = run(MAKE, dir.path(), args);
        assert_eq!(output.status.code(), Some(2), "{args}: {}", stderr(&output));
        assert!(
            stderr(&output).contains(words),
            "{args}: {}",
            stderr(&output)
        );
    }
    assert_eq!(before, (read("certs/ca.key"), read("certs/a.key")));
    assert_eq!(files(&dir.path().join("certs")).len(), 4);
    assert!(!dir.path().join("new").exists());
}

#[test]
fn the_help_has_examples_and_exit_codes() {
    let help = make(Path::new("."), "--help");
    for words in ["Examples:", "Exit codes: 0", "--tls-ca certs/ca.pem"] {
        assert!(help.contains(words), "{help}");
    }
}

/// Two workers that let in each other and the coordinator, and nobody else whom the CA signed.
struct Cluster {
    dir: TempDir,
    kind: &'static str,
    urls: String,
    _workers: Vec<Worker>,
}

struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Cluster {
    fn start(kind: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let csv = (0..10_000).map(|row| format!("{},{row}\n", row % 7));
        let csv = format!("a,b\n{}", csv.collect::<String>());
        fs::create_dir(dir.path().join("table")).unwrap();
        for file in ["table/1.csv", "table/2.csv", "table/3.csv"] {
            fs::write(dir.path().join(file), &csv).unwrap();
        }
        make(
            dir.path(),
            "--out certs --name worker1,127.0.0.1 --name coordinator --name stranger",
        );
        // One that came later.
        make(
            dir.path(),
            "--ca certs --out certs --name worker2,127.0.0.1",
        );
        let started = ["worker1", "worker2"].map(|name| start_worker(dir.path(), kind, name));
        let (workers, urls): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        Self {
            dir,
            kind,
            urls: urls.join(","),
            _workers: workers,
        }
    }

    /// Runs a query with the certificate in these files, or without one.
    fn query(&self, name: Option<&str>, options: &str) -> Output {
        let identity = name.map_or(String::new(), |name| {
            format!("--tls-cert certs/{name}.pem --tls-key certs/{name}.key")
        });
        let args = format!(
            "--workers {} --transport {} {identity} {options} --stats --table t={} \
             --set distributed.file_scan_config_bytes_per_partition=1 --file query.sql",
            self.urls,
            self.kind,
            self.dir.path().join("table").display()
        );
        let sql = "select a, count(*) as n from t group by a order by a";
        fs::write(self.dir.path().join("query.sql"), sql).unwrap();
        run(QUERY, self.dir.path(), &args)
    }
}

fn start_worker(dir: &Path, kind: &str, name: &str) -> (Worker, String) {
    let args = format!(
        "--listen 127.0.0.1:0 --transports {kind} --mutual-tls --tls-ca certs/ca.pem \
         --allow-clients worker1,worker2,coordinator \
         --tls-cert certs/{name}.pem --tls-key certs/{name}.key"
    );
    let mut child = Command::new(WORKER)
        .args(args.split_whitespace())
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let worker = Worker(child);
    stdout.read_line(&mut ready).unwrap();
    let url = ready.trim().strip_prefix("ready ").expect("no worker");
    (worker, url.to_owned())
}

fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
    assert!(stderr(output).contains("on workers"), "{}", stderr(output));
    let rows = String::from_utf8_lossy(&output.stdout);
    assert!(rows.contains("| 6 | 4284 |"), "{rows}");
}

fn fails(output: &Output, words: &str) {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    assert!(
        stderr(output).contains("http://127.0.0.1:"),
        "{}",
        stderr(output)
    );
    assert!(stderr(output).contains(words), "{}", stderr(output));
}

fn a_cluster_lets_in_whom_it_lists(kind: &'static str) {
    let cluster = Cluster::start(kind);
    let ca = "--tls-ca certs/ca.pem";
    succeeds(&cluster.query(Some("coordinator"), ca));
    fails(
        &cluster.query(Some("stranger"), ca),
        "does not let this side in",
    );
    fails(&cluster.query(None, ca), "requires a client certificate");
    // Not the workers' names.
    let other = format!("{ca} --tls-server-name worker9");
    fails(&cluster.query(Some("coordinator"), &other), "worker9");
}

fn a_cluster_with_another_ca_is_refused_unless_in_danger(kind: &'static str) {
    let cluster = Cluster::start(kind);
    make(cluster.dir.path(), "--out other --name x");
    let other = cluster.query(Some("coordinator"), "--tls-ca other/ca.pem");
    fails(&other, "not signed by a CA that this side trusts");
    let danger = cluster.query(Some("coordinator"), "--danger-without-verification");
    succeeds(&danger);
    assert!(stderr(&danger).contains("VERIFICATION OF WORKERS IS OFF"));
}

mod quic {
    #[test]
    fn a_cluster_lets_in_whom_it_lists() {
        super::a_cluster_lets_in_whom_it_lists("quic");
    }

    #[test]
    fn a_cluster_with_another_ca_is_refused_unless_in_danger() {
        super::a_cluster_with_another_ca_is_refused_unless_in_danger("quic");
    }
}

mod tcp_tls {
    #[test]
    fn a_cluster_lets_in_whom_it_lists() {
        super::a_cluster_lets_in_whom_it_lists("tcp-tls");
    }

    #[test]
    fn a_cluster_with_another_ca_is_refused_unless_in_danger() {
        super::a_cluster_with_another_ca_is_refused_unless_in_danger("tcp-tls");
    }
}
