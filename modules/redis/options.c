#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TURN_DATAGRAMS = 64, TURN_DATAGRAMS_MAX = 4096, RATE = 200000 };

/* A number from `least` to `most`. */
static bool read_number(const char *text, long long least, long long most, long long *number) {
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return !errno && end != text && !*end && *number >= least && *number <= most;
}

static bool add_prefix(struct sources *sources, const char *text) {
    return sources->allow_count < PREFIXES_MAX &&
           prefix_read(text, &sources->allow[sources->allow_count++]);
}

/* Reads networks with commas between. */
static bool read_prefixes(const char *text, struct sources *sources) {
    char copy[1024], *rest = NULL;
    if (strlen(text) >= sizeof copy) return false;
    strcpy(copy, text);
    char *one = strtok_r(copy, ",", &rest);
    if (!one) return false;
    for (; one; one = strtok_r(NULL, ",", &rest))
        if (!add_prefix(sources, one)) return false;
    return true;
}

/* Takes one option. Returns NULL, or what its value must be. */
static const char *take(const char *name, const char *value, struct options *options,
                        struct sources *sources) {
    long long number = 0;
    if (!strcasecmp(name, "bind")) {
        options->bind = value;
    } else if (!strcasecmp(name, "port")) {
        options->port = value;
        if (!read_number(value, 1, 65535, &number)) return "a port from 1 to 65535";
    } else if (!strcasecmp(name, "allow")) {
        if (!read_prefixes(value, sources))
            return "up to 64 networks with commas between, such as 10.0.0.0/8,fd00::/8";
    } else if (!strcasecmp(name, "rate-max")) {
        if (!read_number(value, 0, 1000000000, &number)) return "a number up to 1000000000";
        sources->rate = (uint32_t)number;
    } else if (!strcasecmp(name, "others-rate-max")) {
        if (!read_number(value, 0, 1000000000, &number)) return "a number up to 1000000000";
        sources->others_rate = (uint32_t)number;
    } else if (!strcasecmp(name, "database")) {
        if (!read_number(value, 0, 1 << 30, &number)) return "the number of a database";
        options->database = (int)number;
    } else if (!strcasecmp(name, "user")) {
        options->user = value;
        if (!*value) return "the name of an ACL user";
    } else if (!strcasecmp(name, "turn-datagrams-max")) {
        if (!read_number(value, 1, TURN_DATAGRAMS_MAX, &number)) return "a number from 1 to 4096";
        options->turn_datagrams_max = (unsigned)number;
    } else if (!strcasecmp(name, "gso")) {
        options->uses_gso = !strcasecmp(value, "yes");
        if (!options->uses_gso && strcasecmp(value, "no")) return "yes or no";
    } else {
        return "one of bind, port, allow, rate-max, others-rate-max, database, user, "
               "turn-datagrams-max, gso";
    }
    return NULL;
}

bool options_read(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                  struct options *options, struct sources *sources) {
    *options = (struct options){.bind = "127.0.0.1",
                                .port = "9700",
                                .turn_datagrams_max = TURN_DATAGRAMS,
                                .uses_gso = true};
    sources->allow_count = 0;
    sources->rate = RATE;
    sources->others_rate = 0;
    for (int index = 0; index < argc; index += 2) {
        const char *name = RedisModule_StringPtrLen(argv[index], NULL);
        if (index + 1 == argc) {
            RedisModule_Log(ctx, "warning", "option %s has no value", name);
            return false;
        }
        const char *value = RedisModule_StringPtrLen(argv[index + 1], NULL);
        const char *expected = take(name, value, options, sources);
        if (expected) {
            RedisModule_Log(ctx, "warning", "option %s %s: expected %s", name, value, expected);
            return false;
        }
    }
    if (!sources->allow_count && !read_prefixes("127.0.0.0/8,::1", sources)) return false;
    bool is_cluster = RedisModule_GetContextFlags(ctx) & REDISMODULE_CTX_FLAGS_CLUSTER;
    if ((is_cluster && options->database) ||
        RedisModule_SelectDb(ctx, options->database) != REDISMODULE_OK) {
        RedisModule_Log(ctx, "warning", "option database %d: the server has no such database",
                        options->database);
        return false;
    }
    return true;
}
