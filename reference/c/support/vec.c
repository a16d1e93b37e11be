#include "tinyllm/vec.h"

#include <string.h>

#include "tinyllm/alloc.h"

tl_status tl_vec_reserve(tl_vec *vec, uint32_t cap) {
    if (cap <= vec->cap) return TL_OK;
    uint32_t *data = tl_alloc(cap, sizeof *data);
    if (!data) return tl_fail(TL_ENOMEM, "no memory for a vector of %u numbers", cap);
    if (vec->len) memcpy(data, vec->data, vec->len * sizeof *data);
    tl_free(vec->data);
    vec->data = data;
    vec->cap = cap;
    return TL_OK;
}

tl_status tl_vec_push(tl_vec *vec, uint32_t number) {
    if (vec->len == vec->cap) return tl_fail(TL_EFULL, "the vector has room for %u", vec->cap);
    vec->data[vec->len++] = number;
    return TL_OK;
}

void tl_vec_free(tl_vec *vec) {
    tl_free(vec->data);
    *vec = (tl_vec){0};
}
