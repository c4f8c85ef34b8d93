use super::*;

const WHAT: &str = "test file";

fn file(payloads: &[&str]) -> Vec<u8> {
    let mut bytes = first_line(WHAT).into_bytes();
    for (sequence, payload) in payloads.iter().enumerate() {
        write_frame(&mut bytes, sequence as u64, payload.as_bytes());
    }
    bytes
}

fn long_file() -> Vec<u8> {
    let long = format!("\"{}\"", "x".repeat(1500));
    file(&["{\"a\":1}", &long, "[]", &long])
}

#[test]
fn frames_come_back_in_order() {
    let bytes = file(&["{}", "[1,2]", "\"three\""]);
    let frames = read_frames(WHAT, &bytes).expect("readable");
    assert_eq!(frames.payloads, [b"{}" as &[u8], b"[1,2]", b"\"three\""]);
    assert_eq!(frames.end, bytes.len());
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = long_file();
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1 << bit;
            let result = read_frames(WHAT, &flipped);
            assert!(result.is_err(), "bit {bit} of byte {position} went unseen");
        }
    }
}

#[test]
fn a_cut_tail_keeps_the_whole_frames_before_it() {
    let bytes = long_file();
    let ends: Vec<usize> = (0..=4).map(file_prefix_len).collect();
    for len in ends[0]..=bytes.len() {
        let frames = read_frames(WHAT, &bytes[..len]).expect("a cut tail is torn");
        let whole = ends.iter().rposition(|end| *end <= len).expect("the first line is there");
        assert_eq!((frames.payloads.len(), frames.end), (whole, ends[whole]), "cut at {len}");
    }
}

fn file_prefix_len(count: usize) -> usize {
    let long = format!("\"{}\"", "x".repeat(1500));
    file(&["{\"a\":1}", &long, "[]", &long][..count]).len()
}

#[test]
fn unwritten_sectors_of_the_last_frame_are_a_torn_tail() {
    let bytes = long_file();
    let last = file_prefix_len(3);
    for hole in last / SECTOR_BYTES..bytes.len().div_ceil(SECTOR_BYTES) {
        let mut torn = bytes.clone();
        let from = (hole * SECTOR_BYTES).max(last);
        let to = ((hole + 1) * SECTOR_BYTES).min(torn.len());
        torn[from..to].fill(0);
        let frames = read_frames(WHAT, &torn).expect("torn");
        assert_eq!((frames.payloads.len(), frames.end), (3, last), "sector {hole}");
    }
}

#[test]
fn a_hole_before_a_good_frame_is_damage() {
    let bytes = long_file();
    let mut holed = bytes.clone();
    holed[SECTOR_BYTES..2 * SECTOR_BYTES].fill(0);
    let error = read_frames(WHAT, &holed).expect_err("frame 1 was synced once");
    assert!(matches!(error, FrameError::Damaged { .. }), "{error}");
}

#[test]
fn frames_that_were_swapped_doubled_or_left_out_are_damage() {
    let head = first_line(WHAT);
    for order in [&[1_u64, 0] as &[_], &[0, 0], &[0, 2]] {
        let mut bytes = head.clone().into_bytes();
        for sequence in order {
            write_frame(&mut bytes, *sequence, b"{}");
        }
        assert!(read_frames(WHAT, &bytes).is_err(), "{order:?}");
    }
}

#[test]
fn another_or_a_newer_file_is_refused_by_name() {
    assert!(matches!(read_frames(WHAT, b""), Err(FrameError::NotThisFile(_))));
    assert!(matches!(
        read_frames(WHAT, &first_line("other file").into_bytes()),
        Err(FrameError::NotThisFile(_))
    ));
    let newer = b"riverrun test file, format 7\nwhatever";
    let error = read_frames(WHAT, newer).expect_err("newer");
    assert_eq!(error, FrameError::NewerFormat(7));
    assert!(error.to_string().contains("version 7"), "{error}");
}

#[test]
fn a_length_beyond_the_limit_is_damage_and_allocates_nothing() {
    let mut bytes = first_line(WHAT).into_bytes();
    bytes.extend_from_slice(&header(PAYLOAD_BYTES_MAX + 1, 0, 0));
    assert!(read_frames(WHAT, &bytes).is_err());
}
