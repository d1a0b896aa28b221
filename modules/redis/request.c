#include "request.h"

#include <stdbool.h>
#include <string.h>

enum { SPLIT = 1, TRIMMED = 2 };

/* Fields of the header, with the parts behind it. */
struct layout {
    unsigned oid, numkey, keyidx, startidx, clo, groups;
    const uint8_t *servers, *ends, *keys;
    size_t keys_bytes;
};

static unsigned trailing_zeros(unsigned keyidx) {
    return keyidx ? (unsigned)__builtin_ctz(keyidx) : 16;
}

/* True if OID, NUMKEY, KEYIDX, STARTIDX and CLO agree with each other and the number of groups. */
static bool has_sound_header(const struct layout *l) {
    unsigned groups_left;
    if (l->clo == 0) {
        /* The last key ends a group, and no group ends behind it. */
        if (l->oid || l->startidx || trailing_zeros(l->keyidx) != 16 - l->numkey) return false;
        groups_left = l->groups;
    } else if (l->clo == SPLIT || l->clo == (SPLIT | TRIMMED)) {
        unsigned last = l->startidx + l->numkey;
        if (l->oid >= l->groups || l->startidx < l->oid || last > KEYS_MAX) return false;
        if (l->oid == 0 && l->startidx) return false;
        /* The remaining bits are shifted by the keys up to the end of this group. */
        if (l->keyidx && trailing_zeros(l->keyidx) < last) return false;
        groups_left = l->groups - 1 - l->oid;
    } else {
        return false;
    }
    return (unsigned)__builtin_popcount(l->keyidx) == groups_left;
}

static bool has_distinct_servers(const struct layout *l) {
    for (unsigned group = 1; group < l->groups; group++)
        if (memchr(l->servers, l->servers[group], group)) return false;
    return true;
}

/* Checks END, and narrows `keys` to those of the own group. */
static bool narrow_to_own_keys(struct layout *l) {
    size_t before = 0, own_at = 0, own_bytes = 0;
    for (unsigned group = 0; group < l->groups; group++) {
        size_t end = read_u16(l->ends + 2 * group);
        if (end <= before) return false;
        if (group == l->oid) own_at = before, own_bytes = end - before;
        before = end;
    }
    if (l->keys_bytes != (l->clo & TRIMMED ? own_bytes : before)) return false;
    if (l->clo == SPLIT) l->keys += own_at, l->keys_bytes = own_bytes;
    return true;
}

static bool is_repeated(const struct request *request, struct key key) {
    for (unsigned index = 0; index < request->count; index++) {
        struct key other = request->keys[index];
        if (other.bytes == key.bytes && !memcmp(other.at, key.at, key.bytes)) return true;
    }
    return false;
}

/* Reads the keys. None may be repeated: a few bytes could make the server send a large value many
 * times. */
static bool read_keys(const struct layout *l, struct request *request) {
    size_t at = 0;
    request->count = 0;
    while (at < l->keys_bytes) {
        if (request->count == l->numkey || l->keys_bytes - at < 2) return false;
        struct key key = {l->keys + at + 2, read_u16(l->keys + at)};
        if (key.bytes > KEY_BYTES_MAX || l->keys_bytes - at - 2 < key.bytes) return false;
        if (is_repeated(request, key)) return false;
        request->keys[request->count++] = key;
        at += 2 + (size_t)key.bytes;
    }
    return request->count == l->numkey;
}

enum verdict request_read(const uint8_t *data, size_t bytes, struct request *request) {
    if (bytes < HEADER_BYTES || bytes > DATAGRAM_BYTES_MAX) return MALFORMED;
    if (data[0] != MULTIGET && data[0] != GET) return MALFORMED;
    struct layout l = {
        .oid = data[5],
        .numkey = data[6],
        .keyidx = read_u16(data + 7),
        .startidx = data[9],
        .clo = data[10],
        .groups = data[11],
    };
    if (l.groups == 0 || l.groups > KEYS_MAX || bytes < HEADER_BYTES + 3 * l.groups)
        return MALFORMED;
    if (l.numkey == 0 || l.numkey > KEYS_MAX || (data[0] == GET && l.numkey != 1))
        return MALFORMED;
    l.servers = data + HEADER_BYTES;
    l.ends = l.servers + l.groups;
    l.keys = l.ends + 2 * l.groups;
    l.keys_bytes = bytes - HEADER_BYTES - 3 * l.groups;
    if (!has_sound_header(&l) || !has_distinct_servers(&l) || !narrow_to_own_keys(&l))
        return MALFORMED;
    if (l.clo == 0 && l.groups > 1) return NOT_SPLIT;
    request->op = data[0];
    memcpy(request->id, data + 1, sizeof request->id);
    request->oid = (uint8_t)l.oid;
    request->startidx = (uint8_t)l.startidx;
    return read_keys(&l, request) ? SOUND : MALFORMED;
}
