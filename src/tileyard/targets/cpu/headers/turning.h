/* Blocks that are turned: part[i][q] becomes to[q][i]. */
#ifndef TY_TURNING_H
#define TY_TURNING_H

#include "compilers.h"

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

#endif
