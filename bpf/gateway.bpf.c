// SPDX-License-Identifier: Apache-2.0
//
// One virtual address for several dispatchers: attached to the interface of the host that clients' packets for it come to. A connection goes to one
// dispatcher and stays with it; a new one goes to one that takes new ones. Answers do not come by here. The maps are described in
// crates/steering/src/gateway.rs, which writes to them.
//
// This program must never: send two packets of a connection to two dispatchers while the first is in the table; send a new connection to a dispatcher that
// takes none, if another does; take a connection away from its dispatcher for a first packet that anybody may have sent; touch a packet of anything else.

enum counter { PLACED, KEPT, UNKNOWN, NOWHERE, HOPS_OVER, COUNTERS };

#include "packet.h"

#define DISPATCHERS_MAX 64
#define PLACED_MAX 262144
// Of a connection of which nothing but a first packet has come for so many seconds, that is taken for the first of another one.
#define SILENT_SECONDS 60

enum state { NONE, TAKES_NEW, KEEPS_OLD };

struct dispatcher {
    __u8 mac[ETH_ALEN];
    __u8 state;
    __u8 zero;
    __u32 interface;
};

struct placed {
    __u8 mac[ETH_ALEN];
    __u16 index;
    // When it was placed, or a packet of it came that was not its first. In seconds, so that it is not written for each packet.
    __u32 seen_seconds;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, DISPATCHERS_MAX);
    TYPE(key, __u32);
    TYPE(value, struct dispatcher);
} dispatchers SECTION(".maps");

struct {
    NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    NUMBER(max_entries, PLACED_MAX);
    TYPE(key, struct flow);
    TYPE(value, struct placed);
} placed_flows SECTION(".maps");

INLINE int is_same(const __u8 *one, const __u8 *other) {
    return *(__u32 *)one == *(__u32 *)other && *(__u16 *)(one + 4) == *(__u16 *)(other + 4);
}

INLINE __u32 boot_seconds(void) {
    return boot_time_ns() / 1000000000;
}

// The dispatcher that has the connection; none if it is not there any more, or takes no new one and this is one. What looks like the first packet of a
// connection that is alive is not: it is late, doubled or forged, and whoever has the connection knows what to do with it.
INLINE struct dispatcher *keeper(const struct flow *flow, int is_first) {
    struct placed *placed = lookup(&placed_flows, flow);
    if (!placed)
        return 0;
    __u32 index = placed->index;
    struct dispatcher *found = lookup(&dispatchers, &index);
    if (!found || found->state == NONE || !is_same(found->mac, placed->mac))
        return 0;
    __u32 now = boot_seconds();
    if (is_first)
        return found->state == TAKES_NEW || now - placed->seen_seconds < SILENT_SECONDS ? found : 0;
    if (placed->seen_seconds != now)
        placed->seen_seconds = now;
    return found;
}

// MurmurHash3's last step: bits of the whole word decide on each bit.
INLINE __u32 mix(__u32 value) {
    value ^= value >> 16;
    value *= 0x85ebca6b;
    value ^= value >> 13;
    value *= 0xc2b2ae35;
    return value ^ (value >> 16);
}

// Places a connection: with the greatest of the numbers that it makes with each dispatcher, so that one more or less changes the place of none but
// those that go to it or were with it (Thaler and Ravishankar, 1998).
INLINE struct dispatcher *place(const struct flow *flow, int is_first) {
    const __u32 *words = (const void *)flow;
    __u32 hash = 0;
    for (int word = 0; word < sizeof(*flow) / 4; word++)
        hash = mix(hash ^ words[word]);
    struct dispatcher *best = 0;
    __u64 best_number = 0;
    struct placed placed = {};
    for (__u32 index = 0; index < DISPATCHERS_MAX; index++) {
        __u32 key = index;
        struct dispatcher *one = lookup(&dispatchers, &key);
        if (!one || one->state == NONE)
            continue;
        // One that takes no new connection gets one only if all are like that; of old ones nothing is known but how they would have been placed.
        __u64 preferred = is_first && one->state == TAKES_NEW;
        __u64 number = preferred << 33 | 1ULL << 32 | mix(hash ^ *(__u32 *)one->mac ^ (__u32)*(__u16 *)(one->mac + 4) << 13);
        if (number > best_number) {
            best = one;
            best_number = number;
            placed.index = index;
        }
    }
    if (best) {
        __builtin_memcpy(placed.mac, best->mac, ETH_ALEN);
        placed.seen_seconds = boot_seconds();
        update(&placed_flows, flow, &placed, BPF_ANY);
    }
    return best;
}

SECTION("classifier")
int gateway_in(struct __sk_buff *packet) {
    struct headers headers;
    struct flow flow __attribute__((aligned(8)));
    pull_headers(packet);
    if (!parse(packet, &headers))
        return TC_ACT_UNSPEC;
    flow_in(&headers, &flow);
    if (!is_service(&flow))
        return TC_ACT_UNSPEC;
    struct dispatcher *to = keeper(&flow, headers.is_first);
    __u32 what = KEPT;
    if (!to) {
        to = place(&flow, headers.is_first);
        what = headers.is_first ? PLACED : UNKNOWN;
    }
    if (!to) {
        // This host's stack refuses it, if the address is its own.
        count(NOWHERE);
        return TC_ACT_UNSPEC;
    }
    __u32 interface = to->interface;
    if (!send_to(packet, to->mac)) {
        count(HOPS_OVER);
        return TC_ACT_SHOT;
    }
    count(what);
    return redirect(interface ? interface : packet->ifindex, 0);
}

char licence[] SECTION("license") = "Apache-2.0";
