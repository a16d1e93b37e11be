/* Open addressing with linear probing. At most half of the slots are taken, and a removal moves
   later keys back over the hole, so that no search ever walks over graves. */
#include "tinyllm/map.h"

#include "tinyllm/alloc.h"

/* Where a search for a key begins: its product with 2^64 / phi, by the high bits, which depend on
   every bit of the key. */
static uint32_t home(const tl_map *map, uint64_t key) {
    return (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & map->mask;
}

/* The slot that holds a key, or the empty one where it would go. */
static uint32_t find(const tl_map *map, uint64_t key) {
    uint32_t at = home(map, key);
    while (map->slots[at].key && map->slots[at].key != key) at = (at + 1) & map->mask;
    return at;
}

tl_status tl_map_reserve(tl_map *map, uint32_t cap) {
    uint64_t n_slots = 2;
    while (n_slots < 2 * (uint64_t)cap) n_slots *= 2;
    if (map->slots || n_slots > (uint64_t)UINT32_MAX + 1) {
        return tl_fail(TL_ENOMEM, "a map of %u keys cannot be made", cap);
    }
    map->slots = tl_alloc((size_t)n_slots, sizeof *map->slots);
    if (!map->slots) return tl_fail(TL_ENOMEM, "no memory for a map of %u keys", cap);
    map->mask = (uint32_t)(n_slots - 1);
    map->cap = cap;
    return TL_OK;
}

bool tl_map_get(const tl_map *map, uint64_t key, uint32_t *number) {
    if (key == 0 || map->len == 0) return false;
    const tl_map_slot *slot = &map->slots[find(map, key)];
    if (slot->key != key) return false;
    *number = slot->number;
    return true;
}

tl_status tl_map_put(tl_map *map, uint64_t key, uint32_t number) {
    if (key == 0) return tl_fail(TL_EINVAL, "the key 0 means that there is none");
    if (!map->slots) return tl_fail(TL_EFULL, "the map has room for nothing");
    tl_map_slot *slot = &map->slots[find(map, key)];
    if (slot->key == 0) {
        if (map->len == map->cap) return tl_fail(TL_EFULL, "the map has room for %u", map->cap);
        map->len++;
    }
    *slot = (tl_map_slot){key, number};
    return TL_OK;
}

bool tl_map_remove(tl_map *map, uint64_t key) {
    if (key == 0 || map->len == 0) return false;
    uint32_t hole = find(map, key);
    if (map->slots[hole].key != key) return false;
    for (uint32_t at = (hole + 1) & map->mask; map->slots[at].key; at = (at + 1) & map->mask) {
        uint32_t way = (at - home(map, map->slots[at].key)) & map->mask;
        if (way >= ((at - hole) & map->mask)) { /* its search passes the hole */
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].key = 0;
    map->len--;
    return true;
}

void tl_map_free(tl_map *map) {
    tl_free(map->slots);
    *map = (tl_map){0};
}
