//! [`Samples`]: what was measured, as it is kept between `cargo bench` and `bench-report`.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// One round of one subject.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Time that passed, in seconds.
    pub wall_s: f64,
    /// CPU time of the whole process in that time, in seconds: both ends, and the kernel's work for them.
    pub cpu_s: f64,
    /// Most memory that the process held beyond what it held before, in bytes; 0 where that was not measured.
    #[serde(default)]
    pub peak_bytes: u64,
}

/// All rounds of one subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// The subject's name.
    pub subject: String,
    /// In the order of the rounds: sample `i` of every subject was taken in round `i`.
    pub samples: Vec<Sample>,
}

/// All that is known of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Samples {
    /// The scenario's name.
    pub scenario: String,
    /// Bytes that one sample moved; 0 where time is the figure.
    pub bytes: u64,
    /// Messages that one sample moved.
    pub messages: u64,
    /// Streams that one sample opened.
    pub streams: u64,
    /// By subject.
    pub series: Vec<Series>,
}

impl Samples {
    /// A subject's series.
    pub fn of(&self, subject: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.subject == subject)
    }

    /// Keeps them in `dir`, in place of older ones.
    ///
    /// # Errors
    /// Where the file can't be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
        let path = dir.join(format!("{}.json", self.scenario.replace([' ', '/'], "-")));
        let text = serde_json::to_string(self)?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// All that are kept in `dir`.
    ///
    /// # Errors
    /// Where there are none, or a file is something else.
    pub fn load_all(dir: &Path) -> Result<Vec<Self>> {
        let hint = || format!("reading {}: run `cargo bench` first", dir.display());
        let mut all = vec![];
        for entry in fs::read_dir(dir).with_context(hint)? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let text = fs::read_to_string(&path)?;
                let samples = serde_json::from_str(&text);
                all.push(samples.with_context(|| format!("{} has no samples", path.display()))?);
            }
        }
        anyhow::ensure!(
            !all.is_empty(),
            "{} is empty: run `cargo bench` first",
            dir.display()
        );
        all.sort_by(|a: &Self, b| a.scenario.cmp(&b.scenario));
        Ok(all)
    }
}

/// Where samples are kept by default: below the build directory of the running program.
pub fn default_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let mut above = program.ancestors();
    let built = above.find(|dir| dir.join("CACHEDIR.TAG").exists());
    built
        .unwrap_or(Path::new("target"))
        .join("transport-benches")
}
