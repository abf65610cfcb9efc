//! Tables that a user names on the command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use datafusion::prelude::{CsvReadOptions, ParquetReadOptions, SessionContext};

use crate::program::usage;

/// A file, or a directory of files, under the name that SQL calls it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The table's name in SQL.
    pub name: String,
    /// A Parquet or CSV file, or a directory of such files.
    pub path: PathBuf,
}

impl Table {
    /// Parses `name=path`.
    ///
    /// # Errors
    /// A sentence that says what would be accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, path)) if !name.trim().is_empty() && !path.is_empty() => Ok(Self {
                name: name.trim().to_owned(),
                path: path.into(),
            }),
            _ => Err("expected name=path, such as trips=/data/trips.parquet".to_owned()),
        }
    }

    /// Finds the table's files without reading them.
    ///
    /// # Errors
    /// When there is no such file, or it is neither Parquet nor CSV.
    pub fn check(&self) -> Result<()> {
        self.locate().map(drop)
    }

    /// Makes the table known to `session`, under its absolute path, which is what workers get.
    ///
    /// # Errors
    /// As [`Table::check`], or when the files cannot be read.
    pub async fn register(&self, session: &SessionContext) -> Result<()> {
        let shown = self.path.display();
        let (path, extension) = self.locate()?;
        let location = path
            .to_str()
            .with_context(|| format!("{shown} is not valid UTF-8"))?;
        let dotted = format!(".{extension}");
        let describe = || format!("cannot read table {} from {shown}", self.name);
        match extension.eq_ignore_ascii_case("csv") {
            true => {
                let options = CsvReadOptions::new().file_extension(&dotted);
                session
                    .register_csv(&self.name, location, options)
                    .await
                    .with_context(describe)
            }
            false => {
                let options = ParquetReadOptions {
                    file_extension: &dotted,
                    ..Default::default()
                };
                session
                    .register_parquet(&self.name, location, options)
                    .await
                    .with_context(describe)
            }
        }
    }

    /// The absolute path, and the extension of the files.
    fn locate(&self) -> Result<(PathBuf, String)> {
        let wrong = |what: &str| {
            usage(format!(
                "--table {}={}: {what}",
                self.name,
                self.path.display()
            ))
        };
        let path = self
            .path
            .canonicalize()
            .map_err(|error| wrong(&error.to_string()))?;
        let extension = data_extension(&path)
            .ok_or_else(|| wrong("expected a .parquet or .csv file, or a directory of them"))?;
        Ok((path, extension))
    }
}

/// The extension of the file, or of the first data file in the directory.
fn data_extension(path: &Path) -> Option<String> {
    let of_file = |path: &Path| {
        let extension = path.extension()?.to_str()?;
        ["parquet", "csv"]
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
            .then(|| extension.to_owned())
    };
    match path.is_dir() {
        false => of_file(path),
        true => {
            let mut files: Vec<_> = path.read_dir().ok()?.flatten().map(|e| e.path()).collect();
            files.sort();
            files.iter().find_map(|file| of_file(file))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::execution;

    #[test]
    fn parses_name_and_path() {
        let table = Table {
            name: "t".to_owned(),
            path: "/a=b.csv".into(),
        };
        assert_eq!(Table::parse("t=/a=b.csv"), Ok(table));
        for bad in ["", "t", "t=", "=x"] {
            assert!(Table::parse(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn reads_csv_files_and_directories() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("t.CSV");
        fs::write(&file, "a,b\n1,x\n2,y\n")?;
        let session = SessionContext::new();
        Table {
            name: "file".to_owned(),
            path: file,
        }
        .register(&session)
        .await?;
        Table {
            name: "dir".to_owned(),
            path: dir.path().into(),
        }
        .register(&session)
        .await?;
        let both = "select * from file union all select * from dir";
        assert_eq!(execution::run(&session, both).await?.row_count(), 4);
        Ok(())
    }

    #[tokio::test]
    async fn says_what_is_wrong_with_a_path() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let session = SessionContext::new();
        let missing = Table {
            name: "t".to_owned(),
            path: dir.path().join("no.parquet"),
        };
        assert!(missing.register(&session).await.is_err());
        let empty = Table {
            name: "t".to_owned(),
            path: dir.path().into(),
        };
        let error = empty
            .register(&session)
            .await
            .err()
            .map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("expected a .parquet or .csv")));
        Ok(())
    }
}
