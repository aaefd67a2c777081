//! What every verb that reaches beyond the project needs: where store and caches lie, what the
//! machine's configuration says, whether the network may be asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::project::Project;
use crate::error::Result;
use crate::progress::Progress;
use crate::sources::config::Config;
use crate::sources::{Sources, SourcesOptions};
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

/// Looks a variable up in the process environment.
pub fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Context {
    /// Finds the project and reads the configuration.
    pub fn open(options: &Options, progress: Arc<dyn Progress>) -> Result<Self> {
        let project = Project::find(options.project.as_deref())?;
        let config = Config::load(options.config.as_deref(), &process_env)?;
        Ok(Context { project, config, offline: options.offline, progress, store: options.store.clone() })
    }

    /// The store's directory: `--store`, else the configuration's, else the default.
    pub fn store_root(&self) -> Result<PathBuf> {
        if let Some(root) = self.store.as_deref().or(self.config.store.as_deref()) {
            return Ok(absolute(root));
        }
        Ok(Store::default_root(&process_env)?)
    }

    /// Opens (and if need be makes) the store.
    pub fn store(&self) -> Result<Store> {
        Ok(Store::open(&self.store_root()?)?)
    }

    /// Opens the sources.
    pub fn sources(&self) -> Result<Sources> {
        Ok(Sources::open(SourcesOptions {
            config: self.config.clone(),
            offline: self.offline,
            project_dir: self.project.root().to_owned(),
            progress: Arc::clone(&self.progress),
        })?)
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
