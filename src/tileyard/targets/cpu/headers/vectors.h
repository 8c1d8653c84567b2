/* Vectors of floats from memory and to it. */
#ifndef TY_VECTORS_H
#define TY_VECTORS_H

#include "rows.h"

typedef uint32_t ty_words __attribute__((vector_size(TY_LANES * 4)));
typedef uint16_t ty_shorts __attribute__((vector_size(TY_LANES * 2), aligned(2), may_alias));

/* GCC writes out conversions between widths piece by piece: its own names for the instructions. */
#if defined(__AVX2__) && !defined(__clang__)
typedef char ty_char16 __attribute__((vector_size(16)));
typedef char ty_char16_at __attribute__((vector_size(16), aligned(1), may_alias));
typedef char ty_char32 __attribute__((vector_size(32)));
typedef short ty_short8 __attribute__((vector_size(16)));
typedef short ty_short8_at __attribute__((vector_size(16), aligned(2), may_alias));
typedef short ty_short16 __attribute__((vector_size(32)));
typedef short ty_short16_at __attribute__((vector_size(32), aligned(2), may_alias));
typedef int ty_int8 __attribute__((vector_size(32)));
typedef long long ty_long2 __attribute__((vector_size(16)));
typedef long long ty_long4 __attribute__((vector_size(32)));
TY_INLINE ty_words ty_widen_shorts(const uint16_t *x) {
  return (ty_words)__builtin_ia32_pmovzxwd256((ty_short8) * (const ty_short8_at *)x);
}
TY_INLINE void ty_narrow_words(uint16_t *to, ty_words x) {
  ty_long4 packed = (ty_long4)__builtin_ia32_packusdw256((ty_int8)x, (ty_int8)x);
  packed = __builtin_ia32_permdi256(packed, 0xd8);
  *(ty_short8_at *)to = (ty_short8)__builtin_ia32_extract128i256(packed, 0);
}
TY_INLINE ty_char16 ty_eight_bytes(const void *x) {
  ty_long2 bytes = {0, 0};
  memcpy(&bytes, x, 8);
  return (ty_char16)bytes;
}
TY_INLINE ty_words ty_widen_bytes(const uint8_t *x) {
  return (ty_words)__builtin_ia32_pmovzxbd256(ty_eight_bytes(x));
}
TY_INLINE ty_row ty_load_u8(const uint8_t *x) {
  return (ty_row)__builtin_ia32_cvtdq2ps256((ty_int8)ty_widen_bytes(x));
}
TY_INLINE ty_row ty_load_i8(const int8_t *x) {
  return (ty_row)__builtin_ia32_cvtdq2ps256(__builtin_ia32_pmovsxbd256(ty_eight_bytes(x)));
}
#else
TY_INLINE ty_words ty_widen_shorts(const uint16_t *x) {
  return __builtin_convertvector(*(const ty_shorts *)x, ty_words);
}
TY_INLINE void ty_narrow_words(uint16_t *to, ty_words x) {
  *(ty_shorts *)to = __builtin_convertvector(x, ty_shorts);
}
TY_INLINE ty_words ty_widen_bytes(const uint8_t *x) {
  ty_words y;
  for (int i = 0; i < TY_LANES; ++i)
    y[i] = x[i];
  return y;
}
TY_INLINE ty_row ty_load_u8(const uint8_t *x) {
  ty_row y;
  for (int i = 0; i < TY_LANES; ++i)
    y[i] = x[i];
  return y;
}
TY_INLINE ty_row ty_load_i8(const int8_t *x) {
  ty_row y;
  for (int i = 0; i < TY_LANES; ++i)
    y[i] = x[i];
  return y;
}
#endif

TY_INLINE ty_row ty_load_f32(const float *x) { return *(const ty_row *)x; }
TY_INLINE void ty_store_f32(float *to, ty_row x) { *(ty_row *)to = x; }

TY_INLINE ty_words ty_rounded_bf16(ty_row x) {
  ty_words bits = (ty_words)x, is_nan = (ty_words)(x != x);
  ty_words rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return (rounded & ~is_nan) | (is_nan & 0x7fc00000u);
}
TY_INLINE ty_row ty_round_row_bf16(ty_row x) { return (ty_row)(ty_rounded_bf16(x) & 0xffff0000u); }
TY_INLINE ty_row ty_load_bf16(const uint16_t *x) {
  return (ty_row)(ty_widen_shorts(x) << 16);
}
TY_INLINE void ty_store_bf16(uint16_t *to, ty_row x) {
  ty_narrow_words(to, ty_rounded_bf16(x) >> 16);
}

#if TY_HALVES
TY_INLINE ty_row ty_round_row_f16(ty_row x) { return ty_widen_halves(ty_narrow_halves(x)); }
TY_INLINE ty_row ty_load_f16(const uint16_t *x) {
  return ty_widen_halves((ty_halves_aligned) * (const ty_halves *)x);
}
TY_INLINE void ty_store_f16(uint16_t *to, ty_row x) {
  *(ty_halves *)to = (ty_halves)ty_narrow_halves(x);
}
#else
TY_INLINE ty_row ty_round_row_f16(ty_row x) {
  for (int i = 0; i < TY_LANES; ++i)
    x[i] = ty_round_f16(x[i]);
  return x;
}
TY_INLINE ty_row ty_load_f16(const uint16_t *x) {
  ty_row y;
  for (int i = 0; i < TY_LANES; ++i)
    y[i] = ty_from_f16(x[i]);
  return y;
}
TY_INLINE void ty_store_f16(uint16_t *to, ty_row x) {
  for (int i = 0; i < TY_LANES; ++i)
    to[i] = ty_to_f16(x[i]);
}
#endif

#endif
