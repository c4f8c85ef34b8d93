//! Output beside a command's answer does not change how it ends: nobody needs to be there to read it.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::common::{Server, wait};

/// The receiver behind the stderr of a command that nobody reads.
#[derive(Clone, Copy, Debug)]
enum Unread {
    FullDisk,
    /// A pipe whose reader has left.
    Closed,
    /// A pipe that has no room, and whose reader does not read.
    Full,
}

impl Unread {
    /// The end to write to, and what has to stay open meanwhile.
    fn open(self) -> (Stdio, Option<OwnedFd>) {
        if matches!(self, Self::FullDisk) {
            let device = OpenOptions::new().write(true).open("/dev/full").expect("there on Linux");
            return (device.into(), None);
        }
        let (reader, writer) = std::io::pipe().expect("a pipe");
        if matches!(self, Self::Closed) {
            return (writer.into(), None);
        }
        let mut writer = File::from(OwnedFd::from(writer));
        let flags = fcntl_getfl(&writer).expect("flags");
        fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("set");
        let full = loop {
            if let Err(error) = writer.write(&[b'x'; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        fcntl_setfl(&writer, flags).expect("set");
        (writer.into(), Some(reader.into()))
    }
}

/// The exit code and the answer of a command whose stderr nobody reads.
fn unread(server: &Server, args: &[&str], input: &[u8], stderr: Unread) -> (i32, String) {
    let (stderr, reader) = stderr.open();
    let mut child =
        server.command(args).stdin(Stdio::piped()).stderr(stderr).spawn().expect("the binary runs");
    child.stdin.take().expect("piped").write_all(input).expect("room in a pipe");
    let mut stdout = child.stdout.take().expect("piped");
    let answer = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let code = wait(&mut child).code().unwrap_or(-1);
    drop(reader);
    (code, answer.join().expect("no panic").expect("text"))
}

#[test]
fn a_command_ends_the_same_where_nobody_reads_its_stderr() {
    let server = Server::start();
    server.run(&["topic", "create", "two", "--partitions", "2"]).ended(0);
    server.feed(&["produce", "two", "--partition", "0"], b"a\nb\nc\n").ended(0);
    let target = server.bootstrap();
    // Each of them says something on stderr, and so many lines on stdout.
    let cases: [(&[&str], usize); 9] = [
        (&["produce", "t"], 0),
        (&["consume", "two", "--from", "2", "--until-end"], 1),
        (&["topic", "describe", "two", "nope"], 4),
        (&["group", "describe", "nope"], 0),
        (&["queue", "tail", "/nope"], 0),
        (&["perf", "consume", "--topic", "two", "--num-records", "3", "--socket-buffer-size", "9"], 2),
        (
            &[
                "perf",
                "produce",
                "--topic",
                "p",
                "--num-records",
                "3",
                "--record-size",
                "9",
                "--throughput",
                "-1",
                "--command-property",
                "no.such.setting=1",
            ],
            1,
        ),
        (&["perf", "end-to-end", target, "e", "3", "all", "9"], 2),
        (&["bench", "run", "C/disk-full", "--server", target], 0),
    ];
    for (args, lines) in cases {
        let read = server.feed(args, b"1\n2\n3\n");
        assert!(!read.stderr.is_empty(), "{args:?} says nothing");
        assert!(read.text().lines().count() >= lines, "{args:?}: {read:?}");
        for stderr in [Unread::FullDisk, Unread::Closed, Unread::Full] {
            let (code, answer) = unread(&server, args, b"1\n2\n3\n", stderr);
            assert_eq!(code, read.code, "{args:?} with {stderr:?}");
            assert!(answer.lines().count() >= lines, "{args:?} with {stderr:?}: {answer}");
        }
    }
}
