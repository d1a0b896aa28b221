// SPDX-License-Identifier: Apache-2.0
//
// Who may have multigets split at a gateway, and how often. The maps are described in crates/steering/src/multiget.rs, which writes to them.

#ifndef SOURCES_H
#define SOURCES_H

#define SECOND_NS 1000000000ULL
// Other processors may let in requests of the same source meanwhile.
#define TRIES 8

// Addresses that begin with the same bits, IPv4 as in a service.
struct prefix {
    __u32 bits;
    __u8 address[16];
};

struct {
    NUMBER(type, BPF_MAP_TYPE_LPM_TRIE);
    NUMBER(max_entries, 1024);
    NUMBER(map_flags, BPF_F_NO_PREALLOC);
    TYPE(key, struct prefix);
    TYPE(value, __u32);
} allowed SECTION(".maps");

// What a request uses up of a second, in nanoseconds; 0: nothing.
struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, __u32);
    TYPE(value, __u64);
} costs SECTION(".maps");

// An address, of IPv6 the network of 64 bits that it is in, for its hosts choose the rest.
struct source {
    __u8 address[16];
};

// When all is used up that a source has asked for; those seen last, for which there is room.
struct {
    NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    NUMBER(max_entries, 16384);
    TYPE(key, struct source);
    TYPE(value, __u64);
} sources SECTION(".maps");

// As crates/steering/src/rate.rs says it.
INLINE int is_too_often(const struct source *source) {
    __u32 zero = 0;
    __u64 *cost = lookup(&costs, &zero);
    if (!cost || *cost == 0)
        return 0;
    __u64 now = boot_time_ns(), first = now + *cost;
    __u64 *due = lookup(&sources, source);
    if (!due) {
        if (!update(&sources, source, &first, BPF_NOEXIST))
            return 0;
        due = lookup(&sources, source);
        if (!due)
            return 1;
    }
    for (int tries = 0; tries < TRIES; tries++) {
        __u64 before = *(volatile __u64 *)due;
        __u64 after = (before > now ? before : now) + *cost;
        if (after - now > SECOND_NS)
            return 1;
        if (__sync_val_compare_and_swap(due, before, after) == before)
            return 0;
    }
    return 1;
}

#endif
