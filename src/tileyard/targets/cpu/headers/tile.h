/* What generated kernels are written in: scalar types, operations and rows of a tile.

   Every function gives what the tile IR's interpreter gives; functions such as exp2 may differ in
   the last two places. Everything is inline, branch-free where it stands in inner loops, and free of
   intrinsics that a compiler could lack, so that loops over it are vectorized. */
#ifndef TY_TILE_H
#define TY_TILE_H

#ifdef TY_SHIFT
/* Nobody runs it: it moves the code that follows. */
__asm__(".text\n.skip " TY_SHIFT);
#endif

#include "folds.h"
#include "functions.h"
#include "sharing.h"
#include "stores.h"
#include "turning.h"
#include "units.h"

#endif
