// SPDX-License-Identifier: Apache-2.0
//
// Where the packets of a moved connection go. Attached to the interface of clients: on a dispatcher's host `dispatcher_in` and `dispatcher_out`,
// on a backend's host `backend_in` and `backend_out`. The maps are described in crates/steering/src/maps.rs, which writes to them.
//
// These programs must never: let a reset out that this host's kernel made because a socket was just elsewhere; let a packet for the virtual
// address reach a stack that has no socket for it; follow an entry beyond its lease; touch a packet of anything else.

enum counter { STEERED, EXPIRED, HOPS_OVER, RESETS_KEPT_BACK, NOT_READY, PASSED, COUNTERS };

#include "packet.h"

struct steered {
    __u64 expires_ns;
    __u8 mac[ETH_ALEN];
    __u16 zero;
};

struct seen {
    __u64 packets;
    __u32 last_ack;
    __u32 sequence_end;
};

struct owned {
    __u64 expires_ns;
    __u32 is_ready;
    __u32 zero;
};

#define FLOWS_MAX 65536

struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, FLOWS_MAX);
    TYPE(key, struct flow);
    TYPE(value, struct steered);
} steered_flows SECTION(".maps");

struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, FLOWS_MAX);
    TYPE(key, struct flow);
    TYPE(value, struct seen);
} seen_flows SECTION(".maps");

struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, FLOWS_MAX);
    TYPE(key, struct flow);
    TYPE(value, struct owned);
} owned_flows SECTION(".maps");

// The entry of a connection whose packets go elsewhere; none past its lease.
INLINE struct steered *steered(const struct flow *flow) {
    struct steered *entry = lookup(&steered_flows, flow);
    if (!entry)
        return 0;
    if (boot_time_ns() > entry->expires_ns) {
        count(EXPIRED);
        return 0;
    }
    return entry;
}

SECTION("classifier")
int dispatcher_in(struct __sk_buff *packet) {
    struct headers headers;
    struct flow flow;
    pull_headers(packet);
    if (!parse(packet, &headers))
        return TC_ACT_UNSPEC;
    flow_in(&headers, &flow);
    struct steered *entry = steered(&flow);
    if (!entry)
        return TC_ACT_UNSPEC;
    struct seen *seen = lookup(&seen_flows, &flow);
    if (seen) {
        // What comes late says less than what came before.
        if (headers.has_ack && (!seen->packets || (__s32)(headers.ack - seen->last_ack) > 0))
            seen->last_ack = headers.ack;
        if (!seen->packets || (__s32)(headers.sequence_end - seen->sequence_end) > 0)
            seen->sequence_end = headers.sequence_end;
        seen->packets++;
    }
    if (!send_to(packet, entry->mac)) {
        count(HOPS_OVER);
        return TC_ACT_SHOT;
    }
    count(STEERED);
    return redirect(packet->ifindex, 0);
}

SECTION("classifier")
int dispatcher_out(struct __sk_buff *packet) {
    struct headers headers;
    struct flow flow;
    if (!parse(packet, &headers) || !headers.is_reset)
        return TC_ACT_UNSPEC;
    flow_out(&headers, &flow);
    if (!steered(&flow))
        return TC_ACT_UNSPEC;
    count(RESETS_KEPT_BACK);
    return TC_ACT_SHOT;
}

// True while a socket of this host has the connection.
INLINE int is_here(const struct flow *flow) {
    struct owned *entry = lookup(&owned_flows, flow);
    return entry && entry->is_ready && boot_time_ns() <= entry->expires_ns;
}

SECTION("classifier")
int backend_in(struct __sk_buff *packet) {
    struct headers headers;
    struct flow flow;
    pull_headers(packet);
    if (!parse(packet, &headers))
        return TC_ACT_UNSPEC;
    flow_in(&headers, &flow);
    if (!is_service(&flow))
        return TC_ACT_UNSPEC;
    if (is_here(&flow)) {
        count(PASSED);
        return TC_ACT_UNSPEC;
    }
    // The client sends it again; by then the connection is here, or with the dispatcher.
    count(NOT_READY);
    return TC_ACT_SHOT;
}

SECTION("classifier")
int backend_out(struct __sk_buff *packet) {
    struct headers headers;
    struct flow flow;
    if (!parse(packet, &headers) || !headers.is_reset)
        return TC_ACT_UNSPEC;
    flow_out(&headers, &flow);
    if (!is_service(&flow) || is_here(&flow))
        return TC_ACT_UNSPEC;
    count(RESETS_KEPT_BACK);
    return TC_ACT_SHOT;
}

char licence[] SECTION("license") = "Apache-2.0";
