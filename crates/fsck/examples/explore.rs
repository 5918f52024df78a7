//! Explores fields by path: `explore PROGRAM DISK FIELD…` with an instrumented e2fsck.

use std::error::Error;
use std::time::Duration;

use fathom_fsck::{Checker, Disk, NoGuests, Subject, SubjectOptions, explore};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let program = words.next().map(Into::into);
    let disk = Disk::named(&words.next().unwrap_or_else(|| "ext4".to_owned()), &NoGuests)?;
    let options = SubjectOptions { program, ..SubjectOptions::default() };
    let subject = Subject::new(Checker::named("e2fsck")?, disk, &options)?;
    for field in words {
        let found = explore(&subject, &field, Duration::from_secs(60))?;
        println!(
            "{:40} {:5} values {:4} paths {} {} of {} branches",
            found.field,
            found.values,
            found.paths,
            if found.closed { "closed" } else { "open  " },
            found.edges.len(),
            found.edges_total
        );
    }
    Ok(())
}
