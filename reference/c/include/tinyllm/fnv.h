/* FNV-1a 64 (Fowler, Noll and Vo). */
#ifndef TINYLLM_FNV_H
#define TINYLLM_FNV_H

#include <stddef.h>
#include <stdint.h>

#define TL_FNV_OFFSET UINT64_C(0xcbf29ce484222325) /* the state to start from */
#define TL_FNV_PRIME UINT64_C(0x00000100000001b3)

/* Hash `n` bytes, continued from `state`: for each byte, XOR it in, then multiply by the prime. */
uint64_t tl_fnv1a64(const void *data, size_t n, uint64_t state);

#endif
