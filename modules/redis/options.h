/* Options of `loadmodule`. */
#ifndef SHUNT_OPTIONS_H
#define SHUNT_OPTIONS_H

#include "sources.h"
#include "vendor/redismodule.h"

struct options {
    const char *bind;
    const char *port;
    const char *user;   /* NULL: the default user, as long as it needs no password */
    int database;
    unsigned turn_datagrams_max;
    bool uses_gso;
};

/* Reads NAME VALUE pairs into `options`, and networks and rates into `sources`. Logs what is wrong
 * and returns false. Texts live as long as `argv`. */
bool options_read(RedisModuleCtx *ctx, RedisModuleString **argv, int argc,
                  struct options *options, struct sources *sources);

#endif
