//! Wheel sources on disk: simple indexes, pages of links, directories.

use std::path::Path;

use url::Url;
use uv_normalize::PackageName as DistName;

use super::error::{Cause, WheelSourceError};
use super::page::{self, Page, PageFile};

type Shared<T> = Result<T, WheelSourceError>;

/// The page of a name in a simple index on disk: `NAME/index.html`, or the files of `NAME/`.
pub(super) async fn index_page(source: &str, root: &Path, name: &DistName) -> Shared<Option<Page>> {
    let (source, root, name) = (source.to_owned(), root.to_owned(), name.to_string());
    blocking(move || {
        let dir = root.join(&name);
        if dir.is_dir() {
            let index = dir.join("index.html");
            return if index.is_file() {
                read_page(&source, &index, &dir).map(Some)
            } else {
                read_dir(&source, &dir).map(Some)
            };
        }
        // A mistyped root must not look like an index that holds nothing.
        std::fs::read_dir(&root).map_err(|err| local_error(&source, &root, &err))?;
        Ok(None)
    })
    .await
}

/// A directory of wheels, or a page of links on disk.
pub(super) async fn links(source: &str, path: &Path) -> Shared<Page> {
    let (source, path) = (source.to_owned(), path.to_owned());
    blocking(move || {
        if path.is_file() {
            let dir = path.parent().unwrap_or(&path).to_owned();
            read_page(&source, &path, &dir)
        } else {
            read_dir(&source, &path)
        }
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Shared<T> + Send + 'static,
) -> Shared<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|err| Err(WheelSourceError::Lost(format!("a local source ({err})"))))
}

fn local_error(source: &str, path: &Path, err: &std::io::Error) -> WheelSourceError {
    WheelSourceError::Local {
        name: source.to_owned(),
        path: path.to_owned(),
        cause: Cause::of(err, &[]),
    }
}

fn read_page(source: &str, path: &Path, dir: &Path) -> Shared<Page> {
    let body = std::fs::read(path).map_err(|err| local_error(source, path, &err))?;
    let base = Url::from_directory_path(dir).map_err(|()| WheelSourceError::Local {
        name: source.to_owned(),
        path: dir.to_owned(),
        cause: Cause::words("its path cannot be written as a URL"),
    })?;
    page::parse(Some("text/html"), &body, &base).map_err(|what| WheelSourceError::NotAnIndex {
        name: source.to_owned(),
        url: path.display().to_string(),
        expected: what.expected,
        found: what.found,
    })
}

/// The distributions of a directory, by name; subdirectories are not looked at.
fn read_dir(source: &str, dir: &Path) -> Shared<Page> {
    let mut page = Page::default();
    let failed = |err: std::io::Error| local_error(source, dir, &err);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(raw) = path.file_name() else { continue };
        let lossy = raw.to_string_lossy().into_owned();
        let name = page::dist_name(&lossy);
        if !page::is_dist(&name) {
            continue;
        }
        // A dangling link or a file without permission costs that file.
        let file = match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => continue,
            Err(err) => {
                page.skipped.push((lossy, err.to_string()));
                continue;
            }
        };
        match (raw.to_str(), Url::from_file_path(&path)) {
            (Some(_), Ok(url)) => page.files.push(PageFile {
                name,
                url: url.into(),
                size: Some(file.len()),
                sha256: None,
                md5: None,
                requires_python: None,
                yanked: None,
                upload_time: None,
                core_metadata: false,
            }),
            _ => page.skipped.push((lossy, "its name is not UTF-8".into())),
        }
    }
    page.files.sort_by(|a, b| a.name.cmp(&b.name));
    page.skipped.sort();
    Ok(page)
}
