// What a generated program says of its case. Little is included, since every case includes this.
#pragma once

namespace sim {

enum class Op { sum, prod, min, max, argmax, argmin, cast };
enum class Type { f32, f16, bf16, i32, i8 };

// A kernel that reads input.bin and writes output.bin: a tile in memory, of which the leading valid part
// counts, reduced along an axis (0: down the columns, 1: along the rows), or cast.
struct Case {
  Op op;
  int axis;
  Type in;
  Type out;
  int rows;
  int columns;
  int valid_rows;
  int valid_columns;
};

// The main function of a case: FOLDER [FAULT]. FAULT is one of none, hang, crash, wrong, slow.
int run_case(int argc, char** argv, const Case& what);

}  // namespace sim
