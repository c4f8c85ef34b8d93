//! Unknown keys in the parts of a spec.
//!
//! Guarantees that a mistyped key is reported, as in the spec itself: it would silently run another load.

use serde_json::{Map, Value};

/// Keys of a topic.
const TOPIC: [&str; 4] = ["numPartitions", "replicationFactor", "partitionAssignments", "configs"];
/// Keys of one of the generators among which another one chooses.
const COMPONENT: [&str; 2] = ["percent", "component"];
/// Keys of a record processor. All but the type bound latencies, which have no bound here.
const PROCESSOR: [&str; 4] = ["type", "histogramMaxMs", "histogramMinMs", "histogramSignificantDigits"];

/// Keys of each type of generator, beside the type itself.
const GENERATORS: [(&str, &[&str]); 9] = [
    ("constant", &["size", "value"]),
    ("sequential", &["size", "offset"]),
    ("uniformRandom", &["size", "seed", "padding"]),
    ("null", &[]),
    ("randomComponent", &["seed", "components"]),
    ("timestampRandom", &["size", "seed"]),
    ("timestampConstant", &["size"]),
    ("gaussianTimestampRandom", &GAUSSIAN),
    ("gaussianTimestampConstant", &GAUSSIAN),
];
const GAUSSIAN: [&str; 4] = ["messageSizeAverage", "messageSizeDeviation", "messagesUntilSizeChange", "seed"];

/// Notes on the parts of a spec, for people.
pub(super) fn notes(spec: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    for part in ["activeTopics", "inactiveTopics"] {
        for (name, topic) in fields(&spec[part]) {
            unknown(topic, &format!("{part}.{name}"), &TOPIC, &mut notes);
        }
    }
    for part in ["keyGenerator", "valueGenerator"] {
        of_generator(&spec[part], part, &mut notes);
    }
    let part = "recordProcessor";
    unknown(&spec[part], part, &PROCESSOR, &mut notes);
    let bounds = PROCESSOR[1..].iter().filter(|key| spec[part].get(key).is_some());
    notes.extend(bounds.map(|key| format!("spec: {part}.{key} has no effect here")));
    notes
}

fn of_generator(generator: &Value, place: &str, notes: &mut Vec<String>) {
    let of_type = GENERATORS.iter().find(|(name, _)| generator["type"] == *name);
    // An unknown type is refused elsewhere.
    let Some((_, known)) = of_type else { return };
    unknown(generator, place, &[&["type"][..], *known].concat(), notes);
    for (at, one) in generator["components"].as_array().into_iter().flatten().enumerate() {
        let place = format!("{place}.components[{at}]");
        unknown(one, &place, &COMPONENT, notes);
        of_generator(&one["component"], &format!("{place}.component"), notes);
    }
}

fn unknown(part: &Value, place: &str, known: &[&str], notes: &mut Vec<String>) {
    let keys = fields(part).map(|(key, _)| key).filter(|key| !known.contains(&key.as_str()));
    notes.extend(keys.map(|key| format!("spec: unknown key {place}.{key} is ignored")));
}

/// The fields of an object; of any other value none.
fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mistyped_keys_of_parts_are_noted_with_their_places() {
        let component = json!({"percent": 5, "chance": 1, "component": {"type": "null", "size": 3}});
        let spec = json!({
            "activeTopics": {"foo": {"numPartitions": 1, "numPartition": 9}, "bar": null},
            "inactiveTopics": {"baz": {"replicas": 2}},
            "keyGenerator": {"type": "sequential", "size": 4, "ofset": 1},
            "valueGenerator": {"type": "randomComponent", "seed": 1, "components": [component]},
            "recordProcessor": {"type": "timestamp", "histogramMaxMs": 5, "histogram": 1},
        });
        let expected = [
            "spec: unknown key activeTopics.foo.numPartition is ignored",
            "spec: unknown key inactiveTopics.baz.replicas is ignored",
            "spec: unknown key keyGenerator.ofset is ignored",
            "spec: unknown key valueGenerator.components[0].chance is ignored",
            "spec: unknown key valueGenerator.components[0].component.size is ignored",
            "spec: unknown key recordProcessor.histogram is ignored",
            "spec: recordProcessor.histogramMaxMs has no effect here",
        ];
        assert_eq!(notes(&spec), expected);
        assert_eq!(notes(&json!({"activeTopics": ["foo"], "keyGenerator": null})), Vec::<String>::new());
    }

    #[test]
    fn keys_that_a_generator_knows_are_not_noted() {
        let values = [
            json!({"type": "constant", "size": 1, "value": "AA=="}),
            json!({"type": "uniformRandom", "size": 9, "seed": 1, "padding": 1}),
            json!({"type": "timestampRandom", "size": 9, "seed": 1}),
            json!({"type": "timestampConstant", "size": 9}),
            json!({"type": "gaussianTimestampRandom", "messageSizeAverage": 9, "messageSizeDeviation": 1,
                "messagesUntilSizeChange": 1, "seed": 1}),
        ];
        for value in values {
            assert_eq!(notes(&json!({ "valueGenerator": value })), Vec::<String>::new());
            let spec = serde_json::from_value::<super::super::GeneratorSpec>(value).expect("a generator");
            let written = serde_json::to_value(spec).expect("plain data");
            assert_eq!(notes(&json!({ "valueGenerator": written })), Vec::<String>::new(), "all that it has");
        }
    }
}
