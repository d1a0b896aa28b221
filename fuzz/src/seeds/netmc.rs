//! Multigets as clients, switches and servers write them, whole and in parts, and RESP as Redis and its clients do.

use shunt_wire::netmc::{Group, Item, Op, ReplyWriter, Status, Trim, encode_request, split};

use super::Add;

pub(super) fn netmc(add: Add<'_>) {
    let keys: Vec<Vec<u8>> = (0..9).map(|key| format!("key:{key}").into_bytes()).collect();
    let groups = [Group { server: 4, keys: 3 }, Group { server: 0, keys: 1 }, Group { server: 200, keys: 5 }];
    let mut whole = Vec::new();
    encode_request(&mut whole, Op::MultiGet, 77, &groups, keys.iter().map(Vec::as_slice));
    for (name, trim) in [("full", Trim::Full), ("trimmed", Trim::Own)] {
        split(&whole, trim, &mut Vec::new(), |server, part| add("netmc", &format!("{name}_{server}"), part.to_vec()))
            .expect("it is sound");
    }
    add("netmc", "whole", whole);
    let mut get = Vec::new();
    encode_request(&mut get, Op::Get, u32::MAX, &[Group { server: 1, keys: 1 }], [&b"a"[..]].into_iter());
    add("netmc", "get", get);
    let mut reply = Vec::new();
    let mut writer = ReplyWriter::begin(&mut reply, Op::MultiGet, 77, 2, 4);
    writer.push(&Item { status: Status::Hit, key: b"key:4", value: b"value" });
    for status in [Status::Miss, Status::TooBig, Status::AskOverTcp] {
        writer.push(&Item { status, key: b"key:5", value: b"" });
    }
    add("netmc", "reply", reply);
}

pub(super) fn resp(add: Add<'_>) {
    let commands = [
        ("mget", "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$0\r\n\r\n"),
        ("pipelined", "*1\r\n$4\r\nPING\r\n\r\n*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n"),
    ];
    let answers = [
        ("values", "*4\r\n$1\r\na\r\n$-1\r\n_\r\n-ERR x\r\n+OK\r\n"),
        ("nested", "*2\r\n*1\r\n:1\r\n%1\r\n+a\r\n~1\r\n#t\r\n"),
        ("attribute", "|1\r\n+ttl\r\n:3\r\n=7\r\ntxt:abc\r\n!3\r\nERR\r\n,1.5\r\n(12\r\n"),
    ];
    for (mode, (name, text)) in commands.iter().map(|seed| (4, seed)).chain(answers.iter().map(|seed| (5, seed))) {
        add("resp", name, [&[mode], text.as_bytes()].concat());
    }
}
