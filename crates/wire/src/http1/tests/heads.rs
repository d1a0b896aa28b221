//! Heads: fields, versions, limits.

use super::*;

#[test]
fn a_request_says_where_its_body_ends() {
    for (fields, framing) in [
        ("", Framing::None),
        ("Content-Length: 0\r\n", Framing::None),
        ("content-length:  17 \r\n", Framing::Length(17)),
        ("Content-Length: 9223372036854775807\r\n", Framing::Length(i64::MAX as u64)),
        ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
    ] {
        assert_eq!(with_request(&get(fields), |head| head.framing), Ok(framing), "{fields}");
    }
}

#[test]
fn a_response_says_where_its_body_ends() {
    for (text, to_head, framing) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, Framing::Length(5)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, Framing::None),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, Framing::Chunked),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true, Framing::None),
        ("HTTP/1.1 200\r\n\r\n", false, Framing::UntilClose),
        ("HTTP/1.0 200 OK\r\n\r\n", false, Framing::UntilClose),
        ("HTTP/1.1 204 No Content\r\n\r\n", false, Framing::None),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false, Framing::None),
        ("HTTP/1.1 100 Continue\r\n\r\n", false, Framing::None),
        ("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", false, Framing::None),
    ] {
        assert_eq!(
            with_response(text.as_bytes(), to_head, |head| head.framing),
            Ok(framing),
            "{text}"
        );
    }
}

#[test]
fn connections_go_on_as_the_version_and_connection_say() {
    for (version, connection, expected) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, Close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive\r\nConnection: close\r\n", false),
    ] {
        let request = format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n");
        assert_eq!(
            with_request(request.as_bytes(), |head| head.keep_alive),
            Ok(expected),
            "{request}"
        );
        let response = format!("HTTP/{version} 200 OK\r\nContent-Length: 1\r\n{connection}\r\n");
        assert_eq!(
            with_response(response.as_bytes(), false, |head| head.keep_alive),
            Ok(expected),
            "{response}"
        );
    }
    let endless = b"HTTP/1.1 200 OK\r\n\r\n";
    assert_eq!(with_response(endless, false, |head| head.keep_alive), Ok(false));
}

#[test]
fn ambiguous_heads_are_refused_by_name() {
    for (fields, expected) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Refusal::LengthAndEncoding),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", Refusal::SeveralContentLengths),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Refusal::SeveralContentLengths),
        ("Content-Length: 5, 6\r\n", Refusal::SeveralContentLengths),
        ("Content-Length: +5\r\n", Refusal::ContentLength),
        ("Content-Length: 0x5\r\n", Refusal::ContentLength),
        ("Content-Length: 5 5\r\n", Refusal::ContentLength),
        ("Content-Length:\r\n", Refusal::ContentLength),
        ("Content-Length: 9223372036854775808\r\n", Refusal::ContentLength),
        ("Content-Length: 18446744073709551621\r\n", Refusal::ContentLength),
        ("Transfer-Encoding: gzip, chunked\r\n", Refusal::TransferEncoding),
        ("Transfer-Encoding: identity\r\n", Refusal::TransferEncoding),
        ("Transfer-Encoding: chunked, chunked\r\n", Refusal::TransferEncoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Refusal::TransferEncoding),
        ("Transfer-Encoding: \"chunked\"\r\n", Refusal::TransferEncoding),
        ("Transfer-Encoding:\r\n", Refusal::TransferEncoding),
        ("Transfer-Encoding : chunked\r\n", Refusal::SpaceBeforeColon),
        ("Content-Length\t: 5\r\n", Refusal::SpaceBeforeColon),
        ("A: b\r\n c\r\n", Refusal::FoldedField),
        ("A: b\r\n\tc\r\n", Refusal::FoldedField),
        ("A: b\rc\r\n", Refusal::BareCarriageReturn),
        ("A: b\r\r\n", Refusal::BareCarriageReturn),
        ("A: b\nC: d\r\n", Refusal::BareLineFeed),
        ("A: b\0\r\n", Refusal::Nul),
        ("A\0: b\r\n", Refusal::Nul),
        ("A: b\x0bc\r\n", Refusal::FieldValue),
        ("A: b\x7f\r\n", Refusal::FieldValue),
        ("A b: c\r\n", Refusal::FieldName),
        (": c\r\n", Refusal::FieldName),
        ("nothing\r\n", Refusal::FieldName),
        ("Host: b\r\n", Refusal::Host),
        ("Expect: 200-ok\r\n", Refusal::Expectation),
        ("Connection: Content-Length\r\nContent-Length: 5\r\n", Refusal::ConnectionNamesFraming),
        ("Connection: x, transfer-encoding\r\n", Refusal::ConnectionNamesFraming),
        ("Connection: Authorization\r\n", Refusal::ConnectionNamesOther),
        ("Connection: close, Cookie\r\n", Refusal::ConnectionNamesOther),
        ("Connection: x-forwarded-proto\r\n", Refusal::ConnectionNamesOther),
        ("Connection: If-Match\r\n", Refusal::ConnectionNamesOther),
        ("Connection: Content-Type\r\n", Refusal::ConnectionNamesOther),
        ("Transfer_Encoding: chunked\r\n", Refusal::DisguisedField),
        ("content_length: 5\r\n", Refusal::DisguisedField),
        ("Content.Length: 5\r\n", Refusal::DisguisedField),
        ("X_Forwarded_For: 10.0.0.1\r\n", Refusal::DisguisedField),
        ("X-Forwarded_For: 10.0.0.1\r\n", Refusal::DisguisedField),
    ] {
        assert_eq!(refused(&get(fields)), expected, "{}", fields.escape_debug());
    }
}

/// Each field of a head is compared with each option.
#[test]
fn options_of_a_connection_have_a_bound_over_all_its_fields() {
    let fields = |count: usize| "Connection: a, b,\r\n".repeat(count / 2);
    with_request(&get(&fields(32)), |_| ()).expect("as many as there may be");
    let limit = Refusal::TooManyConnectionOptions { limit: 32 };
    assert_eq!(refused(&get(&fields(34))), limit);
    let endless = format!("Connection: {}\r\n", "a,".repeat(8_000));
    assert_eq!(refused(&get(&endless.repeat(3))), limit);
    assert_eq!(limit.status(), 431);
}

#[test]
fn first_lines_are_exact() {
    for (line, expected) in [
        ("GET / HTTP/1.1 ", Refusal::StartLine),
        ("GET  / HTTP/1.1", Refusal::StartLine),
        ("GET /", Refusal::StartLine),
        ("GET\t/ HTTP/1.1", Refusal::StartLine),
        (" GET / HTTP/1.1", Refusal::Method),
        ("G(T / HTTP/1.1", Refusal::Method),
        ("GET / http/1.1", Refusal::StartLine),
        ("GET / HTTP/2.0", Refusal::Version),
        ("GET / HTTP/0.9", Refusal::Version),
        ("GET a HTTP/1.1", Refusal::Target),
        ("GET * HTTP/1.1", Refusal::Target),
        ("GET /\x07 HTTP/1.1", Refusal::Target),
        ("GET /ä HTTP/1.1", Refusal::Target),
        ("CONNECT a:1 HTTP/1.1", Refusal::Connect),
    ] {
        assert_eq!(refused(format!("{line}\r\nHost: a\r\n\r\n").as_bytes()), expected, "{line}");
    }
    assert_eq!(refused(b"GET / HTTP/1.1\r\n\r\n"), Refusal::Host);
    assert_eq!(
        refused(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Refusal::TransferEncoding
    );
    for good in [
        "GET http://a/b HTTP/1.1",
        "GET HTTP://A:80 HTTP/1.1",
        "GET http://a?b=http://c/ HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "M-SEARCH /?a=b%20 HTTP/1.0",
    ] {
        assert_eq!(
            with_request(format!("{good}\r\nHost: a\r\n\r\n").as_bytes(), |_| ()),
            Ok(()),
            "{good}"
        );
    }
    for (line, expected) in [
        ("HTTP/1.1 99 x", Refusal::Status),
        ("HTTP/1.1 2000 x", Refusal::Status),
        ("HTTP/1.1  200 x", Refusal::Status),
        ("HTTP/3.0 200 x", Refusal::Version),
        ("ICY 200 x", Refusal::StartLine),
    ] {
        assert_eq!(
            with_response(format!("{line}\r\n\r\n").as_bytes(), false, |_| ()),
            Err(expected),
            "{line}"
        );
    }
}

#[test]
fn a_target_with_a_host_names_the_same_as_host() {
    let outcome = |target: &str, host: &str| {
        with_request(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), |_| ())
    };
    for (target, host) in [
        ("http://a.example/b", "A.example"),
        ("http://a", "a:80"),
        ("https://a:443/", "a"),
        ("http://a:/", "a"),
        ("http://[::1]:8080/", "[::1]:8080"),
        ("http://a:8080?b", "a:8080"),
        ("/", ""),
    ] {
        assert_eq!(outcome(target, host), Ok(()), "{target}, {host}");
    }
    for (target, host) in [
        ("http://b/", "a"),
        ("http://a.example/", "a"),
        ("http://a/", "a.example"),
        ("http://a:8080/", "a"),
        ("http://a:443/", "a"),
        ("http://a/", ""),
        ("http://b?http://a/", "a"),
        ("http://b#@a/", "a"),
    ] {
        assert_eq!(outcome(target, host), Err(Refusal::TargetAndHost), "{target}, {host}");
    }
    for target in ["http:///", "http://", "http://b@a/", "http://a\\b/", "a/http://a/", "a?://a/"] {
        assert_eq!(outcome(target, "a"), Err(Refusal::Target), "{target}");
    }
    for host in ["a b", "a/b", "b@a", "a, b", "a?b", "a#b", "a\\b", "ä"] {
        assert_eq!(outcome("/", host), Err(Refusal::Host), "{host}");
    }
    // HTTP/1.0 may omit Host.
    assert_eq!(with_request(b"GET http://a/ HTTP/1.0\r\n\r\n", |_| ()), Ok(()));
}

#[test]
fn an_answer_that_has_no_body_has_no_length() {
    let forwarded = |text: &str| {
        let mut out = Vec::new();
        let read = with_response(text.as_bytes(), false, |head| {
            head.forward(&[], &mut out);
            head.keep_alive
        });
        (read.expect("it is one"), String::from_utf8(out).expect("ASCII"))
    };
    for (text, keep_alive) in [
        ("HTTP/1.1 204 No Content\r\nA: b\r\nContent-Length: 0\r\n\r\n", true),
        // The following bytes would be its body, whose end is not sought.
        ("HTTP/1.1 204 No Content\r\nA: b\r\nContent-Length: 5\r\n\r\n", false),
        ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n", false),
    ] {
        let expected = (keep_alive, "HTTP/1.1 204 No Content\r\nA: b\r\n\r\n".to_owned());
        assert_eq!(forwarded(text), expected, "{text}");
    }
    let hints = "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(forwarded(hints).1, "HTTP/1.1 103 Early Hints\r\n\r\n");
    let same = "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(forwarded(same), (true, same.to_owned()));
}

#[test]
fn expectations_are_only_there_with_a_body_and_http_1_1() {
    let expects = |text: &str| with_request(text.as_bytes(), |head| head.expects_continue);
    let fields = "Host: a\r\nExpect: 100-Continue\r\n";
    assert_eq!(expects(&format!("PUT / HTTP/1.1\r\n{fields}Content-Length: 1\r\n\r\n")), Ok(true));
    assert_eq!(expects(&format!("PUT / HTTP/1.1\r\n{fields}\r\n")), Ok(false));
    assert_eq!(expects(&format!("PUT / HTTP/1.0\r\n{fields}Content-Length: 1\r\n\r\n")), Ok(false));
}

#[test]
fn limits_are_those_that_were_given() {
    let limits = HeadLimits { head_bytes: 100, line_bytes: 40, fields: 2 };
    let outcome = |text: &str| {
        HeadReader::new(limits).read(text.as_bytes()).map(|head| head.map(|head| head.len()))
    };
    let line = |length: usize| format!("{}\r\n", "a".repeat(length - 2));
    assert_eq!(outcome(&line(40)), Ok(None));
    assert_eq!(outcome(&line(41)), Err(Refusal::LineTooLong { limit: 40 }));
    assert_eq!(outcome(&"a".repeat(39)), Ok(None));
    assert_eq!(
        outcome(&"a".repeat(40)),
        Err(Refusal::LineTooLong { limit: 40 }),
        "no line end can come in time"
    );
    let field = |length: usize| format!("b:{}\r\n", "c".repeat(length - 4));
    assert_eq!(outcome(&[line(40), field(40), field(18)].concat()), Ok(None));
    let whole = [line(40), field(40), field(18), "\r\n".to_owned()].concat();
    assert_eq!(outcome(&whole), Ok(Some(100)));
    let longer = [line(40), field(40), field(19), "\r\n".to_owned()].concat();
    assert_eq!(outcome(&longer), Err(Refusal::HeadTooLong { limit: 100 }));
    let many = [line(10), field(5), field(5), field(5)].concat();
    assert_eq!(outcome(&many), Err(Refusal::TooManyFields { limit: 2 }));
}

#[test]
fn fields_of_one_connection_are_not_forwarded() {
    let text = b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: x-own, Upgrade\r\nX-Own: 1\r\nUpgrade: websocket\r\n\
                 Keep-Alive: timeout=5\r\nTE: trailers\r\nx:  y \r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut out = Vec::new();
    with_request(text, |head| head.forward(&[("Via", "b")], &mut out)).expect("it is one");
    let expected =
        b"GET /a HTTP/1.1\r\nHost: a\r\nx: y\r\nTransfer-Encoding: chunked\r\nVia: b\r\n\r\n";
    assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[test]
fn only_strong_etags_are_told() {
    for (tag, expected) in
        [("\"a\"", Some(&b"\"a\""[..])), ("W/\"a\"", None), ("a", None), ("\"", None)]
    {
        let text = format!("HTTP/1.1 200 OK\r\nETag: {tag}\r\n\r\n");
        let found =
            with_response(text.as_bytes(), false, |head| head.strong_etag().map(<[u8]>::to_vec));
        assert_eq!(found.expect("it is one").as_deref(), expected, "{tag}");
    }
}

#[test]
fn a_content_range_says_all_or_is_none() {
    let range = |first, last, total| Some(ContentRange { first, last, total });
    for (value, expected) in [
        ("bytes 0-9/10", range(0, 9, 10)),
        ("Bytes 5-5/10", range(5, 5, 10)),
        (
            "bytes 9223372036854775805-9223372036854775806/9223372036854775807",
            range((1 << 63) - 3, (1 << 63) - 2, (1 << 63) - 1),
        ),
        ("bytes 0-10/10", None),
        ("bytes 6-5/10", None),
        ("bytes 0-9/*", None),
        ("bytes */10", None),
        ("bytes 0-9", None),
        ("bytes -9/10", None),
        ("bytes 0-/10", None),
        ("bytes 0-9/10, 0-9/10", None),
        ("bytes 0-9/18446744073709551616", None),
        ("bytes +0-9/10", None),
        ("items 0-9/10", None),
        ("byt", None),
        ("", None),
    ] {
        let text = format!("HTTP/1.1 206 Part\r\nContent-Range: {value}\r\n\r\n");
        assert_eq!(
            with_response(text.as_bytes(), false, |head| head.content_range()).expect("it is one"),
            expected,
            "{value}"
        );
    }
    let twice =
        "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-9/10\r\nContent-Range: bytes 0-9/10\r\n\r\n";
    assert_eq!(
        with_response(twice.as_bytes(), false, |head| head.content_range()).expect("it is one"),
        None
    );
}

#[test]
fn every_refusal_of_a_request_has_a_status_and_says_why() {
    for refusal in
        [Refusal::HeadTooLong { limit: 7 }, Refusal::Version, Refusal::Connect, Refusal::Nul]
    {
        assert!(
            (400..600).contains(&refusal.status())
                && !refusal.to_string().is_empty()
                && !refusal.name().is_empty()
        );
    }
    assert!(Refusal::HeadTooLong { limit: 7 }.to_string().contains('7'));
}
