/* A vector of 32-bit numbers. */
#ifndef TINYLLM_VEC_H
#define TINYLLM_VEC_H

#include <stdint.h>

#include "tinyllm/error.h"

/* `data[0 .. len-1]` are its numbers; there is room for `cap`. All fields may be read, and `len`
   may be made smaller: that is how the last numbers are taken off. A vector of zeros is empty. */
typedef struct {
    uint32_t *data;
    uint32_t len, cap;
} tl_vec;

/* Make room for `cap` numbers in all. TL_ENOMEM: there is no memory, and nothing changed. */
tl_status tl_vec_reserve(tl_vec *vec, uint32_t cap);

/* Append a number. Within the reserve it cannot fail; past it, TL_EFULL and nothing changed: a
   vector never grows by itself. */
tl_status tl_vec_push(tl_vec *vec, uint32_t number);

/* Give its memory back; the vector is empty after that. */
void tl_vec_free(tl_vec *vec);

#endif
