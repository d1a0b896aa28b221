/* Values of keys, as GET and MGET have them, with the rights of one ACL user. */
#ifndef SHUNT_VALUES_H
#define SHUNT_VALUES_H

#include "reply.h"
#include "vendor/redismodule.h"

/* Whose rights count. */
struct rights {
    RedisModuleString *user;  /* its name */
    bool is_named;            /* by an option, which vouches for datagrams without a password */
    bool is_usable;           /* as of the last check */
    const char *why_not;
    uint64_t check_at_ns;
    RedisModuleString *get, *multiget; /* names of the commands */
};

void rights_open(struct rights *rights, const char *user, bool is_named);
void rights_close(struct rights *rights);

/* Where a turn reads. */
struct values {
    RedisModuleCtx *ctx;
    struct rights *rights;
    RedisModuleUser *user; /* NULL: nobody may read */
    bool is_cluster;
};

/* Begins a turn at a database. A user that is off, or gone, or the default user with a password,
 * reads nothing; a change of that counts within a second. */
void values_begin(struct values *values, RedisModuleCtx *ctx, struct rights *rights, int database,
                  bool is_cluster, uint64_t now_ns);

/* Ends it: the user must not be used later, because it may be deleted. */
void values_end(struct values *values);

/* Adds the items of all keys to an answer; counts them by status. */
void values_answer(struct values *values, const struct request *request, struct writer *writer,
                   uint64_t counts[4]);

#endif
