/* Dot products: each lane of `c` adds the products of the elements of two words. As instructions, and in
   plain C, which is their meaning and takes their place for what they do not compute. */
#ifndef TY_UNITS_H
#define TY_UNITS_H

#include "vectors.h"

#define TY_LOW_BF16(x, type) ((type)((x) << 16))
#define TY_HIGH_BF16(x, type) ((type)((x) & 0xffff0000u))
#define TY_PLAIN_BF16(c, a, b)                                                                     \
  do {                                                                                             \
    c += TY_LOW_BF16(a, __typeof__(c)) * TY_LOW_BF16(b, __typeof__(c));                            \
    c += TY_HIGH_BF16(a, __typeof__(c)) * TY_HIGH_BF16(b, __typeof__(c));                          \
  } while (0)

/* Bytes with signs by such bytes, bytes without signs by such bytes, and those without by those with signs. */
#define TY_BYTE(x, at) (((x) >> (at)) & 0xffu)
#define TY_SIGNED_BYTE(x, at) ((TY_BYTE(x, at) ^ 0x80u) - 0x80u)
#define TY_PLAIN_BYTES(left, right, c, a, b)                                                       \
  (c += (left(a, 0) * right(b, 0) + left(a, 8) * right(b, 8)) +                                    \
        (left(a, 16) * right(b, 16) + left(a, 24) * right(b, 24)))
#define TY_PLAIN_S8(c, a, b) TY_PLAIN_BYTES(TY_SIGNED_BYTE, TY_SIGNED_BYTE, c, a, b)
#define TY_PLAIN_U8(c, a, b) TY_PLAIN_BYTES(TY_BYTE, TY_BYTE, c, a, b)
#define TY_PLAIN_I8(c, a, b) TY_PLAIN_BYTES(TY_BYTE, TY_SIGNED_BYTE, c, a, b)

/* TY_UNITS=0 makes every machine take the plain ones: that tests how operands are packed. */
#ifndef TY_UNITS
#define TY_UNITS 1
#endif
#define TY_NEON(name, kind, c, a, b)                                                               \
  __asm__(name " %0.4s, %1." kind ", %2." kind : "+w"(c) : "w"(a), "w"(b))
#if TY_UNITS && defined(__AVX512BF16__) && defined(__AVX512VL__)
#define TY_HAS_BF16 1
#define TY_DOT_BF16(c, a, b) __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b))
#elif TY_UNITS && defined(__aarch64__) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define TY_HAS_BF16 1
#define TY_DOT_BF16(c, a, b) TY_NEON("bfdot", "8h", c, a, b)
#else
#define TY_HAS_BF16 0
#define TY_DOT_BF16(c, a, b) TY_PLAIN_BF16(c, a, b)
#endif
#if TY_UNITS && defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define TY_HAS_I8 1
#define TY_DOT_I8(c, a, b) __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b))
#elif TY_UNITS && defined(__AVXVNNI__)
#define TY_HAS_I8 1
#define TY_DOT_I8(c, a, b) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b))
#elif TY_UNITS && defined(__aarch64__) && defined(__ARM_FEATURE_MATMUL_INT8)
#define TY_HAS_I8 1
#define TY_DOT_I8(c, a, b) TY_NEON("usdot", "16b", c, a, b)
#else
#define TY_HAS_I8 0
#define TY_DOT_I8(c, a, b) TY_PLAIN_I8(c, a, b)
#endif
#if TY_UNITS && defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define TY_HAS_S8 1
#define TY_HAS_U8 1
#define TY_DOT_S8(c, a, b) TY_NEON("sdot", "16b", c, a, b)
#define TY_DOT_U8(c, a, b) TY_NEON("udot", "16b", c, a, b)
#else
#define TY_HAS_S8 0
#define TY_HAS_U8 0
#define TY_DOT_S8(c, a, b) TY_PLAIN_S8(c, a, b)
#define TY_DOT_U8(c, a, b) TY_PLAIN_U8(c, a, b)
#endif

/* A unit is trusted where it has answered: small numbers, whose sums are exact in any order, and all
   combinations of signs and ends. Compared after each: the sum of all is the same with `a` and `b`
   exchanged. Asked when the kernel is loaded. */
static const uint32_t ty_questions_bf16[] = {0x3f804000u, 0xbf80c040u, 0x40e03f00u, 0x00004300u,
                                             0x43008000u, 0x3f003f80u, 0xc0c0c1f0u};
static const uint32_t ty_questions_bytes[] = {0x00000000u, 0x7f80ff01u, 0x807f7f80u, 0xffffffffu,
                                              0x01020304u, 0x80808080u, 0x7f7f7f7fu};
#define TY_ASK(name, questions, dot, plain, vector, words, lanes)                                  \
  static int ty_trusts_##name;                                                                     \
  __attribute__((constructor)) static void ty_ask_##name(void) {                                   \
    vector c = {0}, d = {0};                                                                       \
    ty_trusts_##name = 1;                                                                          \
    for (int i = 0; i < 7; ++i)                                                                    \
      for (int j = 0; j < 7; ++j) {                                                                \
        words a, b;                                                                                \
        for (int n = 0; n < lanes; ++n) {                                                          \
          a[n] = questions[(i + n) % 7];                                                           \
          b[n] = questions[(j + 3 * n) % 7];                                                       \
        }                                                                                          \
        dot(c, a, b);                                                                              \
        plain(d, a, b);                                                                            \
        ty_trusts_##name &= memcmp(&c, &d, sizeof c) == 0;                                         \
      }                                                                                            \
  }
#define TY_ASK_BF16(...) TY_ASK(bf16, ty_questions_bf16, TY_DOT_BF16, TY_PLAIN_BF16, __VA_ARGS__)
#define TY_ASK_I8(...) TY_ASK(i8, ty_questions_bytes, TY_DOT_I8, TY_PLAIN_I8, __VA_ARGS__)
#define TY_ASK_S8(...) TY_ASK(s8, ty_questions_bytes, TY_DOT_S8, TY_PLAIN_S8, __VA_ARGS__)
#define TY_ASK_U8(...) TY_ASK(u8, ty_questions_bytes, TY_DOT_U8, TY_PLAIN_U8, __VA_ARGS__)

/* Words from rows that are adjacent along k. */
TY_INLINE void ty_zip_2(uint32_t *restrict to, const uint16_t *restrict a, const uint16_t *restrict b,
                        int64_t n) {
  TY_INDEPENDENT
  for (int64_t i = 0; i < n; ++i)
    to[i] = (uint32_t)a[i] | (uint32_t)b[i] << 16;
}
TY_INLINE void ty_zip_4(uint32_t *restrict to, const uint8_t *restrict a, const uint8_t *restrict b,
                        const uint8_t *restrict c, const uint8_t *restrict d, int64_t n) {
  TY_INDEPENDENT
  for (int64_t i = 0; i < n; ++i)
    to[i] = (uint32_t)a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 | (uint32_t)d[i] << 24;
}
/* Floats of eight bits. From one power of two to the next, the bits of their bfloat16 are on a line over
   theirs, each line half as steep as the one before: the lowest line is right. That of normal numbers is
   the last; from its value `top` on, numbers are not finite, above `most` they are NaN. */
TY_INLINE uint16_t ty_lower(uint16_t a, uint16_t b) { return a < b ? a : b; }
#define TY_LINE(steep, base) (uint16_t)((m << (steep)) + (base))
#define TY_BF16_FROM(mark, steep, base, top, most)                                                 \
  TY_ROW ty_row_bf16_from_##mark(uint16_t *restrict to, const uint8_t *restrict from, int64_t n) { \
    TY_INDEPENDENT                                                                                 \
    for (int64_t i = 0; i < n; ++i) {                                                              \
      uint16_t h = from[i], m = h & 0x7fu, zero = (uint16_t)-m;                                    \
      uint16_t a = TY_LINE((steep) + 3, (base) - 0x180u), b = TY_LINE((steep) + 2, (base) - 0x100u); \
      uint16_t c = TY_LINE((steep) + 1, (base) - 0x80u), d = TY_LINE(steep, base);                 \
      uint16_t value = ty_lower(ty_lower(ty_lower(a, b), ty_lower(c, d)), zero);                   \
      uint16_t special = value > (most) ? 0x7fc0u : 0x7f80u;                                       \
      to[i] = (uint16_t)((value < (top) ? value : special) | (h & 0x80u) << 8);                    \
    }                                                                                              \
  }
TY_BF16_FROM(f8e4m3, 4, 0x3c00u, 0x43f0u, 0x43e0u)
TY_BF16_FROM(f8e5m2, 5, 0x3800u, 0x4780u, 0x4780u)
#undef TY_LINE
#undef TY_BF16_FROM

/* Whether some are denormal. */
TY_INLINE int ty_has_small_bf16(const uint16_t *x, int64_t n) {
  uint16_t least = 0xffffu;
  for (int64_t i = 0; i < n; ++i) {
    uint16_t size = (uint16_t)((x[i] & 0x7fffu) - 1u);
    least = size < least ? size : least;
  }
  return least < 0x7fu;
}
/* Gives bytes the other kind of sign, less or plus 128. */
TY_INLINE void ty_flip_bytes(void *x, int64_t n) {
  uint8_t *bytes = x;
  for (int64_t i = 0; i < n; ++i)
    bytes[i] ^= 0x80u;
}

#endif
