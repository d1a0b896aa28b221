// SPDX-License-Identifier: Apache-2.0
//
// A bad network, for tests: at the way out of an interface, LOST of a hundred packets are dropped, and DOUBLED of a hundred are sent twice.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SECTION(name) __attribute__((section(name), used))

static __u32 (*const random)(void) = (void *)BPF_FUNC_get_prandom_u32;
static long (*const clone_redirect)(struct __sk_buff *packet, __u32 interface, __u64 flags) = (void *)BPF_FUNC_clone_redirect;

// Of the second of two, which comes by here as well.
#define SECOND 0x5e7

SECTION("classifier")
int impair(struct __sk_buff *packet) {
    if (packet->mark == SECOND)
        return TC_ACT_OK;
    if (random() % 100 < LOST)
        return TC_ACT_SHOT;
    if (random() % 100 < DOUBLED) {
        packet->mark = SECOND;
        clone_redirect(packet, packet->ifindex, 0);
    }
    return TC_ACT_OK;
}

char licence[] SECTION("license") = "Apache-2.0";
