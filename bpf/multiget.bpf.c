// SPDX-License-Identifier: Apache-2.0
//
// A multiget that came as one datagram leaves as one for each of its servers (docs/internals/netmc.md). `multiget_out` is attached to the way out of a
// client's interface, `multiget_in` to the way in of a gateway's. The maps are described in crates/steering/src/multiget.rs, which writes to them; what is
// split, and into what, is crates/wire/src/netmc/split.rs, which these programs agree with to the byte.
//
// These programs must never: send a part of a request that is not sound as a whole, or not all of whose servers are known; make a wrong checksum right, of
// which each part's is derived from the one that came; touch a packet of anything else.

enum counter {
    SPLIT,
    PARTS,
    LOST,
    // Why a request is not split, in the words of crates/wire/src/netmc/error.rs; then what is no datagram alone, and a server that nobody has told of.
    SHORT,
    LONG,
    VERSION,
    OP,
    CLO,
    NUMKEY,
    KEYIDX,
    PLACE,
    SERVER,
    ENDS,
    PACKET,
    UNKNOWN,
    // At a gateway: who sends it is none of those that may, or does it too often.
    SOURCE,
    RATE,
    COUNTERS
};

#include "packet.h"
#include <linux/if_packet.h>
#include <linux/udp.h>

#include "sources.h"

static long (*const load_bytes)(const void *packet, __u32 at, void *to, __u32 bytes) = (void *)BPF_FUNC_skb_load_bytes;
static long (*const store_bytes)(struct __sk_buff *packet, __u32 at, const void *from, __u32 bytes,
                                 __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*const change_tail)(struct __sk_buff *packet, __u32 bytes, __u64 flags) = (void *)BPF_FUNC_skb_change_tail;
static long (*const clone_redirect)(struct __sk_buff *packet, __u32 interface, __u64 flags) = (void *)BPF_FUNC_clone_redirect;
static __s64 (*const sum_change)(const void *from, __u32 from_bytes, const void *to, __u32 to_bytes,
                                 __u32 seed) = (void *)BPF_FUNC_csum_diff;
static long (*const replace_sum)(struct __sk_buff *packet, __u32 at, __u64 from, __u64 to, __u64 flags) = (void *)BPF_FUNC_l4_csum_replace;

// Verified by itself, and not once more for each part.
#define APART __attribute__((noinline))

#define VLAN_BYTES 4
#define DATAGRAM_BYTES_MAX 1452
#define HEADER_BYTES 12
#define KEYS_MAX 16
#define MULTIGET 0x11
#define GET 0x12
#define IS_SPLIT 1
#define IS_TRIMMED 2
// What the kernel adds up at once, and as many of these as a datagram has.
#define SUM_BYTES 512
#define SUMS 3

// The value of a service.
#define TRIMMED 2

struct server {
    __u8 address[16];
    __be16 port;
    __u8 mac[ETH_ALEN];
    __u32 interface;
    // 4 or 6; 0: there is none with this number.
    __u32 version;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_ARRAY);
    NUMBER(max_entries, 256);
    TYPE(key, __u32);
    TYPE(value, struct server);
} servers SECTION(".maps");

struct group {
    // Of its keys in KEYS.
    __u16 at;
    __u16 bytes;
    // KEYIDX behind it.
    __u16 keys_left;
    __u8 first;
    __u8 keys;
    __u32 server;
};

// Of the packet that is being split. The parts are sent while it is, but none of them comes here: they are not for a service.
struct work {
    __u32 ip_at;
    __u32 udp_at;
    __u32 version;
    __u32 is_trimmed;
    __u32 bytes;
    __u32 groups_count;
    // Of all that it has, to be compared with that of a part.
    __u32 sum;
    __u8 mac[ETH_ALEN];
    struct udphdr udp;
    struct iphdr ip;
    // As that of a service.
    __u8 address[16];
    struct group groups[KEYS_MAX];
    // With room behind them for what the verifier does not know of offsets and lengths.
    __u8 whole[4096];
    __u8 part[2048];
};

struct {
    NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, __u32);
    TYPE(value, struct work);
} work_places SECTION(".maps");

INLINE struct work *work_place(void) {
    __u32 zero = 0;
    return lookup(&work_places, &zero);
}

INLINE void count_more(__u32 which, __u32 more) {
    __u64 *counter = lookup(&counters, &which);
    if (counter)
        *counter += more;
}

// Fills in what is known of a datagram for a service; 0 of anything else. `wrong` if it is for one, and not a datagram that is here alone and whole.
INLINE struct work *found(struct __sk_buff *packet, int *wrong) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    struct ethhdr *ethernet = data;
    if ((void *)(ethernet + 1) > end)
        return 0;
    __be16 protocol = ethernet->h_proto;
    void *next = ethernet + 1;
    if (protocol == be16(ETH_P_8021Q) || protocol == be16(ETH_P_8021AD)) {
        if (next + VLAN_BYTES > end)
            return 0;
        protocol = *(__be16 *)(next + 2);
        next += VLAN_BYTES;
    }
    struct service service = {};
    struct iphdr *ip4 = next;
    struct ipv6hdr *ip6 = next;
    struct udphdr *udp;
    __u32 version, bytes, is_plain = 1;
    if (protocol == be16(ETH_P_IP)) {
        if ((void *)(ip4 + 1) > end || ip4->protocol != IPPROTO_UDP || ip4->ihl < 5 || ip4->frag_off & be16(0x1fff))
            return 0;
        is_plain = ip4->ihl == 5 && !(ip4->frag_off & be16(0x2000));
        udp = next + ip4->ihl * 4;
        mapped(service.local, ip4->daddr);
        version = 4;
        bytes = be16(ip4->tot_len) - ip4->ihl * 4;
    } else if (protocol == be16(ETH_P_IPV6)) {
        if ((void *)(ip6 + 1) > end || ip6->nexthdr != IPPROTO_UDP)
            return 0;
        udp = (void *)(ip6 + 1);
        __builtin_memcpy(service.local, &ip6->daddr, 16);
        version = 6;
        bytes = be16(ip6->payload_len);
    } else {
        return 0;
    }
    if ((void *)(udp + 1) > end)
        return 0;
    service.port = udp->dest;
    __u32 *how = lookup(&services, &service);
    struct work *work = how ? work_place() : 0;
    if (!work)
        return 0;
    work->ip_at = next - data;
    work->udp_at = (void *)udp - data;
    work->version = version;
    work->is_trimmed = *how == TRIMMED;
    work->bytes = be16(udp->len) - sizeof(*udp);
    work->udp = *udp;
    __builtin_memcpy(work->mac, ethernet->h_dest, ETH_ALEN);
    __builtin_memcpy(work->address, service.local, 16);
    // Of IPv6 that is nothing, and not looked at.
    work->ip = *ip4;
    // Frames have a shortest length, and what fills them up is not the datagram's.
    *wrong = !is_plain || packet->gso_size || be16(udp->len) < sizeof(*udp) || be16(udp->len) != bytes ||
             packet->len < work->udp_at + bytes;
    return work;
}

// The sum of what is there, filled up with nothing to a multiple of four. Not folded.
INLINE __u32 sum_of(__u8 *from, __u32 bytes) {
    if (bytes > DATAGRAM_BYTES_MAX)
        return 0;
    for (int more = 0; more < 4; more++)
        from[bytes + more] = 0;
    __u32 sum = 0;
    for (int each = 0; each < SUMS; each++) {
        if (bytes <= each * SUM_BYTES)
            break;
        __u32 here = bytes - each * SUM_BYTES + 3 & ~3;
        sum = sum_change(0, 0, from + each * SUM_BYTES, here > SUM_BYTES ? SUM_BYTES : here, sum);
    }
    return sum;
}

// Says where the groups of keys are; 0, or why KEYIDX does not go with the rest.
INLINE int find_groups(struct work *work, __u32 numkey, __u32 servers_count) {
    __u32 keyidx = work->whole[7] << 8 | work->whole[8];
    __u32 groups = 0, first = 0;
    // The last key ends a group, and nothing does behind it.
    if ((keyidx & -keyidx) != 1 << (KEYS_MAX - numkey))
        return KEYIDX;
    for (__u32 key = 0; key < KEYS_MAX; key++) {
        if (!(keyidx << key & 0x8000))
            continue;
        struct group *group = &work->groups[groups & (KEYS_MAX - 1)];
        group->first = first;
        group->keys = key + 1 - first;
        group->keys_left = keyidx << key << 1;
        groups++;
        first = key + 1;
    }
    work->groups_count = groups;
    return groups == servers_count ? 0 : KEYIDX;
}

INLINE int find_servers(struct work *work, __u32 servers_count) {
    const __u8 *numbers = work->whole + HEADER_BYTES;
    for (int at = 0; at < KEYS_MAX; at++) {
        if (at >= servers_count)
            break;
        for (int before = 0; before < at; before++)
            if (numbers[before] == numbers[at])
                return SERVER;
        work->groups[at].server = numbers[at];
    }
    return 0;
}

INLINE int find_keys(struct work *work, __u32 servers_count) {
    const __u8 *ends = work->whole + HEADER_BYTES + servers_count;
    __u32 start = 0;
    for (int at = 0; at < KEYS_MAX; at++) {
        if (at >= servers_count)
            break;
        __u32 end = ends[2 * at] << 8 | ends[2 * at + 1];
        if (end <= start)
            return ENDS;
        work->groups[at].at = start;
        work->groups[at].bytes = end - start;
        start = end;
    }
    __u32 keys_bytes = work->bytes - HEADER_BYTES - 3 * servers_count;
    return start > keys_bytes ? SHORT : start < keys_bytes ? LONG : 0;
}

INLINE int are_known(const struct work *work) {
    for (int at = 0; at < KEYS_MAX; at++) {
        if (at >= work->groups_count)
            break;
        __u32 number = work->groups[at].server;
        struct server *server = lookup(&servers, &number);
        if (!server || server->version != work->version)
            return 0;
    }
    return 1;
}

// 0, or why the datagram is not split. Looks in the same order as `Request::parse` of crates/wire/src/netmc/request.rs.
APART int why_not(struct __sk_buff *packet) {
    struct work *work = work_place();
    if (!work)
        return UNKNOWN;
    __u32 bytes = work->bytes;
    __u8 *whole = work->whole;
    if (bytes == 0)
        return SHORT;
    if (bytes > DATAGRAM_BYTES_MAX)
        return LONG;
    if (load_bytes(packet, work->udp_at + sizeof(struct udphdr), whole, bytes))
        return PACKET;
    if (whole[0] >> 4 != MULTIGET >> 4)
        return VERSION;
    if (whole[0] != MULTIGET && whole[0] != GET)
        return OP;
    if (bytes < HEADER_BYTES)
        return SHORT;
    __u32 servers_count = whole[11], numkey = whole[6];
    if (servers_count == 0 || servers_count > KEYS_MAX)
        return PLACE;
    if (bytes < HEADER_BYTES + 3 * servers_count)
        return SHORT;
    if (numkey == 0 || numkey > KEYS_MAX || (whole[0] == GET && numkey != 1))
        return NUMKEY;
    if (whole[10])
        return CLO;
    if (whole[5] || whole[9])
        return PLACE;
    int wrong = find_groups(work, numkey, servers_count);
    if (!wrong)
        wrong = find_servers(work, servers_count);
    if (!wrong)
        wrong = find_keys(work, servers_count);
    if (wrong)
        return wrong;
    if (!are_known(work))
        return UNKNOWN;
    if (work->is_trimmed)
        work->sum = sum_of(whole, bytes);
    return 0;
}

INLINE __u32 added(__u32 one, __u32 other) {
    __u32 sum = one + other;
    return sum + (sum < one);
}

// The change of the header's own sum by that of two of its fields, so that a wrong one stays wrong (RFC 1624).
INLINE void put_ip4(struct __sk_buff *packet, const struct work *work, const struct server *server, __u32 udp_bytes) {
    struct iphdr ip = work->ip;
    __builtin_memcpy(&ip.daddr, server->address + 12, 4);
    ip.tot_len = be16(sizeof(ip) + udp_bytes);
    __u32 sum = sum_change(&work->ip, sizeof(ip), &ip, sizeof(ip), (__u16)~ip.check);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    ip.check = ~sum;
    store_bytes(packet, work->ip_at, &ip, sizeof(ip), 0);
}

INLINE void put_ip6(struct __sk_buff *packet, const struct work *work, const struct server *server, __u32 udp_bytes) {
    __be16 length = be16(udp_bytes);
    store_bytes(packet, work->ip_at + __builtin_offsetof(struct ipv6hdr, payload_len), &length, sizeof(length), 0);
    store_bytes(packet, work->ip_at + __builtin_offsetof(struct ipv6hdr, daddr), server->address, 16, 0);
}

// `changed` is by how much the sum of the payload is another. What the pseudo-header has is told apart: where the network card makes the checksum, nothing
// else of it is there yet.
INLINE void put_udp(struct __sk_buff *packet, const struct work *work, const struct server *server, __u32 udp_bytes, __u32 changed) {
    struct udphdr udp = work->udp;
    udp.dest = server->port;
    udp.len = be16(udp_bytes);
    store_bytes(packet, work->udp_at, &udp, sizeof(udp), 0);
    __u32 check_at = work->udp_at + __builtin_offsetof(struct udphdr, check);
    changed = sum_change(&work->udp, sizeof(udp), &udp, sizeof(udp), changed);
    replace_sum(packet, check_at, 0, changed, BPF_F_MARK_MANGLED_0);
    __u32 lengths[2] = {work->udp.len, udp.len};
    changed = sum_change(&lengths[0], 4, &lengths[1], 4, 0);
    if (work->version == 4)
        changed = sum_change(work->address + 12, 4, server->address + 12, 4, changed);
    else
        changed = sum_change(work->address, 16, server->address, 16, changed);
    replace_sum(packet, check_at, 0, changed, BPF_F_MARK_MANGLED_0 | BPF_F_PSEUDO_HDR);
}

// Cuts the keys down to those of a group. By how much the sum of the payload is another then; `header` is in place before.
INLINE __u32 put_keys(struct __sk_buff *packet, struct work *work, const struct group *group, __u32 keys_at) {
    __u32 payload_at = work->udp_at + sizeof(struct udphdr), at = keys_at + group->at, bytes = group->bytes;
    // All of this has been looked at; the verifier does not remember.
    if (at > DATAGRAM_BYTES_MAX || bytes == 0 || bytes > DATAGRAM_BYTES_MAX)
        return 0;
    store_bytes(packet, payload_at + keys_at, work->whole + at, bytes, 0);
    bytes += keys_at;
    if (bytes > DATAGRAM_BYTES_MAX || load_bytes(packet, payload_at, work->part, bytes))
        return 0;
    return added(sum_of(work->part, bytes), ~work->sum);
}

// Makes the packet that of a group. Returns the interface that it is to leave by; 0 if the kernel has no memory for it.
APART int become(struct __sk_buff *packet, __u32 number) {
    struct work *work = work_place();
    if (!work || number >= KEYS_MAX)
        return 0;
    const struct group *group = &work->groups[number];
    __u32 of = group->server, payload_at = work->udp_at + sizeof(struct udphdr);
    struct server *server = lookup(&servers, &of);
    if (!server)
        return 0;
    __u32 keys_at = HEADER_BYTES + 3 * (work->groups_count & (2 * KEYS_MAX - 1));
    __u32 bytes = work->is_trimmed ? keys_at + group->bytes : work->bytes;
    __u32 udp_bytes = sizeof(struct udphdr) + bytes;
    if (packet->len != payload_at + bytes && change_tail(packet, payload_at + bytes, 0))
        return 0;
    __u8 header[HEADER_BYTES];
    __builtin_memcpy(header, work->whole, HEADER_BYTES);
    header[5] = number;
    header[6] = group->keys;
    header[7] = group->keys_left >> 8;
    header[8] = group->keys_left;
    header[9] = group->first;
    header[10] = work->is_trimmed ? IS_SPLIT | IS_TRIMMED : IS_SPLIT;
    if (store_bytes(packet, payload_at, header, HEADER_BYTES, 0))
        return 0;
    __u32 changed;
    if (work->is_trimmed)
        changed = put_keys(packet, work, group, keys_at);
    else
        changed = sum_change(work->whole, HEADER_BYTES, header, HEADER_BYTES, 0);
    if (work->version == 4)
        put_ip4(packet, work, server, udp_bytes);
    else
        put_ip6(packet, work, server, udp_bytes);
    put_udp(packet, work, server, udp_bytes, changed);
    store_bytes(packet, 0, server->mac, ETH_ALEN, 0);
    return server->interface ? server->interface : packet->ifindex;
}

// 0, or why nothing is split for who sends it.
INLINE int why_not_from(struct __sk_buff *packet, const struct work *work) {
    struct prefix prefix = {.bits = 128};
    struct source source = {};
    if (work->version == 4)
        mapped(prefix.address, work->ip.saddr);
    else if (load_bytes(packet, work->ip_at + __builtin_offsetof(struct ipv6hdr, saddr), prefix.address, 16))
        return SOURCE;
    if (!lookup(&allowed, &prefix))
        return SOURCE;
    if (work->version == 4)
        __builtin_memcpy(source.address, prefix.address, 16);
    else
        __builtin_memcpy(source.address, prefix.address, 8);
    return is_too_often(&source) ? RATE : 0;
}

INLINE int split(struct __sk_buff *packet, int is_out) {
    int wrong = 0;
    struct work *work = found(packet, &wrong);
    if (!work)
        return TC_ACT_UNSPEC;
    int forbidden = is_out ? 0 : why_not_from(packet, work);
    wrong = forbidden ? forbidden : wrong ? PACKET : why_not(packet);
    if (wrong) {
        count(wrong);
        return TC_ACT_SHOT;
    }
    // What comes in was for this host, and leaves in its name.
    if (!is_out)
        store_bytes(packet, ETH_ALEN, work->mac, ETH_ALEN, 0);
    count(SPLIT);
    for (__u32 number = 0; number < KEYS_MAX; number++) {
        int interface = become(packet, number);
        if (interface <= 0) {
            // Then there is none for the others either.
            count_more(LOST, work->groups_count - number);
            return TC_ACT_SHOT;
        }
        count(PARTS);
        if (number + 1 >= work->groups_count)
            return is_out && interface == packet->ifindex ? TC_ACT_UNSPEC : redirect(interface, 0);
        if (clone_redirect(packet, interface, 0))
            count(LOST);
    }
    return TC_ACT_SHOT;
}

SECTION("classifier")
int multiget_out(struct __sk_buff *packet) {
    return split(packet, 1);
}

SECTION("classifier")
int multiget_in(struct __sk_buff *packet) {
    // What a bridge floods is for another host, in whose name nothing is to leave here.
    if (packet->pkt_type != PACKET_HOST)
        return TC_ACT_UNSPEC;
    pull_headers(packet);
    return split(packet, 0);
}

char licence[] SECTION("license") = "Apache-2.0";
