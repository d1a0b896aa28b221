/* The socket for datagrams: batches of requests in, batches of replies out. */
#ifndef SHUNT_SOCKET_H
#define SHUNT_SOCKET_H

#include "reply.h"

/* A batch of received datagrams; one longer than any request is cut short and marked. */
struct batch {
    unsigned count;
    struct peer peers[BATCH_MAX];
    uint16_t bytes[BATCH_MAX]; /* 0 for a datagram that was cut short */
    uint8_t data[BATCH_MAX][DATAGRAM_BYTES_MAX];
};

/* Counts of `queue_send`. */
struct sent {
    uint64_t replies;       /* that the kernel took */
    uint64_t unsent;        /* that it had no room for or no way to send */
    uint64_t messages;      /* in which they left */
    uint64_t gso_refused;   /* messages whose replies left one by one instead */
};

/* Opens a socket at a numeric address. Returns its descriptor, or -1 with errno; EINVAL for a text
 * that is no address. */
int socket_open(const char *address, const char *port);

/* Receives at most `limit` datagrams that wait. */
void batch_receive(struct batch *batch, int socket, unsigned limit);

/* Sends all replies and empties the queue. With `uses_gso`, replies of one size to one peer leave
 * as one message that the kernel or the network card cuts (UDP_SEGMENT); where it refuses to, they
 * leave one by one. What it cannot take is dropped, as anywhere else on the way. */
void queue_send(struct queue *queue, int socket, bool uses_gso, struct sent *sent);

#endif
