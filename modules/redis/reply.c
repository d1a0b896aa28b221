#include "reply.h"

#include <string.h>

static void begin_reply(struct writer *w) {
    uint8_t *reply = w->queue->bytes + w->queue->used;
    memset(reply, 0, HEADER_BYTES);
    reply[0] = w->request->op == GET ? GET_REPLY : MULTIGET_REPLY;
    memcpy(reply + 1, w->request->id, sizeof w->request->id);
    reply[5] = w->request->oid;
    reply[9] = (uint8_t)(w->request->startidx + w->next);
    w->reply = reply;
    w->bytes = HEADER_BYTES;
}

void writer_begin(struct writer *w, struct queue *queue, const struct request *request,
                  const struct peer *to, size_t bytes_max) {
    size_t least = HEADER_BYTES;
    for (unsigned index = 0; index < request->count; index++)
        least += ITEM_BYTES + (size_t)request->keys[index].bytes;
    *w = (struct writer){.queue = queue, .request = request, .to = to};
    w->room = bytes_max > least ? bytes_max - least : 0;
    begin_reply(w);
}

bool writer_has_room(const struct writer *w, size_t value_bytes) {
    size_t key_bytes = w->request->keys[w->next].bytes;
    /* Each value might start a reply of its own. */
    return value_bytes <= DATAGRAM_BYTES_MAX - HEADER_BYTES - ITEM_BYTES - key_bytes &&
           value_bytes + HEADER_BYTES <= w->room;
}

enum status writer_add(struct writer *w, enum status status, const void *value,
                       size_t value_bytes) {
    struct key key = w->request->keys[w->next];
    if (status == HIT && !writer_has_room(w, value_bytes)) status = TOO_BIG;
    if (status != HIT) value_bytes = 0;
    if (status == HIT) w->room -= value_bytes + HEADER_BYTES;
    size_t item_bytes = ITEM_BYTES + key.bytes + value_bytes;
    if (w->bytes + item_bytes > DATAGRAM_BYTES_MAX) {
        writer_end(w);
        begin_reply(w);
    }
    uint8_t *item = w->reply + w->bytes;
    item[0] = (uint8_t)status;
    write_u16(item + 1, key.bytes);
    write_u16(item + 3, value_bytes);
    memcpy(item + ITEM_BYTES, key.at, key.bytes);
    if (value_bytes) memcpy(item + ITEM_BYTES + key.bytes, value, value_bytes);
    w->bytes += item_bytes;
    w->reply[6]++;
    w->next++;
    return status;
}

void writer_end(struct writer *w) {
    struct queue *queue = w->queue;
    queue->replies[queue->count++] = (struct reply){w->to, w->reply, (uint16_t)w->bytes};
    queue->used += w->bytes;
}
