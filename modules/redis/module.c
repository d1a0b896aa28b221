/* Answers multigets in datagrams within the server's own event loop. docs/multiget-redis-module.md
 * says how to use it, docs/adr/0046-the-module-for-redis-is-in-c.md why it is as it is.
 *
 *   socket -> batch_receive -> request_read -> sources_admit -> values_answer -> queue_send
 *
 * A turn does this for a limited number of datagrams. It must never
 *
 *  - read a key outside of the server event that begins it. The callback of a descriptor also runs
 *    from within scripts, where half of their writes are there, and while a data set is loaded. And
 *    it has no context that passes on the deletion of an expired key: the server aborts.
 *  - show a write whose client has no answer yet. So a turn comes after the loop has slept: what it
 *    has written before is in the append-only file by then, and synced with `appendfsync always`.
 *  - hold up the server's clients for more than its budget, in datagrams, replies and time: a key
 *    may take long where its user has very many patterns, or its large value has expired. What is
 *    left makes the next sleep end at once, and all clients that are ready come before the next
 *    turn. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "options.h"
#include "socket.h"
#include "values.h"

#define NAME "shunt_multiget"

enum {
    /* Replies after which a turn ends, whatever its budget of datagrams has left. */
    TURN_REPLIES_MAX = 256,
    /* Time after which no further batch begins in a turn. */
    TURN_NS_MAX = 1000000,
};

static struct {
    uint64_t turns, turns_full, turn_us, turn_us_max, turn_datagrams_max;
    uint64_t datagrams, requests, keys, unserved;
    uint64_t malformed, not_split, source, rate;
    uint64_t items[4];
    struct sent sent;
} counts;

static int fd = -1;
static bool is_readable, is_cluster;
static struct options options;
static struct sources sources;
static struct rights rights;
static struct batch batch;
static struct queue queue;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Why no key is read now, if so: over TCP the client gets the right error, or waits. */
static const char *pause_reason(int flags) {
    if (flags & REDISMODULE_CTX_FLAGS_LOADING) return "loading";
    if (flags & REDISMODULE_CTX_FLAGS_REPLICA_IS_STALE) return "stale replica";
    if (RedisModule_AvoidReplicaTraffic()) return "clients are paused";
    return NULL;
}

/* Answers a datagram; without `values`, with the advice to use TCP for each key. */
static void answer(struct values *values, unsigned index, uint64_t now) {
    struct request request;
    enum verdict verdict = request_read(batch.data[index], batch.bytes[index], &request);
    if (verdict != SOUND) {
        counts.malformed += verdict == MALFORMED;
        counts.not_split += verdict == NOT_SPLIT;
        return;
    }
    const struct peer *peer = &batch.peers[index];
    struct address from = address_of((const struct sockaddr *)&peer->address);
    enum admission admission = sources_admit(&sources, now, &from);
    if (admission == REJECTED_SOURCE || admission == REJECTED_RATE) {
        counts.source += admission == REJECTED_SOURCE;
        counts.rate += admission == REJECTED_RATE;
        return;
    }
    size_t bytes_max =
        admission == LISTED ? SIZE_MAX : AMPLIFICATION_MAX * (size_t)batch.bytes[index];
    struct writer writer;
    writer_begin(&writer, &queue, &request, peer, bytes_max);
    if (values) {
        counts.requests++;
        counts.keys += request.count;
        values_answer(values, &request, &writer, counts.items);
    } else {
        counts.unserved++;
        for (unsigned key = 0; key < request.count; key++)
            counts.items[writer_add(&writer, ASK_OVER_TCP, NULL, 0)]++;
    }
    writer_end(&writer);
}

/* Serves what waits, up to the budget of a turn. */
static void serve(struct values *values, uint64_t now) {
    unsigned left = options.turn_datagrams_max, replies = 0;
    bool is_late = false;
    while (left && replies < TURN_REPLIES_MAX && !is_late) {
        unsigned limit = left < BATCH_MAX ? left : BATCH_MAX;
        batch_receive(&batch, fd, limit);
        for (unsigned index = 0; index < batch.count; index++) answer(values, index, now);
        left -= batch.count;
        replies += queue.count;
        /* Replies point to the batch, which the next one overwrites. */
        queue_send(&queue, fd, options.uses_gso, &counts.sent);
        if (batch.count < limit) break;
        is_late = now_ns() - now >= TURN_NS_MAX;
    }
    unsigned datagrams = options.turn_datagrams_max - left;
    counts.turns++;
    counts.turns_full += !left || replies >= TURN_REPLIES_MAX || is_late;
    counts.datagrams += datagrams;
    if (datagrams > counts.turn_datagrams_max) counts.turn_datagrams_max = datagrams;
    uint64_t passed_us = (now_ns() - now) / 1000;
    counts.turn_us += passed_us;
    if (passed_us > counts.turn_us_max) counts.turn_us_max = passed_us;
    RedisModule_LatencyAddSample(NAME, (mstime_t)(passed_us / 1000));
}

static void readable(int descriptor, void *data, int mask) {
    (void)descriptor, (void)data, (void)mask;
    /* A loop that loads a data set has no event for turns. It answers here, and reads no key. */
    if (RedisModule_GetContextFlags(NULL) & REDISMODULE_CTX_FLAGS_LOADING)
        serve(NULL, now_ns());
    else
        is_readable = true;
}

static void on_loop(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t moment, void *data) {
    (void)event, (void)data;
    if (moment != REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP || !is_readable) return;
    is_readable = false;
    uint64_t now = now_ns();
    if (pause_reason(RedisModule_GetContextFlags(ctx))) return serve(NULL, now);
    struct values values;
    values_begin(&values, ctx, &rights, options.database, is_cluster, now);
    serve(&values, now);
    values_end(&values);
}

static void add_count(RedisModuleInfoCtx *info, const char *name, uint64_t count) {
    RedisModule_InfoAddFieldULongLong(info, name, count);
}

static void inform(RedisModuleInfoCtx *info, int is_crash_report) {
    if (RedisModule_InfoAddSection(info, NULL) != REDISMODULE_OK) return;
    /* A crash report calls nothing that may fail again. */
    const char *pause =
        is_crash_report ? "crashed" : pause_reason(RedisModule_GetContextFlags(NULL));
    if (!pause && rights.check_at_ns) pause = rights.why_not;
    RedisModule_InfoAddFieldCString(info, "state", (char *)(uintptr_t)(pause ? pause : "serving"));
    add_count(info, "turns", counts.turns);
    add_count(info, "turns_full", counts.turns_full);
    add_count(info, "turn_us", counts.turn_us);
    add_count(info, "turn_us_max", counts.turn_us_max);
    add_count(info, "turn_datagrams_max", counts.turn_datagrams_max);
    add_count(info, "datagrams", counts.datagrams);
    add_count(info, "requests", counts.requests);
    add_count(info, "keys", counts.keys);
    add_count(info, "unserved", counts.unserved);
    add_count(info, "rejected_malformed", counts.malformed);
    add_count(info, "rejected_not_split", counts.not_split);
    add_count(info, "rejected_source", counts.source);
    add_count(info, "rejected_rate", counts.rate);
    add_count(info, "items_hit", counts.items[HIT]);
    add_count(info, "items_miss", counts.items[MISS]);
    add_count(info, "items_too_big", counts.items[TOO_BIG]);
    add_count(info, "items_over_tcp", counts.items[ASK_OVER_TCP]);
    add_count(info, "replies", counts.sent.replies);
    add_count(info, "replies_unsent", counts.sent.unsent);
    add_count(info, "messages", counts.sent.messages);
    add_count(info, "gso_refused", counts.sent.gso_refused);
}

/* A child that writes a snapshot would hold the port beyond its parent's end, and keep the server
 * from starting again. */
static void close_in_child(void) {
    if (fd >= 0) close(fd);
    fd = -1;
}

static int refuse(RedisModuleCtx *ctx, const char *what) {
    RedisModule_Log(ctx, "warning", "cannot %s", what);
    if (fd >= 0) close(fd);
    fd = -1;
    return REDISMODULE_ERR;
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    if (RedisModule_Init(ctx, NAME, 1, REDISMODULE_APIVER_1) != REDISMODULE_OK)
        return REDISMODULE_ERR;
    if (!RedisModule_EventLoopAdd || !RedisModule_ACLCheckCommandPermissions)
        return refuse(ctx, "run here: the server must be Redis 7.0 or newer, or Valkey");
    if (!options_read(ctx, argv, argc, &options, &sources)) return REDISMODULE_ERR;
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) return refuse(ctx, "get random bytes");
    sources_clear(&sources, seed);
    memset(&counts, 0, sizeof counts);
    queue.count = 0;
    queue.used = 0;
    is_readable = false;
    is_cluster = RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_CLUSTER;
    fd = socket_open(options.bind, options.port);
    if (fd < 0) {
        RedisModule_Log(ctx, "warning", "cannot listen for datagrams on %s port %s: %s",
                        options.bind, options.port, strerror(errno));
        return REDISMODULE_ERR;
    }
    if (pthread_atfork(NULL, NULL, close_in_child)) return refuse(ctx, "see children begin");
    if (RedisModule_RegisterInfoFunc(ctx, inform) != REDISMODULE_OK)
        return refuse(ctx, "register its section of INFO");
    if (RedisModule_SubscribeToServerEvent(ctx, RedisModuleEvent_EventLoop, on_loop) !=
        REDISMODULE_OK)
        return refuse(ctx, "subscribe to the event loop");
    if (RedisModule_EventLoopAdd(fd, REDISMODULE_EVENTLOOP_READABLE, readable, NULL) !=
        REDISMODULE_OK)
        return refuse(ctx, "add its socket to the event loop");
    rights_open(&rights, options.user ? options.user : "default", options.user != NULL);
    RedisModule_Log(ctx, "notice", "listening for datagrams on %s port %s", options.bind,
                    options.port);
    /* Their texts are the server's. */
    options.bind = options.port = options.user = NULL;
    return REDISMODULE_OK;
}

int RedisModule_OnUnload(RedisModuleCtx *ctx) {
    (void)ctx;
    RedisModule_EventLoopDel(fd, REDISMODULE_EVENTLOOP_READABLE);
    close(fd);
    fd = -1;
    rights_close(&rights);
    return REDISMODULE_OK;
}
