//! The configuration of a kernel: fragments that are data (`config/*.config`), on top of `make defconfig`.

/// What every kernel has.
const BASE: &str = include_str!("../../config/base.config");
/// File systems and devices.
const FILE_SYSTEMS: &str = include_str!("../../config/file-systems.config");
/// What `--debug` adds.
const DEBUG: &str = include_str!("../../config/debug.config");

/// Options without which a kernel is of no use to us; all others depend on the version.
const INDISPENSABLE: [&str; 4] =
    ["CONFIG_HOSTFS=y", "CONFIG_DEVTMPFS=y", "CONFIG_BLK_DEV_LOOP=y", "CONFIG_TMPFS=y"];

/// What begins a part of the file with the file systems, at the beginning of a line.
const PART: &str = "\n# == ";

/// The fragments, in the order in which they count: later ones win. With names in `only`, the parts of the
/// file systems that they do not name are switched off, but for the first, which everything needs.
pub(super) fn fragments(debug: bool, only: &[String]) -> String {
    let mut text = BASE.to_owned();
    for (number, (name, part)) in parts().into_iter().enumerate() {
        match only.is_empty() || number == 0 || only.iter().any(|one| one == name) {
            true => text.push_str(part),
            false => text.push_str(&switched_off(part)),
        }
    }
    text.push_str(if debug { DEBUG } else { "" });
    text
}

/// The name in `only` that is no part, and the names that there are.
pub(super) fn unknown_part(only: &[String]) -> Option<(&str, Vec<&'static str>)> {
    let known: Vec<&str> = parts().into_iter().skip(1).map(|(name, _)| name).collect();
    let unknown = only.iter().find(|one| !known.contains(&one.as_str()))?;
    Some((unknown, known))
}

/// Name and text of each part.
fn parts() -> Vec<(&'static str, &'static str)> {
    let starts: Vec<usize> = FILE_SYSTEMS.match_indices(PART).map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([FILE_SYSTEMS.len()]);
    let part = |(start, end): (usize, usize)| {
        let text = &FILE_SYSTEMS[start..end];
        (text.trim_start_matches(PART).lines().next().unwrap_or_default(), text)
    };
    starts.iter().copied().zip(ends).map(part).collect()
}

/// The options of a part, none of them set.
fn switched_off(part: &str) -> String {
    let options = part.lines().filter_map(|line| line.strip_suffix("=y"));
    options.map(|option| format!("# {option} is not set\n")).collect()
}

/// The indispensable option that a finished `.config` lacks.
pub(super) fn lost(config: &str) -> Option<&'static str> {
    INDISPENSABLE.into_iter().find(|option| !config.lines().any(|line| line == *option))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_options_and_reasons() {
        for line in fragments(true, &[]).lines() {
            let is_option = line.starts_with("CONFIG_") && line.contains('=');
            let is_comment = line.starts_with('#');
            assert!(is_option || is_comment || line.is_empty(), "{line}");
        }
        assert!(fragments(true, &[]).contains("CONFIG_KASAN=y"));
        assert!(!fragments(false, &[]).contains("CONFIG_KASAN=y"));
        assert_eq!(lost(&fragments(false, &[])), None);
        assert_eq!(lost("CONFIG_DEVTMPFS=y\n"), Some("CONFIG_HOSTFS=y"));
    }

    #[test]
    fn parts_can_be_left_out() {
        let only = ["ext4".to_owned()];
        let text = fragments(false, &only);
        assert!(
            text.contains("\nCONFIG_EXT4_FS=y\n") && text.contains("\nCONFIG_BLK_DEV_LOOP=y\n")
        );
        assert!(
            text.contains("\n# CONFIG_XFS_FS is not set\n") && !text.contains("CONFIG_XFS_FS=y")
        );
        assert_eq!(unknown_part(&only), None);
        let wrong = ["ext5".to_owned()];
        let (name, known) = unknown_part(&wrong).unwrap();
        assert!(name == "ext5" && known.contains(&"ext4") && !known.contains(&"devices"));
    }
}
