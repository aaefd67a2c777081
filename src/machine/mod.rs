//! The machine: glibc, driver, interpreters. Facts read, never assumed.

mod gpu;
pub mod python;
mod system;

pub use gpu::{Gpu, gpu};
pub use python::{Interpreter, PythonError, find_python};
pub use system::{glibc_version, kernel_release};
