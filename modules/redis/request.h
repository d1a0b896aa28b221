/* Requests of NetMC, as crates/wire/src/netmc/request.rs reads them; docs/internals/netmc.md has
 * the format. A datagram that fails any check is dropped whole. */
#ifndef SHUNT_REQUEST_H
#define SHUNT_REQUEST_H

#include <stddef.h>
#include <stdint.h>

enum {
    DATAGRAM_BYTES_MAX = 1452, /* 1,500 less the headers of IPv6 and UDP */
    HEADER_BYTES = 12,
    KEYS_MAX = 16,
    KEY_BYTES_MAX = 1024,
};

/* First byte: the version of the layout, and the operation. */
enum operation {
    MULTIGET = 0x11,
    GET = 0x12,
    MULTIGET_REPLY = 0x14,
    GET_REPLY = 0x15,
};

enum verdict {
    SOUND,
    MALFORMED,
    NOT_SPLIT, /* sound, and for several servers: only a switch or a coordinator can use it */
};

struct key {
    const uint8_t *at; /* within the datagram */
    uint16_t bytes;
};

struct request {
    enum operation op;
    uint8_t id[4];
    uint8_t oid;
    uint8_t startidx;
    uint8_t count;
    struct key keys[KEYS_MAX];
};

/* Reads a datagram. `request` is valid only after SOUND, and as long as the datagram is. */
enum verdict request_read(const uint8_t *data, size_t bytes, struct request *request);

static inline uint16_t read_u16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline void write_u16(uint8_t *at, size_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

#endif
