/* What the Python side calls: the pool's functions, each with a status, for any thread.

   A status is a tl_status, or BRIDGE_TOUCHED (-1): a miss that wrote into the error slot. Where a
   function returns a number, a status is told as its negative, and BRIDGE_TOUCHED as -100.
   cffi reads this file as it is, so it holds plain declarations only. */
#ifndef BRIDGE_H
#define BRIDGE_H

#include <stddef.h>
#include <stdint.h>

typedef struct bridge bridge;

const char *bridge_message(void);
int32_t bridge_create(const uint32_t *dimensions, int32_t dtype, uint32_t format, bridge **out);
void bridge_destroy(bridge *b);

int32_t bridge_alloc(bridge *b, uint32_t n, uint32_t *ids);
int64_t bridge_alloc_one(bridge *b);
int32_t bridge_ref(bridge *b, uint32_t id);
int32_t bridge_unref(bridge *b, uint32_t id);
int64_t bridge_cow(bridge *b, uint32_t id);
int32_t bridge_set_fill(bridge *b, uint32_t id, uint32_t n_tokens);
int64_t bridge_fill(bridge *b, uint32_t id);
int64_t bridge_ref_count(bridge *b, uint32_t id);
int32_t bridge_block(bridge *b, uint32_t id, uint32_t layer, int32_t is_v, size_t *address);
int32_t bridge_block_bytes(bridge *b, size_t *bytes);
int32_t bridge_stats(bridge *b, uint32_t *counts);

int32_t bridge_register(bridge *b, uint32_t id, uint64_t hash);
int64_t bridge_lookup(bridge *b, uint64_t hash);
int32_t bridge_hash_of(bridge *b, uint32_t id, uint64_t *hash);

uint64_t bridge_fnv1a64(const void *data, size_t n, uint64_t state);
int32_t bridge_block_hash(uint64_t parent, const uint32_t *tokens, uint32_t n, uint64_t *hash);
int32_t bridge_hash_chain(uint64_t parent, const uint32_t *tokens, uint32_t n_blocks,
                          uint32_t block_tokens, uint64_t *hashes);
int64_t bridge_crc32c(const void *data, size_t n, uint32_t crc);

int32_t bridge_export_bytes(const uint32_t *dimensions, uint32_t n, size_t *bytes);
int32_t bridge_export(bridge *b, const uint32_t *ids, uint32_t n, void *buffer, size_t cap,
                      size_t *written);
int32_t bridge_import(bridge *b, const void *buffer, size_t n, uint32_t *ids);

#endif
