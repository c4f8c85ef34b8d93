//! The generator against the files that are checked in, and the schema's reader against bad schemas.

use super::*;

fn files_below(directory: &Path, below: &Path, found: &mut Files) {
    for entry in fs::read_dir(directory.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            files_below(directory, &path, found);
        } else {
            let text = fs::read_to_string(entry.path()).unwrap();
            found.insert(path, text);
        }
    }
}

#[test]
fn checked_in_files_are_what_the_generator_writes() {
    let mut checked_in = Files::new();
    files_below(&protocol_crate().join("src/generated"), Path::new(""), &mut checked_in);
    let generated = generate(&protocol_crate().join("schema")).unwrap();
    assert!(
        checked_in.keys().eq(generated.keys()),
        "files came or went: run `cargo xtask gen-protocol` and commit the result"
    );
    for (path, text) in &generated {
        assert!(checked_in[path] == *text, "{} is stale: run `cargo xtask gen-protocol`", path.display());
    }
}

#[test]
fn bad_schemas_are_refused_by_line_and_reason() {
    let cases = [
        ("request 0-1\n  a int32", "before its api"),
        ("data D 0-1\n  a int32 2+", "outside"),
        ("data D 0-1\n  a Missing", "has no fields"),
        ("data D 0-1 flexible 1+\n  a int32 tag=0", "tagged before"),
        ("data D 0-1 flexible 0+\n  a int32 tag=1", "count up from zero"),
        ("data D 0-1 flexible 0+\n  a records null tag=0", "records inside"),
        ("data D 0-1\n  a string default=null", "null by default, never null"),
        ("data D 0-1\n  a records", "records that are never null"),
        ("data D 0-1\n  a [][]int8", "an array of arrays"),
        ("data D 0-1\n  a []E\n    b []E", "contains itself"),
        ("data D 0-1\n  struct E\n    b int8\n  struct E\n    c int8\n  a E", "defined twice"),
        ("data D 0-1\n  a int32 shiny", "unknown attribute"),
        ("data D 0-1\n  a int32\n    b int32", "indented below"),
        ("message D 0-1", "not a line"),
    ];
    for (text, reason) in cases {
        let error = format!("{:#}", schema::parse(text).unwrap_err());
        assert!(error.contains(reason), "{text:?} gave {error:?}, not {reason:?}");
    }
}
