/* Tests of what needs no server: sources and their rates, and replies that a kernel cannot cut. */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "socket.h"
#include "sources.h"

#define SECOND_NS UINT64_C(1000000000)
#undef NDEBUG
#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);           \
            return 1;                                                                 \
        }                                                                             \
    } while (0)

static struct address address(const char *text) {
    struct prefix prefix;
    if (!prefix_read(text, &prefix)) fprintf(stderr, "no address: %s\n", text);
    struct sockaddr_in6 ip6 = {.sin6_family = AF_INET6};
    memcpy(&ip6.sin6_addr, prefix.address.bytes, 16);
    return address_of((const struct sockaddr *)&ip6);
}

static int prefixes_contain_addresses_that_begin_like_them(void) {
    static const struct {
        const char *prefix, *address;
        bool expected;
    } cases[] = {
        {"10.0.0.0/8", "10.255.0.1", true},   {"10.0.0.0/8", "11.0.0.1", false},
        {"10.0.0.7", "10.0.0.7", true},       {"10.0.0.7", "10.0.0.6", false},
        {"0.0.0.0/0", "192.0.2.1", true},     {"0.0.0.0/0", "::1", false},
        {"10.0.0.0/8", "::ffff:10.0.0.1", true}, {"fd00::/8", "fdab::1", true},
        {"::/0", "2001:db8::1", true},        {"::/0", "10.0.0.1", false},
        {"10.0.0.0/9", "10.128.0.1", false},  {"10.0.0.0/9", "10.127.0.1", true},
    };
    for (size_t index = 0; index < sizeof cases / sizeof *cases; index++) {
        struct prefix prefix;
        struct address one = address(cases[index].address);
        CHECK(prefix_read(cases[index].prefix, &prefix));
        if (prefix_contains(&prefix, &one) != cases[index].expected)
            fprintf(stderr, "%s in %s\n", cases[index].address, cases[index].prefix);
        CHECK(prefix_contains(&prefix, &one) == cases[index].expected);
    }
    const char *none[] = {"", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/x", "10.0.0.0/", "/8"};
    for (size_t index = 0; index < sizeof none / sizeof *none; index++) {
        struct prefix prefix;
        CHECK(!prefix_read(none[index], &prefix));
    }
    return 0;
}

static struct sources *sources(uint32_t rate, uint32_t others_rate) {
    static struct sources sources;
    sources.allow_count = 2;
    prefix_read("10.0.0.0/8", &sources.allow[0]);
    prefix_read("fd00::/8", &sources.allow[1]);
    sources.rate = rate;
    sources.others_rate = others_rate;
    sources_clear(&sources, 7);
    return &sources;
}

static int let_in(struct sources *sources, uint64_t now_ns, const char *from, int times) {
    struct address one = address(from);
    int count = 0;
    while (times--) count += sources_admit(sources, now_ns, &one) <= UNLISTED;
    return count;
}

static int each_source_has_a_rate_and_others_share_one(void) {
    struct sources *s = sources(10, 5);
    CHECK(let_in(s, 0, "10.0.0.1", 30) == 10);
    CHECK(let_in(s, 0, "10.0.0.2", 30) == 10);
    CHECK(let_in(s, SECOND_NS / 2, "10.0.0.1", 30) == 5);
    CHECK(let_in(s, 0, "192.0.2.1", 3) + let_in(s, 0, "192.0.2.2", 9) == 5);
    struct address other = address("192.0.2.3");
    CHECK(sources_admit(s, 0, &other) == REJECTED_RATE);
    CHECK(let_in(s, 3 * SECOND_NS, "192.0.2.1", 30) == 5);
    s = sources(0, 0);
    CHECK(let_in(s, 0, "10.0.0.1", 3) == 0);
    CHECK(sources_admit(s, 0, &other) == REJECTED_SOURCE);
    s = sources(10, 0);
    CHECK(let_in(s, 0, "fd00::1:1", 8) + let_in(s, 0, "fd00::1:2", 8) == 10);
    CHECK(let_in(s, 0, "fd00:0:0:1::1", 20) == 10);
    CHECK(let_in(s, 0, "::ffff:10.0.0.1", 20) == 10 && let_in(s, 0, "10.0.0.1", 20) == 0);
    return 0;
}

static int sources_beyond_the_table_share_a_rate_until_others_are_silent(void) {
    struct sources *s = sources(10, 0);
    for (unsigned index = 0; index < SOURCES_MAX; index++) {
        struct address one = {.is_ipv4 = true};
        memcpy(one.bytes, "\0\0\0\0\0\0\0\0\0\0\377\377\12", 13);
        one.bytes[14] = (uint8_t)(index >> 8), one.bytes[15] = (uint8_t)index;
        CHECK(sources_admit(s, 0, &one) == LISTED);
    }
    CHECK(let_in(s, 0, "10.9.9.1", 6) + let_in(s, 0, "10.9.9.2", 6) == 10);
    CHECK(s->count == SOURCES_MAX);
    CHECK(let_in(s, 2 * SECOND_NS, "10.9.9.9", 20) == 10 && s->count == 1);
    return 0;
}

/* A kernel or card that cuts no messages: it refuses each that asks for it. */
static int refusal;
int __wrap_sendmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags);
int __real_sendmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags);
int __wrap_sendmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags) {
    for (unsigned index = 0; index < count; index++)
        if (refusal && messages[index].msg_hdr.msg_controllen) {
            if (!index) return errno = refusal, -1;
            count = index;
        }
    return __real_sendmmsg(socket, messages, count, flags);
}

/* Queues replies of 100, 300, 100 and 300 bytes, sends them, and adds up what comes. */
static int sent_and_received(bool uses_gso, struct sent *sent, size_t *received, unsigned *count) {
    static struct queue queue;
    static struct peer peer;
    int own = socket_open("127.0.0.1", "0"), other = socket_open("127.0.0.1", "0");
    CHECK(own >= 0 && other >= 0);
    peer.bytes = sizeof peer.address;
    CHECK(!getsockname(other, (struct sockaddr *)&peer.address, &peer.bytes));
    for (unsigned index = 0; index < 4; index++) {
        uint16_t bytes = index % 2 ? 300 : 100;
        uint8_t *at = queue.bytes + queue.used;
        memset(at, (int)index, bytes);
        queue.replies[queue.count++] = (struct reply){&peer, at, bytes};
        queue.used += bytes;
    }
    *sent = (struct sent){0};
    queue_send(&queue, own, uses_gso, sent);
    CHECK(!queue.count && !queue.used);
    static struct batch batch;
    batch_receive(&batch, other, BATCH_MAX);
    *received = 0, *count = batch.count;
    for (unsigned index = 0; index < batch.count; index++) {
        CHECK(batch.bytes[index] == 100 || batch.bytes[index] == 300);
        *received += batch.bytes[index];
    }
    close(own), close(other);
    return 0;
}

static int replies_leave_singly_where_they_cannot_leave_together(void) {
    struct sent sent;
    size_t bytes;
    unsigned count;
    refusal = 0;
    CHECK(!sent_and_received(true, &sent, &bytes, &count));
    CHECK(count == 4 && bytes == 800 && sent.replies == 4 && sent.messages == 2);
    CHECK(!sent_and_received(false, &sent, &bytes, &count));
    CHECK(count == 4 && bytes == 800 && sent.replies == 4 && sent.messages == 4);
    refusal = EIO;
    CHECK(!sent_and_received(true, &sent, &bytes, &count));
    CHECK(count == 4 && bytes == 800 && sent.replies == 4 && sent.gso_refused == 1);
    /* A full buffer is no reason to try each alone: the replies are lost, and counted. */
    refusal = EAGAIN;
    CHECK(!sent_and_received(true, &sent, &bytes, &count));
    CHECK(sent.unsent == 3 && sent.replies == 1 && count == 1 && !sent.gso_refused);
    refusal = 0;
    return 0;
}

int main(void) {
    int failed = prefixes_contain_addresses_that_begin_like_them() +
                 each_source_has_a_rate_and_others_share_one() +
                 sources_beyond_the_table_share_a_rate_until_others_are_silent() +
                 replies_leave_singly_where_they_cannot_leave_together();
    printf("%d of 4 tests failed\n", failed);
    return failed != 0;
}
