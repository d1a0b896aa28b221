//! Requests and responses as clients and servers write them.

use super::Add;

pub(super) fn http1(add: Add<'_>) {
    let requests = [
        ("get", "GET /a?b=c HTTP/1.1\r\nHost: example.com\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n"),
        (
            "pipelined",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ),
        (
            "length",
            "PUT /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.0\r\n\r\n",
        ),
        (
            "chunked",
            "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\n",
        ),
        (
            "both",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "own",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Upgrade\r\nX: y\r\nUpgrade: z\r\nTE: trailers\r\n\r\n",
        ),
    ];
    let responses = [
        ("ok", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\nhello"),
        ("interim", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
        (
            "chunks",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
        ),
        ("until_close", "HTTP/1.0 200 OK\r\nServer: x\r\n\r\nhello"),
    ];
    for (mode, (name, text)) in
        requests.iter().map(|seed| (6, seed)).chain(responses.iter().map(|seed| (7, seed)))
    {
        add("http1", name, [&[mode], text.as_bytes()].concat());
    }
}
