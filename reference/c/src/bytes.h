/* The reference's own, given to nobody: numbers to bytes and back, the lowest byte first. */
#ifndef BYTES_H
#define BYTES_H

#include <stdint.h>

static inline void put16(unsigned char *to, uint16_t number) {
    to[0] = (unsigned char)number;
    to[1] = (unsigned char)(number >> 8);
}

static inline void put32(unsigned char *to, uint32_t number) {
    put16(to, (uint16_t)number);
    put16(to + 2, (uint16_t)(number >> 16));
}

static inline void put64(unsigned char *to, uint64_t number) {
    put32(to, (uint32_t)number);
    put32(to + 4, (uint32_t)(number >> 32));
}

static inline uint16_t get16(const unsigned char *from) {
    return (uint16_t)(from[0] | from[1] << 8);
}

static inline uint32_t get32(const unsigned char *from) {
    return get16(from) | (uint32_t)get16(from + 2) << 16;
}

static inline uint64_t get64(const unsigned char *from) {
    return get32(from) | (uint64_t)get32(from + 4) << 32;
}

#endif
