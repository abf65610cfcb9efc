//! The programs as a user calls them: exit codes, output for machines, signals.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Unoptimised builds on busy machines are slow.
const SOON: Duration = Duration::from_secs(60);

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const QUERY: &str = env!("CARGO_BIN_EXE_query");
const LOCAL_CLUSTER: &str = env!("CARGO_BIN_EXE_local-cluster");

/// A place for what the programs write, which is to be empty at their end.
struct Sandbox {
    temporary: TempDir,
    data: TempDir,
}

impl Sandbox {
    /// With a table `t` that is large enough to be distributed by `local-cluster`.
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        for file in 0..3 {
            let mut csv = "a,b\n".to_owned();
            for row in 0..10_000 {
                writeln!(csv, "{},{row}", row % 7).unwrap();
            }
            fs::write(data.path().join(format!("{file}.csv")), csv).unwrap();
        }
        let temporary = tempfile::tempdir().unwrap();
        Self { temporary, data }
    }

    fn table(&self) -> String {
        format!("t={}", self.data.path().display())
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("TMPDIR", self.temporary.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, args: &[&str]) -> Output {
        self.command(program, args).output().unwrap()
    }

    fn start(&self, program: &str, args: &[&str]) -> Running {
        let mut command = self.command(program, args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Running {
            child,
            stdout,
            stderr,
        }
    }
}

/// A program that is killed with the test.
struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    /// A few lines, which fit into its pipe unread.
    stderr: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
    }

    /// The exit code and the rest of the output.
    fn end(mut self) -> (Option<i32>, String) {
        eventually("end", || self.child.try_wait().unwrap().is_some());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < SOON, "no {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The help documents exit codes, and these are they.
#[test]
fn exit_codes() {
    let sandbox = Sandbox::new();
    let workers = ["--workers", "127.0.0.1:1,127.0.0.1:2", "--transport=grpc"];
    let query = |sql| [&workers[..], &[sql]].concat();
    let unknown_kind = [&workers[..], &["--set", "transport.kind=x", "select 1"]].concat();
    let table = sandbox.table();
    let with_q3 = ["--table", &table, "--query", "3"];
    for (program, args, code, says) in [
        (QUERY, &query("select 1")[..], 0, "no worker was asked"),
        (QUERY, &query("select x"), 1, "x"),
        (QUERY, &query("selec 1"), 2, "cannot parse"),
        (
            QUERY,
            &unknown_kind,
            2,
            "quic, tcp, tcp-tls, unix, auto, grpc",
        ),
        (
            WORKER,
            &["--listen", "127.0.0.1:0", "--ready-file", "/no/x"],
            1,
            "/no/x",
        ),
        (
            WORKER,
            &["--transports", "smoke"],
            2,
            "quic, tcp, tcp-tls, unix, auto, grpc",
        ),
        (
            LOCAL_CLUSTER,
            &["--table", &table, "select x from t"],
            1,
            "x",
        ),
        (LOCAL_CLUSTER, &["--workers", "0"], 2, "at least 1"),
        (
            LOCAL_CLUSTER,
            &["--set", "transport.foo=1"],
            2,
            "transport.kind",
        ),
        (LOCAL_CLUSTER, &with_q3, 2, "leave out --table"),
    ] {
        let output = sandbox.run(program, args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    for program in [QUERY, WORKER, LOCAL_CLUSTER] {
        let help = sandbox.run(program, &["--help"]);
        assert!(text(&help.stdout).contains("Exit codes: 0"), "{program}");
    }
}

/// Both servers' errors say where they come from, and a gRPC worker needs no certificate.
#[test]
fn an_error_names_its_worker() {
    let sandbox = Sandbox::new();
    let serve = ["--listen", "127.0.0.1:0"];
    let mut workers = [0, 1].map(|_| sandbox.start(WORKER, &serve));
    let urls = workers
        .each_mut()
        .map(|worker| worker.line().trim().replace("ready ", ""));
    for kind in ["quic", "tcp", "auto", "grpc"] {
        let output = sandbox.run(
            QUERY,
            &[
                "--workers",
                &urls.join(","),
                "--transport",
                kind,
                "--set",
                "distributed.file_scan_config_bytes_per_partition=1",
                "--table",
                &sandbox.table(),
                "select a, 1 / (b - b) from t",
            ],
        );
        let stderr = text(&output.stderr);
        let named = |url: &String| stderr.contains(&format!("the worker at {url} failed"));
        assert_eq!(output.status.code(), Some(1), "{kind}: {stderr}");
        assert!(urls.iter().any(named), "{kind}: {stderr}");
        let warnings = stderr.matches("DEVELOPMENT CERTIFICATE").count();
        assert_eq!(
            warnings,
            usize::from(["quic", "auto"].contains(&kind)),
            "{kind}: {stderr}"
        );
    }
    for worker in workers {
        worker.signal("TERM");
        assert_eq!(worker.end().0, Some(0));
    }
}

#[test]
fn json_is_a_line_per_statement() {
    let sandbox = Sandbox::new();
    let sql = "select 1 as a; set transport.kind = 'grpc'; show transport.kind";
    let args = [
        "--workers",
        "127.0.0.1:1",
        "--transport=grpc",
        "--format=json",
        sql,
    ];
    let output = sandbox.run(QUERY, &args);
    assert_eq!(
        text(&output.stdout),
        "[{\"a\":1}]\n[{\"name\":\"transport.kind\",\"value\":\"grpc\"}]\n"
    );
}

#[test]
fn a_comparison_is_one_document() {
    let sandbox = Sandbox::new();
    let table = sandbox.table();
    let compare = |format| {
        let args = ["--compare", "--format", format, "--table", &table];
        let sql = ["select a, count(*) from t group by a"];
        let output = sandbox.run(LOCAL_CLUSTER, &[&args[..], &sql].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let json: Value = serde_json::from_str(&compare("json")).unwrap();
    assert_eq!(json["queries"][0]["distributed"], true);
    let csv = compare("csv");
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "query,rows,single_ms,quic_ms,tcp_ms,tcp-tls_ms,unix_ms,auto_ms,grpc_ms,equal"
    );
    assert!(
        lines[1].starts_with("sql,7,") && lines[1].ends_with(",true"),
        "{csv}"
    );
    assert_eq!(names(sandbox.temporary.path()), [""; 0]);
}

/// All 22 TPC-H queries, on a single node and over every transport, worker processes included. Each query has the
/// program's own limit of time.
#[test]
fn every_transport_gives_the_rows_of_a_single_node() {
    let sandbox = Sandbox::new();
    let data = sandbox.data.path().join("tpch");
    let args = ["--compare", "--scale", "0.01", "--format", "json", "--data"];
    let args = [&args[..], &[data.to_str().unwrap()]].concat();
    let output = sandbox.run(LOCAL_CLUSTER, &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let queries = report["queries"].as_array().unwrap();
    assert_eq!(queries.len(), 22);
    for query in queries {
        assert_eq!(query["equal"], true, "{query}");
        let times = query["ms"].as_object().unwrap();
        for engine in ["single", "quic", "tcp", "tcp-tls", "unix", "auto", "grpc"] {
            assert!(times[engine].is_number(), "{engine}: {query}");
        }
    }
}

/// A program that starts the cluster learns at once how to reach it, and the cluster leaves nothing.
#[test]
fn a_served_cluster_says_how_to_reach_it_and_ends_on_sigterm() {
    let sandbox = Sandbox::new();
    let table = sandbox.table();
    let sql = "select a, count(*) from t group by a";
    let args = ["--serve", "--format=json", "--table", &table, sql];
    let mut cluster = sandbox.start(LOCAL_CLUSTER, &args);
    let ready: Value = serde_json::from_str(&cluster.line()).unwrap();
    assert_eq!(ready["workers"].as_array().unwrap().len(), 3);
    let dir = ready["dev_tls"].as_str().unwrap();
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode(Path::new(dir)), 0o700);
    assert_eq!(mode(&Path::new(dir).join("dev-key.pem")), 0o600);

    let command = ready["query_command"].as_array().unwrap();
    let mut words: Vec<_> = command.iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(words.remove(0), "query");
    words.extend(["--stats", sql]);
    let output = sandbox.run(QUERY, &words);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("on workers") && !stderr.contains("no worker"),
        "{stderr}"
    );

    let mut notes = cluster.stderr.by_ref().lines();
    assert!(notes.any(|line| line.unwrap().contains("the workers stay")));
    cluster.signal("TERM");
    let (code, rest) = cluster.end();
    assert_eq!(code, Some(0));
    let report: Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(report["queries"][0]["row_count"], 7);
    assert_eq!(names(sandbox.temporary.path()), [""; 0]);
}

#[test]
fn an_interrupted_cluster_leaves_nothing() {
    let sandbox = Sandbox::new();
    let table = sandbox.table();
    let endless = "select count(*) from t x, t y, t z where x.b <> y.b + z.b";
    for signal in ["INT", "TERM"] {
        let cluster = sandbox.start(LOCAL_CLUSTER, &["--table", &table, endless]);
        let temporary = sandbox.temporary.path();
        let has_key = || {
            let mut dirs = names(temporary).into_iter();
            dirs.any(|dir| temporary.join(dir).join("dev-key.pem").exists())
        };
        eventually("key", has_key);
        cluster.signal(signal);
        assert_eq!(cluster.end().0, Some(130), "{signal}");
        assert_eq!(names(temporary), [""; 0], "{signal}");
    }
}

#[test]
fn interrupted_generation_leaves_nothing() {
    let sandbox = Sandbox::new();
    let data = sandbox.temporary.path().join("tpch");
    let args = ["--scale", "50", "--data", data.to_str().unwrap()];
    let cluster = sandbox.start(LOCAL_CLUSTER, &args);
    eventually("data", || data.is_dir() && !names(&data).is_empty());
    cluster.signal("INT");
    assert_eq!(cluster.end().0, Some(130));
    assert_eq!(names(&data), [""; 0]);
}
