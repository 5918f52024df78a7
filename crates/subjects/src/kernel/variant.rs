//! Variants: recipes with other options, which run where they can do no harm.
//!
//! A variant is data: `profiles/kernel/variants.toml` says of which recipe, with which options, and what
//! it risks.

use serde::Deserialize;

use super::recipe::{Options, Recipe};

const FILE: &str = include_str!("../../profiles/kernel/variants.toml");

/// One variant, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    name: String,
    base: String,
    about: String,
    #[serde(default)]
    mkfs: String,
    #[serde(default)]
    mount: String,
    /// Instead of the profile of the base.
    profile: Option<String>,
    /// Whether lower layers are populated: see [`super::recipe::Layer::restacks`].
    #[serde(default)]
    restacks: bool,
    risk: String,
}

#[derive(Deserialize)]
struct Variants {
    variant: Vec<Variant>,
}

fn written() -> Vec<Variant> {
    let variants: Variants = toml::from_str(FILE).expect("a test reads it");
    variants.variant
}

/// The variants of the recipes that `base` finds.
pub(super) fn recipes(base: impl Fn(&str) -> Option<Recipe>) -> Vec<Recipe> {
    let recipe = |variant: Variant| {
        let recipe = base(&variant.base)?;
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let options = Options {
            format: words(&variant.mkfs),
            mount: words(&variant.mount),
            ..Options::default()
        };
        let about = format!("{}, {}", recipe.about, variant.about);
        let mut made = recipe.with(&options).ok()?;
        if let Some(layer) = &mut made.layer {
            layer.restacks = variant.restacks;
        }
        let profile = variant.profile.unwrap_or(made.profile);
        Some(Recipe { name: variant.name, about, profile, risk: Some(variant.risk), ..made })
    };
    written().into_iter().filter_map(recipe).collect()
}

/// The names of the variants of a recipe.
pub fn variants_of(base: &str) -> Vec<String> {
    written().into_iter().filter(|variant| variant.base == base).map(|one| one.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_is_a_recipe_with_more_options() {
        let all = written();
        assert!(all.len() >= 13);
        for variant in all {
            let recipe = Recipe::named(&variant.name).expect("listed");
            let base = Recipe::named(&variant.base).expect("its base is a recipe");
            assert!(recipe.risk.is_some() && base.risk.is_none(), "{}", variant.name);
            assert!(!variant.mkfs.is_empty() || !variant.mount.is_empty(), "{}", variant.name);
            assert_eq!(recipe.profile, variant.profile.unwrap_or(base.profile));
            assert_eq!(recipe.layer.is_some_and(|layer| layer.restacks), variant.restacks);
            assert!(variants_of(&variant.base).contains(&variant.name));
        }
        let command = Recipe::named("xfs-1k").unwrap().format.unwrap().command;
        assert!(command.ends_with(&["-b".to_owned(), "size=1024".to_owned()]), "{command:?}");
        assert_eq!(Recipe::named("ext4-datajournal").unwrap().options, ["data=journal"]);
        assert_eq!(variants_of("jfs"), Vec::<String>::new());
        assert_eq!(variants_of("overlay:ext4").len(), 6);
    }
}
