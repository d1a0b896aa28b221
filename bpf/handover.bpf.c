// SPDX-License-Identifier: Apache-2.0
//
// Where the packets of a moved connection go. Attached to the interface of clients: on a dispatcher's host `dispatcher_in` and `dispatcher_out`,
// on a backend's host `backend_in` and `backend_out`. The maps are described in crates/steering/src/maps.rs, which writes to them.
//
// These programs must never: let a reset out that this host's kernel made because a socket was just elsewhere; let the kernel of a backend's
// host end a connection because the process died that had it; let a packet for the virtual address reach a stack that has no socket for it;
// follow an entry beyond its lease; touch a packet of anything else.

enum counter { STEERED, EXPIRED, HOPS_OVER, RESETS_KEPT_BACK, NOT_READY, PASSED, HELD, MUTED, COUNTERS };

#include "packet.h"

struct steered {
    __u64 expires_ns;
    __u8 mac[ETH_ALEN];
    // Its packets are noted, and go nowhere.
    __u16 is_held;
};

struct seen {
    __u64 packets;
    // Up to where the client has all: the low half is what is on the wire, and the rest counts how often that went round, from 1; 0: not known.
    __u64 acknowledged;
    // Of the client's last byte, the one behind it, and 1 in the upper half; 0: not known.
    __u64 sequence_end;
    // The first that was acknowledged.
    __u32 first_ack;
    // The client has ended its stream, or the connection.
    __u32 has_ended;
};

struct owned {
    __u64 expires_ns;
    __u32 is_ready;
    // Its end may be told to the client: only where the client has ended it first.
    __u32 may_end;
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

// Others may note a packet of the same connection on another processor: whoever comes second looks again.
#define TRIES_MAX 4
#define IS_KNOWN (1ULL << 32)

// No window of a host is larger in practice. A number that is further from the last one is not the
// client's: anybody can send packets in its name, and guesses both numbers once in 16,384 packets.
#define WINDOW_MAX (32 << 20)

INLINE int is_near(__u32 number, __u64 known) {
    __s32 distance = number - (__u32)known;
    return !known || (distance <= WINDOW_MAX && distance >= -WINDOW_MAX);
}

// Applies the tests of a kernel that has the connection (RFC 9293, section 3.10.7.4, and RFC 5961).
// A packet counts near the last known numbers, a reset at the next byte only, and a SYN never.
INLINE int is_of_client(const struct seen *seen, const struct headers *headers) {
    __u64 end = *(volatile __u64 *)&seen->sequence_end;
    __u64 acknowledged = *(volatile __u64 *)&seen->acknowledged;
    if (headers->is_first)
        return 0;
    if (headers->is_reset)
        // An end of the stream that came before takes a number of its own.
        return end && headers->sequence_end - (__u32)end <= 1;
    return headers->has_ack && is_near(headers->ack, acknowledged) && is_near(headers->sequence_end, end);
}

// A late packet says less than those before it.
INLINE void note(struct seen *seen, const struct headers *headers) {
    if (!is_of_client(seen, headers))
        return;
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        __u64 known = *(volatile __u64 *)&seen->acknowledged;
        __s32 more = headers->ack - (__u32)known;
        if (headers->is_reset || (known && more <= 0))
            break;
        __u64 now = known ? known + more : IS_KNOWN | headers->ack;
        if (__sync_val_compare_and_swap(&seen->acknowledged, known, now) == known) {
            if (!known)
                seen->first_ack = headers->ack;
            break;
        }
    }
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        __u64 known = *(volatile __u64 *)&seen->sequence_end;
        if (known && (__s32)(headers->sequence_end - (__u32)known) <= 0)
            break;
        if (__sync_val_compare_and_swap(&seen->sequence_end, known, IS_KNOWN | headers->sequence_end) == known)
            break;
    }
    if (headers->is_turn)
        seen->has_ended = 1;
    __sync_fetch_and_add(&seen->packets, 1);
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
    if (seen)
        note(seen, &headers);
    if (entry->is_held) {
        count(HELD);
        return TC_ACT_SHOT;
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

// The entry of a connection that is here, on its way in, or on its way out; none past its lease.
INLINE struct owned *owned(const struct flow *flow) {
    struct owned *entry = lookup(&owned_flows, flow);
    return entry && boot_time_ns() <= entry->expires_ns ? entry : 0;
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
    struct owned *entry = owned(&flow);
    if (entry && entry->is_ready) {
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
    if (!parse(packet, &headers))
        return TC_ACT_UNSPEC;
    flow_out(&headers, &flow);
    if (!is_service(&flow))
        return TC_ACT_UNSPEC;
    // A process that dies leaves sockets behind: their kernel sends what is in them, which is as good as before, and then ends the
    // connection, which may go on elsewhere by then. Nor is a reset the agent's to say: whoever had the connection last may have lost it.
    struct owned *entry = owned(&flow);
    if (entry && (entry->may_end || !headers.is_turn))
        return TC_ACT_UNSPEC;
    count(headers.is_turn ? RESETS_KEPT_BACK : MUTED);
    return TC_ACT_SHOT;
}

char licence[] SECTION("license") = "Apache-2.0";
