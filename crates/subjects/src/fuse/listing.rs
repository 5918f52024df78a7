//! Open directories, and how far each is listed.
//!
//! What comes into a directory gets a position behind all that is there. If it were listed by whoever had
//! begun before, a program that renames every name it is told of would never come to the end (generic/736 of
//! xfstests). So a listing ends where the directory ended when it was last read from its beginning, as on
//! tmpfs and btrfs; readdir(3) leaves open whether what comes meanwhile is listed.

use std::collections::HashMap;

/// An open directory.
#[derive(Debug)]
struct Listing {
    /// Whether it was opened with `O_NOATIME`: READDIR does not say so again.
    noatime: bool,
    /// The position behind the last entry that is listed; none if it is listed to its end.
    end: Option<u64>,
}

/// The open directories of a mount, by the number of their handle.
#[derive(Debug, Default)]
pub(super) struct Listings {
    last: u64,
    open: HashMap<u64, Listing>,
}

impl Listings {
    /// Notes that a directory was opened, and returns the number of the handle: never 0, which is the handle
    /// of everything that was not opened here.
    pub(super) fn open(&mut self, noatime: bool) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Listing { noatime, end: None });
        self.last
    }

    /// Notes that it was closed.
    pub(super) fn close(&mut self, handle: u64) {
        self.open.remove(&handle);
    }

    /// Whether it was opened with `O_NOATIME`.
    pub(super) fn is_noatime(&self, handle: u64) -> bool {
        self.open.get(&handle).is_some_and(|listing| listing.noatime)
    }

    /// Where to end a piece that begins behind the position `after`, of a directory that ends at
    /// `directory_end` now.
    pub(super) fn end(&mut self, handle: u64, after: u64, directory_end: u64) -> u64 {
        let Some(listing) = self.open.get_mut(&handle) else { return u64::MAX };
        if after == 0 {
            listing.end = Some(directory_end);
        }
        listing.end.unwrap_or(u64::MAX)
    }

    /// Lists all of them to their end: another state was restored, where entries have other positions.
    pub(super) fn forget_ends(&mut self) {
        for listing in self.open.values_mut() {
            listing.end = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Listings;

    #[test]
    fn a_listing_ends_where_the_directory_ended_when_it_began() {
        let mut listings = Listings::default();
        let (first, second) = (listings.open(false), listings.open(true));
        assert_eq!((listings.is_noatime(first), listings.is_noatime(second)), (false, true));
        assert_eq!(listings.end(first, 0, 10), 10);
        assert_eq!(listings.end(first, 7, 12), 10, "what came since is behind its end");
        assert_eq!(listings.end(second, 7, 12), u64::MAX, "it was never read from its beginning");
        assert_eq!(listings.end(first, 0, 12), 12, "it was read from its beginning again");
        listings.forget_ends();
        assert_eq!(listings.end(first, 7, 3), u64::MAX, "another state");
        listings.close(first);
        assert_eq!(listings.end(first, 0, 3), u64::MAX);
        assert_eq!(listings.end(0, 0, 3), u64::MAX, "a handle that is none");
        assert_ne!(listings.open(false), first);
    }
}
