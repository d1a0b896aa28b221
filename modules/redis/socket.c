#include "socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum {
    BUFFER_BYTES = 4 << 20,
    /* Of one message: what Linux takes since 4.18, and what fits a packet with its headers. */
    SEGMENTS_MAX = 64,
    MESSAGE_BYTES_MAX = 65000,
};

int socket_open(const char *address, const char *port) {
    struct addrinfo *found = NULL;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                             .ai_socktype = SOCK_DGRAM};
    if (getaddrinfo(address, port, &hints, &found)) return errno = EINVAL, -1;
    int opened = socket(found->ai_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* Never SO_REUSEADDR: with it a second server would take all datagrams of the first. */
    if (opened >= 0) {
        int bytes = BUFFER_BYTES, never_fragment = IP_PMTUDISC_DO;
        bool is_ipv4 = found->ai_family == AF_INET;
        setsockopt(opened, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
        setsockopt(opened, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        if (setsockopt(opened, is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                       is_ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &never_fragment,
                       sizeof never_fragment) ||
            bind(opened, found->ai_addr, found->ai_addrlen)) {
            int why = errno;
            close(opened);
            errno = why;
            opened = -1;
        }
    }
    freeaddrinfo(found);
    return opened;
}

void batch_receive(struct batch *batch, int socket, unsigned limit) {
    struct mmsghdr messages[BATCH_MAX];
    struct iovec parts[BATCH_MAX];
    if (limit > BATCH_MAX) limit = BATCH_MAX;
    memset(messages, 0, sizeof messages);
    for (unsigned index = 0; index < limit; index++) {
        struct msghdr *message = &messages[index].msg_hdr;
        parts[index] = (struct iovec){batch->data[index], sizeof batch->data[index]};
        message->msg_iov = &parts[index];
        message->msg_iovlen = 1;
        message->msg_name = &batch->peers[index].address;
        message->msg_namelen = sizeof batch->peers[index].address;
    }
    int received = recvmmsg(socket, messages, limit, MSG_DONTWAIT, NULL);
    batch->count = received > 0 ? (unsigned)received : 0;
    for (unsigned index = 0; index < batch->count; index++) {
        const struct msghdr *message = &messages[index].msg_hdr;
        bool is_cut = message->msg_flags & MSG_TRUNC;
        batch->peers[index].bytes = message->msg_namelen;
        batch->bytes[index] = is_cut ? 0 : (uint16_t)messages[index].msg_len;
    }
}

static bool is_same_peer(const struct peer *one, const struct peer *other) {
    return one == other ||
           (one->bytes == other->bytes && !memcmp(&one->address, &other->address, one->bytes));
}

/* By peer, and the largest first: a message has replies of one size, and one smaller behind. */
static int compare(const void *left, const void *right) {
    const struct reply *one = left, *other = right;
    socklen_t bytes = one->to->bytes < other->to->bytes ? one->to->bytes : other->to->bytes;
    int order = one->to == other->to ? 0 : memcmp(&one->to->address, &other->to->address, bytes);
    return order ? order : (int)other->bytes - (int)one->bytes;
}

/* Messages of a queue, in the form of sendmmsg. */
struct messages {
    unsigned count;
    struct mmsghdr headers[QUEUE_MAX];
    struct iovec parts[QUEUE_MAX];
    union {
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
        struct cmsghdr alignment;
    } control[QUEUE_MAX];
};

/* The end of the message that begins with reply `first`. */
static unsigned message_end(const struct queue *queue, unsigned first, bool uses_gso) {
    const struct reply *replies = queue->replies;
    unsigned end = first + 1;
    size_t bytes = replies[first].bytes;
    while (uses_gso && end < queue->count && end - first < SEGMENTS_MAX &&
           is_same_peer(replies[first].to, replies[end].to) &&
           replies[end].bytes <= replies[first].bytes &&
           bytes + replies[end].bytes <= MESSAGE_BYTES_MAX) {
        bytes += replies[end++].bytes;
        if (replies[end - 1].bytes < replies[first].bytes) break;
    }
    return end;
}

static void messages_add(struct messages *m, const struct queue *queue, unsigned first,
                         unsigned end) {
    const struct reply *reply = &queue->replies[first];
    struct msghdr *message = &m->headers[m->count].msg_hdr;
    *message = (struct msghdr){
        .msg_name = (void *)(uintptr_t)&reply->to->address,
        .msg_namelen = reply->to->bytes,
        .msg_iov = &m->parts[first],
        .msg_iovlen = end - first,
    };
    for (unsigned index = first; index < end; index++) {
        const struct reply *part = &queue->replies[index];
        m->parts[index] = (struct iovec){(void *)(uintptr_t)part->at, part->bytes};
    }
    if (end - first > 1) {
        message->msg_control = memset(&m->control[m->count], 0, sizeof m->control[m->count]);
        message->msg_controllen = sizeof m->control[m->count].bytes;
        struct cmsghdr *control = CMSG_FIRSTHDR(message);
        control->cmsg_level = IPPROTO_UDP;
        control->cmsg_type = UDP_SEGMENT;
        control->cmsg_len = CMSG_LEN(sizeof(uint16_t));
        memcpy(CMSG_DATA(control), &reply->bytes, sizeof reply->bytes);
    }
    m->count++;
}

/* Sends the replies of a message that the kernel has refused one by one. */
static void send_singly(int socket, const struct msghdr *message, struct sent *sent) {
    for (size_t index = 0; index < message->msg_iovlen; index++) {
        struct msghdr one = {.msg_name = message->msg_name,
                             .msg_namelen = message->msg_namelen,
                             .msg_iov = message->msg_iov + index,
                             .msg_iovlen = 1};
        bool is_sent = sendmsg(socket, &one, MSG_DONTWAIT) >= 0;
        sent->replies += is_sent;
        sent->unsent += !is_sent;
        sent->messages += is_sent;
    }
}

void queue_send(struct queue *queue, int socket, bool uses_gso, struct sent *sent) {
    static struct messages messages;
    messages.count = 0;
    if (uses_gso && queue->count > 1)
        qsort(queue->replies, queue->count, sizeof *queue->replies, compare);
    for (unsigned first = 0; first < queue->count;) {
        unsigned end = message_end(queue, first, uses_gso);
        messages_add(&messages, queue, first, end);
        first = end;
    }
    for (unsigned done = 0; done < messages.count;) {
        int taken = sendmmsg(socket, messages.headers + done, messages.count - done, MSG_DONTWAIT);
        if (taken > 0) {
            for (int index = 0; index < taken; index++)
                sent->replies += messages.headers[done++].msg_hdr.msg_iovlen;
            sent->messages += (unsigned)taken;
            continue;
        }
        /* The first of them failed. A full buffer is no reason to try its parts. */
        const struct msghdr *message = &messages.headers[done++].msg_hdr;
        bool is_full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
        if (message->msg_iovlen > 1 && !is_full) {
            sent->gso_refused++;
            send_singly(socket, message, sent);
        } else {
            sent->unsent += message->msg_iovlen;
        }
    }
    queue->count = 0;
    queue->used = 0;
}
