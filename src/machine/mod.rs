//! The machine: glibc, driver, interpreters. Facts read, never assumed.
