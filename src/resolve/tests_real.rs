//! Problems over real channel data, where it is at hand: `GPUENV_TEST_DATA`, or `../shared/data`
//! beside the checkout. Ignored otherwise.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rattler_conda_types::{Channel, RepoData, RepoDataRecord};

use super::testing::*;
use super::*;

/// Channels of a directory, for linux-64.
pub(super) struct Channels {
    channels: Vec<BTreeMap<String, Vec<Arc<RepoDataRecord>>>>,
    world: World,
}

pub(super) fn data() -> PathBuf {
    std::env::var_os("GPUENV_TEST_DATA")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data"))
}

impl Channels {
    pub(super) fn load(names: &[&str]) -> Self {
        let mut channels = Vec::new();
        for name in names {
            let mut records: BTreeMap<String, Vec<Arc<RepoDataRecord>>> = BTreeMap::new();
            for subdir in ["linux-64", "noarch"] {
                let path = data().join("repodata").join(name).join(subdir);
                let bytes = std::fs::read(path.join("repodata.json.zst")).unwrap();
                let json = zstd::decode_all(bytes.as_slice()).unwrap();
                let repodata: RepoData = serde_json::from_slice(&json).unwrap();
                let channel = Channel::from_url(
                    format!("https://conda.example.invalid/{name}").parse::<url::Url>().unwrap(),
                );
                for record in repodata.into_repo_data_records(&channel) {
                    records
                        .entry(record.package_record.name.as_normalized().to_owned())
                        .or_default()
                        .push(Arc::new(record));
                }
            }
            channels.push(records);
        }
        Channels { channels, world: World::new() }
    }
}

impl Provider for Channels {
    fn conda(
        &self,
        name: &rattler_conda_types::PackageName,
    ) -> Result<Arc<Vec<Vec<Arc<RepoDataRecord>>>>, ProviderError> {
        Ok(Arc::new(
            self.channels
                .iter()
                .map(|names| names.get(name.as_normalized()).cloned().unwrap_or_default())
                .collect(),
        ))
    }

    fn conda_names(&self) -> Vec<String> {
        self.channels.iter().flat_map(|names| names.keys().cloned()).collect()
    }

    fn wheels(
        &self,
        name: &uv_normalize::PackageName,
        origin: &WheelOrigin,
    ) -> Result<Arc<WheelListing>, ProviderError> {
        self.world.wheels(name, origin)
    }

    fn metadata(&self, file: &Arc<WheelFile>) -> Result<Arc<WheelMetadata>, ProviderError> {
        self.world.metadata(file)
    }

    fn prefetch(&self, _: Vec<Want>) {}
}

/// Conda problems; the same list is what other solvers were compared on.
const PROBLEMS: &[(&[&str], &[&str], Option<&str>)] = &[
    (&["conda-forge"], &["python 3.11.*"], None),
    (&["conda-forge"], &["numpy"], None),
    (&["conda-forge"], &["pytorch"], None),
    (&["conda-forge"], &["pytorch"], Some("12.4")),
    (&["conda-forge"], &["pytorch", "python 3.10.*"], Some("11.8")),
    (&["conda-forge"], &["pytorch >=2.1,<2.3", "cuda-version 11.8.*"], Some("12.4")),
    (&["conda-forge"], &["tensorflow"], Some("12.4")),
    (&["conda-forge"], &["tensorflow", "python 3.9.*"], None),
    (&["conda-forge"], &["jax", "jaxlib"], Some("12.4")),
    (&["conda-forge"], &["cudnn", "cudatoolkit"], Some("12.4")),
    (&["conda-forge"], &["scipy", "pandas", "matplotlib", "scikit-learn"], None),
    (&["conda-forge"], &["jupyterlab", "ipywidgets"], None),
    (&["conda-forge"], &["opencv", "pillow"], None),
    (&["conda-forge"], &["transformers"], Some("12.4")),
    (&["pytorch", "nvidia", "conda-forge"], &["pytorch"], Some("12.4")),
    (
        &["pytorch", "nvidia", "conda-forge"],
        &["pytorch 2.1.*", "python 3.9.*", "torchvision"],
        None,
    ),
    (&["pytorch", "conda-forge"], &["pytorch 1.13.*", "cpuonly"], None),
    (&["conda-forge"], &["xarray", "dask", "zarr"], None),
    (&["conda-forge"], &["pytorch-lightning"], None),
    (&["conda-forge"], &["numpy <1.24", "python >=3.10"], None),
];

#[test]
#[ignore = "needs channel data"]
fn conda_problems() {
    for (channels, specs, cuda) in PROBLEMS {
        let world = Channels::load(channels);
        let mut problem = problem();
        problem.channels = channels.iter().map(ToString::to_string).collect();
        problem.virtual_packages.push(virtual_package("__unix", "0"));
        problem.virtual_packages.push(virtual_package("__archspec", "1"));
        if let Some(cuda) = cuda {
            problem.virtual_packages.push(virtual_package("__cuda", cuda));
        }
        for spec in *specs {
            problem = problem.dep(spec);
        }
        let start = std::time::Instant::now();
        let outcome = solve(&problem, &world);
        let took = start.elapsed();
        let mut records: Vec<String> = match &outcome {
            Ok(solution) => solution
                .packages
                .iter()
                .map(|chosen| match &chosen.what {
                    ChosenKind::Conda(record) => record.identifier.to_string(),
                    ChosenKind::Wheel { .. } => panic!("no wheels here"),
                })
                .collect(),
            Err(error) => vec![format!("UNSAT {error}")],
        };
        records.sort();
        println!(
            "RESULT {}",
            serde_json::json!({
                "channels": channels, "specs": specs, "cuda": cuda,
                "records": records, "ms": took.as_millis() as u64
            })
        );
    }
}
