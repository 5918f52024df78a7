//! Watches the system calls of a test tool and counts which inputs and outputs of a file system it
//! exercises.

pub mod amount;
pub mod analyse;
pub mod layout;
pub mod sample;
