/* Quads to memory, also past the caches, and quads that are looked up. */
#ifndef TY_STORES_H
#define TY_STORES_H

#include "quads.h"

/* To memory; `past`, which is 0 or how `to` is aligned in bytes, goes past the caches. */
#define TY_PLACE(to, is_large)                                                                     \
  (!(is_large)                 ? 0                                                                 \
   : (uintptr_t)(to) % 64 == 0 ? 64                                                                \
   : (uintptr_t)(to) % 32 == 0 ? 32                                                                \
   : (uintptr_t)(to) % 16 == 0 ? 16                                                                \
                               : 0)
/* Stores four vectors one by one, where there is no way past the caches. */
#define TY_QUAD_STORE(form, kind, type)                                                            \
  TY_INLINE void ty_##form##_store_##kind(type *to, ty_quad x, int past) {                             \
    (void)past;                                                                                    \
    ty_store_##kind(to, x.a);                                                                      \
    ty_store_##kind(to + TY_LANES, x.b);                                                           \
    ty_store_##kind(to + 2 * TY_LANES, x.c);                                                       \
    ty_store_##kind(to + 3 * TY_LANES, x.d);                                                       \
  }
#if defined(__AVX2__) && !defined(__clang__)
typedef ty_long4 ty_long4_at __attribute__((aligned(2), may_alias));
TY_INLINE void ty_to_memory(void *to, ty_long4 x, int past) {
  if (__builtin_expect(past >= 32, 1))
    __builtin_ia32_movntdq256((ty_long4 *)to, x);
  else if (past == 0)
    *(ty_long4_at *)to = x;
  else {
    __builtin_ia32_movntdq((ty_long2 *)to, __builtin_ia32_extract128i256(x, 0));
    __builtin_ia32_movntdq((ty_long2 *)to + 1, __builtin_ia32_extract128i256(x, 1));
  }
}
#if TY_WIDE
TY_INLINE void ty_wide_to_memory(void *to, ty_wide x, int past) {
  if (__builtin_expect(past == 64, 1))
    __builtin_ia32_movntdq512((ty_long8 *)to, (ty_long8)x);
  else if (past == 0)
    *(ty_long8_at *)to = (ty_long8)x;
  else {
    ty_to_memory(to, (ty_long4)ty_floats(x, 0), past);
    ty_to_memory((char *)to + 32, (ty_long4)ty_floats(x, 1), past);
  }
}
TY_INLINE void ty_quad_store_f32(float *to, ty_quad x, int past) {
  ty_wide_to_memory(to, x.a, past);
  ty_wide_to_memory(to + 16, x.b, past);
}
/* The CPU's own conversion takes numbers below the least normal one for 0, and has other NaN. */
TY_INLINE void ty_quad_store_bf16(uint16_t *to, ty_quad x, int past) {
#ifdef __AVX512BF16__
  if (__builtin_expect(!TY_KINDS(x.a, x.b, TY_NAN_KINDS | TY_SMALL_KIND), 1)) {
    ty_wide both;
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both) : "v"(x.b), "v"(x.a));
    ty_wide_to_memory(to, both, past);
    return;
  }
#endif
  ty_wide_words a = ty_wide_easy_bf16(x.a), b = ty_wide_easy_bf16(x.b);
  if (__builtin_expect(ty_has_nan(x), 0))
    a = ty_wide_rounded_bf16(x.a), b = ty_wide_rounded_bf16(x.b);
  ty_wide_to_memory(to, (ty_wide)ty_wide_two_bf16(a, b), past);
}
TY_INLINE void ty_laced_store_f32(float *to, ty_quad x, int past) { ty_quad_store_f32(to, x, past); }
TY_INLINE void ty_laced_store_bf16(uint16_t *to, ty_quad x, int past) {
  ty_quad_store_bf16(to, x, past);
}
TY_INLINE void ty_quad_store_f16(uint16_t *to, ty_quad x, int past) {
  ty_to_memory(to, (ty_long4)ty_wide_halves(x.a), past);
  ty_to_memory(to + 16, (ty_long4)ty_wide_halves(x.b), past);
}
#else
TY_INLINE void ty_quad_store_f32(float *to, ty_quad x, int past) {
  ty_to_memory(to, (ty_long4)x.a, past);
  ty_to_memory(to + 8, (ty_long4)x.b, past);
  ty_to_memory(to + 16, (ty_long4)x.c, past);
  ty_to_memory(to + 24, (ty_long4)x.d, past);
}
TY_INLINE void ty_laced_store_f32(float *to, ty_quad x, int past) {
  ty_quad_store_f32(to, ty_unlaced(x), past);
}
/* The first halves of the words of two vectors; of vectors in the usual order, in four pieces. */
TY_INLINE ty_long4 ty_two_bf16(ty_words x, ty_words y) {
  return (ty_long4)__builtin_ia32_packusdw256((ty_int8)(x >> 16), (ty_int8)(y >> 16));
}
TY_INLINE ty_long4 ty_in_order(ty_long4 x) { return __builtin_ia32_permdi256(x, 0xd8); }
#define TY_STORE_BF16(form, ordered)                                                               \
  TY_INLINE void ty_##form##_store_bf16(uint16_t *to, ty_quad x, int past) {                       \
    ty_words a = ty_easy_bf16(x.a), b = ty_easy_bf16(x.b);                                         \
    ty_words c = ty_easy_bf16(x.c), d = ty_easy_bf16(x.d);                                         \
    if (__builtin_expect(ty_has_nan(x), 0)) {                                                      \
      a = ty_rounded_bf16(x.a), b = ty_rounded_bf16(x.b);                                          \
      c = ty_rounded_bf16(x.c), d = ty_rounded_bf16(x.d);                                          \
    }                                                                                              \
    ty_to_memory(to, ordered(ty_two_bf16(a, b)), past);                                            \
    ty_to_memory(to + 16, ordered(ty_two_bf16(c, d)), past);                                       \
  }
TY_STORE_BF16(quad, ty_in_order)
TY_STORE_BF16(laced, )
#undef TY_STORE_BF16
#endif
#else
TY_QUAD_STORE(quad, f32, float)
TY_QUAD_STORE(quad, bf16, uint16_t)
TY_QUAD_STORE(laced, f32, float)
TY_QUAD_STORE(laced, bf16, uint16_t)
#endif
#if TY_WIDE
#elif TY_HALVES && defined(__AVX2__) && !defined(__clang__)
TY_INLINE ty_long4 ty_two_f16(ty_row x, ty_row y) {
  ty_long4 both = {0, 0, 0, 0};
  both = (ty_long4)__builtin_ia32_insert128i256(both, (ty_long2)ty_narrow_halves(x), 0);
  return (ty_long4)__builtin_ia32_insert128i256(both, (ty_long2)ty_narrow_halves(y), 1);
}
TY_INLINE void ty_quad_store_f16(uint16_t *to, ty_quad x, int past) {
  ty_to_memory(to, ty_two_f16(x.a, x.b), past);
  ty_to_memory(to + 16, ty_two_f16(x.c, x.d), past);
}
#else
TY_QUAD_STORE(quad, f16, uint16_t)
#endif

/* Sixteen narrow floats, and a quad of them by their places, which are bytes below 16. */
#if defined(__AVX2__) && !defined(__clang__)
typedef struct {
  ty_char16 low, high;
} ty_table;
TY_INLINE ty_table ty_table_of(const uint16_t *x) {
  typedef uint16_t word8 __attribute__((vector_size(16)));
  word8 a = (word8) * (const ty_short8_at *)x, b = (word8) * (const ty_short8_at *)(x + 8);
  return (ty_table){__builtin_ia32_packuswb128((ty_short8)(a & 0xff), (ty_short8)(b & 0xff)),
                    __builtin_ia32_packuswb128((ty_short8)(a >> 8), (ty_short8)(b >> 8))};
}
TY_INLINE ty_long4 ty_join_halves(ty_char16 x, ty_char16 y) {
  ty_long4 both = (ty_long4){0};
  both = (ty_long4)__builtin_ia32_insert128i256(both, (ty_long2)x, 0);
  return (ty_long4)__builtin_ia32_insert128i256(both, (ty_long2)y, 1);
}
TY_INLINE void ty_quad_look_up(uint16_t *to, const uint8_t *at, ty_table table, int past) {
  ty_char32 places = (ty_char32)ty_join_halves(*(const ty_char16_at *)at,
                                               *(const ty_char16_at *)(at + 16));
  ty_char32 lows = (ty_char32)ty_join_halves(table.low, table.low);
  ty_char32 highs = (ty_char32)ty_join_halves(table.high, table.high);
  ty_char32 low = __builtin_ia32_pshufb256(lows, places);
  ty_char32 high = __builtin_ia32_pshufb256(highs, places);
  ty_long4 first = (ty_long4)__builtin_ia32_punpcklbw256(low, high);
  ty_long4 second = (ty_long4)__builtin_ia32_punpckhbw256(low, high);
  ty_to_memory(to, __builtin_ia32_permti256(first, second, 0x20), past);
  ty_to_memory(to + 16, __builtin_ia32_permti256(first, second, 0x31), past);
}
#else
typedef struct {
  uint16_t words[16];
} ty_table;
TY_INLINE ty_table ty_table_of(const uint16_t *x) {
  ty_table table;
  memcpy(table.words, x, sizeof table.words);
  return table;
}
TY_INLINE void ty_quad_look_up(uint16_t *to, const uint8_t *at, ty_table table, int past) {
  (void)past;
#ifdef __clang__
  for (int i = 0; i < TY_QUAD; ++i)
    to[i] = table.words[at[i]];
#else
  typedef uint8_t bytes __attribute__((vector_size(16), aligned(1), may_alias));
  bytes low, high;
  for (int i = 0; i < 16; ++i)
    low[i] = (uint8_t)table.words[i], high[i] = (uint8_t)(table.words[i] >> 8);
  for (int i = 0; i < TY_QUAD; i += 16) {
    bytes places = *(const bytes *)(at + i);
    bytes x = __builtin_shuffle(low, places), y = __builtin_shuffle(high, places);
    bytes first = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    *(bytes *)(to + i) = __builtin_shuffle(x, y, first);
    *(bytes *)(to + i + 8) = __builtin_shuffle(x, y, first + 8);
  }
#endif
}
#endif
#define TY_TABLE(mark)                                                                             \
  TY_INLINE ty_table ty_table_##mark(const float *x) {                                             \
    uint16_t words[16];                                                                            \
    for (int i = 0; i < 16; i += TY_LANES)                                                         \
      ty_store_##mark(words + i, ty_load_f32(x + i));                                              \
    return ty_table_of(words);                                                                     \
  }
TY_TABLE(f16)
TY_TABLE(bf16)
#undef TY_TABLE

#endif
