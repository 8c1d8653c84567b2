/* Functions by the vector, by the quad and by the row: those of one number, number by number. */
#ifndef TY_FUNCTIONS_H
#define TY_FUNCTIONS_H

#include "quads.h"

/* Polynomials of exp2 and exp. The steps of several vectors alternate: else processors would have to look
   far ahead for something to do. */
#define TY_EXP_RESTS(type, each)                                                                   \
  TY_INLINE type ty_##each##_exp2_rest(type f) {                                                   \
    type p = ty_##each##_step(ty_##each##_of(0x1.592830p-10f), f, 0x1.3cf636p-7f);                 \
    p = ty_##each##_step(p, f, 0x1.c6be9cp-5f);                                                    \
    p = ty_##each##_step(p, f, 0x1.ebf998p-3f);                                                    \
    p = ty_##each##_step(p, f, 0x1.62e420p-1f);                                                    \
    return ty_##each##_step(p, f, 1.0f);                                                           \
  }                                                                                                \
  TY_INLINE type ty_##each##_exp_shifted(type x) {                                                 \
    return ty_##each##_fma(x, ty_##each##_of(0x1.715476p+0f), ty_##each##_of(TY_ROUNDER));         \
  }                                                                                                \
  TY_INLINE type ty_##each##_exp_rest(type x, type whole) {                                        \
    type r = ty_##each##_fma(whole, ty_##each##_of(-0x1.62e400p-1f), x);                           \
    r = ty_##each##_fma(whole, ty_##each##_of(-0x1.7f7d1cp-20f), r);                               \
    type p = ty_##each##_step(ty_##each##_of(0x1.6a23c4p-10f), r, 0x1.123a22p-7f);                 \
    p = ty_##each##_step(p, r, 0x1.5558f4p-5f);                                                    \
    p = ty_##each##_step(p, r, 0x1.555492p-3f);                                                    \
    p = ty_##each##_step(p, r, 0x1.fffffcp-2f);                                                    \
    return ty_##each##_plus(ty_##each##_fma(ty_##each##_mul(p, r), r, r), 1.0f);                   \
  }
/* Two quads: enough steps that alternate for vectors of 512 bits. */
typedef struct {
  ty_quad a, b;
} ty_pair;
#if TY_WIDE
#define TY_PAIR(name, parameters, a, b)                                                            \
  TY_INLINE ty_pair ty_pair_##name parameters {                                                    \
    return (ty_pair){ty_quad_##name a, ty_quad_##name b};                                          \
  }
TY_PAIR(of, (float x), (x), (x))
TY_PAIR(whole, (ty_pair x), (x.a), (x.b))
TY_PAIR(rest, (ty_pair x), (x.a), (x.b))
TY_PAIR(raised, (ty_pair x, ty_pair y), (x.a, y.a), (x.b, y.b))
TY_PAIR(mul, (ty_pair x, ty_pair y), (x.a, y.a), (x.b, y.b))
TY_PAIR(plus, (ty_pair x, float y), (x.a, y), (x.b, y))
TY_PAIR(step, (ty_pair p, ty_pair x, float y), (p.a, x.a, y), (p.b, x.b, y))
TY_PAIR(fma, (ty_pair x, ty_pair y, ty_pair z), (x.a, y.a, z.a), (x.b, y.b, z.b))
TY_PAIR(within, (ty_pair x, float low, float high), (x.a, low, high), (x.b, low, high))
#undef TY_PAIR
TY_EXP_RESTS(ty_pair, pair)
#endif
TY_EXP_RESTS(ty_row, one)
TY_EXP_RESTS(ty_quad, quad)
#undef TY_EXP_RESTS

#if TY_WIDE
/* All numbers are easy: `raised` rounds once, saturates, and keeps NaN. */
#define TY_EXP(type, each)                                                                         \
  TY_INLINE type ty_##each##_exp2(type x) {                                                        \
    type p = ty_##each##_exp2_rest(ty_##each##_rest(x));                                           \
    return ty_##each##_raised(p, ty_##each##_whole(x));                                            \
  }                                                                                                \
  TY_INLINE type ty_##each##_exp(type x) {                                                         \
    x = ty_##each##_within(x, -104.0f, 89.0f);                                                     \
    type whole = ty_##each##_plus(ty_##each##_exp_shifted(x), -TY_ROUNDER);                        \
    return ty_##each##_raised(ty_##each##_exp_rest(x, whole), whole);                              \
  }
TY_EXP(ty_row, one)
TY_EXP(ty_quad, quad)
TY_EXP(ty_pair, pair)
#undef TY_EXP
#else
/* Functions that are easy for all numbers below a limit; for others, one by one. */
#define TY_EASY_EXP(type, each)                                                                    \
  TY_INLINE type ty_##each##_easy_exp2(type x) {                                                   \
    type p = ty_##each##_exp2_rest(ty_##each##_rest(x));                                           \
    return ty_##each##_raised(p, ty_##each##_whole(x));                                            \
  }                                                                                                \
  TY_INLINE type ty_##each##_easy_exp(type x) {                                                    \
    type shifted = ty_##each##_exp_shifted(x);                                                     \
    return ty_##each##_raised(ty_##each##_exp_rest(x, ty_##each##_plus(shifted, -TY_ROUNDER)), shifted); \
  }
TY_EASY_EXP(ty_row, one)
TY_EASY_EXP(ty_quad, quad)
#undef TY_EASY_EXP
TY_INLINE ty_words ty_magnitude_words(ty_row x) { return (ty_words)x & 0x7fffffffu; }
TY_INLINE int ty_quad_reaches(ty_quad x, float limit) {
  ty_words most = TY_GREATER_WORDS(ty_magnitude_words(x.a), ty_magnitude_words(x.b));
  ty_words more = TY_GREATER_WORDS(ty_magnitude_words(x.c), ty_magnitude_words(x.d));
  return TY_ANY((ty_signs)TY_GREATER_WORDS(most, more) >= (ty_signs)ty_one_of(limit));
}
/* Whether any number is NaN or may be above 125.5: those are easy in a few instructions. */
#if defined(__AVX2__) && defined(__FMA__) && !defined(__clang__)
#define TY_NEAREST_SHORTS(x, y)                                                                    \
  __builtin_ia32_packssdw256((ty_int8)TY_NEAREST_WORDS(x), (ty_int8)TY_NEAREST_WORDS(y))
TY_INLINE int ty_quad_is_hard_exp2(ty_quad x) {
  ty_char32 n = __builtin_ia32_packsswb256(TY_NEAREST_SHORTS(x.a, x.b), TY_NEAREST_SHORTS(x.c, x.d));
  return __builtin_ia32_pmovmskb256(
      __builtin_ia32_paddusb256(__builtin_ia32_pabsb256(n), (ty_char32){0} + 2));
}
#else
TY_INLINE int ty_quad_is_hard_exp2(ty_quad x) { return ty_quad_reaches(x, 126.0f); }
#endif
TY_INLINE int ty_quad_is_hard_exp(ty_quad x) { return ty_quad_reaches(x, 87.0f); }
/* Bits of lanes that are masked out, as attention does with minus infinity. */
#define TY_MASKED(x) ((ty_words)((ty_words)(x) == 0xff800000u))
#define TY_WITHOUT(x, masked) ((ty_row)((ty_words)(x) & ~(masked)))
#define TY_EASY(name, limit)                                                                       \
  static __attribute__((noinline, unused)) void ty_each_##name(float *x, int n) {                  \
    TY_INDEPENDENT                                                                                 \
    for (int i = 0; i < n; ++i)                                                                    \
      x[i] = ty_##name##_f32(x[i]);                                                                \
  }                                                                                                \
  static __attribute__((noinline, unused)) void ty_hard_##name(float *each) {                      \
    ty_quad x = ty_quad_load_f32(each);                                                            \
    ty_words a = TY_MASKED(x.a), b = TY_MASKED(x.b), c = TY_MASKED(x.c), d = TY_MASKED(x.d);       \
    x = (ty_quad){TY_WITHOUT(x.a, a), TY_WITHOUT(x.b, b), TY_WITHOUT(x.c, c), TY_WITHOUT(x.d, d)}; \
    if (ty_quad_is_hard_##name(x)) {                                                               \
      ty_each_##name(each, TY_QUAD);                                                               \
      return;                                                                                      \
    }                                                                                              \
    x = ty_quad_easy_##name(x);                                                                    \
    ty_store_f32(each, TY_WITHOUT(x.a, a));                                                        \
    ty_store_f32(each + TY_LANES, TY_WITHOUT(x.b, b));                                             \
    ty_store_f32(each + 2 * TY_LANES, TY_WITHOUT(x.c, c));                                         \
    ty_store_f32(each + 3 * TY_LANES, TY_WITHOUT(x.d, d));                                         \
  }                                                                                                \
  TY_INLINE ty_row ty_one_##name(ty_row x) {                                                       \
    ty_signs hard = (ty_signs)ty_magnitude_words(x) >= (ty_signs)ty_one_of(limit);                 \
    if (__builtin_expect(!TY_ANY(hard), 1))                                                        \
      return ty_one_easy_##name(x);                                                                \
    float each[TY_LANES];                                                                          \
    ty_store_f32(each, x);                                                                         \
    ty_each_##name(each, TY_LANES);                                                                \
    return ty_load_f32(each);                                                                      \
  }                                                                                                \
  TY_INLINE ty_quad ty_quad_##name(ty_quad x) {                                                    \
    if (__builtin_expect(!ty_quad_is_hard_##name(x), 1))                                           \
      return ty_quad_easy_##name(x);                                                               \
    float each[TY_QUAD];                                                                           \
    ty_store_f32(each, x.a);                                                                       \
    ty_store_f32(each + TY_LANES, x.b);                                                            \
    ty_store_f32(each + 2 * TY_LANES, x.c);                                                        \
    ty_store_f32(each + 3 * TY_LANES, x.d);                                                        \
    ty_hard_##name(each);                                                                          \
    return ty_quad_load_f32(each);                                                                 \
  }
TY_EASY(exp2, 126.0f)
TY_EASY(exp, 87.0f)
/* The same for compilers without our names of instructions for 512 bits. */
TY_INLINE ty_pair ty_pair_exp2(ty_pair x) { return (ty_pair){ty_quad_exp2(x.a), ty_quad_exp2(x.b)}; }
TY_INLINE ty_pair ty_pair_exp(ty_pair x) { return (ty_pair){ty_quad_exp(x.a), ty_quad_exp(x.b)}; }
#undef TY_EASY
#undef TY_WITHOUT
#undef TY_MASKED
#endif

/* Functions of whole rows, which may be in place: where all numbers of a piece are easy, without a
   branch for each. They give what the functions of one number give. */
#define TY_ROW_FUNCTION(name)                                                                      \
  TY_ROW ty_row_##name##_f32(float *to, const float *x, int64_t n) {                               \
    int64_t i = 0;                                                                                 \
    for (; i + 64 <= n; i += 64) {                                                                 \
      int hard = 0;                                                                                \
      for (int j = 0; j < 64; ++j)                                                                 \
        hard |= !ty_is_easy_##name##_f32(x[i + j]);                                                \
      if (hard) {                                                                                  \
        TY_INDEPENDENT                                                                             \
        for (int j = 0; j < 64; ++j)                                                               \
          to[i + j] = ty_##name##_f32(x[i + j]);                                                   \
      } else {                                                                                     \
        TY_INDEPENDENT                                                                             \
        for (int j = 0; j < 64; ++j)                                                               \
          to[i + j] = ty_easy_##name##_f32(x[i + j]);                                              \
      }                                                                                            \
    }                                                                                              \
    for (; i < n; ++i)                                                                             \
      to[i] = ty_##name##_f32(x[i]);                                                               \
  }
TY_ROW_FUNCTION(exp)
TY_ROW_FUNCTION(exp2)
TY_ROW_FUNCTION(exp10)
TY_ROW_FUNCTION(log10)
TY_ROW_FUNCTION(sin)
TY_ROW_FUNCTION(cos)
#undef TY_ROW_FUNCTION
TY_ROW ty_row_pow_f32(float *to, const float *x, const float *y, int64_t n) {
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    int hard = 0;
    for (int j = 0; j < 64; ++j)
      hard |= !ty_is_easy_pow_f32(x[i + j], y[i + j]);
    if (hard) {
      for (int j = 0; j < 64; ++j)
        to[i + j] = ty_pow_f32(x[i + j], y[i + j]);
    } else {
      TY_INDEPENDENT
      for (int j = 0; j < 64; ++j)
        to[i + j] = ty_easy_pow_f32(x[i + j], y[i + j]);
    }
  }
  for (; i < n; ++i)
    to[i] = ty_pow_f32(x[i], y[i]);
}

#endif
