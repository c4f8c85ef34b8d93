//! The outcomes of several items, told in one place: as JSON, or a line for each.

use riverrun_client::ClientError;
use riverrun_measure::text::printable::printable;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::exit::Failure;
use crate::text::output::{OutputArgs, print_json, print_text};

/// One item's name, and what became of it: a sentence's end such as "created with 6 partitions".
pub(crate) type Outcome = (String, Result<String, Failure>);

/// Turns a client's result for `kind` (such as "topic") `name` into an outcome.
pub(crate) fn outcome<T>(
    kind: &str,
    name: String,
    result: Result<T, ClientError>,
    done: impl FnOnce(T) -> String,
) -> Outcome {
    let result =
        result.map(done).map_err(|error| Failure::from(error).about(format!("{kind} {}", printable(&name))));
    (name, result)
}

/// Prints all outcomes. Fails with the first failure, after all were told.
pub(crate) fn report(output: OutputArgs, outcomes: Vec<Outcome>) -> Result<(), Failure> {
    if output.json {
        print_json(&outcomes.iter().map(json).collect::<Vec<_>>())?;
    }
    let mut first = None;
    for (name, result) in outcomes {
        match result {
            Ok(_) if output.json => {}
            Ok(done) => print_text(&format!("{} {done}\n", printable(&name)))?,
            Err(failure) if first.is_none() => first = Some(failure),
            Err(failure) => failure.tell(output.json),
        }
    }
    first.map_or(Ok(()), Err)
}

/// Prints what is known of several items: one JSON document, or a paragraph for each. Fails with the first failure,
/// after all were told.
pub(crate) fn describe<T: Serialize>(
    output: OutputArgs,
    items: Vec<Result<T, Failure>>,
    text: impl Fn(&T) -> String,
) -> Result<(), Failure> {
    let (mut known, mut failures) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Ok(item) => known.push(item),
            Err(failure) => failures.push(failure),
        }
    }
    if !known.is_empty() {
        output.print(&known, |known| known.iter().map(text).collect::<Vec<_>>().join("\n"))?;
    }
    let mut failures = failures.into_iter();
    let first = failures.next();
    failures.for_each(|failure| failure.tell(output.json));
    first.map_or(Ok(()), Err)
}

fn json((name, result): &Outcome) -> Value {
    let mut object = Map::new();
    object.insert("name".to_owned(), name.as_str().into());
    object.insert("ok".to_owned(), result.is_ok().into());
    let (result, error) = match result {
        Ok(done) => (Value::from(done.as_str()), Value::Null),
        Err(failure) => (Value::Null, failure.message().into()),
    };
    object.insert("result".to_owned(), result);
    object.insert("error".to_owned(), error);
    object.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn the_first_failure_decides_the_exit_code() {
        let failed = |exit| Err(Failure::new(exit, "no"));
        let outcomes = vec![
            ("a".to_owned(), Ok("created".to_owned())),
            ("b".to_owned(), failed(Exit::Conflict)),
            ("c".to_owned(), failed(Exit::NotFound)),
        ];
        let failure = report(OutputArgs { json: true }, outcomes).expect_err("two failed");
        assert_eq!(failure.exit, Exit::Conflict);
    }
}
