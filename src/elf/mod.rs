//! ELF files as the loader sees them: dynamic sections, and what would not be found. Pure over bytes.

use serde::{Deserialize, Serialize};

/// The dynamic section of an ELF file, as far as the search for libraries goes (ld.so(8)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Dynamic {
    /// `DT_SONAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soname: Option<String>,
    /// `DT_NEEDED`, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needed: Vec<String>,
    /// `DT_RPATH`, split at colons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rpath: Vec<String>,
    /// `DT_RUNPATH`, split at colons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runpath: Vec<String>,
    /// `PT_INTERP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    /// `e_machine` is that of another architecture than the package's platform.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
}
