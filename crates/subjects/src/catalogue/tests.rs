//! Tests of the catalogue as a whole.

use super::profile::read_profile;
use super::*;

#[test]
fn what_is_shown_can_be_typed_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let text = "name = \"x\"\nabout = \"mine\"\nfs_type = \"ext4\"\nimage_kib = 2048\n\
        [format]\ncommand = \"mkfs.ext4\"\npackage = \"e2fsprogs\"\n\
        [quirks]\n# because\nlink_max = 7\n";
    std::fs::write(&file, text).unwrap();
    let mine = format!("ext4 --profile={} --mkfs-opts=-b 1024", file.display());
    let names = [
        "model",
        "reffs:stale-hole",
        "dir:/tmp",
        "fuse:bindfs {state} {mnt} -o x=y:z",
        "ext4",
        "overlay:xfs",
        "ext4 --mkfs-opts=-O ^has_journal -b 1024 --mount-opts=data=journal,noatime --space=65536",
        &mine,
        "ext4 --profile=xfs --mkfs-opts=-b 1024",
        "nfs:ext4",
        "nfs:reffs:mkdir-nlink --nfs=4.1 --server=ganesha --clients=2 --lossy --space=65536",
        "nfs:memory --nfs=3",
        "littlefs",
        "littlefs+drop-flush",
        "littlefs+lost-write --geometry=64x512/16",
        "rsext4",
    ];
    let catalogue = Catalogue::new();
    for name in names {
        assert_eq!(catalogue.parse(name).unwrap().to_string(), name);
    }
    let spec = catalogue.parse(&mine).unwrap();
    assert_eq!(read_profile(&spec.profile().unwrap()).unwrap().link_max, 7);
    let named = catalogue.parse("ext4").unwrap();
    // What `check` is told is said elsewhere in its records; what `crash` is told belongs to the name.
    let asked = Asked { profile: Some("xfs"), ..Asked::default() };
    assert_eq!(named.with(&asked).unwrap().to_string(), "ext4");
    let asked = Asked { quirks: Some("xfs"), ..asked };
    assert_eq!(named.with(&asked).unwrap().to_string(), "ext4 --profile=xfs");
}

#[test]
fn what_means_nothing_is_refused() {
    let catalogue = Catalogue::new();
    let refused = |subject: &str, asked: Asked<'_>| {
        catalogue.parse(subject).unwrap().with(&asked).unwrap_err().to_string()
    };
    let mkfs = Asked { mkfs: Some("-q"), ..Asked::default() };
    assert!(refused("tmpfs", mkfs).contains("not formatted"));
    let mount = Asked { mount: Some("x"), ..Asked::default() };
    assert!(refused("model", mount).contains("neither formatted nor mounted"));
    assert!(refused("littlefs", mount).contains("neither formatted nor mounted"));
    let space = Asked { space_bytes: Some(1), ..Asked::default() };
    assert!(refused("reffs", space).contains("no disk that could be filled"));
    let mutant = Asked { mutant: Some("rename-nlink"), ..Asked::default() };
    assert!(refused("ext4", mutant).contains("no lie of a disk is called"));
    assert!(refused("tmpfs", mutant).contains("has no mutants"));
    assert!(refused("littlefs", mutant).contains("no crash mutant is called"));
    let geometry = Asked { geometry: Some("32x256"), ..Asked::default() };
    assert!(refused("ext4", geometry).contains("--geometry is for library file systems"));
}

#[test]
fn known_subjects_say_what_is_missing_and_unknown_ones_are_compared() {
    let catalogue = Catalogue::new();
    let needs = |subject: &str, purpose| {
        catalogue.parse(subject).unwrap().demand(purpose).map_err(|error| error.to_string())
    };
    assert_eq!(needs("ext4", Purpose::Crash), Ok(()));
    let overlay = needs("overlay:ext4", Purpose::Crash).unwrap_err();
    assert!(overlay.contains("the power of a layer"), "{overlay}");
    let model = needs("model", Purpose::Crash).unwrap_err();
    assert!(model.contains("everything in memory"), "{model}");
    assert_eq!(needs("littlefs", Purpose::Check), Ok(()));
    assert_eq!(needs("littlefs", Purpose::Crash), Ok(()));
    assert!(needs("littlefs", Purpose::Fsck).unwrap_err().contains("a checker"));
    assert_eq!(needs("ext4", Purpose::Fsck), Ok(()));
    let unknown = |text: &str| catalogue.parse(text).unwrap_err().to_string();
    assert!(unknown("ext5").contains("unknown subject \"ext5\""));
    assert!(unknown("litlefs").contains("; did you mean littlefs, littlefs-c?; "));
    assert!(unknown("").contains("unknown subject"));
    for name in ["dir:", "dir", "fuse: ", "model:nope", "ext4 --space=much", "littlefs+nope"] {
        let error = unknown(name);
        assert!(!error.contains("unknown subject"), "{error}");
    }
}

#[test]
fn every_row_can_be_typed_and_offers_something() {
    let catalogue = Catalogue::new();
    for row in catalogue.rows() {
        let typed = row.name.replace("PATH", "/tmp").replace("COMMAND", "true");
        let spec = catalogue.parse(&typed).unwrap();
        assert_eq!(spec.offers(), row.offers, "{typed}");
        assert!(row.offers.lacks(Purpose::Check).is_none(), "{typed}");
        assert_eq!(spec.with(&Asked::default()).unwrap().to_string(), typed);
    }
}
