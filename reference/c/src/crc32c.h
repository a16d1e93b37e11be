/* The reference's own: the state of a CRC-32C moved over bytes, as fast as the processor can. */
#ifndef CRC32C_H
#define CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Move the state, without the first and the last inversion, over n bytes: by the instruction that
   some processors have for it, else by tables. */
uint32_t crc32c_move(uint32_t state, const unsigned char *bytes, size_t n);

/* The same, by tables: eight bytes at a time. */
uint32_t crc32c_by_tables(uint32_t state, const unsigned char *bytes, size_t n);

/* Whether this processor has the instruction. */
bool crc32c_in_hardware(void);

#endif
