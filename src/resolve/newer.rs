//! `exclude-newer`: what was not there yet.

use rattler_conda_types::RepoDataRecord;
use uv_normalize::PackageName as DistName;

use super::conda::CondaRejection;
use super::engine::Engine;
use super::provider::{WheelFile, WheelOrigin};
use super::wheels::WheelRejection;

impl Engine<'_> {
    /// Whether a file came too late. What env.toml names itself, and what lies on pages of links
    /// and in directories, has no upload time, and is taken as chosen by hand.
    pub(super) fn too_new(&self, name: &DistName, file: &WheelFile) -> Option<WheelRejection> {
        let bound = self.problem.exclude_newer.of(name.as_ref())?;
        if matches!(self.origin(name), WheelOrigin::Direct(_)) {
            return None;
        }
        match file.upload_time {
            Some(came) if came >= bound.millis => {
                Some(WheelRejection::Newer(Some(bound.beside(came)), bound.to_string()))
            }
            None if file.indexed => Some(WheelRejection::Newer(None, bound.to_string())),
            Some(_) | None => None,
        }
    }

    /// Whether a record came too late, by its time stamp. Old records have none, and are as old.
    pub(super) fn record_too_new(&self, record: &RepoDataRecord) -> Option<CondaRejection> {
        let record = &record.package_record;
        let bound = self.problem.exclude_newer.of(record.name.as_normalized())?;
        let came = record.timestamp?.jiff_timestamp().as_millisecond();
        (came >= bound.millis)
            .then(|| CondaRejection::Newer { came: bound.beside(came), bound: bound.to_string() })
    }
}
