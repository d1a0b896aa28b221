#include "values.h"

#include <string.h>
#include <strings.h>

enum {
    /* Strings of this length are never embedded in their object nor numbers: Redis embeds 44 bytes
     * at most, Valkey objects of 128 with their key. StringDMA rewrites those for good. */
    PLAIN_BYTES_MIN = 128,
};

/* Begins the error of GET for a value that is no string; MGET has no value for it. */
#define WRONG_TYPE "WRONGTYPE"
#define CHECK_INTERVAL_NS UINT64_C(1000000000)

void rights_open(struct rights *rights, const char *user, bool is_named) {
    *rights = (struct rights){
        .user = RedisModule_CreateString(NULL, user, strlen(user)),
        .is_named = is_named,
        .get = RedisModule_CreateString(NULL, "GET", 3),
        .multiget = RedisModule_CreateString(NULL, "MGET", 4),
    };
}

void rights_close(struct rights *rights) {
    RedisModule_FreeString(NULL, rights->user);
    RedisModule_FreeString(NULL, rights->get);
    RedisModule_FreeString(NULL, rights->multiget);
}

static bool equals(RedisModuleCallReply *reply, const char *word) {
    size_t bytes;
    const char *text = RedisModule_CallReplyStringPtr(reply, &bytes);
    return text && bytes == strlen(word) && !strncasecmp(text, word, bytes);
}

/* True if the flags of an answer of ACL GETUSER have this one. */
static bool has_flag(RedisModuleCallReply *user, const char *flag) {
    size_t fields = RedisModule_CallReplyLength(user);
    for (size_t field = 0; field + 1 < fields; field += 2) {
        if (!equals(RedisModule_CallReplyArrayElement(user, field), "flags")) continue;
        RedisModuleCallReply *flags = RedisModule_CallReplyArrayElement(user, field + 1);
        for (size_t index = 0; index < RedisModule_CallReplyLength(flags); index++)
            if (equals(RedisModule_CallReplyArrayElement(flags, index), flag)) return true;
    }
    return false;
}

static const char *why_not(RedisModuleCtx *ctx, const struct rights *rights) {
    RedisModuleCallReply *user = RedisModule_Call(ctx, "ACL", "cs", "GETUSER", rights->user);
    const char *why = NULL;
    if (!user || RedisModule_CallReplyType(user) != REDISMODULE_REPLY_ARRAY)
        why = "the user does not exist";
    else if (!has_flag(user, "on"))
        why = "the user is off";
    else if (!rights->is_named && !has_flag(user, "nopass"))
        why = "the default user has a password: name a user in the module's options";
    if (user) RedisModule_FreeCallReply(user);
    return why;
}

static void rights_check(RedisModuleCtx *ctx, struct rights *rights, uint64_t now_ns) {
    if (now_ns < rights->check_at_ns) return;
    bool is_first = !rights->check_at_ns;
    const char *why = why_not(ctx, rights);
    if (is_first ? why != NULL : why != rights->why_not)
        RedisModule_Log(ctx, "warning", "user %s: %s",
                        RedisModule_StringPtrLen(rights->user, NULL),
                        why ? why : "datagrams get values again");
    rights->why_not = why;
    rights->is_usable = !why;
    rights->check_at_ns = now_ns + CHECK_INTERVAL_NS;
}

void values_begin(struct values *values, RedisModuleCtx *ctx, struct rights *rights, int database,
                  bool is_cluster, uint64_t now_ns) {
    rights_check(ctx, rights, now_ns);
    *values = (struct values){.ctx = ctx, .rights = rights, .is_cluster = is_cluster};
    if (RedisModule_SelectDb(ctx, database) == REDISMODULE_OK && rights->is_usable)
        values->user = RedisModule_GetModuleUserFromUserName(rights->user);
}

void values_end(struct values *values) {
    if (values->user) RedisModule_FreeModuleUser(values->user);
    values->user = NULL;
}

static bool may_read(const struct values *values, enum operation op, RedisModuleString *name) {
    const struct rights *rights = values->rights;
    RedisModuleString *command[] = {op == GET ? rights->get : rights->multiget, name};
    return RedisModule_ACLCheckCommandPermissions(values->user, command, 2) == REDISMODULE_OK;
}

/* Reads by GET: for short values, and for all in a cluster, where it checks whose the slot is. */
static enum status answer_by_call(struct values *values, enum operation op,
                                  RedisModuleString *name, struct writer *writer) {
    RedisModuleCallReply *reply = RedisModule_Call(values->ctx, "GET", "Es", name);
    enum status status = ASK_OVER_TCP;
    const char *value = NULL;
    size_t bytes = 0;
    int type = reply ? RedisModule_CallReplyType(reply) : REDISMODULE_REPLY_ERROR;
    if (type == REDISMODULE_REPLY_NULL) status = MISS;
    if (type == REDISMODULE_REPLY_STRING) {
        value = RedisModule_CallReplyStringPtr(reply, &bytes);
        status = HIT;
    }
    if (type == REDISMODULE_REPLY_ERROR && reply && op == MULTIGET) {
        const char *text = RedisModule_CallReplyStringPtr(reply, &bytes);
        if (text && bytes >= strlen(WRONG_TYPE) && !memcmp(text, WRONG_TYPE, strlen(WRONG_TYPE)))
            status = MISS;
    }
    status = writer_add(writer, status, value, bytes);
    if (reply) RedisModule_FreeCallReply(reply);
    return status;
}

static enum status answer_key(struct values *values, enum operation op, struct key key,
                              struct writer *writer) {
    RedisModuleString *name =
        RedisModule_CreateString(NULL, (const char *)key.at, key.bytes);
    RedisModuleKey *opened = NULL;
    enum status status;
    if (!may_read(values, op, name)) {
        status = writer_add(writer, ASK_OVER_TCP, NULL, 0);
        goto done;
    }
    opened = RedisModule_OpenKey(values->ctx, name, REDISMODULE_READ);
    int type = RedisModule_KeyType(opened);
    bool is_string = type == REDISMODULE_KEYTYPE_STRING;
    size_t bytes = is_string ? RedisModule_ValueLength(opened) : 0;
    if (is_string && !writer_has_room(writer, bytes)) {
        /* Before any call: a large value is never copied. */
        status = writer_add(writer, TOO_BIG, NULL, 0);
    } else if (values->is_cluster || (is_string && bytes < PLAIN_BYTES_MIN)) {
        RedisModule_CloseKey(opened);
        opened = NULL;
        status = answer_by_call(values, op, name, writer);
    } else if (is_string) {
        const char *value = RedisModule_StringDMA(opened, &bytes, REDISMODULE_READ);
        status = writer_add(writer, value ? HIT : ASK_OVER_TCP, value, bytes);
    } else {
        bool is_miss = type == REDISMODULE_KEYTYPE_EMPTY || op == MULTIGET;
        status = writer_add(writer, is_miss ? MISS : ASK_OVER_TCP, NULL, 0);
    }
done:
    if (opened) RedisModule_CloseKey(opened);
    RedisModule_FreeString(NULL, name);
    return status;
}

void values_answer(struct values *values, const struct request *request, struct writer *writer,
                   uint64_t counts[4]) {
    for (unsigned index = 0; index < request->count; index++) {
        enum status status =
            values->user ? answer_key(values, request->op, request->keys[index], writer)
                         : writer_add(writer, ASK_OVER_TCP, NULL, 0);
        counts[status]++;
    }
}
