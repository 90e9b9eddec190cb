//! A file that is there whole or not at all: it is written beside its place and moved there at the end. What is in it is not
//! this file's business.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What is being written now, for [`remove_unfinished`].
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file that is being written. Dropped before [`OutputFile::finish`], it leaves nothing behind and an old file as it was.
pub(crate) struct OutputFile {
    out: BufWriter<File>,
    target: PathBuf,
    /// Where it is written, unless that is `target` itself: a device or a pipe is no file that can be moved over.
    unfinished: Option<PathBuf>,
}

impl OutputFile {
    /// Begins a file.
    ///
    /// # Errors
    /// The directory is not there or not writable; the path is one.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        // Through a symbolic link, so that it stays one.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match std::fs::metadata(&target) {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                let out = BufWriter::new(File::create(&target)?);
                return Ok(Self { out, target, unfinished: None });
            }
            // The old file's permissions count, not only the directory's.
            Ok(_) => drop(File::options().append(true).open(&target)?),
            Err(_) => {}
        }
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy().into_owned();
        let unfinished = target.with_file_name(format!(".{name}.{}.partial", std::process::id()));
        let out = BufWriter::new(File::create(&unfinished)?);
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(unfinished.clone());
        Ok(Self { out, target, unfinished: Some(unfinished) })
    }

    /// Moves the file to its place.
    ///
    /// # Errors
    /// The rest cannot be written, or the file not moved.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        let Some(unfinished) = self.unfinished.take() else { return Ok(()) };
        let moved = std::fs::rename(&unfinished, &self.target);
        if moved.is_err() {
            // It is the move's error that is told.
            let _ = std::fs::remove_file(&unfinished);
        }
        forget(&unfinished);
        moved
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            // Whatever went wrong was told where it happened.
            let _ = std::fs::remove_file(unfinished);
            forget(unfinished);
        }
    }
}

fn forget(path: &Path) {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| other != path);
}

/// Removes what is not finished: the process is about to end.
pub(crate) fn remove_unfinished() {
    for path in UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        // The process ends anyway.
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("our own directory");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_there_when_it_is_whole() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("report");
        std::fs::write(&path, "old").expect("our own directory");
        let mut file = OutputFile::create(&path).expect("our own directory");
        file.write_all(b"half").expect("there is room");
        assert_eq!(std::fs::read_to_string(&path).expect("it is text"), "old", "not yet");
        drop(file);
        assert_eq!(names(dir.path()), ["report"], "given up");
        assert_eq!(std::fs::read_to_string(&path).expect("it is text"), "old", "given up");
        let mut file = OutputFile::create(&path).expect("our own directory");
        file.write_all(b"new").expect("there is room");
        file.finish().expect("it can be moved");
        assert_eq!(names(dir.path()), ["report"], "finished");
        assert_eq!(std::fs::read_to_string(&path).expect("it is text"), "new", "finished");
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let kind = |path: &Path| OutputFile::create(path).err().map(|error| error.kind());
        assert_eq!(kind(dir.path()), Some(io::ErrorKind::IsADirectory));
        assert_eq!(kind(&dir.path().join("no/such")), Some(io::ErrorKind::NotFound));
    }

    #[test]
    #[cfg(unix)]
    fn links_and_devices_stay_what_they_are() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "old").expect("our own directory");
        std::os::unix::fs::symlink(&file, &link).expect("our own directory");
        let mut out = OutputFile::create(&link).expect("our own directory");
        out.write_all(b"new").expect("there is room");
        out.finish().expect("it can be moved");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).expect("it is text"), "new");
        OutputFile::create(Path::new("/dev/null")).and_then(OutputFile::finish).expect("a device can be written");
        use std::os::unix::fs::FileTypeExt as _;
        assert!(std::fs::metadata("/dev/null").expect("it is there").file_type().is_char_device());
    }
}
