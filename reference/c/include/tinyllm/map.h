/* A hash map from 64-bit keys to 32-bit numbers, of a size fixed at the start. */
#ifndef TINYLLM_MAP_H
#define TINYLLM_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "tinyllm/error.h"

typedef struct {
    uint64_t key; /* 0: nothing is here */
    uint32_t number;
} tl_map_slot;

/* A map of zeros is empty and has room for nothing. Its fields are its own. */
typedef struct {
    tl_map_slot *slots;
    uint32_t mask; /* slots - 1, a power of two less one */
    uint32_t len, cap;
} tl_map;

/* Make room for `cap` keys, in a map that was never used. It never grows after that.
   TL_ENOMEM: there is no memory, and nothing changed. */
tl_status tl_map_reserve(tl_map *map, uint32_t cap);

/* Find a key: true, and its number in `*number`, if it is there. The key 0 never is. */
bool tl_map_get(const tl_map *map, uint64_t key, uint32_t *number);

/* Put a key in, or give one that is there another number. TL_EFULL: a new key, and `cap` are
   there; TL_EINVAL: the key 0. Nothing changed then. */
tl_status tl_map_put(tl_map *map, uint64_t key, uint32_t number);

/* Take a key out; false if it is not there. */
bool tl_map_remove(tl_map *map, uint64_t key);

/* Give its memory back; the map is as if never used after that. */
void tl_map_free(tl_map *map);

#endif
