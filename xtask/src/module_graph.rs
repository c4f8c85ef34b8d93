//! The module graph of a crate, checked: a file and its folder are one part, and no part may reach itself through
//! others.
//!
//! Owns the list of crates whose modules must not use each other in circles. A module's uses are read from its source:
//! paths that begin with `crate` or climb with `super`, in imports and elsewhere, but not inside macros, nor through
//! re-exports of the root. Tests are ignored: they may use modules in circles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::slice;

use anyhow::{Context, ensure};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree};

/// Crates whose modules know each other in one direction.
const CHECKED: [&str; 2] = ["log", "broker"];

/// Part -> the parts that it uses.
type Parts = BTreeMap<String, BTreeSet<String>>;

/// Fails if a crate below `root` has a circle.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    for name in CHECKED {
        let parts = parts_of(&root.join("crates").join(name).join("src"))?;
        let found = circles(&parts);
        ensure!(found.is_empty(), "the modules of `{name}` have circles:\n{}", told(&parts, &found));
        println!("module graph of {name}: {} parts, no circle", parts.len());
    }
    Ok(())
}

/// The circles with the arrows in them.
fn told(parts: &Parts, circles: &[Vec<&str>]) -> String {
    let arrows = |circle: &[&str], part: &str| {
        let uses: Vec<_> = parts[part].iter().map(String::as_str).filter(|to| circle.contains(to)).collect();
        format!("    {part} -> {}", uses.join(" "))
    };
    let lines = circles.iter().flat_map(|circle| {
        let head = format!("  {}", circle.join(" "));
        [head].into_iter().chain(circle.iter().map(move |part| arrows(circle, part)))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Sets of parts that all reach each other, sorted; single parts are left out.
fn circles(parts: &Parts) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        parts.keys().map(|part| (part.as_str(), reached_from(parts, part))).collect();
    let circle_of = |part: &str| -> Vec<&str> {
        let is_mutual = |other: &&&str| reached[part].contains(**other) && reached[**other].contains(part);
        reached.keys().filter(is_mutual).copied().collect()
    };
    let circles: BTreeSet<Vec<&str>> = reached.keys().map(|part| circle_of(part)).collect();
    circles.into_iter().filter(|circle| circle.len() > 1).collect()
}

fn reached_from<'p>(parts: &'p Parts, start: &str) -> BTreeSet<&'p str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![start]);
    while let Some(part) = next.pop() {
        for to in parts.get(part).into_iter().flatten() {
            if reached.insert(to.as_str()) {
                next.push(to);
            }
        }
    }
    reached
}

/// The parts of the crate with sources in `src`, each with the parts it uses.
fn parts_of(src: &Path) -> anyhow::Result<Parts> {
    let root = read(&src.join("lib.rs"))?;
    let names: BTreeSet<String> =
        product_modules(&root.items).map(|module| module.ident.to_string()).collect();
    let mut parts = Parts::new();
    for name in &names {
        let mut uses = BTreeSet::new();
        collect(src, slice::from_ref(name), &mut uses)?;
        uses.retain(|to| to != name && names.contains(to));
        parts.insert(name.clone(), uses);
    }
    Ok(parts)
}

/// Adds the parts of the crate's root that the module at this path, and all below it, use.
fn collect(src: &Path, path: &[String], uses: &mut BTreeSet<String>) -> anyhow::Result<()> {
    let folder = path.iter().fold(src.to_path_buf(), |folder, name| folder.join(name));
    let file = [folder.with_extension("rs"), folder.join("mod.rs")].into_iter().find(|file| file.exists());
    let file = file.with_context(|| format!("{} has no file", folder.display()))?;
    let file = read(&file)?;
    Uses { depth: path.len(), found: uses }.visit_file(&file);
    for module in product_modules(&file.items).filter(|module| module.content.is_none()) {
        collect(src, &[path, &[module.ident.to_string()]].concat(), uses)?;
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<syn::File> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    syn::parse_file(&text).with_context(|| format!("{} cannot be parsed", file.display()))
}

fn product_modules(items: &[syn::Item]) -> impl Iterator<Item = &ItemMod> {
    let modules = items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => Some(module),
        _ => None,
    });
    modules.filter(|module| !is_of_tests(&module.attrs))
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    attributes.iter().any(is_test)
}

/// Collects the parts of the crate's root that a module at this depth uses.
struct Uses<'a> {
    depth: usize,
    found: &'a mut BTreeSet<String>,
}

impl Uses<'_> {
    /// Follows a path from its beginning.
    fn take<'s>(&mut self, mut segments: impl Iterator<Item = &'s str>) {
        let mut climbed = 0;
        let first = loop {
            match segments.next() {
                Some("crate") => break segments.next(),
                Some("self") if climbed == 0 => {}
                Some("super") => {
                    climbed += 1;
                    if climbed == self.depth {
                        break segments.next();
                    }
                }
                _ => return,
            }
        };
        self.found.extend(first.map(str::to_owned));
    }

    fn take_tree(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.take_tree(before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.take_tree(before, tree);
                }
            }
            UseTree::Name(name) => self.take_name(before, &name.ident.to_string()),
            UseTree::Rename(rename) => self.take_name(before, &rename.ident.to_string()),
            UseTree::Glob(_) => self.take(before.iter().map(String::as_str)),
        }
    }

    fn take_name(&mut self, before: &[String], name: &str) {
        self.take(before.iter().map(String::as_str).chain([name]));
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if is_of_tests(&module.attrs) {
            return;
        }
        self.depth += 1;
        visit::visit_item_mod(self, module);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_of_tests(&item.attrs) {
            self.take_tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.take(segments.iter().map(String::as_str));
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(arrows: &[(&str, &[&str])]) -> Parts {
        let uses = |to: &[&str]| to.iter().map(|to| (*to).to_owned()).collect();
        arrows.iter().map(|(part, to)| ((*part).to_owned(), uses(to))).collect()
    }

    #[test]
    fn parts_that_reach_each_other_are_a_circle() {
        let parts = parts(&[
            ("a", &["b"]),
            ("b", &["c"]),
            ("c", &["a"]),
            ("d", &["a"]),
            ("e", &["f"]),
            ("f", &["e"]),
        ]);
        assert_eq!(circles(&parts), [vec!["a", "b", "c"], vec!["e", "f"]]);
    }

    #[test]
    fn arrows_down_are_no_circle() {
        assert!(circles(&parts(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])).is_empty());
    }

    fn uses(depth: usize, source: &str) -> Vec<String> {
        let mut found = BTreeSet::new();
        Uses { depth, found: &mut found }.visit_file(&syn::parse_str(source).expect("parses"));
        found.into_iter().collect()
    }

    #[test]
    fn paths_are_followed_to_the_root() {
        let source =
            "use crate::{a::{self, X}, b as y}; use super::c; fn f() { super::d(); crate::e::g(self::h) }";
        assert_eq!(uses(1, source), ["a", "b", "c", "d", "e"]);
        assert_eq!(uses(2, "use super::super::{a, b::*}; use super::c;"), ["a", "b"]);
        assert_eq!(uses(1, "mod inner { fn f(_: super::super::a::T) {} }"), ["a"]);
    }

    #[test]
    fn tests_may_use_modules_in_circles() {
        assert!(uses(1, "#[cfg(test)] mod tests { use crate::a; } #[cfg(test)] use crate::b;").is_empty());
    }

    #[test]
    fn the_workspace_has_no_circles() {
        check(Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace"))
            .expect("known");
    }
}
