//! From pages to what the solver is told: file names parsed, one entry a file, reasons kept.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use uv_distribution_filename::{SourceDistExtension, SourceDistFilename, WheelFilename};
use uv_normalize::PackageName as DistName;
use uv_pep440::VersionSpecifiers;
use uv_pypi_types::LenientVersionSpecifiers;

use super::page::{Page, PageFile};
use crate::resolve::{WheelFile, WheelListing};

/// Builds listings of one distribution; the first page that names a file wins.
pub(super) struct ListingBuilder<'a> {
    name: &'a DistName,
    listing: WheelListing,
    seen: BTreeSet<String>,
    sdists: BTreeSet<uv_pep440::Version>,
    known: bool,
}

impl<'a> ListingBuilder<'a> {
    pub(super) fn new(name: &'a DistName) -> Self {
        ListingBuilder {
            name,
            listing: WheelListing::default(),
            seen: BTreeSet::new(),
            sdists: BTreeSet::new(),
            known: false,
        }
    }

    /// Adds the page that a simple index has for the distribution.
    pub(super) fn add_index(&mut self, source: &str, page: &Page) {
        self.known = true;
        self.add_all(source, page.files.iter().collect(), true);
        self.listing.skipped.extend(page.skipped.iter().cloned());
    }

    /// Adds what a page of links for all names, or a directory, has of the distribution.
    pub(super) fn add_links(&mut self, source: &str, page: &Page) {
        let files: Vec<_> =
            page.files.iter().filter(|file| belongs(&file.name, self.name)).collect();
        self.known |= !files.is_empty();
        self.add_all(source, files, false);
        for (label, reason) in &page.skipped {
            let last = label.rsplit('/').next().unwrap_or(label);
            if belongs(last, self.name) {
                self.known = true;
                self.listing.skipped.push((label.clone(), reason.clone()));
            }
        }
    }

    /// Where one page names a file twice, one with a digest is taken, and else no matter which,
    /// so long as it does not hang on the server's order.
    fn add_all(&mut self, source: &str, mut files: Vec<&PageFile>, indexed: bool) {
        files.sort_by_key(|f| (&f.name, f.sha256.is_none(), f.sha256, &f.url));
        for file in files {
            self.add(source, file, indexed);
        }
    }

    fn add(&mut self, source: &str, file: &PageFile, indexed: bool) {
        if self.seen.contains(&file.name) {
            return;
        }
        match self.read(source, file, indexed) {
            Ok(()) => {
                self.seen.insert(file.name.clone());
            }
            Err(reason) => self.listing.skipped.push((file.name.clone(), reason)),
        }
    }

    fn read(&mut self, source: &str, file: &PageFile, indexed: bool) -> Result<(), String> {
        if !file.name.ends_with(".whl") {
            let extension =
                SourceDistExtension::from_path(&file.name).map_err(|err| err.to_string())?;
            let parsed = SourceDistFilename::parse(&file.name, extension, self.name)
                .map_err(|err| err.to_string())?;
            self.sdists.insert(parsed.version);
            return Ok(());
        }
        let wheel = WheelFile { indexed, ..wheel_file(source, file)? };
        if wheel.filename.name != *self.name {
            return Err(format!("it is a wheel of `{}`", wheel.filename.name));
        }
        self.listing.files.push(Arc::new(wheel));
        Ok(())
    }

    /// The listing: files by version and name, so that no server's order decides anything.
    pub(super) fn finish(mut self) -> WheelListing {
        let listing = &mut self.listing;
        listing.files.sort_by(|a, b| {
            a.filename.version.cmp(&b.filename.version).then_with(|| a.file.cmp(&b.file))
        });
        listing.skipped.sort();
        listing.skipped.dedup();
        let built: BTreeSet<_> = listing.files.iter().map(|f| f.filename.version.clone()).collect();
        listing.sdist_only = self.sdists.difference(&built).cloned().collect();
        listing.unknown = !self.known;
        self.listing
    }
}

/// Reads one wheel of a page of links.
pub(super) fn wheel_file(source: &str, file: &PageFile) -> Result<WheelFile, String> {
    let filename = WheelFilename::from_str(&file.name).map_err(|err| err.to_string())?;
    let requires_python = file
        .requires_python
        .as_deref()
        .map(|text| {
            LenientVersionSpecifiers::from_str(text)
                .map(VersionSpecifiers::from)
                .map_err(|_| format!("its Requires-Python {text:?} is invalid"))
        })
        .transpose()?;
    Ok(WheelFile {
        filename,
        file: file.name.clone(),
        source: source.to_owned(),
        url: file.url.clone(),
        size: file.size,
        sha256: file.sha256,
        requires_python,
        yanked: file.yanked.clone(),
        upload_time: file.upload_time,
        indexed: false,
    })
}

/// Whether a file name is, or tries to be, that of a distribution. A wheel's name ends at the
/// first hyphen (PEP 427); older source distributions may have hyphens in the name.
fn belongs(file: &str, name: &DistName) -> bool {
    if let Some((stem, _)) = file.split_once('-')
        && DistName::from_str(stem).is_ok_and(|stem| stem == *name)
    {
        return true;
    }
    if file.ends_with(".whl") {
        return false;
    }
    let len = name.as_ref().len();
    file.get(..len).is_some_and(|stem| {
        file.as_bytes().get(len) == Some(&b'-')
            && file.as_bytes().get(len + 1).is_some_and(u8::is_ascii_digit)
            && DistName::from_str(stem).is_ok_and(|stem| stem == *name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> PageFile {
        PageFile {
            name: name.into(),
            url: format!("https://example.invalid/{name}"),
            size: None,
            sha256: None,
            md5: None,
            requires_python: None,
            yanked: None,
            upload_time: None,
            core_metadata: false,
        }
    }
    fn page(names: &[&str]) -> Page {
        Page { files: names.iter().map(|n| file(n)).collect(), skipped: Vec::new() }
    }
    fn names(listing: &WheelListing) -> Vec<String> {
        listing.files.iter().map(|f| format!("{}@{}", f.file, f.source)).collect()
    }

    #[test]
    fn find_links_come_first_and_a_file_stands_once() {
        let name = DistName::from_str("a-b").unwrap();
        let mut builder = ListingBuilder::new(&name);
        builder.add_links(
            "links",
            &page(&["a_b-2-py3-none-any.whl", "a_bc-2-py3-none-any.whl", "A.B-3-py3-none-any.whl"]),
        );
        builder.add_index("pypi", &page(&["a_b-10-py3-none-any.whl", "a_b-2-py3-none-any.whl"]));
        let listing = builder.finish();
        assert_eq!(
            names(&listing),
            [
                "a_b-2-py3-none-any.whl@links",
                "A.B-3-py3-none-any.whl@links",
                "a_b-10-py3-none-any.whl@pypi"
            ]
        );
        assert!(!listing.unknown);
    }

    #[test]
    fn source_only_versions_are_told_apart() {
        let name = DistName::from_str("a-b").unwrap();
        let mut builder = ListingBuilder::new(&name);
        builder.add_links("links", &page(&["a-b-1.0.tar.gz", "a-b-c-1.0.tar.gz", "a-0.9.zip"]));
        builder.add_index(
            "pypi",
            &page(&["a_b-1.0.tar.gz", "a_b-2.0.tar.gz", "a_b-2.0-py3-none-any.whl", "a_b-x.zip"]),
        );
        let listing = builder.finish();
        assert_eq!(listing.sdist_only, ["1.0".parse().unwrap()]);
        assert_eq!(listing.skipped.len(), 1, "{:?}", listing.skipped);
    }

    /// Fault 22: names that cannot be read are kept with the reason.
    #[test]
    fn odd_names_are_skipped_with_a_reason() {
        let name = DistName::from_str("a").unwrap();
        let mut builder = ListingBuilder::new(&name);
        builder.add_index(
            "pypi",
            &page(&["a-1.0-foo-py3-none-any.whl", "b-1-py3-none-any.whl", "a-1-any.whl", "a.whl"]),
        );
        let listing = builder.finish();
        assert!(listing.files.is_empty(), "{:?}", names(&listing));
        assert_eq!(listing.skipped.len(), 4, "{:?}", listing.skipped);
        assert!(!listing.unknown);
    }

    proptest::proptest! {
        /// The order in which a server lists its files decides nothing.
        #[test]
        fn the_order_of_a_page_does_not_matter(
            mut files in proptest::collection::vec((0u8..4, 0u8..3, proptest::bool::ANY), 0..12),
            seed: u64,
        ) {
            let name = DistName::from_str("a").unwrap();
            let build = |files: &[(u8, u8, bool)]| {
                let mut page = Page::default();
                for (version, place, hashed) in files {
                    let mut file = file(&format!("a-{version}-py3-none-any.whl"));
                    file.url = format!("https://example.invalid/{place}/{}", file.name);
                    file.sha256 = hashed.then(|| crate::hash::Sha256::of([*place]));
                    page.files.push(file);
                }
                let mut builder = ListingBuilder::new(&name);
                builder.add_index("pypi", &page);
                format!("{:?}", builder.finish())
            };
            let before = build(&files);
            // A shuffle by digest of the seed.
            files.sort_by_key(|f| crate::hash::Sha256::of(format!("{seed}{f:?}")));
            proptest::prop_assert_eq!(before, build(&files));
        }
    }

    #[test]
    fn nothing_of_a_name_means_unknown() {
        let name = DistName::from_str("a").unwrap();
        let mut builder = ListingBuilder::new(&name);
        builder.add_links("links", &page(&["b-1-py3-none-any.whl"]));
        assert!(builder.finish().unknown);
    }
}
