/* Vectors of 512 bits, of which a quad is two: what `ty_one_` functions do with a row's vector. */
#ifndef TY_WIDE_H
#define TY_WIDE_H

#include "large.h"

#if TY_WIDE
typedef float ty_wide __attribute__((vector_size(64)));
typedef float ty_wide_at __attribute__((vector_size(64), aligned(1), may_alias));
typedef uint32_t ty_wide_words __attribute__((vector_size(64)));
typedef int ty_int16 __attribute__((vector_size(64)));
typedef short ty_short32 __attribute__((vector_size(64)));
typedef short ty_short32_at __attribute__((vector_size(64), aligned(1), may_alias));
typedef long long ty_long8 __attribute__((vector_size(64)));
typedef long long ty_long8_at __attribute__((vector_size(64), aligned(1), may_alias));

/* All lanes, rounded as always: the last arguments of builtins. */
#define TY_ALL (-1)
#define TY_USUAL 4

/* The first half of a vector, or the second. */
TY_INLINE ty_row ty_floats(ty_wide x, int second) {
  return second ? __builtin_ia32_extractf32x8_mask(x, 1, (ty_row){0}, TY_ALL)
                : __builtin_ia32_extractf32x8_mask(x, 0, (ty_row){0}, TY_ALL);
}
TY_INLINE ty_short16 ty_half_shorts(ty_short32 x, int second) {
  return (ty_short16)ty_floats((ty_wide)x, second);
}
TY_INLINE ty_wide ty_wide_of(float x) { return x - (ty_wide){0}; }
TY_INLINE ty_wide ty_wide_load_f32(const float *x) { return *(const ty_wide_at *)x; }
TY_INLINE ty_wide ty_wide_load_f16(const uint16_t *x) {
  return __builtin_ia32_vcvtph2ps512_mask(*(const ty_short16_at *)x, (ty_wide){0}, TY_ALL, TY_USUAL);
}
TY_INLINE ty_wide ty_wide_float(ty_int16 x) {
  return __builtin_ia32_cvtdq2ps512_mask(x, (ty_wide){0}, TY_ALL, TY_USUAL);
}
TY_INLINE ty_wide ty_wide_load_u8(const uint8_t *x) {
  ty_char16 bytes = *(const ty_char16_at *)x;
  return ty_wide_float(__builtin_ia32_pmovzxbd512_mask(bytes, (ty_int16){0}, TY_ALL));
}
TY_INLINE ty_wide ty_wide_load_i8(const int8_t *x) {
  ty_char16 bytes = *(const ty_char16_at *)x;
  return ty_wide_float(__builtin_ia32_pmovsxbd512_mask(bytes, (ty_int16){0}, TY_ALL));
}

/* The eight pieces of a vector in another order. */
TY_INLINE ty_long8 ty_wide_moved(ty_long8 x, ty_long8 from) {
  return __builtin_ia32_permvardi512_mask(x, from, x, TY_ALL);
}
/* Lanes where a predicate of cmpps holds, as bits. */
#define TY_WIDE_TEST(x, y, predicate)                                                              \
  ((uint16_t)__builtin_ia32_cmpps512_mask(x, y, predicate, TY_ALL, TY_USUAL))
/* Whether any number of two vectors is of some kinds, as fpclassps counts them. */
#define TY_NAN_KINDS 0x81
#define TY_SMALL_KIND 0x20
#define TY_KINDS(x, y, kinds)                                                                      \
  (!__builtin_ia32_kortestzhi(__builtin_ia32_fpclassps512_mask(x, kinds, TY_ALL),                  \
                              __builtin_ia32_fpclassps512_mask(y, kinds, TY_ALL)))
TY_INLINE ty_wide ty_wide_larger(ty_wide x, ty_wide y) {
  return __builtin_ia32_maxps512_mask(x, y, (ty_wide){0}, TY_ALL, TY_USUAL);
}
TY_INLINE ty_wide ty_wide_smaller(ty_wide x, ty_wide y) {
  return __builtin_ia32_minps512_mask(x, y, (ty_wide){0}, TY_ALL, TY_USUAL);
}
TY_INLINE ty_wide ty_wide_add(ty_wide x, ty_wide y) { return x + y; }
TY_INLINE ty_wide ty_wide_sub(ty_wide x, ty_wide y) { return x - y; }
TY_INLINE ty_wide ty_wide_mul(ty_wide x, ty_wide y) { return x * y; }
TY_INLINE ty_wide ty_wide_div(ty_wide x, ty_wide y) { return x / y; }
TY_INLINE ty_wide ty_wide_neg(ty_wide x) { return -x; }
TY_INLINE ty_wide ty_wide_abs(ty_wide x) { return (ty_wide)((ty_wide_words)x & 0x7fffffffu); }
TY_INLINE ty_wide ty_wide_max(ty_wide x, ty_wide y) {
  return __builtin_ia32_blendmps_512_mask(ty_wide_larger(y, x), y, TY_WIDE_TEST(x, x, 3));
}
TY_INLINE ty_wide ty_wide_min(ty_wide x, ty_wide y) {
  return __builtin_ia32_blendmps_512_mask(-ty_wide_larger(-y, -x), y, TY_WIDE_TEST(x, x, 3));
}
TY_INLINE ty_wide ty_wide_fma(ty_wide x, ty_wide y, ty_wide z) {
  return __builtin_ia32_vfmaddps512_mask(x, y, z, TY_ALL, TY_USUAL);
}
TY_INLINE ty_wide ty_wide_sqrt(ty_wide x) {
  return __builtin_ia32_sqrtps512_mask(x, (ty_wide){0}, TY_ALL, TY_USUAL);
}
TY_INLINE ty_wide ty_wide_rsqrt(ty_wide x) { return 1 / ty_wide_sqrt(x); }
TY_INLINE ty_short16 ty_wide_halves(ty_wide x) {
  return __builtin_ia32_vcvtps2ph512_mask(x, 0, (ty_short16){0}, TY_ALL);
}
TY_INLINE ty_wide ty_wide_round_f16(ty_wide x) {
  return __builtin_ia32_vcvtph2ps512_mask(ty_wide_halves(x), (ty_wide){0}, TY_ALL, TY_USUAL);
}
/* The nearest whole number, what is left of x, and x * 2^n, rounded once: infinite n decide it alone, even
   if x is NaN, as what is left of them is. */
TY_INLINE ty_wide ty_wide_whole(ty_wide x) {
  return __builtin_ia32_rndscaleps_mask(x, 8, (ty_wide){0}, TY_ALL, TY_USUAL);
}
TY_INLINE ty_wide ty_wide_rest(ty_wide x) { return x - ty_wide_whole(x); }
TY_INLINE ty_wide ty_wide_raised(ty_wide x, ty_wide n) {
  return __builtin_ia32_scalefps512_mask(x, n, (ty_wide){0}, TY_ALL, TY_USUAL);
}

/* The bits of numbers rounded to bfloat16, as words; of easy ones what becomes of NaN is not stated. */
TY_INLINE ty_wide_words ty_wide_easy_bf16(ty_wide x) {
  return (ty_wide_words)x + (((ty_wide_words)x >> 16) & 1u) + 0x7fffu;
}
TY_INLINE ty_wide_words ty_wide_rounded_bf16(ty_wide x) {
  ty_wide_words is_nan = (ty_wide_words)(x != x);
  return (ty_wide_easy_bf16(x) & ~is_nan) | (is_nan & 0x7fc00000u);
}
TY_INLINE ty_wide ty_wide_round_bf16(ty_wide x) {
  return (ty_wide)(ty_wide_rounded_bf16(x) & 0xffff0000u);
}
TY_INLINE ty_wide ty_wide_easily_round_bf16(ty_wide x) {
  return (ty_wide)(ty_wide_easy_bf16(x) & 0xffff0000u);
}
/* The first halves of the words of two vectors. */
TY_INLINE ty_long8 ty_wide_two_bf16(ty_wide_words x, ty_wide_words y) {
  ty_int16 first = (ty_int16)(x >> 16), second = (ty_int16)(y >> 16);
  ty_short32 both = __builtin_ia32_packusdw512_mask(first, second, (ty_short32){0}, TY_ALL);
  return ty_wide_moved((ty_long8)both, (ty_long8){0, 2, 4, 6, 1, 3, 5, 7});
}

#endif
#endif
