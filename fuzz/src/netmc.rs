//! NetMC's datagrams: requests, their split, and replies. The input is a datagram.

use shunt_wire::netmc::{
    DATAGRAM_BYTES_MAX, Item, KEYS_MAX, ReplyReader, ReplyWriter, Request, Trim, encode_request,
    split,
};

/// Tries one input.
pub fn run(data: &[u8]) {
    let data = &data[..data.len().min(DATAGRAM_BYTES_MAX)];
    if let Ok(request) = Request::parse(data) {
        check_request(data, &request);
    }
    if let Ok(reply) = ReplyReader::parse(data) {
        let header = reply.header;
        let items: Vec<Item<'_>> = reply.collect();
        assert!(items.len() == usize::from(header.numkey) && items.len() <= KEYS_MAX);
        let mut again = Vec::new();
        let writer =
            ReplyWriter::begin(&mut again, header.op, header.id, header.oid, header.startidx);
        let mut writer = writer.with_list_digest(header.list_digest);
        items.iter().for_each(|item| writer.push(item));
        assert_eq!(again, data);
    }
}

fn check_request(data: &[u8], request: &Request<'_>) {
    let own: Option<Vec<&[u8]>> = request.own_keys().ok().map(Iterator::collect);
    if let Some(keys) = &own {
        assert_eq!(keys.len(), usize::from(request.numkey));
    }
    let (mut parts, mut keys) = (Vec::new(), Vec::new());
    let mut groups = Vec::new();
    for trim in [Trim::Full, Trim::Own] {
        (parts, keys) = (Vec::new(), Vec::new());
        groups.clear();
        let outcome =
            split(data, trim, &mut Vec::new(), |server, part| parts.push((server, part.to_vec())));
        if outcome.is_err() {
            assert!(parts.is_empty() && request.clo != 0, "all or nothing");
            return;
        }
        for (oid, (server, part)) in parts.iter().enumerate() {
            let part = Request::parse(part).expect("a part is sound where the whole was");
            assert_eq!((part.id, part.server(), usize::from(part.oid)), (request.id, *server, oid));
            assert!(part.is_for_one_server());
            groups.push(shunt_wire::netmc::Group { server: *server, keys: part.numkey });
            match part.own_keys() {
                Ok(own) => keys.extend(own.map(<[u8]>::to_vec)),
                Err(_) => assert!(own.is_none(), "a part of sound keys has sound keys"),
            }
        }
    }
    assert!(!parts.is_empty());
    if let Some(own) = own {
        assert!(keys.iter().map(Vec::as_slice).eq(own.iter().copied()));
        let mut again = Vec::new();
        encode_request(&mut again, request.op, request.id, &groups, own.into_iter());
        assert_eq!(again, data);
    }
}
