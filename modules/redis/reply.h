/* Replies of NetMC: how values become datagrams, and the queue in which these wait for the end of
 * a batch. */
#ifndef SHUNT_REPLY_H
#define SHUNT_REPLY_H

#include <stdbool.h>
#include <sys/socket.h>

#include "request.h"

enum {
    /* Requests of a batch, each of which may need a reply for each of its keys. */
    BATCH_MAX = 32,
    QUEUE_MAX = BATCH_MAX * KEYS_MAX,
    ITEM_BYTES = 5,
    /* Bytes that an unlisted source may be sent for each byte from it. */
    AMPLIFICATION_MAX = 3,
};

enum status { HIT, MISS, TOO_BIG, ASK_OVER_TCP };

/* The source of a request, to which its replies go. */
struct peer {
    struct sockaddr_storage address;
    socklen_t bytes;
};

struct reply {
    const struct peer *to;
    const uint8_t *at;
    uint16_t bytes;
};

struct queue {
    unsigned count;
    size_t used;
    struct reply replies[QUEUE_MAX];
    uint8_t bytes[QUEUE_MAX * DATAGRAM_BYTES_MAX];
};

/* Puts the answer to one request together. */
struct writer {
    struct queue *queue;
    const struct request *request;
    const struct peer *to;
    uint8_t *reply;   /* the reply under way */
    size_t bytes;     /* of that reply */
    size_t room;      /* bytes of values, with the headers that each may cost, still allowed */
    unsigned next;    /* the key whose item comes next */
};

/* Begins an answer of at most `bytes_max` bytes in all its replies; SIZE_MAX sets no limit. The
 * queue has room for one reply for each key. */
void writer_begin(struct writer *writer, struct queue *queue, const struct request *request,
                  const struct peer *to, size_t bytes_max);

/* True if a value of so many bytes may be sent for the next key. */
bool writer_has_room(const struct writer *writer, size_t value_bytes);

/* Adds the item of the next key. A value without room becomes TOO_BIG, and only HIT has one.
 * Returns the status that was written. */
enum status writer_add(struct writer *writer, enum status status, const void *value,
                       size_t value_bytes);

/* Queues the last reply. */
void writer_end(struct writer *writer);

#endif
