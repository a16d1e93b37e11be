#include "tinyllm/fnv.h"

uint64_t tl_fnv1a64(const void *data, size_t n, uint64_t state) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++) state = (state ^ bytes[i]) * TL_FNV_PRIME;
    return state;
}
