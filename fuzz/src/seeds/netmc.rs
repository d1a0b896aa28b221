//! Multigets as clients, switches and servers write them, whole and in parts, and RESP as Redis and
//! its clients do.

use shunt_multiget::place;
use shunt_wire::netmc::{Group, Item, Op, ReplyWriter, Status, Trim, encode_request, split};

use super::Add;

pub(super) fn netmc(add: Add<'_>) {
    let keys: Vec<Vec<u8>> = (0..9).map(|key| format!("key:{key}").into_bytes()).collect();
    let groups = [
        Group { server: 4, keys: 3 },
        Group { server: 0, keys: 1 },
        Group { server: 200, keys: 5 },
    ];
    let mut whole = Vec::new();
    encode_request(&mut whole, Op::MultiGet, 77, &groups, keys.iter().map(Vec::as_slice));
    for (name, trim) in [("full", Trim::Full), ("trimmed", Trim::Own)] {
        split(&whole, trim, &mut Vec::new(), |server, part| {
            add("netmc", &format!("{name}_{server}"), part.to_vec())
        })
        .expect("it is sound");
    }
    add("netmc", "whole", whole);
    let mut get = Vec::new();
    encode_request(
        &mut get,
        Op::Get,
        u32::MAX,
        &[Group { server: 1, keys: 1 }],
        [&b"a"[..]].into_iter(),
    );
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
    for (mode, (name, text)) in
        commands.iter().map(|seed| (4, seed)).chain(answers.iter().map(|seed| (5, seed)))
    {
        add("resp", name, [&[mode], text.as_bytes()].concat());
    }
}

pub(super) fn shim(add: Add<'_>) {
    let keys: Vec<Vec<u8>> = (0..16).map(|key| format!("key:{key}").into_bytes()).collect();
    for count in [1, 5, 16] {
        let mut request = Vec::new();
        let groups = [Group { server: 3, keys: count }];
        encode_request(&mut request, Op::MultiGet, 9, &groups, keys.iter().map(Vec::as_slice));
        for options in [0, 1, 3] {
            add(
                "shim",
                &format!("mget_{count}_{options}"),
                [&[options, count], &request[..]].concat(),
            );
        }
    }
    let mut get = Vec::new();
    encode_request(&mut get, Op::Get, 9, &[Group { server: 3, keys: 1 }], [&b"a"[..]].into_iter());
    add("shim", "get", [&[0, 4], &get[..]].concat());
    // In the form for a shim that answers for three servers.
    let of = |server| keys.iter().filter(move |key| place::server(key, 3) == server).take(2);
    let mut whole = Vec::new();
    let keys = of(0).chain(of(2)).map(Vec::as_slice);
    encode_request(
        &mut whole,
        Op::MultiGet,
        9,
        &[0, 2].map(|server| Group { server, keys: 2 }),
        keys,
    );
    split(&whole, Trim::Own, &mut Vec::new(), |server, part| {
        add("shim", &format!("part_{server}"), [&[0, server], part].concat());
    })
    .expect("it is sound");
    add("shim", "whole", [&[3 << 2, 0], &whole[..]].concat());
}

pub(super) fn merging(add: Add<'_>) {
    // Begins have a count, a key and a stride; replies have the request, the manner, and the first
    // key; then a byte per key.
    let begins = [[0, 5, 10, 1], [0, 30, 0, 3], [0, 1, 9, 2], [0, 200, 7, 1]];
    let whole = [1, 0, 0xf0, 0, 0, 1, 4, 2, 3];
    let part = [1, 0, 0x10, 1, 0, 4];
    let elsewhere = [1, 0, 0x11, 0, 0, 0];
    let too_big = [1, 0, 0x20, 0, 6, 7, 6];
    let (time, fetched, failed) = ([3, 25], [4, 0, 0], [5, 0]);
    for (index, begin) in begins.iter().enumerate() {
        let steps: [&[u8]; 9] =
            [&[1], begin, &whole, &part, &elsewhere, &too_big, &time, &whole, &fetched];
        add("merging", &format!("answered_{index}"), steps.concat());
        let steps: [&[u8]; 8] =
            [&[250], begin, &time, &time, &[3, 90], &fetched, &fetched, &failed];
        add("merging", &format!("silent_{index}"), steps.concat());
    }
    add(
        "merging",
        "noise",
        [&[0][..], &begins[0], &[2, 13, 0x14, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]].concat(),
    );
}

pub(super) fn sidecar(add: Add<'_>) {
    const APP: u8 = 2;
    let commands = [
        ("set", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n", "+OK\r\n"),
        ("mget", "*4\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n", "*1\r\n$1\r\nx\r\n"),
        ("get", "*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "$1\r\nx\r\n"),
        ("three", "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*2\r\n$4\r\nINCR\r\n$1\r\na\r\n", "%0\r\n"),
        ("local", "*1\r\n$4\r\nPING\r\n*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n", "-ERR\r\n"),
        ("quit", "*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n*1\r\n$4\r\nPING\r\n", ":1\r\n"),
        ("del", "*4\r\n$3\r\nDEL\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n", ":1\r\n"),
        ("mset", "*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\nx\r\n$1\r\nb\r\n$1\r\ny\r\n", "+OK\r\n"),
    ];
    let piece = |whose: u8, text: &str| [&[whose, text.len() as u8], text.as_bytes()].concat();
    for (seed, (name, command, answer)) in (0..).zip(commands) {
        let pieces = [
            vec![seed],
            piece(APP, command),
            piece(0, answer),
            piece(1, answer),
            piece(APP, command),
        ];
        add("sidecar", name, pieces.concat());
    }
}
