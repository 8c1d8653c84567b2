/* Arrays that are only written, and so large that no cache holds them. */
#ifndef TY_LARGE_H
#define TY_LARGE_H

#include "vectors.h"

#define TY_LARGE ((int64_t)32 << 20) /* bytes from which on an array is written past the caches */
#define TY_LINE 64

/* Copies whole lines past the caches, anything else as usual. */
static __attribute__((unused)) void ty_write(void *to, const void *from, int64_t bytes, int is_large) {
#if defined(__AVX__) && (!defined(__clang__) || TY_HAS(__builtin_nontemporal_store))
  if (is_large && bytes >= 4 * TY_LINE) {
    char *target = to;
    int64_t head = -(intptr_t)target & (TY_LINE - 1), rest = (bytes - head) % TY_LINE;
    memcpy(target, from, (size_t)head);
    for (int64_t i = head; i < bytes - rest; i += sizeof(ty_row)) {
      const ty_row *source = (const ty_row *)((const char *)from + i);
#ifdef __clang__
      __builtin_nontemporal_store(*source, (ty_row_aligned *)(target + i));
#else
      __builtin_ia32_movntps256((float *)(target + i), *source);
#endif
    }
    memcpy(target + bytes - rest, (const char *)from + bytes - rest, (size_t)rest);
    return;
  }
#endif
  memcpy(to, from, (size_t)bytes);
}
/* Copies to the beginning of a line, past the caches: what will be fetched ahead of its use. */
TY_INLINE void ty_put(void *to, const void *from, size_t bytes) {
#if defined(__AVX__) && (!defined(__clang__) || TY_HAS(__builtin_nontemporal_store))
  for (size_t i = 0; i < bytes; i += sizeof(ty_row)) {
    const ty_row *source = (const ty_row *)((const char *)from + i);
#ifdef __clang__
    __builtin_nontemporal_store(*source, (ty_row_aligned *)((char *)to + i));
#else
    __builtin_ia32_movntps256((float *)((char *)to + i), *source);
#endif
  }
#else
  memcpy(to, from, bytes);
#endif
}
/* Fetches what will be written soon: processors do not look beyond a page. */
TY_INLINE void ty_fetch(const void *row, size_t bytes) {
  for (size_t i = 0; i < bytes; i += TY_LINE)
    __builtin_prefetch((const char *)row + i, 1);
}
/* Before a thread says that it is done: what it wrote past the caches is in memory. */
#if defined(__SSE2__)
#define TY_SETTLE() __asm__ volatile("sfence" ::: "memory")
#else
#define TY_SETTLE() ((void)0)
#endif

#define TY_WRITER(name, type, source)                                                              \
  TY_ROW ty_write_##name(type *to, const source *from, int64_t n, int is_large) {                  \
    type part[512] __attribute__((aligned(64)));                                                   \
    if (!is_large) {                                                                               \
      ty_row_##name(to, from, n);                                                                  \
      return;                                                                                      \
    }                                                                                              \
    for (int64_t i = 0; i < n; i += 512) {                                                         \
      int64_t count = n - i < 512 ? n - i : 512;                                                   \
      ty_row_##name(part, from + i, count);                                                        \
      ty_write(to + i, part, count * (int64_t)sizeof(type), 1);                                    \
    }                                                                                              \
  }
#define TY_WRITERS(mark, word)                                                                     \
  TY_WRITER(from_##mark, float, word)                                                              \
  TY_WRITER(to_##mark, word, float)                                                                \
  TY_WRITER(pack_##mark, word, float)
TY_WRITERS(f16, uint16_t)
TY_WRITERS(bf16, uint16_t)
TY_WRITERS(tf32, float)
TY_WRITERS(f8e4m3, uint8_t)
TY_WRITERS(f8e5m2, uint8_t)
#undef TY_WRITERS
#undef TY_WRITER

#endif
