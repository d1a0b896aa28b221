/* Allowed sources and their rates, as crates/multiget/src/shim/admission.rs has them. A datagram's
 * source can be forged, so this limits the traffic that the server can be made to send to others;
 * it is no access control. */
#ifndef SHUNT_SOURCES_H
#define SHUNT_SOURCES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    PREFIXES_MAX = 64,
    SOURCES_MAX = 4096, /* with a rate of their own; the others share one */
    PLACES = 2 * SOURCES_MAX,
};

/* IPv4 in the form that IPv6 has for it. */
struct address {
    uint8_t bytes[16];
    bool is_ipv4;
};

/* Addresses with the same leading bits, as in 10.0.0.0/8. */
struct prefix {
    struct address address;
    unsigned bits; /* of the 128 */
};

struct bucket {
    uint64_t left_ns;
    uint64_t seen_at_ns;
};

struct source {
    uint8_t address[16];
    struct bucket bucket;
};

struct sources {
    struct prefix allow[PREFIXES_MAX];
    unsigned allow_count;
    uint32_t rate;
    uint32_t others_rate;
    uint64_t seed;          /* of the places, so that nobody can choose addresses that share one */
    uint64_t sweep_at_ns;   /* earliest time of the next search for silent sources */
    struct bucket crowd;    /* of the allowed sources without a place in the table */
    struct bucket others;
    unsigned count;
    struct source table[SOURCES_MAX];
    uint16_t places[PLACES]; /* index in `table` plus 1; 0 is empty */
};

enum admission {
    LISTED,
    UNLISTED,
    REJECTED_SOURCE,
    REJECTED_RATE,
};

/* Reads a prefix; false if the text is none. */
bool prefix_read(const char *text, struct prefix *prefix);

bool prefix_contains(const struct prefix *prefix, const struct address *address);

/* The address of a socket address; IPv4 within IPv6 is IPv4. */
struct address address_of(const struct sockaddr *socket_address);

/* Makes the table empty; prefixes and rates stay. */
void sources_clear(struct sources *sources, uint64_t seed);

/* Admits a request of a source at a time. */
enum admission sources_admit(struct sources *sources, uint64_t now_ns,
                             const struct address *from);

#endif
