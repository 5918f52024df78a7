//! The reference gives the same answers as the kernel to the script that every subject passes: the
//! two agree on what an outcome is.

mod common;

use std::path::Path;

use common::*;
use fathom_core::Subject;
use fathom_model::{Config, Model};
use fathom_subjects::DirSubject;
use fathom_subjects::sys::View;

#[test]
fn the_reference_answers_and_looks_like_a_tmpfs() {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let mut model = Model::new(Config { uid, gid, ..Config::default() }).unwrap();
    every_operation(&mut model, true);
    let mut dir = DirSubject::create(Path::new("/dev/shm"), View::default()).unwrap();
    every_operation(&mut dir, true);
    let (expected, found) = (model.observe().unwrap(), dir.observe().unwrap());
    assert_eq!(expected.differences(&found), []);
    assert_eq!(model.digest(), found.digest());
}

#[test]
fn the_reference_knows_identities() {
    identities(&mut Model::new(Config::default()).unwrap());
}
