//! Images come back as they were; damaged ones are refused with words, never with a panic.

mod common;

use common::{KEEP, Story};
use fathom_core::flags::XattrFlags;
use fathom_model::{Config, NewNode, ROOT, TreeOptions, Volume, VolumeImage};
use serde_json::{Value, json};

/// One of everything.
fn sample() -> Story {
    let mut s =
        Story::new(Config { blocks: 100, inodes: 20, block_bytes: 1024, ..Config::default() });
    s.dir("d");
    let file = s.file("d/f");
    s.write("d/f", 3000, &[5; 300]).unwrap();
    s.fallocate("d/f", KEEP, 6000, 3000).unwrap();
    s.link("d/f", "l").unwrap();
    s.symlink("s", "target");
    s.make("n", NewNode::Block(8, 1), 0o600).unwrap();
    s.setxattr("d", &[0xff, 0], XattrFlags::empty()).unwrap();
    s.volume.pin(file).unwrap();
    let open = s.file("open");
    s.volume.pin(open).unwrap();
    s.unlink("open").unwrap();
    s
}

fn image_of(volume: &Volume) -> Value {
    serde_json::to_value(volume.export()).unwrap()
}

fn import(image: Value) -> Result<Volume, String> {
    let image: VolumeImage = serde_json::from_value(image).map_err(|error| error.to_string())?;
    Volume::import(image)
}

#[test]
fn inodes_keep_their_numbers() {
    let mut s = sample();
    let gone = s.file("d/gone");
    let kept = s.file("d/kept");
    s.unlink("d/gone").unwrap();
    let numbers = s.volume.numbers();
    let copy = Volume::import_numbered(s.volume.export(), &numbers).unwrap();
    assert_eq!(copy.numbers(), numbers);
    assert_eq!(copy.attr(kept).unwrap(), s.volume.attr(kept).unwrap());
    assert!(copy.attr(gone).is_err());
    assert_eq!(copy.digest(), s.volume.digest());
    assert_ne!(copy.numbers(), Volume::import(s.volume.export()).unwrap().numbers());
    let image = s.volume.export();
    // Another file does not get the number of one that is gone.
    s.volume = copy;
    assert_ne!(s.file("new"), gone);
    let other = sample().volume.numbers();
    assert!(Volume::import_numbered(image, &other).is_err(), "too few");
}

#[test]
fn everything_but_open_unlinked_files_comes_back() {
    let s = sample();
    let copy = import(image_of(&s.volume)).unwrap();
    let options = TreeOptions { segments: true, times: true };
    assert_eq!(copy.tree(options), s.volume.tree(options));
    assert_eq!(copy.digest(), s.volume.digest());
    assert_eq!(copy.statfs().blocks_free, s.volume.statfs().blocks_free);
    assert_eq!(copy.statfs().files_free, s.volume.statfs().files_free + 1, "the open file is gone");
    assert_eq!(image_of(&copy), image_of(&s.volume));
}

#[test]
fn an_adopted_snapshot_shares_no_inode_number() {
    let mut s = sample();
    let image = s.volume.export();
    let snapshot = s.volume.adopt(image).unwrap();
    let ours = s.ino("d/f");
    let theirs = snapshot.lookup(snapshot.lookup(ROOT, b"d").unwrap(), b"f").unwrap();
    assert_ne!(ours, theirs);
    let fresh = s.file("fresh");
    assert!(snapshot.attr(fresh).is_err());
    s.volume.restore(&snapshot);
    assert!(s.volume.attr(ours).is_err() && s.volume.attr(theirs).is_ok());
    s.volume.check_invariants().unwrap();
}

#[test]
fn damaged_images_are_refused() {
    let good = image_of(&sample().volume);
    let damages: &[(&str, Value, &str)] = &[
        ("/config/block_bytes", json!(1000), "not possible"),
        ("/config/inodes", json!(3), "inodes"),
        ("/config/blocks", json!(2), "capacity"),
        ("/clock", json!(1), "future"),
        ("/inodes", json!([]), "there must be one"),
        ("/inodes/0/body", json!("fifo"), "not a directory"),
        ("/inodes/0/body/dir/entries", json!([]), "in the tree"),
        ("/inodes/0/nlink", json!(7), "nlink is 7"),
        ("/inodes/0/body/dir/entries/0/0", json!("a/b"), "cannot be a name"),
        ("/inodes/0/body/dir/entries/0/0", json!("s"), "sorted"),
        ("/inodes/0/body/dir/entries/0/1", json!(0), "not there"),
        ("/inodes/0/body/dir/entries/0/1", json!(99), "not there"),
        ("/inodes/0/body/dir/entries/0/1", json!(u64::MAX), "not there"),
        ("/inodes/0/body/dir/entries/1/1", json!(1), "two names"),
        ("/inodes/0/body/dir/entries/0/2", json!(1), "cookies"),
        ("/inodes/0/body/dir/cookie_next", json!(u64::MAX), "cookies"),
        ("/inodes/1/xattrs/0/0", json!(""), "cannot be"),
        ("/inodes/1/xattrs/0/1", json!("f"), "hexadecimal"),
        ("/inodes/2/body/file/size", json!(u64::MAX), "too large"),
        ("/inodes/2/body/file/size", json!(10), "page 0"),
        ("/inodes/2/body/file/pages/0/0", json!(u64::MAX), "out of bounds"),
        ("/inodes/2/body/file/pages/0/1", json!(0), "wrong blocks"),
        ("/inodes/2/body/file/pages/0/1", json!(255), "wrong blocks"),
        ("/inodes/2/body/file/pages/0/1", json!(1), "data in a hole"),
        ("/inodes/2/body/file/reserved", json!([[5, 3]]), "out of order"),
        ("/inodes/2/body/file/reserved", json!([[2, 9]]), "both written and reserved"),
        ("/inodes/2/body/file/reserved", json!([[5, u64::MAX]]), "out of order"),
        ("/inodes/2/body/file/reserved", json!([[5, 999]]), "capacity"),
        ("/inodes/2/body", json!("lies"), "unknown variant"),
    ];
    for (at, value, expected) in damages {
        let mut image = good.clone();
        let place =
            image.pointer_mut(at).unwrap_or_else(|| panic!("{at} is not in the image:\n{good:#}"));
        *place = value.clone();
        let error = import(image).map(|_| ()).expect_err(at);
        assert!(error.contains(expected), "{at} = {value}: {error}");
    }
}

/// Every number, one after the other, becomes something else: an answer, never a panic.
#[test]
fn no_single_wrong_number_makes_it_panic() {
    fn numbers(value: &Value, at: String, out: &mut Vec<String>) {
        match value {
            Value::Number(_) => out.push(at),
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(n, v)| numbers(v, format!("{at}/{n}"), out));
            }
            Value::Object(map) => {
                map.iter().for_each(|(k, v)| numbers(v, format!("{at}/{k}"), out))
            }
            _ => {}
        }
    }
    let good = image_of(&sample().volume);
    let mut places = Vec::new();
    numbers(&good, String::new(), &mut places);
    assert!(places.len() > 50);
    for at in places {
        for wrong in [0, 1, 2, 255, 1 << 31, u64::from(u32::MAX), 1 << 52, u64::MAX / 2, u64::MAX] {
            let mut image = good.clone();
            *image.pointer_mut(&at).unwrap() = json!(wrong);
            if let Ok(volume) = import(image) {
                volume.check_invariants().unwrap();
            }
        }
    }
}
