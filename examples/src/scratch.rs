//! Temporary directories that do not outlast their program by much.

use std::{
    fs::{self, File},
    io,
    path::Path,
    time::Duration,
};

use tempfile::TempDir;

/// Younger directories are left alone: their owner may not have come to lock them yet.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// A directory that only this user can read. Dropping it deletes it; should this process be killed,
/// the next one with the same parent and prefix does.
pub(crate) struct Scratch {
    dir: TempDir,
    /// Held while this process lives.
    _lock: Option<File>,
}

impl Scratch {
    /// Creates a directory in `parent`, and deletes what dead processes left there under `prefix`.
    ///
    /// # Errors
    /// When `parent` cannot be written.
    pub(crate) fn create(parent: &Path, prefix: &str) -> io::Result<Self> {
        sweep(parent, prefix);
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let dir = builder.prefix(prefix).tempdir_in(parent)?;
        // Where directories cannot be locked, none is ever taken for stale.
        let lock = lock(dir.path()).ok();
        Ok(Self { dir, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Gives it its final name, under which it stays.
    ///
    /// # Errors
    /// When it cannot be renamed; it's deleted then.
    pub(crate) fn publish(self, target: &Path) -> io::Result<()> {
        fs::rename(self.dir.path(), target)?;
        // Moved away: nothing is left for the guard to delete.
        let _moved = self.dir.keep();
        Ok(())
    }
}

fn lock(dir: &Path) -> io::Result<File> {
    let file = File::open(dir)?;
    file.try_lock()?;
    Ok(file)
}

fn sweep(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let named = entry.file_name().to_string_lossy().starts_with(prefix);
        if named && is_stale(&entry).unwrap_or(false) && lock(&entry.path()).is_ok() {
            // Another user's, or one that another process sweeps as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_stale(entry: &fs::DirEntry) -> io::Result<bool> {
    // Of the entry itself: a link is never followed.
    let metadata = entry.metadata()?;
    let age = metadata.modified()?.elapsed().unwrap_or_default();
    Ok(metadata.is_dir() && age > STALE_AFTER)
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn make_old(dir: &Path) -> io::Result<()> {
        File::open(dir)?.set_modified(SystemTime::now() - 2 * STALE_AFTER)
    }

    #[test]
    fn only_what_the_dead_left_is_swept() -> io::Result<()> {
        let parent = tempfile::tempdir()?;
        let dir = |name: &str| parent.path().join(name);
        for name in ["x-dead", "x-young", "y-other"] {
            fs::create_dir(dir(name))?;
        }
        let live = Scratch::create(parent.path(), "x-")?;
        for old in [&dir("x-dead"), &dir("y-other"), live.path()] {
            make_old(old)?;
        }
        let next = Scratch::create(parent.path(), "x-")?;
        assert!(!dir("x-dead").exists());
        assert!(dir("x-young").exists() && dir("y-other").exists() && live.path().exists());
        drop((live, next));
        assert_eq!(fs::read_dir(parent.path())?.count(), 2);
        Ok(())
    }

    #[test]
    fn nobody_else_can_read_it_and_it_can_stay() -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir()?;
        let scratch = Scratch::create(parent.path(), "x-")?;
        let mode = fs::metadata(scratch.path())?.permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let target = parent.path().join("kept");
        scratch.publish(&target)?;
        assert!(target.is_dir());
        Ok(())
    }
}
