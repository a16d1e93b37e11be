/* Status codes and the error slot (rt.04, section 4).

   A call that cannot be carried out returns a status, and says why in the error slot: one status
   and one sentence for each thread, which stay until the next failure of that thread or until
   tl_error_clear. Success leaves the slot as it is, so a caller may look at it later. */
#ifndef TINYLLM_ERROR_H
#define TINYLLM_ERROR_H

typedef enum {
    TL_OK = 0,
    TL_EINVAL = 1,       /* the call makes no sense: a bad id, a second release, a partial block */
    TL_ENOMEM = 2,       /* the allocator has no memory */
    TL_EFULL = 3,        /* too few blocks, or too short a buffer */
    TL_EBUSY = 4,        /* another block holds this hash */
    TL_ENOTFOUND = 5,    /* a miss: an answer, not a failure, so the slot is not touched */
    TL_EFORMAT = 6,      /* the bytes are no valid envelope */
    TL_ESHAPE = 7,       /* a valid envelope, of blocks with other dimensions */
    TL_EUNSUPPORTED = 8, /* a data type or a format that this version does not offer */
    TL_ETODO = 9         /* not written yet: what a stub answers */
} tl_status;

#if defined(__GNUC__)
#define TL_LIKE_PRINTF __attribute__((format(printf, 2, 3)))
#else
#define TL_LIKE_PRINTF
#endif

/* Write a status and a sentence, cut at 199 bytes, into this thread's slot; return the status,
   so that a function can end with `return tl_fail(TL_EINVAL, "block %u is free", id);`. */
tl_status tl_fail(tl_status status, const char *format, ...) TL_LIKE_PRINTF;

/* What this thread's slot holds: TL_OK and "" while nothing failed since it was cleared. The text
   is good until this thread's next failure. */
tl_status tl_error_status(void);
const char *tl_error_message(void);

/* Empty this thread's slot. */
void tl_error_clear(void);

/* The name of a status, such as "TL_EINVAL". */
const char *tl_status_name(tl_status status);

/* What the functions of a stub do: say in the slot that this one is not written yet. */
#define TL_TODO(name) tl_fail(TL_ETODO, "%s", name)

#endif
