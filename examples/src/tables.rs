//! Tables that a user names on the command line.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use datafusion::prelude::{CsvReadOptions, ParquetReadOptions, SessionContext};
use parquet::file::metadata::ParquetMetaDataReader;

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

    /// Finds the table's files, and looks whether they are what their names say.
    ///
    /// # Errors
    /// When there is no such file, it is neither Parquet nor CSV, or a directory holds both.
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
        match is_csv(&extension) {
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
        let files = data_files(&path).map_err(|error| wrong(&error.to_string()))?;
        let Some((first, extension)) = files.first() else {
            return Err(wrong(
                "expected a .parquet or .csv file, or a directory of them",
            ));
        };
        // The engine would read the files of one extension and leave out the others.
        if let Some((other, _)) = files.iter().find(|(_, other)| other != extension) {
            return Err(wrong(&format!(
                "holds files of two kinds, {} and {}: put them into two directories, for two tables",
                first.display(),
                other.display()
            )));
        }
        for (file, _) in &files {
            check_file(file, extension)
                .map_err(|error| wrong(&format!("{}: {error}", file.display())))?;
        }
        Ok((path, extension.clone()))
    }
}

/// Finds out whether a file is Parquet at all, where its name says so: the engine would leave out an
/// empty one, and not say which one it cannot read.
fn check_file(file: &Path, extension: &str) -> Result<()> {
    if is_csv(extension) {
        return Ok(());
    }
    let file = File::open(file)?;
    ensure!(file.metadata()?.len() > 0, "the file is empty");
    ParquetMetaDataReader::new().parse_and_finish(&file)?;
    Ok(())
}

fn is_csv(extension: &str) -> bool {
    extension.eq_ignore_ascii_case("csv")
}

/// The file, or all data files in the directory and those in it, each with its extension, sorted.
fn data_files(path: &Path) -> std::io::Result<Vec<(PathBuf, String)>> {
    let (mut files, mut pending) = (Vec::new(), vec![path.to_owned()]);
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            for entry in path.read_dir()? {
                let entry = entry?;
                // A link to a directory may lead back to where it is.
                if !(entry.file_type()?.is_symlink() && entry.path().is_dir()) {
                    pending.push(entry.path());
                }
            }
        } else if let Some(extension) = data_extension(&path) {
            files.push((path, extension));
        }
    }
    files.sort();
    Ok(files)
}

fn data_extension(file: &Path) -> Option<String> {
    let extension = file.extension()?.to_str()?;
    let is_known = is_csv(extension) || extension.eq_ignore_ascii_case("parquet");
    is_known.then(|| extension.to_owned())
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

    #[test]
    fn names_the_file_that_is_wrong() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let table = Table {
            name: "t".to_owned(),
            path: dir.path().into(),
        };
        let error = || {
            table
                .check()
                .err()
                .map_or_else(String::new, |e| e.to_string())
        };
        fs::create_dir(dir.path().join("sub"))?;
        fs::write(dir.path().join("sub/empty.parquet"), "")?;
        assert!(
            error().contains("sub/empty.parquet: the file is empty"),
            "{}",
            error()
        );
        fs::write(
            dir.path().join("sub/empty.parquet"),
            "PAR1 and no more of it",
        )?;
        assert!(error().contains("sub/empty.parquet: "), "{}", error());
        fs::write(dir.path().join("a.csv"), "a\n1\n")?;
        assert!(error().contains("files of two kinds"), "{}", error());
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
