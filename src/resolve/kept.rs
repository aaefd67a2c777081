//! What the old lock holds: how near a file comes to it, and what of it is not offered any more.

use rattler_conda_types::RepoDataRecord;

use super::engine::Engine;
use super::names::{Candidate, Name};
use super::problem::KeptWheel;
use super::provider::{WheelFile, WheelOrigin};

impl KeptWheel {
    /// How far a file is from the one kept: the very file, one of the same version, another.
    pub(super) fn distance(&self, file: &WheelFile) -> u8 {
        if self.is(file) {
            0
        } else if file.filename.version == self.version {
            1
        } else {
            2
        }
    }

    /// Whether it is the file, as far as its source says.
    fn is(&self, file: &WheelFile) -> bool {
        let same = |kept| file.sha256.is_none_or(|declared| declared == kept);
        file.file == self.file && self.sha256.is_none_or(same)
    }
}

impl Engine<'_> {
    /// Words for a wheel that another had to take the place of, since the one kept is not offered
    /// any more, or is another file now.
    pub(super) fn lost_wheel(&self, chosen: &WheelFile) -> Option<String> {
        let name = &chosen.filename.name;
        let kept = self.problem.keep.wheels.get(name)?;
        if matches!(self.origin(name), WheelOrigin::Direct(_))
            || kept.file.is_empty()
            || kept.is(chosen)
        {
            return None;
        }
        let dist = self.dist(name);
        if let Some(offered) = dist.files.iter().find(|file| file.file == kept.file) {
            let (was, is) = (kept.sha256?, offered.sha256?);
            return (was != is).then(|| {
                format!(
                    "{} is another file than the one that gpuenv.lock held: its sha256 was {was}, is now {is}",
                    kept.file
                )
            });
        }
        Some(format!(
            "{}, which gpuenv.lock held, is not offered any more; {} takes its place",
            kept.file, chosen.file
        ))
    }

    /// The same for a conda record.
    pub(super) fn lost_record(&self, chosen: &RepoDataRecord) -> Option<String> {
        let record = &chosen.package_record;
        let (version, build) = self.problem.keep.conda.get(&record.name)?;
        let is_kept = |record: &RepoDataRecord| {
            let record = &record.package_record;
            record.version.to_string() == *version && record.build.as_str() == build.as_str()
        };
        if is_kept(chosen) {
            return None;
        }
        let name = record.name.as_normalized();
        let known = self.conda_candidates(self.pool.intern_package_name(Name::Conda(name.into())));
        let usable = known.usable.iter().any(
            |id| matches!(self.candidate(*id), Candidate::Record { record, .. } if is_kept(record)),
        );
        if usable || known.rejected.iter().any(|(record, _)| is_kept(record)) {
            return None;
        }
        Some(format!(
            "{name} {version} {build}, which gpuenv.lock held, is not offered any more; {name} {} {} takes its place",
            record.version, record.build
        ))
    }
}
