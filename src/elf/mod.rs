//! ELF files as the loader sees them: dynamic sections, and what would not be found. Pure over bytes.

use serde::{Deserialize, Serialize};

mod read;

pub use read::{ElfError, is_elf, read};

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
    /// `DT_RPATH`, split at colons. Ignored by the loader where there is a `DT_RUNPATH`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rpath: Vec<String>,
    /// `DT_RUNPATH`, split at colons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runpath: Vec<String>,
    /// `PT_INTERP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    /// `e_machine` is that of another architecture than the package's platform. [`read`] does
    /// not know the platform and leaves it `false`; see [`Dynamic::is_native`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// `e_machine` (gABI): 62 is x86-64, 183 AArch64. 0 in a record that does not hold it.
    #[serde(skip_serializing_if = "is_zero")]
    pub machine: u16,
    /// `EI_CLASS` is `ELFCLASS32`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub class32: bool,
}

fn is_zero(machine: &u16) -> bool {
    *machine == 0
}

/// `EM_X86_64`.
pub const EM_X86_64: u16 = 62;
/// `EM_AARCH64`.
pub const EM_AARCH64: u16 = 183;
/// `EM_PPC64`.
pub const EM_PPC64: u16 = 21;

impl Dynamic {
    /// Whether the loader of a 64-bit process of architecture `machine` (an `e_machine` value)
    /// would take this file. A record without the fact counts as native.
    pub fn is_native(&self, machine: u16) -> bool {
        !self.foreign && (self.machine == 0 || (self.machine == machine && !self.class32))
    }

    /// The search path that the loader takes from this file itself: `DT_RUNPATH`, or
    /// `DT_RPATH` where there is none.
    pub fn search_path(&self) -> &[String] {
        if self.runpath.is_empty() { &self.rpath } else { &self.runpath }
    }
}
