/* What generated kernels are written in: scalar types, operations and rows of a tile.

   Every function gives what the tile IR's interpreter gives; functions such as exp2 may differ in
   the last two places. Everything is inline, branch-free where it stands in inner loops, and free of
   intrinsics that a compiler could lack, so that loops over it are vectorized. */
#ifndef TY_TILE_H
#define TY_TILE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TY_INLINE static inline __attribute__((always_inline, unused))

#ifdef __clang__
#define TY_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define TY_SHORT TY_INDEPENDENT
#define TY_MICRO static __attribute__((noinline))
#define TY_FUSED _Pragma("clang fp contract(fast)")
/* Between the steps of a micro-kernel: else loads are moved ahead, and accumulators to memory. */
#define TY_STEP __asm__ volatile("" ::: "memory")
#else
#define TY_INDEPENDENT _Pragma("GCC ivdep")
/* Before a loop of a few iterations: unrolled too early, it would not become vectors. */
#define TY_SHORT _Pragma("GCC unroll 1") _Pragma("GCC ivdep")
/* Products and sums are fused inside micro-kernels only: elsewhere each operation rounds once. */
#define TY_MICRO static __attribute__((noinline, optimize("fp-contract=fast")))
#define TY_FUSED
#define TY_STEP ((void)0)
#endif

#ifdef __has_builtin
#define TY_HAS(name) __has_builtin(name)
#else
#define TY_HAS(name) 0
#endif

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define TY_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define TY_FMA(a, b, c) ((a) * (b) + (c))
#endif

#define TY_INF __builtin_inff()
#define TY_NAN __builtin_nanf("")

/* ---- what a launch tells besides its results ------------------------------------------------- */

/* The first failure of a thread in a block: the number of its site, and the number that was wrong there. */
typedef struct {
  int32_t site;
  int64_t value;
} ty_fault;

#define TY_SITES 3
#define TY_TEXT 480

/* Given by the host behind the arrays. `lines` has, for the statements of the Program by number, where
   the user wrote them, as in "kernels.py:41: ", or NULL. With `is_quiet` nothing is printed. The first thread that fails tells the rest:
   `sites` are those of its failure, with the value that was wrong, or values as text. */
typedef struct {
  const char *const *lines;
  int32_t line_count;
  int32_t is_quiet;
  int32_t is_taken;
  int32_t site_count;
  int32_t sites[TY_SITES];
  int64_t value;
  char text[TY_TEXT];
} ty_report;

extern int dprintf(int, const char *, ...);
extern int vsnprintf(char *, size_t, const char *, __builtin_va_list);

/* Prints a line that begins with where the user wrote the statement, whole among other threads'. */
#define TY_PRINT(report, statement, format, ...)                                                   \
  ((report)->is_quiet ||                                                                           \
   dprintf(1, "%s" format "\n", ty_line(report, statement), ##__VA_ARGS__))

/* Where the user wrote a statement, ready to be put in front of a message. */
TY_INLINE const char *ty_line(const ty_report *report, int32_t statement) {
  const char *found = statement < report->line_count ? report->lines[statement] : NULL;
  return found ? found : "";
}

#define TY_COLD static __attribute__((cold, noinline, unused))

TY_INLINE int ty_is_first(ty_report *report) {
  return !__atomic_exchange_n(&report->is_taken, 1, __ATOMIC_RELAXED);
}

/* Ends a launch for what `fault` says. What a kernel returns is 0 where all is well. */
TY_COLD int32_t ty_failed(ty_report *report, const ty_fault *fault) {
  if (ty_is_first(report)) {
    report->sites[0] = fault->site;
    report->site_count = 1;
    report->value = fault->value;
  }
  return 1;
}

/* Ends a launch at one site; the values that matter there are printed as `format` says. */
TY_COLD int32_t ty_fail(ty_report *report, int32_t site, const char *format, ...) {
  if (ty_is_first(report)) {
    report->sites[0] = site;
    report->site_count = 1;
    __builtin_va_list values;
    __builtin_va_start(values, format);
    vsnprintf(report->text, TY_TEXT, format, values);
    __builtin_va_end(values);
  }
  return 1;
}

/* Ends a launch at several sites at once, the first `TY_SITES` of them. */
TY_COLD int32_t ty_stuck(ty_report *report, const int32_t *sites, int32_t count) {
  if (ty_is_first(report)) {
    report->site_count = count < TY_SITES ? count : TY_SITES;
    for (int32_t i = 0; i < report->site_count; ++i)
      report->sites[i] = sites[i];
  }
  return 1;
}

/* ---- bits ---------------------------------------------------------------------------------- */

#define TY_BITS(name, to, from)                                                                    \
  TY_INLINE to name(from x) {                                                                      \
    to y;                                                                                          \
    memcpy(&y, &x, sizeof y);                                                                      \
    return y;                                                                                      \
  }
TY_BITS(ty_to_bits_f32, uint32_t, float)
TY_BITS(ty_from_bits_f32, float, uint32_t)
TY_BITS(ty_to_bits_f64, uint64_t, double)
TY_BITS(ty_from_bits_f64, double, uint64_t)
#undef TY_BITS

/* ---- integers: wrap, divide towards minus infinity, refuse what has no meaning ---------------- */

/* Reports that `value` is wrong at `site` unless it holds, and gives whether it holds. */
TY_INLINE int ty_require(int holds, ty_fault *fault, int32_t site, int64_t value) {
  if (!holds && !fault->site)
    *fault = (ty_fault){site, value};
  return holds;
}

#define TY_INTEGER(suffix, type, word)                                                             \
  TY_INLINE type ty_add_##suffix(type a, type b) { return (type)((word)a + (word)b); }             \
  TY_INLINE type ty_sub_##suffix(type a, type b) { return (type)((word)a - (word)b); }             \
  TY_INLINE type ty_mul_##suffix(type a, type b) { return (type)((word)a * (word)b); }             \
  TY_INLINE type ty_neg_##suffix(type a) { return (type)((word)0 - (word)a); }                     \
  TY_INLINE type ty_abs_##suffix(type a) { return a < 0 ? ty_neg_##suffix(a) : a; }                \
  TY_INLINE type ty_min_##suffix(type a, type b) { return b < a ? b : a; }                         \
  TY_INLINE type ty_max_##suffix(type a, type b) { return b > a ? b : a; }                         \
  TY_INLINE type ty_popcount_##suffix(type a) {                                                    \
    return (type)__builtin_popcountll((uint64_t)a & ((word)-1 >> (8 * (sizeof(word) - sizeof a))));  \
  }                                                                                                \
  TY_INLINE type ty_clz_##suffix(type a) {                                                         \
    uint64_t bits = (uint64_t)a & ((word)-1 >> (8 * (sizeof(word) - sizeof a)));                   \
    return (type)(bits ? __builtin_clzll(bits) - 64 + (int)(8 * sizeof a) : (int)(8 * sizeof a));  \
  }                                                                                                \
  TY_INLINE type ty_shl_##suffix(type a, type n) { return (type)((word)a << n); }                  \
  TY_INLINE type ty_truncdiv_##suffix(type a, type b) {                                            \
    return b == (type)-1 && (type)-1 < 0 ? ty_neg_##suffix(a) : (type)(a / b);                     \
  }                                                                                                \
  TY_INLINE type ty_truncmod_##suffix(type a, type b) {                                            \
    return b == (type)-1 && (type)-1 < 0 ? 0 : (type)(a % b);                                      \
  }                                                                                                \
  TY_INLINE type ty_floormod_##suffix(type a, type b) {                                            \
    type rest = ty_truncmod_##suffix(a, b);                                                        \
    return rest != 0 && (rest < 0) != (b < 0) ? (type)(rest + b) : rest;                           \
  }                                                                                                \
  TY_INLINE type ty_floordiv_##suffix(type a, type b) {                                            \
    type rest = ty_truncmod_##suffix(a, b), whole = ty_truncdiv_##suffix(a, b);                    \
    return rest != 0 && (rest < 0) != (b < 0) ? (type)(whole - 1) : whole;                         \
  }                                                                                                \
  TY_INLINE type ty_divisor_##suffix(type b, ty_fault *fault, int32_t site) {                      \
    return ty_require(b != 0, fault, site, 0) ? b : 1;                                             \
  }                                                                                                \
  TY_INLINE type ty_count_##suffix(type n, ty_fault *fault, int32_t site) {                        \
    return ty_require(n >= 0 && n < (type)(sizeof(type) * 8), fault, site, (int64_t)n) ? n : 0;    \
  }
TY_INTEGER(i8, int8_t, uint32_t)
TY_INTEGER(i16, int16_t, uint32_t)
TY_INTEGER(i32, int32_t, uint32_t)
TY_INTEGER(i64, int64_t, uint64_t)
TY_INTEGER(u8, uint8_t, uint32_t)
TY_INTEGER(u16, uint16_t, uint32_t)
TY_INTEGER(u32, uint32_t, uint32_t)
TY_INTEGER(u64, uint64_t, uint64_t)
#undef TY_INTEGER

TY_INLINE int ty_inside(int64_t index, int64_t extent) {
  return (uint64_t)index < (uint64_t)extent;
}
/* An index into a tile: outside is a fault, and the first element is taken instead. */
TY_INLINE int64_t ty_index(int64_t index, int64_t extent, ty_fault *fault, int32_t site) {
  return ty_require(ty_inside(index, extent), fault, site, index) ? index : 0;
}

/* ---- floats -------------------------------------------------------------------------------- */

#define TY_FLOAT(suffix, type, mark)                                                               \
  TY_INLINE type ty_abs_##suffix(type x) { return __builtin_fabs##mark(x); }                       \
  TY_INLINE type ty_min_##suffix(type a, type b) { return b < a || a != a ? b : a; }               \
  TY_INLINE type ty_max_##suffix(type a, type b) { return b > a || a != a ? b : a; }               \
  TY_INLINE int ty_isnan_##suffix(type x) { return x != x; }                                       \
  TY_INLINE int ty_isinf_##suffix(type x) { return __builtin_fabs##mark(x) == (type)TY_INF; }      \
  TY_INLINE int ty_isfinite_##suffix(type x) { return __builtin_fabs##mark(x) < (type)TY_INF; }    \
  TY_INLINE type ty_sqrt_##suffix(type x) { return __builtin_sqrt##mark(x); }                      \
  TY_INLINE type ty_rsqrt_##suffix(type x) { return 1 / __builtin_sqrt##mark(x); }                 \
  TY_INLINE type ty_floor_##suffix(type x) { return __builtin_floor##mark(x); }                    \
  TY_INLINE type ty_ceil_##suffix(type x) { return __builtin_ceil##mark(x); }                      \
  TY_INLINE type ty_round_##suffix(type x) { return __builtin_rint##mark(x); }                     \
  TY_INLINE type ty_trunc_##suffix(type x) { return __builtin_trunc##mark(x); }                    \
  TY_INLINE type ty_log1p_##suffix(type x) { return __builtin_log1p##mark(x); }                    \
  TY_INLINE type ty_tan_##suffix(type x) { return __builtin_tan##mark(x); }                        \
  TY_INLINE type ty_asin_##suffix(type x) { return __builtin_asin##mark(x); }                      \
  TY_INLINE type ty_acos_##suffix(type x) { return __builtin_acos##mark(x); }                      \
  TY_INLINE type ty_atan_##suffix(type x) { return __builtin_atan##mark(x); }                      \
  TY_INLINE type ty_sinh_##suffix(type x) { return __builtin_sinh##mark(x); }                      \
  TY_INLINE type ty_cosh_##suffix(type x) { return __builtin_cosh##mark(x); }                      \
  TY_INLINE type ty_asinh_##suffix(type x) { return __builtin_asinh##mark(x); }                    \
  TY_INLINE type ty_acosh_##suffix(type x) { return __builtin_acosh##mark(x); }                    \
  TY_INLINE type ty_atanh_##suffix(type x) { return __builtin_atanh##mark(x); }                    \
  TY_INLINE type ty_hypot_##suffix(type a, type b) { return __builtin_hypot##mark(a, b); }         \
  TY_INLINE type ty_copysign_##suffix(type a, type b) { return __builtin_copysign##mark(a, b); }   \
  TY_INLINE type ty_nextafter_##suffix(type a, type b) { return __builtin_nextafter##mark(a, b); } \
  TY_INLINE type ty_ldexp_##suffix(type x, type n) {                                               \
    int whole = n < -10000 ? -10000 : n > 10000 ? 10000 : n == n ? (int)n : 0;                     \
    return __builtin_ldexp##mark(x, whole);                                                        \
  }                                                                                                \
  TY_INLINE type ty_fma_##suffix(type a, type b, type c) { return __builtin_fma##mark(a, b, c); }  \
  TY_INLINE type ty_fmod_##suffix(type a, type b) { return __builtin_fmod##mark(a, b); }           \
  TY_INLINE type ty_atan2_##suffix(type a, type b) { return __builtin_atan2##mark(a, b); }
TY_FLOAT(f32, float, f)
TY_FLOAT(f64, double, )
#undef TY_FLOAT

TY_INLINE double ty_exp10_f64(double x) { return __builtin_pow(10.0, x); }
TY_INLINE double ty_log10_f64(double x) { return __builtin_log10(x); }
TY_INLINE double ty_sin_f64(double x) { return __builtin_sin(x); }
TY_INLINE double ty_cos_f64(double x) { return __builtin_cos(x); }
TY_INLINE double ty_erf_f64(double x) { return __builtin_erf(x); }
TY_INLINE double ty_pow_f64(double a, double b) { return __builtin_pow(a, b); }
TY_INLINE double ty_exp_f64(double x) { return __builtin_exp(x); }
TY_INLINE double ty_exp2_f64(double x) { return __builtin_exp2(x); }
TY_INLINE double ty_log_f64(double x) { return __builtin_log(x); }
TY_INLINE double ty_log2_f64(double x) { return __builtin_log2(x); }
TY_INLINE double ty_tanh_f64(double x) { return __builtin_tanh(x); }
TY_INLINE double ty_sigmoid_f64(double x) { return 1 / (1 + __builtin_exp(-x)); }

#define TY_ROUNDER 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number */

/* x, but not below `low`, a negative number, nor above `high`; what becomes of NaN is not stated.
   Compared as integers, because compilers split loops over comparisons of floats. */
TY_INLINE float ty_clamp_f32(float x, float low, float high) {
  int32_t bits = (int32_t)ty_to_bits_f32(x), top = (int32_t)ty_to_bits_f32(high);
  uint32_t below = (uint32_t)(bits < top ? bits : top), bottom = ty_to_bits_f32(low);
  return ty_from_bits_f32(below < bottom ? below : bottom);
}

/* x * 2^n, rounded once, where `shifted` is TY_ROUNDER + n and n in [-252, 254]. */
TY_INLINE float ty_scale_f32(float x, float shifted) {
  uint32_t n = ty_to_bits_f32(shifted) - ty_to_bits_f32(TY_ROUNDER);
  uint32_t half = (uint32_t)((int32_t)n >> 1), rest = n - half;
  float first = ty_from_bits_f32((half + 127) << 23), second = ty_from_bits_f32((rest + 127) << 23);
  return x * first * second;
}
/* As ty_scale_f32 where the result is no smaller than 2^-126 and finite. */
TY_INLINE float ty_easy_scale_f32(float x, float shifted) {
  return ty_from_bits_f32(ty_to_bits_f32(x) + (ty_to_bits_f32(shifted) << 23));
}

/* 2^f for f in [-1/2, 1/2], within 1.76 units in the last place, or 1.9 where nothing is fused. */
TY_INLINE float ty_exp2_rest_f32(float f) {
  float p = 0x1.592830p-10f;
  p = TY_FMA(p, f, 0x1.3cf636p-7f);
  p = TY_FMA(p, f, 0x1.c6be9cp-5f);
  p = TY_FMA(p, f, 0x1.ebf998p-3f);
  p = TY_FMA(p, f, 0x1.62e420p-1f);
  return TY_FMA(p, f, 1.0f);
}
TY_INLINE int ty_is_easy_exp2_f32(float x) { return __builtin_fabsf(x) < 126.0f; }
TY_INLINE float ty_easy_exp2_f32(float x) {
  float shifted = x + TY_ROUNDER;
  return ty_easy_scale_f32(ty_exp2_rest_f32(x - (shifted - TY_ROUNDER)), shifted);
}
TY_INLINE float ty_exp2_f32(float x) {
  float t = ty_clamp_f32(x, -150.0f, 128.0f), shifted = t + TY_ROUNDER;
  float y = ty_scale_f32(ty_exp2_rest_f32(t - (shifted - TY_ROUNDER)), shifted);
  return x == x ? y : x;
}

/* exp(x) / 2^n, where `shifted` is TY_ROUNDER + n. */
TY_INLINE float ty_exp_rest_f32(float x, float *shifted) {
  *shifted = TY_FMA(x, 0x1.715476p+0f, TY_ROUNDER);
  float whole = *shifted - TY_ROUNDER;
  float r = TY_FMA(whole, -0x1.62e400p-1f, x);
  r = TY_FMA(whole, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6a23c4p-10f;
  p = TY_FMA(p, r, 0x1.123a22p-7f);
  p = TY_FMA(p, r, 0x1.5558f4p-5f);
  p = TY_FMA(p, r, 0x1.555492p-3f);
  p = TY_FMA(p, r, 0x1.fffffcp-2f);
  return TY_FMA(p * r, r, r) + 1.0f;
}
TY_INLINE int ty_is_easy_exp_f32(float x) { return __builtin_fabsf(x) < 87.0f; }
TY_INLINE float ty_easy_exp_f32(float x) {
  float shifted, p = ty_exp_rest_f32(x, &shifted);
  return ty_easy_scale_f32(p, shifted);
}
TY_INLINE float ty_exp_f32(float x) {
  float shifted, p = ty_exp_rest_f32(ty_clamp_f32(x, -104.0f, 89.0f), &shifted);
  float y = ty_scale_f32(p, shifted);
  return x == x ? y : x;
}

/* The mantissa of x in [sqrt(1/2), sqrt(2)) less 1, and the exponent that belongs to it. */
TY_INLINE float ty_split_f32(float x, float *exponent) {
  int tiny = x < 0x1p-126f;
  uint32_t bits = ty_to_bits_f32(tiny ? x * 0x1p24f : x);
  uint32_t moved = bits - 0x3f3504f3u;
  *exponent = (float)((int32_t)moved >> 23) - (tiny ? 24.0f : 0.0f);
  return ty_from_bits_f32((moved & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
}

/* log(1 + f) - f for a small f. */
TY_INLINE float ty_log_rest_f32(float f) {
  float p = 0x1.146168p-4f;
  p = TY_FMA(p, f, -0x1.de4f38p-4f);
  p = TY_FMA(p, f, 0x1.e6f692p-4f);
  p = TY_FMA(p, f, -0x1.fc1f84p-4f);
  p = TY_FMA(p, f, 0x1.2336dap-3f);
  p = TY_FMA(p, f, -0x1.555c58p-3f);
  p = TY_FMA(p, f, 0x1.99a4bcp-3f);
  p = TY_FMA(p, f, -0x1.000006p-2f);
  p = TY_FMA(p, f, 0x1.555548p-2f);
  return TY_FMA(p * f, f * f, -0.5f * (f * f));
}

TY_INLINE float ty_log_ends_f32(float x, float inside) {
  float y = x < 0.0f || x != x ? TY_NAN : inside;
  y = x == 0.0f ? -TY_INF : y;
  return x == TY_INF ? TY_INF : y;
}

TY_INLINE float ty_log_f32(float x) {
  float n, f = ty_split_f32(x, &n), rest = ty_log_rest_f32(f);
  rest = TY_FMA(n, -0x1.bd0106p-13f, rest);
  return ty_log_ends_f32(x, TY_FMA(n, 0x1.63p-1f, f + rest));
}

TY_INLINE float ty_log2_f32(float x) {
  float n, f = ty_split_f32(x, &n), rest = ty_log_rest_f32(f);
  /* f + rest as a sum of two floats, times log2(e) as a sum of two. */
  float high = f + rest, low = rest - (high - f);
  float y = TY_FMA(high, 0x1.4ae0c0p-26f, low * 0x1.715476p+0f);
  return ty_log_ends_f32(x, n + TY_FMA(high, 0x1.715476p+0f, y));
}

TY_INLINE float ty_sigmoid_f32(float x) {
  float e = ty_exp_f32(-__builtin_fabsf(x));
  return (float)((x < 0.0f ? e : 1.0f) / (1.0 + e));
}

TY_INLINE float ty_tanh_f32(float x) {
  float a = __builtin_fabsf(x), z = x * x;
  float p = -0x1.7520c8p-8f;
  p = TY_FMA(p, z, 0x1.520210p-6f);
  p = TY_FMA(p, z, -0x1.b837eap-5f);
  p = TY_FMA(p, z, 0x1.110710p-3f);
  p = TY_FMA(p, z, -0x1.555532p-2f);
  float small = TY_FMA(p * z, x, x);
  float e = ty_easy_exp_f32(2.0f * ty_clamp_f32(a, -0.0f, 10.0f));
  float large = __builtin_copysignf(1.0f - 2.0f / (e + 1.0f), x);
  float y = a < 0.625f ? small : large;
  return x == x ? y : x;
}

TY_INLINE float ty_erf_f32(float x) {
  float a = ty_clamp_f32(__builtin_fabsf(x), -0.0f, 4.0f), z = a * a;
  float p = -0x1.3bb75ap-11f;
  p = TY_FMA(p, z, 0x1.47a766p-8f);
  p = TY_FMA(p, z, -0x1.b69ee8p-6f);
  p = TY_FMA(p, z, 0x1.ce1be0p-4f);
  p = TY_FMA(p, z, -0x1.8126eep-2f);
  p = TY_FMA(p, z, 0x1.06eba6p-3f);
  float small = TY_FMA(p, x, x);
  float q = -0x1.990c74p-13f; /* -log(1 - erf(a)) */
  q = TY_FMA(q, a, 0x1.8dc3d6p-9f);
  q = TY_FMA(q, a, -0x1.6b9fb2p-6f);
  q = TY_FMA(q, a, 0x1.a96e2ep-4f);
  q = TY_FMA(q, a, 0x1.46466ep-1f);
  q = TY_FMA(q, a, 0x1.20ac92p+0f);
  q = TY_FMA(q, a, 0x1.af2dc2p-13f);
  float large = __builtin_copysignf(1.0f - ty_easy_exp_f32(-q), x);
  float y = a < 0.92f ? small : large;
  return x == x ? y : x;
}

/* sin(x + turn * pi / 2) for |x| < 2^16. */
TY_INLINE float ty_easy_turn_f32(float x, int32_t turn) {
  double shifted = x * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = shifted - 0x1.8p52;
  float r = (float)(((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69);
  float z = r * r;
  float p = 0x1.6cd888p-19f;
  p = TY_FMA(p, z, -0x1.a00fa0p-13f);
  p = TY_FMA(p, z, 0x1.111108p-7f);
  p = TY_FMA(p, z, -0x1.555556p-3f);
  p = z == 0.0f ? r : TY_FMA(r * z, p, r);
  float q = -0x1.242a68p-22f;
  q = TY_FMA(q, z, 0x1.a0111ep-16f);
  q = TY_FMA(q, z, -0x1.6c16b8p-10f);
  q = TY_FMA(q, z, 0x1.555556p-5f);
  q = TY_FMA(q * z, z, TY_FMA(z, -0.5f, 1.0f));
  int32_t quarter = (int32_t)n + turn;
  float y = quarter & 1 ? q : p;
  return ty_from_bits_f32(ty_to_bits_f32(y) ^ ((uint32_t)(quarter & 2) << 30));
}
TY_INLINE int ty_is_easy_sin_f32(float x) { return __builtin_fabsf(x) < 65536.0f; }
TY_INLINE float ty_easy_sin_f32(float x) { return ty_easy_turn_f32(x, 0); }
TY_INLINE int ty_is_easy_cos_f32(float x) { return __builtin_fabsf(x) < 65536.0f; }
TY_INLINE float ty_easy_cos_f32(float x) { return ty_easy_turn_f32(x, 1); }

/* log2(x) for a positive normal x, to about 45 bits. */
TY_INLINE double ty_wide_log2(float x) {
  uint32_t moved = ty_to_bits_f32(x) - 0x3f3504f3u;
  double m = ty_from_bits_f32((moved & 0x007fffffu) + 0x3f3504f3u);
  double s = (m - 1) / (m + 1), z = s * s;
  double p = 0x1.21b3f25b81477p-2;
  p = p * z + 0x1.47951bf18ea52p-2;
  p = p * z + 0x1.a61a3051d8bcdp-2;
  p = p * z + 0x1.2776c29125481p-1;
  p = p * z + 0x1.ec709dc53e638p-1;
  p = p * z + 0x1.71547652b8250p+1;
  return p * s + (double)((int32_t)moved >> 23);
}
/* 2^t for |t| <= 1000, rounded to a float. */
TY_INLINE float ty_wide_exp2(double t) {
  double shifted = t + 0x1.8p52, f = t - (shifted - 0x1.8p52);
  double p = 0x1.fe17853a3d0e5p-17;
  p = p * f + 0x1.446a1fdb048efp-13;
  p = p * f + 0x1.5d8a70875500dp-10;
  p = p * f + 0x1.3b29dc40d6781p-7;
  p = p * f + 0x1.c6b08aaf2f813p-5;
  p = p * f + 0x1.ebfbe0a4be81ap-3;
  p = p * f + 0x1.62e42ff116289p-1;
  p = p * f + 1;
  return (float)ty_from_bits_f64(ty_to_bits_f64(p) + (ty_to_bits_f64(shifted) << 52));
}
TY_INLINE int ty_is_plain_f32(float x) { return (x >= 0x1p-126f) & (x < TY_INF); }

TY_INLINE int ty_is_easy_exp10_f32(float x) { return __builtin_fabsf(x) <= 300.0f; }
TY_INLINE float ty_easy_exp10_f32(float x) { return ty_wide_exp2(x * 0x1.a934f0979a371p+1); }
TY_INLINE int ty_is_easy_log10_f32(float x) { return ty_is_plain_f32(x); }
TY_INLINE float ty_easy_log10_f32(float x) {
  return (float)(ty_wide_log2(x) * 0x1.34413509f79ffp-2);
}
TY_INLINE int ty_is_easy_pow_f32(float x, float y) {
  return ty_is_plain_f32(x) & (__builtin_fabsf(y) <= 7.0f);
}
TY_INLINE float ty_easy_pow_f32(float x, float y) { return ty_wide_exp2(y * ty_wide_log2(x)); }

TY_INLINE float ty_sin_f32(float x) {
  return ty_is_easy_sin_f32(x) ? ty_easy_sin_f32(x) : __builtin_sinf(x);
}
TY_INLINE float ty_cos_f32(float x) {
  return ty_is_easy_cos_f32(x) ? ty_easy_cos_f32(x) : __builtin_cosf(x);
}
TY_INLINE float ty_exp10_f32(float x) {
  return ty_is_easy_exp10_f32(x) ? ty_easy_exp10_f32(x) : __builtin_powf(10.0f, x);
}
TY_INLINE float ty_log10_f32(float x) {
  return ty_is_easy_log10_f32(x) ? ty_easy_log10_f32(x) : __builtin_log10f(x);
}
TY_INLINE float ty_pow_f32(float x, float y) {
  return ty_is_easy_pow_f32(x, y) ? ty_easy_pow_f32(x, y) : __builtin_powf(x, y);
}

/* ---- narrow floats: values are kept in float, each operation rounds its result ------------------ */

TY_INLINE float ty_with_sign(uint32_t magnitude, uint32_t sign) {
  return ty_from_bits_f32(magnitude | (sign & 0x80000000u));
}

/* Rounds |x| to `23 - shift` bits after the first, not below exponent `least`; half to even. */
TY_INLINE float ty_round_magnitude(float a, float least, float most, float shift) {
  float unit = ty_from_bits_f32(ty_to_bits_f32(a) & 0x7f800000u);
  unit = unit < least ? least : unit;
  unit = unit > most ? most : unit;
  float big = unit * shift;
  return (a + big) - big;
}

TY_INLINE float ty_round_f16(float x) {
  uint32_t bits = ty_to_bits_f32(x);
  float r = ty_round_magnitude(ty_from_bits_f32(bits & 0x7fffffffu), 0x1p-14f, 0x1p16f, 0x1p13f);
  r = r > 65504.0f ? TY_INF : r;
  return ty_with_sign(ty_to_bits_f32(r) & 0x7fffffffu, bits);
}
TY_INLINE float ty_round_bf16(float x) {
  uint32_t bits = ty_to_bits_f32(x);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  return ty_from_bits_f32(x == x ? rounded : 0x7fc00000u);
}
TY_INLINE float ty_round_f8e4m3(float x) {
  uint32_t bits = ty_to_bits_f32(x);
  float r = ty_round_magnitude(ty_from_bits_f32(bits & 0x7fffffffu), 0x1p-6f, 0x1p9f, 0x1p20f);
  r = r > 448.0f ? TY_NAN : r;
  return ty_with_sign(ty_to_bits_f32(r) & 0x7fffffffu, bits);
}
TY_INLINE float ty_round_f8e5m2(float x) {
  uint32_t bits = ty_to_bits_f32(x);
  float r = ty_round_magnitude(ty_from_bits_f32(bits & 0x7fffffffu), 0x1p-14f, 0x1p16f, 0x1p21f);
  r = r > 57344.0f ? TY_INF : r;
  return ty_with_sign(ty_to_bits_f32(r) & 0x7fffffffu, bits);
}
/* To ten bits after the first, half away from zero. */
TY_INLINE float ty_round_tf32(float x) {
  uint32_t bits = ty_to_bits_f32(x), up = __builtin_fabsf(x) < TY_INF ? bits + 0x1000u : bits;
  return ty_from_bits_f32(x == x ? up & 0xffffe000u : 0x7fc00000u);
}
/* Conversions to eight bits hold the largest value instead of what is larger. */
TY_INLINE float ty_clip_f32(float x, float most) {
  float y = x > most ? most : x;
  return y < -most ? -most : y;
}
TY_INLINE float ty_saturate_f8e4m3(float x) { return ty_round_f8e4m3(ty_clip_f32(x, 448.0f)); }
TY_INLINE float ty_saturate_f8e5m2(float x) { return ty_round_f8e5m2(ty_clip_f32(x, 57344.0f)); }
/* A float that rounds to narrower types as the double does: its last bit says that it is inexact. */
TY_INLINE float ty_odd_f32(double x) {
  float r = (float)x;
  uint32_t bits = ty_to_bits_f32(r);
  int away = __builtin_fabs((double)r) > __builtin_fabs(x);
  return (double)r == x || x != x ? r : ty_from_bits_f32((bits - (uint32_t)away) | 1u);
}

/* a * b + c of narrow numbers, for one rounding to their type: the product is exact in a double, and
   an odd last bit of the sum says that it is not. */
TY_INLINE float ty_odd_fma_f32(float a, float b, float c) {
  double p = (double)a * b, s = p + c, back = s - p;
  double rest = (p - (s - back)) + (c - back);
  uint64_t bits = ty_to_bits_f64(s);
  if (rest != 0 && rest == rest && !(bits & 1))
    s = ty_from_bits_f64((rest > 0) == (s > 0) ? bits + 1 : bits - 1);
  return ty_odd_f32(s);
}

/* Values that a narrow type holds, in memory and back. */
TY_INLINE uint16_t ty_pack_f16(float r) {
  uint32_t bits = ty_to_bits_f32(r), low = ty_to_bits_f32(__builtin_fabsf(r) * 0x1p-112f) >> 13;
  low = low > 0x7c00u ? 0x7c00u : low;
  low = r == r ? low : 0x7e00u;
  return (uint16_t)(low | ((bits >> 16) & 0x8000u));
}
TY_INLINE uint16_t ty_to_f16(float x) { return ty_pack_f16(ty_round_f16(x)); }
TY_INLINE float ty_from_f16(uint16_t h) {
  uint32_t low = ((uint32_t)h & 0x7fffu) << 13;
  uint32_t bits = ty_to_bits_f32(ty_from_bits_f32(low) * 0x1p112f);
  bits = low >= 0x0f800000u ? bits | 0x7f800000u : bits;
  return ty_with_sign(bits, (uint32_t)h << 16);
}
TY_INLINE uint16_t ty_pack_bf16(float r) { return (uint16_t)(ty_to_bits_f32(r) >> 16); }
TY_INLINE uint16_t ty_to_bf16(float x) { return ty_pack_bf16(ty_round_bf16(x)); }
TY_INLINE float ty_from_bf16(uint16_t h) { return ty_from_bits_f32((uint32_t)h << 16); }
TY_INLINE uint8_t ty_pack_f8e4m3(float r) {
  uint32_t low = ty_to_bits_f32(__builtin_fabsf(r) * 0x1p-120f) >> 20;
  low = r == r ? low : 0x7fu;
  return (uint8_t)(low | ((ty_to_bits_f32(r) >> 24) & 0x80u));
}
TY_INLINE uint8_t ty_to_f8e4m3(float x) { return ty_pack_f8e4m3(ty_round_f8e4m3(x)); }
TY_INLINE float ty_from_f8e4m3(uint8_t h) {
  float x = ty_from_bits_f32(((uint32_t)h & 0x7fu) << 20) * 0x1p120f;
  x = (h & 0x7fu) == 0x7fu ? TY_NAN : x;
  return ty_with_sign(ty_to_bits_f32(x), (uint32_t)h << 24);
}
TY_INLINE uint8_t ty_pack_f8e5m2(float r) { return (uint8_t)(ty_pack_f16(r) >> 8); }
TY_INLINE uint8_t ty_to_f8e5m2(float x) { return ty_pack_f8e5m2(ty_round_f8e5m2(x)); }
TY_INLINE float ty_from_f8e5m2(uint8_t h) { return ty_from_f16((uint16_t)((uint32_t)h << 8)); }

TY_INLINE float ty_pack_tf32(float r) { return r; }
TY_INLINE float ty_from_tf32(float x) {
  return ty_from_bits_f32(ty_to_bits_f32(x) & 0xffffe000u);
}

/* Floats to integers: towards zero, to the nearest end where out of range, NaN to 0. */
#define TY_TRUNCATE(suffix, type, low, high)                                                       \
  TY_INLINE type ty_truncate_f32_##suffix(float x) {                                               \
    float inside = x > (float)(low) && x < (float)(high) ? x : 0.0f;                               \
    type ends = x >= (float)(high) ? (high) : (low);                                               \
    int in = (x > (float)(low) && x < (float)(high)) || x != x;                                    \
    return in ? (type)inside : ends;                                                               \
  }                                                                                                \
  TY_INLINE type ty_truncate_f64_##suffix(double x) {                                              \
    double inside = x > (double)(low) && x < (double)(high) ? x : 0.0;                             \
    type ends = x >= (double)(high) ? (high) : (low);                                              \
    int in = (x > (double)(low) && x < (double)(high)) || x != x;                                  \
    return in ? (type)inside : ends;                                                               \
  }
TY_TRUNCATE(i8, int8_t, INT8_MIN, INT8_MAX)
TY_TRUNCATE(i16, int16_t, INT16_MIN, INT16_MAX)
TY_TRUNCATE(i32, int32_t, INT32_MIN, INT32_MAX)
TY_TRUNCATE(i64, int64_t, INT64_MIN, INT64_MAX)
TY_TRUNCATE(u8, uint8_t, 0, UINT8_MAX)
TY_TRUNCATE(u16, uint16_t, 0, UINT16_MAX)
TY_TRUNCATE(u32, uint32_t, 0, UINT32_MAX)
TY_TRUNCATE(u64, uint64_t, 0, UINT64_MAX)
#undef TY_TRUNCATE

/* ---- slots of memory that all threads share: whoever claims one fills it ------------------------- */

#if defined(__x86_64__) || defined(__i386__)
#define TY_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TY_PAUSE() __asm__ volatile("yield")
#else
#define TY_PAUSE() ((void)0)
#endif
extern int sched_yield(void);
enum { TY_FREE, TY_CLAIMED, TY_FILLED };

static __attribute__((noinline, unused)) void ty_wait_until_filled(const int32_t *slot) {
  for (int i = 1; __atomic_load_n(slot, __ATOMIC_ACQUIRE) != TY_FILLED; ++i) {
    TY_PAUSE();
    if (i % 1024 == 0)
      sched_yield(); /* whoever fills it may have lost its core */
  }
}
/* Whether the caller is to fill the slot; if not, it is filled. */
TY_INLINE int ty_claim(int32_t *slot) {
  int32_t seen = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
  if (seen == TY_FILLED)
    return 0;
  if (seen == TY_FREE && __atomic_compare_exchange_n(slot, &seen, TY_CLAIMED, 0, __ATOMIC_ACQUIRE,
                                                     __ATOMIC_ACQUIRE))
    return 1;
  ty_wait_until_filled(slot);
  return 0;
}
TY_INLINE void ty_publish(int32_t *slot) { __atomic_store_n(slot, TY_FILLED, __ATOMIC_RELEASE); }

/* ---- blocks that are turned: part[i][q] becomes to[q][i] ------------------------------------------ */

TY_INLINE void ty_turn_double(double *restrict to, const double *restrict part, int columns,
                              int stride, int count) {
  for (int q = 0; q < count; ++q)
    for (int i = 0; i < columns; ++i)
      to[q * columns + i] = part[i * stride + q];
}

#if defined(__AVX__) && TY_HAS(__builtin_shufflevector)
typedef float ty_eight __attribute__((vector_size(32), aligned(4), may_alias));
TY_INLINE void ty_turn_8x8(float *restrict to, int columns, const float *restrict part, int stride) {
  ty_eight r[8], s[8];
  for (int i = 0; i < 8; ++i)
    r[i] = *(const ty_eight *)(part + i * stride);
  for (int i = 0; i < 8; i += 2) {
    s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int h = 0; h < 2; ++h) {
      r[i + 2 * h] = __builtin_shufflevector(s[i + h], s[i + h + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      r[i + 2 * h + 1] = __builtin_shufflevector(s[i + h], s[i + h + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; ++i) {
    *(ty_eight *)(to + i * columns) =
        __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    *(ty_eight *)(to + (i + 4) * columns) =
        __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}
#define TY_TURNS 8
#else
TY_INLINE void ty_turn_8x8(float *restrict to, int columns, const float *restrict part, int stride) {}
#define TY_TURNS 0
#endif

TY_INLINE void ty_turn_float(float *restrict to, const float *restrict part, int columns,
                             int stride, int count) {
  int q = 0;
  if (TY_TURNS && columns % 8 == 0)
    for (; q + 8 <= count; q += 8)
      for (int i = 0; i < columns; i += 8)
        ty_turn_8x8(to + q * columns + i, columns, part + i * stride + q, stride);
  for (; q < count; ++q)
    for (int i = 0; i < columns; ++i)
      to[q * columns + i] = part[i * stride + q];
}

/* ---- rows: contiguous elements of a tile or an array -------------------------------------------- */

#if defined(__AVX__)
#define TY_LANES 8
#else
#define TY_LANES 4
#endif
typedef float ty_row __attribute__((vector_size(TY_LANES * 4), aligned(4), may_alias));
typedef float ty_row_aligned __attribute__((vector_size(TY_LANES * 4), may_alias));

TY_INLINE ty_row ty_larger(ty_row a, ty_row b) {
#if defined(__AVX__) && (!defined(__clang__) || TY_HAS(__builtin_ia32_maxps256))
  return __builtin_ia32_maxps256(a, b);
#elif defined(__SSE__) && !defined(__AVX__) && (!defined(__clang__) || TY_HAS(__builtin_ia32_maxps))
  return __builtin_ia32_maxps(a, b);
#else
  for (int i = 0; i < TY_LANES; ++i)
    a[i] = a[i] > b[i] ? a[i] : b[i];
  return a;
#endif
}
TY_INLINE ty_row ty_magnitudes(ty_row a) {
  for (int i = 0; i < TY_LANES; ++i)
    a[i] = __builtin_fabsf(a[i]);
  return a;
}

/* One vector's lanes onto its first one, by halves: no step waits for more than the logarithm of them. */
#if defined(__clang__) || TY_HAS(__builtin_shufflevector)
#if TY_LANES == 8
#define TY_TURNED(x, by)                                                                           \
  __builtin_shufflevector(x, x, (by), (by) ^ 1, (by) ^ 2, (by) ^ 3, (by) ^ 4, (by) ^ 5, (by) ^ 6, (by) ^ 7)
#else
#define TY_TURNED(x, by) __builtin_shufflevector(x, x, (by), (by) ^ 1, (by) ^ 2, (by) ^ 3)
#endif
#else
typedef int32_t ty_places __attribute__((vector_size(TY_LANES * 4)));
#if TY_LANES == 8
#define TY_TURNED(x, by)                                                                           \
  __builtin_shuffle(x, (ty_places){(by), (by) ^ 1, (by) ^ 2, (by) ^ 3, (by) ^ 4, (by) ^ 5, (by) ^ 6, (by) ^ 7})
#else
#define TY_TURNED(x, by) __builtin_shuffle(x, (ty_places){(by), (by) ^ 1, (by) ^ 2, (by) ^ 3})
#endif
#endif
#define TY_HALVED(t, step_row)                                                                     \
  do {                                                                                             \
    if (TY_LANES == 8)                                                                             \
      t = step_row(t, TY_TURNED(t, TY_LANES / 2));                                                 \
    t = step_row(t, TY_TURNED(t, 2));                                                              \
    t = step_row(t, TY_TURNED(t, 1));                                                              \
  } while (0)

/* Folds a row onto `total`, four vectors at a time; `step` is one lane's step, `idle` its identity. */
#define TY_REDUCE(name, idle, change, step_row, step)                                              \
  static __attribute__((unused)) float name(float total, const float *x, int64_t n) {              \
    int64_t i = 0;                                                                                 \
    if (n >= TY_LANES) {                                                                           \
      ty_row t0 = (ty_row){0} + (idle), t1 = t0, t2 = t0, t3 = t0;                                 \
      for (; i + 4 * TY_LANES <= n; i += 4 * TY_LANES) {                                           \
        t0 = step_row(t0, change(*(const ty_row *)(x + i)));                                       \
        t1 = step_row(t1, change(*(const ty_row *)(x + i + TY_LANES)));                            \
        t2 = step_row(t2, change(*(const ty_row *)(x + i + 2 * TY_LANES)));                        \
        t3 = step_row(t3, change(*(const ty_row *)(x + i + 3 * TY_LANES)));                        \
      }                                                                                            \
      t0 = step_row(step_row(t0, t1), step_row(t2, t3));                                           \
      for (; i + TY_LANES <= n; i += TY_LANES)                                                     \
        t0 = step_row(t0, change(*(const ty_row *)(x + i)));                                       \
      TY_HALVED(t0, step_row);                                                                     \
      total = step(total, t0[0]);                                                                  \
    }                                                                                              \
    for (; i < n; ++i) {                                                                           \
      ty_row part = (ty_row){0} + x[i];                                                            \
      total = step(total, change(part)[0]);                                                        \
    }                                                                                              \
    return total;                                                                                  \
  }
#define TY_SAME(v) (v)
#define TY_SUM(t, p) ((t) + (p))
#define TY_LARGER(t, p) ty_larger(p, t)
#define TY_SMALLER(t, p) (-ty_larger(-(p), -(t)))
TY_REDUCE(ty_row_sum, -0.0f, TY_SAME, TY_SUM, TY_SUM)
TY_REDUCE(ty_row_abssum, 0.0f, ty_magnitudes, TY_SUM, TY_SUM)
TY_REDUCE(ty_row_max, -TY_INF, TY_SAME, TY_LARGER, ty_max_f32)
TY_REDUCE(ty_row_min, TY_INF, TY_SAME, TY_SMALLER, ty_min_f32)
TY_REDUCE(ty_row_absmax, -TY_INF, ty_magnitudes, TY_LARGER, ty_max_f32)
#undef TY_REDUCE

#if defined(__F16C__) && (!defined(__clang__) || TY_HAS(__builtin_ia32_vcvtps2ph256))
#define TY_HALVES 1
typedef short ty_halves __attribute__((vector_size(16), aligned(2), may_alias));
typedef short ty_halves_aligned __attribute__((vector_size(16)));
TY_INLINE ty_halves_aligned ty_narrow_halves(ty_row x) {
  return (ty_halves_aligned)__builtin_ia32_vcvtps2ph256(x, 0);
}
TY_INLINE ty_row ty_widen_halves(ty_halves_aligned x) {
#if !defined(__clang__) || TY_HAS(__builtin_ia32_vcvtph2ps256)
  return __builtin_ia32_vcvtph2ps256(x);
#else
  typedef _Float16 halves __attribute__((vector_size(16)));
  typedef float floats __attribute__((vector_size(32)));
  return (ty_row)__builtin_convertvector((halves)x, floats);
#endif
}
#else
#define TY_HALVES 0
#endif

/* Narrow rows are read (`from`), converted to (`to`), written as they are (`pack`), or rounded as a
   conversion does, which may be in place. Every element ends as single ones do: conversions to eight
   bits saturate. Halves have instructions of their own. */
#define TY_ROW static __attribute__((unused)) void
#define TY_ROWS(mark, word, convert)                                                               \
  TY_ROW ty_row_from_##mark(float *restrict to, const word *restrict from, int64_t n) {            \
    for (int64_t i = 0; i < n; ++i)                                                                \
      to[i] = ty_from_##mark(from[i]);                                                             \
  }                                                                                                \
  TY_ROW ty_row_to_##mark(word *restrict to, const float *restrict from, int64_t n) {              \
    for (int64_t i = 0; i < n; ++i)                                                                \
      to[i] = ty_pack_##mark(convert(from[i]));                                                    \
  }                                                                                                \
  TY_ROW ty_row_pack_##mark(word *restrict to, const float *restrict from, int64_t n) {            \
    for (int64_t i = 0; i < n; ++i)                                                                \
      to[i] = ty_pack_##mark(from[i]);                                                             \
  }                                                                                                \
  TY_ROW ty_row_round_##mark(float *to, const float *from, int64_t n) {                            \
    TY_INDEPENDENT                                                                                 \
    for (int64_t i = 0; i < n; ++i)                                                                \
      to[i] = convert(from[i]);                                                                    \
  }
TY_ROWS(bf16, uint16_t, ty_round_bf16)
TY_ROWS(tf32, float, ty_round_tf32)
TY_ROWS(f8e4m3, uint8_t, ty_saturate_f8e4m3)
TY_ROWS(f8e5m2, uint8_t, ty_saturate_f8e5m2)
#undef TY_ROWS

TY_ROW ty_row_from_f16(float *restrict to, const uint16_t *restrict from, int64_t n) {
  int64_t i = 0;
#if TY_HALVES
  for (; i + 8 <= n; i += 8)
    *(ty_row *)(to + i) = ty_widen_halves((ty_halves_aligned) * (const ty_halves *)(from + i));
#endif
  for (; i < n; ++i)
    to[i] = ty_from_f16(from[i]);
}
TY_ROW ty_row_to_f16(uint16_t *restrict to, const float *restrict from, int64_t n) {
  int64_t i = 0;
#if TY_HALVES
  for (; i + 8 <= n; i += 8)
    *(ty_halves *)(to + i) = (ty_halves)ty_narrow_halves(*(const ty_row *)(from + i));
#endif
  for (; i < n; ++i)
    to[i] = ty_to_f16(from[i]);
}
TY_ROW ty_row_pack_f16(uint16_t *restrict to, const float *restrict from, int64_t n) {
  ty_row_to_f16(to, from, n);
}
TY_ROW ty_row_round_f16(float *to, const float *from, int64_t n) {
  int64_t i = 0;
#if TY_HALVES
  for (; i + 8 <= n; i += 8)
    *(ty_row *)(to + i) = ty_widen_halves(ty_narrow_halves(*(const ty_row *)(from + i)));
#endif
  for (; i < n; ++i)
    to[i] = ty_round_f16(from[i]);
}

/* ---- vectors of floats from memory and to it ------------------------------------------------------ */

typedef uint32_t ty_words __attribute__((vector_size(TY_LANES * 4)));
typedef uint16_t ty_shorts __attribute__((vector_size(TY_LANES * 2), aligned(2), may_alias));

/* GCC writes out conversions between widths piece by piece: its own names for the instructions. */
#if defined(__AVX2__) && !defined(__clang__)
typedef char ty_char16 __attribute__((vector_size(16)));
typedef short ty_short8 __attribute__((vector_size(16)));
typedef short ty_short8_at __attribute__((vector_size(16), aligned(2), may_alias));
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
TY_INLINE ty_row ty_load_u8(const uint8_t *x) {
  return (ty_row)__builtin_ia32_cvtdq2ps256(__builtin_ia32_pmovzxbd256(ty_eight_bytes(x)));
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

/* ---- arrays that are only written, and so large that no cache holds them ------------------------- */

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

/* ---- passes over rows: one vector at a time, or four of them, a quad ----------------------------- */

typedef struct {
  ty_row a, b, c, d;
} ty_quad;
typedef int32_t ty_signs __attribute__((vector_size(TY_LANES * 4)));
#define TY_QUAD (4 * TY_LANES)

/* Instructions that compilers do not find by themselves, under names of our own. */
#if defined(__AVX2__) && defined(__FMA__) && !defined(__clang__)
#define TY_VECTOR_FMA(x, y, z) ((ty_row)__builtin_ia32_vfmaddps256(x, y, z))
#define TY_CHOOSE(mask, x, y) ((ty_row)__builtin_ia32_blendvps256(y, x, (ty_row)(mask)))
#define TY_GREATER_WORDS(x, y)                                                                     \
  ((ty_words)__builtin_ia32_pmaxud256((ty_int8)(x), (ty_int8)(y)))
#define TY_ANY(mask) __builtin_ia32_movmskps256((ty_row)(mask))
#define TY_EITHER_NAN(x, y) ((ty_signs)__builtin_ia32_cmpps256(x, y, 3))
#define TY_NEAREST(x) ((ty_row)__builtin_ia32_roundps256(x, 8))
#define TY_NEAREST_WORDS(x) ((ty_row)__builtin_ia32_cvtps2dq256(x))
TY_INLINE ty_row ty_one_sqrt(ty_row x) { return __builtin_ia32_sqrtps256(x); }
#else
TY_INLINE ty_row ty_vector_fma(ty_row x, ty_row y, ty_row z) {
  for (int i = 0; i < TY_LANES; ++i)
    x[i] = TY_FMA(x[i], y[i], z[i]);
  return x;
}
TY_INLINE ty_row ty_one_sqrt(ty_row x) {
  for (int i = 0; i < TY_LANES; ++i)
    x[i] = __builtin_sqrtf(x[i]);
  return x;
}
TY_INLINE int ty_any(ty_signs mask) {
  int found = 0;
  for (int i = 0; i < TY_LANES; ++i)
    found |= mask[i];
  return found;
}
#define TY_VECTOR_FMA(x, y, z) ty_vector_fma(x, y, z)
#define TY_CHOOSE(mask, x, y) ((ty_row)(((mask) & (ty_signs)(x)) | (~(mask) & (ty_signs)(y))))
#define TY_GREATER_WORDS(x, y)                                                                     \
  (((x) & (ty_words)((x) > (y))) | ((y) & ~(ty_words)((x) > (y))))
#define TY_ANY(mask) ty_any(mask)
#define TY_EITHER_NAN(x, y) (((x) != (x)) | ((y) != (y)))
#define TY_NEAREST(x) ((x) + TY_ROUNDER - TY_ROUNDER) /* for |x| < 2^22 */
#define TY_NEAREST_WORDS(x) ((x) + TY_ROUNDER)        /* in the last bits */
#endif
TY_INLINE int ty_has_nan(ty_quad x) {
  return TY_ANY(TY_EITHER_NAN(x.a, x.b) | TY_EITHER_NAN(x.c, x.d));
}

TY_INLINE ty_row ty_one_of(float x) { return x - (ty_row){0}; }
TY_INLINE ty_quad ty_quad_of(float x) {
  ty_row all = ty_one_of(x);
  return (ty_quad){all, all, all, all};
}

#define TY_LOAD(name, type)                                                                        \
  TY_INLINE ty_row ty_one_load_##name(const type *x) { return ty_load_##name(x); }
#define TY_QUAD_LOAD(name, type)                                                                   \
  TY_INLINE ty_quad ty_quad_load_##name(const type *x) {                                           \
    return (ty_quad){ty_load_##name(x), ty_load_##name(x + TY_LANES),                              \
                     ty_load_##name(x + 2 * TY_LANES), ty_load_##name(x + 3 * TY_LANES)};          \
  }
/* The same elements in an order that costs less where vectors are narrowed: of each sixteen, the first
   vector has 0 to 3 and 8 to 11. */
#define TY_LACED_LOAD(name, type)                                                                  \
  TY_INLINE ty_quad ty_laced_load_##name(const type *x) { return ty_quad_load_##name(x); }
TY_LOAD(f32, float)
TY_LOAD(f16, uint16_t)
TY_LOAD(bf16, uint16_t)
TY_LOAD(u8, uint8_t)
TY_LOAD(i8, int8_t)
TY_QUAD_LOAD(f32, float)
TY_QUAD_LOAD(f16, uint16_t)
#if defined(__AVX2__) && !defined(__clang__)
/* Bytes of both halves of a vector, picked within each half: a third of what pmovzx costs. `a` to `d`
   are the first elements of the halves' fours, of which each is at the end of its 32 bits. */
typedef char ty_char32 __attribute__((vector_size(32)));
typedef char ty_char16_at __attribute__((vector_size(16), aligned(1), may_alias));
typedef short ty_short16 __attribute__((vector_size(32)));
typedef short ty_short16_at __attribute__((vector_size(32), aligned(2), may_alias));
TY_INLINE ty_char32 ty_twice(const void *x) {
  return (ty_char32)__builtin_ia32_vbroadcastsi256((ty_long2) * (const ty_char16_at *)x);
}
#define TY_SHORT_AT(i) -1, -1, 2 * (i), 2 * (i) + 1
#define TY_BYTE_AT(i) i, -1, -1, -1
#define TY_TOP_AT(i) -1, -1, -1, i
#define TY_FOUR(at, i) at(i), at(i + 1), at(i + 2), at(i + 3)
#define TY_SPREAD(x, at, low, high)                                                                \
  __builtin_ia32_pshufb256(x, (ty_char32){TY_FOUR(at, low), TY_FOUR(at, high)})
#define TY_FROM_SHORTS(x) ((ty_row)TY_SPREAD(ty_twice(x), TY_SHORT_AT, 0, 4))
#define TY_FROM_BYTES(x, low, high)                                                                \
  ((ty_row)__builtin_ia32_cvtdq2ps256((ty_int8)TY_SPREAD(x, TY_BYTE_AT, low, high)))
#define TY_FROM_SIGNED(x, low, high)                                                               \
  ((ty_row)__builtin_ia32_cvtdq2ps256((ty_int8)TY_SPREAD(x, TY_TOP_AT, low, high) >> 24))
TY_INLINE ty_quad ty_quad_load_bf16(const uint16_t *x) {
  return (ty_quad){TY_FROM_SHORTS(x), TY_FROM_SHORTS(x + 8), TY_FROM_SHORTS(x + 16),
                   TY_FROM_SHORTS(x + 24)};
}
TY_INLINE ty_quad ty_laced_load_bf16(const uint16_t *x) {
  ty_short16 low = *(const ty_short16_at *)x, high = *(const ty_short16_at *)(x + 16), zero = {0};
  return (ty_quad){(ty_row)__builtin_ia32_punpcklwd256(zero, low),
                   (ty_row)__builtin_ia32_punpckhwd256(zero, low),
                   (ty_row)__builtin_ia32_punpcklwd256(zero, high),
                   (ty_row)__builtin_ia32_punpckhwd256(zero, high)};
}
#define TY_BYTE_LOADS(name, type, from)                                                            \
  TY_INLINE ty_quad ty_quad_load_##name(const type *x) {                                           \
    ty_char32 low = ty_twice(x), high = ty_twice(x + 16);                                          \
    return (ty_quad){from(low, 0, 4), from(low, 8, 12), from(high, 0, 4), from(high, 8, 12)};      \
  }                                                                                                \
  TY_INLINE ty_quad ty_laced_load_##name(const type *x) {                                          \
    ty_char32 low = ty_twice(x), high = ty_twice(x + 16);                                          \
    return (ty_quad){from(low, 0, 8), from(low, 4, 12), from(high, 0, 8), from(high, 4, 12)};      \
  }
TY_BYTE_LOADS(u8, uint8_t, TY_FROM_BYTES)
TY_BYTE_LOADS(i8, int8_t, TY_FROM_SIGNED)
typedef float ty_float4 __attribute__((vector_size(16)));
typedef float ty_float4_at __attribute__((vector_size(16), aligned(4), may_alias));
TY_INLINE ty_row ty_laced_fours(const float *x) {
  ty_float4 low = *(const ty_float4_at *)x, high = *(const ty_float4_at *)(x + 8);
  return __builtin_ia32_vinsertf128_ps256(__builtin_ia32_ps256_ps(low), high, 1);
}
TY_INLINE ty_quad ty_laced_load_f32(const float *x) {
  return (ty_quad){ty_laced_fours(x), ty_laced_fours(x + 4), ty_laced_fours(x + 16),
                   ty_laced_fours(x + 20)};
}
/* A laced quad in the usual order. */
TY_INLINE ty_quad ty_unlaced(ty_quad x) {
  return (ty_quad){__builtin_ia32_vperm2f128_ps256(x.a, x.b, 0x20),
                   __builtin_ia32_vperm2f128_ps256(x.a, x.b, 0x31),
                   __builtin_ia32_vperm2f128_ps256(x.c, x.d, 0x20),
                   __builtin_ia32_vperm2f128_ps256(x.c, x.d, 0x31)};
}
#else
TY_QUAD_LOAD(u8, uint8_t)
TY_QUAD_LOAD(i8, int8_t)
TY_QUAD_LOAD(bf16, uint16_t)
TY_LACED_LOAD(u8, uint8_t)
TY_LACED_LOAD(i8, int8_t)
TY_LACED_LOAD(bf16, uint16_t)
TY_LACED_LOAD(f32, float)
TY_INLINE ty_quad ty_unlaced(ty_quad x) { return x; }
#endif
#undef TY_LOAD
#undef TY_QUAD_LOAD
#undef TY_LACED_LOAD

#define TY_LIFT_1(name, result)                                                                    \
  TY_INLINE ty_row ty_one_##name(ty_row x) { return result; }                                      \
  TY_INLINE ty_quad ty_quad_##name(ty_quad x) {                                                    \
    return (ty_quad){ty_one_##name(x.a), ty_one_##name(x.b), ty_one_##name(x.c),                   \
                     ty_one_##name(x.d)};                                                          \
  }
#define TY_LIFT_2(name, result)                                                                    \
  TY_INLINE ty_row ty_one_##name(ty_row x, ty_row y) { return result; }                            \
  TY_INLINE ty_quad ty_quad_##name(ty_quad x, ty_quad y) {                                         \
    return (ty_quad){ty_one_##name(x.a, y.a), ty_one_##name(x.b, y.b), ty_one_##name(x.c, y.c),    \
                     ty_one_##name(x.d, y.d)};                                                     \
  }
TY_LIFT_2(add, x + y)
TY_LIFT_2(sub, x - y)
TY_LIFT_2(mul, x *y)
TY_LIFT_2(div, x / y)
TY_LIFT_2(max, TY_CHOOSE(x != x, y, ty_larger(y, x)))
TY_LIFT_2(min, TY_CHOOSE(x != x, y, -ty_larger(-y, -x)))
TY_LIFT_1(neg, -x)
TY_LIFT_1(abs, (ty_row)((ty_words)x & 0x7fffffffu))
/* The exponent that stands in the last bits of `y` is added to x's. */
TY_LIFT_2(exponent, (ty_row)((ty_words)x + ((ty_words)y << 23)))
TY_LIFT_1(rsqrt, 1 / ty_one_sqrt(x))
TY_LIFT_1(round_f16, ty_round_row_f16(x))
TY_INLINE ty_quad ty_quad_sqrt(ty_quad x) {
  return (ty_quad){ty_one_sqrt(x.a), ty_one_sqrt(x.b), ty_one_sqrt(x.c), ty_one_sqrt(x.d)};
}
TY_INLINE ty_row ty_one_round_bf16(ty_row x) { return ty_round_row_bf16(x); }
/* The bits of numbers, rounded to the first sixteen of them; what becomes of NaN is not stated. */
TY_INLINE ty_words ty_easy_bf16(ty_row x) {
  return (ty_words)x + (((ty_words)x >> 16) & 1u) + 0x7fffu;
}
TY_INLINE ty_quad ty_quad_round_bf16(ty_quad x) {
  if (__builtin_expect(ty_has_nan(x), 0))
    return (ty_quad){ty_round_row_bf16(x.a), ty_round_row_bf16(x.b), ty_round_row_bf16(x.c),
                     ty_round_row_bf16(x.d)};
  return (ty_quad){(ty_row)(ty_easy_bf16(x.a) & 0xffff0000u), (ty_row)(ty_easy_bf16(x.b) & 0xffff0000u),
                   (ty_row)(ty_easy_bf16(x.c) & 0xffff0000u), (ty_row)(ty_easy_bf16(x.d) & 0xffff0000u)};
}
TY_INLINE ty_row ty_one_fma(ty_row x, ty_row y, ty_row z) { return TY_VECTOR_FMA(x, y, z); }
TY_INLINE ty_quad ty_quad_fma(ty_quad x, ty_quad y, ty_quad z) {
  return (ty_quad){ty_one_fma(x.a, y.a, z.a), ty_one_fma(x.b, y.b, z.b), ty_one_fma(x.c, y.c, z.c),
                   ty_one_fma(x.d, y.d, z.d)};
}
TY_INLINE ty_row ty_one_plus(ty_row x, float y) { return ty_one_add(x, ty_one_of(y)); }
TY_INLINE ty_quad ty_quad_plus(ty_quad x, float y) { return ty_quad_add(x, ty_quad_of(y)); }
TY_INLINE ty_row ty_one_step(ty_row p, ty_row x, float y) { return ty_one_fma(p, x, ty_one_of(y)); }
TY_INLINE ty_quad ty_quad_step(ty_quad p, ty_quad x, float y) {
  return ty_quad_fma(p, x, ty_quad_of(y));
}
/* Functions that are easy for all numbers below a limit; for others, one by one. The steps of four
   vectors alternate: else processors would have to look far ahead for something to do. */
TY_LIFT_1(nearest, TY_NEAREST(x))
TY_LIFT_1(nearest_words, TY_NEAREST_WORDS(x))
#define TY_EASY_EXP2(type, each)                                                                   \
  TY_INLINE type ty_##each##_easy_exp2(type x) {                                                   \
    type n = ty_##each##_nearest_words(x), f = ty_##each##_sub(x, ty_##each##_nearest(x));         \
    type p = ty_##each##_step(ty_##each##_of(0x1.592830p-10f), f, 0x1.3cf636p-7f);                 \
    p = ty_##each##_step(p, f, 0x1.c6be9cp-5f);                                                    \
    p = ty_##each##_step(p, f, 0x1.ebf998p-3f);                                                    \
    p = ty_##each##_step(p, f, 0x1.62e420p-1f);                                                    \
    return ty_##each##_exponent(ty_##each##_step(p, f, 1.0f), n);                                  \
  }                                                                                                \
  TY_INLINE type ty_##each##_easy_exp(type x) {                                                    \
    type shifted = ty_##each##_fma(x, ty_##each##_of(0x1.715476p+0f), ty_##each##_of(TY_ROUNDER)); \
    type whole = ty_##each##_plus(shifted, -TY_ROUNDER);                                           \
    type r = ty_##each##_fma(whole, ty_##each##_of(-0x1.62e400p-1f), x);                           \
    r = ty_##each##_fma(whole, ty_##each##_of(-0x1.7f7d1cp-20f), r);                               \
    type p = ty_##each##_step(ty_##each##_of(0x1.6a23c4p-10f), r, 0x1.123a22p-7f);                 \
    p = ty_##each##_step(p, r, 0x1.5558f4p-5f);                                                    \
    p = ty_##each##_step(p, r, 0x1.555492p-3f);                                                    \
    p = ty_##each##_step(p, r, 0x1.fffffcp-2f);                                                    \
    p = ty_##each##_plus(ty_##each##_fma(ty_##each##_mul(p, r), r, r), 1.0f);                      \
    return ty_##each##_exponent(p, shifted);                                                       \
  }
TY_EASY_EXP2(ty_row, one)
TY_EASY_EXP2(ty_quad, quad)
#undef TY_EASY_EXP2
#undef TY_LIFT_1
#undef TY_LIFT_2
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
#undef TY_EASY
#undef TY_WITHOUT
#undef TY_MASKED

/* To memory; `past`, which is 0 or how `to` is aligned in bytes, goes past the caches. */
#define TY_PLACE(to, is_large)                                                                     \
  (!(is_large) ? 0 : (uintptr_t)(to) % 32 == 0 ? 32 : (uintptr_t)(to) % 16 == 0 ? 16 : 0)
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
  if (__builtin_expect(past == 32, 1))
    __builtin_ia32_movntdq256((ty_long4 *)to, x);
  else if (past == 0)
    *(ty_long4_at *)to = x;
  else {
    __builtin_ia32_movntdq((ty_long2 *)to, __builtin_ia32_extract128i256(x, 0));
    __builtin_ia32_movntdq((ty_long2 *)to + 1, __builtin_ia32_extract128i256(x, 1));
  }
}
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
#else
TY_QUAD_STORE(quad, f32, float)
TY_QUAD_STORE(quad, bf16, uint16_t)
TY_QUAD_STORE(laced, f32, float)
TY_QUAD_STORE(laced, bf16, uint16_t)
#endif
#if TY_HALVES && defined(__AVX2__) && !defined(__clang__)
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

/* Folds a row onto one number in the order of ty_row_sum and its like. */
#define TY_FOLD(kind, idle, change, step_row, step)                                                \
  TY_INLINE ty_quad ty_quad_begin_##kind(void) {                                                   \
    ty_row t = (ty_row){0} + (idle);                                                               \
    return (ty_quad){t, t, t, t};                                                                  \
  }                                                                                                \
  TY_INLINE ty_row ty_one_fold_##kind(ty_row t, ty_row x) { return step_row(t, change(x)); }       \
  TY_INLINE ty_quad ty_quad_fold_##kind(ty_quad t, ty_quad x) {                                    \
    return (ty_quad){ty_one_fold_##kind(t.a, x.a), ty_one_fold_##kind(t.b, x.b),                   \
                     ty_one_fold_##kind(t.c, x.c), ty_one_fold_##kind(t.d, x.d)};                  \
  }                                                                                                \
  TY_INLINE ty_row ty_quad_join_##kind(ty_quad t) {                                                \
    return step_row(step_row(t.a, t.b), step_row(t.c, t.d));                                       \
  }                                                                                                \
  TY_INLINE float ty_one_join_##kind(float total, ty_row t) {                                      \
    TY_HALVED(t, step_row);                                                                        \
    return step(total, t[0]);                                                                      \
  }                                                                                                \
  TY_INLINE float ty_fold_##kind(float total, float x) {                                           \
    ty_row part = (ty_row){0} + x;                                                                 \
    return step(total, change(part)[0]);                                                           \
  }
TY_FOLD(sum, -0.0f, TY_SAME, TY_SUM, TY_SUM)
TY_FOLD(abssum, 0.0f, ty_magnitudes, TY_SUM, TY_SUM)
TY_FOLD(max, -TY_INF, TY_SAME, TY_LARGER, ty_max_f32)
TY_FOLD(min, TY_INF, TY_SAME, TY_SMALLER, ty_min_f32)
TY_FOLD(absmax, -TY_INF, ty_magnitudes, TY_LARGER, ty_max_f32)
#undef TY_FOLD

/* The largest of a row of narrow floats, found among their bits: of those without a sign the largest as
   signed numbers are, or else, of those with one, the smallest as unsigned ones are. `key` makes the
   smallest, or the largest magnitude, the largest. Rows with NaN are folded as others are. */
#if defined(__AVX2__) && !defined(__clang__)
typedef struct {
  ty_short16 above, below;
} ty_tops;
TY_INLINE ty_tops ty_tops_fold(ty_tops t, ty_short16 x, ty_short16 y) {
  return (ty_tops){__builtin_ia32_pmaxsw256(t.above, __builtin_ia32_pmaxsw256(x, y)),
                   __builtin_ia32_pminuw256(t.below, __builtin_ia32_pminuw256(x, y))};
}
TY_INLINE int32_t ty_tops_end(ty_tops t) {
  int16_t above[16], most = -0x8000;
  uint16_t below[16], least = 0xffff;
  memcpy(above, &t.above, sizeof above);
  memcpy(below, &t.below, sizeof below);
  for (int i = 0; i < 16; ++i) {
    most = above[i] > most ? above[i] : most;
    least = below[i] < least ? below[i] : least;
  }
  return most >= 0 ? most : least;
}
#define TY_TOPS_BEGIN(kind)                                                                        \
  TY_INLINE ty_tops ty_tops_begin_##kind(void) {                                                   \
    return (ty_tops){(ty_short16){0} + (short)0x8000, (ty_short16){0} - 1};                        \
  }
#define TY_TOPS(kind, mark, infinity, key)                                                         \
  TY_INLINE ty_tops ty_tops_fold_##kind##_##mark(ty_tops t, const uint16_t *x) {                   \
    ty_short16 low = *(const ty_short16_at *)x, high = *(const ty_short16_at *)(x + 16);           \
    return ty_tops_fold(t, key(low), key(high));                                                   \
  }                                                                                                \
  static __attribute__((noinline, cold, unused)) float ty_tops_plain_##kind##_##mark(              \
      float total, const uint16_t *row, int64_t n) {                                               \
    ty_quad t = ty_quad_begin_##kind();                                                            \
    for (int64_t i = 0; i < n; i += TY_QUAD)                                                       \
      t = ty_quad_fold_##kind(t, ty_quad_load_##mark(row + i));                                    \
    return ty_one_join_##kind(total, ty_quad_join_##kind(t));                                      \
  }                                                                                                \
  TY_INLINE float ty_tops_end_##kind##_##mark(float total, ty_tops t, const uint16_t *row,         \
                                              int64_t n) {                                         \
    int32_t found = ty_tops_end(t);                                                                \
    if (__builtin_expect((found & 0x7fff) > (infinity), 0))                                        \
      return ty_tops_plain_##kind##_##mark(total, row, n);                                         \
    return ty_fold_##kind(total, ty_from_##mark((uint16_t)key(found)));                            \
  }
#else
typedef ty_quad ty_tops;
#define TY_TOPS_BEGIN(kind)                                                                        \
  TY_INLINE ty_tops ty_tops_begin_##kind(void) { return ty_quad_begin_##kind(); }
#define TY_TOPS(kind, mark, infinity, key)                                                         \
  TY_INLINE ty_tops ty_tops_fold_##kind##_##mark(ty_tops t, const uint16_t *x) {                   \
    return ty_quad_fold_##kind(t, ty_quad_load_##mark(x));                                         \
  }                                                                                                \
  TY_INLINE float ty_tops_end_##kind##_##mark(float total, ty_tops t, const uint16_t *row,         \
                                              int64_t n) {                                         \
    return ty_one_join_##kind(total, ty_quad_join_##kind(t));                                      \
  }
#endif
#define TY_OPPOSITE(bits) ((bits) ^ (short)0x8000)
#define TY_UNSIGNED(bits) ((bits) & 0x7fff)
#define TY_TOPS_OF(kind, key)                                                                      \
  TY_TOPS_BEGIN(kind)                                                                              \
  TY_TOPS(kind, f16, 0x7c00, key)                                                                  \
  TY_TOPS(kind, bf16, 0x7f80, key)
TY_TOPS_OF(max, TY_SAME)
TY_TOPS_OF(min, TY_OPPOSITE)
TY_TOPS_OF(absmax, TY_UNSIGNED)
#undef TY_TOPS_OF
#undef TY_TOPS_BEGIN
#undef TY_TOPS

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
