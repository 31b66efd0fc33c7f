//! Envoy files: reads the configuration of the rate limit service whole, and again.
//!
//! ```text
//!   DIR/*.yaml, DIR/*.yml, or one FILE --> texts --load--> Config --> the keeper
//!                                           |        |
//!                        as last time? nothing     errors? the old one stays
//! ```
//!
//! Names that begin with a dot are left out: Kubernetes keeps the versions of a mounted
//! `ConfigMap` behind them.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use ratekeeper_core::Origin;
use ratekeeper_policy::Settings;
use ratekeeper_policy::config::{Colour, Diagnostic, render};
use ratekeeper_policy::envoy::{self, File};

use crate::regular_file::{FileReader, open_regular};
use crate::{Config, StartError};

/// Maximum number of files of one directory.
const MAX_FILES: usize = 1_000;
/// Maximum number of entries of a directory that are read.
const MAX_ENTRIES: usize = 10_000;
/// Maximum number of bytes of one file; the loader refuses from 1 MiB on, with a code.
const MAX_FILE_BYTES: u64 = 2 << 20;
/// Maximum number of bytes of all files of a directory.
const MAX_TOTAL_BYTES: usize = 64 << 20;

/// One file as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvoyFile {
    /// Where it stands.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl EnvoyFile {
    /// Returns the file as [`envoy::load`] takes it.
    pub fn borrowed(&self) -> File<'_> {
        File {
            name: &self.name,
            text: &self.text,
        }
    }
}

/// Reads the configuration at `path`: a file, or a directory's `*.yaml` and `*.yml`.
///
/// # Errors
/// A sentence, if something cannot be read, is no text or too large, or if a directory has
/// no such file.
pub fn read_envoy_files(path: &Path) -> Result<Vec<EnvoyFile>, String> {
    if !path.is_dir() {
        return Ok(vec![read(path)?]);
    }
    let mut paths = files_of(path)?;
    paths.sort();
    let mut files = Vec::with_capacity(paths.len());
    let mut room = MAX_TOTAL_BYTES;
    for path in &paths {
        let file = read(path)?;
        let Some(rest) = room.checked_sub(file.text.len()) else {
            return Err(format!("the files have more than {MAX_TOTAL_BYTES} bytes"));
        };
        room = rest;
        files.push(file);
    }
    if files.is_empty() {
        let shown = path.display();
        return Err(format!("`{shown}` has no *.yaml and no *.yml file"));
    }
    Ok(files)
}

/// Returns the files of a directory that are configuration, in no order.
pub(crate) fn files_of(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let shown = directory.display();
    let failed = |error: std::io::Error| format!("cannot read `{shown}`: {error}");
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)?.take(MAX_ENTRIES) {
        let name = entry.map_err(failed)?.file_name();
        let path = directory.join(&name);
        let hidden = name.to_string_lossy().starts_with('.');
        let yaml = path
            .extension()
            .is_some_and(|kind| kind == "yaml" || kind == "yml");
        if !hidden && yaml && !path.is_dir() {
            paths.push(path);
        }
    }
    if paths.len() > MAX_FILES {
        return Err(format!("`{shown}` has more than {MAX_FILES} files"));
    }
    Ok(paths)
}

fn read(path: &Path) -> Result<EnvoyFile, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read `{shown}`: {error}");
    let file = open_regular(path).map_err(failed)?;
    let text = io::read_to_string(file.take(MAX_FILE_BYTES + 1)).map_err(failed)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("`{shown}` is longer than {MAX_FILE_BYTES} bytes"));
    }
    Ok(EnvoyFile {
        name: shown.to_string(),
        text,
    })
}

/// Compiles files; findings come rendered, warnings and errors alike.
///
/// # Errors
/// All findings, if one of them is an error.
pub(crate) fn compile(
    files: &[EnvoyFile],
    settings: envoy::EnvoySettings,
    origin: Origin,
) -> Result<(envoy::EnvoyConfig, Vec<String>), String> {
    let texts: Vec<File<'_>> = files.iter().map(EnvoyFile::borrowed).collect();
    let page = |(file, found): (&EnvoyFile, &[Diagnostic])| {
        render(&file.name, &file.text, found, Colour::Never)
    };
    match envoy::load(&texts, settings, origin) {
        Ok(loaded) => {
            let pairs = files.iter().zip(&loaded.warnings);
            let each = pairs.flat_map(|(file, found)| found.chunks(1).map(move |one| (file, one)));
            Ok((loaded.config, each.map(page).collect()))
        }
        Err(found) => {
            let pairs = files
                .iter()
                .zip(&found)
                .map(|(file, found)| (file, &found[..]));
            let pages: Vec<_> = pairs.map(page).filter(|page| !page.is_empty()).collect();
            Err(pages.join("\n"))
        }
    }
}

/// The location of the configuration, and the last configuration read.
#[derive(Debug)]
pub(crate) struct ConfigSource {
    /// Path of the command line; takes precedence over that of the policy.
    path: Option<PathBuf>,
    /// Directory that a path in the policy is relative to.
    beside: PathBuf,
    /// True if the service refuses nothing: `ratekeeper run --shadow`.
    shadow: bool,
    /// Locked while the files are read and put in force.
    pub(crate) seen: Mutex<SeenConfig>,
    reader: FileReader,
}

/// The last configuration read, good or bad.
#[derive(Debug, Default)]
pub(crate) struct SeenConfig {
    pub(crate) last: Option<ConfigFiles>,
    /// True if it is in force.
    pub(crate) applied: bool,
    /// An error of reading that has been reported.
    pub(crate) logged: Option<String>,
}

/// The parts of a configuration.
type ConfigFiles = (Vec<EnvoyFile>, envoy::EnvoySettings);

impl ConfigSource {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            path: config.envoy_config.clone(),
            beside: config.home().to_owned(),
            shadow: config.shadow,
            seen: Mutex::default(),
            reader: FileReader::default(),
        }
    }

    /// Returns the location of the configuration, if there is one.
    pub(crate) fn path(&self, settings: &Settings) -> Option<PathBuf> {
        let named = || settings.envoy_files.config.as_ref();
        self.path
            .clone()
            .or_else(|| Some(self.beside.join(named()?)))
    }

    /// Returns the settings that the files are compiled with.
    pub(crate) fn settings(&self, settings: &Settings) -> envoy::EnvoySettings {
        let mut settings = settings.envoy_files.settings;
        settings.shadow_mode |= self.shadow;
        settings
    }

    /// Returns the configuration at `path`, if it is read within a bound of time.
    ///
    /// # Errors
    /// As [`read_envoy_files`], or when it takes too long.
    pub(crate) fn read(&self, path: PathBuf) -> Result<Vec<EnvoyFile>, String> {
        let shown = path.display().to_string();
        let read = self.reader.read(move || Ok(read_envoy_files(&path)));
        read.unwrap_or_else(|why| Err(format!("cannot read `{shown}`: {why}")))
    }

    /// Returns the configuration of a service that starts, with warnings, rendered.
    ///
    /// # Errors
    /// When it cannot be read, or has errors.
    pub(crate) fn first(
        &self,
        settings: &Settings,
        origin: Origin,
    ) -> Result<Option<(envoy::EnvoyConfig, Vec<String>)>, StartError> {
        let Some(path) = self.path(settings) else {
            return Ok(None);
        };
        let files = read_envoy_files(&path).map_err(StartError::EnvoyUnreadable)?;
        let settings = self.settings(settings);
        let compiled = compile(&files, settings, origin).map_err(StartError::EnvoyFiles)?;
        let mut seen = self.seen.lock();
        seen.last = Some((files, settings));
        seen.applied = true;
        Ok(Some(compiled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_read_as_its_yaml_files_in_order() {
        let root = tempfile::tempdir().unwrap();
        let names = ["b.yaml", "a.yml", ".hidden.yaml", "notes.txt", "c.yaml.bak"];
        for name in names {
            fs::write(root.path().join(name), name).unwrap();
        }
        fs::create_dir(root.path().join("..data")).unwrap();
        fs::create_dir(root.path().join("sub.yaml")).unwrap();
        let files = read_envoy_files(root.path()).unwrap();
        let texts: Vec<_> = files.iter().map(|file| &*file.text).collect();
        assert_eq!(texts, ["a.yml", "b.yaml"]);
        let single = read_envoy_files(&root.path().join("notes.txt")).unwrap();
        assert_eq!(single[0].text, "notes.txt");
    }

    #[test]
    fn unreadable_files_are_reported() {
        let root = tempfile::tempdir().unwrap();
        let failed = |path: &Path| read_envoy_files(path).unwrap_err();
        assert!(failed(root.path()).contains("no *.yaml"));
        assert!(failed(&root.path().join("gone")).contains("cannot read"));
        let large = root.path().join("large.yaml");
        fs::write(&large, vec![b' '; (2 << 20) + 1]).unwrap();
        assert!(failed(root.path()).contains("longer than"));
        fs::write(&large, [0xff]).unwrap();
        assert!(failed(root.path()).contains("cannot read"));
    }
}
