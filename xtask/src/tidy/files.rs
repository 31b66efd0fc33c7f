//! The files that tidy checks: Rust and Markdown, read once.

use std::io;
use std::path::{Path, PathBuf};

/// A file of the repository. Files without text are there because links may point at them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SourceFile {
    /// Path relative to the root, with `/`.
    pub(crate) path: String,
    /// Empty for files that are neither Rust nor Markdown.
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    pub(crate) fn is_rust(&self) -> bool {
        has_extension(&self.path, "rs")
    }

    pub(crate) fn is_markdown(&self) -> bool {
        has_extension(&self.path, "md")
    }

    /// Returns line numbers from 1, and the lines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|found| found == extension)
}

/// Returns every file below `root`, except generated files and version control.
pub(crate) fn read(root: &Path) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() && !is_generated(&path) {
                directories.push(path);
            } else if kind.is_file() {
                files.push(read_one(root, &path)?);
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn read_one(root: &Path, path: &Path) -> io::Result<SourceFile> {
    let mut file = SourceFile::new(&path.to_string_lossy().replace('\\', "/"), "");
    if file.is_rust() || file.is_markdown() {
        file.text = String::from_utf8_lossy(&std::fs::read(root.join(path))?).into_owned();
    }
    Ok(file)
}

fn is_generated(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name == "target" || name == ".git" || path == Path::new("fuzz/artifacts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_found_without_its_target_directory() {
        let files = read(&crate::root()).expect("the repository is readable");
        let file = |path: &str| files.iter().find(|file| file.path == path);
        assert!(file("xtask/src/tidy/files.rs").is_some_and(|file| file.text.contains("//!")));
        assert!(
            file("Cargo.toml").is_some_and(|file| file.text.is_empty()),
            "listed, not read"
        );
        assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    }
}
