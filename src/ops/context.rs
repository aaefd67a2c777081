//! What every verb that reaches beyond the project needs: where store and caches lie, what the
//! machine's configuration says, whether the network may be asked.

use std::path::PathBuf;
use std::sync::Arc;

use super::project::Project;
use crate::error::{Exit, Report, Result};
use crate::progress::Progress;
use crate::sources::{Config, Sources, SourcesOptions};
use crate::store::Store;

/// Options of the command line that every verb shares.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--project`.
    pub project: Option<PathBuf>,
    /// `--store`.
    pub store: Option<PathBuf>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--offline`.
    pub offline: bool,
}

/// A project together with the machine it is used on.
pub struct Context {
    /// The project.
    pub project: Project,
    /// gpuenv's configuration and the user's for other tools, read once.
    pub config: Config,
    /// Whether sources may not be asked.
    pub offline: bool,
    /// Where to report.
    pub progress: Arc<dyn Progress>,
    store: Option<PathBuf>,
}

impl Context {
    /// Finds the project and reads the configuration.
    pub fn open(options: &Options, progress: Arc<dyn Progress>) -> Result<Self> {
        let project = Project::find(options.project.as_deref())?;
        let config = Config::from_process(options.config.as_deref())?;
        Ok(Context {
            project,
            config,
            offline: options.offline,
            progress,
            store: options.store.clone(),
        })
    }

    /// The store's directory: `--store` or `GPUENV_STORE`, else the configuration's, else the
    /// XDG default.
    pub fn store_root(&self) -> Result<PathBuf> {
        match (&self.store, &self.config.store) {
            // On a command line, a path relative to here is what people mean.
            (Some(root), _) => Ok(std::path::absolute(root).unwrap_or_else(|_| root.clone())),
            (None, Some(root)) => Ok(root.clone()),
            (None, None) => Ok(Store::default_root(|name| std::env::var_os(name))?),
        }
    }

    /// Opens the store; nothing is written.
    pub fn store(&self) -> Result<Store> {
        Ok(Store::open(self.store_root()?)?)
    }

    /// Opens the sources.
    pub fn sources(&self) -> Result<Sources> {
        let cache_dir = self.config.cache_dir().ok_or(NoCacheDir)?;
        Ok(Sources::open(SourcesOptions {
            config: self.config.clone(),
            offline: self.offline,
            cache_dir,
            download_dir: None,
            project_dir: self.project.root().to_owned(),
            progress: Arc::clone(&self.progress),
        })?)
    }
}

/// Nobody says where caches may be.
#[derive(Debug, thiserror::Error)]
#[error("there is no place for caches: HOME and XDG_CACHE_HOME are not set")]
struct NoCacheDir;

impl Report for NoCacheDir {
    fn exit(&self) -> Exit {
        Exit::User
    }
    fn hint(&self) -> Option<String> {
        Some("set GPUENV_CACHE to an absolute path, or `cache` in config.toml".into())
    }
}
