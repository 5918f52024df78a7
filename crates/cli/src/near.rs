//! "Did you mean …?": as in the catalogue of subjects.

pub(crate) use fathom_subjects::catalogue::near::did_you_mean;
