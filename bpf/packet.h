// SPDX-License-Identifier: Apache-2.0
//
// What all programs here do with a packet: read its headers, tell which connection it is of, and send it to another host of this network.
// A program says before it includes this how many COUNTERS it has.

#ifndef PACKET_H
#define PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define be16(value) __builtin_bswap16(value)
#define be32(value) __builtin_bswap32(value)

// Of a map's definition, as its BTF has it.
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const update)(void *map, const void *key, const void *value, __u64 flags) = (void *)BPF_FUNC_map_update_elem;
static __u64 (*const boot_time_ns)(void) = (void *)BPF_FUNC_ktime_get_boot_ns;
static long (*const pull_data)(struct __sk_buff *packet, __u32 length) = (void *)BPF_FUNC_skb_pull_data;
static long (*const redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;

// A connection; IPv4 addresses as ::ffff:a.b.c.d.
struct flow {
    __u8 peer[16];
    __u8 local[16];
    __be16 peer_port;
    __be16 local_port;
};

struct service {
    __u8 local[16];
    __be16 port;
    __u16 zero;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    NUMBER(max_entries, 64);
    TYPE(key, struct service);
    TYPE(value, __u32);
} services SECTION(".maps");

struct {
    NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    NUMBER(max_entries, COUNTERS);
    TYPE(key, __u32);
    TYPE(value, __u64);
} counters SECTION(".maps");

INLINE void count(__u32 which) {
    __u32 key = which;
    __u64 *counter = lookup(&counters, &key);
    if (counter)
        *counter += 1;
}

// Ethernet, IPv4 with all options that fit, and TCP.
#define HEADERS_BYTES (sizeof(struct ethhdr) + 60 + sizeof(struct tcphdr))

// Makes the headers readable, wherever the driver has put them.
INLINE void pull_headers(struct __sk_buff *packet) {
    pull_data(packet, packet->len < HEADERS_BYTES ? packet->len : HEADERS_BYTES);
}

// What is known of a TCP packet.
struct headers {
    __u8 from[16];
    __u8 to[16];
    __be16 from_port;
    __be16 to_port;
    __u32 sequence;
    __u32 sequence_end;
    __u32 ack;
    __u8 has_ack;
    __u8 is_reset;
    // It begins, ends or resets a connection.
    __u8 is_turn;
    // The first packet of a connection.
    __u8 is_first;
};

INLINE void mapped(__u8 *address, __be32 ip4) {
    __builtin_memset(address, 0, 10);
    address[10] = 0xff;
    address[11] = 0xff;
    __builtin_memcpy(address + 12, &ip4, 4);
}

INLINE int parse_tcp(struct __sk_buff *packet, const struct tcphdr *tcp, __u32 length, struct headers *found) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    if ((void *)(tcp + 1) > end)
        return 0;
    // A packet that the kernel has put together from many says its length elsewhere.
    if (packet->gso_size)
        length = packet->len - (__u32)((void *)tcp - data);
    found->from_port = tcp->source;
    found->to_port = tcp->dest;
    found->sequence = be32(tcp->seq);
    found->sequence_end = found->sequence + length - tcp->doff * 4;
    found->ack = be32(tcp->ack_seq);
    found->has_ack = tcp->ack;
    found->is_reset = tcp->rst;
    found->is_turn = tcp->syn || tcp->fin || tcp->rst;
    found->is_first = tcp->syn && !tcp->ack;
    return 1;
}

// Reads the headers; 0 of anything but TCP over IP in one piece. IPv6 with extension headers is not TCP here.
INLINE int parse(struct __sk_buff *packet, struct headers *found) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    struct ethhdr *ethernet = data;
    if ((void *)(ethernet + 1) > end)
        return 0;
    if (ethernet->h_proto == be16(ETH_P_IP)) {
        struct iphdr *ip = (void *)(ethernet + 1);
        if ((void *)(ip + 1) > end || ip->protocol != IPPROTO_TCP || ip->ihl < 5 || ip->frag_off & be16(0x3fff))
            return 0;
        mapped(found->from, ip->saddr);
        mapped(found->to, ip->daddr);
        return parse_tcp(packet, (void *)ip + ip->ihl * 4, be16(ip->tot_len) - ip->ihl * 4, found);
    }
    if (ethernet->h_proto == be16(ETH_P_IPV6)) {
        struct ipv6hdr *ip = (void *)(ethernet + 1);
        if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_TCP)
            return 0;
        __builtin_memcpy(found->from, &ip->saddr, 16);
        __builtin_memcpy(found->to, &ip->daddr, 16);
        return parse_tcp(packet, (void *)(ip + 1), be16(ip->payload_len), found);
    }
    return 0;
}

// The connection of a packet that comes from the client.
INLINE void flow_in(const struct headers *of, struct flow *flow) {
    __builtin_memcpy(flow->peer, of->from, 16);
    __builtin_memcpy(flow->local, of->to, 16);
    flow->peer_port = of->from_port;
    flow->local_port = of->to_port;
}

// The connection of a packet that goes to the client.
INLINE void flow_out(const struct headers *of, struct flow *flow) {
    __builtin_memcpy(flow->peer, of->to, 16);
    __builtin_memcpy(flow->local, of->from, 16);
    flow->peer_port = of->to_port;
    flow->local_port = of->from_port;
}

INLINE int is_service(const struct flow *flow) {
    struct service service = {.port = flow->local_port};
    __builtin_memcpy(service.local, flow->local, 16);
    return lookup(&services, &service) != 0;
}

// One hop less to go, and the next is this host; 0 if there is no hop left.
INLINE int send_to(struct __sk_buff *packet, const __u8 *mac) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    struct ethhdr *ethernet = data;
    if ((void *)(ethernet + 1) > end)
        return 0;
    if (ethernet->h_proto == be16(ETH_P_IPV6)) {
        struct ipv6hdr *ip = (void *)(ethernet + 1);
        if ((void *)(ip + 1) > end || ip->hop_limit <= 1)
            return 0;
        ip->hop_limit--;
    } else {
        struct iphdr *ip = (void *)(ethernet + 1);
        if ((void *)(ip + 1) > end || ip->ttl <= 1)
            return 0;
        ip->ttl--;
        // RFC 1624: the field that got smaller by 0x0100 makes the sum greater by as much.
        __u32 sum = ip->check + be16(0x0100);
        ip->check = sum + (sum >= 0xffff);
    }
    __builtin_memcpy(ethernet->h_source, ethernet->h_dest, ETH_ALEN);
    __builtin_memcpy(ethernet->h_dest, mac, ETH_ALEN);
    return 1;
}

#endif
