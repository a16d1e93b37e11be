#include "tinyllm/error.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local struct {
    tl_status status;
    char message[200];
} slot;

tl_status tl_fail(tl_status status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(slot.message, sizeof slot.message, format, values);
    va_end(values);
    slot.status = status;
    return status;
}

tl_status tl_error_status(void) {
    return slot.status;
}

const char *tl_error_message(void) {
    return slot.message;
}

void tl_error_clear(void) {
    slot.status = TL_OK;
    slot.message[0] = '\0';
}

const char *tl_status_name(tl_status status) {
    static const char *const names[] = {"TL_OK",        "TL_EINVAL",    "TL_ENOMEM", "TL_EFULL",
                                        "TL_EBUSY",     "TL_ENOTFOUND", "TL_EFORMAT", "TL_ESHAPE",
                                        "TL_EUNSUPPORTED", "TL_ETODO"};
    unsigned at = (unsigned)status;
    return at < sizeof names / sizeof *names ? names[at] : "no status";
}
