/* Functions of floats and doubles. */
#ifndef TY_FLOATS_H
#define TY_FLOATS_H

#include "integers.h"

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

#endif
