#include "sources.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
/* Shortest interval between searches of a full table: unknown sources may come with every datagram,
 * and must not each cost a search. */
#define SWEEP_NS (SECOND_NS / 10)

static const uint8_t IPV4_PREFIX[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static struct address from_ipv4(const void *bytes) {
    struct address address = {.is_ipv4 = true};
    memcpy(address.bytes, IPV4_PREFIX, sizeof IPV4_PREFIX);
    memcpy(address.bytes + sizeof IPV4_PREFIX, bytes, 4);
    return address;
}

static struct address from_ipv6(const void *bytes) {
    struct address address = {.is_ipv4 = !memcmp(bytes, IPV4_PREFIX, sizeof IPV4_PREFIX)};
    memcpy(address.bytes, bytes, sizeof address.bytes);
    return address;
}

struct address address_of(const struct sockaddr *socket_address) {
    if (socket_address->sa_family == AF_INET)
        return from_ipv4(&((const struct sockaddr_in *)(const void *)socket_address)->sin_addr);
    return from_ipv6(&((const struct sockaddr_in6 *)(const void *)socket_address)->sin6_addr);
}

bool prefix_read(const char *text, struct prefix *prefix) {
    char address[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t bytes = slash ? (size_t)(slash - text) : strlen(text);
    if (bytes >= sizeof address) return false;
    memcpy(address, text, bytes);
    address[bytes] = 0;
    uint8_t found[16];
    unsigned all = 128, before = 0;
    if (inet_pton(AF_INET, address, found) == 1) {
        prefix->address = from_ipv4(found);
        all = 32, before = 96;
    } else if (inet_pton(AF_INET6, address, found) == 1) {
        prefix->address = from_ipv6(found);
        prefix->address.is_ipv4 = false;
    } else {
        return false;
    }
    unsigned long bits = all;
    if (slash) {
        char *end;
        if (slash[1] < '0' || slash[1] > '9') return false;
        bits = strtoul(slash + 1, &end, 10);
        if (*end || bits > all) return false;
    }
    prefix->bits = before + (unsigned)bits;
    return true;
}

bool prefix_contains(const struct prefix *prefix, const struct address *address) {
    if (prefix->address.is_ipv4 != address->is_ipv4) return false;
    unsigned whole = prefix->bits / 8, rest = prefix->bits % 8;
    if (memcmp(prefix->address.bytes, address->bytes, whole)) return false;
    if (!rest) return true;
    return !((prefix->address.bytes[whole] ^ address->bytes[whole]) >> (8 - rest));
}

/* Remaining part of a second's worth. */
static uint64_t bucket_left(const struct bucket *bucket, uint64_t now_ns) {
    uint64_t passed = now_ns > bucket->seen_at_ns ? now_ns - bucket->seen_at_ns : 0;
    return passed >= SECOND_NS - bucket->left_ns ? SECOND_NS : bucket->left_ns + passed;
}

static bool bucket_take(struct bucket *bucket, uint64_t now_ns, uint32_t rate) {
    uint64_t left = bucket_left(bucket, now_ns), cost = SECOND_NS / (rate ? rate : 1);
    bool is_let_in = rate && left >= cost;
    *bucket = (struct bucket){is_let_in ? left - cost : left, now_ns};
    return is_let_in;
}

static uint64_t mixed(uint64_t value) {
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* The place of an address, or the empty one where it would be. Half of all places are empty. */
static unsigned place_of(const struct sources *s, const uint8_t address[16]) {
    uint64_t halves[2];
    memcpy(halves, address, sizeof halves);
    unsigned place = mixed(mixed(halves[0] ^ s->seed) ^ halves[1]) % PLACES;
    while (s->places[place] && memcmp(s->table[s->places[place] - 1].address, address, 16))
        place = (place + 1) % PLACES;
    return place;
}

void sources_clear(struct sources *s, uint64_t seed) {
    s->seed = seed;
    s->sweep_at_ns = 0;
    s->crowd = s->others = (struct bucket){SECOND_NS, 0};
    s->count = 0;
    memset(s->places, 0, sizeof s->places);
}

/* Forgets silent sources: one silent for a second equals an unknown one. */
static void sweep(struct sources *s, uint64_t now_ns) {
    unsigned left = 0;
    memset(s->places, 0, sizeof s->places);
    for (unsigned index = 0; index < s->count; index++) {
        if (bucket_left(&s->table[index].bucket, now_ns) == SECOND_NS) continue;
        s->table[left] = s->table[index];
        s->places[place_of(s, s->table[left].address)] = (uint16_t)(left + 1);
        left++;
    }
    s->count = left;
}

static struct bucket *bucket_of(struct sources *s, uint64_t now_ns, const uint8_t address[16]) {
    unsigned place = place_of(s, address);
    if (!s->places[place] && s->count == SOURCES_MAX && now_ns >= s->sweep_at_ns) {
        s->sweep_at_ns = now_ns + SWEEP_NS;
        sweep(s, now_ns);
        place = place_of(s, address);
    }
    if (!s->places[place]) {
        if (s->count == SOURCES_MAX) return &s->crowd;
        struct source *source = &s->table[s->count++];
        memcpy(source->address, address, sizeof source->address);
        source->bucket = (struct bucket){SECOND_NS, now_ns};
        s->places[place] = (uint16_t)s->count;
    }
    return &s->table[s->places[place] - 1].bucket;
}

enum admission sources_admit(struct sources *s, uint64_t now_ns, const struct address *from) {
    bool is_listed = false;
    for (unsigned index = 0; index < s->allow_count && !is_listed; index++)
        is_listed = prefix_contains(&s->allow[index], from);
    if (!is_listed) {
        if (!s->others_rate) return REJECTED_SOURCE;
        return bucket_take(&s->others, now_ns, s->others_rate) ? UNLISTED : REJECTED_RATE;
    }
    struct address source = *from;
    /* One host may have all addresses of an IPv6 /64. */
    if (!source.is_ipv4) memset(source.bytes + 8, 0, 8);
    struct bucket *bucket = bucket_of(s, now_ns, source.bytes);
    return bucket_take(bucket, now_ns, s->rate) ? LISTED : REJECTED_RATE;
}
