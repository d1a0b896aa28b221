/* Mutated requests for the decoder and the writer of replies: fuzz ROUNDS [SEED]. Run under
 * sanitizers, which see a read or write out of bounds; the checks below see the rest. Built with
 * -DLIBFUZZER and -fsanitize=fuzzer it is a target of libFuzzer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);           \
            abort();                                                                  \
        }                                                                             \
    } while (0)

static struct queue queue;
static uint8_t value[2 * DATAGRAM_BYTES_MAX];

static void check_request(const struct request *request, const uint8_t *data, size_t bytes) {
    CHECK(request->count >= 1 && request->count <= KEYS_MAX);
    CHECK(request->startidx + request->count <= KEYS_MAX);
    const uint8_t *end = data + HEADER_BYTES;
    for (unsigned index = 0; index < request->count; index++) {
        struct key key = request->keys[index];
        CHECK(key.bytes <= KEY_BYTES_MAX && key.at >= end && key.at + key.bytes <= data + bytes);
        end = key.at + key.bytes;
        for (unsigned before = 0; before < index; before++) {
            struct key other = request->keys[before];
            CHECK(other.bytes != key.bytes || memcmp(other.at, key.at, key.bytes));
        }
    }
}

/* Reads replies as a client does: all keys, in order, each once. */
static size_t check_replies(const struct request *request) {
    size_t total = 0;
    unsigned next = 0;
    for (unsigned index = 0; index < queue.count; index++) {
        const uint8_t *reply = queue.replies[index].at;
        size_t bytes = queue.replies[index].bytes, at = HEADER_BYTES;
        CHECK(bytes <= DATAGRAM_BYTES_MAX && bytes >= HEADER_BYTES && reply[6] >= 1);
        CHECK(reply[0] == (request->op == GET ? GET_REPLY : MULTIGET_REPLY));
        CHECK(reply[9] == request->startidx + next && reply[5] == request->oid);
        for (unsigned item = 0; item < reply[6]; item++) {
            CHECK(next < request->count && at + ITEM_BYTES <= bytes);
            struct key key = request->keys[next++];
            size_t value_bytes = read_u16(reply + at + 3);
            CHECK(reply[at] <= ASK_OVER_TCP && (reply[at] == HIT || !value_bytes));
            CHECK(read_u16(reply + at + 1) == key.bytes);
            CHECK(at + ITEM_BYTES + key.bytes + value_bytes <= bytes);
            CHECK(!memcmp(reply + at + ITEM_BYTES, key.at, key.bytes));
            at += ITEM_BYTES + key.bytes + value_bytes;
        }
        CHECK(at == bytes);
        total += bytes;
    }
    CHECK(next == request->count);
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    /* A block of exactly this size: the sanitizer sees a read behind its end. */
    uint8_t *exact = malloc(bytes ? bytes : 1);
    if (!exact) abort();
    if (bytes) memcpy(exact, data, bytes);
    struct request request;
    if (request_read(exact, bytes, &request) == SOUND) {
        check_request(&request, exact, bytes);
        for (unsigned listed = 0; listed < 2; listed++) {
            struct peer peer = {.bytes = 0};
            struct writer writer;
            size_t bytes_max = listed ? SIZE_MAX : AMPLIFICATION_MAX * bytes;
            queue.count = 0, queue.used = 0;
            writer_begin(&writer, &queue, &request, &peer, bytes_max);
            for (unsigned index = 0; index < request.count; index++) {
                /* Sizes that depend on the input, about the limit of a datagram among them. */
                size_t size = (request.id[index % 4] * 7 + index * 131) % sizeof value;
                if (index % 5 == 4) size = DATAGRAM_BYTES_MAX - HEADER_BYTES - ITEM_BYTES -
                                           request.keys[index].bytes + request.id[0] % 2;
                writer_add(&writer, request.id[3] >> (index % 4) & 3, value, size);
            }
            writer_end(&writer);
            CHECK(check_replies(&request) <= bytes_max);
        }
    }
    free(exact);
    return 0;
}

#ifndef LIBFUZZER

static uint64_t state;

static unsigned below(unsigned limit) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (unsigned)(state >> 33) % limit;
}

/* A sound request of some groups; a switch has split it if `oid` is one of them. */
static size_t build(uint8_t *out, bool is_split, bool is_trimmed) {
    unsigned groups = is_split ? 1 + below(6) : 1, own = below(groups), number = 0;
    uint8_t keys[DATAGRAM_BYTES_MAX * 2];
    unsigned counts[KEYS_MAX], ends[KEYS_MAX], bits = 0, total = 0;
    size_t bytes = 0;
    for (unsigned group = 0; group < groups; group++) {
        counts[group] = 1 + below(group ? 2 : 6);
        for (unsigned key = 0; key < counts[group]; key++) {
            unsigned length = 1 + below(below(8) ? 12 : 60);
            write_u16(keys + bytes, length);
            memset(keys + bytes + 2, 'a' + (int)number++, length);
            bytes += 2 + length;
        }
        ends[group] = (unsigned)bytes;
        total += counts[group];
        bits |= 1u << (16 - total);
    }
    unsigned before = 0;
    for (unsigned group = 0; group < own; group++) before += counts[group];
    memset(out, 0, HEADER_BYTES);
    out[0] = MULTIGET;
    for (unsigned index = 1; index < 5; index++) out[index] = (uint8_t)below(256);
    out[5] = is_split ? (uint8_t)own : 0;
    out[6] = (uint8_t)(is_split ? counts[own] : total);
    write_u16(out + 7, is_split ? bits << (before + counts[own]) & 0xffff : bits);
    out[9] = is_split ? (uint8_t)before : 0;
    out[10] = is_split ? (is_trimmed ? 3 : 1) : 0;
    out[11] = (uint8_t)groups;
    size_t at = HEADER_BYTES;
    for (unsigned group = 0; group < groups; group++) out[at++] = (uint8_t)(group * 7);
    for (unsigned group = 0; group < groups; group++, at += 2) write_u16(out + at, ends[group]);
    size_t from = is_split && is_trimmed && own ? ends[own - 1] : 0;
    size_t to = is_split && is_trimmed ? ends[own] : bytes;
    memcpy(out + at, keys + from, to - from);
    return at + to - from;
}

int main(int argc, char **argv) {
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000, sound = 0;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)state);
    state = state * 2654435761u + 88172645463325252u;
    fflush(stdout);
    for (unsigned long round = 0; round < rounds; round++) {
        uint8_t data[2 * DATAGRAM_BYTES_MAX];
        size_t bytes = build(data, round % 3 != 0, round % 3 == 1);
        struct request request;
        /* Unchanged requests are taken, so that mutations begin with what matters. */
        CHECK(request_read(data, bytes, &request) == SOUND);
        sound++;
        LLVMFuzzerTestOneInput(data, bytes);
        for (unsigned changes = below(4); changes--;)
            data[below(below(2) ? 24 : (unsigned)bytes)] = (uint8_t)below(256);
        if (!below(6)) bytes = below((unsigned)bytes + 1);
        if (!below(12)) bytes += 1 + below(40);
        LLVMFuzzerTestOneInput(data, bytes);
    }
    printf("%lu requests and as many mutations\n", sound);
    return 0;
}
#endif
