/* The bridge from Python: one call each, in turns.

   cffi lets other Python threads run while it is in C, so two of them may call with one pool. The
   contract gives a pool to one thread at a time; the bridge sees to it. */
#include "bridge.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tinyllm/fnv.h"
#include "tinyllm/kv_pool.h"

enum { BRIDGE_TOUCHED = -1 };

struct bridge {
    tl_kv_pool *pool;
    atomic_flag taken;
};

static tl_kv_pool *take_turn(bridge *b) {
    while (atomic_flag_test_and_set_explicit(&b->taken, memory_order_acquire)) sched_yield();
    return b->pool;
}

static void end_turn(bridge *b) {
    atomic_flag_clear_explicit(&b->taken, memory_order_release);
}

/* Run one expression as this thread's turn with the pool, `p` in it. */
#define IN_TURN(type, expression)     \
    tl_kv_pool *const p = take_turn(b); \
    const type result = (expression); \
    end_turn(b)

/* A number, or the negative of the status that was in its place. */
static int64_t told(tl_status status, uint32_t number) {
    return status == TL_OK ? (int64_t)number : -(int64_t)status;
}

/* Of a function that returns no status: what it left in the slot. */
static int32_t todo(void) {
    return tl_error_status() == TL_ETODO ? TL_ETODO : TL_OK;
}

static tl_kv_cfg config_of(const uint32_t *dimensions, int32_t dtype, uint32_t format) {
    tl_kv_cfg cfg = {dimensions[0], dimensions[1], dimensions[2], dimensions[3],
                     dimensions[4], dtype,         format};
    return cfg;
}

const char *bridge_message(void) {
    return tl_error_message();
}

int32_t bridge_create(const uint32_t *dimensions, int32_t dtype, uint32_t format, bridge **out) {
    const tl_kv_cfg cfg = config_of(dimensions, dtype, format);
    bridge *b = malloc(sizeof *b);
    if (!b) return tl_fail(TL_ENOMEM, "no memory for a pool");
    const tl_status status = tl_kv_pool_create(&cfg, &b->pool);
    if (status != TL_OK) {
        free(b);
        return (int32_t)status;
    }
    atomic_flag_clear(&b->taken);
    *out = b;
    return TL_OK;
}

void bridge_destroy(bridge *b) {
    tl_kv_pool_destroy(b->pool);
    free(b);
}

int32_t bridge_alloc(bridge *b, uint32_t n, uint32_t *ids) {
    IN_TURN(tl_status, tl_kv_alloc(p, n, ids));
    return (int32_t)result;
}

int64_t bridge_alloc_one(bridge *b) {
    uint32_t id = 0;
    IN_TURN(tl_status, tl_kv_alloc(p, 1, &id));
    return told(result, id);
}

int32_t bridge_ref(bridge *b, uint32_t id) {
    tl_error_clear();
    IN_TURN(tl_status, (tl_kv_ref(p, id), tl_error_status()));
    return (int32_t)result;
}

int32_t bridge_unref(bridge *b, uint32_t id) {
    IN_TURN(tl_status, tl_kv_unref(p, id));
    return (int32_t)result;
}

int64_t bridge_cow(bridge *b, uint32_t id) {
    uint32_t copy = 0;
    IN_TURN(tl_status, tl_kv_cow(p, id, &copy));
    return told(result, copy);
}

int32_t bridge_set_fill(bridge *b, uint32_t id, uint32_t n_tokens) {
    IN_TURN(tl_status, tl_kv_set_fill(p, id, n_tokens));
    return (int32_t)result;
}

int64_t bridge_fill(bridge *b, uint32_t id) {
    uint32_t n_tokens = 0;
    IN_TURN(tl_status, tl_kv_fill(p, id, &n_tokens));
    return told(result, n_tokens);
}

int64_t bridge_ref_count(bridge *b, uint32_t id) {
    uint32_t n = 0;
    IN_TURN(tl_status, tl_kv_ref_count(p, id, &n));
    return told(result, n);
}

int32_t bridge_block(bridge *b, uint32_t id, uint32_t layer, int32_t is_v, size_t *address) {
    tl_error_clear();
    IN_TURN(uintptr_t, (uintptr_t)tl_kv_block_ptr(p, id, layer, is_v));
    *address = result;
    return result ? TL_OK : tl_error_status() ? (int32_t)tl_error_status() : TL_EINVAL;
}

int32_t bridge_block_bytes(bridge *b, size_t *bytes) {
    tl_error_clear();
    IN_TURN(size_t, tl_kv_block_bytes(p));
    *bytes = result;
    return todo();
}

int32_t bridge_stats(bridge *b, uint32_t *counts) {
    tl_kv_stats stats = {0};
    tl_error_clear();
    IN_TURN(int32_t, (tl_kv_stats_get(p, &stats), todo()));
    counts[0] = stats.free;
    counts[1] = stats.used;
    counts[2] = stats.cached;
    counts[3] = stats.evictions;
    return result;
}

int32_t bridge_register(bridge *b, uint32_t id, uint64_t hash) {
    IN_TURN(tl_status, tl_kv_register(p, id, hash));
    return (int32_t)result;
}

int64_t bridge_lookup(bridge *b, uint64_t hash) {
    uint32_t id = 0;
    tl_error_clear();
    IN_TURN(tl_status, tl_kv_lookup(p, hash, &id));
    if (result == TL_ENOTFOUND && tl_error_status() != TL_OK) return 100 * (int64_t)BRIDGE_TOUCHED;
    return told(result, id);
}

int32_t bridge_hash_of(bridge *b, uint32_t id, uint64_t *hash) {
    IN_TURN(tl_status, tl_kv_hash_of(p, id, hash));
    return (int32_t)result;
}

uint64_t bridge_fnv1a64(const void *data, size_t n, uint64_t state) {
    return tl_fnv1a64(data, n, state);
}

int32_t bridge_block_hash(uint64_t parent, const uint32_t *tokens, uint32_t n, uint64_t *hash) {
    return bridge_hash_chain(parent, tokens, 1, n, hash);
}

int32_t bridge_hash_chain(uint64_t parent, const uint32_t *tokens, uint32_t n_blocks,
                          uint32_t block_tokens, uint64_t *hashes) {
    tl_error_clear();
    for (uint32_t i = 0; i < n_blocks; i++, tokens += block_tokens) {
        hashes[i] = parent = tl_kv_block_hash(parent, tokens, block_tokens);
    }
    return todo();
}

int64_t bridge_crc32c(const void *data, size_t n, uint32_t crc) {
    tl_error_clear();
    const uint32_t result = tl_crc32c(data, n, crc);
    return told(todo() ? TL_ETODO : TL_OK, result);
}

int32_t bridge_export_bytes(const uint32_t *dimensions, uint32_t n, size_t *bytes) {
    const tl_kv_cfg cfg = config_of(dimensions, TL_F16, TL_KV_FORMAT);
    return (int32_t)tl_kv_export_bytes(&cfg, n, bytes);
}

int32_t bridge_export(bridge *b, const uint32_t *ids, uint32_t n, void *buffer, size_t cap,
                      size_t *written) {
    IN_TURN(tl_status, tl_kv_export(p, ids, n, buffer, cap, written));
    return (int32_t)result;
}

int32_t bridge_import(bridge *b, const void *buffer, size_t n, uint32_t *ids) {
    IN_TURN(tl_status, tl_kv_import(p, buffer, n, ids));
    return (int32_t)result;
}
