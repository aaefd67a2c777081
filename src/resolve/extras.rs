//! Extras of distributions that conda provides.
//!
//! A conda record does not say what the extras of a distribution need; the metadata of a wheel of
//! the same version does. It is asked for only where conda provides the distribution and an extra
//! of it is wanted, which is known once a choice is made: then the problem is solved again, with
//! those requirements.

use std::collections::BTreeSet;
use std::sync::Arc;

use resolvo::{Dependencies, KnownDependencies, SolvableId};
use uv_normalize::PackageName as DistName;

use super::engine::Engine;
use super::names::{Candidate, Name, Set};
use super::provider::{WheelFile, WheelMetadata};

impl Engine<'_> {
    /// Notes the distributions of a choice of which conda has to tell extras; whether there are
    /// any that were not noted before.
    pub(super) fn learn_extras_of_conda(&self, chosen: &[SolvableId]) -> bool {
        let mut wanted = BTreeSet::new();
        let mut provided = BTreeSet::new();
        for id in chosen {
            match (self.name_of(*id), self.candidate(*id)) {
                (Name::Extra(dist, _), Candidate::Extra(true)) => {
                    wanted.insert(dist);
                }
                (Name::Dist(dist), Candidate::Provided { .. })
                    if self.file_of_provided(*id).is_some() =>
                {
                    provided.insert(dist);
                }
                _ => {}
            }
        }
        let mut known = self.extras_of_conda.borrow_mut();
        let before = known.len();
        known.extend(wanted.intersection(&provided).map(|dist| (*dist).clone()));
        known.len() > before
    }

    /// Whether the extras of a distribution that conda provides take part.
    pub(super) fn has_extras_of_conda(&self, dist: &DistName, provided: SolvableId) -> bool {
        self.extras_of_conda.borrow().contains(dist) && self.file_of_provided(provided).is_some()
    }

    /// A wheel of the version that conda provides, the first by name: one for this platform if
    /// there is any, else one for another, as the extras of a version seldom hang on that.
    pub(super) fn file_of_provided(&self, provided: SolvableId) -> Option<Arc<WheelFile>> {
        let (Name::Dist(name), Candidate::Provided { version: Some(version), .. }) =
            (self.name_of(provided), self.candidate(provided))
        else {
            return None;
        };
        let dist = self.dist(name);
        let of_version = dist
            .files
            .iter()
            .filter(|file| file.filename.name == *name && file.filename.version == *version);
        of_version
            .min_by_key(|file| (!self.pythons().platform_fits(&file.filename), &file.file))
            .cloned()
    }

    /// What the extras of a distribution that conda provides need.
    pub(super) fn extras_of_provided(&self, id: SolvableId, file: &Arc<WheelFile>) -> Dependencies {
        let mut known = KnownDependencies::default();
        // Without metadata nothing is known; the answer says so.
        let Ok(metadata) = self.metadata_of(id, file) else {
            return Dependencies::Known(known);
        };
        let every = self.pythons().every();
        for requirement in &metadata.requires_dist {
            let mut times = self.times(&metadata, requirement.marker, &every);
            // What holds without an extra is the business of the conda record.
            times.retain(|when| when.extra.is_some() && self.expected(when));
            let specifiers = match self.specifiers_of(requirement) {
                Ok(specifiers) => specifiers,
                Err(reason) => {
                    let refused = self.set(Name::Refused(reason.into()), Set::Any);
                    known.requirements.extend(times.iter().map(|when| self.under(when, refused)));
                    continue;
                }
            };
            let Some((name, extras, specifiers)) =
                self.overridden(&requirement.name, &requirement.extras, &specifiers)
            else {
                continue;
            };
            let itself = name == metadata.name;
            for when in &times {
                let sets = self.require_dist(&name, &extras, &specifiers);
                for set in sets.into_iter().skip(usize::from(itself)) {
                    known.requirements.push(self.under(when, set));
                }
            }
        }
        Dependencies::Known(known)
    }

    /// The metadata that says what the extras of a distribution need that conda provides.
    pub(super) fn metadata_of_provided(&self, id: SolvableId) -> Option<Arc<WheelMetadata>> {
        self.metadata_of(id, &self.file_of_provided(id)?).ok()
    }
}
