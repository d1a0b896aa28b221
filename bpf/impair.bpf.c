// SPDX-License-Identifier: Apache-2.0
//
// A bad network, for tests: at the way out of an interface, LOST of a hundred packets are dropped, DOUBLED of a hundred are sent twice, and
// each FIN from port ENDS_OF is dropped, if that is not 0.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SECTION(name) __attribute__((section(name), used))

static __u32 (*const random)(void) = (void *)BPF_FUNC_get_prandom_u32;
static long (*const load_bytes)(const struct __sk_buff *packet, __u32 offset, void *to, __u32 length) = (void *)BPF_FUNC_skb_load_bytes;
static long (*const clone_redirect)(struct __sk_buff *packet, __u32 interface, __u64 flags) = (void *)BPF_FUNC_clone_redirect;

// Of the second of two, which comes by here as well.
#define SECOND 0x5e7

// Ethernet and IPv4 without options, before the header of TCP.
#define BEFORE_TCP 34
#define FLAGS 13
#define FIN 1

static inline __attribute__((always_inline)) int is_kept_back(struct __sk_buff *packet) {
    __u8 header[FLAGS + 1];
    if (!ENDS_OF || load_bytes(packet, BEFORE_TCP, header, sizeof(header)))
        return 0;
    return (header[0] << 8 | header[1]) == ENDS_OF && header[FLAGS] & FIN;
}

SECTION("classifier")
int impair(struct __sk_buff *packet) {
    if (packet->mark == SECOND)
        return TC_ACT_OK;
    if (is_kept_back(packet))
        return TC_ACT_SHOT;
    if (random() % 100 < LOST)
        return TC_ACT_SHOT;
    if (random() % 100 < DOUBLED) {
        packet->mark = SECOND;
        clone_redirect(packet, packet->ifindex, 0);
    }
    return TC_ACT_OK;
}

char licence[] SECTION("license") = "Apache-2.0";
